//! db_bench on a volume against the file system below its image, and db_bench hooked against not hooked.

use crate::db_bench::{Workload, ops_per_second, output_of};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use crate::{Common, Load};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A volume for programs that do not use it.
const IDLE_VOLUME: &str = "mem:64M";

/// A directory that is made, and goes with what is in it.
pub struct Scratch(PathBuf);

impl Scratch {
    /// Makes it below the directory that is measured.
    pub fn new(common: &Common, name: &str) -> Result<Scratch, BenchError> {
        let path = common.dir.join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| BenchError::io(path.display(), e))?;
        // Programs run elsewhere, too.
        let path = path.canonicalize().map_err(|e| BenchError::io(path.display(), e))?;
        Ok(Scratch(path))
    }

    /// An empty place in it.
    pub fn fresh(&self, name: &str) -> Result<PathBuf, BenchError> {
        let path = self.0.join(name);
        let gone = if path.is_dir() { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        match gone {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(BenchError::io(path.display(), error))
            }
            _ => Ok(path),
        }
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// What was written before may not be written back while the next run is measured.
fn settle() -> Result<(), BenchError> {
    output_of(&mut Command::new("sync")).map(drop)
}

/// Fills what a workload reads, then runs it; `wrap` makes the command that db_bench's arguments are added to.
fn measure(
    workload: Workload,
    db: &Path,
    load: &Load,
    wrap: &dyn Fn() -> Command,
) -> Result<f64, BenchError> {
    if workload.reads() {
        output_of(wrap().args(Workload::fill_args(db, load.keys)))?;
    }
    settle()?;
    let output = output_of(wrap().args(workload.args(db, load.keys, load.syncs)))?;
    ops_per_second(&output, workload.name())
}

fn native() -> Command {
    Command::new("db_bench")
}

/// A command on a volume, to which program and arguments are added.
pub fn under(weft: &Path, volume: &Path) -> Command {
    let mut command = Command::new(weft);
    command.args(["run", "--quiet", "--volume"]).arg(volume).arg("--");
    command
}

/// Makes an image.
pub fn format(weft: &Path, image: &Path, size: &str) -> Result<(), BenchError> {
    output_of(Command::new(weft).args(["format", "--quiet", "--size", size]).arg(image)).map(drop)
}

/// db_bench on a volume.
fn db_bench_under(weft: &Path, volume: &Path) -> Command {
    let mut command = under(weft, volume);
    command.arg("db_bench");
    command
}

/// Volume against file system.
pub fn disk(common: &Common, load: &Load) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "disk")?;
    let on_file_system = |workload: Workload| {
        let db = scratch.fresh("native")?;
        measure(workload, &db, load, &native)
    };
    let on_volume = |workload: Workload| {
        let image = scratch.fresh("vol.img")?;
        format(&weft, &image, &load.size)?;
        measure(workload, Path::new("/weft/db"), load, &|| db_bench_under(&weft, &image))
    };
    let compare = |workload: &Workload| {
        let w = *workload;
        Comparison::run(
            w.name(),
            Unit::OpsPerSecond,
            "disk",
            common.pairs,
            |_| on_file_system(w),
            |_| on_volume(w),
        )
    };
    load.workloads.iter().map(compare).collect()
}

/// Hooked against not hooked, both on the file system.
pub fn non_weft(common: &Common, load: &Load) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "non-weft")?;
    let plain = |workload: Workload| measure(workload, &scratch.fresh("plain")?, load, &native);
    let hooked = |workload: Workload| {
        let db = scratch.fresh("hooked")?;
        measure(workload, &db, load, &|| db_bench_under(&weft, Path::new(IDLE_VOLUME)))
    };
    let compare = |workload: &Workload| {
        let (w, name) = (*workload, format!("{} (not on a volume)", workload.name()));
        Comparison::run(name, Unit::OpsPerSecond, "plain", common.pairs, |_| plain(w), |_| hooked(w))
    };
    load.workloads.iter().map(compare).collect()
}
