//! What an author says about a projection.

use super::failures::Poison;
use super::lanes::By;
use super::tables::{self, Model, Table};
use super::{MAX_LANES, MAX_NAME_BYTES};
use crate::error::{Error, Result};
use mainstay_core::names::check_unreserved;
use mainstay_core::retry::RetryPolicy;
use mainstay_events::{Event, Item, Query};
use mainstay_store::Tx;
use serde::Serialize;
use std::future::Future;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;

/// What a projection is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Category {
    /// Decisions are made on it.
    Logic,
    /// People look at it.
    View,
    /// Reports are made of it.
    Reporting,
    /// Other systems read it.
    Integration,
}

impl FromStr for Category {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        match text {
            "logic" => Ok(Self::Logic),
            "view" => Ok(Self::View),
            "reporting" => Ok(Self::Reporting),
            "integration" => Ok(Self::Integration),
            "" => Err(Error::CategoryRequired),
            other => Err(Error::InvalidCategory(other.to_owned())),
        }
    }
}

/// Which projections are rebuilt before which: in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// The main read model of a context.
    Primary,
    /// Another one beside it.
    Secondary,
    /// One over several contexts.
    CrossContext,
}

/// How much a handler does for an event, and so how many events a chunk of a replay has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum Complexity {
    /// 100 events in a chunk.
    Simple,
    /// 50.
    Medium,
    /// 25.
    Complex,
    /// 10.
    VeryComplex,
}

impl Complexity {
    /// How many events a chunk has (item 200).
    pub fn chunk_size(self) -> u32 {
        match self {
            Self::Simple => 100,
            Self::Medium => 50,
            Self::Complex => 25,
            Self::VeryComplex => 10,
        }
    }
}

type Applying = Pin<Box<dyn Future<Output = mainstay_store::Result<()>> + Send>>;
type Handler = dyn Fn(Tx, Model, Arc<[Event]>) -> Applying + Send + Sync;
type Reset = dyn Fn(Tx) -> Applying + Send + Sync;

/// A read model that follows the log. Clones are the same definition.
#[derive(Clone)]
pub struct Projection {
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) category: Category,
    pub(crate) kind: Kind,
    pub(crate) types: Vec<String>,
    pub(crate) complexity: Complexity,
    pub(crate) lanes: u32,
    pub(crate) by: By,
    pub(crate) poison: Option<Poison>,
    pub(crate) retry: RetryPolicy,
    pub(crate) reset: Option<Arc<Reset>>,
    pub(crate) tables: Vec<Table>,
    /// The first managed table with a name that was refused, and the reason.
    refused_table: Option<(String, String)>,
    pub(crate) handler: Option<Arc<Handler>>,
}

impl Projection {
    /// A primary projection of every event, in one lane. It still needs a handler: [`each`](Self::each) or
    /// [`chunk`](Self::chunk).
    pub fn new(name: impl Into<String>, category: Category) -> Self {
        // The policy of the platform's projectionPool (item 271).
        let retry = RetryPolicy::new(3, 250, 2.0, 30_000).expect("constants that fit");
        Self {
            name: name.into(),
            description: String::new(),
            category,
            kind: Kind::Primary,
            types: Vec::new(),
            complexity: Complexity::Simple,
            lanes: 1,
            by: By::Stream,
            poison: None,
            retry,
            reset: None,
            tables: Vec::new(),
            refused_table: None,
            handler: None,
        }
    }

    /// What it is, for people.
    pub fn description(mut self, text: impl Into<String>) -> Self {
        self.description = text.into();
        self
    }

    /// When it is rebuilt.
    pub fn kind(mut self, kind: Kind) -> Self {
        self.kind = kind;
        self
    }

    /// Takes only events of these types.
    pub fn on<T: Into<String>>(mut self, types: impl IntoIterator<Item = T>) -> Self {
        self.types.extend(types.into_iter().map(Into::into));
        self
    }

    /// How much its handler does for an event.
    pub fn complexity(mut self, complexity: Complexity) -> Self {
        self.complexity = complexity;
        self
    }

    /// Lets it follow the log in so many lanes at once. Events of the same key stay in order; others do not.
    pub fn partitioned(mut self, lanes: u32, by: By) -> Self {
        self.lanes = lanes;
        self.by = by;
        self
    }

    /// Puts events aside that its handler cannot take, instead of making dead letters of them.
    pub fn poison(mut self, poison: Poison) -> Self {
        self.poison = Some(poison);
        self
    }

