//! What a recording says of what a client did, over the in-memory core.

#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use weft_client::{Client, ConnectOptions, FileRef};
use weft_core::Ino;
use weft_placement::recording::{Event, FileAction, Workload};
use weft_placement::{OpenIntent, WriteHint};
use weft_server::{Server, Volume};
use weft_vfs::memfs::MemFs;
use weft_vfs::{CreateArgs, FileSystem, NewNode};
use weft_volume::{MountChoice, Mounted, Record};

struct Rig {
    server: Server,
    mounted: Arc<Mounted>,
    client: Client,
    dir: tempfile::TempDir,
}

impl Rig {
    fn new(prepare: impl FnOnce(&dyn FileSystem)) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let files = Arc::new(MemFs::new());
        prepare(files.as_ref());
        let record = Record { path: dir.path().join("recording"), program: "test".into() };
        let choice = MountChoice { record: Some(record), ..MountChoice::default() };
        let mounted = Arc::new(weft_volume::mount_memfs(files, &choice).unwrap());
        let path = dir.path().join("s");
        let server = Server::start(Volume::new(mounted.clone()).unwrap(), &path).unwrap();
        let socket_path = path.to_str().unwrap().as_bytes();
        let options = ConnectOptions { socket_path, mount_point: b"/weft" };
        Rig { client: Client::connect(&options).unwrap(), server, mounted, dir }
    }

    fn end(self) -> (String, Vec<Event>) {
        self.server.stop();
        self.mounted.close().unwrap();
        let text = std::fs::read_to_string(self.dir.path().join("recording")).unwrap();
        let events = Workload::parse(&text, "other").unwrap().events;
        (text, events)
    }
}

/// Events without who opened: lines behind the number of the thread differ from run to run.
fn kinds(events: &[Event]) -> Vec<String> {
    let line = |event: &Event| match &event.action {
        FileAction::Create { path, opener } => {
            format!("create {} {} {:?}", event.file, String::from_utf8_lossy(path), opener.flags)
        }
        FileAction::Reopen { path, .. } => format!("reopen {} {}", event.file, String::from_utf8_lossy(path)),
        _ => event.to_string(),
    };
    events.iter().map(line).collect()
}

#[test]
fn everything_that_happens_to_a_file_is_written_down_in_its_order() {
    let rig = Rig::new(|_| {});
    let c = &rig.client;
    let root = FileRef::ROOT;
    c.mkdir(root, b"/d", 0o755).unwrap();
    let flags = libc::O_CREAT | libc::O_EXCL | libc::O_WRONLY;
    let file = c.open(root, b"/d/a b", flags, 0o644).unwrap().file;
    c.set_hint(file, WriteHint::Medium as u32).unwrap();
    c.write(file, &[1; 5000]).unwrap();
    c.write(file, &[2; 100]).unwrap();
    c.pwrite(file, &[3; 10], 4096).unwrap();
    c.fsync(file).unwrap();
    c.ftruncate(file, 600).unwrap();
    c.close(file).unwrap();
    c.rename(root, b"/d/a b", root, b"/d/c", 0).unwrap();
    let again = c.open(root, b"/d/c", libc::O_WRONLY | libc::O_APPEND, 0).unwrap().file;
    c.write(again, b"more").unwrap();
    c.unlink(root, b"/d/c", 0).unwrap();
    c.write(again, b"and more").unwrap();
    c.close(again).unwrap();
    let (text, events) = rig.end();
    assert!(text.starts_with("V 1 test\n") && text.ends_with("\nE\n"), "{text}");
    let create = OpenIntent::CREATE | OpenIntent::WRITE | OpenIntent::EXCL;
    let expected = [
        &format!("create 1 /d/a b {create:?}"),
        "H 1 3",
        "W 1 5000",
        "W 1 100",
        "P 1 4096 10",
        "S 1",
        "T 1 600",
        "C 1",
        "M 1 /d/c",
        "reopen 1 /d/c",
        "W 1 4",
        "W 1 8",
        "C 1",
        "D 1",
    ];
    assert_eq!(kinds(&events), expected);
}

#[test]
fn a_file_with_two_names_lives_until_the_second_is_gone_or_replaced() {
    let rig = Rig::new(|_| {});
    let c = &rig.client;
    let root = FileRef::ROOT;
    for name in [b"/a", b"/b"] {
        let file = c.open(root, name, libc::O_CREAT | libc::O_WRONLY, 0o644).unwrap().file;
        c.write(file, b"x").unwrap();
        c.close(file).unwrap();
    }
    c.link(root, b"/a", root, b"/a2", 0).unwrap();
    c.unlink(root, b"/a", 0).unwrap();
    c.rename(root, b"/b", root, b"/a2", 0).unwrap();
    let (_, events) = rig.end();
    assert_eq!(kinds(&events)[6..], ["D 1", "M 2 /a2"]);
}

#[test]
fn files_that_were_there_before_come_first_with_their_bytes() {
    let rig = Rig::new(|fs| {
        let args = |node| CreateArgs { tag: Default::default(), ..CreateArgs::new(node, 0o755) };
        let dir = fs.create(Ino::ROOT, b"d", &args(NewNode::Directory)).unwrap().ino;
        let file = fs.create(dir, b"f", &args(NewNode::File)).unwrap().ino;
        fs.write(file, 0, &[0; 9000]).unwrap();
        fs.link(file, Ino::ROOT, b"same").unwrap();
    });
    let file = rig.client.open(FileRef::ROOT, b"/same", libc::O_WRONLY | libc::O_TRUNC, 0).unwrap().file;
    rig.client.close(file).unwrap();
    let (_, events) = rig.end();
    let events = kinds(&events);
    assert!(events[0].starts_with("create 1 /"), "{events:?}");
    assert_eq!(events[1..], ["W 1 9000", "C 1", "T 1 0", "reopen 1 /same"]);
}
