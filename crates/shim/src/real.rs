//! The functions of libc behind the hooks (`RTLD_NEXT`).
//!
//! All are looked up at start. A call that comes earlier, from a constructor that runs before ours, looks its function up
//! itself; looking up may allocate, which is why it is not left to a moment inside `mmap` or a signal handler.

use crate::libraries::{self, Found, Libraries};
use crate::{report, sys};
use libc::{c_char, c_void};
use std::ffi::CStr;
use std::sync::atomic::{AtomicPtr, Ordering::*};

/// The loader's searches for functions.
pub static SEARCHES: [Symbol; 2] = [Symbol::new(c"dlsym"), Symbol::new(c"dlvsym")];

/// The loader's own search.
///
/// # Safety
/// As `dlsym(3)`.
pub unsafe fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    type Search = unsafe extern "C" fn(*mut c_void, *const c_char) -> *mut c_void;
    // SAFETY: the function of this name has this type; the caller's promise.
    unsafe { std::mem::transmute::<*mut c_void, Search>(SEARCHES[0].address_of_search())(handle, name) }
}

/// The loader's own search by version.
///
/// # Safety
/// As `dlvsym(3)`.
pub unsafe fn dlvsym(handle: *mut c_void, name: *const c_char, version: *const c_char) -> *mut c_void {
    type Search = unsafe extern "C" fn(*mut c_void, *const c_char, *const c_char) -> *mut c_void;
    // SAFETY: as above.
    unsafe {
        std::mem::transmute::<*mut c_void, Search>(SEARCHES[1].address_of_search())(handle, name, version)
    }
}

/// A libc function: its name and, once looked up, its address.
pub struct Symbol {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Symbol {
    /// Not looked up yet.
    pub const fn new(name: &'static CStr) -> Self {
        Symbol { name, address: AtomicPtr::new(std::ptr::null_mut()) }
    }

    /// The function's address. Never null: a function that this libc lacks is replaced by one that fails with `ENOSYS`.
    #[inline(always)]
    pub fn address(&self) -> *mut c_void {
        let address = self.address.load(Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    /// The address of one of the [`SEARCHES`], which cannot be found by itself.
    #[inline(always)]
    pub fn address_of_search(&self) -> *mut c_void {
        let address = self.address.load(Relaxed);
        if address.is_null() { self.look_up_search() } else { address }
    }

    #[cold]
    #[inline(never)]
    fn look_up_search(&self) -> *mut c_void {
        let address = libraries::first_behind_this(self.name).unwrap_or(missing as *mut c_void);
        self.address.store(address, Relaxed);
        address
    }

    /// Its name.
    pub fn name(&self) -> &'static CStr {
        self.name
    }

    /// Looks the function up and remembers it.
    #[cold]
    #[inline(never)]
    fn look_up(&self) -> *mut c_void {
        // SAFETY: the name is a C string.
        let mut address = unsafe { dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            address = self.look_aside(&Aside::loaded()).unwrap_or(missing as *mut c_void);
        }
        self.address.store(address, Relaxed);
        address
    }

    fn look_aside(&self, aside: &Aside) -> Option<*mut c_void> {
        aside.0.iter().filter(|library| !library.is_null()).find_map(|library| {
            // SAFETY: a library that stays loaded, and a C string.
            let found = unsafe { dlsym(*library, self.name.as_ptr()) };
            (!found.is_null()).then_some(found)
        })
    }

    /// Whether this is what the lookup found.
    pub fn is_at(&self, address: *mut c_void) -> bool {
        self.address.load(Relaxed) == address
    }

    /// Whether the lookup has been made.
    pub fn is_resolved(&self) -> bool {
        !self.address.load(Relaxed).is_null()
    }
}

/// Libraries which the program may have loaded for itself alone, out of sight of a search by name; null are those that it has
/// not.
struct Aside([*mut c_void; 4]);

impl Aside {
    fn loaded() -> Aside {
        Aside([c"libaio.so.1", c"liburing.so.2", c"liburing-ffi.so.2", c"liburing.so.1"].map(|name| {
            // SAFETY: a C string; what is not loaded is not loaded by this, and what is stays, as its caller uses it.
            unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) }
        }))
    }
}

/// Looks up all functions.
pub fn look_up_all<'a>(symbols: impl Iterator<Item = &'a Symbol>) {
    let libraries = Libraries::behind_this();
    begin_thread_sanitizer(&libraries);
    let mut aside = None;
    for symbol in symbols {
        let address = match libraries.find(symbol.name) {
            Found::At(address) => address,
            Found::Nowhere => {
                let aside = aside.get_or_insert_with(Aside::loaded);
                symbol.look_aside(aside).unwrap_or(missing as *mut c_void)
            }
            Found::Unknown => {
                symbol.look_up();
                continue;
            }
        };
        symbol.address.store(address, Relaxed);
    }
}

/// Begins ThreadSanitizer, when the program has it: its functions stand in front of libc's, also for calls of this library's own
/// (`__tls_get_addr`), and cannot be called before. It would begin itself next, before all other constructors.
fn begin_thread_sanitizer(libraries: &Libraries) {
    let behind = match libraries.find(c"__tsan_init") {
        Found::At(begin) => Some(begin),
        Found::Nowhere | Found::Unknown => None,
    };
    // gcc links it as a library, clang into the program.
    if let Some(begin) = behind.or_else(|| libraries::before_this(c"__tsan_init")) {
        // SAFETY: a function of this type. The program's own call then does nothing.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn()>(begin)() };
    }
}

/// Stands in for a function that this libc does not have. Its caller linked against one that does, so this is reached
/// only by a program for another libc.
extern "C" fn missing() -> isize {
    sys::set_errno(libc::ENOSYS);
    report::complain(&[b"the program calls a library function that this system does not have"]);
    -1
}

/// Declares functions of libc by name and signature: one caller each.
macro_rules! real_functions {
    ($(fn $name:ident $args:tt -> $ret:ty;)*) => {
        #[allow(non_upper_case_globals)]
        mod symbols {
            $(pub static $name: $crate::real::Symbol = $crate::real::Symbol::new(
                match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                    Ok(name) => name,
                    // Cannot be: the text above has one NUL, at its end.
                    Err(_) => c"",
                },
            );)*
        }
        $($crate::real::real_functions!(@one $name $args -> $ret);)*
        /// Whether the functions have been looked up.
        #[inline(always)]
        pub fn is_resolved() -> bool {
            SYMBOLS.last().is_some_and(|symbol| symbol.is_resolved())
        }
        /// All functions declared here.
        pub static SYMBOLS: &[&$crate::real::Symbol] = &[$(&symbols::$name),*];
    };
    (@one $name:ident ($($arg:ident: $ty:ty),* $(,)?) -> $ret:ty) => {
        /// libc's own.
        ///
        /// # Safety
        /// As the function's manual says.
        #[allow(clippy::too_many_arguments)]
        #[inline(always)]
        pub unsafe fn $name($($arg: $ty),*) -> $ret {
            let address = symbols::$name.address();
            // SAFETY: the address is that of libc's function of this name, which has this signature.
            unsafe {
                std::mem::transmute::<*mut libc::c_void, unsafe extern "C-unwind" fn($($ty),*) -> $ret>(address)($($arg),*)
            }
        }
    };
}
pub(crate) use real_functions;
