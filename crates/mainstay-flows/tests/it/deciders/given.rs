//! What authors test their deciders with, and what it tells them.

use super::{HallCommand, HallEvent, Halls};
use mainstay_flows::commands::testing::{Given, Then};
use std::panic::{AssertUnwindSafe, catch_unwind};

const CLOSE: HallCommand = HallCommand::CloseHall { hall: 1 };

fn sold(hall: u32, seat: u32) -> HallEvent {
    HallEvent::SeatSold { hall, seat }
}

fn sell(seat: u32) -> Then<Halls> {
    let given = Given::decider(Halls).events([sold(1, 1), sold(2, 3)]);
    given.when(HallCommand::SellSeat { hall: 1, seat })
}

/// What is told about a test that fails.
fn told(test: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(test)).expect_err("it must fail");
    *panic.downcast::<String>().expect("a panic with a text")
}

#[test]
fn what_is_so_passes() {
    sell(3).then_events([sold(1, 3)]).then_data(&2).then_state(|hall| assert_eq!(hall.sold, [1, 3].into()));
    sell(1).then_failed("the seat is sold", [HallEvent::SeatRefused { hall: 1, seat: 1 }]);
    let closed = Given::decider(Halls).events([HallEvent::HallClosed { hall: 1 }]);
    closed.when(CLOSE).then_rejected("HALL_CLOSED").then_state(|hall| assert!(hall.is_closed));
}

#[test]
fn what_is_not_so_fails_and_says_what_is() {
    assert_eq!(
        told(|| drop(sell(3).then_rejected("HALL_CLOSED"))),
        "expected a rejection with HALL_CLOSED\n   \
         found success with the events\n    SeatSold { hall: 1, seat: 3 } and the data 2\n   \
         where 1 of 2 given events are in the decider's boundary"
    );
    let closed = || Given::decider(Halls).events([HallEvent::HallClosed { hall: 1 }]).when(CLOSE);
    let text = told(|| drop(closed().then_events([])));
    assert!(
        text.starts_with("expected success with no events\n   found a rejection with HALL_CLOSED: "),
        "{text}"
    );
    for wrong in [
        told(|| drop(sell(3).then_events([sold(1, 4)]))),
        told(|| drop(sell(3).then_data(&7))),
        told(|| drop(sell(1).then_events([HallEvent::SeatRefused { hall: 1, seat: 1 }]))),
        told(|| drop(sell(1).then_failed("another reason", [HallEvent::SeatRefused { hall: 1, seat: 1 }]))),
        told(|| drop(sell(1).then_failed("the seat is sold", []))),
        told(|| drop(closed().then_rejected("ANOTHER_CODE"))),
    ] {
        assert!(wrong.starts_with("expected "), "{wrong}");
    }
}

#[test]
fn what_an_older_program_wrote_goes_through_the_upcasters() {
    let seat = serde_json::json!({"hall": 1, "seat": 8});
    let given = Given::decider(Halls).recorded("SeatSold", 1, &seat);
    given.when(CLOSE).then_data(&1);
    let text = told(|| drop(Given::decider(Halls).recorded("SeatSold", 2, &seat)));
    assert_eq!(text, "the event SeatSold has data of version 2, and this program knows 1 at most");
}

#[test]
fn the_command_comes_at_the_time_that_is_given() {
    let closed = Given::decider(Halls).events([HallEvent::HallClosed { hall: 1 }]).at(77);
    closed.when(CLOSE).then(|decided| {
        let context = decided.as_ref().unwrap_err().context.clone();
        assert_eq!(context, Some(serde_json::json!({"at": 77})));
    });
}
