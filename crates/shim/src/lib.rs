//! LD_PRELOAD front: libc calls to a weft volume.
