//! Cuts the power again and again.

use super::check::Violation;
use super::recorder::{Recorder, is_power_cut};
use super::workload::Workload;
use crate::fixture::{args, bytes};
use weft_core::Ino;
use weft_vfs::{FileSystem, FsError, FsResult, NewNode};

/// Steps that a recovered volume is used for before it is opened once more.
const STEPS_AFTER_RECOVERY: usize = 8;
/// Makes of a workload's seed that of what follows its recovery: other names, other bytes.
const SEED_AFTER_RECOVERY: u64 = 0x5eed_0000;

/// A workload: what is done, and how much of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CrashCase {
    /// Which workload.
    pub seed: u64,
    /// Steps, of one to some ten operations each.
    pub ops: usize,
}

/// How a workload ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// All of it was done.
    Finished,
    /// The core failed with `Device` or `ReadOnly`: its device has no power.
    PowerCut,
}

/// Runs a workload until it ends or the power is cut. Any other error of the core is returned.
pub fn run_until_error(fs: &dyn FileSystem, case: CrashCase, recorder: &mut Recorder) -> FsResult<End> {
    let mut workload = Workload::new(case.seed);
    for _ in 0..case.ops {
        match workload.step(fs, recorder) {
            Ok(()) => {}
            Err(error) if is_power_cut(&error) => return Ok(End::PowerCut),
            Err(error) => return Err(error),
        }
    }
    Ok(End::Finished)
}

/// A core on a device whose power can be cut. What a core supplies to [`survive_cuts`].
pub trait Rig {
    /// An empty volume on a device that does its first `operations` operations from now on, and then none;
    /// `u64::MAX` for a device that is never cut. Making the volume does not count.
    fn start(&mut self, operations: u64) -> Box<dyn FileSystem>;

    /// Operations that the device has done since [`start`](Rig::start).
    fn operations(&self) -> u64;

    /// Drops the core as a crash does, without a word to the device, gives the power back for good, and opens the
    /// volume again from what the device kept. An error is a failed recovery. A rig may cut the power within the
    /// recovery as well and recover once more: no more may be lost by that.
    fn recover(&mut self, core: Box<dyn FileSystem>) -> FsResult<Box<dyn FileSystem>>;
}

/// What [`survive_cuts`] did.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CutReport {
    /// Device operations of the whole workload.
    pub operations: u64,
    /// Power cuts.
    pub cuts: u64,
    /// Promises that were held against a recovered volume, over all cuts.
    pub promises: u64,
    /// Recorded operations, over all cuts.
    pub events: u64,
}

/// A power cut that a core did not survive.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{case:?}, power cut after {cut_after} device operations, event {events}: {violation}")]
pub struct Casualty {
    /// Workload in which it happened.
    pub case: CrashCase,
    /// Device operations that were done.
    pub cut_after: u64,
    /// Operations that were recorded until then.
    pub events: usize,
    /// What was wrong.
    pub violation: Violation,
}

/// Runs a workload again and again, and cuts the power after 0, `every`, 2 `every`, ... device operations. After each
/// cut the volume is recovered and judged; then it is used a little, opened again, and judged once more.
pub fn survive_cuts(rig: &mut dyn Rig, case: CrashCase, every: u64) -> Result<CutReport, Box<Casualty>> {
    let casualty = |cut_after, events, violation| Box::new(Casualty { case, cut_after, events, violation });
    // Every run begins with an equal volume. It is read here, where the device has power.
    let fresh = Recorder::new(&*rig.start(u64::MAX)).map_err(|violation| casualty(u64::MAX, 0, violation))?;
    let mut report = CutReport::default();
    let mut cut_after = u64::MAX;
    loop {
        let mut recorder = fresh.clone();
        let core = rig.start(cut_after);
        let end = run_until_error(&*core, case, &mut recorder);
        let operations = rig.operations();
        judge(rig, core, case, end, &recorder)
            .map_err(|violation| casualty(cut_after, recorder.len(), violation))?;
        report.events += recorder.len() as u64;
        report.promises += recorder.promises() as u64;
        if cut_after == u64::MAX {
            if operations == 0 {
                return Err(casualty(
                    cut_after,
                    recorder.len(),
                    Violation::Unusable("the device did nothing".into()),
                ));
            }
            report.operations = operations;
            cut_after = 0;
        } else {
            report.cuts += 1;
            cut_after += every.max(1);
        }
        if cut_after >= report.operations {
            return Ok(report);
        }
    }
}

/// Recovers a core after a run and judges it; then uses it a little, opens it again, and judges it once more.
fn judge(
    rig: &mut dyn Rig,
    core: Box<dyn FileSystem>,
    case: CrashCase,
    end: FsResult<End>,
    recorder: &Recorder,
) -> Result<(), Violation> {
    let unusable = |what: &str, error: &FsError| Violation::Unusable(format!("{what}: {error:?}"));
    end.map_err(|error| unusable("before the cut", &error))?;
    let core = rig.recover(core).map_err(|error| unusable("recovery", &error))?;
    recorder.check(&*core)?;

    takes_new_writes(&*core)?;
    let mut after = Recorder::new(&*core)?;
    let more = CrashCase { seed: case.seed ^ SEED_AFTER_RECOVERY, ops: STEPS_AFTER_RECOVERY };
    let end =
        run_until_error(&*core, more, &mut after).map_err(|error| unusable("after recovery", &error))?;
    if end == End::PowerCut {
        return Err(Violation::Unusable("the device has power, and the core fails as if it had none".into()));
    }
    after.sync(&*core).map_err(|error| unusable("sync after recovery", &error))?;
    let core = rig.recover(core).map_err(|error| unusable("second recovery", &error))?;
    after.check(&*core)
}

/// Makes sure that a file can be made, synced, read back and removed.
pub fn takes_new_writes(fs: &dyn FileSystem) -> Result<(), Violation> {
    let data = bytes(0xfeed, 10_000);
    let name = b"written after recovery";
    let attempt = || -> FsResult<Vec<u8>> {
        let ino = fs.create(Ino::ROOT, name, &args(NewNode::File))?.ino;
        fs.write(ino, 0, &data)?;
        fs.fsync(ino)?;
        let mut read = vec![0; data.len() + 1];
        let len = fs.read(ino, 0, &mut read)?;
        read.truncate(len);
        fs.unlink(Ino::ROOT, name)?;
        fs.sync()?;
        Ok(read)
    };
    match attempt() {
        Ok(read) if read == data => Ok(()),
        Ok(_) => Err(Violation::Unusable("a new file reads as something else".into())),
        Err(error) => Err(Violation::Unusable(format!("{error:?}"))),
    }
}
