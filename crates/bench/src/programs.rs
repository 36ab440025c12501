//! What programs of every day take on a volume, beside the disk's file system: a tree of small files unpacked, listed,
//! searched, copied and removed, git's look at it, and SQLite's transactions.

use crate::Common;
use crate::db_bench::output_of;
use crate::disk::{Scratch, format, under};
use crate::error::BenchError;
use crate::pairs::{Comparison, Unit};
use crate::rounds;
use std::fs;
use std::path::Path;
use std::process::Command;

/// The tree: directories, files in each.
const DIRECTORIES: u32 = 60;
const FILES: u32 = 70;
/// Bytes of its files, in turns.
const SIZES: [usize; 4] = [300, 2_000, 5_000, 12_000];

/// Each step in an empty directory, whose name is the first argument; the archive's is the second.
const SCRIPT: &str = r#"
set -eu
cd "$1"; rm -rf tree copy db
row() { local name=$1 begun=$EPOCHREALTIME; shift; "$@" > /dev/null; local ended=$EPOCHREALTIME
  echo "$name $(( ${ended/./} - ${begun/./} ))e-6"; }
row 'tar -x' tar -xf "$2"
row 'ls -lR' ls -lR tree
row 'grep -r' grep -r -c nothing-like-it tree || true
row 'cp -a' cp -a tree copy
git -C copy init -q; git -C copy add -A
row 'git status' git -C copy status --short
row 'rm -rf' rm -rf tree
rows() { echo 'pragma journal_mode=wal; create table t(k integer primary key, v text);'
  for ((i = 0; i < $1; i++)); do echo "insert into t values($i, 'a value of some thirty bytes');"; done; }
rows 2000 > statements
sql() { sqlite3 db < statements; }
row 'sqlite3, 2,000 transactions' sql
rm -rf copy db db-wal db-shm statements
"#;

/// Packs the tree.
fn pack(scratch: &Scratch) -> Result<std::path::PathBuf, BenchError> {
    let packed = scratch.fresh("tree.tar")?;
    let top = scratch.fresh("tree")?;
    for directory in 0..DIRECTORIES {
        let directory_path = top.join(format!("d{}", directory % 6)).join(format!("directory-{directory}"));
        fs::create_dir_all(&directory_path).map_err(|e| BenchError::io(directory_path.display(), e))?;
        for file in 0..FILES {
            let line = format!("file {file} of directory {directory}\n");
            let text = line.repeat(SIZES[file as usize % SIZES.len()] / line.len());
            let path = directory_path.join(format!("file-{file}.c"));
            fs::write(&path, text).map_err(|e| BenchError::io(path.display(), e))?;
        }
    }
    let parent = top.parent().unwrap_or(Path::new("."));
    output_of(Command::new("tar").arg("-C").arg(parent).arg("-cf").arg(&packed).arg("tree"))?;
    scratch.fresh("tree")?;
    Ok(packed)
}

/// Compares each step.
pub fn compare(common: &Common, size: &str) -> Result<Vec<Comparison>, BenchError> {
    let weft = common.weft()?;
    let scratch = Scratch::new(common, "programs")?;
    let packed = pack(&scratch)?;
    let (native, image) = (scratch.fresh("native")?, scratch.fresh("vol.img")?);
    fs::create_dir(&native).map_err(|e| BenchError::io(native.display(), e))?;
    let script = |mut command: Command, dir: &Path| {
        output_of(&mut Command::new("sync"))?;
        command.args(["-c", SCRIPT, "bash"]).arg(dir).arg(&packed);
        Ok(command)
    };
    rounds::compare(
        "",
        Unit::Seconds,
        common.pairs,
        || script(Command::new("bash"), &native),
        || {
            scratch.fresh("vol.img")?;
            format(&weft, &image, size)?;
            script(under(&weft, &image, "bash"), Path::new("/weft"))
        },
    )
}
