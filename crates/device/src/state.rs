//! The zone state machine (NVMe ZNS command set specification 1.1, section 2.1.1.3), as a pure transition function.

use crate::DeviceError;
use crate::zoned::{ZoneReport, ZoneState};
use weft_core::{BLOCK_BYTES, ZoneId};

/// What is asked of a zone.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Action {
    /// A write that leaves room in the zone.
    Write,
    /// A write that reaches the end of the zone's capacity.
    WriteToEnd,
    /// Open Zone.
    Open,
    /// Close Zone, or the device's own closing of an implicitly open zone.
    Close,
    /// Finish Zone.
    Finish,
    /// Reset Zone.
    Reset,
}

impl Action {
    /// Every action.
    pub const ALL: [Action; 6] =
        [Action::Write, Action::WriteToEnd, Action::Open, Action::Close, Action::Finish, Action::Reset];

    fn name(self) -> &'static str {
        match self {
            Action::Write | Action::WriteToEnd => "write",
            Action::Open => "open",
            Action::Close => "close",
            Action::Finish => "finish",
            Action::Reset => "reset",
        }
    }
}

/// The state after `action`, or the status with which it is refused. Limits are not judged here.
pub fn next(zone: ZoneId, state: ZoneState, action: Action) -> Result<ZoneState, DeviceError> {
    use ZoneState::*;
    match (action, state) {
        (Action::Write | Action::WriteToEnd, Full) => Err(DeviceError::ZoneFull(zone)),
        (Action::Write | Action::WriteToEnd, ReadOnly) => Err(DeviceError::ZoneReadOnly(zone)),
        (Action::Write | Action::WriteToEnd, Offline) => Err(DeviceError::ZoneOffline(zone)),
        (Action::WriteToEnd, _) => Ok(Full),
        (Action::Write, ExplicitlyOpen) => Ok(ExplicitlyOpen),
        (Action::Write, Empty | ImplicitlyOpen | Closed) => Ok(ImplicitlyOpen),
        (Action::Open, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed) => Ok(ExplicitlyOpen),
        (Action::Close, ImplicitlyOpen | ExplicitlyOpen | Closed) => Ok(Closed),
        (Action::Finish, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Ok(Full),
        (Action::Reset, Empty | ImplicitlyOpen | ExplicitlyOpen | Closed | Full) => Ok(Empty),
        _ => Err(DeviceError::InvalidTransition { zone, state, action: action.name() }),
    }
}

/// The blocks of a command of so many bytes.
pub fn whole_blocks(bytes: usize) -> Result<u32, DeviceError> {
    if !bytes.is_multiple_of(BLOCK_BYTES) {
        return Err(DeviceError::Unaligned(bytes));
    }
    Ok(u32::try_from(bytes / BLOCK_BYTES).unwrap_or(u32::MAX))
}

/// Checks a write of so many blocks, at the write pointer or `at` a block, against a zone of this state, write pointer and
/// capacity; what it does to the state.
pub fn judge_write(
    zone: ZoneId,
    found: ZoneReport,
    capacity: u32,
    at: Option<u32>,
    blocks: u32,
) -> Result<Action, DeviceError> {
    let ZoneReport { state, write_pointer } = found;
    let end = u64::from(at.unwrap_or(write_pointer)) + u64::from(blocks);
    let action = if end == u64::from(capacity) { Action::WriteToEnd } else { Action::Write };
    next(zone, state, action)?;
    if let Some(at) = at
        && at != write_pointer
    {
        return Err(DeviceError::ZoneInvalidWrite { zone, at, write_pointer });
    }
    if end > u64::from(capacity) {
        return Err(DeviceError::ZoneBoundary { zone, at: write_pointer, blocks, capacity });
    }
    Ok(action)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One row a state, one column an action in the order of `Action::ALL`; F, R, O: refused as full, read-only,
    /// offline; x: Invalid Zone State Transition.
    const TABLE: [(ZoneState, [&str; 6]); 7] = [
        (ZoneState::Empty, ["io", "full", "eo", "x", "full", "empty"]),
        (ZoneState::ImplicitlyOpen, ["io", "full", "eo", "closed", "full", "empty"]),
        (ZoneState::ExplicitlyOpen, ["eo", "full", "eo", "closed", "full", "empty"]),
        (ZoneState::Closed, ["io", "full", "eo", "closed", "full", "empty"]),
        (ZoneState::ReadOnly, ["R", "R", "x", "x", "x", "x"]),
        (ZoneState::Full, ["F", "F", "x", "x", "full", "empty"]),
        (ZoneState::Offline, ["O", "O", "x", "x", "x", "x"]),
    ];

    #[test]
    fn every_transition_is_the_one_in_the_table() {
        for (state, row) in TABLE {
            for (action, expected) in Action::ALL.into_iter().zip(row) {
                let got = match next(ZoneId(0), state, action) {
                    Ok(ZoneState::Empty) => "empty",
                    Ok(ZoneState::ImplicitlyOpen) => "io",
                    Ok(ZoneState::ExplicitlyOpen) => "eo",
                    Ok(ZoneState::Closed) => "closed",
                    Ok(ZoneState::Full) => "full",
                    Ok(other) => panic!("no action leads to {other}"),
                    Err(DeviceError::ZoneFull(_)) => "F",
                    Err(DeviceError::ZoneReadOnly(_)) => "R",
                    Err(DeviceError::ZoneOffline(_)) => "O",
                    Err(DeviceError::InvalidTransition { .. }) => "x",
                    Err(other) => panic!("{other}"),
                };
                assert_eq!(got, expected, "{action:?} of a zone that is {state}");
            }
        }
    }
}
