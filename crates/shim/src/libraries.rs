//! Searches the libraries that the loader has put behind this one. The result is that of `dlsym(RTLD_NEXT)`, in less time: each
//! program that starts looks some 280 functions up, most of them in libc.
//!
//! ```text
//!  program | vdso | this library | library | ... | libc | ...      the loader's list, in the order of its search
//!                                  ^ first that is searched
//!  each: PT_DYNAMIC -> GNU hash table (filter, buckets, chains), symbols, names, versions
//! ```
//!
//! `dlsym` is asked where the search could differ: a library without such a table, a function that is chosen when it is looked up
//! (IFUNC). The list is walked without `dl_iterate_phdr`: a program may have its own (sanitizers do), which cannot run before the
//! program's constructors.

use crate::sys;
use libc::{c_char, c_int, c_void};
use std::ffi::CStr;

/// Libraries that are searched. In a program with more, every function is looked up by `dlsym`.
const LIBRARIES_MAX: usize = 32;

// Of <elf.h>: entries of PT_DYNAMIC, types and bindings of symbols.
const DT_NULL: u64 = 0;
const DT_STRTAB: u64 = 5;
const DT_SYMTAB: u64 = 6;
const DT_GNU_HASH: u64 = 0x6fff_fef5;
const DT_VERSYM: u64 = 0x6fff_fff0;
const STT_GNU_IFUNC: u8 = 10;
const STT_TLS: u8 = 6;
const STB_LOCAL: u8 = 0;
/// The version of a symbol that is found only when it is asked for.
const VERSION_HIDDEN: u16 = 0x8000;

/// Of <dlfcn.h>: asks for the [`LinkMap`].
const RTLD_DL_LINKMAP: c_int = 2;

unsafe extern "C" {
    fn dladdr1(
        address: *const c_void,
        info: *mut libc::Dl_info,
        extra: *mut *const LinkMap,
        flags: c_int,
    ) -> c_int;
}

/// A library in the loader's list: `struct link_map` of <link.h>.
#[repr(C)]
struct LinkMap {
    base: usize,
    name: *const c_char,
    dynamic: *const [u64; 2],
    next: *const LinkMap,
    before: *const LinkMap,
}

/// What the hash table of a library begins with.
#[repr(C)]
#[derive(Clone, Copy)]
struct Header {
    buckets: u32,
    first_symbol: u32,
    filter_words: u32,
    filter_shift: u32,
}

#[derive(Clone, Copy)]
struct Library {
    base: usize,
    header: Header,
    filter: *const u64,
    buckets: *const u32,
    chains: *const u32,
    symbols: *const libc::Elf64_Sym,
    names: *const c_char,
    /// Null: none has a version.
    versions: *const u16,
}

/// What a search found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Found {
    /// The function.
    At(*mut c_void),
    /// No library has it.
    Nowhere,
    /// The loader has to be asked.
    Unknown,
}

/// The libraries behind this one.
pub struct Libraries {
    all: [Option<Library>; LIBRARIES_MAX],
    count: usize,
    /// Whether all can be searched.
    is_complete: bool,
}

/// The hash of a name in GNU hash tables.
const fn hash(name: &[u8]) -> u32 {
    let (mut hash, mut at) = (5381u32, 0);
    while at < name.len() {
        hash = hash.wrapping_mul(33).wrapping_add(name[at] as u32);
        at += 1;
    }
    hash
}

impl Library {
    /// # Safety
    /// `map` describes a loaded library that stays.
    unsafe fn of(map: &LinkMap) -> Option<Library> {
        let base = map.base;
        // Loaded below its own addresses: what is relocated could not be told from what is not.
        if base > isize::MAX as usize || map.dynamic.is_null() {
            return None;
        }
        // SAFETY: the loader's tables, as the format has them; the caller's promise.
        unsafe {
            let mut entry = map.dynamic;
            let [mut table, mut symbols, mut names, mut versions] = [0usize; 4];
            while (*entry)[0] != DT_NULL {
                let place = match (*entry)[0] {
                    DT_GNU_HASH => &mut table,
                    DT_SYMTAB => &mut symbols,
                    DT_STRTAB => &mut names,
                    DT_VERSYM => &mut versions,
                    _ => {
                        entry = entry.add(1);
                        continue;
                    }
                };
                let value = (*entry)[1] as usize;
                // Loaders relocate these entries, or not.
                *place = if value < base { base + value } else { value };
                entry = entry.add(1);
            }
            if table == 0 || symbols == 0 || names == 0 {
                return None;
            }
            let header = *(table as *const Header);
            let filter = (table + size_of::<Header>()) as *const u64;
            let buckets: *const u32 = filter.add(header.filter_words as usize).cast();
            let chains = buckets.add(header.buckets as usize);
            if header.buckets == 0 || header.filter_words == 0 {
                return None;
            }
            Some(Library {
                base,
                header,
                filter,
                buckets,
                chains,
                symbols: symbols as *const libc::Elf64_Sym,
                names: names as *const c_char,
                versions: versions as *const u16,
            })
        }
    }

