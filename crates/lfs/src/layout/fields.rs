//! The fields of records. A field's type says how it is written, so it is part of the format.

use weft_core::codec::WriteFields;
use weft_core::{Ino, Tag, ZoneId};

/// What a record is made of.
pub trait Field {
    /// Appends the bytes that stand for it.
    fn put(&self, out: &mut Vec<u8>);
}

/// Appends fields, one after the other.
pub fn put(out: &mut Vec<u8>, fields: &[&dyn Field]) {
    fields.iter().for_each(|field| field.put(out));
}

macro_rules! fields {
    ($($type:ty => |$out:ident, $value:ident| $put:expr;)*) => {$(
        impl Field for $type {
            fn put(&self, $out: &mut Vec<u8>) {
                let $value = self;
                $put
            }
        }
    )*};
}

fields! {
    u8 => |out, value| out.put_u8(*value);
    u16 => |out, value| out.put_u16(*value);
    u32 => |out, value| out.put_u32(*value);
    u64 => |out, value| out.put_u64(*value);
    i64 => |out, value| out.put_i64(*value);
    bool => |out, value| out.put_u8(u8::from(*value));
    [i64; 3] => |out, value| value.iter().for_each(|each| out.put_i64(*each));
    &[u8] => |out, value| out.put_string(value);
    Ino => |out, value| out.put_u64(value.0);
    ZoneId => |out, value| out.put_u32(value.0);
    Tag => |out, value| out.extend_from_slice(&value.encode());
}
