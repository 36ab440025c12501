//! Compound operations: any bytes are a program or an error, and so an answer; a program that is checked does what its policy says.

use super::Target;
use weft_core::Ino;
use weft_vfs::compound::{
    Access, Answer, Arith, Bytes, Chain, Compare, Field, Local, Outcome, Policy, Program, check, run,
};
use weft_vfs::{FileSystem, MemFs};

/// Bytes of the volume that programs run on: small, so that it fills.
const VOLUME_BYTES: u64 = 1 << 20;
const FILE: &[u8] = b"what a program reads, finds and patches";

/// See the module.
pub struct ProgramBytes;

/// A volume with a file, a directory and a symlink.
fn volume() -> MemFs {
    let fs = MemFs::with_capacity(VOLUME_BYTES);
    let mut chain = Chain::each();
    let file = chain.create("/f", 0o644, true);
    chain.append(file, Bytes::Lit(FILE.to_vec()));
    chain.mkdir("/d", 0o755);
    chain.link("/f", "/d/g");
    assert_eq!(run(&Local::new(&fs), &chain.check().expect("a program that is right")).failed(), None);
    fs
}

/// Names and sizes of all files.
fn listing(fs: &MemFs) -> Vec<(Ino, Vec<u8>, u64, u32)> {
    let (mut found, mut dirs) = (Vec::new(), vec![Ino::ROOT]);
    while let Some(dir) = dirs.pop() {
        fs.readdir(dir, 0, &mut |entry| {
            found.push((dir, entry.name.to_vec(), entry.ino));
            true
        })
        .expect("a directory");
        dirs.extend(
            found
                .iter()
                .filter(|(of, ..)| *of == dir)
                .map(|(.., ino)| *ino)
                .filter(|ino| fs.getattr(*ino).is_ok_and(|attr| attr.kind == weft_vfs::FileKind::Directory)),
        );
    }
    let told = found.into_iter().map(|(dir, name, ino)| {
        let attr = fs.getattr(ino).expect("an inode with a name");
        (dir, name, attr.size, attr.links)
    });
    let mut told: Vec<_> = told.collect();
    told.sort();
    told
}

impl Target for ProgramBytes {
    fn name(&self) -> &'static str {
        "program"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut swap = Chain::all().durable();
        let new = swap.create("/f.new", 0o600, true);
        swap.append(new, Bytes::Lit(b"new".to_vec()));
        swap.sync(new);
        swap.rename("/f.new", "/f");
        let mut patch = Chain::prefix();
        let file = patch.open("/f", Access::ReadWrite);
        let old = patch.read(file, 0, 4096);
        patch.export(old);
        let at = patch.find(old, Bytes::Lit(b"finds".to_vec()), 0);
        patch.expect(at, Compare::Less, 4096);
        let with = patch.pack(7, 5);
        let patched = patch.patch(old, at, with);
        let sum = patch.crc32c(patched);
        patch.verify(patched, sum);
        patch.write(file, 0, patched);
        let mut each = Chain::each();
        let file = each.open("/d/g", Access::ReadWrite);
        let attr = each.stat(file);
        each.export(attr);
        let size = each.field(attr, Field::Size);
        let more = each.arith(size, Arith::Mul, 3);
        each.truncate(file, more);
        each.set_xattr(file, "user.size", Bytes::Lit(b"tripled".to_vec()));
        each.unlink("/f");
        each.rmdir("/d");
        [swap, patch, each].map(|chain| chain.check().expect("a program that is right").encode()).into()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[b"/f", b"/d", b"/d/g", b"..", b"user.x", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"\0\0\0\0"]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        if let Ok(answer) = Answer::decode(input) {
            assert_eq!(answer.encode(), input, "an answer has two encodings");
        }
        let Ok(program) = Program::decode(input) else { return };
        let (policy, operations) = (program.policy, program.ops.len());
        let Ok(checked) = check(program) else { return };
        assert_eq!(checked.encode(), input, "a program has two encodings");
        let fs = volume();
        let before = listing(&fs);
        let answer = run(&Local::new(&fs), &checked);
        assert_eq!(answer.outcomes.len(), operations);
        assert_eq!(Answer::decode(&answer.encode()).as_ref(), Ok(&answer));
        let after = listing(&fs);
        if let Some((at, _)) = answer.failed() {
            assert!(answer.outcomes[at + 1..].iter().all(|outcome| *outcome == Outcome::Skipped));
            assert!(policy != Policy::All || before == after, "half of a program was done");
        }
    }
}
