//! What is logged in this process, kept to be looked at.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io::Write;
use std::sync::{Mutex, OnceLock};
use tracing::Subscriber;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::{Context, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;

static TEXT: Mutex<Vec<u8>> = Mutex::new(Vec::new());
static SPANS: Mutex<Vec<Span>> = Mutex::new(Vec::new());

struct Kept;

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        TEXT.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Begins to keep what is logged. For all threads: what is logged where is remembered for the whole process, also by tests
/// beside the one that looks.
pub(crate) fn start() {
    static STARTED: OnceLock<()> = OnceLock::new();
    STARTED.get_or_init(|| {
        let level = tracing::Level::TRACE;
        let lines = tracing_subscriber::fmt().with_max_level(level).with_ansi(false).with_writer(|| Kept);
        lines.finish().with(Spans).init();
    });
}

/// What was logged so far, by all tests.
pub(crate) fn text() -> String {
    String::from_utf8(TEXT.lock().unwrap().clone()).unwrap()
}

/// A span that was begun.
#[derive(Debug, Clone)]
pub(crate) struct Span {
    pub(crate) name: &'static str,
    fields: BTreeMap<&'static str, String>,
}

impl Span {
    /// A field; empty when nobody has said it.
    pub(crate) fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", String::as_str)
    }
}

/// The spans of a trace, in the order in which they were begun.
pub(crate) fn spans(trace_id: &str) -> Vec<Span> {
    SPANS.lock().unwrap().iter().filter(|span| span.get("trace_id") == trace_id).cloned().collect()
}

struct Spans;

/// Which of the spans that are kept it is.
struct Number(usize);

impl<S: Subscriber + for<'span> LookupSpan<'span>> Layer<S> for Spans {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut span = Span { name: attributes.metadata().name(), fields: BTreeMap::new() };
        attributes.record(&mut span);
        let mut spans = SPANS.lock().unwrap();
        spans.push(span);
        context.span(id).unwrap().extensions_mut().insert(Number(spans.len() - 1));
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let span = context.span(id).unwrap();
        if let Some(Number(number)) = span.extensions().get::<Number>() {
            values.record(&mut SPANS.lock().unwrap()[*number]);
        }
    }
}

impl Visit for Span {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }
}
