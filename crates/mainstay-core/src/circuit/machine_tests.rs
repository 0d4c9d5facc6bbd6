use super::*;
use crate::circuit::settings::Rate;
use proptest::prelude::*;

const NOW: i64 = 1_000;

fn closed(failure_count: u32) -> Standing {
    Standing { failure_count, ..Standing::default() }
}

fn open_at(opened_at: i64, settings: &Settings) -> Standing {
    let mut standing = closed(5);
    standing.open(settings, opened_at);
    standing
}

fn half_open(settings: &Settings) -> Standing {
    after(&open_at(0, settings), [Event::Timeout { opened_at: 0 }], settings, NOW)
}

fn after(
    standing: &Standing,
    events: impl IntoIterator<Item = Event>,
    settings: &Settings,
    now: i64,
) -> Standing {
    events
        .into_iter()
        .fold(standing.clone(), |standing, event| next(&standing, event, settings, now).standing)
}

fn claim(run: &str) -> Event {
    Event::ProbeClaimed { run_id: run.into() }
}

fn success(run: &str) -> Event {
    Event::ProbeSuccess { run_id: run.into() }
}

fn failure(run: &str) -> Event {
    Event::ProbeFailure { run_id: run.into() }
}

fn force(is_open: bool, until_ms: Option<i64>) -> Event {
    let (actor, reason) = ("ada".into(), "maintenance".into());
    Event::Forced(Forced { is_open, actor, reason, at_ms: NOW, until_ms })
}

#[test]
fn b_112_states_have_their_names() {
    let names =
        [State::Closed, State::Open, State::HalfOpen].map(|state| serde_json::to_string(&state).unwrap());
    assert_eq!(names, ["\"closed\"", "\"open\"", "\"half_open\""]);
}

#[test]
fn b_115_the_next_state_follows_from_what_is_given_alone() {
    let settings = Settings::default();
    let (open, run) = (open_at(0, &settings), "run");
    let half_open = half_open(&settings);
    let events = [
        Event::Success,
        Event::Failure,
        Event::Timeout { opened_at: 0 },
        claim(run),
        success(run),
        failure(run),
    ];
    for standing in [closed(0), closed(4), open, half_open.clone()] {
        for event in &events {
            let once = next(&standing, event.clone(), &settings, NOW);
            assert_eq!(once, next(&standing.clone(), event.clone(), &settings, NOW));
        }
    }
    let claimed = next(&half_open, claim(run), &settings, NOW);
    assert_eq!(claimed.effect, Some(Effect::ProbeStarted { run_id: run.into() }));
}

#[test]
fn b_116_a_success_forgets_the_failures() {
    let next = next(&closed(3), Event::Success, &Settings::default(), NOW);
    assert_eq!(next, Next { standing: closed(0), effect: None });
}

#[test]
fn b_117_a_failure_below_the_threshold_is_counted() {
    let next = next(&closed(3), Event::Failure, &Settings::default(), NOW);
    assert_eq!(next.standing, Standing { last_failure_at: Some(NOW), ..closed(4) });
    assert_eq!(next.effect, None);
}

#[test]
fn b_118_b_125_opens_at_the_threshold_and_wants_a_timer_for_this_opening() {
    let next = next(&closed(4), Event::Failure, &Settings::default(), NOW);
    let Standing { state, failure_count, opened_at, probe_scheduled_at, .. } = next.standing;
    assert_eq!((state, failure_count, opened_at), (State::Open, 5, Some(NOW)));
    assert_eq!(probe_scheduled_at, Some(31_000));
    assert_eq!(next.effect, Some(Effect::ScheduleTimeout { at_ms: 31_000, opened_at: NOW }));
}

#[test]
fn b_119_its_time_half_opens_it_and_calls_do_not_matter_meanwhile() {
    let settings = Settings::default();
    let open = open_at(NOW, &settings);
    assert_eq!(after(&open, [Event::Success, Event::Failure, Event::Tripped], &settings, 9_000), open);
    let half_open = after(&open, [Event::Timeout { opened_at: NOW }], &settings, 31_000);
    assert_eq!((half_open.state, half_open.failure_count), (State::HalfOpen, 5));
}

