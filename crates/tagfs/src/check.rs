//! The offline check: that the store is sound, and that what lies in it is a file system. It only reads.

use crate::error::TagFsError;
use crate::fs::TagFs;
use crate::graph::{Graph, Head};
use crate::inode::Inode;
use crate::layout::{CHUNK_BLOCKS, CHUNKS_MAX, Counts, Entry, FileForm, Form, PIECE_BYTES, QUOTAS};
use crate::options::MountOptions;
use crate::quota::Quota;
use rustc_hash::{FxHashMap, FxHashSet};
use std::collections::BTreeMap;
use weft_core::{BLOCK_BYTES, Ino};
use weft_tags::{Direction, EdgePlace, PageStore};
use weft_vfs::{FileKind, FsResult};

const BLOCK: u64 = BLOCK_BYTES as u64;
/// Most problems that are listed one by one; the rest is counted.
const PROBLEMS_MAX: usize = 1000;
/// Entries that are listed at once.
const ENTRIES_AT_ONCE: usize = 1024;

/// What a check found.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct CheckReport {
    /// Regular files.
    pub files: u64,
    /// Directories.
    pub directories: u64,
    /// Symlinks and special files.
    pub others: u64,
    /// Inodes without a name, which the next mount takes away.
    pub nameless: u64,
    /// Blocks with file data, those in records included.
    pub blocks: u64,
    /// Nodes of the store.
    pub nodes: u64,
    /// Edges of the store.
    pub edges: u64,
    /// Commits that were replayed for the check, since the volume was not closed.
    pub replayed: u64,
    /// What is wrong, up to 1000.
    pub problems: Vec<String>,
    /// Problems beyond those listed.
    pub more_problems: u64,
}

impl CheckReport {
    /// Whether nothing is wrong.
    pub fn is_clean(&self) -> bool {
        self.problems.is_empty()
    }

    fn add(&mut self, what: impl Into<String>) {
        if self.problems.len() < PROBLEMS_MAX {
            self.problems.push(what.into());
        } else {
            self.more_problems += 1;
        }
    }

    fn expect(&mut self, holds: bool, what: impl FnOnce() -> String) {
        if !holds {
            self.add(what());
        }
    }
}

/// What leads to an inode.
#[derive(Default)]
struct Names {
    count: u64,
    subdirectories: u64,
}

/// What the check keeps of an inode.
struct Found {
    kind: FileKind,
    links: u32,
    quota: Option<Ino>,
    /// Blocks that it says it has.
    blocks: u64,
}

impl Found {
    fn of(inode: &Inode) -> Found {
        let blocks = inode.file().map_or(0, |file| file.blocks);
        let record = &inode.record;
        Found { kind: record.kind(), links: record.links, quota: record.quota, blocks }
    }
}

impl TagFs {
    /// Checks the volume on a medium that is not mounted. Never writes.
    ///
    /// # Errors
    /// Only what keeps the check from being made at all: the medium fails, or holds no volume that this version can read. Damage is in
    /// the report.
    pub fn check(medium: Box<dyn PageStore>) -> Result<CheckReport, TagFsError> {
        let options = MountOptions { read_only: true, ..MountOptions::default() };
        let fs = TagFs::mount(medium, options)?;
        let graph = &fs.graph;
        let stored = graph.store.check()?;
        let mut report = CheckReport {
            nodes: stored.nodes,
            edges: stored.edges,
            replayed: graph.store.report().recovered_commits,
            ..CheckReport::default()
        };
        stored.problems.into_iter().for_each(|problem| report.add(problem));
        let mut inodes: BTreeMap<Ino, Found> = BTreeMap::new();
        let mut names: FxHashMap<Ino, Names> = FxHashMap::default();
        let (mut entries, mut promised) = (Vec::new(), 0);
        for snode in graph.store.snodes()? {
            let ino = Ino(snode.0);
            match graph.load(ino) {
                Ok(inode) => {
                    inodes.insert(ino, Found::of(&inode));
                    promised += check_inode(graph, ino, &inode, &mut report, &mut entries);
                }
                Err(error) => report.add(format!("inode {ino}: {error}")),
            }
        }
        for (dir, name, entry) in entries {
            let shown = || format!("directory {dir}, name {:?}", String::from_utf8_lossy(&name));
            let known = inodes.get(&entry.ino).map(|found| found.kind);
            let quota =
                inodes.get(&entry.ino).and_then(|found| found.quota).filter(|quota| *quota != entry.ino);
            report.expect(inodes.get(&dir).is_none_or(|found| found.quota == quota), || {
                format!("{}: leads to an inode that counts to another quota than its directory", shown())
            });
            report.expect(known == Some(entry.kind), || {
                format!("{}: leads to inode {}, which is not what it says", shown(), entry.ino)
            });
            names.entry(entry.ino).or_default().count += 1;
            if entry.kind == FileKind::Directory {
                let parent = graph.load(entry.ino).and_then(|inode| Ok(inode.directory()?.parent));
                report.expect(parent.is_ok_and(|parent| parent == dir), || {
                    format!("{}: leads to a directory that has another parent", shown())
                });
                names.entry(dir).or_default().subdirectories += 1;
            }
        }
        let orphans = graph.numbered(graph.first, graph.types.orphan)?;
        let orphans: FxHashSet<Ino> = orphans.into_iter().map(|(ino, _)| Ino(ino)).collect();
        report.nameless = orphans.len() as u64;
        for (ino, Found { kind, links, .. }) in &inodes {
            let of = names.remove(ino).unwrap_or_default();
            let is_directory = *kind == FileKind::Directory;
            let count = if *ino == Ino::ROOT { 1 } else { of.count };
            // A directory's own name for itself counts, and those that its subdirectories have for it.
            let wanted = if is_directory && count > 0 { 1 + count + of.subdirectories } else { count };
            report.expect(u64::from(*links) == wanted, || {
                format!("inode {ino}: has {links} links, and {wanted} names lead to it")
            });
            report.expect(orphans.contains(ino) == (*links == 0), || {
                format!("inode {ino}: has {links} links, and is wrongly listed among those without a name")
            });
            report.expect(!is_directory || count <= 1, || format!("directory {ino}: has {count} names"));
        }
        for ino in names.keys().chain(&orphans).filter(|ino| !inodes.contains_key(*ino)) {
            report.add(format!("inode {ino}: is named, and not there"));
        }
        check_reached(&fs, &inodes, &mut report);
        check_quotas(&fs, &inodes, &mut report);
        let sum = fs.state.read().superblock.promised;
        report
            .expect(sum == promised, || format!("{sum} blocks are said to be promised, and {promised} are"));
        Ok(report)
    }
}

