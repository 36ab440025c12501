//! Computation near the data: what a host lends to programs beside files.

use weft_compute::{Codec, Error, Limits, Modules, Returned};

/// Codecs and users' functions. A host that runs in other programs' processes leaves them out, with the libraries that they take.
pub trait Near: Sync {
    /// Compresses bytes to at most `max`, by [`weft_compute::compress_in_slices`].
    ///
    /// # Errors
    /// Those of [`weft_compute::compress`].
    fn compress(
        &self,
        bytes: &[u8],
        codec: Codec,
        level: i32,
        max: usize,
        between: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<u8>, Error>;

    /// Decompresses bytes to at most `max`.
    ///
    /// # Errors
    /// Those of [`weft_compute::decompress`].
    fn decompress(&self, bytes: &[u8], codec: Codec, max: usize) -> Result<Vec<u8>, Error>;

    /// Calls the function of a module; `goes_on` is asked after each slice, with the nanoseconds so far.
    ///
    /// # Errors
    /// Those of [`weft_compute::Module`].
    fn call(
        &self,
        module: &[u8],
        input: &[u8],
        limits: Limits,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Returned, Error>;
}

/// In this process, by [`weft_compute`].
#[derive(Clone, Copy, Debug)]
pub struct Native;

/// The modules of all programs of this process.
static MODULES: Modules = Modules::new();

impl Near for Native {
    fn compress(
        &self,
        bytes: &[u8],
        codec: Codec,
        level: i32,
        max: usize,
        between: Option<&mut dyn FnMut()>,
    ) -> Result<Vec<u8>, Error> {
        weft_compute::compress_in_slices(bytes, codec, level, max, between)
    }

    fn decompress(&self, bytes: &[u8], codec: Codec, max: usize) -> Result<Vec<u8>, Error> {
        weft_compute::decompress(bytes, codec, max)
    }

    fn call(
        &self,
        module: &[u8],
        input: &[u8],
        limits: Limits,
        goes_on: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Returned, Error> {
        let begun = std::time::Instant::now();
        let module = MODULES.get(module)?;
        let compiled = begun.elapsed().as_nanos() as u64;
        module.call(input, limits, &mut |ns| goes_on(compiled + ns))
    }
}
