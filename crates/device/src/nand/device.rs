//! The open-channel device: LUNs with their locks, and the operations on one LUN.

use super::address::{BlockAddr, FlashShape, LunAddr, PageAddr};
use super::bit_errors::BitErrors;
use super::block::{Block, BlockInfo, Health};
use super::command::{Done, PageProgram, PageRead};
use super::counters::FlashCounters;
use super::error::{FlashError, Refusal};
use super::image::{Annex, FIRST_SLOT, FlashImage, Opened};
use super::lun::{Fault, Lun};
use super::power::Power;
use super::setup::FlashSetup;
use crate::DeviceError;
use crate::faults::{FaultPlan, Operation};
use crate::image::frame::LastUse;
use crate::path::Timeline;
use crate::timing::nanos_of;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::path::Path as FilePath;
use std::sync::Arc;
use weft_core::Nanos;
use weft_core::padded::CachePadded;

/// The flash, with physical addresses. See the [module](super) for rules, time and locks.
#[derive(Debug)]
pub struct OpenChannel {
    pub(super) setup: FlashSetup,
    pub(super) shape: FlashShape,
    /// How long a page's data takes on the channel.
    page_move_ns: u64,
    // Threads on LUNs of their own are not to meet on a cache line.
    pub(super) luns: Arc<[CachePadded<Mutex<Lun>>]>,
    pub(super) channels: Box<[CachePadded<Mutex<Timeline>>]>,
    pub(super) plan: FaultPlan,
    pub(super) bit_errors: BitErrors,
    pub(super) power: Power,
    /// Commands refused, by rule.
    refused: Mutex<BTreeMap<Refusal, u64>>,
    image: Option<Arc<FlashImage>>,
}

impl OpenChannel {
    /// A new device in memory.
    pub fn memory(setup: &FlashSetup) -> Result<OpenChannel, FlashError> {
        setup.validate()?;
        Ok(OpenChannel::assemble(setup.clone(), None, |_| ()))
    }

    /// A new device in an image file, which is sparse. An existing file is refused unless `overwrite` is set.
    pub fn create(path: &FilePath, setup: &FlashSetup, overwrite: bool) -> Result<OpenChannel, FlashError> {
        OpenChannel::create_with(path, setup, &Annex::default(), overwrite)
    }

    /// The same with an annex.
    pub(crate) fn create_with(
        path: &FilePath,
        setup: &FlashSetup,
        annex: &Annex,
        overwrite: bool,
    ) -> Result<OpenChannel, FlashError> {
        setup.validate()?;
        let image = Arc::new(FlashImage::create(path, setup, annex, overwrite)?);
        let blocks = vec![(Block::default(), FIRST_SLOT); setup.shape().blocks_per_lun() as usize];
        let restore = |lun: &mut Lun| lun.restore(image.clone(), &blocks, 0, setup.geometry.pages_per_block);
        Ok(OpenChannel::assemble(setup.clone(), Some(image.clone()), restore))
    }

    /// Opens an image file. [`DeviceError::Busy`] when another process has it, [`DeviceError::BadImage`] when it is not
    /// one that can be read. The device's clock goes on from where it was when the image was last synced or closed.
    ///
    /// What was programmed is there, also after the process that had the image open was killed. After a crash of the
    /// host, what was programmed since the last [`sync`](OpenChannel::sync) may be missing: a block then ends before it.
    ///
    /// An image with a conventional or FDP drive is refused: its flash is the drive's ([`Ssd::open`](crate::ssd::Ssd::open)).
    pub fn open(path: &FilePath) -> Result<OpenChannel, FlashError> {
        let (device, annex, _) = OpenChannel::open_with(path, false)?;
        if annex.bytes > 0 {
            let what = "a conventional or FDP drive is in this image, and only the drive uses its flash; 'weft flash \
                        info', 'read', 'write' and 'simulate --image' work on drives"
                .to_string();
            return Err(DeviceError::BadImage { path: path.to_path_buf(), what }.into());
        }
        if let Some(image) = device.image() {
            image.begin_session()?;
            image.has_opened();
        }
        Ok(device)
    }

    /// Opens an image file that is not to be changed, also that of a drive; read permission is enough. Commands that write
    /// are refused.
    pub fn look(path: &FilePath) -> Result<OpenChannel, FlashError> {
        Ok(OpenChannel::open_with(path, true)?.0)
    }

