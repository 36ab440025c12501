//! `fts`: libc's walks of trees, for walks that touch the volume. Nodes are made as libc makes them (one block with the node,
//! its name and its attributes), as programs read their fields; the working directory stays where it is, which
//! `FTS_NOCHDIR` allows and `fts_accpath` then says.
//!
//! A walk is ours when one of its roots lies on the volume; a table tells which ones are.

use crate::lock::Locked;
use crate::report::{Refusal, refuse};
use crate::routing::{fail, needs_routing};
use crate::{process, sys};
use libc::{c_char, c_int, c_long, c_ushort, c_void, stat};
use std::ptr;
use weft_client::Errno;

/// glibc's `FTSENT`.
#[repr(C)]
pub struct Node {
    cycle: *mut Node,
    parent: *mut Node,
    link: *mut Node,
    number: c_long,
    pointer: *mut c_void,
    access_path: *mut c_char,
    path: *mut c_char,
    errno: c_int,
    descriptor: c_int,
    path_len: c_ushort,
    name_len: c_ushort,
    ino: u64,
    dev: u64,
    links: u64,
    level: i16,
    info: c_ushort,
    flags: c_ushort,
    instruction: c_ushort,
    stat: *mut stat,
    /// The name, as long as it is.
    name: [c_char; 1],
}

type Compare = Option<unsafe extern "C" fn(*const *const Node, *const *const Node) -> c_int>;

/// glibc's `FTS`, of which programs read the options at most, and what this walk needs behind it.
#[repr(C)]
pub struct Walk {
    current: *mut Node,
    children: *mut Node,
    array: *mut *mut Node,
    device: u64,
    path: *mut c_char,
    root: c_int,
    path_bytes: c_int,
    items: c_int,
    compare: Compare,
    options: c_int,
    /// Above the roots.
    above: *mut Node,
    /// Whether `children` are those of `current`, made by `fts_children`.
    looked: bool,
    text: [c_char; process::PATH_BYTES],
}

const COMFOLLOW: c_int = 0x1;
const LOGICAL: c_int = 0x2;
const NOCHDIR: c_int = 0x4;
const NOSTAT: c_int = 0x8;
const PHYSICAL: c_int = 0x10;
const SEEDOT: c_int = 0x20;
const XDEV: c_int = 0x40;
const OPTIONS: c_int = 0xff;
const NAMEONLY: c_int = 0x100;
const STOP: c_int = 0x200;

const INFO_D: c_ushort = 1;
const INFO_DC: c_ushort = 2;
const INFO_DEFAULT: c_ushort = 3;
const INFO_DNR: c_ushort = 4;
const INFO_DOT: c_ushort = 5;
const INFO_DP: c_ushort = 6;
const INFO_ERR: c_ushort = 7;
const INFO_F: c_ushort = 8;
const INFO_INIT: c_ushort = 9;
const INFO_NS: c_ushort = 10;
const INFO_NSOK: c_ushort = 11;
const INFO_SL: c_ushort = 12;
const INFO_SLNONE: c_ushort = 13;

const AGAIN: c_int = 1;
const FOLLOW: c_int = 2;
const NO_INSTRUCTION: c_int = 3;
const SKIP: c_int = 4;

const ROOT_LEVEL: i16 = 0;
/// Deepest tree, as in glibc.
const LEVELS_MAX: i16 = i16::MAX;
/// Walks of the volume at once.
const WALKS_MAX: usize = 64;

#[derive(Clone, Copy)]
struct Known(*mut Walk);
// SAFETY: the pointer is only compared.
unsafe impl Send for Known {}

static WALKS: Locked<[Known; WALKS_MAX]> = Locked::new([Known(ptr::null_mut()); WALKS_MAX]);

fn exchange(from: *mut Walk, to: *mut Walk) -> bool {
    WALKS.with(|walks| match walks.iter_mut().find(|walk| walk.0 == from) {
        Some(place) => {
            place.0 = to;
            true
        }
        None => false,
    })
}

fn is_ours(walk: *mut Walk) -> bool {
    !walk.is_null() && process::is_on() && WALKS.with(|walks| walks.iter().any(|known| known.0 == walk))
}

// ---- nodes ----------------------------------------------------------------------------------------------------------

