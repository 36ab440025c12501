//! Allocating, attaching to and releasing grants.

use super::grant::{GrantState, LocalGrant};
use super::layout::{LunUse, PhysBlock};
use super::records::{GrantRow, LunRow};
use super::{GrantRequest, Monitor};
use crate::error::LevelError;
use crate::grant::Grant;
use std::sync::Arc;
use weft_core::Nanos;
use weft_core::text::is_hidden;

/// Longest name of a grant, in bytes.
const NAME_BYTES_MAX: usize = 255;

impl Monitor {
    /// Allots LUNs, round the channels, the least worn of each first; their blocks are erased. The caller is attached.
    ///
    /// [`LevelError::BadRequest`] also when the device has no room for the records of so many grants with names as long as these: nothing
    /// is written then.
    pub fn allocate(self: &Arc<Monitor>, request: &GrantRequest) -> Result<Grant, LevelError> {
        check_name(&request.name)?;
        if request.bytes == 0 {
            return Err(LevelError::BadRequest("a grant of 0 bytes; ask for some".into()));
        }
        let mut control = self.control.lock();
        if control.records.grants.values().any(|row| row.name == request.name) {
            return Err(LevelError::GrantExists(request.name.clone()));
        }
        let wanted = self.layout.luns_for(request);
        let chosen = self.choose_luns(control.free_luns(&*self.backend, &self.layout)?, wanted)?;
        control.check_room(&self.layout, &request.name, chosen.len())?;
        let mut now = Nanos(0);
        let mut taken: Vec<PhysBlock> = Vec::new();
        let mut luns = Vec::new();
        let wanted = self.layout.blocks_granted as usize;
        for (channel, lun) in chosen {
            let places = control.take_many(&*self.backend, &self.layout, lun, wanted, &mut now);
            let refused = match &places {
                Ok(places) => places.len() < wanted,
                Err(_) => true,
            };
            taken.extend(places.iter().flatten());
            if refused {
                taken.iter().for_each(|place| control.give_back(*place));
                places?;
                return Err(LevelError::NoSpare { lun });
            }
            let places = self.in_planes(places?);
            luns.push(LunRow { channel, home: lun, places });
        }
        let id = control.records.next_grant;
        let row = GrantRow {
            name: request.name.clone(),
            bytes: request.bytes,
            over_provisioning_permille: request.over_provisioning_permille,
            luns,
        };
        let state = Arc::new(GrantState::new(id, &row, &self.layout));
        let mut after = control.records.clone();
        after.next_grant += 1;
        after.grants.insert(id, row);
        if let Err(error) = control.replace(&*self.backend, &self.layout, after, now) {
            taken.iter().for_each(|place| control.give_back(*place));
            return Err(error);
        }
        state.occupy();
        control.states.insert(id, state.clone());
        Ok(Grant::local(LocalGrant { monitor: self.clone(), state }))
    }

    /// Places in the order in which a grant numbers its blocks: those of neighbouring numbers are in different planes, as far
    /// as the planes have as many good blocks.
    fn in_planes(&self, mut places: Vec<PhysBlock>) -> Vec<PhysBlock> {
        places.sort_by_key(|place| place.block);
        let mut of_plane = vec![0; self.layout.shape.planes as usize];
        places.sort_by_cached_key(|place| {
            let plane = self.layout.plane(*place);
            let rank = &mut of_plane[plane as usize];
            *rank += 1;
            (*rank, plane)
        });
        places
    }

    /// Free LUNs for a grant, each with the channel that it has in the grant: round the channels, beginning with the one
    /// that has most free.
    fn choose_luns(&self, free: Vec<LunUse>, wanted: u64) -> Result<Vec<(u32, u32)>, LevelError> {
        let shape = self.layout.shape;
        if wanted > free.len() as u64 {
            return Err(LevelError::NoFreeLuns { wanted, free: free.len() as u32 });
        }
        let mut by_channel: Vec<Vec<(u64, u32)>> = vec![Vec::new(); shape.channels as usize];
        for LunUse { lun, erases, .. } in free {
            by_channel[shape.lun_at(lun).channel as usize].push((erases, lun));
        }
        by_channel.iter_mut().for_each(|luns| luns.sort_by(|a, b| b.cmp(a)));
        let mut order: Vec<usize> = (0..by_channel.len()).collect();
        order.sort_by_key(|channel| std::cmp::Reverse(by_channel[*channel].len()));
        let mut chosen = Vec::new();
        while (chosen.len() as u64) < wanted {
            for (number, channel) in order.iter().enumerate() {
                if (chosen.len() as u64) < wanted
                    && let Some((_, lun)) = by_channel[*channel].pop()
                {
                    chosen.push((number as u32, lun));
                }
            }
        }
        Ok(chosen)
    }

    /// Attaches to a grant that exists. One handle at a time: [`LevelError::GrantInUse`] while another one lives.
    pub fn attach(self: &Arc<Monitor>, name: &str) -> Result<Grant, LevelError> {
        let state = self.state_of(name)?;
        if !state.occupy() {
            return Err(LevelError::GrantInUse(name.to_string()));
        }
        let grant = LocalGrant { monitor: self.clone(), state };
        grant.replace_bad()?;
        Ok(Grant::local(grant))
    }

    /// Gives the LUNs of a grant back. What was on them is erased before somebody else gets them.
    pub fn release(&self, name: &str) -> Result<(), LevelError> {
        let state = self.state_of(name)?;
        if !state.occupy() {
            return Err(LevelError::GrantInUse(name.to_string()));
        }
        let result = self.forget(&state);
        if result.is_err() {
            state.vacate();
        }
        result
    }

    fn forget(&self, state: &GrantState) -> Result<(), LevelError> {
        let _no_swap = self.leveling.lock();
        let mut control = self.control.lock();
        let mut after = control.records.clone();
        let row = after.remove(state.id);
        control.replace(&*self.backend, &self.layout, after, Nanos(0))?;
        control.states.remove(&state.id);
        for place in row.iter().flat_map(|row| &row.luns).flat_map(|lun| &lun.places) {
            control.give_back(*place);
        }
        Ok(())
    }

    fn state_of(&self, name: &str) -> Result<Arc<GrantState>, LevelError> {
        let control = self.control.lock();
        let found = control.states.values().find(|state| state.name == name);
        if found.is_none() {
            check_name(name)?;
        }
        found.cloned().ok_or_else(|| LevelError::NoSuchGrant(name.to_string()))
    }
}

/// Refuses a name that no grant may have.
fn check_name(name: &str) -> Result<(), LevelError> {
    if name.is_empty() || name.len() > NAME_BYTES_MAX {
        let what = format!("a grant's name has 1 to {NAME_BYTES_MAX} bytes, not {}", name.len());
        return Err(LevelError::BadRequest(what));
    }
    if name.contains(is_hidden) {
        // As an escape: it would be shown as another one.
        let shown: String = name
            .chars()
            .flat_map(|c| if is_hidden(c) { c.escape_unicode().collect() } else { vec![c] })
            .collect();
        let what = format!(
            "the name '{shown}' has characters that control the terminal, change the direction of text or cannot be seen; leave \
             them out"
        );
        return Err(LevelError::BadRequest(what));
    }
    Ok(())
}
