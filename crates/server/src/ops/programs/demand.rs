//! What a turn of a program takes of a device's processors, as far as its operations tell.

use crate::state::program_cpus::Demand;
use weft_vfs::compound::{Bytes, CALL_BYTES_MAX, Input, Kind, Num, Op, Ref, WORK_BYTES_MAX};

/// Bytes that a value has at most whose length nothing tells.
const ANY: u64 = WORK_BYTES_MAX as u64;
/// Bytes of an extended attribute's value, at most.
const XATTR_BYTES_MAX: u64 = 64 << 10;

/// What these operations take.
pub fn demand_of(ops: &[Op], inputs: &[Input<'_>], user: u32) -> Demand {
    let (mut held, mut calls, mut preemptible) = (0, 0, ops.len() > 1);
    // At most so many bytes each value has.
    let mut values: Vec<u64> = Vec::with_capacity(ops.len());
    for op in ops {
        let of_bytes = |bytes: &Bytes| match bytes {
            Bytes::Lit(bytes) => bytes.len() as u64,
            // The operations before may not be known.
            Bytes::Of(Ref(at)) => values.get(usize::from(*at)).copied().unwrap_or(ANY),
        };
        let of_num = |num: &Num| if let Num::Lit(num) = num { *num } else { ANY };
        let (value, is_new) = match &op.kind {
            Kind::InputBytes { number } => match inputs.get(usize::from(*number)) {
                Some(Input::Bytes(bytes)) => (bytes.len() as u64, false),
                _ => (0, false),
            },
            Kind::Read { len, .. } => (of_num(len), true),
            Kind::Slice { bytes, len, .. } => (of_num(len).min(of_bytes(bytes)), true),
            Kind::Concat { parts } => (parts.iter().map(of_bytes).fold(0, u64::saturating_add), true),
            Kind::Patch { base, .. } => (of_bytes(base), true),
            Kind::GetXattr { .. } => (XATTR_BYTES_MAX, true),
            Kind::Decompress { max, .. } => (of_num(max), true),
            Kind::Compress { bytes, .. } => {
                preemptible = true;
                let plain = of_bytes(bytes);
                (plain.saturating_add(plain / 8 + 1024), true)
            }
            Kind::Call { .. } => {
                (preemptible, calls) = (true, CALL_BYTES_MAX as u64);
                (ANY, true)
            }
            _ => (0, false),
        };
        let value = value.min(ANY);
        held = ANY.min(held + if is_new { value } else { 0 });
        values.push(value);
    }
    Demand { user, preemptible, memory_bytes: held + calls }
}

#[cfg(test)]
mod tests {
    // What a test unwraps is what it asserts.
    #![allow(clippy::unwrap_used)]

    use super::*;
    use weft_vfs::compound::{Access, Chain, Codec};

    #[test]
    fn a_program_holds_what_its_operations_make_at_most() {
        let mut chain = Chain::all();
        let (file, block) = (chain.open("/f", Access::ReadWrite), chain.input_bytes(0));
        let read = chain.read(file, 0, 4096);
        let both = chain.concat([read.into(), block.into()]);
        let packed = chain.compress(both, Codec::Zstd, 0);
        chain.append(file, packed);
        let ops = &chain.check().unwrap().ops;
        let demand = demand_of(ops, &[Input::Bytes(&[0; 904])], 7);
        let expected = 4096 + 5000 + (5000 + 625 + 1024);
        assert_eq!((demand.memory_bytes, demand.preemptible, demand.user), (expected, true, 7));
        // One at a time, nothing is known of the operations before.
        let alone = demand_of(&ops[4..5], &[], 7);
        assert_eq!((alone.memory_bytes, alone.preemptible), (ANY, true));
        assert_eq!(demand_of(&ops[5..6], &[], 7).memory_bytes, 0);
        assert!(!demand_of(&ops[5..6], &[], 7).preemptible);
    }

    #[test]
    fn a_function_holds_its_memory_too() {
        let mut chain = Chain::all();
        let file = chain.open("/f", Access::Read);
        let module = chain.read(file, 0, 1 << 40);
        chain.call(module, "input", 1000);
        let demand = demand_of(&chain.check().unwrap().ops, &[], 7);
        assert_eq!(demand.memory_bytes, ANY + CALL_BYTES_MAX as u64);
    }
}
