//! Each operation, under the policy with the overlay and under the one without.

use super::*;
use crate::{RenameFlags, SetAttr, XattrMode};
use weft_core::Credentials;

/// Runs a test under each policy.
pub(super) fn under_each_policy(test: impl Fn(&MemFs, &dyn Fn() -> Chain)) {
    for new in [Chain::all, Chain::prefix, Chain::each] {
        test(&MemFs::new(), &new);
    }
}

/// The errno with which a program fails, which `fill` makes.
pub(super) fn errno_of(fs: &MemFs, new: &dyn Fn() -> Chain, fill: impl FnOnce(&mut Chain)) -> i32 {
    let mut chain = new();
    fill(&mut chain);
    run_on(fs, chain).failed().map_or(0, |(_, errno)| errno)
}

#[test]
fn a_program_reads_what_it_has_written() {
    under_each_policy(|fs, new| {
        file(fs, "/a", "0123456789");
        let mut chain = new();
        let a = chain.open("/a", Access::ReadWrite);
        chain.write(a, 3, "xyz");
        let end = chain.append(a, "!");
        let whole = chain.read(a, 0, 100);
        let part = chain.read(a, 5, 2);
        let behind = chain.read(a, 11, 5);
        chain.truncate(a, 4);
        chain.truncate(a, 6);
        let cut = chain.read(a, 2, 100);
        let stat = chain.stat(a);
        let size = chain.field(stat, Field::Size);
        let values = [whole, part, behind, cut];
        values.into_iter().for_each(|value| chain.export(value));
        chain.export(size);
        chain.export(end);
        let answer = done(fs, chain);
        let bytes: Vec<_> = values.into_iter().map(|value| answer.bytes(value.place()).unwrap()).collect();
        assert_eq!(bytes, [&b"012xyz6789!"[..], b"z6", b"", b"2x\0\0"]);
        assert_eq!((answer.num(size.place()), answer.num(end.place())), (Some(6), Some(10)));
        assert_eq!(content(fs, "/a").unwrap(), "012x\0\0");
    });
}

#[test]
fn a_file_that_a_program_makes_is_written_read_renamed_and_removed_in_it() {
    under_each_policy(|fs, new| {
        let mut chain = new();
        let a = chain.create("/a", 0o600, true);
        chain.append(a, "content");
        chain.rename("/a", "/b");
        chain.link("/b", "/c");
        chain.unlink("/b");
        let c = chain.open("/c", Access::Read);
        let read = chain.read(c, 0, 7);
        let stat = chain.stat(c);
        chain.export(read);
        chain.export(stat);
        let answer = done(fs, chain);
        assert_eq!(answer.bytes(read.place()), Some(&b"content"[..]));
        let Some(Value::Attr(attr)) = answer.value(stat.place()) else { panic!("{answer:?}") };
        let is = fs.lookup(Ino::ROOT, b"c").unwrap();
        assert_eq!((attr.ino, attr.size, attr.links, attr.perm), (is.ino, 7, 1, 0o600));
        assert_eq!((is.size, is.links, is.perm), (7, 1, 0o600));
        assert_eq!(content(fs, "/a"), Err(libc::ENOENT));
        assert_eq!(content(fs, "/b"), Err(libc::ENOENT));
    });
}

