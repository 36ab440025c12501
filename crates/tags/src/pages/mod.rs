//! Pages: the page table ([`table`]) and the cache ([`pool`]).
//!
//! A page has a number in the single-level store, which is where node ids point, and a block on the medium, which is a
//! new one each time the page is written. So no page is ever overwritten in place, and a checkpoint of a thousand
//! pages from all over the store is one sequential write.

pub(crate) mod access;
pub(crate) mod classes;
pub(crate) mod desc;
pub(crate) mod erasure;
pub(crate) mod eviction;
pub(crate) mod numbers;
pub(crate) mod pool;
pub(crate) mod table;
pub(crate) mod versions;
