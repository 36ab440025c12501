//! Table I at several sizes. `WEFT_CAMPAIGN=1` takes the largest too.

#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a test fails by panicking, and says what it measured"
)]

use weft_sim::levels::table1;

#[test]
fn table_one_has_the_same_ratios_at_each_size() {
    let sizes: &[u32] = if std::env::var("WEFT_CAMPAIGN").is_ok_and(|value| value == "1") {
        &[64, 256, 1024]
    } else {
        &[64, 256]
    };
    let mut ratios: Vec<Vec<f64>> = vec![Vec::new(); 4];
    for blocks in sizes {
        let table = table1(*blocks, 1).unwrap();
        for (of, row) in ratios.iter_mut().zip(&table.rows) {
            of.push(row.ratio);
        }
    }
    for of in ratios {
        println!("{of:.3?}");
        let (least, most) =
            of.iter().fold((f64::MAX, 0.0f64), |(a, b), ratio| (a.min(*ratio), b.max(*ratio)));
        assert!(most - least <= 0.02, "{of:?}");
    }
}
