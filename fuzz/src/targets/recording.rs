//! Recordings: any text is a recording or an error that names the line; a recording is written and read the same.

use super::Target;
use weft_placement::recording::{Event, Workload};
use weft_placement::recording::{LAST_LINE, first_line};
use weft_placement::{Engine, Mode, ZoneResolver};
use weft_sim::files::model::{Volume, simulate};

/// Bytes of the largest workload that is played.
const PLAYED_MAX: u64 = 64 << 20;

/// See the module.
pub struct RecordingText;

impl Target for RecordingText {
    fn name(&self) -> &'static str {
        "recording"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        [
            "V 1 sh\nO 1 4711 sh 241 /db/000004.log db_bench\nH 1 2\nW 1 262144\nP 1 5 100\nS 1\nC 1\nD 1\nE\n",
            "V 1 a%20b\nO 1 1 - 41 /x -\nT 1 1000000\nZ 1 4096 8192\nM 1 /y%0a\nO 1 2 t 2 /y p\nW 1 9\nE\n",
            "V 1 p\nO 1 1 - 41 /a -\nW 1 4096\nO 2 1 - 41 /b -\nW 2 70000\nM 2 /a\nD 1\nW 2 100\nD 2\nE\n",
            "O 1 1 t 41 /a\nW 1 5000\nR /a /b\nU /b\nC 1\n",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"V 1 p\n",
            b"E\n",
            b"\nO 3 1 - 41 /c -\n",
            b"\nW 1 4096\n",
            b"\nP 1 0 4096\n",
            b"\nT 1 0\n",
            b"\nZ 1 0 4096\n",
            b"\nS 1\n",
            b"\nC 1\n",
            b"\nD 1\n",
            b"\nM 1 /z\n",
            b"\nR /a /b\n",
            b"\nU /a\n",
            b"\nH 1 5\n",
            b"4611686018427387904",
            b"18446744073709551615",
            b"%",
            b"%ff",
            b"-",
            b" ",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let workload = match Workload::parse(text, "program") {
            Ok(workload) => workload,
            Err(error) => {
                assert!(error.to_string().contains("line"), "an error that does not say where: {error}");
                return;
            }
        };
        let mut again = first_line("program");
        for event in &workload.events {
            again.push_str(&format!("\n{event}"));
        }
        again.push_str(&format!("\n{LAST_LINE}\n"));
        // A recording of another tool knows paths alone: what it deletes may come again by the same number.
        if text.starts_with("V ") {
            let read = Workload::parse(&again, "program");
            assert!(
                read.is_ok_and(|read| read.events == workload.events),
                "written and read otherwise:\n{again}"
            );
        }
        let (live, written) = (workload.live_peak_bytes(), workload.written_bytes());
        let touches = |event: &Event| event.bytes();
        if live > PLAYED_MAX
            || written > PLAYED_MAX
            || workload.events.iter().map(touches).max() > Some(PLAYED_MAX)
        {
            return;
        }
        let Ok(engine) = Engine::new(Mode::Suffix, None, 1) else { return };
        let mut volume = Volume::for_utilisation(&workload, 1 << 20, 0.8);
        volume.zones = volume.zones.clamp(16, 4096);
        let outcome = simulate(&workload, volume, &engine, &mut ZoneResolver::new());
        assert!(outcome.waf() >= 1.0 || outcome.host_blocks == 0);
    }
}