#[test]
fn directories_are_made_walked_moved_and_removed() {
    under_each_policy(|fs, new| {
        let mut chain = new();
        chain.mkdir("/d", 0o755);
        chain.mkdir("/d/e", 0o755);
        let e = chain.open("/d/e", Access::Path);
        let a = chain.push(Kind::Create {
            dir: Dir::At(e),
            path: "../../d/e/a".into(),
            perm: 0o644,
            exclusive: true,
        });
        chain.append(File(a), "x");
        chain.rename("/d/e", "/f");
        let up = chain.open_at(e, "../f/a", Access::Read);
        let x = chain.read(up, 0, 1);
        chain.export(x);
        chain.rmdir("/d");
        let answer = done(fs, chain);
        assert_eq!(answer.bytes(x.place()), Some(&b"x"[..]));
        assert_eq!(content(fs, "/f/a").unwrap(), "x");
        assert_eq!(fs.getattr(Ino::ROOT).unwrap().links, 3);
        assert_eq!(errno_of(fs, new, |chain| chain.rmdir("/f")), libc::ENOTEMPTY);
        assert_eq!(errno_of(fs, new, |chain| chain.rmdir("/f/a")), libc::ENOTDIR);
        assert_eq!(errno_of(fs, new, |chain| chain.unlink("/f")), libc::EISDIR);
        assert_eq!(errno_of(fs, new, |chain| chain.rmdir("/")), libc::EBUSY);
        assert_eq!(errno_of(fs, new, |chain| chain.mkdir("/f", 0o700)), libc::EEXIST);
    });
}

#[test]
fn symlinks_lead_where_they_say_within_the_volume() {
    under_each_policy(|fs, new| {
        let link = |chain: &mut Chain, target: &str, path: &str| {
            chain.push(Kind::Symlink { target: target.into(), dir: Dir::Start, path: path.into() });
        };
        let mut chain = new();
        link(&mut chain, "b", "/a");
        let made = chain.create("/a", 0o644, false);
        chain.append(made, "through");
        let again = chain.open("/a", Access::Read);
        let read = chain.read(again, 0, 9);
        chain.export(read);
        let answer = done(fs, chain);
        assert_eq!(answer.bytes(read.place()), Some(&b"through"[..]));
        assert_eq!(content(fs, "/b").unwrap(), "through");
        let mut chain = new();
        chain.push(Kind::Open { dir: Dir::Start, path: "/a".into(), access: Access::Read, follow: false });
        assert_eq!(run_on(fs, chain).failed(), Some((0, libc::ELOOP)));
        let loops = errno_of(fs, new, |chain| {
            link(chain, "loop", "/loop");
            chain.open("/loop", Access::Read);
        });
        assert_eq!(loops, libc::ELOOP);
    });
}

#[test]
fn renames_replace_swap_or_refuse() {
    under_each_policy(|fs, new| {
        file(fs, "/a", "of a");
        file(fs, "/b", "of b");
        let rename = |chain: &mut Chain, flags| {
            let (path, new_path) = ("/a".into(), "/b".into());
            chain.push(Kind::Rename { dir: Dir::Start, path, to: Dir::Start, new_path, flags });
        };
        assert_eq!(errno_of(fs, new, |chain| rename(chain, RenameFlags::NO_REPLACE)), libc::EEXIST);
        let mut chain = new();
        rename(&mut chain, RenameFlags::EXCHANGE);
        let b = chain.open("/b", Access::Read);
        let read = chain.read(b, 0, 9);
        chain.export(read);
        assert_eq!(done(fs, chain).bytes(2), Some(&b"of a"[..]));
        assert_eq!((content(fs, "/a").unwrap(), content(fs, "/b").unwrap()), ("of b".into(), "of a".into()));
        let mut chain = new();
        rename(&mut chain, RenameFlags::empty());
        done(fs, chain);
        assert_eq!((content(fs, "/a"), content(fs, "/b").unwrap()), (Err(libc::ENOENT), "of b".into()));
        assert_eq!(errno_of(fs, new, |chain| rename(chain, RenameFlags::empty())), libc::ENOENT);
    });
}

