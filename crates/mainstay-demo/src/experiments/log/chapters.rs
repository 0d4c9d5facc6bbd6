//! The experiments on the log.

use super::super::micros;
use super::facts::{Done, Facts, LastLamp, Payment, RowAndEvent, Seen};
use mainstay::events::{
    Append, Appended, Condition, Error, IdempotencyKey, Item, Log, NewEvent, Query, Result, Selection,
    Subscription,
};
use mainstay::prelude::{Options, Tx, params};
use mainstay::store::Store;
use serde_json::json;
use std::time::{Duration, Instant};
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};

const LAMPS: usize = 3;
const TABLE: &str = "CREATE TABLE shipments (order_id TEXT NOT NULL PRIMARY KEY)";
const SHIP: &str = "INSERT INTO shipments (order_id) VALUES ($1)";
const COUNT: &str = "SELECT count(*) FROM shipments";

/// Runs the experiments on an empty log.
pub(crate) async fn play(options: Options) -> Result<Facts> {
    let store = options.open().await?;
    let played = on(&store).await;
    store.close().await;
    played
}

async fn on(store: &Store) -> Result<Facts> {
    let began = Instant::now();
    let log = Log::open(store).await?;
    let (announce, last) = watch::channel(None);
    let mut follower = JoinSet::new();
    follower.spawn(follow(log.subscribe(Selection::all()), last, began));

    let shop = Shop { log: log.clone(), began };
    let placed = shop.open_and_sell().await?;
    let last_lamp = shop.last_lamp().await?;
    let payment = shop.payment().await?;
    let row_and_event = shop.row_and_event().await?;
    announce.send_replace(Some(log.head().await?));
    let seen = match follower.join_next().await {
        Some(followed) => ended(followed)??,
        None => Vec::new(),
    };
    let mut called = placed.clone();
    called.extend(
        [&last_lamp.won, &last_lamp.decided_anew, &payment.first, &row_and_event.done].map(Done::clone),
    );
    Ok(Facts {
        store: store.location().to_string(),
        seen: seen.into_iter().map(|seen| since_its_call(seen, &called)).collect(),
        placed,
        last_lamp,
        payment,
        row_and_event,
        elapsed_us: micros(began.elapsed()),
    })
}

/// Takes down what comes, until the last event came.
async fn follow(
    mut subscription: Subscription,
    mut last: watch::Receiver<Option<u64>>,
    began: Instant,
) -> Result<Vec<Seen>> {
    let mut seen = Vec::new();
    loop {
        let is_over = |last: &Option<u64>| last.is_some_and(|last| seen.len() as u64 >= last);
        if is_over(&last.borrow_and_update()) {
            return Ok(seen);
        }
        tokio::select! {
            event = subscription.next() => {
                let event = event?;
                let after_us = micros(began.elapsed());
                seen.push(Seen { position: event.position(), event_type: event.event_type().to_owned(), after_us });
            }
            told = last.changed() => if told.is_err() { return Ok(seen) },
            () = tokio::time::sleep(Duration::from_secs(5)) => return Ok(seen),
        }
    }
}

/// Counts the time from the call of the append instead of from the start.
fn since_its_call(seen: Seen, called: &[Done]) -> Seen {
    let called = called.iter().find(|done| done.position == seen.position);
    Seen { after_us: seen.after_us.saturating_sub(called.map_or(0, |done| done.called_us)), ..seen }
}

#[derive(Clone)]
struct Shop {
    log: Log,
    began: Instant,
}

/// What a decision about lamps rests on.
#[derive(Clone)]
struct Sight {
    left: usize,
    head: u64,
}

impl Shop {
    /// How many lamps are left, as of which position.
    async fn look(&self) -> Result<Sight> {
        let page = self.log.read(&Selection::all().tagged("item:lamp")?, 100).await?;
        let sold = page.events.iter().filter(|event| event.event_type() == "OrderPlaced").count();
        Ok(Sight { left: LAMPS.saturating_sub(sold), head: page.head })
    }

    async fn append(&self, append: impl Into<Append>) -> Result<Done> {
        let append = append.into();
        let event = append.events.first().cloned();
        let called_us = micros(self.began.elapsed());
        let appended = self.log.append(append).await?;
        Ok(done(&event.map_or_else(String::new, |event| event.event_type), &appended, called_us))
    }

    /// Places an order, if nobody bought or stocked lamps since they were counted.
    async fn order(&self, number: u32, sight: &Sight) -> Result<Done> {
        self.append(lamp_event("OrderPlaced", number)?.unless(lamps_unchanged(sight.head)?)).await
    }

    async fn open_and_sell(&self) -> Result<Vec<Done>> {
        let stocked = NewEvent::new("LampsStocked", &json!({ "amount": LAMPS }))?.tag("item:lamp");
        let mut placed = vec![self.append(stocked).await?];
        for number in 1..LAMPS as u32 {
            placed.push(self.order(number, &self.look().await?).await?);
        }
        Ok(placed)
    }

