//! The ways in which programs reach a served volume. A front decodes requests and encodes replies, and gives each program that
//! it serves a process in the state; what a request does is the same by every front.

pub mod slots;
