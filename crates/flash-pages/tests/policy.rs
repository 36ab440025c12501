//! A tag store on the policy level.

#![allow(clippy::unwrap_used)]

mod support;

use std::sync::Arc;
use support::{Rig, options};
use weft_tags::{Kv, SnodeId, Store};

#[test]
fn what_was_put_is_there_after_the_store_was_opened_again() {
    let rig = Rig::new();
    let pages = Arc::new(rig.create_policy());
    let store = Store::create(Box::new(pages.clone()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for key in 0..3000u32 {
        kv.put(&key.to_le_bytes(), &[key as u8; 700]).unwrap();
    }
    for key in 0..1000u32 {
        kv.delete(&key.to_le_bytes()).unwrap();
    }
    drop(kv);
    store.close().unwrap();
    pages.level().verify().unwrap();
    drop(pages);

    let store = Store::open(Box::new(rig.open_policy()), &options()).unwrap();
    let kv = Kv::open(&store, SnodeId::FIRST, "pairs").unwrap();
    for key in 0..3000u32 {
        let wanted = (key >= 1000).then(|| vec![key as u8; 700]);
        assert_eq!(kv.get(&key.to_le_bytes()).unwrap(), wanted, "{key}");
    }
    assert_eq!(store.check().unwrap().problems, Vec::<String>::new());
}
