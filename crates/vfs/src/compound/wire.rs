//! How values are laid out in bytes: integers little-endian, bytes behind their length, variants behind their number.
//!
//! Whoever decodes trusts nothing: a length is compared with what is left before anything is taken, so that no input makes it panic or
//! allocate more than the input is long, times the size of an element.

/// Why bytes are not decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum DecodeError {
    /// They end too early.
    #[error("the bytes end within a value")]
    Short,
    /// They go on behind the end.
    #[error("{0} bytes follow the end")]
    Long(usize),
    /// The version is another.
    #[error("version {0} of the encoding is not known")]
    Version(u16),
    /// A number stands for no variant, or for bits that are not known.
    #[error("{0} is no {1}")]
    Unknown(u64, &'static str),
}

/// What is left to decode.
pub(super) struct Encoded<'a>(pub &'a [u8]);

impl<'a> Encoded<'a> {
    pub(super) fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(DecodeError::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    /// Fails unless nothing is left.
    pub(super) fn end(&self) -> Result<(), DecodeError> {
        if self.0.is_empty() { Ok(()) } else { Err(DecodeError::Long(self.0.len())) }
    }
}

/// What has a layout.
pub(super) trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);
    fn get(input: &mut Encoded<'_>) -> Result<Self, DecodeError>;
}

macro_rules! wire_int {
    ($($int:ty),*) => {
        $(impl Wire for $int {
            fn put(&self, out: &mut Vec<u8>) {
                out.extend_from_slice(&self.to_le_bytes());
            }

            fn get(input: &mut Encoded<'_>) -> Result<Self, DecodeError> {
                let (bytes, rest) = input.0.split_first_chunk().ok_or(DecodeError::Short)?;
                input.0 = rest;
                Ok(<$int>::from_le_bytes(*bytes))
            }
        })*
    };
}
wire_int!(u8, u16, u32, u64, i32, i64);

impl Wire for bool {
    fn put(&self, out: &mut Vec<u8>) {
        u8::from(*self).put(out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<bool, DecodeError> {
        match u8::get(input)? {
            0 => Ok(false),
            1 => Ok(true),
            other => Err(DecodeError::Unknown(other.into(), "truth value")),
        }
    }
}

impl<T: Wire> Wire for Box<T> {
    fn put(&self, out: &mut Vec<u8>) {
        T::put(self, out);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Box<T>, DecodeError> {
        T::get(input).map(Box::new)
    }
}

/// Bytes, behind their number (32 bits). Limits keep it far below 4 GiB.
impl Wire for Vec<u8> {
    fn put(&self, out: &mut Vec<u8>) {
        debug_assert!(u32::try_from(self.len()).is_ok());
        (self.len() as u32).put(out);
        out.extend_from_slice(self);
    }

    fn get(input: &mut Encoded<'_>) -> Result<Vec<u8>, DecodeError> {
        let len = u32::get(input)?;
        Ok(input.take(len as usize)?.to_vec())
    }
}

/// A list behind its number of elements (8 bits), which [`check`](super::check) keeps that small.
pub(super) fn put_list<T: Wire>(list: &[T], out: &mut Vec<u8>) {
    debug_assert!(u8::try_from(list.len()).is_ok());
    (list.len() as u8).put(out);
    list.iter().for_each(|element| element.put(out));
}

/// Each element takes a byte at least, so a false number ends with the input.
pub(super) fn get_list<T: Wire>(input: &mut Encoded<'_>) -> Result<Vec<T>, DecodeError> {
    let len = u8::get(input)?;
    (0..len).map(|_| T::get(input)).collect()
}

/// The layout of an enum: the number of the variant (8 bits), then its fields in this order.
macro_rules! wire_enum {
    ($type:ident { $($number:literal => $variant:ident $({ $($field:ident),* })? $(($($inner:ident),*))?,)* }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                match self {
                    $($type::$variant $({ $($field),* })? $(($($inner),*))? => {
                        out.push($number);
                        $($($field.put(out);)*)?
                        $($($inner.put(out);)*)?
                    })*
                }
            }

            fn get(input: &mut Encoded<'_>) -> Result<$type, DecodeError> {
                match u8::get(input)? {
                    $($number => {
                        $($(let $field = Wire::get(input)?;)*)?
                        $($(let $inner = Wire::get(input)?;)*)?
                        Ok($type::$variant $({ $($field),* })? $(($($inner),*))?)
                    })*
                    other => Err(DecodeError::Unknown(other.into(), stringify!($type))),
                }
            }
        }
    };
}

/// The layout of a struct: its fields in this order.
macro_rules! wire_struct {
    ($type:ident { $($field:ident),* }) => {
        impl Wire for $type {
            fn put(&self, out: &mut Vec<u8>) {
                $(self.$field.put(out);)*
            }

            fn get(input: &mut Encoded<'_>) -> Result<$type, DecodeError> {
                $(let $field = Wire::get(input)?;)*
                Ok($type { $($field),* })
            }
        }
    };
}

pub(super) use {wire_enum, wire_struct};