    fn find(&self, name: &CStr, hash: u32) -> Found {
        let Header { buckets, first_symbol, filter_words, filter_shift } = self.header;
        // SAFETY: the library's own tables, as the format has them: a bucket names a symbol from `first_symbol` on or none, and a
        // chain ends with an odd hash.
        unsafe {
            let word = *self.filter.add((hash / 64 % filter_words) as usize);
            if word >> (hash % 64) & word >> (hash.wrapping_shr(filter_shift) % 64) & 1 == 0 {
                return Found::Nowhere;
            }
            let mut number = *self.buckets.add((hash % buckets) as usize);
            while number >= first_symbol {
                let link = *self.chains.add((number - first_symbol) as usize);
                if (link ^ hash) >> 1 == 0 && self.is_named(number, name) {
                    let symbol = &*self.symbols.add(number as usize);
                    return match symbol.st_info & 15 {
                        STT_GNU_IFUNC | STT_TLS => Found::Unknown,
                        _ => Found::At((self.base + symbol.st_value as usize) as *mut c_void),
                    };
                }
                if link & 1 != 0 {
                    break;
                }
                number += 1;
            }
        }
        Found::Nowhere
    }

    /// Whether a symbol is a definition of this name that one gets without asking for a version.
    ///
    /// # Safety
    /// The library has such a symbol.
    unsafe fn is_named(&self, number: u32, name: &CStr) -> bool {
        // SAFETY: the caller's promise; names end with NUL.
        unsafe {
            let symbol = &*self.symbols.add(number as usize);
            let is_hidden =
                !self.versions.is_null() && *self.versions.add(number as usize) & VERSION_HIDDEN != 0;
            symbol.st_shndx != 0
                && symbol.st_value != 0
                && symbol.st_info >> 4 != STB_LOCAL
                && !is_hidden
                && sys::bytes(self.names.add(symbol.st_name as usize)) == name.to_bytes()
        }
    }
}

/// This library in the loader's list.
fn this() -> Option<&'static LinkMap> {
    let mut this: *const LinkMap = std::ptr::null();
    // SAFETY: the address is this library's, which is never unloaded; there is room for what is asked for.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        let is_known =
            dladdr1(Libraries::behind_this as *const c_void, &raw mut info, &raw mut this, RTLD_DL_LINKMAP);
        this.as_ref().filter(|_| is_known != 0)
    }
}

/// A function that this library itself exports.
pub fn exported(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: this library stays.
    match unsafe { Library::of(this()?) }?.find(name, hash(name.to_bytes())) {
        Found::At(function) => Some(function),
        Found::Nowhere | Found::Unknown => None,
    }
}

/// The first definition of a function in the libraries that were loaded with the program, without the help of the loader.
pub fn first_behind_this(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: as in `behind_this`: libc comes before all that a program unloads.
    first_of(name, |map| unsafe { map.next.as_ref() })
}

/// A definition of a function in the program, or in what was preloaded before this library.
pub fn before_this(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: what comes before this library stays.
    first_of(name, |map| unsafe { map.before.as_ref() })
}

/// The first definition on the way from this library.
fn first_of(name: &CStr, next: fn(&LinkMap) -> Option<&'static LinkMap>) -> Option<*mut c_void> {
    let hash = hash(name.to_bytes());
    std::iter::successors(this(), |map| next(map)).skip(1).find_map(|map| {
        // SAFETY: the loader's own entry.
        match unsafe { Library::of(map) }?.find(name, hash) {
            Found::At(function) => Some(function),
            Found::Nowhere | Found::Unknown => None,
        }
    })
}

impl Libraries {
    /// Those that are loaded.
    pub fn behind_this() -> Libraries {
        let mut libraries = Libraries { all: [None; LIBRARIES_MAX], count: 0, is_complete: false };
        // The loader's list does not change while a program starts.
        let Some(mut map) = this() else { return libraries };
        // SAFETY: as above.
        while let Some(next) = unsafe { map.next.as_ref() } {
            // SAFETY: what is loaded before the program begins is not unloaded while it is looked at.
            let (Some(library), Some(place)) =
                (unsafe { Library::of(next) }, libraries.all.get_mut(libraries.count))
            else {
                return libraries;
            };
            *place = Some(library);
            libraries.count += 1;
            map = next;
        }
        libraries.is_complete = true;
        libraries
    }

    /// The first definition of a function.
    pub fn find(&self, name: &CStr) -> Found {
        if !self.is_complete {
            return Found::Unknown;
        }
        let hash = hash(name.to_bytes());
        let found = self.all.iter().take(self.count).flatten().map(|library| library.find(name, hash));
        found.into_iter().find(|found| *found != Found::Nowhere).unwrap_or(Found::Nowhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_where_the_loader_finds_them() {
        let libraries = Libraries::behind_this();
        assert!(libraries.is_complete && libraries.count > 0);
        let (mut found, mut missing) = (0, 0);
        let names = crate::hooks::SYMBOLS.iter().copied().flatten().map(|symbol| symbol.name());
        for name in names.chain([c"memcpy", c"errno", c"no such function", c"pthread_cond_wait", c"realpath"])
        {
            // SAFETY: a C string.
            let wanted = unsafe { crate::real::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
            match libraries.find(name) {
                Found::At(at) => {
                    assert_eq!(at, wanted, "{name:?}");
                    assert_eq!(first_behind_this(name), Some(at), "{name:?}");
                    found += 1;
                }
                Found::Nowhere => {
                    assert!(wanted.is_null(), "{name:?}");
                    missing += 1;
                }
                Found::Unknown => {}
            }
        }
        assert!(found > 200 && missing > 0, "{found} found, {missing} missing");
    }

    #[test]
    fn a_name_has_the_hash_that_the_format_defines() {
        assert_eq!(hash(b""), 0x1505);
        assert_eq!(hash(b"printf"), 0x156b_2bb8);
        assert_eq!(hash(b"exit"), 0x7c96_7e3f);
    }
}
