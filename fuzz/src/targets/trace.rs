//! Block traces: any text is a trace or an error that names the line, and the requests of a trace lie within what it touches.

use super::Target;
use weft_sim::block::{Trace, TraceFormat};

/// See the module.
pub struct TraceText;

impl Target for TraceText {
    fn name(&self) -> &'static str {
        "trace"
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        [
            "fio version 2 iolog\n/dev/sdb add\n/dev/sdb open\n/dev/sdb write 4096 8192\nwait 25\n/dev/sdb read 0 1\n\
             /dev/sdc trim 0 4096\n/dev/sdb sync 0 0\n/dev/sdb close\n",
            "fio version 3 iolog\n0 f add\n7 f write 4096 4096\n9 f read 4095 2\n12 f trim 1048576 2097152\n",
            "128166372003061629,hm,0,Read,383496192,32768,113736\n128166372016382155,hm,1,Write,0,1050000,1\n",
            "# a remark\n\n1,h,0,write,0,4096,1\n",
        ]
        .iter()
        .map(|text| text.as_bytes().to_vec())
        .collect()
    }

    fn words(&self) -> &'static [&'static [u8]] {
        &[
            b"fio version 2 iolog\n",
            b"fio version 3 iolog\n",
            b"\nf write 0 4096\n",
            b"\n3 f read 4096 1048577\n",
            b"\nf trim 0 1073741824\n",
            b"\nwait 18446744073709551615\n",
            b"\n9 f wait 100\n",
            b"\n1,h,0,Read,0,4096,1\n",
            b"\n2,h,1,Write,18446744073709547520,4096,1\n",
            b"18446744073709551615",
            b"-1",
            b",",
            b" ",
            b"sync",
            b"datasync",
        ]
    }

    fn is_script(&self) -> bool {
        false
    }

    fn run(&mut self, input: &[u8]) {
        for format in [None, Some(TraceFormat::Fio), Some(TraceFormat::Msr)] {
            let mut told = 0;
            match Trace::read(input, format, |bytes| told += bytes) {
                Ok(trace) => {
                    assert_eq!(told, input.len() as u64, "not every line was told of");
                    let mut ends = 0;
                    for request in trace.requests() {
                        assert!(request.blocks > 0, "an empty request: {request:?}");
                        ends = ends.max(request.block + u64::from(request.blocks));
                        assert!(usize::from(request.stream) < trace.streams(), "{request:?}");
                    }
                    assert!(ends <= trace.blocks(), "a request up to block {ends} of {}", trace.blocks());
                }
                Err(error) => assert!(error.to_string().starts_with("line "), "no line in: {error}"),
            }
        }
    }
}
