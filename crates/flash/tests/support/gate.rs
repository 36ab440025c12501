//! A device whose erases stop at a gate until it is opened.

use parking_lot::{Condvar, Mutex};
use std::fmt;
use std::sync::Arc;
use weft_core::Nanos;
use weft_device::nand::{BlockAddr, Done, FlashError, LunAddr, OpenChannel, PageAddr, PageRead};
use weft_flash::Backend;

#[derive(Default)]
struct State {
    all: bool,
    lun: Option<LunAddr>,
    standing: u32,
    erased: Option<LunAddr>,
}

pub struct Gate {
    device: OpenChannel,
    state: Mutex<State>,
    changed: Condvar,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Gate")
    }
}

impl Gate {
    pub fn new(device: OpenChannel) -> Arc<Gate> {
        Arc::new(Gate { device, state: Mutex::default(), changed: Condvar::new() })
    }

    /// Erases of this LUN stop from now on.
    pub fn shut(&self, lun: LunAddr) {
        self.state.lock().lun = Some(lun);
    }

    /// All erases stop from now on.
    pub fn shut_all(&self) {
        self.state.lock().all = true;
    }

    pub fn open(&self) {
        let mut state = self.state.lock();
        (state.all, state.lun) = (false, None);
        self.changed.notify_all();
    }

    /// Waits until an erase stands at the gate.
    pub fn wait_for_one(&self) {
        let mut state = self.state.lock();
        while state.standing == 0 {
            self.changed.wait(&mut state);
        }
    }

    /// The LUN that was erased last meanwhile.
    pub fn lun_of_erase(&self, erase: impl FnOnce()) -> LunAddr {
        erase();
        self.state.lock().erased.unwrap()
    }
}

impl Backend for Gate {
    as_the_device!();

    fn read(&self, issued: Nanos, read: &mut PageRead) -> Result<Done, FlashError> {
        self.device.read_planes(issued, std::slice::from_mut(read))
    }

    fn program(&self, issued: Nanos, page: PageAddr, data: &[u8], oob: &[u8]) -> Result<Done, FlashError> {
        self.device.program(issued, page, data, oob)
    }

    fn erase(&self, issued: Nanos, block: BlockAddr) -> Result<Done, FlashError> {
        {
            let mut state = self.state.lock();
            state.erased = Some(block.lun_addr());
            while state.all || state.lun == Some(block.lun_addr()) {
                state.standing += 1;
                self.changed.notify_all();
                self.changed.wait(&mut state);
                state.standing -= 1;
            }
        }
        self.device.erase(issued, block)
    }

    fn sync(&self) -> Result<(), FlashError> {
        self.device.sync()
    }
}