/// Looks at an inode by itself, and collects its entries when it is a directory; blocks that are promised in it.
fn check_inode(
    graph: &Graph,
    ino: Ino,
    inode: &Inode,
    report: &mut CheckReport,
    entries: &mut Vec<(Ino, Vec<u8>, Entry)>,
) -> u64 {
    let looked = match &inode.record.form {
        Form::File(file) => {
            report.files += 1;
            check_file(graph, ino, inode, file, report)
        }
        Form::Directory(_) => {
            report.directories += 1;
            check_directory(graph, ino, inode, report, entries).map(|()| 0)
        }
        Form::Symlink(_) | Form::Special(..) => {
            report.others += 1;
            Ok(0)
        }
    };
    looked.unwrap_or_else(|error| {
        report.add(format!("inode {ino}: {error}"));
        0
    })
}

fn check_file(
    graph: &Graph,
    ino: Ino,
    inode: &Inode,
    file: &FileForm,
    report: &mut CheckReport,
) -> FsResult<u64> {
    let mut found = graph.numbered(inode.root, graph.types.data)?;
    let (mut blocks, mut promised) = (file.small_blocks(), 0);
    if file.packed > 0 {
        let mut bytes = vec![0; file.packed as usize];
        graph.read_pieces(inode, 0, &mut bytes)?;
        let pieces = file.packed.div_ceil(PIECE_BYTES as u64);
        let mut numbers: Vec<u64> = found.drain(..).map(|(number, _)| number).collect();
        numbers.sort_unstable();
        report.expect(numbers.into_iter().eq(0..pieces), || {
            format!("inode {ino}: other pieces than the {pieces} of its {} bytes", file.packed)
        });
    }
    let inline = file.inline.as_ref().map_or(0, |inline| inline.len());
    let is_fit = inline as u64 <= file.size.min(BLOCK) && (file.inline.is_none() || found.is_empty());
    report.expect(is_fit, || format!("inode {ino}: {inline} bytes lie in its record, which do not fit it"));
    for (chunk, node) in &found {
        if *chunk >= CHUNKS_MAX {
            report.add(format!("inode {ino}: no file has a chunk {chunk}"));
            continue;
        }
        let head = graph.read_head(ino, *chunk, *node)?;
        (blocks, promised) = (blocks + head.blocks(), promised + head.promised());
        let mut slots: Vec<u16> = head.slots.into_iter().filter(|slot| Head::holds(*slot)).collect();
        slots.sort_unstable();
        let is_apart = slots.windows(2).all(|pair| pair[0] != pair[1]);
        report.expect(is_apart, || format!("inode {ino}, chunk {chunk}: two blocks have one slot"));
        let last = head.slots.iter().rposition(|slot| Head::holds(*slot));
        let end = last.map_or(0, |last| (chunk * CHUNK_BLOCKS + last as u64) * BLOCK);
        report.expect(last.is_none() || end < file.size, || {
            format!("inode {ino}, chunk {chunk}: has data behind the end of the file")
        });
        let is_some = head.blocks() + head.promised() > 0;
        report.expect(is_some, || format!("inode {ino}, chunk {chunk}: has no block"));
    }
    let sums =
        [(file.chunks, found.len() as u64), (file.blocks, blocks + promised), (file.promised, promised)];
    for ((said, counted), what) in sums.into_iter().zip(["chunks", "blocks", "promised blocks"]) {
        report.expect(said == counted, || {
            format!("inode {ino}: {said} {what} are said to be there, and {counted} are")
        });
    }
    report.blocks += blocks;
    Ok(promised)
}