    /// Two customers see the last lamp, and both order it.
    async fn last_lamp(&self) -> Result<LastLamp> {
        let sight = self.look().await?;
        // On tasks of their own, so that nobody knows who is first.
        let order = |number| {
            let (shop, sight) = (self.clone(), sight.clone());
            tokio::spawn(async move { shop.order(number, &sight).await })
        };
        let (one, other) = (order(3), order(4));
        let (one, other) = (ended(one.await)?, ended(other.await)?);
        let (winner, loser, won, lost) = match (one, other) {
            (Ok(won), Err(lost)) => ("order:3", 4, won, lost),
            (Err(lost), Ok(won)) => ("order:4", 3, won, lost),
            (Err(failed), Err(_)) => return Err(failed),
            (Ok(_), Ok(_)) => unreachable!("a condition holds for one of two"),
        };
        let Error::ConditionFailed { witness, .. } = &lost else { return Err(lost) };
        let witness = witness.position;
        // The loser looks again, and decides otherwise.
        let then = self.look().await?;
        let back_ordered = lamp_event("OrderBackordered", loser)?.unless(lamps_unchanged(then.head)?);
        Ok(LastLamp {
            left: sight.left,
            winner: winner.to_owned(),
            won,
            loser: format!("order:{loser}"),
            refused: (&lost).into(),
            witness,
            left_then: then.left,
            decided_anew: self.append(back_ordered).await?,
        })
    }

    /// A payment that is sent again because its answer was lost, and one that claims to be the same.
    async fn payment(&self) -> Result<Payment> {
        let key = IdempotencyKey::action("payment", "order-1").map_err(|error| Error::Invalid {
            field: "idempotencyKey".to_owned(),
            reason: error.to_string(),
        })?;
        let paid = |amount: u32| {
            let event = NewEvent::new("OrderPaid", &json!({ "amount": amount }))?;
            Ok::<_, Error>(event.tag("order:1").idempotent(&key))
        };
        let first = self.append(paid(4_200)?).await?;
        let again = self.append(paid(4_200)?).await?;
        let other = self.append(paid(9_900)?).await;
        Ok(Payment {
            key: key.to_string(),
            first,
            again,
            other: other.err().as_ref().map(Into::into),
            head: self.log.head().await?,
        })
    }

    /// A row of the application's own and an event, in one transaction; then once more, which the log refuses.
    async fn row_and_event(&self) -> Result<RowAndEvent> {
        let store = self.log.store();
        store.transact(async |tx| tx.execute(TABLE, &[]).await).await?;
        let called_us = micros(self.began.elapsed());
        let shipped = self.ship("order-1").await?;
        let refused = self.ship("order-1 again").await;
        let rows: u64 = store.read(async |tx| tx.query_one(COUNT, &[]).await?.get(0)).await?;
        Ok(RowAndEvent {
            done: done("OrderShipped", &shipped, called_us),
            refused: refused.err().as_ref().map(Into::into),
            rows,
        })
    }

    async fn ship(&self, row: &str) -> Result<Appended> {
        let once = Query::new(vec![Item {
            types: vec!["OrderShipped".to_owned()],
            tags: vec!["order:1".to_owned()],
        }]);
        let once =
            once.map_err(|error| Error::Invalid { field: "query".to_owned(), reason: error.to_string() })?;
        let shipped = NewEvent::new("OrderShipped", &json!({ "parcel": 1 }))?.tag("order:1");
        let append = Append::from(shipped).unless(Condition::none_match(once));
        let ship = async |tx: Tx, (log, row, append): (Log, String, Append)| {
            tx.execute(SHIP, params![row]).await?;
            Ok(log.append_in(&tx, append)?)
        };
        let receipt =
            self.log.store().transact_with((self.log.clone(), row.to_owned(), append), ship).await?;
        receipt.get().cloned().ok_or_else(|| Error::NotFound("the receipt".to_owned()))
    }
}

/// What a task returned.
fn ended<T>(task: std::result::Result<T, JoinError>) -> Result<T> {
    task.map_err(|lost| mainstay::store::Error::Panicked(lost.to_string()).into())
}

fn lamp_event(event_type: &str, number: u32) -> Result<Append> {
    let event = NewEvent::new(event_type, &json!({ "order": number }))?;
    Ok(event.tag(format!("order:{number}")).tag("item:lamp").into())
}

fn lamps_unchanged(since: u64) -> Result<Condition> {
    Ok(Condition::no_tag("item:lamp")?.after(since))
}

fn done(event_type: &str, appended: &Appended, called_us: u64) -> Done {
    Done {
        event_type: event_type.to_owned(),
        position: appended.events.first().map_or(0, |event| event.position),
        status: appended.status,
        called_us,
    }
}
