//! Work as a chain of linked requests of io_uring: what the kernel has of the kind. One submission, and no call between the steps.

use super::work::BLOCK;
use io_uring::squeue::{Entry, Flags};
use io_uring::{IoUring, opcode, types};
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// A ring with one place for a file that a chain opens.
pub struct Linked {
    ring: IoUring,
    dir: File,
    file: CString,
    new: CString,
    named: CString,
    block: Box<[u8; BLOCK]>,
}

/// The place of the file.
const PLACE: u32 = 0;

impl Linked {
    /// For the work in the directory `compound` of `dir`.
    pub fn new(dir: &Path) -> io::Result<Linked> {
        let dir = dir.join("compound");
        let ring = IoUring::new(8)?;
        ring.submitter().register_files_sparse(1)?;
        let path = |name: &str| CString::new(dir.join(name).as_os_str().as_bytes()).map_err(io::Error::other);
        let (file, new, named) = (path("file")?, path("config.new")?, path("config")?);
        Ok(Linked { ring, dir: File::open(&dir)?, file, new, named, block: Box::new([7; BLOCK]) })
    }

    fn place() -> io::Result<types::DestinationSlot> {
        types::DestinationSlot::try_from_slot_target(PLACE).map_err(|_| io::Error::other("no such place"))
    }

    /// Runs a chain, whose requests fail with the first that does.
    fn run<const N: usize>(&mut self, chain: [Entry; N]) -> io::Result<()> {
        for (at, entry) in chain.into_iter().enumerate() {
            let entry = if at + 1 < N { entry.flags(Flags::IO_LINK) } else { entry };
            // SAFETY: what the requests name are fields of `self`, which live until all have ended: below.
            unsafe { self.ring.submission().push(&entry) }.map_err(io::Error::other)?;
        }
        self.ring.submit_and_wait(N)?;
        let mut first = Ok(());
        for done in self.ring.completion() {
            if done.result() < 0 && first.is_ok() {
                first = Err(io::Error::from_raw_os_error(-done.result()));
            }
        }
        first
    }

    /// Opens, reads a block and closes.
    pub fn open_read_close(&mut self) -> io::Result<()> {
        let at = types::Fd(libc::AT_FDCWD);
        let open = opcode::OpenAt::new(at, self.file.as_ptr()).file_index(Some(Self::place()?));
        let read = opcode::Read::new(types::Fixed(PLACE), self.block.as_mut_ptr(), BLOCK as u32);
        let close = opcode::Close::new(types::Fixed(PLACE));
        self.run([open.build(), read.build(), close.build()])
    }

    /// Makes a file with a block, syncs it, gives it the name of another one, and syncs the directory.
    pub fn replace_durably(&mut self) -> io::Result<()> {
        let at = types::Fd(libc::AT_FDCWD);
        let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
        let open = opcode::OpenAt::new(at, self.new.as_ptr()).flags(flags).mode(0o644);
        let write = opcode::Write::new(types::Fixed(PLACE), self.block.as_ptr(), BLOCK as u32);
        let rename = opcode::RenameAt::new(at, self.new.as_ptr(), at, self.named.as_ptr());
        self.run([
            open.file_index(Some(Self::place()?)).build(),
            write.build(),
            opcode::Fsync::new(types::Fixed(PLACE)).build(),
            opcode::Close::new(types::Fixed(PLACE)).build(),
            rename.build(),
            opcode::Fsync::new(types::Fd(self.dir.as_raw_fd())).build(),
        ])
    }
}
