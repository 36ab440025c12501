//! Path resolution over [`FileSystem`]: `.`, `..`, symlinks, search permission.

use crate::access::{self, Access, Protections};
use crate::{Attr, FileKind, FileSystem, FsError, FsResult, NAME_MAX, PATH_MAX};
use weft_core::{Credentials, Ino, refuse};

/// Most symlinks followed in one resolution, as in Linux.
pub const SYMLINKS_MAX: usize = 40;

/// Where a path leads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Resolved {
    /// To an inode.
    Found(ParentAndName, Attr),
    /// To a name that does not exist in a directory that does.
    Missing(ParentAndName),
    /// Through a symlink with an absolute target outside the volume: the whole path that the caller has to resolve.
    Outside(Vec<u8>),
}

/// The directory and name at the end of a path; the name is empty when the path ends in the root, `.` or `..`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ParentAndName {
    /// The directory that holds the name.
    pub dir: Ino,
    /// The last component.
    pub name: Vec<u8>,
    /// Whether the path ended in a slash, so that it must be a directory.
    pub must_be_dir: bool,
    /// What kind of component the last one is.
    pub ending: LastComponent,
}

/// What a path ends in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LastComponent {
    /// A name.
    Name,
    /// Nothing but the root.
    Root,
    /// `.`
    Dot,
    /// `..`
    DotDot,
}

/// What becomes of a symlink that is the last component.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Last {
    /// It is followed.
    Follow,
    /// It is where the path leads, unless a slash follows it.
    Stop,
    /// It is where the path leads: the name itself is meant, as by calls that make, move and remove names. What the name
    /// belongs to need not be a directory even if a slash follows it; the caller looks at [`ParentAndName::must_be_dir`]. A name that
    /// is too long is missing; the caller looks at its length.
    Name,
}

/// How to resolve.
#[derive(Clone, Copy, Debug)]
pub struct Options<'a> {
    /// What becomes of a symlink that is the last component.
    pub last: Last,
    /// The last component is made when it is missing: followed by a slash it fails with `IsDirectory`, as no file is made
    /// by such a name.
    pub creates: bool,
    /// `.` and `..` are taken out by text, as libc's `realpath` does: what they stand behind must be a directory, but need not
    /// be searched.
    pub dots_by_text: bool,
    /// Which symlinks are not followed.
    pub protections: Protections,
    /// Where the volume appears to the caller, without a slash at the end: absolute symlink targets below it are the
    /// volume's, others are [`Resolved::Outside`].
    pub mount_point: &'a [u8],
    /// The directory below which the walk stays, for a caller that need not see more of the volume: paths with a slash in front begin
    /// there, and an absolute symlink, or a `..` that does not lead back to where the walk came from, leads [`Resolved::Outside`].
    pub within: Option<Ino>,
}

