//! A device on a host whose disk is full for a while, or that fails once.

use super::Random;
use parking_lot::Mutex;
use std::io::ErrorKind;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::DeviceError;
use weft_device::nand::{BlockAddr, Done, Fault, FlashError, OpenChannel, PageAddr, PageProgram, PageRead};
use weft_flash::Backend;

/// Of a hundred erases and syncs while the host is in trouble, how many fail.
const SYNC_FAILURES: u64 = 20;

/// What the host bears.
#[derive(Clone, Copy, Debug)]
struct Room {
    /// Pages that are still programmed before the host fails.
    pages: u64,
    /// It fails once, and not until it has room again.
    once: bool,
}

const PLENTY: Room = Room { pages: u64::MAX, once: false };

#[derive(Debug)]
struct Trouble {
    room: Room,
    random: Random,
    errors: u64,
}

/// The device. Planes work together, unless it is `split`: then each page of a command is a command.
#[derive(Debug)]
pub struct Host {
    pub device: OpenChannel,
    split: bool,
    trouble: Mutex<Trouble>,
}

impl Host {
    pub fn new(device: OpenChannel, split: bool, seed: u64) -> Arc<Host> {
        let trouble = Trouble { room: PLENTY, random: Random(seed | 1), errors: 0 };
        Arc::new(Host { device, split, trouble: Mutex::new(trouble) })
    }

    /// The disk has room for so many pages.
    pub fn fill(&self, pages: u64) {
        self.trouble.lock().room = Room { pages, once: false };
    }

    /// After so many pages the host fails once.
    pub fn fail_once(&self, pages: u64) {
        self.trouble.lock().room = Room { pages, once: true };
    }

    /// The disk has room again.
    pub fn free(&self) {
        self.trouble.lock().room = PLENTY;
    }

    /// Errors so far.
    pub fn errors(&self) -> u64 {
        self.trouble.lock().errors
    }

    /// Of pages that are programmed, the one at which the host fails, if it does; the device is asked for that.
    fn fails_at(&self, pages: impl Iterator<Item = PageAddr>) {
        let mut trouble = self.trouble.lock();
        let is_next = |page: &PageAddr| {
            let info = self.device.block_info(page.block).unwrap();
            !info.state.is_bad() && info.programmed == page.page
        };
        for page in pages.filter(is_next) {
            if trouble.room.pages > 0 {
                trouble.room.pages =
                    trouble.room.pages.saturating_sub(u64::from(trouble.room.pages < u64::MAX));
                continue;
            }
            trouble.errors += 1;
            let once = trouble.room.once;
            let kind = if once { ErrorKind::Other } else { ErrorKind::StorageFull };
            trouble.room = if once { PLENTY } else { trouble.room };
            self.device.inject(Fault::Host(page, kind)).unwrap();
            return;
        }
    }

    /// The host may fail to sync.
    fn sync_fails(&self) -> Result<(), FlashError> {
        let mut trouble = self.trouble.lock();
        if trouble.room.pages == u64::MAX || trouble.random.below(100) >= SYNC_FAILURES {
            return Ok(());
        }
        trouble.errors += 1;
        let (path, source) = ("/disk/nand.img".into(), ErrorKind::Other.into());
        Err(DeviceError::Io { path, source }.into())
    }
}

impl Backend for Host {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.fails_at(std::iter::once(page));
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.sync_fails()?;
        self.device.erase(issued, block)
    }

    fn program_many(&self, issued: Nanos, pages: &[PageProgram]) -> Vec<Result<Done, FlashError>> {
        if !self.split {
            self.fails_at(pages.iter().map(|program| program.page));
            return Backend::program_many(&self.device, issued, pages);
        }
        let mut results = Vec::new();
        for write in pages {
            results.push(self.program(issued, write.page, write.data, write.oob));
            let Some(Err(last)) = results.last() else { continue };
            let Some(error) = last.of_host() else { continue };
            let again = || Err(error.of_host().unwrap());
            let left = pages.len() - results.len();
            results.extend(std::iter::repeat_with(again).take(left));
            break;
        }
        results
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.sync_fails()?;
        self.device.sync()
    }
}
