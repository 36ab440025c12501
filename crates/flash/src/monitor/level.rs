//! Global wear leveling: chooses the LUNs to exchange, and reports the cost.
//!
//! FlashBlox (Huang et al., FAST 2017) lets wear diverge between tenants for a while and corrects it coarsely: when the
//! most worn unit is above the mean by more than a threshold, it changes places with the least worn one. Here a unit is
//! a LUN. A LUN that has just got a quiet tenant is not moved again because of wear that it got earlier: only LUNs whose
//! blocks were erased faster than the mean since the last run are moved away from, and only slower ones moved to.

use super::Monitor;
use super::copy::Moved;
use super::layout::Layout;
use super::records::{GrantLun, SwapRow};
use crate::backend::Backend;
use crate::error::LevelError;
use serde::Serialize;
use weft_core::Nanos;

/// When LUNs change places.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LevelPolicy {
    /// Nothing is done while the most worn LUN has at most so many times the mean of erases.
    pub max_over_mean: f64,
    /// LUNs change places only if their blocks differ by so many erases on average: a swap costs one itself.
    pub gap_erases_min: u32,
    /// Most swaps of one run.
    pub swaps_max: u32,
}

impl Default for LevelPolicy {
    /// 5 % above the mean and 16 erases apart, one swap a run.
    fn default() -> LevelPolicy {
        LevelPolicy { max_over_mean: 1.05, gap_erases_min: 16, swaps_max: 1 }
    }
}

/// Erases of a LUN.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct LunWear {
    /// The physical number.
    pub lun: u32,
    /// The grant that it belongs to.
    pub grant: Option<String>,
    /// Erases of all its blocks.
    pub erases: u64,
    /// Erases of its most worn block.
    pub most: u32,
    /// Bad blocks.
    pub bad: u32,
}

/// How evenly the LUNs are worn.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct Spread {
    /// Mean erases of a LUN's blocks, all together.
    pub mean: f64,
    /// Erases of the most worn LUN.
    pub max: u64,
    /// Erases of the least worn LUN.
    pub min: u64,
}

impl Spread {
    fn of(erases: &[u64]) -> Spread {
        Spread {
            mean: erases.iter().sum::<u64>() as f64 / erases.len().max(1) as f64,
            max: erases.iter().copied().max().unwrap_or(0),
            min: erases.iter().copied().min().unwrap_or(0),
        }
    }

    /// The most worn LUN's erases over the mean; 1 when nothing was erased.
    pub fn max_over_mean(&self) -> f64 {
        if self.mean == 0.0 { 1.0 } else { self.max as f64 / self.mean }
    }
}

/// What a run of wear leveling did.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct LevelReport {
    /// Before it.
    pub before: Spread,
    /// After it.
    pub after: Spread,
    /// LUNs exchanged, in pairs.
    pub swaps: u32,
    /// Pages copied.
    pub pages_copied: u64,
    /// Blocks that got another place.
    pub blocks_moved: u64,
    /// A swap waits for good blocks: a LUN has lost its spares. Nothing is lost, and no other LUNs are exchanged until a
    /// grant of the two is released.
    pub waits: bool,
    /// How long it took, in device time.
    pub took: Nanos,
}

/// Erases of each LUN when wear leveling last ran.
#[derive(Debug)]
pub(super) struct LevelMemory {
    erases: Vec<u64>,
}

impl LevelMemory {
    pub fn new(backend: &dyn Backend, layout: &Layout) -> Result<LevelMemory, LevelError> {
        Ok(LevelMemory { erases: erases_by_lun(backend, layout)? })
    }
}

fn erases_by_lun(backend: &dyn Backend, layout: &Layout) -> Result<Vec<u64>, LevelError> {
    (0..layout.shape.luns()).map(|lun| Ok(layout.use_of(backend, lun)?.erases)).collect()
}

impl Monitor {
    /// How worn each LUN is.
    pub fn wear(&self) -> Result<Vec<LunWear>, LevelError> {
        let mut grants = vec![None; self.layout.shape.luns() as usize];
        for info in self.grants() {
            info.luns.iter().for_each(|lun| grants[*lun as usize] = Some(info.name.clone()));
        }
        let wear = |(lun, grant): (usize, Option<String>)| {
            let lun = lun as u32;
            let infos = self.backend.lun_info(self.layout.shape.lun_at(lun))?;
            Ok(LunWear {
                lun,
                grant,
                erases: infos.iter().map(|info| u64::from(info.erases)).sum(),
                most: infos.iter().map(|info| info.erases).max().unwrap_or(0),
                bad: infos.iter().filter(|info| info.state.is_bad()).count() as u32,
            })
        };
        grants.into_iter().enumerate().map(wear).collect()
    }