/// A node with a name, in one block with its attributes.
unsafe fn new_node(walk: *mut Walk, name: &[u8], level: i16) -> *mut Node {
    let head = size_of::<Node>() + name.len();
    let stat_at = head.next_multiple_of(16);
    // SAFETY: the block has room for node, name with NUL, and attributes; all-zero is valid for each.
    unsafe {
        let block: *mut u8 = libc::calloc(1, stat_at + size_of::<stat>()).cast();
        let node: *mut Node = block.cast();
        if node.is_null() {
            return node;
        }
        (*node).path = (*walk).path;
        (*node).access_path = (*walk).path;
        (*node).name_len = name.len() as c_ushort;
        (*node).level = level;
        (*node).instruction = NO_INSTRUCTION as c_ushort;
        (*node).descriptor = -1;
        (*node).stat = block.add(stat_at).cast();
        ptr::copy_nonoverlapping(name.as_ptr(), (&raw mut (*node).name).cast(), name.len());
        node
    }
}

unsafe fn name_of<'a>(node: *const Node) -> &'a [u8] {
    // SAFETY: a node ends with its name, as long as it says.
    unsafe { std::slice::from_raw_parts((&raw const (*node).name).cast(), usize::from((*node).name_len)) }
}

unsafe fn free_list(mut node: *mut Node) {
    // SAFETY: nodes of this module, linked, that nobody uses any more.
    unsafe {
        while !node.is_null() {
            let next = (*node).link;
            libc::free(node.cast());
            node = next;
        }
    }
}

/// Sets the walk's path to that of a node in a directory whose path is `parent_len` long.
unsafe fn set_path(walk: *mut Walk, parent_len: usize, node: *mut Node) -> Result<(), Errno> {
    // SAFETY: the text is the walk's own, with room as checked.
    unsafe {
        let text: &mut [u8; process::PATH_BYTES] = &mut *(&raw mut (*walk).text).cast();
        let mut len = parent_len;
        if (*node).level > ROOT_LEVEL && !text.get(..len).unwrap_or(&[]).ends_with(b"/") {
            *text.get_mut(len).ok_or(libc::ENAMETOOLONG)? = b'/';
            len += 1;
        }
        let name = name_of(node);
        text.get_mut(len..len + name.len()).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(name);
        len += name.len();
        *text.get_mut(len).ok_or(libc::ENAMETOOLONG)? = 0;
        (*node).path_len = len as c_ushort;
    }
    Ok(())
}

/// What a node is, by its attributes; they are those of what a symlink leads to when it is followed.
unsafe fn examine(walk: *mut Walk, node: *mut Node, follow: bool) -> c_ushort {
    use crate::hooks::attributes::body::{lstat, stat};
    // SAFETY: the walk's path is the node's; its attributes are in its own block.
    unsafe {
        let follow = follow || (*walk).options & LOGICAL != 0;
        let attr = (*node).stat;
        let path = (*walk).path;
        let found = if follow { stat(path, attr) } else { lstat(path, attr) };
        if found != 0 {
            let error = sys::errno();
            if follow && lstat(path, attr) == 0 {
                sys::set_errno(0);
                return INFO_SLNONE;
            }
            (*node).errno = error;
            *attr = std::mem::zeroed();
            return INFO_NS;
        }
        match (*attr).st_mode & libc::S_IFMT {
            libc::S_IFDIR => {
                (*node).ino = (*attr).st_ino;
                (*node).dev = (*attr).st_dev;
                (*node).links = (*attr).st_nlink;
                if matches!(name_of(node), b"." | b"..") && (*node).level > ROOT_LEVEL {
                    return INFO_DOT;
                }
                let mut above = (*node).parent;
                while !above.is_null() && (*above).level >= ROOT_LEVEL {
                    if ((*above).ino, (*above).dev) == ((*attr).st_ino, (*attr).st_dev) {
                        (*node).cycle = above;
                        return INFO_DC;
                    }
                    above = (*above).parent;
                }
                INFO_D
            }
            libc::S_IFLNK => INFO_SL,
            libc::S_IFREG => INFO_F,
            _ => INFO_DEFAULT,
        }
    }
}

/// Orders a list as the program wants it.
unsafe fn sort(walk: *mut Walk, head: *mut Node, count: usize) -> *mut Node {
    // SAFETY: the list has `count` nodes; the comparison is the program's.
    unsafe {
        let Some(compare) = (*walk).compare else { return head };
        let array: *mut *mut Node = libc::malloc(count.max(1) * size_of::<*mut Node>()).cast();
        if array.is_null() || count < 2 {
            libc::free(array.cast());
            return head;
        }
        let mut node = head;
        for place in 0..count {
            *array.add(place) = node;
            node = (*node).link;
        }
        let compare = std::mem::transmute::<
            unsafe extern "C" fn(*const *const Node, *const *const Node) -> c_int,
            unsafe extern "C" fn(*const c_void, *const c_void) -> c_int,
        >(compare);
        libc::qsort(array.cast(), count, size_of::<*mut Node>(), Some(compare));
        for place in 0..count {
            let next = if place + 1 < count { *array.add(place + 1) } else { ptr::null_mut() };
            (**array.add(place)).link = next;
        }
        let first = *array;
        libc::free(array.cast());
        first
    }
}

