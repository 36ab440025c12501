//! Codecs: what goes in comes out again, within the limits, and nothing else is taken for it.

// What a test unwraps is what it asserts.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use weft_compute::{Codec, Error, LEVEL_MAX, SLICE_BYTES, compress, compress_in_slices, decompress};

const CODECS: [Codec; 3] = [Codec::Lz4, Codec::Lz4Block, Codec::Zstd];

fn levels(codec: Codec) -> Vec<i32> {
    (-100..=100).filter(|level| codec.has_level(*level)).collect()
}

/// Bytes that shrink, in part.
fn content(seed: u64, len: usize) -> Vec<u8> {
    let mut random = StdRng::seed_from_u64(seed);
    let mut bytes: Vec<u8> = Vec::with_capacity(len);
    while bytes.len() < len {
        let part = random.random_range(1..200).min(len - bytes.len());
        match random.random_range(0..3) {
            0 => bytes.extend((0..part).map(|_| random.random::<u8>())),
            1 => bytes.resize(bytes.len() + part, random.random()),
            _ => {
                let from = random.random_range(0..=bytes.len());
                let part = part.min(bytes.len() - from);
                bytes.extend_from_within(from..from + part);
            }
        }
    }
    bytes
}

#[test]
fn what_is_compressed_in_slices_is_the_same_content_and_no_longer_than_a_header_a_slice() {
    for len in [0, 1, SLICE_BYTES - 1, SLICE_BYTES, SLICE_BYTES + 1, 10 * SLICE_BYTES + 7] {
        let mut word = 7u64;
        let mut noise = || {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 56) as u8
        };
        let (text, noise): (Vec<u8>, Vec<u8>) = (0..len).map(|at| ((at / 9 % 200) as u8, noise())).unzip();
        for bytes in [text, noise] {
            let mut slices = 0;
            let mut count = || slices += 1;
            let packed = compress_in_slices(&bytes, Codec::Zstd, 0, usize::MAX, Some(&mut count)).unwrap();
            assert_eq!(slices, len.saturating_sub(1) / SLICE_BYTES);
            assert!(packed.len() <= bytes.len() + 32 + 4 * slices, "{} of {len}", packed.len());
            assert_eq!(zstd::decompressed_size(&packed), Some(len as u64));
            assert!(decompress(&packed, Codec::Zstd, len).unwrap() == bytes);
        }
    }
}

