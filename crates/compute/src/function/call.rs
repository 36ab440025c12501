//! Calls: an instance, its input, slices of fuel, and the result.

use super::{FUEL_MAX, MEMORY_BYTES_MAX, Module, SLICE_NS, TABLE_ELEMENTS_MAX};
use crate::Error;
use std::time::Instant;

use wasmi::errors::{ErrorKind, InstantiationError};
use wasmi::{
    Instance, Memory, ResourceLimiter, Store, TrapCode, TypedFunc, TypedResumableCall, WasmParams,
    WasmResults,
};
use wasmi_core::LimiterError;
use weft_core::refuse;

/// Fuel of the first slice. Those behind it get what [`SLICE_NS`] is enough for, by how long the last one took.
const FIRST_SLICE_FUEL: u64 = 16_384;
/// Bytes that a unit of fuel copies.
const BYTES_PER_FUEL: u64 = 64;

/// What a call may take.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Limits {
    /// Units of fuel; more than [`FUEL_MAX`] count as that.
    pub fuel: u64,
    /// Bytes of the result.
    pub output_bytes: usize,
}

/// What a call gave.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Returned {
    /// The result.
    pub bytes: Vec<u8>,
    /// Units of fuel that the call has used: the same for the same module and input, always.
    pub fuel: u64,
}

impl Module {
    /// Calls the function with this input. After each slice, `goes_on` is asked with the nanoseconds since the call began, and stops it by
    /// `false`; what `goes_on` takes itself counts, too.
    ///
    /// # Errors
    /// [`Error::Fuel`], [`Error::Stopped`], [`Error::Trap`]; [`Error::TooLong`] when the result is longer than allowed;
    /// [`Error::NoMemory`] when the memory or the stack is too small.
    pub fn call(
        &self,
        input: &[u8],
        limits: Limits,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Returned, Error> {
        let Ok(len) = i32::try_from(input.len()) else { return Err(Error::NoMemory("a function's input")) };
        let mut run = Run::new(self, limits.fuel.min(FUEL_MAX), goes_on);
        run.begin(self.bytes.len() as u64 + (self.memory_bytes + input.len() as u64) / BYTES_PER_FUEL)?;
        let instance = Instance::new(&mut run.store, &self.compiled, &[]).map_err(told)?;
        run.store.data_mut().is_running = true;
        let memory = run.memory(&instance)?;
        let alloc = instance.get_typed_func::<i32, i32>(&run.store, "alloc").map_err(told)?;
        let function = instance.get_typed_func::<(i32, i32), i64>(&run.store, "run").map_err(told)?;
        let at = run.call(alloc, len)?;
        // Addresses are unsigned.
        let place = memory.write(&mut run.store, at as u32 as usize, input);
        place.map_err(|_| Error::Trap("alloc gave an address outside of the memory".into()))?;
        let result = run.call(function, (at, len))? as u64;
        let (at, len) = ((result >> 32) as usize, result as u32 as usize);
        refuse(len > limits.output_bytes, Error::TooLong { max: limits.output_bytes })?;
        let result = memory.data(&run.store).get(at..at + len);
        let bytes = result.ok_or_else(|| Error::Trap("its result is outside of the memory".into()))?.to_vec();
        Ok(Returned { bytes, fuel: run.used() })
    }
}

/// A call that is being done.
struct Run<'a> {
    store: Store<Room>,
    /// Fuel of the call.
    fuel: u64,
    /// That of it which no slice has got yet.
    left: u64,
    /// Fuel of the next slice.
    slice: u64,
    began: Instant,
    /// When the slice began.
    resumed: Instant,
    goes_on: &'a mut dyn FnMut(u64) -> bool,
}

