//! Tables on a terminal: columns as wide as their widest cell, numbers to the right, text to the left.

use std::fmt;

/// A table that is printed with a heading and a line below it.
#[derive(Debug)]
pub struct Table {
    /// The headings, and whether their columns end in one line.
    columns: Vec<(String, bool)>,
    rows: Vec<Vec<String>>,
    indent: usize,
}

impl Table {
    /// A table without rows. Behind the heading of each column stands its side: '<' for text, '>' for numbers.
    pub fn new(columns: &str) -> Table {
        let columns = columns.split_inclusive(['<', '>']);
        let column = |text: &str| (text.trim_matches([' ', '<', '>']).to_string(), text.ends_with('>'));
        Table { columns: columns.map(column).collect(), rows: Vec::new(), indent: 0 }
    }

    /// The same table, this many columns further to the right.
    pub fn indented(self, indent: usize) -> Table {
        Table { indent, ..self }
    }

    /// Adds a row; cells that are missing stay empty.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Adds a row of anything that has a text.
    pub fn cells(&mut self, cells: &[&dyn fmt::Display]) {
        self.row(cells.iter().map(|cell| cell.to_string()));
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.chars().count());
        cells.chain([self.columns[column].0.len()]).max().unwrap_or(0)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let widths: Vec<usize> = (0..self.columns.len()).map(|column| self.width(column)).collect();
        let line = |f: &mut fmt::Formatter<'_>, cell: &dyn Fn(usize) -> String| {
            let mut text = " ".repeat(self.indent);
            for (column, (_, is_right)) in self.columns.iter().enumerate() {
                let (cell, width) = (cell(column), widths[column]);
                let gap = if column == 0 { "" } else { "  " };
                text += gap;
                text += &if *is_right { format!("{cell:>width$}") } else { format!("{cell:<width$}") };
            }
            writeln!(f, "{}", text.trim_end())
        };
        line(f, &|column| self.columns[column].0.clone())?;
        line(f, &|column| "-".repeat(widths[column]))?;
        for row in &self.rows {
            line(f, &|column| row.get(column).cloned().unwrap_or_default())?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell_and_numbers_end_in_one_line() {
        let mut table = Table::new("name< bytes>").indented(2);
        table.row(["a".to_string(), "1".to_string()]);
        table.row(["longer".to_string(), "1000000".to_string()]);
        table.row(["no number".to_string()]);
        let expected = "  name         bytes\n  ---------  -------\n  a                1\n  longer     1000000\n  no number\n";
        assert_eq!(table.to_string(), expected);
    }
}
