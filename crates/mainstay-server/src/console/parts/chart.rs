//! Lines and bars, drawn here as SVG.

use maud::{Markup, html};
use std::fmt::Write;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// What a line shows.
pub(in super::super) struct Line<'a> {
    pub(in super::super) title: &'a str,
    /// From left to right, at even distances.
    pub(in super::super) values: &'a [f64],
}

/// A small line without axes. Its largest value touches the top; zero is the ground.
pub(in super::super) fn sparkline(line: &Line<'_>) -> Markup {
    let most = line.values.iter().copied().fold(1.0_f64, f64::max);
    let step = WIDTH / (line.values.len().max(2) - 1) as f64;
    let mut points = String::new();
    for (place, value) in line.values.iter().enumerate() {
        let (x, y) = (place as f64 * step, HEIGHT - 2.0 - value.max(0.0) / most * (HEIGHT - 4.0));
        // Writing to a String cannot fail.
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let ground =
        format!("0,{HEIGHT} {points}{:.1},{HEIGHT}", line.values.len().saturating_sub(1) as f64 * step);
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(line.title) {
            title { (line.title) }
            @if line.values.len() > 1 {
                polygon.ground points=(ground) {}
                polyline.line points=(points.trim_end()) {}
            }
        }
    }
}

/// How much of something is done, from 0 to 100.
pub(in super::super) fn meter(percent: f64, title: &str) -> Markup {
    let percent = percent.clamp(0.0, 100.0);
    html! { progress max="100" value=(format!("{percent:.1}")) aria-label=(title) { (format!("{percent:.0} %")) } }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_stays_within_its_frame_and_needs_two_points() {
        let drawn = sparkline(&Line { title: "t", values: &[0.0, 5.0, 10.0] }).into_string();
        assert!(drawn.contains("0.0,46.0 120.0,24.0 240.0,2.0"), "{drawn}");
        assert!(!sparkline(&Line { title: "t", values: &[1.0] }).into_string().contains("polyline"));
    }
}
