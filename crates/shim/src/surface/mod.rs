//! The surface: every function of libc by which a program reaches files, and what becomes of it; also those of other libraries
//! that make such system calls by themselves.
//!
//! [`TABLE`] is the one list. Each name in it is *served* by a hook, *refused* by a hook on the volume's files, or *passes*
//! to libc unhooked, for a reason that is written beside it. The hooks export the names that the table gives them
//! (`names_of!`): a hook that the table does not know does not compile. Tests compare the table with what this
//! system's libc exports and with `docs/libc.md`; what is not about files at all is listed in `rest.txt` beside this file.

#[macro_use]
mod table;

pub use table::TABLE;

use crate::report::Refusal;

/// What becomes of the calls of some functions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Treatment {
    /// A hook does on the volume what libc does elsewhere.
    Served,
    /// A hook refuses them on the volume's files.
    Refused(Refusal),
    /// libc's own are right, for this reason.
    Passes(&'static str),
}

/// Names that are treated alike.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// What becomes of them.
    pub treatment: Treatment,
    /// The names, aliases included.
    pub names: &'static [&'static str],
}

/// A part of the surface.
#[derive(Clone, Copy, Debug)]
pub struct Area {
    /// Its heading.
    pub title: &'static str,
    /// The library that has the functions, when it is not libc.
    pub library: Option<&'static str>,
    /// Its names by treatment.
    pub groups: &'static [Group],
}

/// Names that the library exports.
pub fn hooked() -> impl Iterator<Item = &'static str> {
    TABLE
        .iter()
        .flat_map(|area| area.groups)
        .filter(|group| !matches!(group.treatment, Treatment::Passes(_)))
        .flat_map(|group| group.names.iter().copied())
}

#[cfg(test)]
mod tests;