#[test]
fn what_is_compressed_is_decompressed_within_limits_that_hold_to_the_byte() {
    for codec in CODECS {
        for len in [0, 1, 2, 12, 13, 255, 4_096, 65_535, 65_536, 65_537, 300_000, 5 << 20] {
            let bytes = content(len as u64, len);
            let some = if len > 100_000 { vec![0] } else { levels(codec) };
            for level in some {
                let packed = compress(&bytes, codec, level, usize::MAX).unwrap();
                assert_eq!(compress(&bytes, codec, level, packed.len()).unwrap(), packed);
                if let Some(max) = packed.len().checked_sub(1) {
                    assert_eq!(
                        compress(&bytes, codec, level, max),
                        Err(Error::TooLong { max }),
                        "{codec:?} {len}"
                    );
                }
                assert_eq!(decompress(&packed, codec, len).unwrap(), bytes, "{codec:?} {len}");
                assert_eq!(decompress(&packed, codec, usize::MAX).unwrap(), bytes);
                if let Some(max) = len.checked_sub(1) {
                    assert_eq!(
                        decompress(&packed, codec, max),
                        Err(Error::TooLong { max }),
                        "{codec:?} {len}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_codec_has_the_levels_that_it_says() {
    assert_eq!(levels(Codec::Lz4), [0]);
    assert_eq!(levels(Codec::Lz4Block), [0]);
    assert_eq!(levels(Codec::Zstd), (0..=LEVEL_MAX).collect::<Vec<_>>());
    for codec in CODECS {
        for level in [i32::MIN, -1, LEVEL_MAX + 1, 22, i32::MAX] {
            let refused = compress(b"bytes", codec, level, 100).unwrap_err();
            assert!(matches!(refused, Error::Level { .. }) && refused.errno() == libc::EINVAL);
        }
    }
    let bytes = content(1, 200_000);
    let len = |level| compress(&bytes, Codec::Zstd, level, usize::MAX).unwrap().len();
    assert!(len(9) < len(1) && len(0) == len(3));
}

#[test]
fn a_bomb_ends_before_it_takes_memory() {
    let zeros = vec![0; 64 << 20];
    for codec in CODECS {
        let bomb = compress(&zeros, codec, 0, usize::MAX).unwrap();
        assert!(bomb.len() < 300_000, "{codec:?} {}", bomb.len());
        for max in [0, 1, 4_096, 16 << 20] {
            let ended = decompress(&bomb, codec, max).unwrap_err();
            assert_eq!(ended, Error::TooLong { max });
            assert_eq!(ended.errno(), libc::E2BIG);
        }
    }
    // Frames that tell sizes which are no memory's.
    let mut lz4 = compress(b"content", Codec::Lz4, 0, 100).unwrap();
    lz4[6..14].copy_from_slice(&u64::MAX.to_le_bytes());
    assert_eq!(decompress(&lz4, Codec::Lz4, 100), Err(Error::TooLong { max: 100 }));
    // A frame of 2^62 bytes of content, of which nothing follows.
    let zstd = [&[0x28, 0xB5, 0x2F, 0xFD, 0xE0][..], &(1u64 << 62).to_le_bytes()].concat();
    assert!(decompress(&zstd, Codec::Zstd, 100).is_err());
}

#[test]
fn frames_without_a_size_are_bounded_too() {
    let content = content(3, 300_000);
    let unsized_zstd = zstd::stream::encode_all(&content[..], 3).unwrap();
    assert_eq!(zstd::decompressed_size(&unsized_zstd), None);
    let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
    std::io::Write::write_all(&mut encoder, &content).unwrap();
    let unsized_lz4 = encoder.finish().unwrap();
    for (codec, packed) in [(Codec::Zstd, unsized_zstd), (Codec::Lz4, unsized_lz4)] {
        assert_eq!(decompress(&packed, codec, content.len()).unwrap(), content);
        let max = content.len() - 1;
        assert_eq!(decompress(&packed, codec, max), Err(Error::TooLong { max }));
        let told = compress(&content, codec, 0, usize::MAX).unwrap();
        let mixed = [&packed[..], &told, &packed].concat();
        assert_eq!(decompress(&mixed, codec, 3 * content.len()).unwrap().len(), 3 * content.len());
        let bomb = [&packed[..], &packed].concat();
        assert_eq!(decompress(&bomb, codec, 2 * content.len()).unwrap(), [&content[..], &content].concat());
        assert_eq!(decompress(&bomb, codec, 2 * content.len() - 1).unwrap_err().errno(), libc::E2BIG);
    }
}

#[test]
fn a_frame_that_is_cut_or_has_something_behind_it_is_refused() {
    let bytes = content(4, 200_000);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let packed = compress(&bytes, codec, 0, usize::MAX).unwrap();
        for end in
            (0..packed.len()).step_by(997).chain([packed.len() - 1, packed.len() - 4, packed.len() - 8])
        {
            assert_eq!(
                decompress(&packed[..end], codec, 1 << 20).unwrap_err().errno(),
                libc::EBADMSG,
                "{end}"
            );
        }
        let long = [&packed[..], b"x"].concat();
        assert_eq!(decompress(&long, codec, 1 << 20).unwrap_err().errno(), libc::EBADMSG);
    }
}

#[test]
fn a_damaged_frame_is_never_taken_for_whole() {
    let bytes = content(5, 20_000);
    let mut random = StdRng::seed_from_u64(6);
    for codec in [Codec::Lz4, Codec::Zstd] {
        let packed = compress(&bytes, codec, 0, usize::MAX).unwrap();
        for _ in 0..2_000 {
            let mut damaged = packed.clone();
            let at = random.random_range(0..damaged.len());
            damaged[at] ^= 1 << random.random_range(0..8);
            // Some bits of a header say nothing of the content.
            if let Ok(unpacked) = decompress(&damaged, codec, 1 << 20) {
                assert_eq!(unpacked, bytes, "{codec:?} {at}");
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..5_000), level in 0..=LEVEL_MAX) {
        for codec in CODECS {
            let level = if codec.has_level(level) { level } else { 0 };
            let packed = compress(&bytes, codec, level, usize::MAX).unwrap();
            prop_assert_eq!(&decompress(&packed, codec, bytes.len()).unwrap(), &bytes);
        }
    }

    #[test]
    fn garbage_gives_no_more_than_is_allowed(garbage in proptest::collection::vec(any::<u8>(), 0..300), max in 0usize..2_000) {
        for codec in CODECS {
            for magic in [&b""[..], &[0x04, 0x22, 0x4D, 0x18], &[0x28, 0xB5, 0x2F, 0xFD]] {
                if let Ok(bytes) = decompress(&[magic, &garbage].concat(), codec, max) {
                    prop_assert!(bytes.len() <= max);
                }
            }
        }
    }
}

/// A frame of LZ4 with these blocks, each behind its size word, for blocks of at most 4 MiB and without sizes and checksums.
fn lz4_frame(blocks: &[(u32, &[u8])]) -> Vec<u8> {
    // Magic, version 1 and independent blocks, blocks of 4 MiB, and the checksum of these two bytes.
    let mut frame = vec![0x04, 0x22, 0x4d, 0x18, 0x60, 0x70, 0x73];
    for (word, bytes) in blocks {
        frame.extend_from_slice(&word.to_le_bytes());
        frame.extend_from_slice(bytes);
    }
    frame.extend_from_slice(&[0; 4]);
    frame
}

#[test]
fn an_empty_block_does_not_hide_what_is_behind_it() {
    const STORED: u32 = 1 << 31;
    let whole = lz4_frame(&[(STORED | 3, b"abc"), (STORED | 3, b"def")]);
    assert_eq!(decompress(&whole, Codec::Lz4, 99).unwrap(), b"abcdef");
    let hidden = lz4_frame(&[(STORED | 3, b"abc"), (STORED, b""), (STORED | 3, b"def")]);
    assert!(matches!(decompress(&hidden, Codec::Lz4, 99), Err(Error::Corrupt(_))));
}

#[test]
fn frames_of_next_to_nothing_do_not_clear_memory_without_end() {
    // A block of one literal byte: each makes the decoder clear 4 MiB.
    let frame = lz4_frame(&[(2, b"\x10a")]);
    assert_eq!(decompress(&frame.repeat(20), Codec::Lz4, 99).unwrap(), [b'a'; 20]);
    assert!(matches!(decompress(&frame.repeat(100), Codec::Lz4, 999), Err(Error::NoMemory(_))));
}