/// Resolves `path` (relative to `start`, or to the root when it begins with a slash).
///
/// Below a directory, the way back is the one that the walk has come: the parent of a directory may be another one meanwhile.
pub fn resolve(
    fs: &dyn FileSystem,
    cred: &Credentials,
    start: Ino,
    path: &[u8],
    options: Options<'_>,
) -> FsResult<Resolved> {
    refuse(path.len() >= PATH_MAX, FsError::NameTooLong)?;
    refuse(path.is_empty(), FsError::NotFound)?;
    let root = options.within.unwrap_or(Ino::ROOT);
    let mut dir = if path[0] == b'/' { root } else { start };
    let mut way = Vec::new();
    // What is left to walk; a followed symlink's target goes in front of it.
    let mut rest = path.to_vec();
    let mut links = 0;
    loop {
        let begin = rest.iter().position(|&b| b != b'/').unwrap_or(rest.len());
        let end = rest[begin..].iter().position(|&b| b == b'/').map_or(rest.len(), |at| begin + at);
        let name = rest[begin..end].to_vec();
        let tail = rest[end..].to_vec();
        let last = tail.iter().all(|&b| b == b'/');
        let here = fs.getattr(dir)?;
        refuse(here.kind != FileKind::Directory, FsError::NotDirectory)?;
        if name.is_empty() {
            return Ok(Resolved::Found(
                ParentAndName { dir, name, must_be_dir: true, ending: LastComponent::Root },
                here,
            ));
        }
        let is_dots = name == b"." || name == b"..";
        if !(is_dots && options.dots_by_text) {
            cred.check(fs, &here, access::EXECUTE)?;
        }
        refuse(here.links == 0 && !is_dots && name.len() > NAME_MAX, FsError::NotFound)?;
        let must_be_dir = last && !tail.is_empty();
        refuse(must_be_dir && options.creates && !is_dots, FsError::IsDirectory)?;
        refuse(name.len() > NAME_MAX && !(last && options.last == Last::Name), FsError::NameTooLong)?;
        if is_dots {
            if name == b".." {
                dir = match options.within {
                    None => fs.parent(dir)?,
                    Some(_) => match way.pop() {
                        Some(above) => above,
                        None => return Ok(Resolved::Outside(rest)),
                    },
                };
            }
            if last {
                let attr = fs.getattr(dir)?;
                let ending = if name == b".." { LastComponent::DotDot } else { LastComponent::Dot };
                return Ok(Resolved::Found(
                    ParentAndName { dir, name: Vec::new(), must_be_dir: true, ending },
                    attr,
                ));
            }
            rest = tail;
            continue;
        }
        let place = |name| ParentAndName { dir, name, must_be_dir, ending: LastComponent::Name };
        let attr = match fs.lookup(dir, &name) {
            // The caller tells, who may have to look at another path before.
            _ if name.len() > NAME_MAX => return Ok(Resolved::Missing(place(name))),
            Ok(attr) => attr,
            Err(FsError::NotFound) if last => return Ok(Resolved::Missing(place(name))),
            Err(error) => return Err(error),
        };
        let place = place(name);
        let follow = match options.last {
            _ if !last => true,
            Last::Follow => true,
            Last::Stop => must_be_dir,
            Last::Name => false,
        };
        if attr.kind == FileKind::Symlink && follow {
            if last {
                options.protections.check_follow(cred, &here, &attr)?;
            }
            links += 1;
            refuse(links > SYMLINKS_MAX, FsError::Loop)?;
            let mut target = fs.readlink(attr.ino)?;
            if target.first() == Some(&b'/') {
                match below(&target, options.mount_point).filter(|_| options.within.is_none()) {
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
            if must_be_dir && attr.kind != FileKind::Directory && options.last != Last::Name {
                return Err(FsError::NotDirectory);
            }
            return Ok(Resolved::Found(place, attr));
        }
        if options.within.is_some() {
            way.push(dir);
        }
        dir = attr.ino;
        rest = tail;
    }
}

/// The part of an absolute `path` below `mount_point` (with its slash), or `None` when it lies elsewhere. Slashes and dots
/// too many do not matter; a `..` on the way there does.
pub fn below<'a>(path: &'a [u8], mount_point: &[u8]) -> Option<&'a [u8]> {
    let mut rest = path;
    for wanted in mount_point.split(|&byte| byte == b'/').filter(|part| !part.is_empty()) {
        loop {
            rest = rest.strip_prefix(b"/")?;
            let end = rest.iter().position(|&byte| byte == b'/').unwrap_or(rest.len());
            let (component, behind) = rest.split_at(end);
            rest = behind;
            if component == wanted {
                break;
            }
            if !matches!(component, b"" | b".") {
                return None;
            }
        }
    }
    Some(if rest.is_empty() { b"/" } else { rest })
}