    /// Opens an image file, with an annex if it has one; and how it was last used: after a use that was not closed, a part of the annex
    /// that was not synced may be missing. The caller [begins the session](FlashImage::begin_session), recovers, and
    /// [says so](FlashImage::has_opened).
    pub(crate) fn open_with(
        path: &FilePath,
        look: bool,
    ) -> Result<(OpenChannel, Annex, LastUse), FlashError> {
        let Opened { image, setup, blocks, now, annex, last } = FlashImage::open(path, look)?;
        let image = Arc::new(image);
        let per_lun = setup.shape().blocks_per_lun() as usize;
        let pages_per_block = setup.geometry.pages_per_block;
        let restore = |lun: &mut Lun| {
            let first = lun.index as usize * per_lun;
            lun.restore(image.clone(), &blocks[first..first + per_lun], now, pages_per_block);
        };
        Ok((OpenChannel::assemble(setup, Some(image.clone()), restore), annex, last))
    }

    /// Whether the device is the flash of a conventional or FDP drive in an image.
    pub fn holds_drive(&self) -> bool {
        self.image.as_ref().is_some_and(|image| image.has_annex())
    }

    /// The number of the block and the page whose bytes lie at an offset of the image, and whether they are out of band; `None` of a
    /// device in memory, and where no page lies.
    pub fn image_place(&self, offset: u64) -> Option<(u64, u32, bool)> {
        self.image.as_ref()?.place(offset)
    }

    /// The image that the device is in, if it is in one.
    pub(crate) fn image(&self) -> Option<&Arc<FlashImage>> {
        self.image.as_ref()
    }

    fn assemble(
        setup: FlashSetup,
        image: Option<Arc<FlashImage>>,
        mut restore: impl FnMut(&mut Lun),
    ) -> OpenChannel {
        let shape = setup.shape();
        let lun = |index| {
            let mut lun = Lun::new(index, &setup, &shape);
            restore(&mut lun);
            CachePadded(Mutex::new(lun))
        };
        let page_move_ns = nanos_of(u64::from(shape.page_bytes), setup.geometry.timing.channel_bytes_per_s);
        let luns: Arc<[CachePadded<Mutex<Lun>>]> = (0..shape.luns()).map(lun).collect();
        OpenChannel {
            luns,
            channels: (0..shape.channels)
                .map(|_| CachePadded(Mutex::new(Timeline::new(page_move_ns))))
                .collect(),
            page_move_ns,
            setup,
            shape,
            plan: FaultPlan::default(),
            bit_errors: BitErrors::default(),
            power: Power::default(),
            refused: Mutex::default(),
            image,
        }
    }

    /// Makes everything programmed so far survive a crash of the host; in memory there is nothing to do. A power cut of
    /// the modelled device needs no sync: what was programmed is durable.
    pub fn sync(&self) -> Result<(), FlashError> {
        if let Some(image) = &self.image {
            image.sync(self.now().0)?;
        }
        Ok(())
    }

    /// Makes everything programmed so far survive a crash of the host, and leaves nothing in the file of the image of what was erased: an
    /// erase alone keeps the file's room, and the bytes in it, for what is programmed next. In memory there is nothing to do.
    pub fn forget_erased(&self) -> Result<(), FlashError> {
        let Some(image) = &self.image else { return Ok(()) };
        image.forget_erased(|number, behind| {
            let block = self.shape.block_at(number);
            // Held, so that the next page is not programmed meanwhile.
            let lun = self.lun(block.lun_addr()).lock();
            behind(lun.blocks[self.shape.block_in_lun(block) as usize].next)
        })?;
        self.sync()
    }

    /// Calls `observer` after each sync of the image, before anybody learns of it: so a test knows what a crash of the host leaves. In
    /// memory there are no syncs.
    pub fn after_syncs(&self, observer: impl Fn() + Send + Sync + 'static) {
        if let Some(image) = &self.image {
            image.after_syncs(Box::new(observer));
        }
    }

    /// Lets flash fail as planned from now on: programs and erases with their probabilities; pages that cannot be read
    /// in one life of their block; and factory bad blocks, among blocks that were never used. Spare blocks of the plan
    /// do not matter here: it is the user of the device who has to keep some.
    pub fn with_faults(mut self, plan: FaultPlan) -> OpenChannel {
        self.plan = plan;
        let mut bad = Vec::new();
        for lun in self.luns.iter() {
            let mut lun = lun.lock();
            let index = lun.index;
            for (at, block) in lun.blocks.iter_mut().enumerate() {
                let unused = block.erases == 0 && block.programmed == 0 && block.health == Health::Good;
                if unused && plan.fails(Operation::Factory, index, 0, at as u64) {
                    block.health = Health::FactoryBad;
                    bad.push(at as u32);
                }
            }
            bad.drain(..).for_each(|at| lun.publish(at));
        }
        self
    }