/// The entries of the current directory as a list; null with errno when there are none or it cannot be read (then the
/// node says so).
unsafe fn children_of(walk: *mut Walk, directory: *mut Node, names_only: bool) -> *mut Node {
    use crate::hooks::dir::body::{closedir, opendir, readdir};
    // SAFETY: the walk's path is the directory's; nodes are this module's.
    unsafe {
        sys::set_errno(0);
        let stream = opendir((*walk).path);
        if stream.is_null() {
            (*directory).info = INFO_DNR;
            (*directory).errno = sys::errno();
            return ptr::null_mut();
        }
        let (mut head, mut tail, mut count) = (ptr::null_mut::<Node>(), ptr::null_mut::<Node>(), 0);
        let parent_len = usize::from((*directory).path_len);
        let level = (*directory).level + 1;
        let failed = loop {
            sys::set_errno(0);
            let entry = readdir(stream);
            if entry.is_null() {
                break sys::errno();
            }
            let name = sys::bytes((*entry).d_name.as_ptr());
            if matches!(name, b"." | b"..") && (*walk).options & SEEDOT == 0 {
                continue;
            }
            let node = new_node(walk, name, level);
            if node.is_null() {
                break libc::ENOMEM;
            }
            (*node).parent = directory;
            (*node).ino = (*entry).d_ino;
            match set_path(walk, parent_len, node) {
                Err(error) => {
                    (*node).info = INFO_NS;
                    (*node).errno = error;
                }
                Ok(()) if names_only => (*node).info = INFO_NSOK,
                Ok(()) => {
                    let skips = (*walk).options & (NOSTAT | LOGICAL | PHYSICAL) == NOSTAT | PHYSICAL
                        && !matches!((*entry).d_type, libc::DT_DIR | libc::DT_UNKNOWN);
                    (*node).info = if skips { INFO_NSOK } else { examine(walk, node, false) };
                }
            }
            if head.is_null() {
                head = node;
            } else {
                (*tail).link = node;
            }
            tail = node;
            count += 1;
        };
        closedir(stream);
        // As glibc leaves it: an empty directory's path loses the slash that the program gave it.
        let path = sys::bytes((*walk).text.as_ptr());
        let had_slash = parent_len > 1 && path.get(parent_len - 1) == Some(&b'/');
        let loses_slash = head.is_null() && had_slash && (*walk).options & NOCHDIR != 0;
        cut_path(walk, parent_len - usize::from(loses_slash));
        if failed != 0 {
            free_list(head);
            (*directory).info = INFO_ERR;
            (*directory).errno = failed;
            return ptr::null_mut();
        }
        sys::set_errno(0);
        sort(walk, head, count)
    }
}

unsafe fn cut_path(walk: *mut Walk, len: usize) {
    // SAFETY: the walk's own text.
    if let Some(end) = unsafe { (*walk).text.get_mut(len) } {
        *end = 0;
    }
}

// ---- the walk -------------------------------------------------------------------------------------------------------

