//! Paths as text: components, `..`, and paths that had to be composed.

use crate::process::PATH_BYTES;
use libc::c_char;
use weft_client::Errno;
use weft_client::scratch::Scratch;

/// The part of an absolute path below `mount`, with its slash (`/` for the root itself).
pub fn below<'a>(path: &'a [u8], mount: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mount)?;
    match rest.first() {
        None => Some(b"/"),
        Some(b'/') => Some(rest),
        Some(_) => None,
    }
}

/// A path that had to be composed. Most never are: the room is taken when its first byte comes.
pub struct PathBuffer {
    room: Option<Scratch<[u8; PATH_BYTES]>>,
    len: usize,
}

impl PathBuffer {
    /// An empty one.
    #[allow(clippy::new_without_default)]
    #[inline(always)]
    pub fn new() -> Self {
        PathBuffer { room: None, len: 0 }
    }

    /// Takes all bytes out.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    fn room(&mut self) -> Result<&mut [u8; PATH_BYTES], Errno> {
        match &mut self.room {
            Some(room) => Ok(room),
            none => Ok(none.insert(Scratch::any()?)),
        }
    }

    pub(super) fn push(&mut self, byte: u8) -> Result<(), Errno> {
        self.extend(&[byte])
    }

    pub(super) fn extend(&mut self, bytes: &[u8]) -> Result<(), Errno> {
        let (start, end) = (self.len, self.len + bytes.len());
        // One byte is kept for the NUL.
        let room = self.room()?.get_mut(..PATH_BYTES - 1).unwrap_or(&mut []);
        room.get_mut(start..end).ok_or(libc::ENAMETOOLONG)?.copy_from_slice(bytes);
        self.len = end;
        Ok(())
    }

    /// The bytes so far.
    pub fn bytes(&self) -> &[u8] {
        self.room.as_ref().and_then(|room| room.get(..self.len)).unwrap_or(&[])
    }

    /// The path as a C string.
    pub fn c_str(&mut self) -> *const c_char {
        let len = self.len;
        match &mut self.room {
            Some(room) => {
                if let Some(end) = room.get_mut(len) {
                    *end = 0;
                }
                room.as_ptr().cast()
            }
            None => c"".as_ptr(),
        }
    }

    /// Goes one component further, by text.
    fn step(&mut self, component: &[u8]) -> Result<(), Errno> {
        match component {
            b"" | b"." => Ok(()),
            b".." => {
                self.len = self.bytes().iter().rposition(|&byte| byte == b'/').unwrap_or(0);
                Ok(())
            }
            name => {
                self.push(b'/')?;
                self.extend(name)
            }
        }
    }

    /// Follows `path` by text from the directory that `bases`, one after the other, lead to. When it enters `mount` for
    /// good, what is left of it from there, as it was given; otherwise the buffer holds the absolute path.
    pub(super) fn follow<'p>(
        &mut self,
        bases: &[&[u8]],
        path: &'p [u8],
        mount: &[u8],
    ) -> Result<Option<&'p [u8]>, Errno> {
        self.len = 0;
        for base in bases {
            base.split(|&byte| byte == b'/').try_for_each(|component| self.step(component))?;
        }
        let mut rest = path;
        let last = loop {
            let (component, behind) = match rest.iter().position(|&byte| byte == b'/') {
                Some(slash) => rest.split_at(slash),
                None => (rest, &b""[..]),
            };
            self.step(component)?;
            if self.bytes() == mount && !climbs_out(behind, 0) {
                return Ok(Some(if behind.is_empty() { b"/" } else { behind }));
            }
            match behind.split_first() {
                Some((_, behind)) => rest = behind,
                None => break component,
            }
        };
        // A path that ends in a slash must be a directory, and one that ends in a dot names no entry: keep that.
        if self.len == 0 || matches!(last, b"" | b"." | b"..") {
            self.push(b'/')?;
        }
        if matches!(last, b"." | b"..") {
            self.push(b'.')?;
        }
        Ok(None)
    }
}

pub(super) fn has_dot_dot(path: &[u8]) -> bool {
    path.windows(2).any(|pair| pair == b"..") && path.split(|&byte| byte == b'/').any(|part| part == b"..")
}

/// Whether `name` is one of the components of `path`: without it a path from outside does not enter the mount. `weft-1` is
/// another name than `weft`, and programs that work in a folder of that name pay for no look at the working directory.
pub(super) fn has_component(path: &[u8], name: &[u8]) -> bool {
    let Some((first, rest)) = name.split_first() else { return false };
    let is_edge = |byte: Option<&u8>| matches!(byte, None | Some(b'/'));
    path.iter().enumerate().any(|(at, byte)| {
        byte == first
            && path.get(at + 1..).is_some_and(|path| path.starts_with(rest))
            && is_edge(path.get(at + name.len()))
            && is_edge(at.checked_sub(1).and_then(|before| path.get(before)))
    })
}

/// Whether a path has a component that text has to take out: an empty one, or one that begins with a dot. Without an
/// early end, so that it is compiled to vector instructions.
pub(super) fn is_irregular(path: &[u8]) -> bool {
    let next = path.get(1..).unwrap_or(&[]);
    path.iter().zip(next).fold(false, |found, (a, b)| found | (*a == b'/') & ((*b == b'.') | (*b == b'/')))
}

