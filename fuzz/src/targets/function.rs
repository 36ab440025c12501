//! Users' functions: any bytes are a module or an error, and a call keeps to its limits and gives the same each time.

use super::Target;
use arbitrary::Unstructured;
use weft_compute::{Error, Limits, Module, Returned};

const LIMITS: Limits = Limits { fuel: 200_000, output_bytes: 4096 };
/// What each function gets.
const INPUT: [u8; 64] = [8; 64];
/// The first byte of an input whose others are a module; with another one they are the decisions that make one.
const AS_IT_IS: u8 = 0;

/// See the module.
pub struct FunctionModules {
    /// How the modules that are made look.
    shape: wasm_smith::Config,
}

impl FunctionModules {
    pub fn new() -> FunctionModules {
        let exports = "(module (memory (export \"memory\") 1)
            (func (export \"alloc\") (param i32) (result i32) unreachable)
            (func (export \"run\") (param i32 i32) (result i64) unreachable))";
        let shape = wasm_smith::Config {
            exports: Some(wat::parse_str(exports).expect("a module that is right")),
            max_imports: 0,
            max_memory32_bytes: 64 << 20,
            max_table_elements: 8192,
            max_tables: 3,
            allow_start_export: false,
            exceptions_enabled: false,
            gc_enabled: false,
            memory64_enabled: false,
            relaxed_simd_enabled: false,
            simd_enabled: false,
            tail_call_enabled: false,
            threads_enabled: false,
            wide_arithmetic_enabled: false,
            ..wasm_smith::Config::default()
        };
        FunctionModules { shape }
    }
}

fn call(module: &Module, limits: Limits, goes_on: bool) -> Result<Returned, Error> {
    module.call(&INPUT, limits, &mut |_| goes_on)
}

impl Target for FunctionModules {
    fn name(&self) -> &'static str {
        "function"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let examples = [
            include_str!("../../../crates/compute/modules/sum_column.wat"),
            include_str!("../../../crates/compute/modules/filter_rows.wat"),
            include_str!("../../../crates/compute/modules/find_block.wat"),
        ];
        let as_they_are = examples.map(|text| {
            let module = wat::parse_str(text).expect("a module that is right");
            [&[AS_IT_IS][..], &module].concat()
        });
        // Decisions: the others are found.
        as_they_are.into_iter().chain([1, 2, 3].map(|first| vec![first; 300])).collect()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"\x01alloc",
            b"\x03run",
            // unreachable, loop, end, br, call, memory.grow, memory.fill, table.grow, table.fill
            b"\x00",
            b"\x03\x40",
            b"\x0b",
            b"\x0c\x00",
            b"\x10\x00",
            b"\x40\x00",
            b"\xfc\x0b\x00",
            b"\xfc\x0f\x00",
            b"\xfc\x11\x00",
            b"\xff\xff\xff\xff\x0f",
            b"\x80\x80\x80\x80\x08",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let Some((first, rest)) = input.split_first() else { return };
        let compiled = if *first == AS_IT_IS {
            Module::compile(rest)
        } else {
            let made = wasm_smith::Module::new(self.shape.clone(), &mut Unstructured::new(rest));
            let Ok(module) = made else { return };
            Module::compile(&module.to_bytes())
        };
        let module = match compiled {
            Ok(module) => module,
            Err(error) => return assert!(error.errno() > 0 && !error.to_string().is_empty()),
        };
        let once = call(&module, LIMITS, true);
        assert_eq!(call(&module, LIMITS, true), once, "a call gives something else the second time");
        match once {
            Ok(returned) => {
                assert!(returned.bytes.len() <= LIMITS.output_bytes && returned.fuel <= LIMITS.fuel);
                let fuel = returned.fuel;
                let exactly = call(&module, Limits { fuel, ..LIMITS }, true);
                assert_eq!(
                    exactly.as_ref(),
                    Ok(&returned),
                    "the fuel that a call takes is not enough for it"
                );
                let less = call(&module, Limits { fuel: fuel - 1, ..LIMITS }, true);
                assert_eq!(less, Err(Error::Fuel { fuel: fuel - 1 }));
                let stopped = call(&module, LIMITS, false);
                assert!(stopped == Ok(returned) || matches!(stopped, Err(Error::Stopped { .. })));
            }
            Err(error) => assert!(error.errno() > 0 && !matches!(error, Error::Stopped { .. })),
        }
    }
}
