//! Tables of figures, for people.

use super::load::Outcome;

/// Rows of an outcome each, with ratios against earlier rows.
#[derive(Debug, Default)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new() -> Self {
        let head = ["what", "callers", "per second", "p50 ms", "p99 ms", "p99.9 ms", "failed", "ratio"];
        Self { rows: vec![head.map(str::to_owned).to_vec()] }
    }

    /// Adds an outcome; `ratio` says what its rate is compared with.
    pub fn add(&mut self, what: &str, outcome: &Outcome, ratio: &str) {
        let latency = |quantile| format!("{:.3}", outcome.latency_ms(quantile));
        self.rows.push(vec![
            what.to_owned(),
            outcome.callers.to_string(),
            format!("{:.0}", outcome.per_second()),
            latency(0.5),
            latency(0.99),
            latency(0.999),
            outcome.failed.to_string(),
            ratio.to_owned(),
        ]);
    }

    /// The table as Markdown.
    pub fn render(&self) -> String {
        let columns = self.rows[0].len();
        let width =
            |column: usize| self.rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for (number, row) in self.rows.iter().enumerate() {
            for (column, cell) in row.iter().enumerate() {
                let pad = " ".repeat(widths[column] - cell.chars().count());
                let is_text = column == 0 || column == columns - 1;
                let (before, after) = if is_text { ("", pad.as_str()) } else { (pad.as_str(), "") };
                out.push_str(&format!("| {before}{cell}{after} "));
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
