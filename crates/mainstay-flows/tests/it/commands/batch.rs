//! Commands that come at the same time.

use super::house::{Diary, House, order, shop};
use crate::deciders::Halls;
use mainstay_events::{NewEvent, Selection};
use mainstay_flows::Result;
use mainstay_flows::commands::{
    Command, Commands, Decision, Dispatched, Dispatcher, Handling, Outcome, Rejection, State,
};
use mainstay_store::{Hold, params};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Functions, Work};
use serde_json::json;
use std::collections::BTreeSet;

/// Sends commands at once; what came of each, in their order. On a machine so slow that they are decided side by side, some
/// may be overtaken too often; those are sent again, as their callers would.
async fn at_once(dispatcher: &Dispatcher, commands: Vec<Command>) -> Vec<Result<Dispatched>> {
    let sent = commands.into_iter().map(|command| {
        let dispatcher = dispatcher.clone();
        tokio::spawn(async move {
            loop {
                match dispatcher.dispatch(command.clone()).await {
                    Err(error) if error.code() == "APPEND_CONDITION_FAILED" => {}
                    answer => return answer,
                }
            }
        })
    });
    let sent: Vec<_> = sent.collect();
    let mut answers = Vec::new();
    for one in sent {
        answers.push(one.await.unwrap());
    }
    answers
}

async fn selling(place: &Place) -> House {
    House::open_with(place, Commands::new().decider(Halls), Diary::default()).await
}

fn sell(hall: u32, seat: u32) -> Command {
    Command::new("SellSeat", &json!({ "hall": hall, "seat": seat })).unwrap()
}

#[test]
fn commands_at_once_share_transactions() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        // On a busy machine those that are sent at once may arrive one by one, but not every time.
        let mut counts = Vec::new();
        while counts.len() < 5 && counts.iter().all(|transactions| *transactions > 48) {
            let first = 64 * counts.len() as u32;
            let before = house.store.figures().committed.get();
            let commands = (first..first + 64).map(|id| order("PlaceOrder", id)).collect();
            let answers = at_once(&house.dispatcher, commands).await;
            counts.push(house.store.figures().committed.get() - before);
            let positions: BTreeSet<u64> =
                answers.iter().map(|answer| answer.as_ref().unwrap().outcome.events()[0].position).collect();
            assert_eq!(positions, (u64::from(first) + 1..=u64::from(first) + 64).collect());
            let all = 64 * counts.len();
            assert_eq!((house.orders().await.len(), house.depth("shop").await as usize), (all, all));
            for answer in answers {
                let status = house.dispatcher.status(&answer.unwrap().command_id).await.unwrap();
                assert_eq!((status.state, status.outcome.events().len()), (State::Executed, 1));
            }
        }
        assert!(*counts.last().unwrap() <= 48, "{counts:?} transactions on {}", place.kind());
    });
}

#[test]
fn a_command_that_fails_in_a_batch_fails_no_other() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let names = ["PlaceOrder", "RefuseOrder", "PlaceOrder", "FailOrder", "BreakOrder", "PanicOrder"];
        let commands = (0..60).map(|id| order(names[id as usize % names.len()], id)).collect();
        for (id, answer) in at_once(&house.dispatcher, commands).await.into_iter().enumerate() {
            let outcome = match &answer {
                Ok(dispatched) => dispatched.outcome.status(),
                Err(error) => error.code(),
            };
            let expected = match names[id % names.len()] {
                "PlaceOrder" => "success",
                "RefuseOrder" => "rejected",
                "FailOrder" => "failed",
                _ => "HANDLER_ERROR",
            };
            assert_eq!(outcome, expected, "order {id} on {}", place.kind());
        }
        // What the refused and the broken ones wrote is gone.
        let rows = house.orders().await;
        assert_eq!(rows.iter().filter(|row| *row == "PlaceOrder").count(), 20);
        assert_eq!((rows.len(), house.depth("shop").await, house.log.head().await.unwrap()), (30, 20, 30));
    });
}

