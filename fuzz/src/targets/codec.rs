//! Codecs: any bytes are compressed content or an error, and the content is not longer than allowed.

use super::Target;
use weft_compute::{Codec, Error, compress, decompress};

/// Bytes of content that are allowed, by the first byte of an input.
const MAX: [usize; 4] = [0, 100, 4096, 1 << 20];
const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Lz4Block, Codec::Zstd];

/// See the module.
pub struct CodecBytes;

impl Target for CodecBytes {
    fn name(&self) -> &'static str {
        "codec"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let content = b"what is compressed, what is compressed, what is not ".repeat(20);
        let mut seeds = Vec::new();
        for codec in CODECS {
            for bytes in [&content[..], b"short", &[7; 100_000]] {
                let packed = compress(bytes, codec, 0, usize::MAX).expect("room for it");
                seeds.push([&[3][..], &packed, &packed].concat());
                seeds.push([&[3][..], &packed].concat());
            }
        }
        seeds
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd", b"\x50\x2a\x4d\x18", b"\xff\xff\xff\xff", b"\0\0\0\0"]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let Some((first, bytes)) = input.split_first() else { return };
        let max = MAX[usize::from(*first) % MAX.len()];
        for codec in CODECS {
            match decompress(bytes, codec, max) {
                Ok(content) => {
                    assert!(content.len() <= max);
                    let less = content.len().checked_sub(1).map(|max| (max, decompress(bytes, codec, max)));
                    assert!(less.is_none_or(|(max, less)| less == Err(Error::TooLong { max })));
                }
                Err(error) => assert!(error.errno() > 0 && !matches!(error, Error::NoMemory(_))),
            }
            let packed = compress(bytes, codec, 0, usize::MAX).expect("room for it");
            assert_eq!(decompress(&packed, codec, bytes.len()).as_deref(), Ok(bytes));
        }
    }
}
