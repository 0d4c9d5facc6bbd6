//! What is kept of a span while it is open: its ids for the lines in it, and the whole of it when spans are exported.

use crate::export::{Export, Finished};
use std::fmt;
use std::sync::{Arc, OnceLock};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

/// Where spans go once somebody has said so: the log begins before the configuration is read.
pub(crate) type Slot = Arc<OnceLock<Arc<Export>>>;

/// Where a span belongs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Ids {
    pub(crate) trace_id: Option<String>,
    pub(crate) span_id: Option<String>,
    pub(crate) parent_span_id: Option<String>,
    pub(crate) correlation_id: Option<String>,
}

/// Keeps what lines and exporters want to know of spans.
pub(crate) struct Spans(Slot);

impl Spans {
    /// A layer that hears of spans and of nothing else.
    pub(crate) fn layer<S>(slot: Slot) -> impl Layer<S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        // Without a filter every line of every library would be made, for nobody.
        Self(slot).with_filter(filter_fn(|metadata: &Metadata<'_>| metadata.is_span()))
    }
}

impl<S> Layer<S> for Spans
where
    S: Subscriber + for<'span> LookupSpan<'span>,
{
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut kept = Kept::default();
        attributes.record(&mut kept);
        let Some(span) = context.span(id) else { return };
        if let Some(export) = self.0.get()
            && let Some(begun) = export.begin(attributes.metadata().name(), &kept.ids, kept.fields.clone())
        {
            span.extensions_mut().insert(begun);
        }
        span.extensions_mut().insert(kept);
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut extensions = span.extensions_mut();
        if let Some(begun) = extensions.get_mut::<Finished>() {
            let mut new = Kept::default();
            values.record(&mut new);
            begun.add(&new.ids, new.fields);
        }
        if let Some(kept) = extensions.get_mut::<Kept>() {
            values.record(kept);
        }
    }

    fn on_close(&self, id: Id, context: Context<'_, S>) {
        let Some(export) = self.0.get() else { return };
        let finished = context.span(&id).and_then(|span| span.extensions_mut().remove::<Finished>());
        if let Some(finished) = finished {
            export.end(finished);
        }
    }
}

/// A value of a span's field.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Told {
    Text(String),
    Integer(i64),
    Number(f64),
    Boolean(bool),
}

impl From<Told> for serde_json::Value {
    fn from(told: Told) -> Self {
        match told {
            Told::Text(text) => text.into(),
            Told::Integer(number) => number.into(),
            Told::Number(number) => number.into(),
            Told::Boolean(flag) => flag.into(),
        }
    }
}

/// What is known of a span: where it belongs, and what it is about.
#[derive(Debug, Default)]
pub(crate) struct Kept {
    pub(crate) ids: Ids,
    pub(crate) fields: Vec<(&'static str, Told)>,
}

impl Kept {
    fn take(&mut self, field: &Field, value: Told) {
        let id = match field.name() {
            "trace_id" => &mut self.ids.trace_id,
            "span_id" => &mut self.ids.span_id,
            "parent_span_id" => &mut self.ids.parent_span_id,
            "correlation_id" => &mut self.ids.correlation_id,
            other => return self.fields.push((other, value)),
        };
        if let Told::Text(text) = value {
            *id = Some(text);
        }
    }
}

impl Visit for Kept {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, Told::Text(value.to_owned()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.take(field, Told::Integer(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.take(field, Told::Integer(i64::try_from(value).unwrap_or(i64::MAX)));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.take(field, Told::Number(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.take(field, Told::Boolean(value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.take(field, Told::Text(format!("{value:?}")));
    }
}
