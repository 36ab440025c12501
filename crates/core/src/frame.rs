//! Frames on a stream: a length of four bytes, then the body.

use crate::codec::WriteFields;
use std::io::{self, Read, Write};

/// Sends a frame. Of a long body only the beginning is copied to follow the length at once, so that a receiver that takes its time
/// costs the sender the body once.
pub fn send(stream: &mut impl Write, body: &[u8]) -> io::Result<()> {
    let (first, rest) = body.split_at(body.len().min(ROOM_AT_FIRST));
    let mut begin = Vec::with_capacity(first.len() + 4);
    begin.put_u32(body.len() as u32);
    begin.extend_from_slice(first);
    stream.write_all(&begin)?;
    drop(begin);
    stream.write_all(rest)
}

/// Bytes of a frame that room is made for before any has arrived, and that are sent with the length.
const ROOM_AT_FIRST: usize = 64 << 10;

/// The next frame; `None` when the other side is gone. One of more than `max` bytes is refused before there is room for it. Room is
/// made as bytes arrive: a length alone costs the receiver nothing.
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
    let mut body = Vec::new();
    while body.len() < length {
        let arrived = body.len();
        body.resize(length.min((2 * arrived).max(ROOM_AT_FIRST)), 0);
        stream.read_exact(&mut body[arrived..])?;
    }
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

    /// A stream that tells the most bytes that it was given from elsewhere than a body.
    struct Given<'a>(&'a [u8], usize);

    impl Write for Given<'_> {
        fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
            if !self.0.as_ptr_range().contains(&buffer.as_ptr()) {
                self.1 = self.1.max(buffer.len());
            }
            Ok(buffer.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_long_body_is_sent_from_where_it_lies() {
        let body = vec![7; 16 << 20];
        let mut given = Given(&body, 0);
        send(&mut given, &body).unwrap();
        assert!(given.1 <= (64 << 10) + 4, "{} bytes were copied", given.1);
        for bytes in [(64 << 10) - 1, 64 << 10, (64 << 10) + 1, 200_000] {
            let mut sent = Vec::new();
            send(&mut sent, &body[..bytes]).unwrap();
            assert!(receive(&mut &sent[..], bytes).unwrap().unwrap() == body[..bytes]);
        }
    }

    /// A stream that tells the most bytes that it was asked for at once.
    struct Asked<'a> {
        left: &'a [u8],
        most: usize,
    }

    impl Read for Asked<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            self.most = self.most.max(buffer.len());
            self.left.read(buffer)
        }
    }

    #[test]
    fn room_for_a_frame_is_made_as_it_arrives() {
        let length = 16usize << 20;
        let mut sent = Vec::new();
        send(&mut sent, &(0..length).map(|n| (n / 1000) as u8).collect::<Vec<u8>>()).unwrap();
        for arrived in [0, 1, 1000, 200_000, 3 << 20] {
            let mut stream = Asked { left: &sent[..4 + arrived], most: 0 };
            assert!(receive(&mut stream, length).is_err());
            let most = (64 << 10).max(2 * arrived);
            assert!(stream.most <= most, "{} bytes of room after {arrived} of {length}", stream.most);
        }
        let whole = receive(&mut Asked { left: &sent, most: 0 }, length).unwrap().unwrap();
        assert!(whole == sent[4..]);
    }
}