    /// Exchanges LUNs while the wear of the device is uneven. To be called now and then, by whoever runs the device; a
    /// swap copies two LUNs, so often is not better.
    pub fn level_wear(&self, policy: LevelPolicy, issued: Nanos) -> Result<LevelReport, LevelError> {
        let mut memory = self.leveling.lock();
        let erases = erases_by_lun(&*self.backend, &self.layout)?;
        let mut report = LevelReport { before: Spread::of(&erases), ..LevelReport::default() };
        report.after = report.before;
        let recent: Vec<u64> = erases.iter().zip(&memory.erases).map(|(now, then)| now - then).collect();
        memory.erases.clone_from(&erases);
        let mut moved = Moved::default();
        let mut now = issued;
        let mut done: Vec<u32> = Vec::new();
        report.waits = !self.finish_swap(&mut now, &mut moved)?;
        while !report.waits
            && report.swaps < policy.swaps_max
            && report.after.max_over_mean() > policy.max_over_mean
        {
            let Some(swap) = self.choose_swap(&policy, &erases, &recent, &done)? else { break };
            if !self.swap(swap, &mut now, &mut moved)? {
                report.waits = true;
                break;
            }
            done.extend([swap.from, swap.to]);
            report.swaps += 1;
            report.after = Spread::of(&erases_by_lun(&*self.backend, &self.layout)?);
        }
        if moved.blocks > 0 {
            // What the swaps themselves erased is nobody's rate.
            memory.erases = erases_by_lun(&*self.backend, &self.layout)?;
            tracing::info!(swaps = report.swaps, pages = moved.pages, "wear leveling exchanged LUNs");
        }
        (report.pages_copied, report.blocks_moved) = (moved.pages, moved.blocks);
        report.took = Nanos(now.0.saturating_sub(issued.0));
        Ok(report)
    }

    /// The most worn of the busy LUNs and the least worn of the quiet ones, of those that have a block for scratch.
    fn choose_swap(
        &self,
        policy: &LevelPolicy,
        erases: &[u64],
        recent: &[u64],
        done: &[u32],
    ) -> Result<Option<SwapRow>, LevelError> {
        let control = self.control.lock();
        let mut grant_luns: Vec<Option<GrantLun>> = vec![None; erases.len()];
        control
            .records
            .grant_luns()
            .for_each(|(grant_lun, row)| grant_luns[row.home as usize] = Some(grant_lun));
        let good = |lun| Ok(self.layout.use_of(&*self.backend, lun)?.good);
        let good = (0..erases.len() as u32).map(good).collect::<Result<Vec<u32>, LevelError>>()?;
        let scratch = |lun: usize| good[lun] > self.layout.blocks_granted;
        let mean = recent.iter().sum::<u64>() as f64 / recent.len().max(1) as f64;
        let may = |lun: &usize| !done.contains(&(*lun as u32));
        let busy = |lun: &usize| recent[*lun] as f64 > mean && grant_luns[*lun].is_some();
        let quiet = |lun: &usize| recent[*lun] as f64 <= mean;
        // Into a free LUN everything moves one way, and needs no scratch.
        let free = |lun: &usize| grant_luns[*lun].is_none() && good[*lun] >= self.layout.blocks_granted;
        let any_free = (0..erases.len()).filter(may).filter(quiet).any(|lun| free(&lun));
        let movable = |lun: &usize| scratch(*lun) || any_free;
        let from = (0..erases.len()).filter(may).filter(busy).filter(movable).max_by_key(|lun| erases[*lun]);
        let Some(from) = from else { return Ok(None) };
        let fits = |lun: &usize| free(lun) || grant_luns[*lun].is_some() && scratch(*lun) && scratch(from);
        // Of equally worn ones the one on the same channel: the traffic of the channels stays as it was.
        let other_channel =
            |lun: usize| lun as u32 % self.layout.shape.channels != from as u32 % self.layout.shape.channels;
        let to = (0..erases.len())
            .filter(may)
            .filter(quiet)
            .filter(|lun| *lun != from)
            .filter(fits)
            .min_by_key(|lun| (erases[*lun], other_channel(*lun)));
        let Some(to) = to else { return Ok(None) };
        let gap = erases[from].saturating_sub(erases[to]);
        if gap == 0 || gap < u64::from(policy.gap_erases_min) * u64::from(self.layout.shape.blocks_per_lun())
        {
            return Ok(None);
        }
        let row = |first| SwapRow { first, second: grant_luns[to], from: from as u32, to: to as u32 };
        Ok(grant_luns[from].map(row))
    }
}
