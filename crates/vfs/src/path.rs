//! Path resolution over [`FileSystem`]: `.`, `..`, symlinks, search permission.

use crate::{Attr, Cred, FileKind, FileSystem, FsError, FsResult, NAME_MAX, PATH_MAX, access};
use weft_core::Ino;

/// Most symlinks followed in one resolution, as in Linux.
pub const SYMLINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// To an inode.
    Found(Place, Attr),
    /// To a name that does not exist in a directory that does.
    Missing(Place),
    /// Through a symlink with an absolute target outside the volume: the whole path that the caller has to resolve.
    Outside(Vec<u8>),
}

/// The directory and name at the end of a path; the name is empty when the path ends in the root, `.` or `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Place {
    /// The directory that holds the name.
    pub dir: Ino,
    /// The last component.
    pub name: Vec<u8>,
    /// Whether the path ended in a slash, so that it must be a directory.
    pub must_be_dir: bool,
}

/// How to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// Follow a symlink that is the last component.
    pub follow_last: bool,
    /// Where the volume appears to the caller, without a slash at the end: absolute symlink targets below it are the
    /// volume's, others are [`Resolved::Outside`].
    pub mount_point: &'a [u8],
}

/// Resolves `path` (relative to `start`, or to the root when it begins with a slash).
pub fn resolve(
    fs: &dyn FileSystem,
    cred: &Cred,
    start: Ino,
    path: &[u8],
    options: Options<'_>,
) -> FsResult<Resolved> {
    if path.len() >= PATH_MAX {
        return Err(FsError::NameTooLong);
    }
    if path.is_empty() {
        return Err(FsError::NotFound);
    }
    let mut dir = if path[0] == b'/' { Ino::ROOT } else { start };
    // What is left to walk; a followed symlink's target goes in front of it.
    let mut rest = path.to_vec();
    let mut links = 0;
    loop {
        let begin = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
        let end = rest[begin..].iter().position(|&b| b == b'/').map_or(rest.len(), |at| begin + at);
        let name = rest[begin..end].to_vec();
        let tail = rest[end..].to_vec();
        let last = tail.iter().all(|&b| b == b'/');
        if name.len() > NAME_MAX {
            return Err(FsError::NameTooLong);
        }
        let here = fs.getattr(dir)?;
        if here.kind != FileKind::Directory {
            return Err(FsError::NotDirectory);
        }
        if name.is_empty() {
            return Ok(Resolved::Found(Place { dir, name, must_be_dir: true }, here));
        }
        cred.check(&here, access::EXECUTE)?;
        if name == b"." || name == b".." {
            if name == b".." {
                dir = fs.parent(dir)?;
            }
            if last {
                let attr = fs.getattr(dir)?;
                return Ok(Resolved::Found(Place { dir, name: Vec::new(), must_be_dir: true }, attr));
            }
            rest = tail;
            continue;
        }
        let place = |name| Place { dir, name, must_be_dir: last && !tail.is_empty() };
        let attr = match fs.lookup(dir, &name) {
            Ok(attr) => attr,
            Err(FsError::NotFound) if last => return Ok(Resolved::Missing(place(name))),
            Err(error) => return Err(error),
        };
        let place = place(name);
        if attr.kind == FileKind::Symlink && (!last || options.follow_last || place.must_be_dir) {
            links += 1;
            if links > SYMLINKS_MAX {
                return Err(FsError::Loop);
            }
            let mut target = fs.readlink(attr.ino)?;
            if target.first() == Some(&b'/') {
                match below(&target, options.mount_point) {
                    Some(inside) => {
                        target = inside.to_vec();
                        dir = Ino::ROOT;
                    }
                    None => {
                        target.extend_from_slice(&tail);
                        return Ok(Resolved::Outside(target));
                    }
                }
            }
            // As in Linux, only what is handed in at once is limited: a path, a target, and the number of targets.
            target.extend_from_slice(&tail);
            rest = target;
            continue;
        }
        if last {
            if place.must_be_dir && attr.kind != FileKind::Directory {
                return Err(FsError::NotDirectory);
            }
            return Ok(Resolved::Found(place, attr));
        }
        dir = attr.ino;
        rest = tail;
    }
}

