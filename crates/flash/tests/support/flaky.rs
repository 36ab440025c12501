//! A device for recovery campaigns: pages that cannot be read for a moment or for good, calls that the host fails, random shapes, and
//! power that goes again and again.

use super::Random;
use parking_lot::Mutex;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::nand::{
    BlockAddr, Done, Fault, FlashError, FlashSetup, OpenChannel, PageAddr, PageProgram, PageRead, Unreadable,
};
use weft_device::{DeviceError, Geometry};
use weft_flash::{Backend, LevelError};

/// Reads of a page that fail one after the other before it is read: fewer than anybody tries.
const FAILURES_IN_A_ROW: u32 = 2;

#[derive(Debug)]
struct Weather {
    random: Random,
    /// Of a thousand reads, how many fail for the moment.
    transient: u64,
    /// By page: reads that have failed one after the other.
    failed: BTreeMap<PageAddr, u32>,
    /// Pages that cannot be read until their block is erased, with the block's erases.
    lasting: BTreeSet<(PageAddr, u32)>,
    trouble: Option<Trouble>,
}

/// A call that the host may fail.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostCall {
    Read,
    Program,
    Erase,
    Sync,
}

/// Errors of the host to come.
#[derive(Clone, Copy, Debug)]
pub struct Trouble {
    /// The calls that it meets; `None` for all.
    pub call: Option<HostCall>,
    /// Such calls that succeed before.
    pub spared: u64,
    /// Such calls that fail then.
    pub fails: u64,
}

impl Trouble {
    /// Once, several times, or for a while.
    pub fn random(random: &mut Random) -> Trouble {
        let calls = [HostCall::Read, HostCall::Program, HostCall::Erase, HostCall::Sync];
        let call = calls.get(random.below(5) as usize).copied();
        let most = 1 << random.below(7);
        let spared = random.below(most);
        let fails = match random.below(3) {
            0 => 1,
            1 => 1 + random.below(4),
            _ => 1 << random.below(8),
        };
        Trouble { call, spared, fails }
    }
}

/// Whether the host failed a call.
pub fn is_of_the_host(error: &LevelError) -> bool {
    use DeviceError::{Io, SyncFailed};
    let of_device = |error: &FlashError| matches!(error, FlashError::Device(Io { .. } | SyncFailed { .. }));
    matches!(error, LevelError::HostFull(_)) || matches!(error, LevelError::Device(error) if of_device(error))
}

/// The device.
#[derive(Debug)]
pub struct Flaky {
    pub device: OpenChannel,
    weather: Mutex<Weather>,
}

impl Flaky {
    pub fn new(device: OpenChannel, transient: u64, seed: u64) -> Arc<Flaky> {
        let weather = Weather {
            random: Random(seed | 1),
            transient,
            failed: BTreeMap::new(),
            lasting: BTreeSet::new(),
            trouble: None,
        };
        Arc::new(Flaky { device, weather: Mutex::new(weather) })
    }

    /// Makes a page that is programmed unreadable for good; false when the random choice met none.
    pub fn spoil(&self, random: &mut Random) -> bool {
        let shape = self.device.shape();
        let block = shape.block_at(random.below(shape.blocks()));
        let info = self.device.block_info(block).unwrap();
        if info.programmed == 0 || info.state.is_bad() {
            return false;
        }
        // The last page most often: it is the one that a cut could have torn.
        let page = match random.below(2) {
            0 => info.programmed - 1,
            _ => random.below(u64::from(info.programmed)) as u32,
        };
        self.weather.lock().lasting.insert((block.page(page), info.erases))
    }

    /// Whether any page is unreadable for good.
    pub fn is_spoiled(&self) -> bool {
        !self.weather.lock().lasting.is_empty()
    }

    /// All pages can be read again.
    pub fn heal(&self) {
        self.weather.lock().lasting.clear();
    }

    /// Lets the host fail calls from now on.
    pub fn trouble(&self, trouble: Trouble) {
        self.weather.lock().trouble = Some(trouble);
    }

    /// The host fails nothing any more.
    pub fn calm(&self) {
        self.weather.lock().trouble = None;
    }

    /// Whether the host may fail a call.
    fn is_troubled(&self) -> bool {
        self.weather.lock().trouble.is_some_and(|trouble| trouble.fails > 0)
    }

