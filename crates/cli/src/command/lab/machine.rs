//! The virtual machine: QEMU's command line, the drives, and the guest's life from its start to the command's status.
//!
//! The guest and this process share a folder of one run, which holds the command to start and receives its exit
//! status. The command's two outputs come through channels of their own to QEMU's two outputs, and from there to this
//! process's. Should this process die, the kernel ends QEMU.

use super::args::{Accel, LabArgs};
use super::kernel::{Cache, Kernel, RUN_PREFIX};
use crate::error::CliError;
use crate::say::warn;
use crate::sys::signal::{self, ENDING, Queue};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use weft_core::units::parse_size;

const QEMU: &str = "qemu-system-x86_64";
/// Exit status of a command that took too long, as `timeout` has it.
const TIMED_OUT: u8 = 124;
/// Lines of the guest's console that an error shows.
const CONSOLE_LINES: usize = 12;
/// Folders that the guest has for itself.
const OWN_FOLDERS: [&str; 3] = ["/tmp", "/mnt", "/run"];
const FDP_SIZE: u64 = 512 << 20;

/// The emulator on this host.
pub struct Qemu {
    version: (u32, u32),
}

impl Qemu {
    /// Asks the emulator for its version.
    pub fn find() -> Result<Qemu, CliError> {
        let missing = |why: String| {
            CliError::said(
                format!("{QEMU}: {why}"),
                "install QEMU 7.0 or newer with 'apt-get install qemu-system-x86'",
            )
        };
        let output = Command::new(QEMU).arg("--version").output().map_err(|e| missing(e.to_string()))?;
        let text = String::from_utf8_lossy(&output.stdout);
        let version = parse_version(&text).ok_or_else(|| missing(format!("says '{}'", text.trim())))?;
        if version < (7, 0) {
            return Err(missing(format!("version {}.{} is too old", version.0, version.1)));
        }
        Ok(Qemu { version })
    }

    /// Whether it can emulate a drive with flexible data placement.
    pub fn has_fdp(&self) -> bool {
        self.version >= (8, 0)
    }

    /// Its version.
    pub fn version(&self) -> String {
        format!("{}.{}", self.version.0, self.version.1)
    }
}

