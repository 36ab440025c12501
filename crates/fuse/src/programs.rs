//! Programs of several operations that come by an `ioctl` on an open file: their pieces, those that wait, and what all of it may take.
//!
//! ```text
//!  PUT, PUT ... --> pieces of the open file --+
//!  RUN ---------------------------------------+--> queue --> workers --> the first piece of the answer
//!  GET <-- what did not fit, with the open file <---------------'
//! ```
//!
//! A worker runs a program, because the server then has the kernel forget what the program has changed, and the kernel may wait for
//! answers to other requests. What a user's programs take counts until it is given back: pieces with the end of the open file at the
//! latest, a program that waits or runs with its answer.

use crate::channel::Errno;
use parking_lot::{Condvar, Mutex};
use rustc_hash::FxHashMap;
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use weft_core::{Ino, refuse};
use weft_server::ops::Caller;
use weft_vfs::compound::PROGRAM_BYTES_MAX;
use weft_vfs::compound::ioctl::{ANSWER_BYTES_MAX, Head};

/// Programs that run at the same time.
pub const WORKERS: usize = 4;
/// Programs that wait for a worker; of these, a user's.
const WAITING_MAX: usize = 64;
const WAITING_OF_USER_MAX: usize = 16;
/// Bytes of programs and answers that the server holds for a user, and for all.
const USER_BYTES_MAX: usize = 64 << 20;
const BYTES_MAX: usize = 256 << 20;

/// A program that waits, and who asks for it.
pub struct Job {
    /// Number of the request.
    pub unique: u64,
    /// The open file.
    pub handle: u64,
    /// Its inode.
    pub ino: Ino,
    /// By whose rights it runs.
    pub caller: Caller,
    /// Permission bits that what it makes does not get.
    pub umask: u32,
    /// The thread that waits for it.
    pub thread: u32,
    /// The open file as the caller sees it, by the mount of its own.
    pub descriptor: Option<OwnedFd>,
    /// The program, in bytes.
    pub program: Vec<u8>,
    /// Bytes of the answer for which the caller has room.
    pub room: usize,
}

impl Job {
    fn uid(&self) -> u32 {
        self.caller.effective.uid
    }
}

/// What an open file holds between two commands. Both are empty otherwise.
#[derive(Default)]
struct Pieces {
    /// Of whom.
    uid: u32,
    program: Vec<u8>,
    answer: Vec<u8>,
    /// Number of the answer.
    number: u64,
}

/// What the programs of users take, in bytes.
#[derive(Default)]
struct Taken {
    by_user: FxHashMap<u32, usize>,
    by_all: usize,
}

impl Taken {
    fn take(&mut self, uid: u32, bytes: usize) -> Result<(), Errno> {
        let of_user = self.by_user.get(&uid).copied().unwrap_or(0);
        refuse(bytes > USER_BYTES_MAX - of_user, Errno(libc::EDQUOT))?;
        refuse(bytes > BYTES_MAX - self.by_all, Errno(libc::ENOMEM))?;
        if bytes > 0 {
            self.by_user.insert(uid, of_user + bytes);
            self.by_all += bytes;
        }
        Ok(())
    }

    fn give_back(&mut self, uid: u32, bytes: usize) {
        self.by_all -= bytes;
        if let Some(of_user) = self.by_user.get_mut(&uid) {
            *of_user -= bytes;
            if *of_user == 0 {
                self.by_user.remove(&uid);
            }
        }
    }
}

#[derive(Default)]
struct State {
    pieces: FxHashMap<u64, Pieces>,
    queue: VecDeque<Job>,
    taken: Taken,
    /// Number of the last answer that did not fit.
    answers: u64,
    has_ended: bool,
}

impl State {
    /// Forgets what an open file holds.
    fn clear(&mut self, handle: u64) {
        if let Some(pieces) = self.pieces.remove(&handle) {
            self.taken.give_back(pieces.uid, pieces.program.len() + pieces.answer.len());
        }
    }
}

/// The programs of a mount.
#[derive(Default)]
pub struct Programs {
    state: Mutex<State>,
    /// A program waits, or the mount has ended.
    comes: Condvar,
}