/// Whether a directory is another, or lies below it.
pub fn lies_in(files: &dyn FileSystem, mut dir: Ino, above: Ino) -> FsResult<bool> {
    while dir != above {
        if dir == Ino::ROOT {
            return Ok(false);
        }
        dir = files.parent(dir)?;
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CreateArgs, MemFs, NewNode};

    const USER: u32 = 1000;
    const OPTIONS: Options<'_> = Options {
        last: Last::Follow,
        creates: false,
        dots_by_text: false,
        protections: Protections { hardlinks: true, symlinks: true, regular: 1, fifos: 1 },
        mount_point: b"/weft",
        within: None,
    };

    fn user() -> Credentials {
        Credentials::new(USER, USER, Vec::new())
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
        let args = CreateArgs { uid: USER, gid: USER, ..CreateArgs::new(node, perm) };
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
        let ends = |dir, name: &[u8], must_be_dir, ending| ParentAndName {
            dir,
            name: name.to_vec(),
            must_be_dir,
            ending,
        };
        let named = |dir, name, must_be_dir| ends(dir, name, must_be_dir, LastComponent::Name);
        assert_eq!(place("b/c"), named(v.b, b"c", false));
        assert_eq!(place("b/c//"), named(v.b, b"c", true));
        assert_eq!(place("b/new"), named(v.b, b"new", false));
        assert_eq!(place("b/new/"), named(v.b, b"new", true));
        assert_eq!(place("b/.."), ends(v.a, b"", true, LastComponent::DotDot));
        assert_eq!(place("b/./"), ends(v.b, b"", true, LastComponent::Dot));
        assert_eq!(place("/"), ends(Ino::ROOT, b"", true, LastComponent::Root));
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
    fn a_walk_below_a_directory_does_not_leave_it() {
        let v = Volume::new();
        v.symlink(v.b, b"up", b"../file");
        v.symlink(v.b, b"out", b"../../a/file");
        v.symlink(v.b, b"absolute", b"/weft/a/file");
        let within = Options { within: Some(v.a), ..OPTIONS };
        let walk = |start: Ino, path: &str| match resolve(&v.fs, &user(), start, path.as_bytes(), within) {
            Ok(Resolved::Found(_, attr)) => Some(attr.ino),
            Ok(Resolved::Outside(_)) => None,
            other => panic!("{path} leads to {other:?}"),
        };
        for (path, ino) in [
            ("/", v.a),
            ("/b/c", v.c),
            ("b/c/../../file", v.file),
            ("b/c/..", v.b),
            ("./b/up", v.file),
            ("b/../b/./c", v.c),
        ] {
            assert_eq!(walk(v.a, path), Some(ino), "{path}");
        }
        for path in ["..", "/..", "b/../..", "b/../../a/file", "b/out", "b/absolute", "b/c/../../../a"] {
            assert_eq!(walk(v.a, path), None, "{path}");
        }
        // From a directory below it, too, the way back is not known.
        assert_eq!((walk(v.b, ".."), walk(v.b, "c/.."), walk(v.b, "/file")), (None, Some(v.b), Some(v.file)));
        // A directory that is moved away takes the walk along, which comes back by its own way.
        v.fs.rename(v.a, b"b", Ino::ROOT, b"b", crate::RenameFlags::empty()).unwrap();
        assert_eq!(walk(v.b, "c/../.."), None);
    }

    #[test]
    fn the_last_symlink_is_followed_only_when_asked_or_when_a_slash_follows() {
        let v = Volume::new();
        let link = v.symlink(v.a, b"link", b"b");
        let not_last = Options { last: Last::Stop, ..OPTIONS };
        let found = |path: &[u8]| match resolve(&v.fs, &user(), v.a, path, not_last) {
            Ok(Resolved::Found(_, attr)) => attr.ino,
            other => panic!("{other:?}"),
        };
        assert_eq!(found(b"link"), link);
        assert_eq!(found(b"link/"), v.b);
        assert_eq!(found(b"link/c"), v.c);
    }

    #[test]
    fn a_name_is_never_followed_and_may_belong_to_anything() {
        let v = Volume::new();
        let link = v.symlink(v.a, b"link", b"b");
        v.symlink(v.a, b"dangling", b"none");
        let name = Options { last: Last::Name, ..OPTIONS };
        for (path, ino) in [("link", link), ("link/", link), ("file/", v.file), ("b/", v.b), ("link/c", v.c)]
        {
            match resolve(&v.fs, &user(), v.a, path.as_bytes(), name) {
                Ok(Resolved::Found(place, attr)) => {
                    assert_eq!((attr.ino, place.must_be_dir), (ino, path.ends_with('/')), "{path}");
                }
                other => panic!("{path} leads to {other:?}"),
            }
        }
        assert!(matches!(resolve(&v.fs, &user(), v.a, b"dangling/", name), Ok(Resolved::Found(..))));
        assert!(matches!(resolve(&v.fs, &user(), v.a, b"file/x", name), Err(FsError::NotDirectory)));
    }

    #[test]
    fn a_name_that_is_too_long_is_an_error_only_where_it_is_looked_up_and_after_what_leads_there() {
        let v = Volume::new();
        let long = "n".repeat(NAME_MAX + 1);
        let name = Options { last: Last::Name, ..OPTIONS };
        let named = |path: &str| resolve(&v.fs, &user(), v.a, path.as_bytes(), name);
        assert!(matches!(named(&long), Ok(Resolved::Missing(place)) if place.name == long.as_bytes()));
        assert!(matches!(named(&format!("{long}/x")), Err(FsError::NameTooLong)));
        let closed = make(&v.fs, v.a, b"closed", NewNode::Directory, 0o600);
        assert!(matches!(v.resolve(&format!("closed/{long}")), Err(FsError::Access)));
        assert!(matches!(v.resolve(&format!("file/{long}")), Err(FsError::NotDirectory)));
        // A look-up in a removed directory finds nothing.
        v.fs.open(closed).unwrap();
        v.fs.rmdir(v.a, b"closed").unwrap();
        let gone = resolve(&v.fs, &Credentials::default(), closed, long.as_bytes(), OPTIONS);
        assert!(matches!(gone, Err(FsError::NotFound)));
    }

    #[test]
    fn no_file_is_made_by_a_name_with_a_slash() {
        let v = Volume::new();
        v.symlink(v.a, b"slash", b"none/");
        let creates = Options { creates: true, ..OPTIONS };
        for path in ["none/", "file/", "b/", "slash"] {
            let result = resolve(&v.fs, &user(), v.a, path.as_bytes(), creates);
            assert!(matches!(result, Err(FsError::IsDirectory)), "{path}");
        }
        assert!(matches!(resolve(&v.fs, &user(), v.a, b"b/.", creates), Ok(Resolved::Found(..))));
    }

    #[test]
    fn others_symlinks_in_a_directory_for_all_are_followed_on_the_way_but_not_at_the_end() {
        let v = Volume::new();
        let tmp = make(&v.fs, v.a, b"tmp", NewNode::Directory, 0o1777);
        v.symlink(tmp, b"mine", b"../b");
        let other = Credentials::new(USER + 1, USER, Vec::new());
        let trap = |path: &str| resolve(&v.fs, &other, v.a, path.as_bytes(), OPTIONS);
        // The directory's owner made it: no trap.
        assert!(trap("tmp/mine").is_ok());
        v.fs.setattr(tmp, &crate::SetAttr { uid: Some(0), ..Default::default() }).unwrap();
        assert!(matches!(trap("tmp/mine"), Err(FsError::Access)));
        assert!(matches!(trap("tmp/mine/"), Err(FsError::Access)));
        assert!(trap("tmp/mine/c").is_ok());
        v.leads_to("tmp/mine", v.b);
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
        let root = resolve(&v.fs, &Credentials::default(), v.a, b"closed/inner", OPTIONS);
        assert!(matches!(root, Ok(Resolved::Found(..))));
    }

    #[test]
    fn only_whole_components_are_below() {
        assert_eq!(below(b"/weft/a", b"/weft"), Some(&b"/a"[..]));
        assert_eq!(below(b"/weft", b"/weft"), Some(&b"/"[..]));
        assert_eq!(below(b"/wefta", b"/weft"), None);
        assert_eq!(below(b"/", b"/weft"), None);
        assert_eq!(below(b"//mnt/.//weft/./a", b"/mnt/weft"), Some(&b"/./a"[..]));
        assert_eq!(below(b"/mnt/x/../weft/a", b"/mnt/weft"), None);
    }
}