fn parse_version(text: &str) -> Option<(u32, u32)> {
    let number = text.split_once("version ")?.1;
    let mut parts = number.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// A folder that goes with its owner.
struct RunFolder(PathBuf);

impl Drop for RunFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A machine that is ready to start.
pub struct Machine {
    run: RunFolder,
    command: Command,
}

impl Machine {
    /// Makes the drives and the command line.
    pub fn new(
        args: &LabArgs,
        qemu: &Qemu,
        cache: &Cache,
        kernel: &Kernel,
        initramfs: &Path,
    ) -> Result<Machine, CliError> {
        cache.remove_left_runs();
        let run = RunFolder(cache.folder(&format!("{RUN_PREFIX}{}", std::process::id()))?);
        let control = run.0.join("control");
        std::fs::create_dir(&control).map_err(|e| CliError::io("make", &control, e))?;
        let share = match &args.share {
            Some(dir) => dir.canonicalize().map_err(|e| CliError::io("share", dir, e))?,
            None => cache.folder("share")?,
        };
        write_control(args, &control, qemu.has_fdp())?;

        let mut command = Command::new(QEMU);
        command.args(["-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-machine", "q35"]);
        command.args(match accel(args.accel) {
            Accel::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Emulated, a string instruction moves one byte, or word, after the other. Without the promise that those of
            // bytes are fast, the kernel and libc copy by words and vectors.
            _ => ["-accel", "tcg,thread=multi", "-cpu", "max,erms=off"],
        });
        let megabytes = (parse_size(&args.memory)? >> 20).max(256);
        command.arg("-smp").arg(args.cpus.to_string()).arg("-m").arg(megabytes.to_string());
        command.arg("-kernel").arg(&kernel.image).arg("-initrd").arg(initramfs);
        command.args(["-append", "console=ttyS0 loglevel=5 mitigations=off panic=-1"]);
        command.args(["-serial", "file:console"]);
        // The pipes behind this process's two ends are QEMU's own standard outputs.
        command.args(["-device", "virtio-serial-pci"]);
        for (name, fd) in [("out", 1), ("err", 2)] {
            command.arg("-chardev").arg(format!("file,id={name},path=/proc/self/fd/{fd},append=on"));
            command.arg("-device").arg(format!("virtserialport,chardev={name},name={name}"));
        }
        folder(&mut command, "host", Path::new("/"), ",readonly=on,multidevs=remap");
        folder(&mut command, "control", &control, "");
        folder(&mut command, "share", &share, ",multidevs=remap");
        drives(args, qemu, &run.0, &mut command)?;
        command.current_dir(&run.0).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Ok(Machine { run, command })
    }

    /// Boots it, passes on what the command says, and returns its status.
    pub fn run(mut self, args: &LabArgs, signals: &Queue) -> Result<u8, CliError> {
        let failed = |e| CliError::io("start", Path::new(QEMU), e);
        let unblock = signals.unblock_in_child();
        // SAFETY: the closure only makes system calls that are safe after fork.
        unsafe { self.command.pre_exec(move || die_with_parent().and_then(|()| unblock())) };
        // In a group of its own, so that the terminal's signals come to this process alone.
        let mut child = self.command.process_group(0).spawn().map_err(failed)?;
        let mut threads = Vec::new();
        if let Some(stdout) = child.stdout.take() {
            threads.push(std::thread::spawn(move || pass_on(stdout, io::stdout())));
        }
        if let Some(stderr) = child.stderr.take() {
            threads.push(std::thread::spawn(move || pass_on(stderr, io::stderr())));
        }
        let ended = wait(&mut child, signals, args.timeout).map_err(failed)?;
        for thread in threads {
            // A thread that panicked has nothing more to pass on.
            let _ = thread.join();
        }
        let console = self.run.0.join("console");
        if let Some(log) = &args.log {
            std::fs::copy(&console, log).map_err(|e| CliError::io("write", log, e))?;
        }
        match ended {
            GuestExit::Signal(signal) => return Ok(128 + signal as u8),
            GuestExit::TimedOut => {
                warn(format_args!("the command took longer than {} s", args.timeout.unwrap_or_default()));
                return Ok(TIMED_OUT);
            }
            GuestExit::Itself => {}
        }
        let control = self.run.0.join("control");
        let status = std::fs::read_to_string(control.join("status")).unwrap_or_default();
        status.trim().parse().map_err(|_| {
            let why = std::fs::read_to_string(control.join("failure")).map_or_else(
                |_| "the guest ended before the command did".into(),
                |why| why.trim().to_string(),
            );
            CliError::said(format!("lab: {why}"), last_lines(&console))
        })
    }
}

/// How the guest ended.
enum GuestExit {
    Itself,
    Signal(i32),
    TimedOut,
}

fn wait(child: &mut Child, signals: &Queue, timeout: Option<u64>) -> io::Result<GuestExit> {
    let begun = Instant::now();
    let mut why = GuestExit::Itself;
    loop {
        if child.try_wait()?.is_some() {
            return Ok(why);
        }
        let came = signals.next(Duration::from_millis(500))?;
        if let Some(came) = came.filter(|came| ENDING.contains(&came.signal)) {
            why = GuestExit::Signal(came.signal);
        } else if timeout.is_some_and(|seconds| begun.elapsed() > Duration::from_secs(seconds)) {
            why = GuestExit::TimedOut;
        } else {
            continue;
        }
        // The drives go with the run, so there is nothing to be saved, and a gentler signal would be talked about.
        signal::send(child.id(), libc::SIGKILL);
    }
}

fn pass_on(mut from: impl Read, mut to: impl Write) {
    let mut buffer = [0; 16 << 10];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return,
            Ok(n) => {
                // Nobody may be left to read it; the guest goes on all the same.
                let _ = to.write_all(&buffer[..n]).and_then(|()| to.flush());
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}

/// Lets the kernel end this process when the thread that started it ends.
fn die_with_parent() -> io::Result<()> {
    // SAFETY: a system call on numbers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn accel(wanted: Accel) -> Accel {
    if wanted != Accel::Auto {
        return wanted;
    }
    let cpus = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = cpus.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let can = flags.split_whitespace().any(|flag| flag == "vmx" || flag == "svm");
    let may = File::options().read(true).write(true).open("/dev/kvm").is_ok();
    if can && may { Accel::Kvm } else { Accel::Tcg }
}

fn folder(command: &mut Command, tag: &str, path: &Path, more: &str) {
    let mut fsdev = OsString::from(format!("local,id={tag},security_model=none{more},path="));
    fsdev.push(doubled_commas(path.as_os_str()));
    command.arg("-fsdev").arg(fsdev);
    command.arg("-device").arg(format!("virtio-9p-pci,fsdev={tag},mount_tag={tag}"));
}

/// A path within an option list of QEMU.
fn doubled_commas(path: &OsStr) -> OsString {
    use std::os::unix::ffi::OsStringExt;
    let doubled = path.as_bytes().iter().flat_map(|&b| std::iter::repeat_n(b, if b == b',' { 2 } else { 1 }));
    OsString::from_vec(doubled.collect())
}

/// Adds the drives; their files are sparse and go with the run.
fn drives(args: &LabArgs, qemu: &Qemu, run: &Path, command: &mut Command) -> Result<(), CliError> {
    let file = |name: &str, bytes: u64| -> Result<(), CliError> {
        let path = run.join(name);
        File::create(&path).and_then(|file| file.set_len(bytes)).map_err(|e| CliError::io("make", &path, e))
    };
    let zone_bytes = parse_size(&args.zone_size)?;
    let capacity = args.zone_capacity.as_deref().map_or(Ok(zone_bytes), parse_size)?;
    let whole_blocks = zone_bytes.is_power_of_two() && zone_bytes >= 4096;
    if !whole_blocks || capacity == 0 || capacity > zone_bytes || !capacity.is_multiple_of(4096) {
        return Err(CliError::said(
            format!("--zone-size {zone_bytes} and --zone-capacity {capacity} do not make a valid zone"),
            "--zone-size must be a power of two; --zone-capacity must be a multiple of 4K and at most the zone size",
        ));
    }
    let zones = parse_size(&args.size)? / zone_bytes;
    file("zoned", zones * zone_bytes)?;
    let drive = |name: &str| format!("if=none,id={name},file={name},format=raw,cache=unsafe,discard=unmap");
    let blocks = "logical_block_size=4096,physical_block_size=4096";
    command.arg("-drive").arg(drive("zoned"));
    command.args(["-device", "nvme,id=nvme-zoned,serial=weft-zoned"]).arg("-device").arg(format!(
        "nvme-ns,drive=zoned,bus=nvme-zoned,nsid=1,zoned=true,zoned.zone_size={zone_bytes},\
         zoned.zone_capacity={capacity},zoned.max_open={},zoned.max_active={},{blocks}",
        args.max_open, args.max_active
    ));
    file("plain", parse_size(&args.plain_size)?)?;
    command.arg("-drive").arg(drive("plain"));
    command.arg("-device").arg(format!("virtio-blk-pci,drive=plain,serial=weft-plain,{blocks}"));
    if qemu.has_fdp() {
        file("fdp", FDP_SIZE)?;
        command.arg("-drive").arg(drive("fdp"));
        command.args(["-device", "nvme-subsys,id=fdp-subsys,fdp=on,fdp.nruh=8,fdp.runs=4M"]);
        command.args(["-device", "nvme,id=nvme-fdp,serial=weft-fdp,subsys=fdp-subsys", "-device"]);
        command.arg(format!("nvme-ns,drive=fdp,bus=nvme-fdp,nsid=1,fdp.ruhs=0-7,{blocks}"));
    }
    Ok(())
}

/// Writes down what the guest has to know.
fn write_control(args: &LabArgs, control: &Path, fdp: bool) -> Result<(), CliError> {
    let write = |name: &str, content: &[u8]| {
        let path = control.join(name);
        std::fs::write(&path, content).map_err(|e| CliError::io("write", &path, e))
    };
    let here = std::env::current_dir().map_err(|e| CliError::io("find", Path::new("."), e))?;
    let own = std::env::current_exe().map_err(|e| CliError::io("find", Path::new("/proc/self/exe"), e))?;
    let own = own.parent().unwrap_or(Path::new("/")).to_path_buf();
    let mut seen = Vec::new();
    let given = args.see.iter().map(|dir| dir.canonicalize().map_err(|e| CliError::io("see", dir, e)));
    for dir in [Ok(here.clone()), Ok(own.clone())].into_iter().chain(given) {
        let dir = dir?;
        if OWN_FOLDERS.iter().any(|own| dir.starts_with(own)) && !seen.contains(&dir) {
            seen.push(dir);
        }
    }
    let lines = |paths: &[PathBuf]| {
        paths.iter().flat_map(|path| [path.as_os_str().as_bytes(), b"\n"].concat()).collect::<Vec<u8>>()
    };
    write("seen", &lines(&seen))?;
    write("modules", args.module.join("\n").as_bytes())?;
    write("drives", if fdp { b"zoned plain fdp\n" } else { b"zoned plain\n" })?;
    write("start", &start_script(std::env::vars_os(), &own, &here, &args.command))
}

/// The script that the guest runs: this process's environment and folder, then the command. Its first line is its own,
/// so that the first process can add to it below.
fn start_script(
    environment: impl Iterator<Item = (OsString, OsString)>,
    own: &Path,
    here: &Path,
    command: &[OsString],
) -> Vec<u8> {
    let mut script = b"#!/bin/sh\n".to_vec();
    for (name, value) in environment {
        // What the host has there, the guest has not.
        let of_host = ["XDG_RUNTIME_DIR", "TMPDIR", "WEFT_SOCKET", "LD_PRELOAD", "_", "PWD", "OLDPWD"];
        let name = name.as_bytes();
        let plain = name.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_')
            && name.first().is_some_and(|b| !b.is_ascii_digit());
        if plain && !of_host.iter().any(|of| of.as_bytes() == name) {
            script.extend_from_slice(&[b"export ", name, b"=", &quoted(value.as_bytes()), b"\n"].concat());
        }
    }
    script.extend_from_slice(b"export WEFT_LAB=1 WEFT_LAB_SHARE=/mnt/share\nPATH=");
    script.extend_from_slice(&quoted(own.as_os_str().as_bytes()));
    script.extend_from_slice(b":$PATH:/usr/sbin:/sbin\nexport PATH\n");
    script.extend_from_slice(
        &[b"cd ", &quoted(here.as_os_str().as_bytes())[..], b" || exit 125\nexec"].concat(),
    );
    for word in command {
        script.push(b' ');
        script.extend_from_slice(&quoted(word.as_bytes()));
    }
    script.push(b'\n');
    script
}

/// A word as a shell reads it.
fn quoted(word: &[u8]) -> Vec<u8> {
    let parts: Vec<&[u8]> = word.split(|byte| *byte == b'\'').collect();
    [b"'", &parts.join(&b"'\\''"[..])[..], b"'"].concat()
}

fn last_lines(path: &Path) -> String {
    let text = std::fs::read(path).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    let last = &lines[lines.len().saturating_sub(CONSOLE_LINES)..];
    format!("the end of its console:\n        {}", last.join("\n        "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        assert_eq!(parse_version("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7)"), Some((7, 2)));
        assert_eq!(parse_version("QEMU emulator version 10.0"), Some((10, 0)));
        assert_eq!(parse_version("something else"), None);
    }

    #[test]
    fn a_started_command_gets_its_words_and_environment_as_they_are() {
        let environment = [("A", "x'y $Z\n"), ("BASH_FUNC_f%%", "() {}"), ("TMPDIR", "/t"), ("N", "")];
        let environment = environment.map(|(name, value)| (name.into(), value.into()));
        let command = ["/usr/bin/printf", "%s|", "a b", "it's", "$A"].map(OsString::from);
        let script = start_script(environment.into_iter(), Path::new("/own dir"), Path::new("/"), &command);
        let output = Command::new("/bin/sh").arg("-c").arg(OsStr::from_bytes(&script)).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "a b|it's|$A|");
        let text = String::from_utf8_lossy(&script).into_owned();
        assert!(text.contains("export A='x'\\''y $Z\n'"), "{text}");
        assert!(!text.contains("BASH_FUNC") && !text.contains("TMPDIR"), "{text}");
    }
}