unsafe fn open(roots: *const *const c_char, options: c_int, compare: Compare) -> Result<*mut Walk, Errno> {
    // As glibc, which takes neither or both of "logical" and "physical", too.
    if options & !OPTIONS != 0 {
        return Err(libc::EINVAL);
    }
    // SAFETY: all-zero is a valid walk; the roots are the program's.
    unsafe {
        let walk: *mut Walk = libc::calloc(1, size_of::<Walk>()).cast();
        if walk.is_null() {
            return Err(libc::ENOMEM);
        }
        (*walk).compare = compare;
        (*walk).options = options;
        (*walk).root = -1;
        (*walk).path = (&raw mut (*walk).text).cast();
        (*walk).path_bytes = process::PATH_BYTES as c_int;
        let mut result = Ok(());
        let above = new_node(walk, b"", ROOT_LEVEL - 1);
        let (mut head, mut tail, mut count) = (ptr::null_mut::<Node>(), ptr::null_mut::<Node>(), 0);
        let mut at = roots;
        while result.is_ok() && !above.is_null() && !(*at).is_null() {
            let name = sys::bytes(*at);
            at = at.add(1);
            if name.is_empty() {
                result = Err(libc::ENOENT);
                break;
            }
            let node = new_node(walk, name, ROOT_LEVEL);
            if node.is_null() {
                result = Err(libc::ENOMEM);
                break;
            }
            (*node).parent = above;
            if head.is_null() {
                head = node;
            } else {
                (*tail).link = node;
            }
            tail = node;
            count += 1;
            result = set_path(walk, 0, node);
            if result.is_ok() {
                (*node).info = examine(walk, node, options & COMFOLLOW != 0);
                if (*node).info == INFO_DOT {
                    (*node).info = INFO_D;
                }
            }
        }
        // A node in front of the first one.
        let before = new_node(walk, b"", ROOT_LEVEL);
        if above.is_null() || before.is_null() {
            result = Err(libc::ENOMEM);
        }
        if result.is_ok() && !exchange(ptr::null_mut(), walk) {
            result = Err(refuse(Refusal::Walk));
        }
        if let Err(error) = result {
            free_list(head);
            libc::free(above.cast());
            libc::free(before.cast());
            libc::free(walk.cast());
            return Err(error);
        }
        (*before).info = INFO_INIT;
        (*before).parent = above;
        (*before).link = sort(walk, head, count);
        (*walk).above = above;
        (*walk).current = before;
        Ok(walk)
    }
}

/// Makes a node the current one, with its path.
unsafe fn go_to(walk: *mut Walk, node: *mut Node) -> *mut Node {
    // SAFETY: a node of the walk.
    unsafe {
        let parent = (*node).parent;
        let parent_len = if (*node).level == ROOT_LEVEL { 0 } else { usize::from((*parent).path_len) };
        // It fitted when the node was made, or the node says that it does not.
        let _ = set_path(walk, parent_len, node);
        (*walk).current = node;
        if (*node).level == ROOT_LEVEL {
            (*walk).device = (*node).dev;
            keep_last_component(node);
        }
        node
    }
}

/// A root's name is its path until its turn comes, and its last component from then on.
unsafe fn keep_last_component(node: *mut Node) {
    // SAFETY: the name lies in the node's block, its NUL behind it.
    unsafe {
        let name = name_of(node);
        let Some(slash) = name.iter().rposition(|&byte| byte == b'/').filter(|_| name.len() > 1) else {
            return;
        };
        let len = name.len() - slash - 1;
        let first: *mut u8 = (&raw mut (*node).name).cast();
        ptr::copy(first.add(slash + 1), first, len + 1);
        (*node).name_len = len as c_ushort;
    }
}

/// Makes the directory of the node that is done the current one again.
unsafe fn go_up(walk: *mut Walk, directory: *mut Node) {
    // SAFETY: a node of the walk, whose path is the beginning of the walk's.
    unsafe {
        cut_path(walk, usize::from((*directory).path_len));
        (*walk).current = directory;
    }
}

unsafe fn forget_children(walk: *mut Walk) {
    // SAFETY: the list belongs to the walk alone.
    unsafe {
        free_list((*walk).children);
        (*walk).children = ptr::null_mut();
        (*walk).looked = false;
    }
}

unsafe fn read(walk: *mut Walk) -> *mut Node {
    // SAFETY: the walk's own nodes, here and below.
    unsafe {
        let node = (*walk).current;
        if node.is_null() || (*walk).options & STOP != 0 {
            return ptr::null_mut();
        }
        let instruction = c_int::from((*node).instruction);
        (*node).instruction = NO_INSTRUCTION as c_ushort;
        if instruction == AGAIN {
            (*node).info = examine(walk, node, false);
            return node;
        }
        if instruction == FOLLOW && matches!((*node).info, INFO_SL | INFO_SLNONE) {
            (*node).info = examine(walk, node, true);
            return node;
        }
        if (*node).info == INFO_D {
            if instruction == SKIP || (*walk).options & XDEV != 0 && (*node).dev != (*walk).device {
                forget_children(walk);
                (*node).info = INFO_DP;
                return node;
            }
            return descend(walk, node);
        }
        next(walk, node)
    }
}

/// From a directory to its first entry, or to its own end.
unsafe fn descend(walk: *mut Walk, node: *mut Node) -> *mut Node {
    // SAFETY: as above.
    unsafe {
        if (*walk).looked && (*walk).options & NAMEONLY != 0 {
            forget_children(walk);
        }
        (*walk).options &= !NAMEONLY;
        if !(*walk).looked {
            if (*node).level == LEVELS_MAX {
                return fail(libc::ENAMETOOLONG);
            }
            (*walk).children = children_of(walk, node, false);
        }
        let first = std::mem::replace(&mut (*walk).children, ptr::null_mut());
        (*walk).looked = false;
        if first.is_null() {
            // Empty, or not readable, which the node says.
            if (*node).info == INFO_D {
                (*node).info = INFO_DP;
            }
            return node;
        }
        pass_skipped(walk, first)
    }
}

