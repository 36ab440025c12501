//! Models of applications, to compare the levels on them.

mod reserve;
mod slabs;
mod table1;

pub use reserve::Reserve;
pub use slabs::{SlabCache, SlabCounts, SlabStore};
pub use table1::{Table1, Table1Row, table1};
