//! What processes share through names of the volume: the kernel's own pipes, sockets and memory stand behind them.

pub mod fifo;
pub mod shadow;
pub mod sockets;
