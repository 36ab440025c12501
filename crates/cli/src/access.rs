//! Files of a volume for the commands: a client of the server that runs, or of one in this process.

use crate::error::CliError;
use crate::host::{self, Hosted, ServerAt, is_closing};
use crate::say::warn;
use crate::sys::signal;
use crate::tree::volume::{VolumeTree, system};
use serde::de::DeserializeOwned;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use weft_client::proto::{INSPECT_SNAPSHOT, INSPECT_ZONES};
use weft_client::shared::channel::PAYLOAD_BYTES;
use weft_client::{Client, ConnectOptions, WireStatfs};
use weft_volume::MountChoice;
use weft_volume::report::{Snapshot, Zone};

/// Where volumes appear to programs unless said otherwise; absolute symlinks below it stay on the volume.
pub const MOUNT_POINT: &str = "/weft";

/// An interrupted command waits this long for another process's server; that one may be stopped, or hang.
const ANSWER_PATIENCE_S: u32 = 2;

/// What this command is called among the programs of a volume.
const OWN_NAME: &str = "weft";

/// Why a volume cannot be used.
enum Refused {
    /// The server says so, or the kernel.
    By(i32, CliError),
    /// There is no server, and this process cannot be it.
    For(CliError),
}

/// A volume whose files can be used.
pub struct Access {
    name: String,
    client: Client,
    hosted: Option<Box<Hosted>>,
}

impl Access {
    /// Connects to the server of an image, or serves it from here.
    pub fn open(image: &Path) -> Result<Access, CliError> {
        Access::reach(image, &MountChoice::default())
    }

    /// As [`Access::open`], for what only looks: an image that nobody serves stays as it is.
    pub fn look(image: &Path) -> Result<Access, CliError> {
        Access::reach(image, &MountChoice { look: true, ..MountChoice::default() })
    }

    fn reach(image: &Path, choice: &MountChoice) -> Result<Access, CliError> {
        signal::notice_interrupts();
        let name = image.display().to_string();
        let attempt = || {
            let (socket, hosted): (PathBuf, _) = match host::reach(image, choice).map_err(Refused::For)? {
                ServerAt::Elsewhere(socket) => {
                    signal::end_after(ANSWER_PATIENCE_S);
                    (socket, None)
                }
                ServerAt::Here(hosted) => (hosted.socket().to_path_buf(), Some(hosted)),
            };
            let options = ConnectOptions {
                socket_path: socket.as_os_str().as_bytes(),
                mount_point: MOUNT_POINT.as_bytes(),
            };
            let connect = || Client::connect(&options);
            let connected = match hosted.is_some() {
                true => connect(),
                false => host::tells_of_waiting(&name, &socket, connect),
            };
            let failed = |errno| Refused::By(errno, CliError::io("connect to", &socket, system(errno)));
            connected.map(|client| (client, hosted)).map_err(failed)
        };
        let closes = |refused: &Refused| matches!(refused, Refused::By(errno, _) if is_closing(*errno));
        match host::until_open(attempt, closes) {
            Ok((client, hosted)) => Ok(Access { name, client, hosted }),
            Err(Refused::By(libc::EPROTO, _)) => Err(CliError::said(
                format!("{name}: another version of weft serves the volume"),
                "stop that server, or use the weft command of the same version",
            )),
            Err(Refused::By(_, error) | Refused::For(error)) => Err(error),
        }
    }

    /// Its files.
    pub fn tree(&self) -> VolumeTree<'_> {
        VolumeTree::new(&self.client, &self.name)
    }

    /// The connection to its server.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Its space.
    pub fn statfs(&self) -> Result<WireStatfs, CliError> {
        self.client.statfs().map_err(|e| self.error("space of", e))
    }

    /// Makes everything on it durable.
    pub fn sync(&self) -> Result<(), CliError> {
        self.client.sync().map_err(|e| self.error("sync", e))
    }

    /// Whether another process serves it.
    pub fn is_served_elsewhere(&self) -> bool {
        self.hosted.is_none()
    }

    /// An error when its server has gone: what was read since is not what is on it.
    pub fn check_alive(&self) -> Result<(), CliError> {
        match self.client.is_alive() {
            true => Ok(()),
            false => {
                Err(CliError::said(format!("{}: the server of the volume has ended", self.name), "try again"))
            }
        }
    }

    /// What it has counted. This command is not among the programs that run.
    pub fn snapshot(&self) -> Result<Snapshot, CliError> {
        let mut snapshot: Snapshot = self.inspect(INSPECT_SNAPSHOT, 0)?.0;
        let running = &mut snapshot.programs.running;
        if let Some(own) = running.iter().position(|name| name == OWN_NAME) {
            running.remove(own);
        }
        Ok(snapshot)
    }

    /// Its zones.
    pub fn zones(&self) -> Result<Vec<Zone>, CliError> {
        let (mut zones, mut from) = (Vec::new(), 0);
        loop {
            let (mut part, next): (Vec<Zone>, u64) = self.inspect(INSPECT_ZONES, from)?;
            zones.append(&mut part);
            if next <= from {
                return Ok(zones);
            }
            from = next;
        }
    }

    fn inspect<T: DeserializeOwned>(&self, topic: u64, from: u64) -> Result<(T, u64), CliError> {
        inspect(&self.client, topic, from).map_err(|e| self.error("ask", e))
    }

    /// The error of a call that failed.
    pub fn error(&self, what: &'static str, errno: i32) -> CliError {
        CliError::File { what, path: self.name.clone(), source: system(errno) }
    }

    /// Leaves the volume; when this process served it, waits for others that use it, then closes it.
    pub fn close(self) -> Result<(), CliError> {
        for fd in self.client.own_descriptors() {
            let _ = weft_client::sys::close(fd);
        }
        let Some(hosted) = self.hosted else { return Ok(()) };
        hosted.wait_for_clients(signal::was_interrupted, |clients| {
            warn(format_args!(
                "other processes still use {} ({clients} of them); waiting for them (Ctrl-C to stop)",
                self.name
            ));
        });
        hosted.stop().map(drop)
    }
}

/// Asks a server about a topic.
pub fn inspect<T: DeserializeOwned>(client: &Client, topic: u64, from: u64) -> Result<(T, u64), i32> {
    let mut text = vec![0; PAYLOAD_BYTES];
    let (len, next) = client.inspect(topic, from, &mut text)?;
    let told = serde_json::from_slice(&text[..len]).map_err(|error| {
        tracing::error!(%error, "a server's answer");
        libc::EPROTO
    })?;
    Ok((told, next))
}