#[test]
fn b_120_enough_probes_that_succeed_close_it() {
    let settings = Settings { success_threshold: 2, ..Settings::default() };
    let one = after(&half_open(&settings), [claim("a"), success("a")], &settings, NOW);
    assert_eq!((one.state, one.success_count, &one.probe), (State::HalfOpen, 1, &None));
    assert_eq!(after(&one, [claim("b"), success("b")], &settings, NOW), closed(0));
    let twice = after(&half_open(&settings), [claim("a"), success("a"), success("a")], &settings, NOW);
    assert_eq!(twice, one, "a probe ends once");
}

#[test]
fn b_121_a_probe_that_fails_opens_it_again() {
    let settings = Settings { success_threshold: 3, ..Settings::default() };
    let one = after(&half_open(&settings), [claim("a"), success("a"), claim("b")], &settings, NOW);
    let next = next(&one, failure("b"), &settings, 5_000);
    let expected = Standing { last_failure_at: Some(5_000), ..open_at(5_000, &settings) };
    assert_eq!(next.standing, expected, "failures are kept, successes are not");
    assert_eq!(next.effect, Some(Effect::ScheduleTimeout { at_ms: 35_000, opened_at: 5_000 }));
}

#[test]
fn b_122_any_other_pair_changes_nothing() {
    let settings = Settings::default();
    let (closed, open, half) = (closed(2), open_at(NOW, &settings), half_open(&settings));
    let probe_events =
        || [claim("x"), success("x"), failure("x"), Event::ProbeGivenUp { run_id: "x".into() }];
    let timeout = Event::Timeout { opened_at: NOW };
    for event in probe_events().into_iter().chain([timeout.clone(), Event::Released]) {
        assert_eq!(next(&closed, event, &settings, NOW), Next { standing: closed.clone(), effect: None });
    }
    for event in probe_events() {
        assert_eq!(next(&open, event, &settings, NOW).standing, open);
    }
    for event in [Event::Success, Event::Failure, Event::Tripped, timeout, success("x"), failure("x")] {
        assert_eq!(next(&half, event, &settings, NOW).standing, half);
    }
}

#[test]
fn b_126_a_timer_of_an_earlier_opening_is_ignored() {
    let settings = Settings::default();
    let closed_again = after(
        &open_at(1_000, &settings),
        [Event::Timeout { opened_at: 1_000 }, claim("a"), success("a")],
        &settings,
        10_000,
    );
    assert_eq!(closed_again.state, State::Closed);
    let reopened = after(&closed_again, vec![Event::Failure; 5], &settings, 20_000);
    assert_eq!(reopened.state, State::Open);
    assert_eq!(after(&reopened, [Event::Timeout { opened_at: 1_000 }], &settings, 31_000), reopened);
}

#[test]
fn b_128_an_open_circuit_says_when_to_come_back() {
    let settings = Settings::default();
    let open = open_at(1_000, &settings);
    assert_eq!(open.answer(&settings, 11_000), Answer::Refuse { retry_after_ms: 20_000 });
    assert_eq!(
        open.answer(&settings, -9_000),
        Answer::Refuse { retry_after_ms: 30_000 },
        "a clock went back"
    );
    assert_eq!(open.answer(&settings, 30_999), Answer::Refuse { retry_after_ms: 1 });
    assert_eq!(open.answer(&settings, 31_000), Answer::Probe);
}

#[test]
fn b_129_one_probe_is_out_at_a_time() {
    let settings = Settings::default();
    let half = half_open(&settings);
    assert_eq!(half.answer(&settings, NOW), Answer::Probe);
    let first = next(&half, claim("a"), &settings, NOW);
    assert_eq!(first.effect, Some(Effect::ProbeStarted { run_id: "a".into() }));
    assert_eq!(first.standing.answer(&settings, NOW), Answer::Refuse { retry_after_ms: 1_000 });
    assert_eq!(
        next(&first.standing, claim("b"), &settings, NOW),
        Next { standing: first.standing, effect: None }
    );
}

