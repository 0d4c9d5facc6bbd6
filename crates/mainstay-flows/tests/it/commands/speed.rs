//! How fast commands are decided. Figures are printed, and mean something in a release build on a quiet machine:
//! `cargo test --release -p mainstay-flows --test it -- speed --nocapture --test-threads 1`.

use super::house::{Diary, House};
use crate::deciders::{HallEvent, Halls};
use mainstay_events::{Append, Condition, NewEvent};
use mainstay_flows::commands::{Command, Commands, Decision, Handling, decide_in, encode};
use mainstay_store::params;
use mainstay_testkit::stores::for_each_lasting_store;
use mainstay_work::NewWork;
use serde_json::json;
use std::time::{Duration, Instant};

const CALLERS: u32 = 64;
const FOLDED: u32 = 10;

/// Folds what happened in a hall, decides, writes a row, and starts an item of work.
fn selling() -> Commands {
    Commands::new().on("Sell", async |handling: Handling, hall: u32| {
        let command = serde_json::from_value(json!({ "SellSeat": { "hall": hall, "seat": 1_000 } }));
        let command = command.map_err(mainstay_store::Error::application)?;
        let moment = handling.moment();
        let considered = decide_in(handling.tx(), handling.log(), &Halls, &command, &moment).await?;
        handling.unless(considered.condition);
        let insert = "INSERT INTO orders (id, command) VALUES ($1, 'Sell')";
        handling.tx().execute(insert, params![hall]).await?;
        handling.start(NewWork::new("shop", "ship", &hall)?)?;
        let Decision::Success { events, .. } = considered.decided? else {
            return Err(mainstay_store::Error::application("the seat is free"));
        };
        Ok(Decision::success((), events))
    })
}

async fn at_once<F, Fut>(each: u32, call: F) -> Duration
where
    F: Fn(u32) -> Fut,
    Fut: Future<Output = ()> + Send + 'static,
{
    let began = Instant::now();
    let callers: Vec<_> = (0..CALLERS)
        .map(|caller| {
            let calls: Vec<_> = (0..each).map(|number| call(caller * each + number)).collect();
            tokio::spawn(async move {
                for call in calls {
                    call.await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    began.elapsed()
}

#[test]
fn commands_are_decided_many_times_a_second() {
    let each = if cfg!(debug_assertions) { 3 } else { 400 };
    for_each_lasting_store(async |place| {
        let house = House::open_with(&place, selling(), Diary::default()).await;
        for hall in 0..CALLERS * each {
            let sold = (0..FOLDED).map(|seat| encode(&HallEvent::SeatSold { hall, seat }).unwrap());
            house.log.append(Append::new(sold)).await.unwrap();
        }
        let before = house.log.head().await.unwrap();
        let bare = at_once(each, |number| {
            let log = house.log.clone();
            async move {
                let tag = format!("bare:{number}");
                let once = Condition::no_tag(tag.as_str()).unwrap();
                let event = NewEvent::new("Bare", &number).unwrap().tag(tag);
                log.append(Append::from(event).unless(once)).await.unwrap();
            }
        })
        .await;
        let dispatched = at_once(each, |hall| {
            let dispatcher = house.dispatcher.clone();
            async move {
                let dispatched = dispatcher.dispatch(Command::new("Sell", &hall).unwrap()).await.unwrap();
                assert_eq!(dispatched.outcome.events().len(), 1);
            }
        })
        .await;
        let count = u64::from(CALLERS * each);
        assert_eq!(house.log.head().await.unwrap(), before + 2 * count);
        assert_eq!(house.depth("shop").await, count);
        let rate = |took: Duration| count as f64 / took.as_secs_f64();
        println!(
            "{}: {CALLERS} callers, {:.0} bare appends/s, {:.0} commands/s: {:.2}×",
            place.kind(),
            rate(bare),
            rate(dispatched),
            rate(dispatched) / rate(bare)
        );
    });
}
