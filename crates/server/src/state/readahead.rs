//! Which directories programs walk through, by what they ask of the server.
//!
//! Who asks for a second name in a directory usually asks for more, and who opens a second directory of one opens the others. What is
//! told then, ahead of the questions, needs no calls. How much that is doubles with the questions, so a program that asks for
//! few names pays for few, and each directory has a bound.
//!
//! Who did so in a directory usually does so in the next of the same parent. There the first question tells already, for as many
//! directories as that has proved right for ([`CREDIT`]): who asks for one name in each of many directories is told of no others.

use parking_lot::Mutex;
use rustc_hash::FxHashMap;
use weft_core::Ino;

/// Directories that are remembered at least.
const DIRS: usize = 2048;
/// Directories in which the first question tells, after one in which a second question was asked.
const CREDIT: u32 = 4;

/// What has been asked in some directories, and how far it was told ahead.
#[derive(Debug)]
pub struct Readahead {
    /// For each question, so many entries are told ahead.
    per_question: u32,
    /// Of one directory, at most.
    most: u32,
    seen: Mutex<Remembered>,
}

/// Directories by when they were asked for last: the older ones go when there are too many.
#[derive(Default, Debug)]
struct Remembered {
    lately: FxHashMap<Ino, Seen>,
    before: FxHashMap<Ino, Seen>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Seen {
    questions: u32,
    /// Who was asked for last.
    last: Ino,
    /// Behind the last entry that was told.
    cookie: u64,
    told: u32,
    /// Directories in this one in which the first question tells.
    credit: u32,
}

/// A part of a directory to tell ahead.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ahead {
    /// Where it begins.
    pub cookie: u64,
    /// Entries, at most.
    pub entries: u32,
}

impl Remembered {
    fn of(&mut self, dir: Ino) -> &mut Seen {
        if !self.lately.contains_key(&dir) {
            if self.lately.len() == DIRS {
                self.before = std::mem::take(&mut self.lately);
            }
            let seen = self.before.remove(&dir).unwrap_or_default();
            self.lately.insert(dir, seen);
        }
        self.lately.entry(dir).or_default()
    }
}

impl Readahead {
    /// Tells so many entries ahead for each question, and so many of a directory at most.
    pub fn new(per_question: u32, most: u32) -> Readahead {
        Readahead { per_question, most, seen: Mutex::default() }
    }

    /// A question about `entry` of a directory, which lies in `above`; what to tell ahead now, if anything. A question about the same
    /// entry once more is none.
    pub fn asked(&self, (above, dir, entry): (Ino, Ino, Ino)) -> Option<Ahead> {
        let mut all = self.seen.lock();
        let seen = all.of(dir);
        if seen.last == entry {
            return None;
        }
        seen.last = entry;
        seen.questions = seen.questions.saturating_add(1);
        match seen.questions {
            1 => {
                let credit = &mut all.of(above).credit;
                if *credit == 0 {
                    return None;
                }
                *credit -= 1;
                all.of(dir).questions = 2;
            }
            2 => all.of(above).credit = CREDIT,
            _ => {}
        }
        let seen = all.of(dir);
        let is_due = seen.questions.is_power_of_two() && seen.told < self.most;
        let entries =
            seen.questions.saturating_mul(self.per_question).min(self.most.saturating_sub(seen.told));
        is_due.then_some(Ahead { cookie: seen.cookie, entries })
    }

    /// So many entries were told, up to this place; `None`: up to the end.
    pub fn told(&self, dir: Ino, entries: u32, cookie: Option<u64>) {
        let mut all = self.seen.lock();
        let seen = all.of(dir);
        seen.cookie = cookie.unwrap_or(seen.cookie);
        seen.told = if cookie.is_some() { seen.told.saturating_add(entries) } else { self.most };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    const TOP: Ino = Ino(3);

    fn entries(ahead: Option<Ahead>) -> u32 {
        ahead.map_or(0, |ahead| ahead.entries)
    }

    #[test]
    fn more_is_told_with_each_doubling_of_the_questions_and_no_more_than_there_is() {
        let readahead = Readahead::new(10, 100);
        let (dir, entry) = (Ino(7), Cell::new(100));
        let asked = || {
            entry.set(entry.get() + 1);
            readahead.asked((TOP, dir, Ino(entry.get())))
        };
        assert_eq!(asked(), None, "one question tells nothing");
        assert_eq!(readahead.asked((TOP, dir, Ino(entry.get()))), None, "nor does the same one again");
        assert_eq!(asked(), Some(Ahead { cookie: 0, entries: 20 }));
        readahead.told(dir, 20, Some(55));
        assert_eq!(asked(), None);
        assert_eq!(asked(), Some(Ahead { cookie: 55, entries: 40 }));
        readahead.told(dir, 40, Some(99));
        (0..3).for_each(|_| assert_eq!(asked(), None));
        assert_eq!(asked(), Some(Ahead { cookie: 99, entries: 40 }), "no more than the bound");
        readahead.told(dir, 40, Some(200));
        (0..100).for_each(|_| assert_eq!(asked(), None));
        // Many others come and go.
        for other in 1000..1000 + DIRS as u64 - 10 {
            readahead.asked((TOP, Ino(other), Ino(5)));
        }
        (0..100).for_each(|_| assert_eq!(asked(), None));
        let other = Ino(8);
        assert_eq!([5, 6].map(|name| entries(readahead.asked((Ino(4), other, Ino(name))))), [0, 20]);
        readahead.told(other, 3, None);
        (10..99)
            .for_each(|name| assert_eq!(readahead.asked((Ino(4), other, Ino(name))), None, "all was told"));
    }

    #[test]
    fn after_a_second_question_the_first_tells_in_a_few_directories_more() {
        let readahead = Readahead::new(10, 100);
        let first = |dir| entries(readahead.asked((TOP, Ino(dir), Ino(50))));
        // One name in each of many directories.
        assert!((100..2000).all(|dir| first(dir) == 0));
        assert_eq!((first(20), entries(readahead.asked((TOP, Ino(20), Ino(51))))), (0, 20));
        assert_eq!([21, 22, 23, 24, 25, 26].map(first), [20, 20, 20, 20, 0, 0]);
        assert_eq!(entries(readahead.asked((Ino(20), Ino(30), Ino(50)))), 0, "another directory above it");
        // The root is above itself.
        assert_eq!([60, 61].map(|name| entries(readahead.asked((Ino(1), Ino(1), Ino(name))))), [0, 20]);
    }
}
