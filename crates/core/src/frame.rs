//! Frames on a stream: a length of four bytes, then the body.

use crate::codec::WriteFields;
use std::io::{self, Read, Write};

/// Sends a frame.
pub fn send(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let mut frame = Vec::with_capacity(body.len() + 4);
    frame.put_u32(body.len() as u32);
    frame.extend_from_slice(body);
    stream.write_all(&frame)
}

/// The next frame; `None` when the other side is gone. One of more than `max` bytes is refused before there is room for it.
pub fn receive(stream: &mut impl Read, max: usize) -> io::Result<Option<Vec<u8>>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        other => other?,
    }
    let length = u32::from_le_bytes(length) as usize;
    if length > max {
        return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes")));
    }
    let mut body = vec![0; length];
    stream.read_exact(&mut body)?;
    Ok(Some(body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_back_and_ones_that_are_too_long_or_cut_are_refused() {
        let mut sent = Vec::new();
        send(&mut sent, b"hello").unwrap();
        send(&mut sent, b"").unwrap();
        let mut stream = &sent[..];
        assert_eq!(receive(&mut stream, 5).unwrap().as_deref(), Some(&b"hello"[..]));
        assert_eq!(receive(&mut stream, 5).unwrap().as_deref(), Some(&b""[..]));
        assert_eq!(receive(&mut stream, 5).unwrap(), None);
        assert_eq!(receive(&mut &sent[..], 4).unwrap_err().kind(), io::ErrorKind::InvalidData);
        assert!(receive(&mut &sent[..7], 5).is_err());
    }
}
