//! What may happen, in any order.

use super::house::HANDLERS;
use super::model::Wanted;
use mainstay_core::failpoints::Point;
use proptest::prelude::*;

/// Points at which a process dies.
pub(super) const DEADLY: [Point; 18] = [
    Point::StoreCommit,
    Point::StoreCommitted,
    Point::DispatchDeciding,
    Point::DispatchDecided,
    Point::DispatchAppending,
    Point::DispatchRecorded,
    Point::DispatchOvertaken,
    Point::DispatchCommitted,
    Point::ProjectionsApplied,
    Point::ProjectionsCheckpoint,
    Point::ProjectionsFailure,
    Point::ProjectionsRetried,
    Point::ReplayTriggered,
    Point::ReplayCancelled,
    Point::ReplayApplied,
    Point::ReplayAdvanced,
    Point::ReplaySwitched,
    Point::ReplayShown,
];
/// The points from here on, those of projections, may also just fail.
const FAILING: usize = 8;

#[derive(Debug, Clone)]
pub(super) enum Step {
    /// Commands that are sent at once, some of them twice.
    Send(Vec<(Wanted, bool)>),
    /// One that was sent is sent again.
    Again(prop::sample::Index),
    Spoil,
    Mend,
    CatchUp(usize),
    Rebuild(usize, u32),
    PauseReplay(usize),
    CancelReplay(usize),
    Pause(usize),
    Resume(usize),
    RetryLetters,
    LetOut,
    Ignore,
    Fail(Point, u64),
    Die(Point, u64),
    Restart,
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let name = prop_oneof![
        4 => Just("Sell"),
        2 => Just("Spoil"),
        4 => Just("SellSeat"),
        3 => prop::sample::select(&HANDLERS[2..]),
    ];
    let lag = prop_oneof![2 => Just(None), 1 => (0..3_u64).prop_map(Some)];
    (name, 0..2_u32, 0..5_u32, lag, any::<bool>()).prop_map(|(name, hall, seat, lag, is_retried)| Wanted {
        name,
        hall,
        seat,
        lag: lag.filter(|_| name != "SellSeat"),
        is_retried,
    })
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let model = || 0..3_usize;
    let step = prop_oneof![
        8 => prop::collection::vec((wanted(), prop::bool::weighted(0.2)), 1..14).prop_map(Step::Send),
        2 => any::<prop::sample::Index>().prop_map(Step::Again),
        1 => Just(Step::Spoil),
        1 => Just(Step::Mend),
        2 => model().prop_map(Step::CatchUp),
        3 => (model(), 1..10_u32).prop_map(|(index, size)| Step::Rebuild(index, size)),
        1 => model().prop_map(Step::PauseReplay),
        1 => model().prop_map(Step::CancelReplay),
        1 => model().prop_map(Step::Pause),
        2 => model().prop_map(Step::Resume),
        1 => Just(Step::RetryLetters),
        1 => Just(Step::LetOut),
        1 => Just(Step::Ignore),
        2 => (prop::sample::select(&DEADLY[FAILING..]), 0..4_u64).prop_map(|(point, skip)| Step::Fail(point, skip)),
        5 => (prop::sample::select(&DEADLY[..FAILING]), 0..6_u64).prop_map(|(point, skip)| Step::Die(point, skip)),
        4 => (prop::sample::select(&DEADLY[FAILING..]), 0..3_u64).prop_map(|(point, skip)| Step::Die(point, skip)),
        1 => Just(Step::Restart),
    ];
    prop::collection::vec(step, 5..30)
}