/// Whether the `..`s of `path` climb above where it starts, `depth` components below the root.
pub(super) fn climbs_out(path: &[u8], mut depth: usize) -> bool {
    for component in path.split(|&byte| byte == b'/') {
        match component {
            b"" | b"." => {}
            b".." if depth == 0 => return true,
            b".." => depth -= 1,
            _ => depth += 1,
        }
    }
    false
}

pub(super) fn depth_of(path: &[u8]) -> usize {
    path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).count()
}

/// The part of a path that leads to the directory of its last component.
pub(super) fn parent_of(path: &[u8]) -> &[u8] {
    if path.is_empty() {
        return path;
    }
    let is_name = |byte: &u8| *byte != b'/';
    let end = path.iter().rposition(is_name).map_or(0, |at| at + 1);
    let slash = path.get(..end).and_then(|path| path.iter().rposition(|byte| *byte == b'/'));
    match slash {
        Some(at) => path.get(..=at).unwrap_or(b"/"),
        None if end == 0 => b"/",
        None => b".",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Where a path leads when `/weft` is the mount: `Ok` with what is left of it there, or `Err` with the path elsewhere.
    fn followed<'p>(bases: &[&str], path: &'p str) -> Result<&'p str, String> {
        let bases: Vec<&[u8]> = bases.iter().map(|base| base.as_bytes()).collect();
        let mut buffer = PathBuffer::new();
        match buffer.follow(&bases, path.as_bytes(), b"/weft").unwrap() {
            Some(rest) => Ok(std::str::from_utf8(rest).unwrap()),
            None => Err(String::from_utf8(buffer.bytes().to_vec()).unwrap()),
        }
    }

    fn elsewhere(path: &str) -> Result<&str, String> {
        Err(path.to_owned())
    }

    #[test]
    fn outside_dots_and_double_slashes_go_and_what_must_be_a_directory_stays_one() {
        assert_eq!(followed(&[], "/weft/../etc"), elsewhere("/etc"));
        assert_eq!(followed(&[], "/a//./b/"), elsewhere("/a/b/"));
        assert_eq!(followed(&[], "/a/b/."), elsewhere("/a/b/."));
        assert_eq!(followed(&[], "/a/b/.."), elsewhere("/a/."));
        assert_eq!(followed(&[], "/.."), elsewhere("/."));
        assert_eq!(followed(&["/weft", "/d/e"], "../../../x"), elsewhere("/x"));
    }

    #[test]
    fn a_path_that_enters_the_mount_is_left_as_it_was_given_from_there() {
        assert_eq!(followed(&[], "/tmp/../weft//a/./b"), Ok("//a/./b"));
        assert_eq!(followed(&[], "///weft/d/."), Ok("/d/."), "rmdir of it is refused");
        assert_eq!(followed(&[], "//weft/d/x/.."), Ok("/d/x/.."), "x may not be there, or be a symlink");
        assert_eq!(followed(&[], "//weft"), Ok("/"));
        assert_eq!(followed(&[], "//weft/../weft/a"), Ok("/a"));
        assert_eq!(followed(&["/tmp"], "../weft/a"), Ok("/a"));
        assert_eq!(followed(&["/weft", "/d"], "../../weft/a/"), Ok("/a/"));
        assert_eq!(followed(&[], "//wefta"), elsewhere("/wefta"));
    }

    #[test]
    fn a_path_climbs_out_only_above_its_start() {
        assert!(!climbs_out(b"/a/../b", 0));
        assert!(climbs_out(b"/a/../../b", 0));
        assert!(!climbs_out(b"../..", 2));
        assert!(climbs_out(b"../../..", 2));
        assert!(!climbs_out(b"..a/...", 0));
    }

    #[test]
    fn only_whole_components_are_below_the_mount() {
        assert_eq!(below(b"/weft/a", b"/weft"), Some(&b"/a"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b"/"[..]));
        assert_eq!(below(b"/wefta", b"/weft"), None);
    }

    #[test]
    fn a_component_is_a_whole_one() {
        for path in ["weft", "a/weft", "weft/b", "../weft//", "weftweft/weft"] {
            assert!(has_component(path.as_bytes(), b"weft"), "{path}");
        }
        for path in ["weft-bench/x", "a/xweft", "awefta", "wef/t", ""] {
            assert!(!has_component(path.as_bytes(), b"weft"), "{path}");
        }
    }

    #[test]
    fn the_parent_of_a_path_is_what_precedes_its_last_component() {
        let parents: [(&[u8], &[u8]); 8] = [
            (b"", b""),
            (b"a", b"."),
            (b"a/", b"."),
            (b"a/b", b"a/"),
            (b"a//b//", b"a//"),
            (b"/a", b"/"),
            (b"/", b"/"),
            (b"//", b"/"),
        ];
        for (path, parent) in parents {
            assert_eq!(parent_of(path), parent, "{}", String::from_utf8_lossy(path));
        }
    }

    #[test]
    fn a_path_that_is_too_long_is_refused() {
        let long = vec![b'a'; PATH_BYTES];
        assert_eq!(PathBuffer::new().follow(&[], &long, b"/weft"), Err(libc::ENAMETOOLONG));
    }
}