/// The part of an absolute `path` below `mount_point` (with its slash), or `None` when it lies elsewhere.
pub fn below<'a>(path: &'a [u8], mount_point: &[u8]) -> Option<&'a [u8]> {
    let rest = path.strip_prefix(mount_point)?;
    match rest.first() {
        None => Some(b"/"),
        Some(b'/') => Some(rest),
        Some(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateArgs, MemFs, NewNode};
    use weft_core::Tag;

    const USER: u32 = 1000;
    const OPTIONS: Options<'_> = Options { follow_last: true, mount_point: b"/weft" };

    fn user() -> Cred {
        Cred { uid: USER, gid: USER, groups: Vec::new() }
    }

    /// A volume with `/a/b/c` (directories), `/a/file`, and symlinks that each test adds.
    struct Volume {
        fs: MemFs,
        a: Ino,
        b: Ino,
        c: Ino,
        file: Ino,
    }

    fn make(fs: &MemFs, dir: Ino, name: &[u8], node: NewNode<'_>, perm: u32) -> Ino {
        let args = CreateArgs { node, perm, uid: USER, gid: USER, tag: Tag::default(), open: false };
        fs.create(dir, name, &args).unwrap().ino
    }

    impl Volume {
        fn new() -> Volume {
            let fs = MemFs::new();
            let a = make(&fs, Ino::ROOT, b"a", NewNode::Directory, 0o755);
            let b = make(&fs, a, b"b", NewNode::Directory, 0o755);
            let c = make(&fs, b, b"c", NewNode::Directory, 0o755);
            let file = make(&fs, a, b"file", NewNode::File, 0o644);
            Volume { fs, a, b, c, file }
        }

        fn symlink(&self, dir: Ino, name: &[u8], target: &[u8]) -> Ino {
            make(&self.fs, dir, name, NewNode::Symlink(target), 0o777)
        }

        fn resolve(&self, path: &str) -> FsResult<Resolved> {
            resolve(&self.fs, &user(), self.a, path.as_bytes(), OPTIONS)
        }

        #[track_caller]
        fn leads_to(&self, path: &str, ino: Ino) {
            match self.resolve(path) {
                Ok(Resolved::Found(_, attr)) => assert_eq!(attr.ino, ino, "{path}"),
                other => panic!("{path} leads to {other:?}"),
            }
        }
    }

    #[test]
    fn paths_lead_from_the_root_or_from_the_start() {
        let v = Volume::new();
        for (path, ino) in [
            ("/", Ino::ROOT),
            ("//", Ino::ROOT),
            ("/a", v.a),
            ("//a///b", v.b),
            ("b/c", v.c),
            ("file", v.file),
            (".", v.a),
            ("..", Ino::ROOT),
            ("../..", Ino::ROOT),
            ("/..", Ino::ROOT),
            ("b/../file", v.file),
            ("./b/./c/../../file", v.file),
            ("b/c/", v.c),
            ("b/c/.", v.c),
        ] {
            v.leads_to(path, ino);
        }
    }

    #[test]
    fn the_place_names_the_last_component() {
        let v = Volume::new();
        let place = |path: &str| match v.resolve(path) {
            Ok(Resolved::Found(place, _) | Resolved::Missing(place)) => place,
            other => panic!("{path}: {other:?}"),
        };
        let named = |dir, name: &[u8], must_be_dir| Place { dir, name: name.to_vec(), must_be_dir };
        assert_eq!(place("b/c"), named(v.b, b"c", false));
        assert_eq!(place("b/c//"), named(v.b, b"c", true));
        assert_eq!(place("b/new"), named(v.b, b"new", false));
        assert_eq!(place("b/new/"), named(v.b, b"new", true));
        assert_eq!(place("b/.."), named(v.a, b"", true));
        assert_eq!(place("/"), named(Ino::ROOT, b"", true));
    }

    #[test]
    fn a_missing_last_component_is_missing_and_any_other_is_not_found() {
        let v = Volume::new();
        assert!(matches!(v.resolve("b/none"), Ok(Resolved::Missing(_))));
        assert!(matches!(v.resolve("none/b"), Err(FsError::NotFound)));
        assert!(matches!(v.resolve("none/.."), Err(FsError::NotFound)));
        assert!(matches!(v.resolve(""), Err(FsError::NotFound)));
    }

    #[test]
    fn a_file_is_no_directory_on_the_way() {
        let v = Volume::new();
        for path in ["file/x", "file/", "file/.", "file/..", "/a/file/../b"] {
            assert!(matches!(v.resolve(path), Err(FsError::NotDirectory)), "{path}");
        }
    }

    #[test]
    fn symlinks_are_followed_from_where_they_are() {
        let v = Volume::new();
        v.symlink(v.b, b"up", b"../file");
        v.symlink(Ino::ROOT, b"down", b"a/b");
        v.symlink(Ino::ROOT, b"twice", b"down/up");
        v.symlink(v.c, b"absolute", b"/weft/a/file");
        v.symlink(v.c, b"volume", b"/weft");
        v.leads_to("b/up", v.file);
        v.leads_to("/down", v.b);
        v.leads_to("/down/c", v.c);
        v.leads_to("/down/../file", v.file);
        v.leads_to("/twice", v.file);
        v.leads_to("b/c/absolute", v.file);
        v.leads_to("b/c/volume", Ino::ROOT);
        v.leads_to("b/c/volume/a/b", v.b);
        assert!(matches!(v.resolve("/twice/"), Err(FsError::NotDirectory)));
    }

    #[test]
    fn the_last_symlink_is_followed_only_when_asked_or_when_a_slash_follows() {
        let v = Volume::new();
        let link = v.symlink(v.a, b"link", b"b");
        let not_last = Options { follow_last: false, ..OPTIONS };
        let found = |path: &[u8]| match resolve(&v.fs, &user(), v.a, path, not_last) {
            Ok(Resolved::Found(_, attr)) => attr.ino,
            other => panic!("{other:?}"),
        };
        assert_eq!(found(b"link"), link);
        assert_eq!(found(b"link/"), v.b);
        assert_eq!(found(b"link/c"), v.c);
    }

    #[test]
    fn a_dangling_symlink_leads_to_the_missing_place() {
        let v = Volume::new();
        v.symlink(v.a, b"dangling", b"b/none");
        match v.resolve("dangling") {
            Ok(Resolved::Missing(place)) => assert_eq!((place.dir, place.name), (v.b, b"none".to_vec())),
            other => panic!("{other:?}"),
        }
        assert!(matches!(v.resolve("dangling/x"), Err(FsError::NotFound)));
    }

    #[test]
    fn an_absolute_target_elsewhere_is_outside_with_the_rest_of_the_path() {
        let v = Volume::new();
        v.symlink(v.a, b"out", b"/etc/alternatives");
        v.symlink(v.a, b"near", b"/wefted");
        assert_eq!(v.resolve("out").unwrap(), Resolved::Outside(b"/etc/alternatives".to_vec()));
        assert_eq!(v.resolve("out/x/y").unwrap(), Resolved::Outside(b"/etc/alternatives/x/y".to_vec()));
        assert_eq!(v.resolve("near").unwrap(), Resolved::Outside(b"/wefted".to_vec()));
    }

    #[test]
    fn forty_symlinks_are_followed_and_no_more() {
        let v = Volume::new();
        v.symlink(v.a, b"loop", b"loop");
        assert!(matches!(v.resolve("loop"), Err(FsError::Loop)));
        v.symlink(v.a, b"0", b"file");
        for n in 1..=SYMLINKS_MAX {
            v.symlink(v.a, n.to_string().as_bytes(), (n - 1).to_string().as_bytes());
        }
        v.leads_to(&(SYMLINKS_MAX - 1).to_string(), v.file);
        assert!(matches!(v.resolve(&SYMLINKS_MAX.to_string()), Err(FsError::Loop)));
    }

    #[test]
    fn paths_and_names_have_limits_and_followed_targets_do_not_add_up() {
        let v = Volume::new();
        assert!(matches!(v.resolve(&"/".repeat(PATH_MAX)), Err(FsError::NameTooLong)));
        v.leads_to(&"/".repeat(PATH_MAX - 1), Ino::ROOT);
        assert!(matches!(v.resolve(&"n".repeat(NAME_MAX + 1)), Err(FsError::NameTooLong)));
        assert!(matches!(v.resolve(&"n".repeat(NAME_MAX)), Ok(Resolved::Missing(_))));
        // Each is as long as it may be; together they are longer.
        let long = "./".repeat(2047);
        v.symlink(v.a, b"long", format!("{}b", &long[..4092]).as_bytes());
        v.leads_to(&format!("long/{}c", "./".repeat(2040)), v.c);
    }

    #[test]
    fn each_directory_on_the_way_must_let_the_caller_search() {
        let v = Volume::new();
        let closed = make(&v.fs, v.a, b"closed", NewNode::Directory, 0o600);
        make(&v.fs, closed, b"inner", NewNode::File, 0o644);
        v.leads_to("closed", closed);
        for path in ["closed/inner", "closed/none", "closed/..", "closed/."] {
            assert!(matches!(v.resolve(path), Err(FsError::Access)), "{path}");
        }
        let root = resolve(&v.fs, &Cred::default(), v.a, b"closed/inner", OPTIONS);
        assert!(matches!(root, Ok(Resolved::Found(..))));
    }

    #[test]
    fn only_whole_components_are_below() {
        assert_eq!(below(b"/weft/a", b"/weft"), Some(&b"/a"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b"/"[..]));
        assert_eq!(below(b"/wefta", b"/weft"), None);
        assert_eq!(below(b"/", b"/weft"), None);
    }
}
