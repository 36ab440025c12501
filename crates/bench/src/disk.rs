//! db_bench on a volume against the file system below its image, and db_bench hooked against not hooked.

use crate::db_bench::{Workload, ops_per_second, output_of};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use crate::{Common, Load};
use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A volume for programs that do not use it.
pub const IDLE_VOLUME: &str = "mem:64M";

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

/// A program on a volume.
pub fn under(weft: &Path, volume: impl AsRef<Path>, program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(weft);
    command.args(["run", "--quiet", "--volume"]).arg(volume.as_ref()).arg("--").arg(program);
    command
}

/// Makes an image.
pub fn format(weft: &Path, image: &Path, size: &str) -> Result<(), BenchError> {
    output_of(Command::new(weft).args(["format", "--quiet", "--size", size]).arg(image)).map(drop)
}

/// Compares both sides on each workload.
fn on_each(
    (common, load): (&Common, &Load),
    (title, peer_name): (&str, &str),
    peer: impl Fn(Workload) -> Result<f64, BenchError>,
    weft: impl Fn(Workload) -> Result<f64, BenchError>,
) -> Result<Vec<Comparison>, BenchError> {
    let compare = |&w: &Workload| {
        let name = format!("{}{title}", w.name());
        Comparison::run(name, Unit::OpsPerSecond, peer_name, common.pairs, |_| peer(w), |_| weft(w))
    };
    load.workloads.iter().map(compare).collect()
}

/// Volume against file system.
pub fn disk(common: &Common, load: &Load) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "disk")?;
    let on_file_system = |workload| measure(workload, &scratch.fresh("native")?, load, &native);
    let on_volume = |workload| {
        let image = scratch.fresh("vol.img")?;
        format(&weft, &image, &load.size)?;
        measure(workload, Path::new("/weft/db"), load, &|| under(&weft, &image, "db_bench"))
    };
    on_each((common, load), ("", "disk"), on_file_system, on_volume)
}

/// Hooked against not hooked, both on the file system.
pub fn non_weft(common: &Common, load: &Load) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "non-weft")?;
    let plain = |workload| measure(workload, &scratch.fresh("plain")?, load, &native);
    let hooked = |workload| {
        measure(workload, &scratch.fresh("hooked")?, load, &|| under(&weft, IDLE_VOLUME, "db_bench"))
    };
    on_each((common, load), (" (not on a volume)", "plain"), plain, hooked)
}