fn check_directory(
    graph: &Graph,
    ino: Ino,
    inode: &Inode,
    report: &mut CheckReport,
    entries: &mut Vec<(Ino, Vec<u8>, Entry)>,
) -> FsResult<()> {
    let directory = *inode.directory()?;
    let first = entries.len();
    let (mut cookie, mut more) = (0, true);
    while more {
        more = graph.list(ino, cookie, ENTRIES_AT_ONCE, |name, entry| {
            cookie = entry.cookie;
            entries.push((ino, name.to_vec(), entry));
        })?;
    }
    let listed = &entries[first..];
    for (_, name, entry) in listed {
        let found = graph.entry(inode.root, name)?;
        report.expect(found == Some(*entry), || {
            format!("directory {ino}: {:?} is listed, and not found", String::from_utf8_lossy(name))
        });
        report.expect(entry.cookie < directory.next_cookie, || {
            format!("directory {ino}: a cookie that was not given out yet")
        });
    }
    let (mut place, mut named) = (EdgePlace::FIRST, 0);
    loop {
        let part =
            graph.store.edges_from(inode.root, graph.types.entry, place, Direction::Up, ENTRIES_AT_ONCE);
        let part = part.map_err(crate::error::failed)?;
        named += part.len() as u64;
        match part.last() {
            Some(last) if part.len() == ENTRIES_AT_ONCE => place = last.behind(),
            _ => break,
        }
    }
    let count = listed.len() as u64;
    report.expect(named == count && directory.entries == count, || {
        format!("directory {ino}: has {named} names, lists {count}, and says {}", directory.entries)
    });
    Ok(())
}

/// Every directory with a name leads up to the root.
fn check_reached(fs: &TagFs, inodes: &BTreeMap<Ino, Found>, report: &mut CheckReport) {
    let mut reached: FxHashSet<Ino> = [Ino::ROOT].into_iter().collect();
    for (ino, Found { kind, links, .. }) in inodes {
        if *kind != FileKind::Directory || *links == 0 {
            continue;
        }
        let (mut way, mut at) = (Vec::new(), *ino);
        while !reached.contains(&at) && way.len() <= inodes.len() {
            way.push(at);
            match fs.graph.load(at).and_then(|inode| Ok(inode.directory()?.parent)) {
                Ok(parent) => at = parent,
                Err(error) => {
                    report.add(format!("directory {ino}: its way to the root ends at inode {at}: {error}"));
                    break;
                }
            }
        }
        if reached.contains(&at) {
            reached.extend(way);
        } else if way.len() > inodes.len() {
            report.add(format!("directory {ino}: lies below itself"));
        }
    }
}

/// Every quota counts what its tree has.
fn check_quotas(fs: &TagFs, inodes: &BTreeMap<Ino, Found>, report: &mut CheckReport) {
    let mut counted: BTreeMap<Ino, Counts> = BTreeMap::new();
    for (ino, found) in inodes {
        let Some(dir) = found.quota else { continue };
        let counts = counted.entry(dir).or_default();
        if dir == *ino {
            let is_directory = found.kind == FileKind::Directory;
            report.expect(is_directory, || format!("inode {ino}: has a quota, and is no directory"));
            continue;
        }
        counts.blocks += found.blocks;
        counts.inodes += 1;
        // What was open when its directory went may still name that.
        let is_there = inodes.get(&dir).is_some_and(|found| found.quota == Some(dir));
        report.expect(is_there || found.links == 0, || {
            format!("inode {ino}: counts to directory {dir}, which has no quota")
        });
    }
    let is_marked = fs.state.read().superblock.features & QUOTAS != 0;
    report.expect(counted.is_empty() || is_marked, || {
        "the volume has quotas, and its features do not say so".to_string()
    });
    for (dir, counts) in counted {
        match fs.graph.quota(dir) {
            Ok(Some(Quota { stored: said, .. })) => report.expect(said == counts, || {
                format!(
                    "the quota of directory {dir}: {} blocks and {} inodes are said to be there, and {} and {} are",
                    said.blocks, said.inodes, counts.blocks, counts.inodes
                )
            }),
            Ok(None) => report.expect(inodes.get(&dir).is_none_or(|found| found.quota != Some(dir)), || {
                format!("the quota of directory {dir}: what it has counted is not there")
            }),
            Err(error) => report.add(error.to_string()),
        }
    }
}
