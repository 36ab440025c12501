//! `-o`: the options of `mount(8)`, as fstab has them.

use crate::error::CliError;
use weft_fuse::MountChoice;

/// Options that say something to others: to fstab's readers, or to kernels with caches of their own.
const OF_OTHERS: &[&str] = &[
    "defaults",
    "async",
    "auto",
    "noauto",
    "user",
    "nouser",
    "users",
    "owner",
    "group",
    "nofail",
    "_netdev",
    "norelatime",
    "diratime",
    "nodiratime",
    "lazytime",
    "default_permissions",
];

/// What the kernel shows of a mount beside its options. mount(8) gives it back with `remount`, where it changes nothing.
const SHOWN: &[&str] =
    &["fd", "rootmode", "user_id", "group_id", "max_read", "blksize", "subtype", "fsname", "seclabel"];

/// Whether an option is one that the kernel shows of a mount that is there.
pub fn is_shown(option: &str) -> bool {
    let name = option.split_once('=').map_or(option, |(name, _)| name);
    SHOWN.contains(&name)
}

/// What [`apply`] knows, for the user.
const KNOWN: &str = "ro, rw, suid, nosuid, dev, nodev, exec, noexec, noatime, relatime, sync, async, dirsync, allow_other, \
     remount, writeback, restart, io_uring, and what fstab has for others (noauto, nofail, user, ...)";

/// Takes one option, or says that there is none.
pub fn apply(choice: &mut MountChoice, option: &str) -> Result<(), CliError> {
    match option {
        "ro" => choice.read_only = true,
        "rw" => choice.read_only = false,
        "suid" => choice.suid = true,
        "nosuid" => choice.suid = false,
        "dev" => choice.dev = true,
        "nodev" => choice.dev = false,
        "exec" => choice.no_exec = false,
        "noexec" => choice.no_exec = true,
        "noatime" => choice.no_atime = true,
        // There is no stricter way.
        "atime" | "relatime" | "strictatime" => choice.no_atime = false,
        "sync" => choice.sync = true,
        "dirsync" => choice.dir_sync = true,
        "allow_other" => choice.allow_other = true,
        "writeback" => choice.write_back = true,
        "restart" => choice.restart = true,
        "io_uring" => choice.io_uring = true,
        "" => {}
        option if OF_OTHERS.contains(&option) => {}
        option if option.starts_with("x-") || option.starts_with("comment=") => {}
        option => {
            return Err(CliError::said(
                format!("-o {option}: a mount has no such option"),
                format!("the options are {KNOWN}"),
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_option_of_a_kind_counts_and_unknown_ones_are_refused() {
        let chosen = |options: &str| {
            let mut choice = MountChoice::default();
            options.split(',').try_for_each(|option| apply(&mut choice, option)).map(|()| choice)
        };
        assert!(chosen("noatime").unwrap().no_atime && !chosen("noatime,relatime").unwrap().no_atime);
        let choice = chosen("ro,suid,noexec,rw,x-systemd.automount,noatime").unwrap();
        assert!(!choice.read_only && choice.suid && choice.no_exec && !choice.dev);
        assert!(is_shown("user_id=0") && is_shown("seclabel") && !is_shown("allow_other") && !is_shown("ro"));
        assert!(chosen("ro,user_id=0").unwrap_err().to_string().contains("user_id=0"));
        assert!(chosen("ro,compress").unwrap_err().to_string().contains("compress"));
    }
}
