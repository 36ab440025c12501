//! Bytes while a program runs.

use std::ops::Deref;
use std::sync::Arc;

/// Bytes that the program or its caller has, or that an operation made: never copied to be used.
#[derive(Clone, Debug)]
pub(super) enum Data<'a> {
    Lit(&'a [u8]),
    Made(Arc<Vec<u8>>),
}

impl Default for Data<'_> {
    fn default() -> Self {
        Data::Lit(&[])
    }
}

impl From<Vec<u8>> for Data<'_> {
    fn from(bytes: Vec<u8>) -> Self {
        Data::Made(Arc::new(bytes))
    }
}

impl Deref for Data<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Data::Lit(bytes) => bytes,
            Data::Made(bytes) => bytes,
        }
    }
}

impl Data<'_> {
    /// The bytes for whoever keeps them: copied only when another one has them, too.
    pub(super) fn into_vec(self) -> Vec<u8> {
        match self {
            Data::Lit(bytes) => bytes.to_vec(),
            Data::Made(bytes) => Arc::try_unwrap(bytes).unwrap_or_else(|shared| shared.to_vec()),
        }
    }
}
