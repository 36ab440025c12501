//! Write amplification of a tag store on flash under a mixed update workload: with tags that choose the streams and with one stream,
//! with and without what is free being told to the flash. The device is a model, and so are its times; the counts are exact. They differ a
//! little from run to run, since each store has a hash secret of its own.
//!
//! `cargo run --release -p weft-flash-pages --example waf [TURNS]`

#![allow(clippy::print_stdout, reason = "an example prints")]

use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::error::Error;
use std::io::{self, IoSlice};
use std::sync::Arc;
use weft_core::Tag;
use weft_device::Geometry;
use weft_device::nand::{FlashSetup, OpenChannel};
use weft_flash::{Grant, GrantRequest, Monitor, MonitorSetup};
use weft_flash_pages::{FunctionPages, FunctionPagesSetup, PolicyPages, PolicyPagesSetup, StreamChoice};
use weft_tags::{
    DataClass, EdgeType, Info, InfoForm, NodeId, NodeType, Options, PageStore, SnodeId, SnodeTags, Store,
};

const FILE: NodeType = NodeType(1);
const DEVICE_BYTES: u64 = 256 << 20;
/// Over-provisioning, in thousandths.
const OP_PERMILLE: u32 = 100;
/// Small files, updated again and again: half of all updates go to a tenth of them.
const SMALL: u64 = 16_000;
/// Files that are written once and stay for long.
const LARGE: u64 = 900;
/// Files that are overwritten in place, 4 KiB at a time.
const IN_PLACE: u64 = 200;
/// Files that live for so many turns.
const TEMPORARY: u64 = 200;

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// A medium that keeps to itself what is free.
struct Deaf(Arc<dyn PageStore>);

impl PageStore for Deaf {
    fn read(&self, block: u64, out: &mut [u8]) -> io::Result<()> {
        self.0.read(block, out)
    }

    fn write(&self, block: u64, tag: &Tag, parts: &[IoSlice<'_>]) -> io::Result<()> {
        self.0.write(block, tag, parts)
    }

    fn sync(&self) -> io::Result<()> {
        self.0.sync()
    }

    fn blocks(&self) -> u64 {
        self.0.blocks()
    }

    fn grow(&self, blocks: u64) -> io::Result<()> {
        self.0.grow(blocks)
    }
}

struct Files {
    root: NodeId,
    snode: SnodeId,
    holds: EdgeType,
}

impl Files {
    fn new(store: &Store, class: DataClass) -> Result<Files> {
        let holds = store.edge_type("holds", InfoForm::Number)?;
        let mut tx = store.begin();
        let snode = tx.create_snode_apart(&SnodeTags { class, ..SnodeTags::default() })?;
        let root = tx.root(snode)?;
        tx.commit()?;
        Ok(Files { root, snode, holds })
    }

