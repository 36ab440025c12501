//! Reports changes of user, groups and capabilities of threads to the server.
//!
//! In most processes all threads are one user, and the server takes a request for that user's. Where threads differ (`setfsuid`,
//! system calls by number), each tells who it is and names itself in its requests.

use crate::client::Client;
use crate::connect::tell_identity;
use crate::sys::{self, Errno};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering::*};

/// So often a thread tells who it is when the server does not know it.
pub(crate) const IDENTITY_TRIES: u32 = 8;

thread_local! {
    // Constant and without a destructor: touching it allocates nothing.
    /// The number that `Client::identities` had when this thread told who it is.
    static TOLD: Cell<u64> = const { Cell::new(0) };
}

/// Numbers for `Client::identities`; none is used twice, whatever the client.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Whose identity has changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Changed {
    /// That of all threads, in the same way.
    Process,
    /// The calling thread's.
    Thread,
}

impl Client {
    /// Tells the server of a new identity (users, groups, capabilities) and waits until it goes by it.
    ///
    /// The memory of leases is given up once no thread of the process is or can become a user who may have it. When the server
    /// cannot tell who the process is, the connection ends: better `EIO` than somebody else's rights.
    pub fn renew_identity(&self, changed: Changed) -> Result<(), Errno> {
        let only_thread = sys::thread_count() == Some(1);
        if changed == Changed::Thread && !only_thread {
            if self.identities.load(Relaxed) == 0 {
                self.identities.store(NEXT.fetch_add(1, Relaxed), SeqCst);
            }
            self.forget_told();
            return self.thread_to_name().map(drop);
        }
        self.tell(false)?;
        if only_thread {
            self.identities.store(0, SeqCst);
        } else if self.identities.load(Relaxed) != 0 {
            // What was told before is the past.
            self.identities.store(NEXT.fetch_add(1, Relaxed), SeqCst);
        }
        Ok(())
    }

    /// What a request says of its thread: nothing while all threads are one user.
    #[inline]
    pub(crate) fn thread_to_name(&self) -> Result<u32, Errno> {
        match self.identities.load(Relaxed) {
            0 => Ok(0),
            number => self.thread_that_told(number),
        }
    }

    #[cold]
    fn thread_that_told(&self, number: u64) -> Result<u32, Errno> {
        if TOLD.get() != number {
            self.tell(true)?;
            TOLD.set(number);
        }
        Ok(sys::gettid())
    }

    /// Before its next request the thread tells who it is.
    pub(crate) fn forget_told(&self) {
        TOLD.set(0);
    }

    fn tell(&self, alone: bool) -> Result<(), Errno> {
        let told = tell_identity(self, alone);
        if told != Ok(true) {
            self.give_leases_up();
        }
        if told.is_err() {
            sys::shut_down(self.socket());
        }
        told.map(drop)
    }
}
