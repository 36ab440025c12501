//! Functions that a user brings along, as WebAssembly modules in binary form.
//!
//! An interpreter (`wasmi`) runs them: no code is generated in the process that owns a volume. A module imports nothing, so a function has
//! its input, its memory, and nothing else: no clock, no files, no randomness. What it gives depends on its input alone, and so does the fuel
//! that it takes.
//!
//! # What a module exports
//! | export | type | what for |
//! |---|---|---|
//! | `memory` | memory | where input and result are |
//! | `alloc` | `(len: i32) -> i32` | gives the address of `len` bytes, into which the input is written |
//! | `run` | `(ptr: i32, len: i32) -> i64` | the function: gives the address of the result (upper 32 bits) and its length (lower 32 bits) |
//!
//! Each call has an instance of its own, with a fresh memory: `alloc` is called once, then `run` once, and nothing has to be freed. A module
//! has no start function. It may use what WebAssembly 2.0 has except SIMD: that is what compilers emit by default.
//!
//! # Fuel and time
//! An instruction takes a unit of fuel, 64 bytes that are copied or filled one more. A call begins with one unit for each byte of the module,
//! and one for each 64 bytes of its first memory and of the input. The fuel of a call decides alone whether the call ends in time, on every
//! machine and whatever runs beside it.
//!
//! Beside that, a call is done in slices of about [`SLICE_NS`]: after each, the caller is asked whether it goes on. The caller may do something
//! else meanwhile, or stop it.

mod cache;
mod call;
mod module;

pub use cache::Modules;
pub use call::{Limits, Returned};
pub use module::Module;

/// Bytes of a module, at most.
pub const MODULE_BYTES_MAX: usize = 256 << 10;
/// Locals of all functions of a module, at most: each takes time to compile, and none in the module.
pub const LOCALS_MAX: u64 = 65_536;
/// Exports of a module, at most.
pub const EXPORTS_MAX: usize = 64;
/// Bytes of a function's memory, at most: input, result, and what it needs beside them.
pub const MEMORY_BYTES_MAX: usize = 32 << 20;
/// Bytes of a function's stack, at most; it also ends at 1,000 calls within each other.
pub const STACK_BYTES_MAX: usize = 128 << 10;
/// Elements of a table, at most; a module has at most 4 tables, which do not grow.
pub const TABLE_ELEMENTS_MAX: usize = 4096;
/// Fuel of a call, at most: some seconds.
pub const FUEL_MAX: u64 = 1_000_000_000;
/// Nanoseconds after which a call asks whether it goes on, about.
pub const SLICE_NS: u64 = 100_000;
/// Modules that [`Modules`] keeps, at most.
pub const MODULES_MAX: usize = 64;
/// Bytes of the modules that [`Modules`] keeps, at most; compiled, they take a multiple of it.
pub const MODULES_BYTES_MAX: usize = 2 << 20;
