//! Lines and bars, drawn here as SVG.

use maud::{Markup, html};
use std::fmt::Write;

const WIDTH: f64 = 240.0;
const HEIGHT: f64 = 48.0;

/// What a line shows.
pub(in super::super) struct Line<'a> {
    pub(in super::super) title: &'a str,
    /// From left to right: when, and how much.
    pub(in super::super) points: &'a [(i64, f64)],
}

/// A small line without axes. Its largest value touches the top; zero is the ground.
pub(in super::super) fn sparkline(line: &Line<'_>) -> Markup {
    let most = line.points.iter().map(|(_, value)| *value).fold(1.0_f64, f64::max);
    let first = line.points.first().map_or(0, |(at, _)| *at);
    let whole = line.points.last().map_or(1, |(at, _)| at - first).max(1) as f64;
    let mut points = String::new();
    for (at, value) in line.points {
        let x = (at - first) as f64 / whole * WIDTH;
        let y = HEIGHT - 2.0 - value.max(0.0) / most * (HEIGHT - 4.0);
        // Writing to a String cannot fail.
        let _ = write!(points, "{x:.1},{y:.1} ");
    }
    let ground = format!("0,{HEIGHT} {points}{WIDTH:.1},{HEIGHT}");
    html! {
        svg.spark viewBox={ "0 0 " (WIDTH) " " (HEIGHT) } preserveAspectRatio="none" role="img" aria-label=(line.title) {
            title { (line.title) }
            @if line.points.len() > 1 {
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
        let drawn =
            sparkline(&Line { title: "t", points: &[(10, 0.0), (20, 5.0), (30, 10.0)] }).into_string();
        assert!(drawn.contains("0.0,46.0 120.0,24.0 240.0,2.0"), "{drawn}");
        assert!(!sparkline(&Line { title: "t", points: &[(0, 1.0)] }).into_string().contains("polyline"));
    }
}