    /// Fails a call as the host does, if it is one that is to fail.
    fn meets_trouble(&self, call: HostCall) -> Result<(), FlashError> {
        let mut weather = self.weather.lock();
        let weather = &mut *weather;
        let meets = |trouble: &&mut Trouble| trouble.call.is_none_or(|met| met == call) && trouble.fails > 0;
        let Some(trouble) = weather.trouble.as_mut().filter(meets) else { return Ok(()) };
        if trouble.spared > 0 {
            trouble.spared -= 1;
            return Ok(());
        }
        trouble.fails -= 1;
        Err(if weather.random.below(2) == 0 {
            let (path, source) = ("/disk/nand.img".into(), std::io::ErrorKind::StorageFull.into());
            DeviceError::HostFull { path, source }.into()
        } else {
            io_error()
        })
    }

    /// Asks for a failure of the next program or the next erase of some block but the first ones of each LUN; of the first LUN
    /// most often, so that its spares run out.
    pub fn wound(&self, random: &mut Random, spared: u32) {
        let shape = self.device.shape();
        let block = loop {
            let blocks = if random.below(4) > 0 { u64::from(shape.blocks_per_lun()) } else { shape.blocks() };
            let block = shape.block_at(random.below(blocks));
            // As the monitor numbers them: across the planes.
            if block.block * shape.planes + block.plane >= spared {
                break block;
            }
        };
        let info = self.device.block_info(block).unwrap();
        let fault = if random.below(2) == 0 && info.programmed < shape.pages_per_block {
            Fault::Program(block.page(info.programmed))
        } else {
            Fault::Erase(block)
        };
        self.device.inject(fault).unwrap();
    }
}

impl Backend for Flaky {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.meets_trouble(HostCall::Read)?;
        let done = self.device.read_planes(issued, std::slice::from_mut(read))?;
        let page = read.page;
        let erases = self.device.block_info(page.block)?.erases;
        let mut weather = self.weather.lock();
        let weather = &mut *weather;
        let failed = weather.failed.entry(page).or_default();
        let passes = *failed < FAILURES_IN_A_ROW && weather.random.below(1000) < weather.transient;
        *failed = if passes { *failed + 1 } else { 0 };
        if passes || weather.lasting.contains(&(page, erases)) {
            read.data.fill(0xee);
            read.oob.fill(0xee);
            return Err(FlashError::Uncorrectable { address: page, why: Unreadable::Bits, done: done.done });
        }
        Ok(done)
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.meets_trouble(HostCall::Program)?;
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        if let Err(error) = self.meets_trouble(HostCall::Erase) {
            // The host may fail after the erase, when the block's room is given back.
            if self.weather.lock().random.below(4) == 0 {
                self.device.erase(issued, block)?;
            }
            return Err(error);
        }
        self.device.erase(issued, block)
    }

    fn program_many(&self, issued: Nanos, pages: &[PageProgram]) -> Vec<Result<Done, FlashError>> {
        // Pages that are programmed as one fail as one.
        if self.meets_trouble(HostCall::Program).is_err() {
            return pages.iter().map(|_| Err(io_error())).collect();
        }
        Backend::program_many(&self.device, issued, pages)
    }

    fn erase_many(&self, issued: Nanos, blocks: &[BlockAddr]) -> Vec<Result<Done, FlashError>> {
        if self.is_troubled() {
            return blocks.iter().map(|block| self.erase(issued, *block)).collect();
        }
        Backend::erase_many(&self.device, issued, blocks)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.meets_trouble(HostCall::Sync)?;
        self.device.sync()
    }
}

fn io_error() -> FlashError {
    let source = std::io::Error::from_raw_os_error(5);
    DeviceError::Io { path: "/disk/nand.img".into(), source }.into()
}

/// A device of a random shape; `blocks` says how many blocks a LUN has to have, given its pages a block, the LUNs and
/// their planes.
pub fn random_shape(random: &mut Random, blocks: impl FnOnce(u32, u32, u32) -> u32) -> OpenChannel {
    OpenChannel::memory(&FlashSetup::new(random_geometry(random, blocks))).unwrap()
}

