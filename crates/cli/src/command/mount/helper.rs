//! `mount.weft`: by this name, `mount(8)` starts the command for file systems of the type `weft`.
//!
//! The kernel shows a mount as `fuse.weft`. For this type, `mount -o remount` starts `mount.fuse.weft`, which can lead here, or
//! `mount.fuse3` of libfuse. That one runs `weft SOURCE DIR -o OPTIONS`.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// Names by which `mount(8)` knows the command.
const NAMES: [&str; 2] = ["mount.weft", "mount.fuse.weft"];

/// The command line of `weft mount` for one of `mount.weft SOURCE DIR [-sfnv] [-N SPACE] [-t TYPE] [-o OPTIONS]`, or for what
/// `mount.fuse3` makes of it; any other one as it is.
pub fn command_line(arguments: Vec<OsString>) -> Vec<OsString> {
    let name = arguments.first().map(Path::new).and_then(Path::file_name);
    let is_helper = name.is_some_and(|name| NAMES.iter().any(|known| name == OsStr::new(known)));
    let is_of_libfuse = !is_helper && is_of_libfuse(&arguments);
    if !is_helper && !is_of_libfuse {
        return arguments;
    }
    let mut line: Vec<OsString> = ["weft", "mount", "--daemon", "--quiet"].map(OsString::from).into();
    // It names what a mount lacks ("nosuid"), as it does for users, and not what every mount has. mount.fuse3 names that, too.
    if !is_of_libfuse {
        line.extend(["-o", "suid,dev"].map(OsString::from));
    }
    let mut rest = arguments.into_iter().skip(1);
    let mut places = Vec::new();
    while let Some(argument) = rest.next() {
        match argument.to_str() {
            Some("-o") => {
                line.push(argument);
                line.extend(rest.next());
            }
            // A namespace, and the type, by which it is known already.
            Some("-N" | "-t") => drop(rest.next()),
            // For others: of sloppiness, of mtab, of more words.
            Some(flags) if flags.starts_with('-') => {
                if flags.contains('f') && !flags.starts_with("--") {
                    line.push("--fake".into());
                }
            }
            _ => places.push(argument),
        }
    }
    line.extend(places);
    line
}

/// Whether these are the words of `mount.fuse3`: a source where a command would be, a directory, and options.
fn is_of_libfuse(arguments: &[OsString]) -> bool {
    let [_, source, _, flag, _] = arguments else { return false };
    // A path, as mount(8) makes it of a name, and no command that is misspelled.
    flag == "-o" && source.as_encoded_bytes().contains(&b'/') && !source.as_encoded_bytes().starts_with(b"-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_mount_gives_is_a_command_line_of_weft() {
        let line = |text: &str| {
            let words = command_line(text.split(' ').map(OsString::from).collect());
            words.join(OsStr::new(" ")).into_string().unwrap()
        };
        assert_eq!(line("weft mount -o ro a b"), "weft mount -o ro a b");
        assert_eq!(
            line("/sbin/mount.weft vol.img /mnt -n -o rw,nosuid -t fuse.weft"),
            "weft mount --daemon --quiet -o suid,dev -o rw,nosuid vol.img /mnt"
        );
        assert_eq!(line("mount.fuse.weft a b -fv"), "weft mount --daemon --quiet -o suid,dev --fake a b");
        assert_eq!(
            line("weft /srv/vol.img /mnt -o rw,user_id=0,remount,dev,suid"),
            "weft mount --daemon --quiet -o rw,user_id=0,remount,dev,suid /srv/vol.img /mnt"
        );
        for other in
            ["weft mout a -o b", "weft --log=/a a -o b", "weft a b", "weft a b -o", "weft mount a -o b"]
        {
            assert_eq!(line(other), other);
        }
    }
}