#[test]
fn extended_attributes_are_set_read_and_removed() {
    under_each_policy(|fs, new| {
        file(fs, "/a", "");
        let mut chain = new();
        let a = chain.open("/a", Access::Read);
        chain.set_xattr(a, "user.x", "1");
        let one = chain.get_xattr(a, "user.x");
        chain.export(one);
        chain.push(Kind::RemoveXattr { file: a, name: b"user.x".to_vec() });
        chain.set_xattr(a, "user.y", "2");
        assert_eq!(done(fs, chain).bytes(2), Some(&b"1"[..]));
        let ino = fs.lookup(Ino::ROOT, b"a").unwrap().ino;
        assert_eq!(fs.listxattr(ino).unwrap(), [b"user.y"]);
        let fails = |fill: &dyn Fn(&mut Chain, File)| {
            errno_of(fs, new, |chain| {
                let a = chain.open("/a", Access::Read);
                fill(chain, a);
            })
        };
        assert_eq!(
            fails(&|chain, a| {
                chain.get_xattr(a, "user.x");
            }),
            libc::ENODATA
        );
        let set = |mode| {
            move |chain: &mut Chain, file| {
                let (name, value) = (b"user.y".to_vec(), "3".into());
                chain.push(Kind::SetXattr { file, name, value, mode });
            }
        };
        assert_eq!(fails(&set(XattrMode::Create)), libc::EEXIST);
        assert_eq!(fails(&set(XattrMode::Replace)), 0);
        let remove = |chain: &mut Chain, file| {
            chain.push(Kind::RemoveXattr { file, name: b"user.x".to_vec() });
        };
        assert_eq!(fails(&remove), libc::ENODATA);
    });
}

#[test]
fn ranges_are_allocated_punched_and_zeroed() {
    under_each_policy(|fs, new| {
        let mut chain = new();
        let a = chain.create("/a", 0o644, true);
        chain.append(a, "abcdefgh");
        let allocate = |chain: &mut Chain, mode, offset, len| {
            chain.push(Kind::Fallocate { file: a, mode, offset: Num::Lit(offset), len: Num::Lit(len) });
        };
        allocate(&mut chain, Allocate::PunchHole, 1, 2);
        allocate(&mut chain, Allocate::ZeroKeepSize, 6, 9);
        allocate(&mut chain, Allocate::Zero, 7, 2);
        allocate(&mut chain, Allocate::Extend, 0, 10);
        allocate(&mut chain, Allocate::KeepSize, 4096, 8192);
        let read = chain.read(a, 0, 99);
        chain.export(read);
        let answer = done(fs, chain);
        assert_eq!(answer.bytes(read.place()), Some(&b"a\0\0def\0\0\0\0"[..]));
        assert_eq!(content(fs, "/a").unwrap().as_bytes(), b"a\0\0def\0\0\0\0");
        assert_eq!(fs.lookup(Ino::ROOT, b"a").unwrap().blocks, 3 * 8);
    });
}

#[test]
fn a_file_is_used_for_what_it_was_opened_for() {
    under_each_policy(|fs, new| {
        file(fs, "/a", "a");
        for (access, reads, writes) in [
            (Access::Path, false, false),
            (Access::Read, true, false),
            (Access::Write, false, true),
            (Access::ReadWrite, true, true),
        ] {
            let read = errno_of(fs, new, |chain| {
                let a = chain.open("/a", access);
                chain.read(a, 0, 1);
            });
            let write = errno_of(fs, new, |chain| {
                let a = chain.open("/a", access);
                chain.append(a, "");
            });
            assert_eq!((read == 0, write == 0), (reads, writes), "{access:?}");
            assert!([0, libc::EBADF].contains(&read) && [0, libc::EBADF].contains(&write));
        }
        assert_eq!(
            errno_of(fs, new, |chain| {
                chain.open("/", Access::Write);
            }),
            libc::EISDIR
        );
        let reads_dir = errno_of(fs, new, |chain| {
            let root = chain.open("/", Access::Read);
            chain.read(root, 0, 1);
        });
        assert_eq!(reads_dir, libc::EISDIR);
    });
}