    /// Lets bits come back wrong from now on.
    pub fn with_bit_errors(mut self, plan: BitErrors) -> OpenChannel {
        self.bit_errors = plan;
        self
    }

    /// Asks for a failure.
    pub fn inject(&self, fault: Fault) -> Result<(), FlashError> {
        let block = match fault {
            Fault::Program(page) | Fault::Read(page) | Fault::Host(page, _) => {
                self.shape.check_page(page)?;
                page.block
            }
            Fault::Erase(block) => block,
        };
        self.shape.check_block(block)?;
        self.lun(block.lun_addr()).lock().faults.push(fault);
        Ok(())
    }

    /// What the device was made from.
    pub fn setup(&self) -> &FlashSetup {
        &self.setup
    }

    /// How many of everything the device has.
    pub fn shape(&self) -> FlashShape {
        self.shape
    }

    /// Reads out-of-band bytes and data of a page, or a part of its data. The LUN is busy until the bytes are moved.
    ///
    /// Fails with [`FlashError::Uncorrectable`] when the page is torn or has too many wrong bits; the buffers are then
    /// undefined.
    pub fn read(
        &self,
        issued: Nanos,
        page: PageAddr,
        offset: u32,
        data: &mut [u8],
        oob: &mut [u8],
    ) -> Result<Done, FlashError> {
        self.read_planes(issued, &mut [PageRead { page, offset, data, oob }])
    }

    /// Does all of a read but handing out the `bytes` of data: for simulations.
    pub fn touch(&self, issued: Nanos, page: PageAddr, bytes: u32) -> Result<Done, FlashError> {
        self.power.check()?;
        let read = || {
            self.shape.check_page(page)?;
            if bytes > self.shape.page_bytes {
                let (given, wanted) = (bytes as usize, self.shape.page_bytes as usize);
                return Err(FlashError::WrongLength { address: page, what: "data", given, wanted });
            }
            let mut lun = self.lun(page.block.lun_addr()).lock();
            let at = self.shape.block_in_lun(page.block);
            lun.check_read(page, at)?;
            let times = self.times(page.page);
            let began = lun.begins(issued);
            let done = self.move_bytes(page.block.channel, began + times.read_ns, u64::from(bytes));
            lun.finish(began, done);
            lun.counters.bytes_read += u64::from(bytes);
            self.sense(&mut lun, page, at, done)?;
            Ok(Done { began: Nanos(began), moved: Nanos(done), done: Nanos(done) })
        };
        self.counted(read())
    }

    /// Programs the next page of a block with data and out-of-band bytes.
    ///
    /// Fails with [`FlashError::ProgramFailed`] when the flash does; the block is bad then.
    pub fn program(
        &self,
        issued: Nanos,
        page: PageAddr,
        data: &[u8],
        oob: &[u8],
    ) -> Result<Done, FlashError> {
        self.program_planes(issued, &[PageProgram { page, data, oob }])
    }

