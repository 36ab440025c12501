//! Fronts: the ways by which programs reach a served volume. A front begins a process in the state for each program
//! that it serves, decodes requests into calls of [`Session`](crate::ops::Session), and encodes the results. What an
//! operation does is the same by every front.

pub mod slots;
