//! Modules: validated and compiled once.

use super::{EXPORTS_MAX, LOCALS_MAX, MEMORY_BYTES_MAX, MODULE_BYTES_MAX, STACK_BYTES_MAX};
use crate::Error;
use wasmi::{CompilationMode, Config, EnforcedLimits, Engine, ExternType, FuncType, ValType};
use wasmparser::{BinaryReaderError, Parser, Payload};
use weft_core::refuse;

/// Bytes of a page of a memory.
const PAGE_BYTES: u64 = 64 << 10;

/// A module that can be [called](Module::call), any number of times and by several threads at once.
#[derive(Debug)]
pub struct Module {
    pub(super) bytes: Box<[u8]>,
    pub(super) compiled: wasmi::Module,
    /// Bytes of the memory that each call begins with.
    pub(super) memory_bytes: u64,
}

impl Module {
    /// Validates and compiles a module in binary form.
    ///
    /// # Errors
    /// [`Error::ModuleTooLong`] beyond [`MODULE_BYTES_MAX`]; [`Error::NoMemory`] when its memory begins beyond [`MEMORY_BYTES_MAX`];
    /// [`Error::Module`] when it is not valid, imports something, has a start function or lacks an export.
    pub fn compile(bytes: &[u8]) -> Result<Module, Error> {
        let (len, max) = (bytes.len(), MODULE_BYTES_MAX);
        refuse(len > max, Error::ModuleTooLong { len, max })?;
        let invalid = |error: BinaryReaderError| Error::Module(error.to_string());
        let is_wide = locals(bytes).map_err(invalid)? > LOCALS_MAX;
        refuse(is_wide, Error::Module(format!("its functions have more than {LOCALS_MAX} locals together")))?;
        // An engine keeps the code of its modules to its end: each has its own.
        let engine = Engine::new(&config());
        // In front, and as a whole: wasmi 2.0.0 compiles each instruction when it has validated that one, and trusts that the function is
        // valid, which only its end shows.
        let compiled = wasmi::Module::validate(&engine, bytes)
            .and_then(|()| wasmi::Module::new(&engine, bytes))
            .map_err(|error| Error::Module(error.to_string()))?;
        let refused = |is_wrong, why: &str| refuse(is_wrong, Error::Module(why.into()));
        refused(compiled.imports().len() > 0, "it imports something")?;
        // Each call makes them all anew.
        refused(compiled.exports().count() > EXPORTS_MAX, "it exports too much")?;
        for (name, params, results) in [
            ("alloc", &[ValType::I32][..], ValType::I32),
            ("run", &[ValType::I32, ValType::I32], ValType::I64),
        ] {
            let wanted = FuncType::new(params.iter().copied(), [results]);
            let is_there = matches!(compiled.get_export(name), Some(ExternType::Func(ty)) if ty == wanted);
            let (params, results) = (wanted.params(), wanted.results());
            refused(
                !is_there,
                &format!("it does not export a function {name} of {params:?} to {results:?}"),
            )?;
        }
        let Some(ExternType::Memory(memory)) = compiled.get_export("memory") else {
            return Err(Error::Module("it does not export a memory by this name".into()));
        };
        let memory_bytes = memory.minimum().saturating_mul(PAGE_BYTES);
        refuse(memory_bytes > MEMORY_BYTES_MAX as u64, Error::NoMemory("a function's first memory"))?;
        Ok(Module { bytes: bytes.into(), compiled, memory_bytes })
    }
}

/// Locals of all functions, which a few bytes can declare by the thousand.
fn locals(bytes: &[u8]) -> Result<u64, BinaryReaderError> {
    let mut locals = 0;
    for payload in Parser::new(0).parse_all(bytes) {
        if let Payload::CodeSectionEntry(body) = payload? {
            for group in body.get_locals_reader()? {
                let (count, _) = group?;
                locals += u64::from(count);
            }
        }
    }
    Ok(locals)
}

fn config() -> Config {
    let mut config = Config::default();
    config
        .consume_fuel(true)
        // What is compiled at the first use takes fuel then, and not at the second.
        .compilation_mode(CompilationMode::Eager)
        .enforced_limits(EnforcedLimits::strict())
        .allow_start_fn(false)
        .ignore_custom_sections(true)
        .set_max_stack_height(STACK_BYTES_MAX)
        .wasm_multi_memory(false)
        .wasm_tail_call(false)
        .wasm_custom_page_sizes(false)
        .wasm_wide_arithmetic(false);
    config
}
