//! Looks at what a cut has left: the check finds nothing wrong, names and contents are those of some moment since the last promise, and
//! the volume takes new writes.

use super::Case;
use super::device::Moment;
use super::operations::{Expected, Node, Operations, SHARED, Tree, expected};
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_conformance::crash::takes_new_writes;
use weft_core::Ino;
use weft_device::PowerCut;
use weft_lfs::{Lfs, MountOptions, fsck};
use weft_vfs::{FileKind, FileSystem};

/// What is found of a process: each name with its content, or none of a directory.
type Found = BTreeMap<String, Option<Vec<u8>>>;

/// Judges a moment; operations that had promised something by then.
pub fn judge(case: &Case, moment: Moment) -> Result<u64, String> {
    let Moment { device, command, returned, begun } = moment;
    look(case, device, &returned, &begun).map_err(|told| {
        format!("{case:?}, cut at command {command}, returned {returned:?}, begun {begun:?}: {told}")
    })
}

/// Judges a volume that was closed: everything is there.
pub fn judge_closed(case: &Case, device: PowerCut) -> Result<(), String> {
    let all = vec![case.operations; case.processes as usize];
    let told = |told| format!("{case:?}, closed: {told}");
    look(case, device, &all, &all).map(drop).map_err(told)
}

fn look(case: &Case, device: PowerCut, returned: &[u64], begun: &[u64]) -> Result<u64, String> {
    let device = Arc::new(device);
    let is_clean = |when: &str| {
        let report = fsck::check(device.clone()).map_err(|error| format!("the check {when}: {error}"))?;
        match report.problems.first() {
            None => Ok(()),
            Some(problem) => Err(format!("the check {when} finds: {problem}")),
        }
    };
    is_clean("after the cut")?;
    let fs =
        Lfs::mount(device.clone(), MountOptions::default()).map_err(|error| format!("the mount: {error}"))?;
    let mut promises = 0;
    for process in 0..case.processes {
        let n = process as usize;
        let operations = Operations::new(case.seed, process, case.processes);
        let expected = expected(operations, returned[n], begun[n], case.write_back);
        promises += expected.promises;
        compare(case, &fs, process, &expected).map_err(|told| format!("process {process}: {told}"))?;
    }
    takes_new_writes(&fs).map_err(|error| format!("new writes: {error}"))?;
    fs.unmount().map_err(|error| format!("the unmount: {error}"))?;
    is_clean("after new writes")?;
    Ok(promises)
}

fn compare(case: &Case, fs: &Lfs, process: u64, expected: &Expected) -> Result<(), String> {
    let failed = |error| format!("cannot be read: {error}");
    let dir = fs.lookup(Ino::ROOT, format!("p{process}").as_bytes()).map_err(failed)?;
    let mut found = Found::new();
    walk(fs, dir.ino, "", &mut found)?;
    let shape = |tree: &Tree| {
        tree.len() == found.len()
            && tree.iter().all(|(path, node)| {
                found.get(path).is_some_and(|content| content.is_none() == (*node == Node::Dir))
            })
    };
    let mut told = format!(
        "names {:?}, of {:?}",
        found.keys().collect::<Vec<_>>(),
        expected.trees.iter().map(|tree| tree.keys().collect::<Vec<_>>()).collect::<Vec<_>>()
    );
    let mut is_one = false;
    for tree in expected.trees.iter().filter(|tree| shape(tree)) {
        let refused = tree.iter().find_map(|(path, node)| match (node, &found[path]) {
            (Node::File(file), Some(content)) => {
                let refused = expected.files[file].refuses(content, case.write_back);
                refused.map(|why| format!("{path} (file {file}) has {why}"))
            }
            _ => None,
        });
        match refused {
            None => is_one = true,
            Some(why) => told = why,
        }
    }
    if !is_one {
        return Err(told);
    }
    let shared = fs.lookup(Ino::ROOT, b"shared").map_err(failed)?;
    let content = read(fs, shared.ino, shared.size)?;
    match expected.files[&SHARED].refuses_stripe(&content, process, case.processes) {
        None => Ok(()),
        Some(why) => Err(format!("the shared file has {why}")),
    }
}

fn read(fs: &Lfs, ino: Ino, size: u64) -> Result<Vec<u8>, String> {
    let mut content = vec![0; size as usize];
    let read =
        fs.read(ino, 0, &mut content).map_err(|error| format!("inode {ino} cannot be read: {error}"))?;
    if read == content.len() { Ok(content) } else { Err(format!("inode {ino} has {read} of {size} bytes")) }
}

fn walk(fs: &Lfs, dir: Ino, prefix: &str, found: &mut Found) -> Result<(), String> {
    let mut entries = Vec::new();
    let listed = fs.readdir(dir, 0, &mut |entry| {
        entries.push((String::from_utf8_lossy(entry.name).into_owned(), entry.ino));
        true
    });
    listed.map_err(|error| format!("{prefix} cannot be listed: {error}"))?;
    for (name, ino) in entries.into_iter().filter(|(name, _)| name != "." && name != "..") {
        let path = format!("{prefix}{name}");
        let attr = fs.getattr(ino).map_err(|error| format!("{path}: {error}"))?;
        match attr.kind {
            FileKind::Directory => {
                walk(fs, ino, &format!("{path}/"), found)?;
                found.insert(path, None);
            }
            _ => drop(found.insert(path, Some(read(fs, ino, attr.size)?))),
        }
    }
    Ok(())
}