#[test]
fn decisions_on_one_boundary_take_turns() {
    for_each_store(async |place| {
        let house = selling(&place).await;
        let answers = at_once(&house.dispatcher, (0..48).map(|seat| sell(1, seat)).collect()).await;
        let counts: BTreeSet<String> = answers
            .iter()
            .map(|answer| match &answer.as_ref().unwrap().outcome {
                Outcome::Success { data, .. } => data.get().to_owned(),
                other => panic!("{other:?}"),
            })
            .collect();
        // Each counted the seats that were sold before: no two saw the same.
        assert_eq!(counts.len(), 48);
        assert_eq!(house.log.head().await.unwrap(), 48);
    });
}

#[test]
fn decisions_on_one_boundary_stay_in_one_batch() {
    for_each_store(async |place| {
        let house = selling(&place).await;
        // A machine that stalls may let one overtake another; not every time.
        for hall in 0..5 {
            let work = Work::open(&house.store, Functions::new()).await.unwrap();
            let fresh = Dispatcher::open(&house.log, &work, Commands::new().decider(Halls)).await.unwrap();
            let before = house.store.figures().rolled_back.get();
            at_once(&fresh, (0..48).map(|seat| sell(hall, seat)).collect()).await;
            if house.store.figures().rolled_back.get() == before {
                return;
            }
        }
        panic!("every time something was rolled back on {}", place.kind());
    });
}

#[test]
fn a_seat_is_sold_once_however_many_want_it_at_once() {
    for_each_store(async |place| {
        let house = selling(&place).await;
        let commands = (0..60).map(|number| sell(number % 3, 7)).collect();
        let answers = at_once(&house.dispatcher, commands).await;
        let sold = answers.iter().filter(|answer| answer.as_ref().unwrap().outcome.status() == "success");
        assert_eq!(sold.count(), 3);
        let events = house.log.read(&Selection::all().of_type("SeatSold").unwrap(), 100).await.unwrap();
        assert_eq!(events.events.len(), 3);
    });
}

#[test]
fn a_rejection_in_a_batch_is_recorded() {
    for_each_store(async |place| {
        let house = selling(&place).await;
        let close = Command::new("CloseHall", &json!({ "hall": 1 })).unwrap();
        house.dispatcher.dispatch(close).await.unwrap();
        let commands = (0..40).map(|seat| sell(seat % 2, seat).id(format!("cmd-{seat}"))).collect();
        at_once(&house.dispatcher, commands).await.into_iter().for_each(|answer| drop(answer.unwrap()));
        for seat in 0..40 {
            let status = house.dispatcher.status(&format!("cmd-{seat}")).await.unwrap();
            let expected = if seat % 2 == 1 { State::Rejected } else { State::Executed };
            assert_eq!(status.state, expected, "seat {seat}");
            let again =
                house.dispatcher.dispatch(sell(seat % 2, seat).id(format!("cmd-{seat}"))).await.unwrap();
            assert!(again.is_duplicate);
        }
        assert_eq!(house.log.head().await.unwrap(), 21);
    });
}

#[test]
fn a_rejection_that_has_written_nothing_is_written_down_where_it_was_decided() {
    for_each_store(async |place| {
        let house = selling(&place).await;
        let close = Command::new("CloseHall", &json!({ "hall": 1 })).unwrap();
        house.dispatcher.dispatch(close).await.unwrap();
        let figures = house.store.figures();
        let before = figures.rolled_back.get();
        house.dispatcher.dispatch(sell(1, 1).id("late")).await.unwrap();
        // Between two transactions somebody else could decide otherwise over its twin.
        assert_eq!(figures.rolled_back.get(), before, "{}", place.kind());
        assert_eq!(house.dispatcher.status("late").await.unwrap().state, State::Rejected);
    });
}

