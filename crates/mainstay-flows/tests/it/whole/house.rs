//! One life of a process: commands, work and projections on one store, until it dies.

use super::Mutant;
use crate::deciders::Halls;
use crate::projections::support::{Bench, PATIENCE, at_once, components};
use mainstay_core::failpoints::Failpoints;
use mainstay_events::{Event, NewEvent};
use mainstay_flows::commands::{self, Commands, Decision, Dispatcher, Ended, Handling, Rejection};
use mainstay_flows::projections::{By, Category, Model, Poison, Projecting, Projection, Registry};
use mainstay_store::{Error, Store, Tx, params};
use mainstay_testkit::stores::Place;
use mainstay_work::{Call, Engine, Functions, NewWork, Pool};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// On PostgreSQL nobody takes up what a dead node had before this is over.
const LEASE: Duration = Duration::from_millis(400);
pub(super) const SCOPE: &str = "tenant:t1:stock:lamp";
/// Which read models there are, and in which tables.
pub(super) const MODELS: [(&str, &str, &str); 3] = [
    ("lettered", "whole_rows", "whole_totals"),
    ("poisoned", "whole_rows", "whole_totals"),
    ("beside", "beside_rows", "beside_totals"),
];
const ROWS: &str = "(model TEXT NOT NULL, position BIGINT NOT NULL)";
const TOTALS: &str =
    "(model TEXT NOT NULL, kind TEXT NOT NULL, count BIGINT NOT NULL, PRIMARY KEY (model, kind))";

/// What a handler does beside being one of commands; whether it has written is told by its name.
pub(super) const HANDLERS: [&str; 7] = ["Sell", "Spoil", "Refuse", "Regret", "Fail", "Break", "Panic"];

/// Whether read models cannot take events of type `Spoilt` at present.
pub(super) type Bad = Arc<AtomicBool>;

pub(super) struct House {
    pub(super) bench: Bench,
    pub(super) dispatcher: Dispatcher,
    pub(super) failpoints: Failpoints,
    running: Option<(Projecting, Engine)>,
}

async fn note(tx: &Tx, what: &str, id: &str) -> mainstay_store::Result<()> {
    tx.execute("INSERT INTO notes (what, id) VALUES ($1, $2)", params![what, id]).await.map(drop)
}

/// Most write a row, an event and an item of work; the others come to nothing in every way there is.
async fn handle(
    name: &'static str,
    handling: Handling,
) -> mainstay_store::Result<Decision<NewEvent, String>> {
    let id = handling.issued().command_id.clone();
    if name == "Refuse" {
        return Err(Rejection::new("REFUSED", "at once").into());
    }
    note(handling.tx(), "row", &id).await?;
    let event =
        |event_type: &str| Ok::<_, Error>(NewEvent::new(event_type, &id)?.tenant("t1").tag("item:lamp"));
    Ok(match name {
        "Sell" | "Spoil" => {
            handling.start(NewWork::new("shop", "ship", &id)?)?;
            Decision::success(id.clone(), [event(if name == "Sell" { "Sold" } else { "Spoilt" })?])
        }
        "Regret" => return Err(Rejection::new("REGRETTED", "after it has written").into()),
        "Fail" => Decision::failed("not enough", [event("Failed")?]),
        "Break" => return Err(Error::application("broken")),
        _ => panic!("on purpose"),
    })
}

fn commands() -> Commands {
    let add = |commands: Commands, name: &'static str| {
        commands.on(name, move |handling: Handling, _: u64| handle(name, handling))
    };
    HANDLERS.into_iter().fold(Commands::new().decider(Halls), add)
}

fn functions() -> Functions {
    Functions::new()
        .mutation("ship", async |tx: Tx, _: Call, id: String| note(&tx, "shipped", &id).await)
        .mutation("told", async |tx: Tx, _: Call, ended: Ended<String>| {
            note(&tx, &format!("told {}", ended.result.status), &ended.command_id).await
        })
}

/// Writes an event into a read model: where it is, and how many there are of its kind.
async fn write(
    tx: &Tx,
    (model, rows, totals): (&str, &str, &str),
    event: &Event,
) -> mainstay_store::Result<()> {
    let sql = format!("INSERT INTO {rows} (model, position) VALUES ($1, $2)");
    tx.execute(&sql, params![model, event.position() as i64]).await?;
    // Lanes that run beside each other would wait for each other's rows.
    if model != "lettered" {
        let sql = format!(
            "INSERT INTO {totals} (model, kind, count) VALUES ($1, $2, 1) \
             ON CONFLICT (model, kind) DO UPDATE SET count = {totals}.count + 1"
        );
        tx.execute(&sql, params![model, event.event_type()]).await?;
    }
    Ok(())
}

