//! The picture as SVG.

use super::{FILE_CELL, FILE_CELLS, HeatMap, cells};
use std::fmt::Write;

/// Room for what stands before a row.
const MARGIN: usize = 150;

pub fn picture(map: &HeatMap) -> String {
    let width = map.file_columns() * FILE_CELL + MARGIN;
    let height = (map.rows.len() + 3) * FILE_CELL;
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"monospace\" \
         font-size=\"{FILE_CELL}\">\n"
    );
    for (number, row) in map.rows.iter().enumerate() {
        let y = number * FILE_CELL;
        let owner = row.owner.as_deref().map_or(String::new(), |name| format!(" {}", escaped(name)));
        let _ = writeln!(out, "<text x=\"0\" y=\"{}\">{}{owner}</text>", y + FILE_CELL - 1, row.short);
        for (column, cell) in cells(row, FILE_CELLS).into_iter().enumerate() {
            let [red, green, blue] = map.colour(cell);
            let x = MARGIN + column * FILE_CELL;
            let _ = writeln!(
                out,
                "<rect x=\"{x}\" y=\"{y}\" width=\"{FILE_CELL}\" height=\"{FILE_CELL}\" \
                 fill=\"rgb({red},{green},{blue})\"/>"
            );
        }
    }
    let _ = writeln!(
        out,
        "<text x=\"0\" y=\"{}\">erases of a block: mean {:.1}, most {}; black: bad</text>\n</svg>",
        (map.rows.len() + 2) * FILE_CELL,
        map.erases_mean,
        map.erases_max
    );
    out
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::super::tests::map;
    use super::*;

    #[test]
    fn the_svg_has_a_cell_for_each_block_and_escapes_names() {
        let svg = picture(&map());
        assert_eq!(svg.matches("<rect").count(), 8);
        assert!(svg.contains("0/1 a&lt;b") && svg.contains("rgb(0,0,0)") && svg.contains("rgb(255,55,55)"));
    }
}