/// The first node from `node` on that the program has not said to skip.
unsafe fn pass_skipped(walk: *mut Walk, mut node: *mut Node) -> *mut Node {
    // SAFETY: as above.
    unsafe {
        while c_int::from((*node).instruction) == SKIP && !(*node).link.is_null() {
            let skipped = node;
            node = (*node).link;
            libc::free(skipped.cast());
        }
        if c_int::from((*node).instruction) == SKIP {
            return next(walk, node);
        }
        go_to(walk, node);
        if c_int::from((*node).instruction) == FOLLOW {
            (*node).info = examine(walk, node, true);
            (*node).instruction = NO_INSTRUCTION as c_ushort;
        }
        node
    }
}

/// From a node that is done to the one behind it, or up.
unsafe fn next(walk: *mut Walk, done: *mut Node) -> *mut Node {
    // SAFETY: as above.
    unsafe {
        forget_children(walk);
        let (link, parent) = ((*done).link, (*done).parent);
        libc::free(done.cast());
        if !link.is_null() {
            return pass_skipped(walk, link);
        }
        if (*parent).level < ROOT_LEVEL {
            (*walk).current = ptr::null_mut();
            sys::set_errno(0);
            return ptr::null_mut();
        }
        go_up(walk, parent);
        (*parent).info = if (*parent).errno != 0 { INFO_ERR } else { INFO_DP };
        parent
    }
}

unsafe fn children(walk: *mut Walk, instruction: c_int) -> *mut Node {
    if instruction != 0 && instruction != NAMEONLY {
        return fail(libc::EINVAL);
    }
    // SAFETY: as above.
    unsafe {
        let node = (*walk).current;
        sys::set_errno(0);
        if node.is_null() || (*walk).options & STOP != 0 {
            return ptr::null_mut();
        }
        if (*node).info == INFO_INIT {
            return (*node).link;
        }
        if (*node).info != INFO_D {
            return ptr::null_mut();
        }
        forget_children(walk);
        (*walk).options = (*walk).options & !NAMEONLY | instruction;
        (*walk).children = children_of(walk, node, instruction == NAMEONLY);
        (*walk).looked = !(*walk).children.is_null();
        (*walk).children
    }
}

unsafe fn close(walk: *mut Walk) {
    exchange(walk, ptr::null_mut());
    // SAFETY: as above; nobody uses the walk any more.
    unsafe {
        forget_children(walk);
        let mut node = (*walk).current;
        while !node.is_null() && node != (*walk).above {
            let parent = (*node).parent;
            // What is left beside it, and itself.
            free_list(node);
            node = parent;
        }
        libc::free((*walk).above.cast());
        libc::free(walk.cast());
    }
}

unsafe fn any_on_volume(paths: *const *const c_char) -> bool {
    let mut at = paths;
    // SAFETY: the program promises an array that ends with null.
    unsafe {
        while process::is_on() && !at.is_null() && !(*at).is_null() {
            if needs_routing(libc::AT_FDCWD, *at) {
                return true;
            }
            at = at.add(1);
        }
    }
    false
}

hooks! {
    fn fts_open(roots: *const *const c_char, options: c_int, compare: Compare) -> *mut Walk {
        if !any_on_volume(roots) {
            return real::fts_open(roots, options, compare);
        }
        crate::routing::finish(open(roots, options, compare))
    }

    fn fts_read(walk: *mut Walk) -> *mut Node {
        if is_ours(walk) { read(walk) } else { real::fts_read(walk) }
    }

    fn fts_children(walk: *mut Walk, instruction: c_int) -> *mut Node {
        if is_ours(walk) { children(walk, instruction) } else { real::fts_children(walk, instruction) }
    }

    fn fts_set(walk: *mut Walk, node: *mut Node, instruction: c_int) -> c_int {
        if !is_ours(walk) {
            return real::fts_set(walk, node, instruction);
        }
        if !matches!(instruction, 0 | AGAIN | FOLLOW | NO_INSTRUCTION | SKIP) {
            return fail(libc::EINVAL);
        }
        (*node).instruction = instruction as c_ushort;
        0
    }

    fn fts_close(walk: *mut Walk) -> c_int {
        if !is_ours(walk) {
            return real::fts_close(walk);
        }
        close(walk);
        0
    }
}