    /// How often and how fast an event is tried again that its handler failed for.
    pub fn retry(mut self, policy: RetryPolicy) -> Self {
        self.retry = policy;
        self
    }

    /// Empties its tables, for a rebuild in place.
    pub fn reset<F, Fut, T>(mut self, reset: F) -> Self
    where
        F: Fn(Tx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<T>> + Send + 'static,
    {
        self.reset = Some(Arc::new(move |tx| {
            let running = reset(tx);
            Box::pin(async move { running.await.map(drop) })
        }));
        self
    }

    /// A table that is managed: made by these statements, which say `{table}` for its name, and rebuilt beside the one
    /// that readers see. They read the view `name`; the handler writes to [`Model::table`].
    pub fn table(mut self, name: impl Into<String>, statements: &[&str]) -> Self {
        let (name, statements) = (name.into(), statements.iter().map(|sql| (*sql).to_owned()).collect());
        match tables::table_name(&name) {
            Ok(name) => self.tables.push(Table { name, statements }),
            Err(reason) => drop(self.refused_table.get_or_insert((name, reason))),
        }
        self
    }

    /// Its handler, called for one event after another. Work, events and publications of the handler inherit from the event.
    pub fn each<F, Fut, T>(mut self, handler: F) -> Self
    where
        F: Fn(Tx, Model, Event) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<T>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        self.handler = Some(Arc::new(move |tx, model, events| {
            let handler = handler.clone();
            Box::pin(async move {
                for event in events.iter() {
                    let handling = handler(tx.clone(), model.clone(), event.clone());
                    event.cause().scope(handling).await?;
                }
                Ok(())
            })
        }));
        self
    }

    /// Its handler, called with all events of a chunk, so that it can write many rows with few statements.
    pub fn chunk<F, Fut, T>(mut self, handler: F) -> Self
    where
        F: Fn(Tx, Model, Arc<[Event]>) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = mainstay_store::Result<T>> + Send + 'static,
    {
        self.handler = Some(Arc::new(move |tx, model, events| {
            let running = handler(tx, model, events);
            Box::pin(async move { running.await.map(drop) })
        }));
        self
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it takes events of a type.
    pub fn takes(&self, event_type: &str) -> bool {
        self.types.is_empty() || self.types.iter().any(|known| known == event_type)
    }

    /// The query of what it takes; nothing when that is everything.
    pub(crate) fn query(&self) -> Option<Query> {
        let item = Item { types: self.types.clone(), tags: Vec::new() };
        // It was checked when the projection was registered.
        (!self.types.is_empty()).then(|| Query::new(vec![item]).ok()).flatten()
    }

    /// Most executions for an event before it is given up.
    pub(crate) fn max_attempts(&self) -> u32 {
        self.poison.as_ref().map_or(self.retry.max_attempts(), |poison| poison.max_attempts)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let named = || format!("projection {:?}", self.name);
        let wrong = |reason: String| Err(Error::invalid(named(), reason));
        check_unreserved(&named(), &self.name).map_err(mainstay_work::Error::from)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if !(1..=MAX_NAME_BYTES).contains(&self.name.len()) || !self.name.bytes().all(plain) {
            return wrong(format!("its name must be 1 to {MAX_NAME_BYTES} letters, digits or . _ -"));
        }
        if self.handler.is_none() {
            return wrong("it has no handler; give it one with each or chunk".to_owned());
        }
        if !(1..=MAX_LANES).contains(&self.lanes) {
            return wrong(format!("its lanes must be 1 to {MAX_LANES}"));
        }
        if self.poison.as_ref().is_some_and(|poison| poison.max_attempts == 0) {
            return wrong("poison: maxAttempts must be 1 or more".to_owned());
        }
        if self.reset.is_some() && (!self.tables.is_empty() || self.refused_table.is_some()) {
            return wrong("it has both reset and managed tables, which are never reset".to_owned());
        }
        if !self.types.is_empty() {
            let item = Item { types: self.types.clone(), tags: Vec::new() };
            Query::new(vec![item]).map_err(|error| Error::invalid(named(), error.to_string()))?;
        }
        if let Some((table, reason)) = &self.refused_table {
            return Err(Error::invalid(format!("table {table:?}"), reason.clone()));
        }
        self.tables.iter().try_for_each(Table::check)
    }
}

impl std::fmt::Debug for Projection {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Projection")
            .field("name", &self.name)
            .field("types", &self.types)
            .finish_non_exhaustive()
    }
}
