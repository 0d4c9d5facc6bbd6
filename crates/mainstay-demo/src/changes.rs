//! What has changed between two looks, in words.

use super::look::{Letters, Look};
use super::schedule::Weather;
use super::screen;

/// What has changed between two looks, in words.
pub(super) fn changes(before: Option<&Look>, now: &Look) -> Vec<String> {
    let Some(before) = before else { return Vec::new() };
    let mut told = Vec::new();
    if before.count.confirmed == 0 && now.count.confirmed > 0 {
        told.push("the first order is paid and confirmed".to_owned());
    }
    if before.weather != now.weather {
        told.push(match now.weather {
            Weather::Well => "the provider of payments is well".to_owned(),
            Weather::Slow => "the provider of payments gets slow".to_owned(),
            Weather::Down => "the provider of payments is down".to_owned(),
        });
    }
    if before.circuit != now.circuit {
        told.push(format!("the circuit before it is {}", screen::state(now.circuit)));
    }
    let Letters { pending, resolved, .. } = now.letters;
    if pending > before.letters.pending {
        told.push(format!("dead letters that wait for somebody: {pending}"));
    }
    if resolved > before.letters.resolved {
        told.push(format!("dead letters that succeeded when they were tried again: {resolved}"));
    }
    if now.quarantined > before.quarantined {
        told.push("an event that one read model cannot take was put aside".to_owned());
    }
    if let (Some(was), Some(is)) = (&before.health, &now.health)
        && was != is
    {
        told.push(format!("the server says that it is {is}"));
    }
    told
}

#[cfg(test)]
mod tests {
    use super::super::tally::Count;
    use super::*;
    use mainstay::guards::circuits::State;
    use std::time::Duration;

    fn calm() -> Look {
        Look {
            elapsed: Duration::ZERO,
            orders_per_second: 4.0,
            count: Count::default(),
            head: 0,
            lag: 0,
            letters: Letters::default(),
            quarantined: 0,
            weather: Weather::Well,
            circuit: State::Closed,
            changes: (0, 0),
            waiting: 0,
            working: 0,
            health: Some("healthy".to_owned()),
        }
    }

    #[test]
    fn nothing_is_told_while_nothing_changes() {
        assert!(changes(None, &calm()).is_empty());
        assert!(changes(Some(&calm()), &Look { head: 90, lag: 3, waiting: 2, ..calm() }).is_empty());
    }

    #[test]
    fn what_changes_is_told_in_words() {
        let bad = Look {
            weather: Weather::Down,
            circuit: State::Open,
            letters: Letters { pending: 2, ..Letters::default() },
            quarantined: 1,
            health: Some("degraded".to_owned()),
            ..calm()
        };
        insta::assert_snapshot!(changes(Some(&calm()), &bad).join("\n"), @r"
        the provider of payments is down
        the circuit before it is OPEN
        dead letters that wait for somebody: 2
        an event that one read model cannot take was put aside
        the server says that it is degraded
        ");
        let mended =
            Look { letters: Letters { resolved: 2, ..Letters::default() }, quarantined: 1, ..calm() };
        insta::assert_snapshot!(changes(Some(&bad), &mended).join("\n"), @r"
        the provider of payments is well
        the circuit before it is closed
        dead letters that succeeded when they were tried again: 2
        the server says that it is healthy
        ");
    }

    #[test]
    fn all_is_settled_when_nothing_is_under_way_any_more() {
        assert!(calm().is_settled());
        for busy in [
            Look { lag: 1, ..calm() },
            Look { working: 1, ..calm() },
            Look { letters: Letters { retrying: 1, ..Letters::default() }, ..calm() },
        ] {
            assert!(!busy.is_settled(), "{busy:?}");
        }
    }
}
