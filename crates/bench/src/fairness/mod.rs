//! Two tenants on one device processor of a server: what share of its time each gets, and how long the light one waits.
//!
//! The shares are metered without the scheduler's own account. Each tenant runs alone first, with as many programs under way as later beside
//! the other: the processor is busy all the time then, so what it completes tells what one program costs of the processor, with all that
//! comes with a turn. Beside the other tenant, the completed programs times that cost are the tenant's time.

mod tenant;

use self::tenant::{Done, Kind, Load, Window};
use crate::db_bench::output_of;
use crate::disk::format;
use crate::error::BenchError;
use serde::Serialize;
use std::fs::{self, Permissions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use weft_client::{AttrChange, FileRef};

pub use tenant::run as run_tenant;

const SCHEDULERS: [&str; 3] = ["fifo", "round-robin", "fair"];
/// The users of both tenants.
const LIGHT: u32 = 1001;
const HEAVY: u32 = 1002;
/// A child has begun after this time.
const LEAD: Duration = Duration::from_millis(400);
/// What a function takes on a processor of the host.
const FUNCTION_MS: f64 = 50.0;

/// How it is measured.
#[derive(clap::Args, Clone, Debug)]
pub struct Settings {
    /// A directory for the volume.
    #[arg(long, value_name = "DIR", default_value = "target/weft-bench")]
    pub dir: PathBuf,
    /// Write all figures as JSON, too.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// The weft command [default: WEFT, or the one beside this program]
    #[arg(long, value_name = "FILE", env = "WEFT")]
    pub weft: Option<PathBuf>,
    /// Time of the device processor for what takes one of the host 100.
    #[arg(long, value_name = "PERCENT", default_value_t = 400, value_parser = clap::value_parser!(u32).range(100..=10_000))]
    pub slowdown: u32,
    /// Programs of the light tenant under way.
    #[arg(long, value_name = "N", default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub light: u32,
    /// Programs of the heavy tenant under way.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=256))]
    pub heavy: u32,
    /// Length of each measurement.
    #[arg(long, value_name = "MS", default_value_t = 3000, value_parser = clap::value_parser!(u64).range(100..=600_000))]
    pub millis: u64,
}

/// What the tenants' child needs.
#[derive(clap::Args, Clone, Debug)]
pub struct TenantArgs {
    /// Where the server listens.
    pub socket: PathBuf,
    #[command(flatten)]
    pub load: Load,
    #[command(flatten)]
    pub window: Window,
}

/// Both tenants side by side.
#[derive(Debug, Serialize)]
pub struct Row {
    scheduler: &'static str,
    heavy: String,
    slowdown_percent: u32,
    millis: u64,
    light_alone: Done,
    heavy_alone: Done,
    light_beside: Done,
    heavy_beside: Done,
    /// Time of the device processor for one program, in microseconds, from the throughput alone.
    light_cost_us: f64,
    heavy_cost_us: f64,
    /// Share of the light tenant in the time of both.
    light_share: f64,
    jain: f64,
    /// The light tenant's 99th percentile beside the other, over that alone.
    p99_ratio: f64,
}

/// A server of its own.
struct Served {
    child: Child,
    socket: PathBuf,
}

impl Served {
    fn start(
        weft: &Path,
        image: &Path,
        dir: &Path,
        scheduler: &str,
        slowdown: u32,
    ) -> Result<Served, BenchError> {
        let socket = dir.join("socket");
        let failed = |e| BenchError::io(weft.display(), e);
        let mut command = Command::new(weft);
        command.args(["serve", "--quiet", "--volume"]).arg(image).arg("--socket").arg(&socket);
        command.args(["--program-cpus", "1", "--program-scheduler", scheduler]);
        command.args(["--program-slowdown", &slowdown.to_string()]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().map_err(failed)?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).map_err(failed)?;
        }
        let served = Served { child, socket };
        served.open_to_all().map_err(|e| BenchError::io(served.socket.display(), e))?;
        Ok(served)
    }

    fn open_to_all(&self) -> io::Result<()> {
        fs::set_permissions(&self.socket, Permissions::from_mode(0o777))?;
        let everybody = AttrChange { mode: Some(0o777), ..AttrChange::default() };
        let root = tenant::connect(&self.socket)?;
        root.set_attr(FileRef::ROOT, b"/", 0, &everybody).map_err(io::Error::from_raw_os_error)
    }

    fn begin(&self, user: u32, load: Load, window: Window) -> Result<Child, BenchError> {
        let own = std::env::current_exe().map_err(|e| BenchError::io("own path", e))?;
        let kind = match load.kind {
            Kind::Write => "write",
            Kind::Compress => "compress",
            Kind::Function => "function",
        };
        let mut command = Command::new(own);
        command.arg("fairness-tenant").arg(&self.socket).args(["--kind", kind]);
        command.args(["--amount", &load.amount.to_string(), "--outstanding", &load.outstanding.to_string()]);
        command.args(["--begin-ms", &window.begin_ms.to_string(), "--millis", &window.millis.to_string()]);
        command.uid(user).gid(user).stdin(Stdio::null()).stdout(Stdio::piped());
        command.spawn().map_err(|e| BenchError::io("a tenant", e))
    }

    /// Runs tenants side by side.
    fn run<const N: usize>(&self, tenants: [(u32, Load); N], millis: u64) -> Result<[Done; N], BenchError> {
        let window = tenant::window(LEAD, millis);
        let children = tenants.map(|(user, load)| self.begin(user, load, window));
        let mut done = Vec::new();
        for child in children {
            let output = child?.wait_with_output().map_err(|e| BenchError::io("a tenant", e))?;
            let output = String::from_utf8_lossy(&output.stdout).into_owned();
            let parsed = serde_json::from_str::<Done>(&output);
            done.push(parsed.map_err(|_| BenchError::NoFigure { command: "a tenant".into(), output })?);
        }
        done.try_into().map_err(|_| BenchError::io("tenants", io::Error::other("some are missing")))
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // What it serves is thrown away.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Thousands of rounds of a function that takes its time.
fn function_rounds(served: &Served, slowdown: u32) -> Result<u64, BenchError> {
    let amount = 500;
    let load = Load { kind: Kind::Function, amount, outstanding: 1 };
    let [done] = served.run([(HEAVY, load)], 500)?;
    let host_ms = done.p50_us / 1e3 * 100.0 / f64::from(slowdown);
    Ok((amount as f64 * FUNCTION_MS / host_ms.max(0.001)) as u64)
}

/// Measures all schedulers.
pub fn measure(settings: &Settings, weft: &Path) -> Result<Vec<Row>, BenchError> {
    let dir = settings.dir.join(format!("fairness-{}", std::process::id()));
    let failed = |e| BenchError::io(dir.display(), e);
    fs::create_dir_all(&dir).map_err(failed)?;
    let rows = measure_in(settings, weft, &dir);
    let _ = fs::remove_dir_all(&dir);
    rows
}

fn measure_in(settings: &Settings, weft: &Path, dir: &Path) -> Result<Vec<Row>, BenchError> {
    let &Settings { slowdown, millis, .. } = settings;
    // Sockets have short names, and other users must be able to reach it.
    let at =
        PathBuf::from(output_of(Command::new("mktemp").args(["-d", "/tmp/weft-fairness-XXXXXX"]))?.trim());
    fs::set_permissions(&at, Permissions::from_mode(0o755)).map_err(|e| BenchError::io(at.display(), e))?;
    let mut rows = Vec::new();
    for scheduler in SCHEDULERS {
        let image = dir.join(format!("{scheduler}.img"));
        format(weft, &image, "1G")?;
        let served = Served::start(weft, &image, &at, scheduler, slowdown)?;
        let light = Load { kind: Kind::Write, amount: 4, outstanding: settings.light };
        let compress = |amount| Load { kind: Kind::Compress, amount, outstanding: settings.heavy };
        let rounds = function_rounds(&served, slowdown)?;
        let function = Load { kind: Kind::Function, amount: rounds, outstanding: 2 };
        let [light_alone] = served.run([(LIGHT, light)], millis)?;
        for (name, heavy) in [
            ("zstd of 256 KiB", compress(256)),
            ("zstd of 512 KiB", compress(512)),
            ("function of 50 ms", function),
        ] {
            let [heavy_alone] = served.run([(HEAVY, heavy)], millis)?;
            let [light_beside, heavy_beside] = served.run([(LIGHT, light), (HEAVY, heavy)], millis)?;
            let cost = |done: &Done| millis as f64 * 1e3 / done.completed.max(1) as f64;
            let (light_cost_us, heavy_cost_us) = (cost(&light_alone), cost(&heavy_alone));
            let light_us = light_beside.completed as f64 * light_cost_us;
            let heavy_us = heavy_beside.completed as f64 * heavy_cost_us;
            let sum = light_us + heavy_us;
            rows.push(Row {
                scheduler,
                heavy: name.to_string(),
                slowdown_percent: slowdown,
                millis,
                light_share: light_us / sum,
                jain: sum * sum / (2.0 * (light_us * light_us + heavy_us * heavy_us)),
                p99_ratio: light_beside.p99_us / light_alone.p99_us,
                light_alone: light_alone.clone(),
                heavy_alone,
                light_beside,
                heavy_beside,
                light_cost_us,
                heavy_cost_us,
            });
        }
        drop(served);
        let _ = fs::remove_file(&image);
    }
    let _ = fs::remove_dir_all(&at);
    Ok(rows)
}

/// The rows as a table of Markdown.
pub fn table(rows: &[Row]) -> String {
    let mut text = String::from(
        "| heavy tenant | scheduler | cost light / heavy (us) | light/s | heavy/s | light's share | Jain | p50 alone / beside (us) | \
         p99 alone / beside (us) | ratio | max beside (us) |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut ordered: Vec<&Row> = rows.iter().collect();
    ordered.sort_by(|a, b| a.heavy.cmp(&b.heavy).reverse());
    for row in ordered {
        let per_second = |done: &Done| done.completed as f64 * 1e3 / row.millis as f64;
        let (alone, beside) = (&row.light_alone, &row.light_beside);
        text += &format!(
            "| {} | {} | {:.1} / {:.0} | {:.0} | {:.1} | {:.3} | {:.3} | {:.0} / {:.0} | {:.0} / {:.0} | {:.2} | {:.0} |\n",
            row.heavy,
            row.scheduler,
            row.light_cost_us,
            row.heavy_cost_us,
            per_second(beside),
            per_second(&row.heavy_beside),
            row.light_share,
            row.jain,
            alone.p50_us,
            beside.p50_us,
            alone.p99_us,
            beside.p99_us,
            row.p99_ratio,
            beside.max_us,
        );
    }
    text
}

/// Measures, and shows what came out.
pub fn compare(settings: &Settings, weft: &Path) -> Result<(), BenchError> {
    let rows = measure(settings, weft)?;
    if let Some(path) = &settings.json {
        let json = serde_json::to_vec_pretty(&rows).map_err(io::Error::other);
        json.and_then(|json| fs::write(path, json)).map_err(|e| BenchError::io(path.display(), e))?;
    }
    write!(io::stdout(), "{}", table(&rows)).map_err(|e| BenchError::io("standard output", e))
}