#[test]
fn c_011_a_probe_that_is_lost_makes_room_for_another() {
    let settings = Settings::default();
    let out = after(&half_open(&settings), [claim("a")], &settings, NOW);
    assert_eq!(out.answer(&settings, NOW + 59_999), Answer::Refuse { retry_after_ms: 1 });
    assert_eq!(out.answer(&settings, NOW + 60_000), Answer::Probe);
    let second = after(&out, [claim("b")], &settings, NOW + 60_000);
    assert_eq!(second.probe.as_ref().unwrap().run_id, "b");
    assert_eq!(
        after(&second, [failure("a")], &settings, NOW + 60_001),
        second,
        "nobody asks the first one any more"
    );
    let given_up = after(&second, [Event::ProbeGivenUp { run_id: "b".into() }], &settings, NOW + 60_001);
    assert_eq!(given_up.answer(&settings, NOW + 60_001), Answer::Probe);
}

#[test]
fn c_011_a_late_probe_counts_as_long_as_nobody_made_another() {
    let settings = Settings::default();
    let out = after(&half_open(&settings), [claim("a")], &settings, NOW);
    assert_eq!(after(&out, [success("a")], &settings, NOW + 70_000).state, State::Closed);
}

#[test]
fn what_is_forced_stands_still_until_it_is_released() {
    let settings = Settings::default();
    let open = after(&closed(2), [force(true, None)], &settings, NOW);
    assert_eq!(open.answer(&settings, NOW), Answer::Refuse { retry_after_ms: 30_000 });
    assert_eq!(open.effective(NOW), State::Open);
    assert_eq!(after(&open, [Event::Success, Event::Failure, claim("a")], &settings, NOW), open);
    let released = after(&open, [Event::Released], &settings, NOW);
    assert_eq!((released.state, released.answer(&settings, NOW)), (State::HalfOpen, Answer::Probe));

    let shut = after(&open_at(NOW, &settings), [force(false, None)], &settings, NOW);
    assert_eq!((shut.effective(NOW), shut.answer(&settings, NOW)), (State::Closed, Answer::Admit));
    let failed = after(&shut, vec![Event::Failure; 10], &settings, NOW);
    assert_eq!(failed, shut);
    assert_eq!(after(&failed, [Event::Released], &settings, NOW), closed(0));
    assert_eq!(after(&open, [Event::Reset], &settings, NOW), closed(0));
}

#[test]
fn what_is_forced_for_a_while_ends_by_itself() {
    let settings = Settings::default();
    let open = after(&closed(0), [force(true, Some(NOW + 500))], &settings, NOW);
    assert_eq!(open.answer(&settings, NOW + 100), Answer::Refuse { retry_after_ms: 400 });
    assert_eq!(open.answer(&settings, NOW + 500), Answer::Probe);
    assert_eq!(after(&open, [claim("a"), success("a")], &settings, NOW + 500), closed(0));
    let shut = after(&open_at(0, &settings), [force(false, Some(NOW + 500))], &settings, NOW);
    assert_eq!(after(&shut, [Event::Failure], &settings, NOW + 500).failure_count, 1);
}

#[test]
fn a_circuit_that_only_measures_changes_its_state_and_refuses_nobody() {
    let settings = Settings { metrics_only: true, ..Settings::default() };
    let open = after(&closed(0), vec![Event::Failure; 5], &settings, NOW);
    assert_eq!((open.state, open.answer(&settings, NOW)), (State::Open, Answer::Admit));
    let half = after(&open, [Event::Timeout { opened_at: NOW }], &settings, NOW);
    assert_eq!(after(&half, [Event::Failure], &settings, NOW).state, State::Open);
    assert_eq!(after(&half, [Event::Success], &settings, NOW).state, State::Closed);
    let forced = after(&closed(0), [force(true, None)], &settings, NOW);
    assert!(
        matches!(forced.answer(&settings, NOW), Answer::Refuse { .. }),
        "an operator's word counts all the same"
    );
}