    /// Erases a block.
    ///
    /// Fails with [`FlashError::EraseFailed`] when the flash does or the block has reached its endurance; it is bad
    /// then.
    pub fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        self.erase_planes(issued, &[block])
    }

    /// Reads one page in each of several planes of a LUN, with the same page number: one operation of the array.
    pub fn read_planes(&self, issued: Nanos, pages: &mut [PageRead]) -> Result<Done, FlashError> {
        self.power.check()?;
        self.counted(self.read_on_lun(issued, pages))
    }

    /// Programs one page in each of several planes of a LUN, with the same page number: one operation of the array.
    /// Refused as a whole when any of the pages is. When the program of one fails, those of the others are done. After an error
    /// of the host none of them is programmed.
    pub fn program_planes(&self, issued: Nanos, pages: &[PageProgram]) -> Result<Done, FlashError> {
        self.power.check()?;
        self.counted(self.program_on_lun(issued, pages, |power| power.begin()))
    }

    /// Erases one block in each of several planes of a LUN: one operation of the array. Refused as a whole when any of
    /// the blocks is. When the erase of one fails, those of the others are done.
    pub fn erase_planes(&self, issued: Nanos, blocks: &[BlockAddr]) -> Result<Done, FlashError> {
        self.power.check()?;
        self.counted(self.erase_on_lun(issued, blocks, |power| power.begin()))
    }

    /// The state of a block.
    pub fn block_info(&self, block: BlockAddr) -> Result<BlockInfo, FlashError> {
        self.counted(self.shape.check_block(block))?;
        let lun = self.lun(block.lun_addr()).lock();
        Ok(lun.blocks[self.shape.block_in_lun(block) as usize].info(self.shape.pages_per_block))
    }

    /// The states of all blocks of a LUN, plane by plane; their number in the list is
    /// [`FlashShape::block_in_lun`].
    pub fn lun_info(&self, lun: LunAddr) -> Result<Vec<BlockInfo>, FlashError> {
        self.counted(self.shape.check_block(lun.block(0, 0)))?;
        let lun = self.lun(lun).lock();
        Ok(lun.blocks.iter().map(|block| block.info(self.shape.pages_per_block)).collect())
    }

    /// Every bad block.
    pub fn bad_blocks(&self) -> Vec<BlockAddr> {
        let bad = |block: &BlockAddr| self.block_info(*block).is_ok_and(|info| info.state.is_bad());
        self.shape.all_blocks().filter(bad).collect()
    }

    /// When a LUN is free.
    pub fn lun_free_at(&self, lun: LunAddr) -> Result<Nanos, FlashError> {
        self.counted(self.shape.check_block(lun.block(0, 0)))?;
        Ok(Nanos(self.lun(lun).lock().busy))
    }

    /// When all LUNs are free: the end of everything issued so far.
    pub fn now(&self) -> Nanos {
        Nanos(self.luns.iter().map(|lun| lun.lock().busy).max().unwrap_or(0))
    }

    /// What was counted, over the whole device.
    pub fn counters(&self) -> FlashCounters {
        let mut total = FlashCounters::default();
        for lun in self.luns.iter() {
            total.add(&lun.lock().counters);
        }
        total.refused.clone_from(&self.refused.lock());
        total
    }

    /// What was counted on one LUN; refusals are not among it.
    pub fn lun_counters(&self, lun: LunAddr) -> Result<FlashCounters, FlashError> {
        self.counted(self.shape.check_block(lun.block(0, 0)))?;
        Ok(self.lun(lun).lock().counters.clone())
    }

    /// Checks the erase identity, while no command is under way. What was counted command by command has to agree with
    /// the state of the blocks:
    ///
    /// ```text
    ///  erases                  == sum of the blocks' erases
    ///  pages programmed        == pages standing in blocks + pages erased
    ///  erases x pages of block == pages erased + pages erased without having been programmed
    /// ```
    pub fn verify_identity(&self) -> Result<(), FlashError> {
        for lun in self.luns.iter() {
            lun.lock().verify(u64::from(self.shape.pages_per_block))?;
        }
        Ok(())
    }

    /// Lets `operations` more programs and erases pass (on several planes at once counts as one) and cuts power in the
    /// one after them. That one reports [`FlashError::PowerLost`], as does everything until
    /// [`power_on`](OpenChannel::power_on).
    ///
    /// What becomes of it is a function of the seed: it did not begin; or it was torn, which leaves a page that cannot
    /// be read (and takes the LSB page of a torn MSB page along) or a block whose erase is incomplete; or it was carried
    /// out and only the report of it was lost. Of a vector's later addresses the same is true, LUN by LUN.
    pub fn cut_after(&self, operations: u64, seed: u64) {
        self.power.cut_after(operations, seed);
    }

    /// Whether power is gone.
    pub fn is_cut(&self) -> bool {
        self.power.is_lost()
    }

    /// Power comes back, or a cut that was planned is called off.
    pub fn power_on(&self) {
        self.power.restore();
    }

    /// The device as it is now, once more, with power: the two share pages and go their own ways. Plans of failures go
    /// along, counts too; a planned power cut does not. Only of a device in memory.
    pub fn fork(&self) -> Result<OpenChannel, FlashError> {
        if let Some(image) = &self.image {
            let what = "only a device in memory can be forked; copy the file instead".to_string();
            return Err(DeviceError::BadImage { path: image.path().to_path_buf(), what }.into());
        }
        Ok(OpenChannel {
            setup: self.setup.clone(),
            shape: self.shape,
            page_move_ns: self.page_move_ns,
            luns: self.luns.iter().map(|lun| CachePadded(Mutex::new(lun.lock().clone()))).collect(),
            channels: self.channels.iter().map(|path| CachePadded(Mutex::new(path.lock().clone()))).collect(),
            plan: self.plan,
            bit_errors: self.bit_errors,
            power: Power::default(),
            refused: Mutex::new(self.refused.lock().clone()),
            image: None,
        })
    }

    /// Erases several blocks by `erase`, with one sync of the image for all of them.
    pub fn erasing<T>(&self, blocks: &[BlockAddr], erase: impl FnOnce() -> T) -> T {
        self.announce_erases(blocks);
        let done = erase();
        self.withdraw_erases(blocks);
        done
    }

    /// Says that blocks are about to be erased, so that their erases need no sync each. Those that are not erased then are to be
    /// [withdrawn](Self::withdraw_erases).
    pub(crate) fn announce_erases(&self, blocks: &[BlockAddr]) {
        if self.image.is_none() || blocks.len() < 2 {
            return;
        }
        let announce = |lun: &mut Lun, at| lun.announce_erase(at);
        if self.with_each(blocks, announce).fold(false, |any, to_sync| any | to_sync)
            && let Err(error) = self.prepare_erase()
        {
            // The first erase syncs again, and returns the error if there still is one.
            tracing::debug!(%error, "the sync before erases failed");
        }
    }

    pub(crate) fn withdraw_erases(&self, blocks: &[BlockAddr]) {
        if self.image.is_some() && blocks.len() > 1 {
            self.with_each(blocks, |lun, at| lun.withdraw_erase(at)).for_each(drop);
        }
    }

    /// Goes over blocks that are there, each under its LUN's lock.
    fn with_each<'a, T>(
        &'a self,
        blocks: &'a [BlockAddr],
        act: impl Fn(&mut Lun, u32) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        let known = blocks.iter().filter(|block| self.shape.check_block(**block).is_ok());
        known.map(move |block| act(&mut self.lun(block.lun_addr()).lock(), self.shape.block_in_lun(*block)))
    }

    /// Makes what was programmed anywhere durable, before a block is erased.
    pub(super) fn prepare_erase(&self) -> Result<(), DeviceError> {
        self.image.as_ref().map_or(Ok(()), |image| image.prepare_erase())
    }

    /// Refuses commands that change an image which is only looked at.
    pub(super) fn check_writable(&self) -> Result<(), DeviceError> {
        self.image.as_ref().map_or(Ok(()), |image| image.check_writable())
    }

    pub(super) fn lun(&self, lun: LunAddr) -> &Mutex<Lun> {
        &self.luns[self.shape.lun_index(lun) as usize]
    }

    pub(super) fn times(&self, page: u32) -> super::setup::PageTimes {
        match self.setup.pairing {
            Some(pairing) => pairing.times(page),
            None => {
                let timing = &self.setup.geometry.timing;
                super::setup::PageTimes { read_ns: timing.page_read_ns, program_ns: timing.program_ns }
            }
        }
    }

    /// Takes the channel for so many bytes, from `ready` on; returns when they are moved.
    pub(super) fn move_bytes(&self, channel: u32, ready: u64, bytes: u64) -> u64 {
        let duration = match bytes {
            bytes if bytes == u64::from(self.shape.page_bytes) => self.page_move_ns,
            bytes => nanos_of(bytes, self.setup.geometry.timing.channel_bytes_per_s),
        };
        if duration == 0 {
            return ready;
        }
        self.channels[channel as usize].lock().transfer(ready, duration)
    }

    /// Counts a refusal.
    #[inline]
    pub(super) fn counted<T>(&self, result: Result<T, FlashError>) -> Result<T, FlashError> {
        if let Err(error) = &result {
            self.count_refusal(error);
        }
        result
    }

    #[cold]
    fn count_refusal(&self, error: &FlashError) {
        if let Some(rule) = error.refusal() {
            *self.refused.lock().entry(rule).or_default() += 1;
            tracing::debug!(%error, "refused");
        }
    }
}

impl Drop for OpenChannel {
    fn drop(&mut self) {
        let Some(image) = self.image.as_ref().filter(|image| image.is_open()) else { return };
        for lun in self.luns.iter() {
            let mut lun = lun.lock();
            // Reads are counted in memory and stored only now.
            for at in 0..lun.blocks.len() as u32 {
                if lun.blocks[at as usize].reads > 0 {
                    lun.publish(at);
                }
            }
        }
        let closed =
            image.give_room_back().and_then(|()| image.sync(self.now().0)).and_then(|()| image.end_session());
        if let Err(error) = closed {
            tracing::error!(%error, "the image was not closed cleanly");
        }
    }
}
