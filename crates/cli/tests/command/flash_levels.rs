//! The levels of flash from the command line: an application compared on them, and the wear of a device.

use crate::volume::Bench;
use predicates::str::contains;

#[test]
fn the_papers_table_is_printed_by_one_command_with_its_ratios() {
    let bench = Bench::empty();
    let table = bench.json(&["flash", "bench", "--table1", "--blocks", "32", "--json"]);
    let ratio = |row: usize| table["rows"][row]["ratio"].as_f64().unwrap();
    assert_eq!(table["rows"][0]["level"], "Original");
    assert!(ratio(1) <= 0.92 && ratio(2) <= 0.75 && ratio(3) <= 0.74, "{table}");
    let text = bench.stdout(&["flash", "bench", "--table1", "--blocks", "32"]);
    assert!(text.contains("in the paper") && text.contains("0.892"), "{text}");
    bench.weft(&["flash", "bench"]).failure().stderr(contains("--table1"));
    bench.weft(&["flash", "bench", "--table1", "--blocks", "3"]).failure().stderr(contains("32 or more"));
}

#[test]
fn wear_is_shown_lun_by_lun_and_as_svg() {
    let bench = Bench::empty();
    bench.weft(&["flash", "create", "--preset", "bbssd", "--size", "1G", "f.img"]).success();
    let wear = bench.json(&["flash", "wear", "--json", "f.img"]);
    assert_eq!(wear["luns"].as_array().unwrap().len(), 64);
    assert_eq!((&wear["version"], &wear["erases_max"]), (&1.into(), &0.into()));
    let text = bench.stdout(&["flash", "wear", "--svg", "f.svg", "f.img"]);
    assert!(text.lines().next().unwrap().starts_with("channel 0 LUN 0"), "{text}");
    bench.weft(&["flash", "wear", "no.img"]).failure().stderr(contains("weft flash create"));
}
