//! Which directories programs walk through, by what they ask of the server.
//!
//! Who asks for a second name in a directory usually asks for more, and who opens a second directory of one opens the others. What is
//! told then, ahead of the questions, needs no calls. How much that is doubles with the questions, so a program that asks for
//! few names pays for few, and each directory has a bound.

use parking_lot::Mutex;
use weft_core::Ino;

/// Directories that are remembered; another one takes the place of one before.
const DIRS: usize = 256;

/// What has been asked in some directories, and how far it was told ahead.
#[derive(Debug)]
pub struct Readahead {
    /// For each question, so many entries are told ahead.
    per_question: u32,
    /// Of one directory, at most.
    most: u32,
    seen: Mutex<[Seen; DIRS]>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    dir: Ino,
    questions: u32,
    /// Behind the last entry that was told.
    cookie: u64,
    told: u32,
}

impl Seen {
    /// What has been asked in a directory; nothing, if it is not remembered.
    fn of(all: &mut [Seen; DIRS], dir: Ino) -> &mut Seen {
        let seen = &mut all[place(dir)];
        if seen.dir != dir {
            *seen = Seen { dir, ..Seen::default() };
        }
        seen
    }
}

fn place(dir: Ino) -> usize {
    dir.0 as usize % DIRS
}

/// A part of a directory to tell ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// Where it begins.
    pub cookie: u64,
    /// Entries, at most.
    pub entries: u32,
}

impl Readahead {
    /// Tells so many entries ahead for each question, and so many of a directory at most.
    pub fn new(per_question: u32, most: u32) -> Readahead {
        Readahead { per_question, most, seen: Mutex::new([Seen::default(); DIRS]) }
    }

    /// One more question about an entry of a directory; what to tell ahead now, if anything. Whoever has asked in two
    /// directories of the one `above` walks through all that are there.
    pub fn asked(&self, dir: Ino, above: Ino) -> Option<Ahead> {
        let mut seen = self.seen.lock();
        if seen[place(dir)].dir != dir {
            let walk = Seen::of(&mut seen, above);
            walk.questions = walk.questions.saturating_add(1);
            let questions = u32::from(walk.questions > 2);
            *Seen::of(&mut seen, dir) = Seen { dir, questions, ..Seen::default() };
        }
        let seen = Seen::of(&mut seen, dir);
        seen.questions = seen.questions.saturating_add(1);
        let is_due = seen.questions > 1 && seen.questions.is_power_of_two() && seen.told < self.most;
        let entries =
            seen.questions.saturating_mul(self.per_question).min(self.most.saturating_sub(seen.told));
        is_due.then_some(Ahead { cookie: seen.cookie, entries })
    }

    /// So many entries were told, up to this place; `None`: up to the end.
    pub fn told(&self, dir: Ino, entries: u32, cookie: Option<u64>) {
        let mut seen = self.seen.lock();
        let seen = &mut seen[place(dir)];
        if seen.dir == dir {
            seen.cookie = cookie.unwrap_or(seen.cookie);
            seen.told = if cookie.is_some() { seen.told.saturating_add(entries) } else { self.most };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOP: Ino = Ino(3);

    #[test]
    fn more_is_told_with_each_doubling_of_the_questions_and_no_more_than_there_is() {
        let readahead = Readahead::new(10, 100);
        let (dir, other) = (Ino(7), Ino(7 + DIRS as u64));
        let asked = |dir| readahead.asked(dir, TOP);
        assert_eq!(asked(dir), None, "one question tells nothing");
        assert_eq!(asked(dir), Some(Ahead { cookie: 0, entries: 20 }));
        readahead.told(dir, 20, Some(55));
        assert_eq!(asked(dir), None);
        assert_eq!(asked(dir), Some(Ahead { cookie: 55, entries: 40 }));
        readahead.told(dir, 40, Some(99));
        (0..3).for_each(|_| assert_eq!(asked(dir), None));
        assert_eq!(asked(dir), Some(Ahead { cookie: 99, entries: 40 }), "no more than the bound");
        readahead.told(dir, 40, Some(200));
        (0..100).for_each(|_| assert_eq!(asked(dir), None));
        // Another directory takes the place.
        assert_eq!((asked(other), asked(other).is_some()), (None, true));
        readahead.told(dir, 1, Some(1));
        readahead.told(other, 3, None);
        (0..100).for_each(|_| assert_eq!(asked(other), None, "all of it was told"));
    }

    #[test]
    fn in_the_third_directory_of_one_the_first_question_tells() {
        let readahead = Readahead::new(10, 100);
        let told = [20, 21, 22, 23].map(|dir| readahead.asked(Ino(dir), TOP).map(|ahead| ahead.entries));
        assert_eq!(told, [None, None, Some(20), Some(20)]);
        assert_eq!(readahead.asked(Ino(30), Ino(20)), None, "another directory above it");
        // The root is above itself.
        assert_eq!([(); 2].map(|()| readahead.asked(Ino(1), Ino(1)).is_some()), [false, true]);
    }
}