fn projection(name: &'static str, store: &Store, bad: &Bad, mutant: Mutant) -> Projection {
    let (bad, store) = (bad.clone(), store.clone());
    Projection::new(name, Category::View).retry(at_once(2)).each(move |tx: Tx, model: Model, event: Event| {
        let (bad, store) = (bad.clone(), store.clone());
        async move {
            let tables = match name {
                "beside" => {
                    (model.table("beside_rows")?.to_owned(), model.table("beside_totals")?.to_owned())
                }
                _ => ("whole_rows".to_owned(), "whole_totals".to_owned()),
            };
            if mutant == Mutant::WritesOutside {
                let outside = async |tx: Tx, (name, (rows, totals), event): (_, (String, String), _)| {
                    write(&tx, (name, &rows, &totals), &event).await
                };
                let context = (name, tables, event.clone());
                tokio::spawn(async move { store.transact_with(context, outside).await });
            } else {
                write(&tx, (name, &tables.0, &tables.1), &event).await?;
            }
            if event.event_type() == "Spoilt" && bad.load(Ordering::SeqCst) {
                assert!(event.position().is_multiple_of(2), "cannot take it");
                return Err(Error::application("cannot take it"));
            }
            Ok(())
        }
    })
}

fn registry(store: &Store, bad: &Bad, mutant: Mutant) -> Registry {
    let in_place = |name: &'static str| {
        projection(name, store, bad, mutant).reset(move |tx: Tx| async move {
            for (_, rows, totals) in MODELS.into_iter().filter(|(model, ..)| *model == name) {
                for table in [rows, totals] {
                    let sql = format!("DELETE FROM {table} WHERE model = $1");
                    tx.execute(&sql, params![name]).await?;
                }
            }
            Ok(())
        })
    };
    let beside = projection("beside", store, bad, mutant)
        .table("beside_rows", &[&format!("CREATE TABLE {{table}} {ROWS}")])
        .table("beside_totals", &[&format!("CREATE TABLE {{table}} {TOTALS}")]);
    Registry::new()
        .with(in_place("lettered").partitioned(2, By::Stream))
        .with(in_place("poisoned").poison(Poison::new(2, false)))
        .with(beside)
}

impl House {
    pub(super) async fn open(place: &Place, bad: &Bad, mutant: Mutant) -> Self {
        let failpoints = Failpoints::default();
        let options = components(place.options()).component(commands::COMPONENT);
        let store = options.failpoints(failpoints.clone()).open().await.unwrap();
        let create = async |tx: Tx| {
            for table in [
                "notes (what TEXT NOT NULL, id TEXT NOT NULL)".to_owned(),
                format!("whole_rows {ROWS}"),
                format!("whole_totals {TOTALS}"),
            ] {
                tx.execute(&format!("CREATE TABLE IF NOT EXISTS {table}"), &[]).await?;
            }
            Ok(())
        };
        store.transact(create).await.unwrap();
        let (registry, commands) = (registry(&store, bad, mutant), commands());
        let bench = Bench::of(store, registry, functions(), LEASE).await;
        bench.work.pool(Pool::new("shop")).await.unwrap();
        let replays = Pool::new("eventReplayPool").max_parallelism(5).retry(at_once(1_000));
        bench.work.pool(replays).await.unwrap();
        let dispatcher = Dispatcher::open(&bench.log, &bench.work, commands).await.unwrap();
        let running = Some(bench.start().await);
        Self { bench, dispatcher, failpoints, running }
    }

    /// Ends as a process does that is asked to.
    pub(super) async fn stop(mut self) {
        if let Some((projecting, engine)) = self.running.take() {
            projecting.stop(PATIENCE).await;
            let stopped = engine.stop(PATIENCE).await;
            // It may die over it.
            assert!(stopped.is_ok() || self.failpoints.is_dead(), "{stopped:?}");
        }
        self.vanish().await;
    }

    /// Is gone, with whatever it was about to do.
    pub(super) async fn vanish(self) {
        let store = self.bench.store.clone();
        drop(self);
        store.close().await;
    }
}