    fn put(&self, tx: &mut weft_tags::Transaction<'_>, number: u64, data: &[u8]) -> Result<()> {
        let node = tx.create_node(self.snode, FILE, data)?;
        tx.set_edge(self.root, self.holds, Info::Number(number), node)?;
        Ok(())
    }
}

/// The workload: every turn is a transaction that is durable when it ends.
fn run(store: &Store, turns: u64) -> Result<()> {
    let mut rng = StdRng::seed_from_u64(27);
    let small = Files::new(store, DataClass::Small)?;
    let large = Files::new(store, DataClass::Immutable)?;
    let in_place = Files::new(store, DataClass::InPlace)?;
    let temporary = Files::new(store, DataClass::Temporary)?;
    let small_len = |rng: &mut StdRng| rng.random_range(200..2_000usize);
    let large_len = |rng: &mut StdRng| rng.random_range(60_000..180_000usize);
    for number in 0..SMALL.max(LARGE).max(IN_PLACE) {
        let mut tx = store.begin();
        if number < SMALL {
            small.put(&mut tx, number, &vec![1; small_len(&mut rng)])?;
        }
        if number < LARGE {
            large.put(&mut tx, number, &vec![2; large_len(&mut rng)])?;
        }
        if number < IN_PLACE {
            in_place.put(&mut tx, number, &vec![3; 64 << 10])?;
        }
        tx.commit()?;
    }
    for turn in 0..turns {
        let mut tx = store.begin();
        for _ in 0..6 {
            let hot = rng.random_bool(0.5);
            let number = rng.random_range(0..if hot { SMALL / 10 } else { SMALL });
            small.put(&mut tx, number, &vec![turn as u8; small_len(&mut rng)])?;
        }
        if turn % 16 == 0 {
            large.put(&mut tx, rng.random_range(0..LARGE), &vec![turn as u8; large_len(&mut rng)])?;
        }
        let file = Info::Number(rng.random_range(0..IN_PLACE));
        if let Some(node) = tx.edge(in_place.root, in_place.holds, file)? {
            tx.write_at(node, FILE, rng.random_range(0..15) << 12, &[turn as u8; 4096])?;
        }
        temporary.put(&mut tx, turn, &vec![turn as u8; rng.random_range(8_000..32_000)])?;
        if turn >= TEMPORARY {
            tx.delete_edge(temporary.root, temporary.holds, Info::Number(turn - TEMPORARY))?;
        }
        tx.commit()?;
    }
    store.checkpoint()?;
    Ok(())
}

fn allocate(device: &Arc<OpenChannel>) -> Result<Grant> {
    let monitor = Monitor::format(device.clone(), MonitorSetup::default())?;
    let all = u64::from(monitor.free_luns()?) * monitor.lun_bytes();
    let bytes = all * 1000 / (1000 + u64::from(OP_PERMILLE)) / 4096 * 4096;
    let request = GrantRequest { name: "store".into(), bytes, over_provisioning_permille: OP_PERMILLE };
    Ok(monitor.allocate(&request)?)
}

fn measure(level: &str, streams: StreamChoice, hears: bool, turns: u64) -> Result<()> {
    let geometry = Geometry { channels: 4, luns_per_channel: 2, pages_per_block: 64, ..Geometry::bbssd() };
    let device = Arc::new(OpenChannel::memory(&FlashSetup::new(geometry.with_size(DEVICE_BYTES)))?);
    let grant = allocate(&device)?;
    let (policy, function) = match level {
        "policy" => {
            let setup = PolicyPagesSetup { streams, ..PolicyPagesSetup::default() };
            (Some(Arc::new(PolicyPages::create(grant, setup)?)), None)
        }
        _ => {
            let setup = FunctionPagesSetup { streams, ..FunctionPagesSetup::default() };
            (None, Some(Arc::new(FunctionPages::create(grant, setup)?)))
        }
    };
    let pages: Arc<dyn PageStore> = match (&policy, &function) {
        (Some(pages), _) => pages.clone(),
        (_, Some(pages)) => pages.clone(),
        _ => return Ok(()),
    };
    let options =
        Options { cache_bytes: 64 << 20, journal_bytes: 8 << 20, huge_pages: false, ..Options::default() };
    let medium: Box<dyn PageStore> = if hears { Box::new(pages) } else { Box::new(Deaf(pages)) };
    let store = Store::create(medium, &options)?;
    run(&store, turns)?;
    let report = store.report();
    let used = 1.0 - report.free_bytes as f64 / report.medium_bytes as f64;
    let (written, moved) = match (&policy, &function) {
        (Some(pages), _) => (pages.counts().written, pages.counts().copied),
        (_, Some(pages)) => (pages.counts().written, pages.counts().relocated),
        _ => (0, 0),
    };
    let counters = device.counters();
    let waf = counters.pages_programmed as f64 / written as f64;
    let streams = if streams == StreamChoice::One { "one" } else { "by tag" };
    println!(
        "| {level} | {streams} | {} | {:.0} % | {written} | {moved} | {waf:.3} | {} | {:.1} |",
        if hears { "told" } else { "not told" },
        used * 100.0,
        counters.blocks_erased,
        device.now().0 as f64 / 1e9,
    );
    Ok(())
}

fn main() -> Result<()> {
    let turns = std::env::args().nth(1).map_or(Ok(20_000), |turns| turns.parse())?;
    println!("| level | streams | free blocks | used | written | moved | WAF | erases | modelled s |");
    println!("|---|---|---|---|---|---|---|---|---|");
    for level in ["policy", "function"] {
        for hears in [true, false] {
            for streams in [StreamChoice::ByTag, StreamChoice::One] {
                measure(level, streams, hears, turns)?;
            }
        }
    }
    Ok(())
}
