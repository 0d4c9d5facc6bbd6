//! The guided tour: what runs here, what is going to happen, and where to look.

use super::proof::{Ended, Facts};
use super::schedule::{Schedule, Weather};
use super::stage::Stage;
use std::time::Duration;

/// What is told before anything happens.
pub(super) fn opening(stage: &Stage, store: &str, schedule: Schedule, trace: &str) -> String {
    told(&stage.url, &stage.login, store, schedule, trace)
}

fn told(url: &str, login: &str, store: &str, schedule: Schedule, trace: &str) -> String {
    let first = |weather: Weather| {
        let second = (0..3_600).find(|second| schedule.at(Duration::from_secs(*second)) == weather);
        second.unwrap_or_default()
    };
    format!(
        "\
Mainstay, at work: a shop on one SQL store, its services, and customers
  store    {store}
  server   {url}

Open the console with this link; it works once:

    {login}

What there is to see
  1. Orders flow: each is reserved for, paid, confirmed and told to its customer.
       {url}/console/events
  2. After {slow} s the provider of payments gets slow, after {down} s it is down. The circuit
     before it opens, and payments wait without spending attempts.
       {url}/console/circuits
  3. What failed too often before that is a dead letter. Retry it yourself, or the
     operator of the demo does, a while after the provider is well again.
       {url}/console/dead-letters
  4. One read model is given an event that it cannot take. It is put aside; others go on.
       {url}/console/projections
  5. Follow an order through all of it, by its correlation id: this is the first one's.
       {url}/console/traces/{trace}

",
        slow = first(Weather::Slow),
        down = first(Weather::Down),
    )
}

/// What is told when it has ended.
pub(super) fn closing(facts: &Facts) -> String {
    let Facts { orders, payments, circuit, letters, .. } = facts;
    let claims = facts.claims.iter().map(|claim| {
        let mark = if claim.holds { "yes" } else { "not seen" };
        format!("  {mark:<8}  {}\n", claim.claim)
    });
    format!(
        "\nWhat came of it, in {:.0} s
  {} orders, {} confirmed, {} cancelled; {} events
  {} payments; the provider was called {} times and failed {} times
  {} are in its books, {}
  the circuit opened {} times and closed {} times; {} letters were mended, {} wait
\n{}",
        facts.seconds,
        orders.placed,
        orders.confirmed,
        orders.cancelled,
        facts.events,
        payments.completed,
        payments.calls,
        payments.failed_calls,
        payments.charged,
        agreement(facts),
        circuit.opened,
        circuit.closed,
        letters.resolved,
        letters.pending,
        claims.collect::<String>()
    )
}

/// Whether log and books agree.
fn agreement(facts: &Facts) -> String {
    match (facts.payments.differences, facts.ended) {
        (0, _) => "and the log agrees with each of them".to_owned(),
        (several, Ended::Stopped) => format!("and {several} were under way when it was stopped"),
        (several, _) => format!("and the log DIFFERS in {several}"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::look::Letters;
    use super::super::proof::{Circuit, Claim, Orders, Payments};
    use super::*;

    fn facts(ended: Ended, differences: u64) -> Facts {
        Facts {
            url: "http://127.0.0.1:7420".to_owned(),
            store: "sqlite:shop.db".to_owned(),
            seconds: 42.4,
            ended,
            events: 2_000,
            orders: Orders { placed: 170, confirmed: 150, cancelled: 30 },
            payments: Payments {
                completed: 150,
                declined: 9,
                refunded: 5,
                calls: 190,
                failed_calls: 12,
                charged: 150,
                differences,
            },
            circuit: Circuit { opened: 3, closed: 1 },
            letters: Letters { pending: 0, retrying: 0, resolved: 4 },
            quarantined: 2,
            health: vec!["healthy".to_owned()],
            claims: vec![
                Claim { name: "a", claim: "one thing", holds: true },
                Claim { name: "b", claim: "another", holds: false },
            ],
        }
    }

    #[test]
    fn the_tour_says_what_comes_when_and_where_to_look() {
        let schedule = Schedule::new(Duration::from_secs(40));
        let url = "http://127.0.0.1:7420";
        let tell = |login| told(url, login, "sqlite:shop.db", schedule, "corr_o0-0");
        let link = "http://127.0.0.1:7420/console/login?link=1f";
        let told = tell(link);
        assert!(
            told.contains("After 12 s the provider of payments gets slow, after 16 s it is down."),
            "{told}"
        );
        assert!(told.contains("/console/traces/corr_o0-0\n"), "{told}");
        assert!(told.contains(&format!("it works once:\n\n    {link}\n")), "{told}");
        assert!(told.lines().all(|line| line.chars().count() <= 100), "{told}");
    }

    #[test]
    fn the_end_says_what_came_of_it() {
        insta::assert_snapshot!(closing(&facts(Ended::Settled, 0)), @r"

        What came of it, in 42 s
          170 orders, 150 confirmed, 30 cancelled; 2000 events
          150 payments; the provider was called 190 times and failed 12 times
          150 are in its books, and the log agrees with each of them
          the circuit opened 3 times and closed 1 times; 4 letters were mended, 0 wait

          yes       one thing
          not seen  another
        ");
        assert!(closing(&facts(Ended::Stopped, 2)).contains("2 were under way when it was stopped"));
        assert!(closing(&facts(Ended::Settled, 1)).contains("the log DIFFERS in 1"));
    }

    #[test]
    fn the_verdict_is_strict_unless_somebody_had_enough() {
        assert!(facts(Ended::Stopped, 2).verdict(true).is_ok());
        assert!(facts(Ended::Settled, 0).verdict(false).is_ok());
        let refused = |facts: Facts, is_everything| facts.verdict(is_everything).unwrap_err().to_string();
        assert!(refused(facts(Ended::Settled, 1), false).contains("differ between log and books: 1"));
        assert!(refused(facts(Ended::Settled, 0), true).contains("not seen: another"));
        assert!(refused(facts(Ended::Late, 0), false).contains("did not come to an end"));
    }
}
