//! The experiments on work.

use super::super::micros;
use super::facts::{Attempt, Facts, Letter, Parcels, Payment};
use mainstay::core::retry::RetryPolicy;
use mainstay::prelude::{Call, Failure, Functions, NewWork, OnComplete, Options, Pool, Work, params};
use mainstay::store::{Store, Tx};
use mainstay::work::{Error, LetterFilter, Result, Status};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const POOL: &str = "orders";
/// How often the payment provider is away.
const AWAY: u32 = 2;
const CUSTOMERS: [&str; 3] = ["ada", "bea", "cleo"];
const PARCELS: u32 = 4;
const PATIENCE: Duration = Duration::from_secs(10);

const TABLE: &str = "CREATE TABLE receipts (order_id TEXT NOT NULL, result TEXT NOT NULL)";
const WRITE: &str = "INSERT INTO receipts (order_id, result) VALUES ($1, $2)";
const COUNT: &str = "SELECT count(*) FROM receipts";

/// Runs the experiments in a store of their own.
pub(crate) async fn play(options: Options) -> Result<Facts> {
    let store = options.open().await?;
    let played = on(&store).await;
    store.close().await;
    played
}

async fn on(store: &Store) -> Result<Facts> {
    store.transact(async |tx| tx.execute(TABLE, &[]).await).await?;
    let diary = Arc::new(Diary {
        began: Instant::now(),
        pages: Mutex::default(),
        is_repaired: AtomicBool::new(false),
    });
    let work = Work::open(store, functions(&diary)).await?;
    let retry = RetryPolicy::new(3, 20, 2.0, 1_000)
        .map_err(|error| Error::Invalid { field: "retry".to_owned(), reason: error.to_string() })?;
    work.pool(Pool::new(POOL).max_parallelism(8).retry(retry)).await?;
    let engine = work.start().await?;
    let facts = Facts {
        payment: payment(&work, &diary).await?,
        parcels: parcels(&work, &diary).await?,
        letter: letter(&work, &diary).await?,
    };
    engine.stop(PATIENCE).await?;
    Ok(facts)
}

/// What the functions take down.
struct Diary {
    began: Instant,
    pages: Mutex<Pages>,
    is_repaired: AtomicBool,
}

#[derive(Default)]
struct Pages {
    attempts: Vec<(u32, Instant, Option<String>)>,
    sent: BTreeMap<String, Vec<u32>>,
    on_their_way: BTreeMap<String, usize>,
    at_once: usize,
    at_once_of_one: usize,
}

impl Diary {
    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn charge(&self, attempt: u32) -> std::result::Result<&'static str, Failure> {
        let failed = (attempt <= AWAY).then(|| "the payment provider is away".to_owned());
        self.pages().attempts.push((attempt, Instant::now(), failed.clone()));
        failed.map_or(Ok("paid"), |reason| Err(Failure::retryable(reason)))
    }

    async fn send(&self, customer: &str, parcel: u32) {
        {
            let mut pages = self.pages();
            pages.sent.entry(customer.to_owned()).or_default().push(parcel);
            *pages.on_their_way.entry(customer.to_owned()).or_default() += 1;
            let (all, of_one) = (pages.on_their_way.values().sum(), pages.on_their_way[customer]);
            (pages.at_once, pages.at_once_of_one) =
                (pages.at_once.max(all), pages.at_once_of_one.max(of_one));
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
        *self.pages().on_their_way.entry(customer.to_owned()).or_default() -= 1;
    }
}

fn functions(diary: &Arc<Diary>) -> Functions {
    let (charging, sending, labelling) = (diary.clone(), diary.clone(), diary.clone());
    Functions::new()
        .action("charge", move |call: Call, _order: String| std::future::ready(charging.charge(call.attempt)))
        .mutation("write_receipt", async |tx: Tx, _: Call, ended: OnComplete<String>| {
            tx.execute(WRITE, params![ended.context.unwrap_or_default(), ended.result.kind()]).await
        })
        .action("send", move |_: Call, (customer, parcel): (String, u32)| {
            let diary = sending.clone();
            async move {
                diary.send(&customer, parcel).await;
                Ok::<_, Failure>(())
            }
        })
        .action("print_label", move |_: Call, _address: String| {
            let is_repaired = labelling.is_repaired.load(Ordering::Relaxed);
            std::future::ready(match is_repaired {
                true => Ok("printed"),
                false => Err(Failure::permanent("no such street")),
            })
        })
}

/// A call that fails at first, and a row that is written in the transaction that ends it.
async fn payment(work: &Work, diary: &Diary) -> Result<Payment> {
    let enqueued_at = diary.began.elapsed();
    let charge = NewWork::new(POOL, "charge", "order-1")?.on_complete("write_receipt", "order-1")?;
    let ended = ended(work, &work.enqueue(charge).await?.work_id).await?;
    let rows = work.store().read(async |tx| tx.query_one(COUNT, &[]).await?.get(0)).await?;
    let since = |at: Instant| micros((at - diary.began).saturating_sub(enqueued_at));
    let attempts = std::mem::take(&mut diary.pages().attempts).into_iter();
    let attempts = attempts.map(|(number, at, failed)| Attempt { number, after_us: since(at), failed });
    Ok(Payment { attempts: attempts.collect(), result: kind(&ended), rows })
}

/// Many at once, but one customer's one after another.
async fn parcels(work: &Work, diary: &Diary) -> Result<Parcels> {
    let mut items = Vec::new();
    for parcel in 1..=PARCELS {
        for customer in CUSTOMERS {
            items.push(NewWork::new(POOL, "send", &(customer, parcel))?.key(customer));
        }
    }
    for enqueued in work.enqueue_all(items).await? {
        ended(work, &enqueued.work_id).await?;
    }
    let pages = std::mem::take(&mut *diary.pages());
    Ok(Parcels { sent: pages.sent, at_once: pages.at_once, at_once_of_one: pages.at_once_of_one })
}

/// A call that fails for good; somebody mends what was wrong, and tries again.
async fn letter(work: &Work, diary: &Diary) -> Result<Letter> {
    let print = NewWork::new(POOL, "print_label", "Nowhere Lane 1")?;
    let id = work.enqueue(print).await?.work_id;
    ended(work, &id).await?;
    let letters = work.letters(LetterFilter::default(), 1).await?;
    let letter =
        letters.into_iter().next().ok_or_else(|| Error::UnknownFunction("print_label".to_owned()))?;
    diary.is_repaired.store(true, Ordering::Relaxed);
    let again = work.retry_letter(&id).await?;
    Ok(Letter {
        function: letter.function,
        args: letter.args.get().to_owned(),
        error: letter.error,
        attempts: letter.attempts,
        tried_again: kind(&ended(work, &again).await?),
    })
}

async fn ended(work: &Work, id: &str) -> Result<Status> {
    work.wait_for(id, PATIENCE).await
}

fn kind(status: &Status) -> String {
    status.result.as_ref().map_or("none", |result| result.kind()).to_owned()
}