impl Programs {
    /// Adds a piece to the program of an open file; at offset 0 another program begins. `is_open` says whether the file still is.
    pub fn put(
        &self,
        handle: u64,
        uid: u32,
        offset: usize,
        piece: &[u8],
        is_open: impl FnOnce() -> bool,
    ) -> Result<(), Errno> {
        let state = &mut *self.state.lock();
        if offset == 0 {
            state.clear(handle);
        } else {
            let pieces = state.pieces.get(&handle).ok_or(Errno(libc::ENODATA))?;
            refuse(pieces.uid != uid, Errno(libc::EACCES))?;
            refuse(pieces.program.len() != offset, Errno(libc::EINVAL))?;
        }
        refuse(piece.len() > PROGRAM_BYTES_MAX - offset, Errno(libc::E2BIG))?;
        // What is added after the end of the file stays.
        refuse(!is_open(), Errno(libc::EBADF))?;
        state.taken.take(uid, piece.len())?;
        let pieces = state.pieces.entry(handle).or_default();
        pieces.uid = uid;
        pieces.program.extend_from_slice(piece);
        Ok(())
    }

    /// Puts a program in the queue: what was put before, so many bytes, with this last piece behind it, which is all that it has so far.
    pub fn submit(&self, mut job: Job, put_before: usize) -> Result<(), Errno> {
        let (state, uid) = (&mut *self.state.lock(), job.uid());
        refuse(state.has_ended, Errno(libc::ENOTCONN))?;
        let of_user = state.queue.iter().filter(|other| other.uid() == uid).count();
        let is_full = state.queue.len() >= WAITING_MAX || of_user >= WAITING_OF_USER_MAX;
        refuse(is_full, Errno(libc::EAGAIN))?;
        if put_before > 0 {
            let pieces = state.pieces.get_mut(&job.handle).ok_or(Errno(libc::ENODATA))?;
            refuse(pieces.uid != uid, Errno(libc::EACCES))?;
            refuse(pieces.program.len() != put_before, Errno(libc::ENODATA))?;
            refuse(job.program.len() > PROGRAM_BYTES_MAX - put_before, Errno(libc::E2BIG))?;
            state.taken.take(uid, job.program.len())?;
            let last = std::mem::replace(&mut job.program, std::mem::take(&mut pieces.program));
            job.program.extend_from_slice(&last);
        } else {
            state.taken.take(uid, job.program.len())?;
        }
        state.clear(job.handle);
        state.queue.push_back(job);
        self.comes.notify_one();
        Ok(())
    }

    /// Waits for a program to run; `None` when the mount has ended.
    pub fn next(&self) -> Option<Job> {
        let mut state = self.state.lock();
        while !state.has_ended {
            if let Some(job) = state.queue.pop_front() {
                return Some(job);
            }
            self.comes.wait(&mut state);
        }
        None
    }

    /// Keeps room for the answer of a program that is about to run.
    pub fn begin(&self, job: &Job) -> Result<(), Errno> {
        self.state.lock().taken.take(job.uid(), ANSWER_BYTES_MAX)
    }

    /// A program that has begun has this answer: its first piece. The rest stays with the open file, if that is still open.
    pub fn end(&self, job: &Job, answer: Vec<u8>, is_open: impl FnOnce() -> bool) -> (Head, Vec<u8>) {
        let (state, uid) = (&mut *self.state.lock(), job.uid());
        state.taken.give_back(uid, ANSWER_BYTES_MAX);
        let whole = answer.len();
        let mut head = Head { len: whole.min(job.room) as u32, whole: whole as u32, ..Head::default() };
        if whole <= job.room {
            return (head, answer);
        }
        let first = answer[..job.room].to_vec();
        state.clear(job.handle);
        // Cannot fail: as much was kept for it.
        if is_open() && state.taken.take(uid, whole).is_ok() {
            state.answers += 1;
            head.answer = state.answers;
            let pieces = Pieces { uid, program: Vec::new(), answer, number: head.answer };
            state.pieces.insert(job.handle, pieces);
        }
        (head, first)
    }

    /// Gives back what a program took that waited.
    pub fn settle(&self, job: Job) {
        self.state.lock().taken.give_back(job.uid(), job.program.len());
    }