impl<'a> Run<'a> {
    fn new(module: &Module, fuel: u64, goes_on: &'a mut dyn FnMut(u64) -> bool) -> Run<'a> {
        let mut store = Store::new(module.compiled.engine(), Room { is_running: false });
        store.limiter(|room| room);
        let now = Instant::now();
        Run { store, fuel, left: fuel, slice: FIRST_SLICE_FUEL, began: now, resumed: now, goes_on }
    }

    /// Takes the fuel for what is not done by instructions, and grants the first slice.
    fn begin(&mut self, cost: u64) -> Result<(), Error> {
        self.left = self.left.checked_sub(cost).ok_or(Error::Fuel { fuel: self.fuel })?;
        self.grant(self.slice.min(self.left))
    }

    /// Lets the instance use this much more of what is left.
    fn grant(&mut self, fuel: u64) -> Result<(), Error> {
        self.left -= fuel;
        self.resumed = Instant::now();
        self.store.set_fuel(fuel).map_err(told)
    }

    fn memory(&self, instance: &Instance) -> Result<Memory, Error> {
        instance.get_memory(&self.store, "memory").ok_or_else(|| Error::Module("it exports no memory".into()))
    }

    /// Calls a function of the instance, slice by slice.
    fn call<P: WasmParams, R: WasmResults>(
        &mut self,
        function: TypedFunc<P, R>,
        params: P,
    ) -> Result<R, Error> {
        let mut call = function.call_resumable(&mut self.store, params).map_err(told)?;
        loop {
            match call {
                TypedResumableCall::Finished(result) => return Ok(result),
                TypedResumableCall::OutOfFuel(rest) => {
                    self.next_slice(rest.required_fuel())?;
                    call = rest.resume(&mut self.store).map_err(told)?;
                }
                TypedResumableCall::HostTrap(_) => {
                    return Err(Error::Trap("it called what it does not have".into()));
                }
            }
        }
    }

    /// Grants fuel: at least `needed` for the next instructions, which are not divided.
    fn next_slice(&mut self, needed: u64) -> Result<(), Error> {
        self.left += self.unused();
        refuse(needed > self.left, Error::Fuel { fuel: self.fuel })?;
        let now = Instant::now();
        let took_ns = now.duration_since(self.resumed).as_nanos() as u64;
        if took_ns > SLICE_NS {
            self.slice = (self.slice / 2).max(1);
        } else if took_ns < SLICE_NS / 2 {
            self.slice = (self.slice * 2).min(FUEL_MAX);
        }
        let ns = now.duration_since(self.began).as_nanos() as u64;
        refuse(!(self.goes_on)(ns), Error::Stopped { ns })?;
        self.grant(needed.max(self.slice).min(self.left))
    }

    fn unused(&self) -> u64 {
        self.store.get_fuel().unwrap_or(0)
    }

    fn used(&self) -> u64 {
        self.fuel - self.left - self.unused()
    }
}

/// The room of an instance.
struct Room {
    /// Whether the instance is complete, and its code runs.
    is_running: bool,
}

impl ResourceLimiter for Room {
    fn memory_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool, LimiterError> {
        let denied = LimiterError::ResourceLimiterDeniedAllocation;
        if desired > MEMORY_BYTES_MAX { Err(denied) } else { Ok(true) }
    }

    /// A table does not grow: wasmi 2.0.0 does not resume rightly what runs out of fuel in `table.grow`, and asks this first.
    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> Result<bool, LimiterError> {
        Ok(!self.is_running && desired <= TABLE_ELEMENTS_MAX)
    }

    fn instances(&self) -> usize {
        1
    }

    fn tables(&self) -> usize {
        4
    }

    fn memories(&self) -> usize {
        1
    }
}

/// What the interpreter says.
fn told(error: wasmi::Error) -> Error {
    match error.kind() {
        ErrorKind::TrapCode(TrapCode::StackOverflow) => Error::NoMemory("a function's stack"),
        ErrorKind::TrapCode(TrapCode::GrowthOperationLimited | TrapCode::OutOfSystemMemory) => {
            Error::NoMemory("a function's memory")
        }
        ErrorKind::Instantiation(
            InstantiationError::TooManyTables
            | InstantiationError::FailedToInstantiateTable(_)
            | InstantiationError::FailedToInstantiateMemory(_),
        ) => Error::NoMemory("a function's tables and memory"),
        ErrorKind::Instantiation(_) => Error::Trap("its data or elements do not fit".into()),
        _ => Error::Trap(error.to_string()),
    }
}
