//! What is told on stderr while a verb runs, and how it looks.

use clap::ValueEnum;
use mainstay_server::REPORT_TARGET;
use std::fmt;
use std::io::IsTerminal;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Format, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

/// From when on something is told, in this order (item 256). `tracing` has no REPORT, and takes TRACE for less than DEBUG.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Level {
    Debug,
    Trace,
    Info,
    Report,
    Warn,
    Error,
    /// Nothing is told.
    Off,
}

impl Level {
    fn of(metadata: &Metadata<'_>) -> Self {
        if metadata.target() == REPORT_TARGET {
            return Self::Report;
        }
        match *metadata.level() {
            tracing::Level::TRACE => Self::Trace,
            tracing::Level::DEBUG => Self::Debug,
            tracing::Level::INFO => Self::Info,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::ERROR => Self::Error,
        }
    }
}

/// Begins to tell.
pub(crate) fn start(from: Level) {
    tracing_subscriber::registry().with(layer(from, std::io::stderr, std::io::stderr().is_terminal())).init();
}

/// For people on a terminal, and JSON for whoever reads it otherwise.
fn layer<S, W>(from: Level, writer: W, is_terminal: bool) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> tracing_subscriber::fmt::MakeWriter<'writer> + Send + Sync + 'static,
{
    // A span is no line, and belongs to the lines in it.
    let is_told = filter_fn(move |metadata| metadata.is_span() || Level::of(metadata) >= from);
    let lines = tracing_subscriber::fmt::layer();
    if is_terminal {
        return lines.event_format(Lines(Format::default())).with_writer(writer).with_filter(is_told).boxed();
    }
    let json = Format::default().json().flatten_event(true).with_current_span(true).with_span_list(false);
    lines
        .fmt_fields(JsonFields::new())
        .event_format(Lines(json))
        .with_writer(writer)
        .with_filter(is_told)
        .boxed()
}

/// Lines as they are told otherwise, but for reports: those are JSON, and nothing else.
struct Lines<F>(F);

impl<S, N, F> FormatEvent<S, N> for Lines<F>
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        if event.metadata().target() != REPORT_TARGET {
            return self.0.format_event(context, writer, event);
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        writeln!(writer, "{}", message.0)
    }
}

/// The message of an event.
struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::sync::{Arc, Mutex};

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    /// What is told of one line of each level.
    fn told(from: Level, is_terminal: bool) -> String {
        let kept = Kept::default();
        let writer = kept.clone();
        let subscriber =
            tracing_subscriber::registry().with(layer(from, move || writer.clone(), is_terminal));
        tracing::subscriber::with_default(subscriber, || {
            let _in = tracing::info_span!("request", trace_id = "abc").entered();
            tracing::debug!("a debug");
            tracing::trace!("a trace");
            tracing::info!("an info");
            tracing::info!(target: REPORT_TARGET, "{}", r#"{"type":"METRICS"}"#);
            tracing::warn!("a warn");
            tracing::error!("an error");
        });
        let bytes = kept.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn b_256_report_stands_between_info_and_warn() {
        let levels = [Level::Debug, Level::Trace, Level::Info, Level::Report, Level::Warn, Level::Error];
        assert!(levels.is_sorted());
        let words = ["a debug", "a trace", "an info", "METRICS", "a warn", "an error"];
        for (from, level) in levels.into_iter().enumerate() {
            let told = told(level, true);
            for (at, word) in words.iter().enumerate() {
                assert_eq!(told.contains(word), at >= from, "{level:?}: {told}");
            }
        }
    }

    #[test]
    fn b_253_a_report_is_a_line_of_json_and_nothing_else() {
        for is_terminal in [true, false] {
            let told = told(Level::Report, is_terminal);
            assert_eq!(told.lines().next(), Some(r#"{"type":"METRICS"}"#), "{told}");
        }
    }

    #[test]
    fn lines_are_for_people_on_a_terminal_and_json_otherwise() {
        let people = told(Level::Warn, true);
        assert!(people.contains("WARN") && people.contains("a warn") && people.contains("abc"), "{people}");
        for line in told(Level::Warn, false).lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            assert_eq!(line["span"]["trace_id"], "abc", "{line}");
            assert!(
                line["level"].is_string() && line["timestamp"].is_string() && line["message"].is_string(),
                "{line}"
            );
        }
    }
}