    /// Another piece of an answer. With its last one, the answer goes.
    pub fn get(
        &self,
        handle: u64,
        uid: u32,
        number: u64,
        offset: usize,
        room: usize,
    ) -> Result<(Head, Vec<u8>), Errno> {
        let state = &mut *self.state.lock();
        let pieces = state.pieces.get(&handle).filter(|pieces| !pieces.answer.is_empty());
        let pieces = pieces.ok_or(Errno(libc::ENODATA))?;
        refuse(pieces.uid != uid, Errno(libc::EACCES))?;
        refuse(pieces.number != number, Errno(libc::ESTALE))?;
        let whole = pieces.answer.len();
        let rest = pieces.answer.get(offset..).ok_or(Errno(libc::ERANGE))?;
        let piece = rest[..rest.len().min(room)].to_vec();
        let (len, offset) = (piece.len() as u32, offset as u32);
        if piece.len() == rest.len() {
            state.clear(handle);
        }
        Ok((Head { answer: number, offset, len, whole: whole as u32, ..Head::default() }, piece))
    }

    /// Nobody waits any more for the program of this request, if it has not begun. Whether that is so.
    pub fn withdraw(&self, unique: u64) -> bool {
        let state = &mut *self.state.lock();
        let Some(at) = state.queue.iter().position(|job| job.unique == unique) else { return false };
        if let Some(job) = state.queue.remove(at) {
            state.taken.give_back(job.uid(), job.program.len());
        }
        true
    }

    /// An open file is closed.
    pub fn release(&self, handle: u64) {
        self.state.lock().clear(handle);
    }

