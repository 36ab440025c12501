//! From streams to the kernel's write-lifetime hints, for files that stay on an ordinary file system.
//!
//! The kernel takes four lifetimes per file (`F_SET_RW_HINT`), and hands them on to drives and file systems that place
//! by them.

use crate::context::WriteHint;

/// Upper bounds of short, medium and long, in bytes: between the words of policies by the geometric mean.
const BOUNDS: [(u64, WriteHint); 3] =
    [(181 << 20, WriteHint::Short), (1448 << 20, WriteHint::Medium), (16 << 30, WriteHint::Long)];

/// The write hint that the kernel gets for a stream whose data is expected to die when the volume has taken so many more bytes;
/// `None` when nothing is known. Lifetimes come in octaves of eight: the words of policies (`short`, `medium`, `long`,
/// `extreme`) come out as themselves.
pub fn write_hint(lifetime_bytes: Option<u64>) -> WriteHint {
    let Some(bytes) = lifetime_bytes else { return WriteHint::NotSet };
    BOUNDS.iter().find(|(bound, _)| bytes <= *bound).map_or(WriteHint::Extreme, |(_, hint)| *hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, FileContext, Mode};

    #[test]
    fn what_rocksdb_writes_gets_the_lifetimes_that_its_policy_says() {
        let engine = Engine::new(Mode::Rules, None, 0).unwrap();
        let hint = |path: &[u8], thread| {
            let ctx = FileContext { process: "db_bench", thread, ..FileContext::new(path) };
            write_hint(engine.lifetime_bytes(engine.place(&ctx).stream))
        };
        assert_eq!(hint(b"/db/000004.log", "db_bench"), WriteHint::Short);
        assert_eq!(hint(b"/db/000012.sst", "rocksdb:high0"), WriteHint::Short);
        assert_eq!(hint(b"/db/000013.sst", "rocksdb:low0"), WriteHint::Medium);
        assert_eq!(hint(b"/db/MANIFEST-000005", "db_bench"), WriteHint::Long);
        assert_eq!(hint(b"/db/000014.blob", "rocksdb:low0"), WriteHint::Extreme);
        assert_eq!(write_hint(None), WriteHint::NotSet);
    }
}
