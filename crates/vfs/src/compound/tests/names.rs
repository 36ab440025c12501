//! The names of the parts of programs.

use super::random::Random;
use super::*;
use std::collections::BTreeMap;
use std::mem::discriminant;

#[test]
fn each_kind_and_each_policy_has_a_name_that_no_other_one_has() {
    let mut kinds = BTreeMap::new();
    for seed in 0..500 {
        for op in Random::new(seed).any_program().ops {
            let kind = kinds.entry(op.kind.name()).or_insert_with(|| op.kind.clone());
            assert_eq!(discriminant(kind), discriminant(&op.kind), "{}", op.kind.name());
        }
    }
    assert_eq!(kinds.len(), 33, "{:?}", kinds.keys());
    let policies = Policy::EVERY.map(|policy| (policy.name(), policy));
    assert_eq!(BTreeMap::from(policies).len(), 3);
}
