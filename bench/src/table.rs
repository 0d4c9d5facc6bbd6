//! Tables as Markdown.

/// Rows under a head, all of as many cells. Cells that begin with a digit stand on the right.
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    pub fn new<const COLUMNS: usize>(head: [&str; COLUMNS]) -> Self {
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    pub fn add<const COLUMNS: usize>(&mut self, row: [String; COLUMNS]) {
        self.rows.push(row.to_vec());
    }

    pub fn render(&self) -> String {
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..self.rows[0].len()).map(width).collect();
        let is_text = |column: usize| self.rows[1..].iter().any(|row| !is_number(&row[column]));
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, (cell, width)) in row.iter().zip(&widths).enumerate() {
                out.push_str(&match is_text(column) {
                    true => format!("| {cell:<width$} "),
                    false => format!("| {cell:>width$} "),
                });
            }
            out.push_str("|\n");
            if number == 0 {
                let rule: Vec<String> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
                out.push_str(&format!("|{}|\n", rule.join("|")));
            }
        }
        out
    }
}

fn is_number(cell: &str) -> bool {
    cell.chars().all(|letter| letter.is_ascii_digit() || ".,-".contains(letter))
}
