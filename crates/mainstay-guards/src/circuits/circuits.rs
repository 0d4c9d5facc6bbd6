//! All circuits of a store.

use super::change::topic;
use super::circuit::Circuit;
use super::figures::Figures;
use super::keeper;
use super::local::Core;
use super::record::{Record, Status};
use super::shared::Shared;
use super::{MAX_CIRCUITS, MAX_NAME_BYTES};
use crate::{Error, Result};
use mainstay_core::circuit::{Settings, State};
use mainstay_core::names::check_unreserved;
use mainstay_store::{Store, Tx};
use std::sync::Arc;

/// The circuits of a store. Clones are the same; when the last one and the last circuit is dropped, nothing is kept up to
/// date any more.
#[derive(Clone)]
pub struct Circuits {
    pub(super) shared: Arc<Shared>,
}

impl Circuits {
    /// Opens the circuits of a store that was opened with [`COMPONENT`](super::COMPONENT).
    pub async fn open(store: &Store) -> Result<Self> {
        let listener = store.listen(topic());
        let shared = Arc::new(Shared::new(store));
        shared.refresh().await?;
        tokio::spawn(keeper::keep(Arc::downgrade(&shared), shared.signal.clone(), listener));
        Ok(Self { shared })
    }

    /// The circuit of this name, as the database has set it, or as services of this name usually are. Nothing is written.
    pub fn circuit(&self, name: &str) -> Result<Circuit> {
        check_name(name)?;
        let core = self.shared.core(name);
        Ok(Circuit { shared: self.shared.clone(), core })
    }

    /// The circuit of this name, set by this program.
    pub fn circuit_with(&self, name: &str, settings: Settings) -> Result<Circuit> {
        let settings = settings.checked().map_err(|error| Error::invalid("settings", error.to_string()))?;
        let circuit = self.circuit(name)?;
        circuit.core.declare(settings, self.shared.now_ms());
        Ok(circuit)
    }

    /// Sets the circuit of this name on all nodes, as one that this program names: as [`define`](Self::define), but callers
    /// cannot use up its room.
    pub async fn declare(&self, name: &str, settings: Settings) -> Result<Status> {
        check_name(name)?;
        self.shared.core(name).own();
        self.define(name, settings).await
    }

    /// Sets the circuit of this name on all nodes, from now on. A program that [sets](Self::circuit_with) it itself goes by
    /// its own settings.
    pub async fn define(&self, name: &str, settings: Settings) -> Result<Status> {
        let settings = settings.checked().map_err(|error| Error::invalid("settings", error.to_string()))?;
        check_name(name)?;
        let define = async |tx: Tx, (shared, core, settings): (Arc<Shared>, Arc<Core>, Settings)| {
            shared.define_in(&tx, &core, settings).await
        };
        let context = (self.shared.clone(), self.shared.core(name), settings);
        Ok(self.shared.store.transact_with(context, define).await?)
    }

    /// A circuit as the database has it; closed, when it never counted anything.
    pub async fn status(&self, name: &str) -> Result<Status> {
        check_name(name)?;
        self.shared.status(name).await
    }

    /// Circuits that have ever counted something, in the order of names after `after`.
    pub async fn list(&self, after: Option<&str>, limit: usize) -> Result<Vec<Status>> {
        let limit = limit.clamp(1, MAX_CIRCUITS) as i64;
        let read = async |tx: Tx, (shared, after, limit): (Arc<Shared>, String, i64)| {
            let now_ms = shared.now_in(&tx).await?;
            let page = Record::page(&tx, &after, limit).await?;
            Ok(page.into_iter().map(|record| Status::new(record, now_ms)).collect())
        };
        let context = (self.shared.clone(), after.unwrap_or_default().to_owned(), limit);
        Ok(self.shared.store.read_with(context, read).await?)
    }

    /// What is known here of every circuit that has counted something, without asking the database: for metrics.
    pub fn states(&self) -> Vec<(String, State)> {
        let now_ms = self.shared.now_ms();
        let state = |core: &Arc<Core>| {
            let local = core.local();
            local.has_counted().then(|| (core.name.to_string(), local.standing.effective(now_ms)))
        };
        let mut states: Vec<(String, State)> = self.shared.all_cores().iter().filter_map(state).collect();
        states.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        states
    }

    /// How the circuit of this name is set, as far as is known here.
    pub fn settings(&self, name: &str) -> Result<Settings> {
        check_name(name)?;
        Ok(self.shared.core(name).settings())
    }

    /// Waits until the database has been told all that was heard here before.
    pub async fn flush(&self) -> Result<()> {
        self.shared.flush().await
    }

    /// Tells the database, hears from it and looks at the clock, as is done now and then: for tests that move the clock.
    #[doc(hidden)]
    pub async fn look_around(&self) -> Result<()> {
        self.flush().await?;
        let _looking = self.shared.looking.lock().await;
        self.shared.refresh().await?;
        self.shared.fire_due().await;
        Ok(())
    }

    pub(super) fn store(&self) -> &Store {
        &self.shared.store
    }

    /// What circuits measure about themselves.
    pub fn figures(&self) -> &Arc<Figures> {
        &self.shared.figures
    }
}

pub(super) fn check_name(name: &str) -> Result<()> {
    check_unreserved("circuit", name)?;
    if name.is_empty() || name.len() > MAX_NAME_BYTES || name.chars().any(char::is_control) {
        let reason = format!("must have 1 to {MAX_NAME_BYTES} bytes and no control characters");
        return Err(Error::invalid("circuit", reason));
    }
    Ok(())
}