#[test]
fn values_are_computed_and_checked() {
    under_each_policy(|fs, new| {
        file(fs, "/index", "..key=\x05\0\0\0..hello");
        let mut chain = new();
        let index = chain.open("/index", Access::Read);
        let all = chain.read(index, 0, 4096);
        let key = chain.find(all, "key=", 0);
        let at = chain.arith(key, Arith::Add, 4);
        let len = chain.unpack(all, at, 4);
        let total = chain.len(all);
        let from = chain.arith(total, Arith::Sub, len);
        let hello = chain.slice(all, from, len);
        let patched = chain.patch(hello, 0, "J");
        let crc = chain.crc32c(patched);
        chain.verify(patched, crc);
        let packed = chain.pack(crc, 4);
        let whole = chain.concat([patched.into(), packed.into()]);
        let nowhere = chain.find(all, "none", 0);
        chain.expect(nowhere, Compare::Equal, NOT_FOUND);
        chain.export(whole);
        let answer = done(fs, chain);
        let crc = weft_core::checksum::crc32c(b"Jello").to_le_bytes();
        assert_eq!(answer.bytes(whole.place()), Some(&[&b"Jello"[..], &crc].concat()[..]));
        let fails = |fill: &dyn Fn(&mut Chain)| errno_of(fs, new, fill);
        assert_eq!(fails(&|chain| chain.verify("abc", 1)), libc::EBADMSG);
        assert_eq!(fails(&|chain| chain.expect("a", Compare::Less, "a")), libc::ECANCELED);
        assert_eq!(
            fails(&|chain| {
                chain.slice("abc", 1, 3);
            }),
            libc::ERANGE
        );
        assert_eq!(
            fails(&|chain| {
                chain.arith(1, Arith::Sub, 2);
            }),
            libc::EOVERFLOW
        );
        assert_eq!(
            fails(&|chain| {
                chain.find("a", vec![0; 4097], 0);
            }),
            libc::EMSGSIZE
        );
    });
}

#[test]
fn a_path_may_come_out_of_a_file() {
    under_each_policy(|fs, new| {
        file(fs, "/CURRENT", "MANIFEST-7\n");
        file(fs, "/MANIFEST-7", "seven");
        let mut chain = new();
        let current = chain.open("/CURRENT", Access::Read);
        let line = chain.read(current, 0, 255);
        let end = chain.find(line, "\n", 0);
        let name = chain.slice(line, 0, end);
        let manifest = chain.open(name, Access::Read);
        let read = chain.read(manifest, 0, 4096);
        chain.export(read);
        assert_eq!(done(fs, chain).bytes(read.place()), Some(&b"seven"[..]));
    });
}

#[test]
fn a_name_with_a_nul_byte_is_refused_before_anything_is_looked_up() {
    under_each_policy(|fs, new| {
        let in_new_dir = errno_of(fs, new, |chain| {
            chain.mkdir("/d", 0o755);
            chain.rename(&b"/d/a\0b"[..], "/d/c");
        });
        let as_target = errno_of(fs, new, |chain| {
            let target = Bytes::Lit(b"a\0b".to_vec());
            chain.push(Kind::Symlink { target, dir: Dir::Start, path: "/s".into() });
        });
        assert_eq!((in_new_dir, as_target), (libc::EINVAL, libc::EINVAL));
    });
}

#[test]
fn what_uses_a_skipped_value_is_skipped() {
    under_each_policy(|fs, new| {
        file(fs, "/a", "a");
        let mut chain = new();
        let a = chain.when(1, Compare::Equal, 2).open("/none", Access::ReadWrite);
        let read = chain.read(a, 0, 9);
        chain.expect(read, Compare::Equal, "never compared");
        chain.when(read, Compare::Equal, "").mkdir("/d", 0o755);
        let b = chain.when(1, Compare::LessOrEqual, 2).open("/a", Access::Read);
        let is = chain.read(b, 0, 9);
        chain.export(is);
        let answer = done(fs, chain);
        assert_eq!(answer.outcomes[..4], vec![Outcome::Skipped; 4]);
        assert_eq!(answer.bytes(5), Some(&b"a"[..]));
        assert!(fs.lookup(Ino::ROOT, b"d").is_err());
    });
}

