//! What is told on stderr while a verb runs, and how it looks.

use crate::export::{Export, Options};
use crate::spans::{Ids, Kept, Slot, Spans};
use clap::ValueEnum;
use mainstay_server::REPORT_TARGET;
use serde_json::{Map, Value};
use std::fmt;
use std::io::IsTerminal;
use std::sync::{Arc, LazyLock};
use tracing::field::{Field, Visit};
use tracing::span::Record;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::fmt::format::{Format, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
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
            tracing::Level::INFO if metadata.target() == NOTICE_TARGET => Self::Report,
            tracing::Level::INFO => Self::Info,
            tracing::Level::WARN => Self::Warn,
            tracing::Level::ERROR => Self::Error,
        }
    }
}

/// What a service tells of itself: that it listens, and that it has stopped. It is told as reports are.
pub(crate) const NOTICE_TARGET: &str = "mainstay::notice";

/// Where the spans of this process go.
static SLOT: LazyLock<Slot> = LazyLock::new(Slot::default);

/// Begins to tell.
pub(crate) fn start(from: Level) {
    let lines = layer(from, std::io::stderr, is_seen());
    tracing_subscriber::registry().with(Spans::layer(SLOT.clone())).with(lines).init();
}

/// Whether people read stderr; otherwise it is a log, every line of which a program must be able to read.
pub(crate) fn is_seen() -> bool {
    std::io::stderr().is_terminal()
}

/// Tells of something that a service does: people as it is, and others as a line of the log.
pub(crate) fn say(text: &str) {
    match is_seen() {
        true => eprintln!("{text}"),
        false => tracing::info!(target: NOTICE_TARGET, "{text}"),
    }
}

/// Lets a panic be a line of the log, too, where it is one. What Rust prints otherwise is several, for people.
pub(crate) fn tell_of_panics() {
    if !is_seen() {
        std::panic::set_hook(Box::new(|panic| tracing::error!("{panic}")));
    }
}

/// Sends the spans that begin from now on. Once; the first counts.
pub(crate) fn export(options: Options) -> std::io::Result<Arc<Export>> {
    let export = Arc::new(Export::start(options)?);
    Ok(SLOT.get_or_init(|| export).clone())
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
        return lines
            .event_format(Lines::Plain(Format::default()))
            .with_writer(writer)
            .with_filter(is_told)
            .boxed();
    }
    let json = Format::default().json().flatten_event(true).with_current_span(false).with_span_list(false);
    lines.fmt_fields(Unmade).event_format(Lines::Json(json)).with_writer(writer).with_filter(is_told).boxed()
}

/// Lines as they are told otherwise, but for reports, which are JSON and nothing else, and for lines of JSON: those have the
/// ids of the trace and of the correlation at their top, whichever span they stand in.
enum Lines<F> {
    Plain(F),
    Json(F),
}

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
            let format = match self {
                Self::Plain(format) => return format.format_event(context, writer, event),
                Self::Json(format) => format,
            };
            let mut line = String::new();
            format.format_event(context, Writer::new(&mut line), event)?;
            return match line.trim_end().strip_suffix('}') {
                Some(line) => writeln!(writer, "{line}{}}}", belonging(context, event)),
                None => writer.write_str(&line),
            };
        }
        let mut message = Message(String::new());
        event.record(&mut message);
        writeln!(writer, "{}", message.0)
    }
}

/// The members of a line that tell where it belongs: the ids as the nearest span knows them, unless the line itself does, and
/// the innermost span.
fn belonging<S, N>(context: &FmtContext<'_, S, N>, event: &Event<'_>) -> String
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    let (mut trace_id, mut correlation_id, mut innermost) = (None, None, None);
    for span in context.event_scope().into_iter().flatten() {
        let extensions = span.extensions();
        let Some(kept) = extensions.get::<Kept>() else { continue };
        trace_id = trace_id.or_else(|| kept.ids.trace_id.clone());
        correlation_id = correlation_id.or_else(|| kept.ids.correlation_id.clone());
        innermost.get_or_insert_with(|| shown(span.name(), kept));
    }
    let is_said = |name: &str| event.metadata().fields().field(name).is_some();
    let known = [
        ("trace_id", trace_id.map(Value::from)),
        ("correlation_id", correlation_id.map(Value::from)),
        ("span", innermost.map(Value::Object)),
    ];
    let known = known.into_iter().filter(|(name, _)| !is_said(name));
    known.filter_map(|(name, value)| Some(format!(",\"{name}\":{}", value?))).collect()
}

fn shown(name: &str, kept: &Kept) -> Map<String, Value> {
    let Ids { trace_id, span_id, parent_span_id, correlation_id } = kept.ids.clone();
    let ids = [
        ("trace_id", trace_id),
        ("span_id", span_id),
        ("parent_span_id", parent_span_id),
        ("correlation_id", correlation_id),
    ];
    let ids = ids.into_iter().filter_map(|(name, id)| Some((name.to_owned(), id?.into())));
    let fields = kept.fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone().into()));
    [("name".to_owned(), name.into())].into_iter().chain(fields).chain(ids).collect()
}

/// The fields of spans are not made into text until a line wants them: there are many spans, and few lines.
struct Unmade;

impl<'writer> FormatFields<'writer> for Unmade {
    fn format_fields<R: RecordFields>(&self, _: Writer<'writer>, _: R) -> fmt::Result {
        Ok(())
    }

    fn add_fields(&self, _: &'writer mut FormattedFields<Self>, _: &Record<'_>) -> fmt::Result {
        Ok(())
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
    use serde_json::json;
    use std::io::Write;
    use std::sync::Mutex;

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
        let subscriber = tracing_subscriber::registry().with(Spans::layer(Slot::default())).with(layer(
            from,
            move || writer.clone(),
            is_terminal,
        ));
        tracing::subscriber::with_default(subscriber, || {
            let _in = tracing::info_span!("request", trace_id = "abc", correlation_id = "co\"1").entered();
            let _deeper = tracing::info_span!("attempt", attempt = 1).entered();
            tracing::debug!("a debug");
            tracing::trace!("a trace");
            tracing::info!("an info");
            tracing::info!(target: REPORT_TARGET, "{}", r#"{"type":"METRICS"}"#);
            tracing::info!(target: NOTICE_TARGET, "a notice");
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
            assert_eq!(told.contains("a notice"), told.contains("METRICS"), "{level:?}: {told}");
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
        assert!(people.contains("correlation_id"), "{people}");
        for line in told(Level::Warn, false).lines() {
            let line: Value = serde_json::from_str(line).unwrap();
            assert_eq!(
                (&line["trace_id"], &line["correlation_id"]),
                (&json!("abc"), &json!("co\"1")),
                "{line}"
            );
            assert_eq!(line["span"]["attempt"], 1, "{line}");
            assert!(
                line["level"].is_string() && line["timestamp"].is_string() && line["message"].is_string(),
                "{line}"
            );
        }
    }
}
