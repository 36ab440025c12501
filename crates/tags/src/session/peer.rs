//! The credentials of the peer of a socket, as the kernel reports them.

use std::io;
use std::os::unix::net::UnixStream;
use weft_core::Credentials;
use weft_sys::peer;

/// The user and groups that the other end had when it connected.
pub(super) fn credentials(stream: &UnixStream, owner_is_superuser: bool) -> io::Result<Credentials> {
    let (who, groups) = (peer::credentials(stream)?, peer::groups(stream)?);
    if owner_is_superuser && (who.uid == 0 || who.uid == weft_sys::effective_user().0) {
        return Ok(Credentials::superuser(who.uid));
    }
    Ok(Credentials { gid: who.gid, ..Credentials::user(who.uid, &groups) })
}