#[test]
fn limits_of_bytes_hold_while_it_runs() {
    under_each_policy(|fs, new| {
        let half = vec![7u8; 2 << 20];
        let fails = |parts: usize, export: bool| {
            errno_of(fs, new, |chain| {
                let one = chain.concat([half.clone().into()]);
                for _ in 0..parts {
                    let two = chain.concat([one.into(), one.into()]);
                    if export {
                        chain.export(two);
                    }
                }
            })
        };
        assert_eq!((fails(3, false), fails(4, false)), (0, libc::EMSGSIZE));
        assert_eq!((fails(1, true), fails(2, true)), (0, libc::EMSGSIZE));
        let many = errno_of(fs, new, |chain| {
            let one = chain.concat([half.clone().into()]);
            chain.concat(vec![one.into(); 255]);
        });
        assert_eq!(many, libc::EMSGSIZE);
        let writes = |times: usize| {
            errno_of(fs, new, |chain| {
                let a = chain.create("/a", 0o644, false);
                let one = chain.concat([half.clone().into()]);
                for _ in 0..times {
                    chain.append(a, one);
                }
            })
        };
        assert_eq!((writes(2), writes(3)), (0, libc::EMSGSIZE));
    });
}

#[test]
fn a_caller_does_what_it_may() {
    for new in [Chain::all, Chain::each] {
        let fs = MemFs::new();
        file(&fs, "/secret", "s");
        file(&fs, "/mine", "m");
        let chmod = |name: &[u8], perm, uid| {
            let ino = fs.lookup(Ino::ROOT, name).unwrap().ino;
            let set = SetAttr { perm: Some(perm), uid: Some(uid), gid: Some(uid), ..SetAttr::default() };
            fs.setattr(ino, &set).unwrap();
        };
        chmod(b"secret", 0o600, 0);
        chmod(b"mine", 0o4755, 7);
        // A directory that the caller may move, but not write to, as a move to another parent does.
        let mut chain = Chain::each();
        ["/open", "/open/dir", "/open/below"].into_iter().for_each(|path| chain.mkdir(path, 0o777));
        chain.create("/open/below/file", 0o644, true);
        done(&fs, chain);
        let open = fs.lookup(Ino::ROOT, b"open").unwrap().ino;
        let dir = fs.lookup(open, b"dir").unwrap().ino;
        fs.setattr(dir, &SetAttr { perm: Some(0o600), ..SetAttr::default() }).unwrap();
        let local = Local::of(&fs, Credentials::new(7, 7, Vec::new()));
        let errno = |fill: &dyn Fn(&mut Chain)| {
            let mut chain = new();
            fill(&mut chain);
            run(&local, &chain.check().unwrap()).failed().map_or(0, |(_, errno)| errno)
        };
        assert_eq!(
            errno(&|chain| {
                chain.open("/secret", Access::Read);
            }),
            libc::EACCES
        );
        assert_eq!(
            errno(&|chain| {
                chain.open("/secret", Access::Path);
            }),
            0
        );
        assert_eq!(
            errno(&|chain| {
                chain.create("/new", 0o644, true);
            }),
            libc::EACCES
        );
        assert_eq!(errno(&|chain| chain.unlink("/mine")), libc::EACCES);
        assert_eq!(errno(&|chain| chain.rename("/mine", "/other")), libc::EACCES);
        assert_eq!(errno(&|chain| chain.rename("/open/dir", "/open/below/dir")), libc::EACCES);
        // Linux looks at kinds before.
        assert_eq!(errno(&|chain| chain.rename("/open/dir", "/open/below/file")), libc::ENOTDIR);
        assert_eq!(errno(&|chain| chain.link("/secret", "/other")), libc::EPERM);
        let marks = |chain: &mut Chain| {
            let secret = chain.open("/secret", Access::Path);
            chain.set_xattr(secret, "user.x", "1");
        };
        assert_eq!(errno(&marks), libc::EACCES);
        // Writing takes the set-user-id bit, in the same step.
        let write = |chain: &mut Chain| {
            let mine = chain.open("/mine", Access::Write);
            chain.write(mine, 0, "M");
        };
        assert_eq!(errno(&write), 0);
        let attr = fs.lookup(Ino::ROOT, b"mine").unwrap();
        assert_eq!((attr.perm, content(&fs, "/mine").unwrap()), (0o755, "M".into()));
    }
}
