//! Policies: any text is a policy or an error that says where; a policy places any file.

use super::Target;
use std::time::Duration;
use weft_placement::policy::Policy;
use weft_placement::{Engine, FileContext, Mode, OpenIntent, WriteHint};

/// See the module.
pub struct PolicyText;

impl Target for PolicyText {
    fn name(&self) -> &'static str {
        "policy"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        Policy::shipped_texts().iter().map(|(_, text)| text.as_bytes().to_vec()).collect()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"[[rule]]\n",
            b"[[stream]]\n",
            b"[applies]\n",
            b"name = \"",
            b"stream = \"",
            b"default = \"",
            b"path = [\"",
            b"process = [\"",
            b"evidence = [\"",
            b"thread = \"",
            b"flags = [\"append\"]\n",
            b"hint = [\"short\"]\n",
            b"min_size = \"",
            b"max_size = \"",
            b"group_bytes = ",
            b"lifetime = ",
            b"**/",
            b"{a,b}",
            b"[!a-z]",
            b"[",
            b"{",
            b"\\",
            b"?",
            b"*",
            b"\"]\n",
            b"\"\n",
            b"'''",
            b"18446744073709551615",
            b"-1",
            b"1e308",
            b"64M",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        let policy = match Policy::parse(text, "fuzz.toml") {
            Ok(policy) => policy,
            Err(error) => {
                let told = error.to_string();
                assert!(told.contains("fuzz.toml"), "an error that does not say where: {told}");
                return;
            }
        };
        let Ok(engine) = Engine::new(Mode::Rules, Some(policy), 1) else { return };
        for path in [&b"/db/000012.log"[..], b"/", b"", b"/a/b/c/d/e.sst", b"/\xff\xfe/\n", &[b'/'; 4000]] {
            for flags in [OpenIntent::empty(), OpenIntent::all()] {
                let context = FileContext {
                    process: "db_bench",
                    thread: "rocksdb:low",
                    flags,
                    hint: WriteHint::ALL[path.len() % WriteHint::ALL.len()],
                    size: u64::MAX >> path.len().min(63),
                    volume_bytes: 1 << 40,
                    now: Duration::from_secs(1000),
                    ..FileContext::new(path)
                };
                let tag = engine.place(&context);
                engine.learn_name(path);
                engine.explain(&context);
                engine.observe_death(&tag, path, 4096, 0, 1 << 30);
            }
        }
    }
}