#[test]
fn a_window_opens_it_and_failures_by_themselves_do_not() {
    let settings = Settings::rate(Rate::default()).unwrap();
    let counted = after(&closed(0), vec![Event::Failure; 50], &settings, NOW);
    assert_eq!(counted.state, State::Closed);
    assert_eq!(after(&counted, [Event::Tripped], &settings, NOW).state, State::Open);
}

fn any_event() -> impl Strategy<Value = Event> {
    let run = || prop::sample::select(vec!["a".to_owned(), "b".to_owned()]);
    prop_oneof![
        6 => Just(Event::Failure),
        2 => Just(Event::Success),
        1 => Just(Event::Tripped),
        4 => (0_i64..40).prop_map(|opened_at| Event::Timeout { opened_at }),
        4 => run().prop_map(|run_id| Event::ProbeClaimed { run_id }),
        3 => run().prop_map(|run_id| Event::ProbeSuccess { run_id }),
        2 => run().prop_map(|run_id| Event::ProbeFailure { run_id }),
        1 => run().prop_map(|run_id| Event::ProbeGivenUp { run_id }),
        1 => (any::<bool>(), prop::option::of(0_i64..40)).prop_map(|(is_open, until)| force(is_open, until)),
        1 => Just(Event::Released),
        1 => Just(Event::Reset),
    ]
}

proptest! {
    /// Whatever happens in whatever order.
    #[test]
    fn whatever_happens_a_circuit_is_in_order(
        events in prop::collection::vec((any_event(), 0_i64..4), 0..60),
        failure_threshold in 1_u32..4,
        success_threshold in 1_u32..3,
    ) {
        let settings = Settings {
            trip: Trip::Consecutive { failure_threshold },
            reset_timeout_ms: 7,
            success_threshold,
            probe_timeout_ms: 5,
            ..Settings::default()
        };
        let (mut standing, mut now) = (Standing::default(), 0);
        for (event, step) in events {
            now += step;
            let before = standing.at(now);
            let Next { standing: after, effect } = next(&standing, event.clone(), &settings, now);
            let opens = after.state == State::Open && (before.state != State::Open || before.opened_at != after.opened_at);
            prop_assert_eq!(opens, matches!(effect, Some(Effect::ScheduleTimeout { .. })), "{:?}", event);
            if let Some(Effect::ScheduleTimeout { at_ms, opened_at }) = &effect {
                prop_assert_eq!((*at_ms, *opened_at), (now + 7, now));
            }
            // Never two probes at once.
            if let Some(Effect::ProbeStarted { run_id }) = &effect {
                prop_assert!(before.probe.as_ref().is_none_or(|probe| probe.until_ms <= now));
                prop_assert_eq!(&after.probe.as_ref().unwrap().run_id, run_id);
            }
            // What is recorded belongs to the state.
            prop_assert!(after.probe.is_none() || after.state == State::HalfOpen);
            prop_assert_eq!(after.probe_scheduled_at.is_some(), after.state == State::Open);
            prop_assert!(after.opened_at.is_some() || after.state == State::Closed);
            prop_assert!(after.state != State::Closed || after.forced.is_some() || after.failure_count < failure_threshold);
            prop_assert!(after.success_count < success_threshold);
            // Nobody gets out of the half-open state but by a probe, and nobody out of the open one but by its timer.
            if before.forced.is_none() && after.forced.is_none() && event != Event::Reset {
                match (before.state, after.state) {
                    (State::Open, State::Closed) | (State::Closed, State::HalfOpen) => prop_assert!(false, "{:?}", event),
                    (State::Open, State::HalfOpen) => {
                        prop_assert_eq!(&event, &Event::Timeout { opened_at: before.opened_at.unwrap() });
                    }
                    (State::HalfOpen, State::Closed | State::Open) => prop_assert!(before.probe.is_some()),
                    _ => {}
                }
            }
            // There is always a way out: an answer that refuses says when to ask again, and then it does not.
            if let Answer::Refuse { retry_after_ms } = after.answer(&settings, now) {
                prop_assert!(retry_after_ms > 0);
                if after.forced.is_none() && after.state == State::Open {
                    prop_assert_eq!(after.answer(&settings, now + retry_after_ms as i64), Answer::Probe);
                }
            }
            standing = after;
        }
    }
}
