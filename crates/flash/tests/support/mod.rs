//! What the tests share: small devices, a source of randomness, and a device that power is cut on before each operation.

#![allow(dead_code, reason = "each test uses a part")]

/// What a wrapper answers as its `device` does, in an implementation of [`Backend`](weft_flash::Backend).
macro_rules! as_the_device {
    () => {
        fn shape(&self) -> weft_device::nand::FlashShape {
            self.device.shape()
        }

        fn pairs_pages(&self) -> bool {
            false
        }

        fn block_info(
            &self,
            block: weft_device::nand::BlockAddr,
        ) -> Result<weft_device::nand::BlockInfo, weft_device::nand::FlashError> {
            self.device.block_info(block)
        }

        fn lun_info(
            &self,
            lun: weft_device::nand::LunAddr,
        ) -> Result<Vec<weft_device::nand::BlockInfo>, weft_device::nand::FlashError> {
            self.device.lun_info(lun)
        }

        fn lun_free_at(
            &self,
            lun: weft_device::nand::LunAddr,
        ) -> Result<weft_core::Nanos, weft_device::nand::FlashError> {
            self.device.lun_free_at(lun)
        }
    };
}

pub mod flaky;
pub mod gate;
pub mod host;

use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::Geometry;
use weft_device::nand::{BlockAddr, Done, FlashError, FlashSetup, Keep, OpenChannel, PageAddr, PageRead};
use weft_flash::Backend;

/// Vigna's xorshift64*.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }
}

/// Whether the long campaigns are asked for.
pub fn campaign() -> bool {
    std::env::var("WEFT_CAMPAIGN").is_ok_and(|value| value == "1")
}

/// A page of 4 KiB that says what it is.
pub fn page_of(key: u64, version: u64) -> Vec<u8> {
    let mut data = vec![version as u8; 4096];
    data[..8].copy_from_slice(&key.to_le_bytes());
    data[8..16].copy_from_slice(&version.to_le_bytes());
    data
}

/// A geometry of these counts, with pages of 4 KiB.
pub fn geometry(channels: u32, luns: u32, blocks: u32, pages: u32) -> Geometry {
    let mut geometry = Geometry::bbssd();
    geometry.channels = channels;
    geometry.luns_per_channel = luns;
    geometry.planes = 1;
    geometry.pages_per_block = pages;
    geometry.page_bytes = 4096;
    let bytes = u64::from(channels * luns) * u64::from(blocks) * u64::from(pages) * 4096;
    geometry.with_size(bytes)
}

pub fn device(channels: u32, luns: u32, blocks: u32, pages: u32) -> OpenChannel {
    OpenChannel::memory(&FlashSetup::new(geometry(channels, luns, blocks, pages))).unwrap()
}

/// The same, without data: for simulations.
pub fn shadow(channels: u32, luns: u32, blocks: u32, pages: u32) -> OpenChannel {
    OpenChannel::memory(&FlashSetup::new(geometry(channels, luns, blocks, pages)).keeping(Keep::Oob)).unwrap()
}

type Check = Box<dyn FnMut(OpenChannel, u64) + Send>;

/// A device that is copied before each program and erase; in the copy power goes in that operation, and the check gets
/// the copy with power back on. The run itself goes on undisturbed.
pub struct CutEverywhere {
    pub device: OpenChannel,
    check: Mutex<Option<Check>>,
    state: Mutex<(u64, u64)>,
}

impl fmt::Debug for CutEverywhere {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CutEverywhere")
    }
}

impl CutEverywhere {
    pub fn new(device: OpenChannel) -> Arc<CutEverywhere> {
        Arc::new(CutEverywhere { device, check: Mutex::new(None), state: Mutex::new((0, 1)) })
    }

    /// Begins to cut, at every so many operations.
    pub fn arm(&self, every: u64, check: impl FnMut(OpenChannel, u64) + Send + 'static) {
        *self.check.lock() = Some(Box::new(check));
        self.state.lock().1 = every;
    }

    pub fn disarm(&self) {
        *self.check.lock() = None;
    }

    /// Programs and erases so far.
    pub fn operations(&self) -> u64 {
        self.state.lock().0
    }

    fn cut(&self, operation: impl FnOnce(&OpenChannel) -> Result<Done, FlashError>) {
        let (number, every) = {
            let mut state = self.state.lock();
            state.0 += 1;
            *state
        };
        if number % every != 0 {
            return;
        }
        if let Some(check) = &mut *self.check.lock() {
            let fork = self.device.fork().unwrap();
            fork.cut_after(0, number);
            if let Err(FlashError::PowerLost) = operation(&fork) {
                fork.power_on();
                check(fork, number);
            }
        }
    }
}

impl Backend for CutEverywhere {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.cut(|fork| fork.program(issued, page, data, oob));
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.cut(|fork| fork.erase(issued, block));
        self.device.erase(issued, block)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.device.sync()
    }
}
