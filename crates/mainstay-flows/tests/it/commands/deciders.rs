//! Deciders behind a dispatcher.

use super::house::{Diary, House, rejected};
use crate::deciders::Halls;
use mainstay_flows::commands::{Command, Commands, ConflictRetry, Outcome};
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use serde_json::json;
use std::time::Duration;

fn sell(hall: u32, seat: u32) -> Command {
    Command::new("SellSeat", &json!({ "hall": hall, "seat": seat })).unwrap()
}

async fn open(place: &Place) -> House {
    House::open_with(place, Commands::new().decider(Halls), Diary::default()).await
}

#[test]
fn the_variants_of_an_enum_are_commands() {
    for_each_store(async |place| {
        let house = open(&place).await;
        assert_eq!(house.dispatcher.types().collect::<Vec<_>>(), ["CloseHall", "SellSeat"]);
        let sold = house.dispatcher.dispatch(sell(1, 7)).await.unwrap();
        assert_eq!((sold.outcome.status(), sold.outcome.events()[0].position), ("success", 1));
        let refused = house.dispatcher.dispatch(sell(1, 7)).await.unwrap();
        assert_eq!(refused.outcome.status(), "failed", "with an event");
        let close = Command::new("CloseHall", &json!({ "hall": 1 })).unwrap();
        assert_eq!(house.dispatcher.dispatch(close).await.unwrap().outcome.status(), "success");
        let late = house.dispatcher.dispatch(sell(1, 8)).await.unwrap();
        assert_eq!(rejected(&late), "HALL_CLOSED");
        assert_eq!(house.log.head().await.unwrap(), 3);
        let wrong = Command::new("SellSeat", &json!({ "hall": "one" })).unwrap();
        assert_eq!(rejected(&house.dispatcher.dispatch(wrong).await.unwrap()), "VALIDATION_ERROR");
    });
}

#[test]
fn decisions_at_once_are_as_if_one_after_another() {
    for_each_store(async |place| {
        let house = open(&place).await;
        let engine = house.work.start().await.unwrap();
        let retry = ConflictRetry {
            initial_backoff_ms: 1,
            max_backoff_ms: 20,
            max_retries: 100,
            ..ConflictRetry::default()
        };
        let buyers = (0..24_u32).map(|buyer| {
            let (dispatcher, retry) = (house.dispatcher.clone(), retry.clone());
            tokio::spawn(async move {
                let sent = dispatcher.dispatch(sell(1, buyer % 3).retrying(retry)).await.unwrap();
                match sent.outcome {
                    Outcome::Deferred(_) => {
                        dispatcher.wait_for(&sent.command_id, Duration::from_secs(30)).await.unwrap().outcome
                    }
                    outcome => outcome,
                }
            })
        });
        let (mut sold, mut refused) = (0, 0);
        for buyer in buyers.collect::<Vec<_>>() {
            match buyer.await.unwrap().status() {
                "success" => sold += 1,
                "failed" => refused += 1,
                other => panic!("{other}"),
            }
        }
        engine.stop(Duration::from_secs(5)).await.unwrap();
        assert_eq!((sold, refused, house.log.head().await.unwrap()), (3, 21, 24));
    });
}

#[tokio::test]
async fn commands_of_another_shape_are_refused_when_they_are_opened() {
    struct Odd;
    impl mainstay_flows::commands::Decider for Odd {
        type Command = Vec<u32>;
        type Event = crate::deciders::HallEvent;
        type State = ();
        type Data = ();

        fn boundary(&self, _: &Vec<u32>) -> mainstay_flows::commands::Boundary {
            mainstay_flows::commands::Boundary::tag("hall:1")
        }

        fn evolve(&self, _: &mut (), _: Self::Event) {}

        fn decide(
            &self,
            _: &(),
            _: &Vec<u32>,
            _: &mainstay_flows::commands::Moment,
        ) -> mainstay_flows::commands::Decided<Self::Event, ()> {
            Ok(mainstay_flows::commands::Decision::success((), []))
        }
    }
    let house = open(&Place::new(Kind::SqliteMemory)).await;
    let odd = Commands::new().decider(Odd);
    let opened = mainstay_flows::commands::Dispatcher::open(&house.log, &house.work, odd).await;
    assert_eq!(opened.err().map(|error| error.code()), Some("FLOW_INVALID"));
}