#[test]
fn handlers_in_a_batch_read_the_writes_of_those_before_them() {
    for_each_store(async |place| {
        let take = Commands::new().on("Take", async |handling: Handling, _: u32| {
            let left = handling.tx().query_holding("SELECT id FROM orders", &[], Hold::Alone).await?;
            match left[0].get::<i64>(0)? {
                0 => Err(Rejection::new("NONE_LEFT", "all are taken").into()),
                left => {
                    handling.tx().execute("UPDATE orders SET id = $1", params![left - 1]).await?;
                    Ok(Decision::success(left, []))
                }
            }
        });
        let house = House::open_with(&place, take, Diary::default()).await;
        let insert = "INSERT INTO orders (id, command) VALUES (20, 'left')";
        house.store.transact(async move |tx| tx.execute(insert, &[]).await).await.unwrap();
        let answers =
            at_once(&house.dispatcher, (0..48).map(|_| Command::new("Take", &1).unwrap()).collect()).await;
        let taken = answers.iter().filter(|answer| answer.as_ref().unwrap().outcome.status() == "success");
        assert_eq!(taken.count(), 20);
    });
}

#[test]
fn a_scope_moves_once_for_all_who_expect_the_same_version() {
    for_each_store(async |place| {
        let house = House::open_with(&place, shop(&Diary::default()), Diary::default()).await;
        let commands =
            (0..24).map(|id| order("PlaceOrder", id).within("tenant:t1:stock:lamp", 0)).collect::<Vec<_>>();
        let answers = at_once(&house.dispatcher, commands).await;
        let done = answers.iter().filter(|answer| answer.is_ok()).count();
        let codes: BTreeSet<&str> =
            answers.iter().filter_map(|answer| Some(answer.as_ref().err()?.code())).collect();
        assert_eq!((done, codes), (1, ["VERSION_CONFLICT"].into()), "{}", place.kind());
        assert_eq!(house.orders().await.len(), 1);
    });
}

#[test]
fn handlers_in_a_batch_that_read_the_log_find_the_events_of_those_before_them() {
    for_each_store(async |place| {
        let count = Commands::new().on("Count", async |handling: Handling, _: u32| {
            // Whoever reads without a condition keeps others away by other means.
            handling.tx().lock("count").await?;
            let counted = Selection::all().of_type("Counted")?;
            let found = handling.log().read_in(handling.tx(), &counted, 100).await?.events.len();
            Ok(Decision::success(found, [NewEvent::new("Counted", &found)?]))
        });
        let house = House::open_with(&place, count, Diary::default()).await;
        let commands = (0..48).map(|_| Command::new("Count", &1).unwrap()).collect();
        let found: BTreeSet<usize> = at_once(&house.dispatcher, commands)
            .await
            .into_iter()
            .map(|answer| match answer.unwrap().outcome {
                Outcome::Success { data, .. } => data.get().parse().unwrap(),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(found, (0..48).collect());
    });
}

#[test]
fn a_command_that_comes_several_times_at_once_meets_nothing_but_its_own_answer() {
    for_each_store(async |place| {
        let insert = async |handling: Handling, id: u32| {
            let sql = "INSERT INTO slots (id) VALUES ($1)";
            handling.tx().execute(sql, params![id]).await?;
            Ok(Decision::success(id, [NewEvent::new("SlotTaken", &id)?.tenant("t1")]))
        };
        let house = House::open_with(&place, Commands::new().on("TakeSlot", insert), Diary::default()).await;
        let create = "CREATE TABLE slots (id BIGINT PRIMARY KEY)";
        house.store.transact(async move |tx| tx.execute(create, &[]).await).await.unwrap();
        // The scope is moved, and the key taken, by the one that is first.
        for id in 0..20_u32 {
            let command = Command::new("TakeSlot", &id).unwrap().id(format!("cmd-{id}"));
            let scoped = command.clone().within("tenant:t1:slots:all", u64::from(id / 2));
            let command = if id % 2 == 0 { scoped } else { command };
            let answers = at_once(&house.dispatcher, vec![command; 8]).await;
            let answers = answers.into_iter().map(|answer| answer.unwrap());
            let answers: Vec<_> = answers.map(|one| (one.outcome.status(), one.is_duplicate)).collect();
            assert_eq!(answers.iter().filter(|one| **one == ("success", false)).count(), 1, "{answers:?}");
            assert_eq!(answers.iter().filter(|one| **one == ("success", true)).count(), 7, "{answers:?}");
        }
        assert_eq!(house.log.head().await.unwrap(), 20);
    });
}