/// The geometry of such a device.
pub fn random_geometry(random: &mut Random, blocks: impl FnOnce(u32, u32, u32) -> u32) -> Geometry {
    let mut geometry = Geometry::bbssd();
    geometry.channels = 1 + random.below(3) as u32;
    geometry.luns_per_channel = 1 + random.below(3) as u32;
    geometry.planes = 1 + random.below(4) as u32;
    // Small blocks are full sooner, and meet more.
    geometry.pages_per_block = match random.below(100) {
        0..90 => 3 + random.below(6) as u32,
        90..98 => 9 + random.below(24) as u32,
        _ => 33 + random.below(224) as u32,
    };
    geometry.page_bytes = 4096;
    let luns = geometry.channels * geometry.luns_per_channel;
    let wanted = blocks(geometry.pages_per_block, luns, geometry.planes);
    let per_lun = wanted.div_ceil(geometry.planes) * geometry.planes;
    let bytes = u64::from(luns) * u64::from(per_lun) * u64::from(geometry.pages_per_block) * 4096;
    geometry.with_size(bytes)
}

/// What a seed met, for the sum over all seeds.
#[derive(Default, Debug, Clone, Copy)]
pub struct Met {
    pub cuts: u64,
    pub cuts_while_opening: u64,
    pub refusals: u64,
    pub failed_blocks: u64,
    pub host_errors: u64,
}

impl Met {
    pub fn add(&mut self, other: Met) {
        self.cuts += other.cuts;
        self.cuts_while_opening += other.cuts_while_opening;
        self.refusals += other.refusals;
        self.failed_blocks += other.failed_blocks;
        self.host_errors += other.host_errors;
    }
}

/// Opens something, with power that goes up to `cuts` times on the way. Where a page is unreadable for good the opening may
/// be refused with an error that names a page; it then succeeds once the page can be read. After an error of the host it
/// succeeds once the host does.
pub fn open_in_storm<T>(
    flaky: &Flaky,
    random: &mut Random,
    mut cuts: u64,
    met: &mut Met,
    open: impl Fn() -> Result<T, LevelError>,
) -> T {
    loop {
        if cuts > 0 {
            let most = 2 << random.below(6);
            let after = random.below(most);
            flaky.device.cut_after(after, random.next());
        }
        match open() {
            Ok(opened) => {
                flaky.device.power_on();
                return opened;
            }
            Err(LevelError::PowerLost) => {
                flaky.device.power_on();
                cuts -= 1;
                met.cuts_while_opening += 1;
            }
            Err(error) if flaky.is_spoiled() && error.to_string().contains(" page ") => {
                flaky.device.power_on();
                flaky.heal();
                met.refusals += 1;
            }
            Err(error) if is_of_the_host(&error) => {
                flaky.device.power_on();
                flaky.calm();
                met.host_errors += 1;
            }
            Err(error) => panic!("not opened: {error}"),
        }
    }
}

/// Takes so many steps, or until power goes; whether it went.
pub fn until_power_goes(steps: u64, mut step: impl FnMut() -> Result<(), LevelError>) -> bool {
    for _ in 0..steps {
        match step() {
            Ok(()) => {}
            Err(LevelError::PowerLost) => return true,
            Err(other) => panic!("refused: {other}"),
        }
    }
    false
}

/// Runs a campaign: so many seeds, on as many threads as there are processors. `WEFT_SEED` runs one alone, `WEFT_SEEDS` that
/// many.
#[allow(clippy::print_stdout, reason = "a campaign says what it met")]
pub fn seeds(slice: u64, whole: u64, run: impl Fn(u64) -> Met + Sync) {
    let number = |name: &str| std::env::var(name).ok().and_then(|value| value.parse::<u64>().ok());
    if let Some(seed) = number("WEFT_SEED") {
        println!("{:?}", run(seed));
        return;
    }
    let count = number("WEFT_SEEDS").unwrap_or(if super::campaign() { whole } else { slice });
    let next = std::sync::atomic::AtomicU64::new(1);
    let total = Mutex::new(Met::default());
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from).min(4) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    if seed > count {
                        break;
                    }
                    match std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed))) {
                        Ok(met) => total.lock().add(met),
                        Err(_) => failed.lock().push(seed),
                    }
                }
            });
        }
    });
    let failed = failed.into_inner();
    println!("{count} seeds: {:?}", total.into_inner());
    let first = &failed[..failed.len().min(20)];
    assert!(failed.is_empty(), "{} of {count} seeds fail, such as {first:?}", failed.len());
}
