//! Going on after a server that has ended (`-o restart`).

use super::{Front, SETTLED_EVERY, caller, forgets, warn_of};
use crate::abi::{InvalInodeOut, can, notice};
use crate::channel::Channel;
use crate::handles::Restored;
use parking_lot::MutexGuard;
use std::io;
use std::sync::atomic::Ordering::*;
use weft_client::proto::ITSELF;
use weft_core::{Capabilities, Ino};
use weft_server::ops::{At, Base, Session};

impl Front {
    /// Whether another server can go on with the mount.
    pub fn can_resume(&self) -> bool {
        let needed = can::HAS_RESEND | can::INC_EPOCH;
        self.handles.agreed().is_some_and(|agreed| agreed & needed == needed)
    }

    /// Whether the mount had another server before.
    pub fn is_resumed(&self) -> bool {
        self.handles.agreed().is_some()
    }

    /// Goes on after another server: opens what was open by way of the mount, has the kernel forget what it has kept, and give again
    /// the requests that the last server had read.
    ///
    /// Returns the inodes of which the kernel may keep data that is lost.
    pub fn resume(&self, channel: &Channel) -> Vec<Ino> {
        self.agree(self.handles.agreed().unwrap_or(0));
        self.volume.set_device(self.handles.device());
        let caller = caller(0, 0, Capabilities::ALL);
        let session = Session::new(&self.volume, &self.process, &caller);
        let Restored { inodes, lost, changed } = self.handles.restore(|ino, flags| {
            let at = At { dir: Base::Inode(ino, b""), path: ITSELF };
            let opened = session.open(at, flags, 0, self.openers.of(std::process::id()));
            opened.ok().map(|(open, _)| open.file)
        });
        let lost = lost + self.locks.restore(&session, &self.handles);
        let unsure = changed.len();
        tracing::warn!(inodes = inodes.len(), lost, unsure, "open files were found again");
        warn_of(channel.tell(notice::INC_EPOCH));
        // The kernel knows them, and has looked up none of them by a name of this server's. The root it never looks up.
        forgets(channel, Ino::ROOT);
        for ino in inodes.into_iter().filter(|ino| *ino != Ino::ROOT) {
            self.nodes.meet(ino, Ino::ROOT, b"");
            forgets(channel, ino);
        }
        for ino in &changed {
            forgets(channel, *ino);
        }
        warn_of(channel.tell(notice::RESEND));
        if self.writes_back.load(Relaxed) { changed } else { Vec::new() }
    }

    /// The kernel reads the data of these inodes anew, after it has written what it has to write of them: not to be called by who
    /// answers requests.
    pub fn forget_data(&self, inodes: &[Ino]) {
        let Some(channel) = self.channel.get() else { return };
        for ino in inodes {
            let told = channel.notify(notice::INVAL_INODE, &InvalInodeOut { ino: ino.0, offset: 0, len: 0 });
            if told.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::NotFound) {
                warn_of(told);
            }
        }
    }

    /// Whether another server may go on with the mount.
    pub fn outlives(&self) -> bool {
        self.handles.outlives()
    }

    /// Makes everything durable every few seconds, until the mount ends, so that another server knows what may be lost.
    pub fn settle(&self) {
        let caller = caller(0, 0, Capabilities::ALL);
        let session = Session::new(&self.volume, &self.process, &caller);
        let mut seen = 0;
        let mut ended = self.ended.lock();
        while !*ended {
            MutexGuard::unlocked(&mut ended, || {
                seen = self.handles.settle_all(seen, || Ok(session.sync(None)?));
            });
            if !*ended {
                self.ends.wait_for(&mut ended, SETTLED_EVERY);
            }
        }
    }
}