    /// The mount has ended.
    pub fn stop(&self) {
        let mut state = self.state.lock();
        state.has_ended = true;
        while let Some(job) = state.queue.pop_front() {
            state.taken.give_back(job.uid(), job.program.len());
        }
        self.comes.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Credentials;

    const UID: u32 = 1000;
    const OTHER: u32 = 1001;

    fn job(unique: u64, uid: u32, program: &[u8]) -> Job {
        Job {
            unique,
            handle: 7,
            ino: Ino(2),
            caller: Credentials::new(uid, uid, Vec::new()).into(),
            umask: 0,
            thread: 1,
            descriptor: None,
            program: program.to_vec(),
            room: 100,
        }
    }

    fn takes_nothing(programs: &Programs) -> bool {
        let state = programs.state.lock();
        state.taken.by_all == 0 && state.taken.by_user.is_empty() && state.pieces.is_empty()
    }

    fn put(programs: &Programs, uid: u32, offset: usize, piece: &[u8]) -> Result<(), i32> {
        programs.put(7, uid, offset, piece, || true).map_err(|Errno(errno)| errno)
    }

    fn submit(programs: &Programs, job: Job, before: usize) -> Result<(), i32> {
        programs.submit(job, before).map_err(|Errno(errno)| errno)
    }

    #[test]
    fn pieces_are_put_in_order_by_one_user_and_run_once() {
        let programs = Programs::default();
        assert_eq!(submit(&programs, job(1, UID, b"c"), 2), Err(libc::ENODATA), "nothing was put");
        assert_eq!(put(&programs, UID, 2, b"ab"), Err(libc::ENODATA));
        assert_eq!(put(&programs, UID, 0, b"old"), Ok(()));
        assert_eq!(put(&programs, UID, 0, b"ab"), Ok(()), "another program begins");
        assert_eq!(put(&programs, UID, 1, b"x"), Err(libc::EINVAL));
        assert_eq!(put(&programs, OTHER, 2, b"x"), Err(libc::EACCES));
        assert_eq!(put(&programs, UID, 2, b"cd"), Ok(()));
        assert_eq!(submit(&programs, job(1, UID, b"e"), 2), Err(libc::ENODATA));
        assert_eq!(submit(&programs, job(1, OTHER, b"e"), 4), Err(libc::EACCES));
        assert_eq!(submit(&programs, job(1, UID, b"e"), 4), Ok(()));
        let next = programs.next().unwrap();
        assert_eq!(next.program, b"abcde");
        assert_eq!(submit(&programs, job(2, UID, b"e"), 4), Err(libc::ENODATA), "it is run once");
        programs.settle(next);
        assert!(takes_nothing(&programs));
    }

    #[test]
    fn an_answer_that_does_not_fit_is_got_in_pieces_by_who_ran_the_program() {
        let programs = Programs::default();
        let job = job(1, UID, b"");
        let answer: Vec<u8> = (0..250).collect();
        let run = |answer: &[u8], is_open: bool| {
            programs.begin(&job).unwrap();
            programs.end(&job, answer.to_vec(), || is_open)
        };
        assert_eq!(run(&answer[..100], true).0, Head { len: 100, whole: 100, ..Head::default() });
        assert!(takes_nothing(&programs));
        let (head, first) = run(&answer, true);
        assert_eq!((head.len, head.whole, &first[..]), (100, 250, &answer[..100]));
        let get = |uid, number, offset, room| {
            programs.get(7, uid, number, offset, room).map_err(|Errno(errno)| errno)
        };
        assert_eq!(get(OTHER, head.answer, 100, 100), Err(libc::EACCES));
        assert_eq!(get(UID, head.answer + 1, 100, 100), Err(libc::ESTALE));
        assert_eq!(get(UID, head.answer, 251, 100), Err(libc::ERANGE));
        assert_eq!(get(UID, head.answer, 100, 100).unwrap().1, &answer[100..200]);
        let (last, piece) = get(UID, head.answer, 200, 100).unwrap();
        assert_eq!((last.offset, last.len, &piece[..]), (200, 50, &answer[200..]));
        assert_eq!(get(UID, head.answer, 0, 100), Err(libc::ENODATA), "it went with its last piece");
        assert!(takes_nothing(&programs));
        // An answer goes with the file, and with the next program; of a file that is closed, nothing is kept.
        for goes in
            [&|| programs.release(7), &|| put(&programs, UID, 0, b"").unwrap() as ()] as [&dyn Fn(); 2]
        {
            let (head, _) = run(&answer, true);
            goes();
            assert_eq!(get(UID, head.answer, 0, 100), Err(libc::ENODATA));
            programs.release(7);
            assert!(takes_nothing(&programs));
        }
        let (head, _) = run(&answer, false);
        assert_eq!(head.answer, 0);
        assert!(takes_nothing(&programs));
        assert_eq!(programs.put(7, UID, 0, b"piece", || false), Err(Errno(libc::EBADF)));
        assert!(takes_nothing(&programs));
    }

    #[test]
    fn what_a_user_may_take_is_limited_and_given_back() {
        let programs = Programs::default();
        let piece = vec![0; 1 << 20];
        let fill =
            |handle: u64, uid| (0..5).try_for_each(|at| programs.put(handle, uid, at << 20, &piece, || true));
        assert_eq!(fill(1, UID), Ok(()));
        let beyond = programs.put(1, UID, PROGRAM_BYTES_MAX, b"x", || true);
        assert_eq!(beyond, Err(Errno(libc::E2BIG)));
        assert_eq!(programs.put(1, UID, usize::MAX, b"x", || true), Err(Errno(libc::EINVAL)));
        assert_eq!((2..20).find_map(|handle| fill(handle, UID).err()), Some(Errno(libc::EDQUOT)));
        assert_eq!(programs.begin(&job(1, UID, b"")), Err(Errno(libc::EDQUOT)));
        assert_eq!(fill(100, OTHER), Ok(()), "others are not affected");
        let others = (2000..2010).flat_map(|uid| (0..12).map(move |file| (u64::from(uid) << 8 | file, uid)));
        assert_eq!(
            others.clone().find_map(|(handle, uid)| fill(handle, uid).err()),
            Some(Errno(libc::ENOMEM))
        );
        let mine = (1..20).chain([100]).chain(others.map(|(handle, _)| handle));
        mine.for_each(|handle| programs.release(handle));
        assert!(takes_nothing(&programs));
    }

    #[test]
    fn programs_that_wait_are_limited_and_can_be_withdrawn() {
        let programs = Programs::default();
        for unique in 0..WAITING_OF_USER_MAX as u64 {
            assert_eq!(submit(&programs, job(unique, UID, b"p"), 0), Ok(()));
        }
        assert_eq!(submit(&programs, job(99, UID, b"p"), 0), Err(libc::EAGAIN));
        assert!(programs.withdraw(3) && !programs.withdraw(3) && !programs.withdraw(99));
        assert_eq!(submit(&programs, job(99, UID, b"p"), 0), Ok(()));
        let many = (0..WAITING_MAX as u64).map(|at| job(200 + at, 5000 + at as u32, b"p"));
        let full = many.map(|job| submit(&programs, job, 0)).filter(Result::is_err).count();
        assert_eq!(full, WAITING_OF_USER_MAX);
        let first = programs.next().unwrap();
        assert_eq!(first.unique, 0);
        programs.settle(first);
        programs.stop();
        assert!(programs.next().is_none() && takes_nothing(&programs));
        assert_eq!(submit(&programs, job(1, UID, b"p"), 0), Err(libc::ENOTCONN));
    }
}
