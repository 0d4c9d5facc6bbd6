//! Every kind of damage is found, and nothing else; the index is made whole again.

use super::{fill, kinds, saying, tamper, verify};
use crate::support::{all, append, event, open, positions, query, select};
use mainstay_events::{Append, Damage, Repaired, Selection, Stage};
use mainstay_store::Value;
use mainstay_testkit::stores::{Kind, for_each_kind, for_each_store};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_whole_log_has_no_problems() {
    for_each_store(async |place| {
        let log = open(&place).await;
        assert!(verify(&log).await.is_sound(), "an empty log");
        fill(&log).await;
        let mut seen = Vec::new();
        let report = log.verify(|progress| seen.push(progress)).await.unwrap();
        assert_eq!(report.problems, []);
        assert_eq!((report.head, report.events, report.erased, report.scopes), (50, 50, 1, 1));
        assert!(report.entries > 100);
        assert_eq!(report.database_checked, place.kind() != Kind::Postgres);
        let events: Vec<_> = seen.iter().filter(|progress| progress.stage == Stage::Events).collect();
        assert_eq!(events.last().map(|progress| (progress.done, progress.of)), Some((50, Some(50))));
    });
}

#[test]
fn what_is_appended_meanwhile_is_no_problem() {
    for_each_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let is_over = Arc::new(AtomicBool::new(false));
        let writers: Vec<_> = (0..3)
            .map(|writer| {
                let (log, is_over) = (log.clone(), is_over.clone());
                tokio::spawn(async move {
                    let mut number = 0_u64;
                    while !is_over.load(Ordering::Relaxed) {
                        let one = event("Meanwhile", &["x"]).stream("busy", format!("{}", number % 2));
                        let key =
                            mainstay_core::keys::ScopeKey::new("acme", "w", &format!("{writer}")).unwrap();
                        let two = event("Meanwhile", &["y"]).tenant("acme").scope(&key, number);
                        log.append(Append::new([one, two])).await.unwrap();
                        number += 1;
                    }
                })
            })
            .collect();
        for _ in 0..5 {
            assert_eq!(verify(&log).await.problems, []);
            assert_eq!(log.repair_index(|_| ()).await.unwrap(), Repaired::default());
        }
        is_over.store(true, Ordering::Relaxed);
        for writer in writers {
            writer.await.unwrap();
        }
        assert_eq!(verify(&log).await.problems, []);
    });
}

#[test]
fn damage_to_the_log_is_found_where_it_is() {
    for_each_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        // A row in another's place, a row that is gone, and one without a payload.
        tamper(
            &log,
            "UPDATE mainstay_events SET header = (SELECT header FROM mainstay_events WHERE position = 2) \
                      WHERE position = 5",
            &[],
        )
        .await;
        tamper(&log, "DELETE FROM mainstay_events WHERE position IN (7, 8)", &[]).await;
        tamper(&log, "UPDATE mainstay_events SET payload = NULL WHERE position = 9", &[]).await;
        tamper(
            &log,
            "UPDATE mainstay_events SET payload = (SELECT payload FROM mainstay_events WHERE position = 50) \
                      WHERE position = 10",
            &[],
        )
        .await;
        let found = kinds(&verify(&log).await);
        let expected = [(5, Damage::Event), (7, Damage::Missing), (9, Damage::Event), (10, Damage::Event)];
        assert_eq!(found, expected, "and nothing else is made of it");
        for damaged in [5, 7, 8, 9, 10] {
            let error = log.read(&Selection::all().after(damaged - 1), 1).await.unwrap_err();
            assert_eq!(error.code(), "LOG_CORRUPT");
        }
    });
}

#[test]
fn the_head_of_postgres_is_compared_with_the_last_event() {
    for_each_kind(&[Kind::Postgres], async |place| {
        let log = open(&place).await;
        fill(&log).await;
        tamper(&log, "UPDATE mainstay_log_head SET position = 52", &[]).await;
        assert_eq!(kinds(&verify(&log).await), [(52, Damage::Head), (51, Damage::Missing)]);
        tamper(&log, "UPDATE mainstay_log_head SET position = 40", &[]).await;
        assert_eq!(kinds(&verify(&log).await), [(50, Damage::Head)]);
    });
}

#[test]
fn a_lost_end_is_found_by_the_index() {
    for_each_kind(&[Kind::SqliteFile], async |place| {
        let log = open(&place).await;
        fill(&log).await;
        tamper(&log, "DELETE FROM mainstay_events WHERE position > 48", &[]).await;
        let found = kinds(&verify(&log).await);
        assert!(found.iter().all(|(position, kind)| *position > 48 && *kind == Damage::Foreign), "{found:?}");
        assert!(!found.is_empty());
    });
}

#[test]
fn time_streams_scopes_and_ids_are_checked_across_the_log() {
    for_each_store(async |place| {
        let log = open(&place).await;
        for number in 0..3 {
            log.append(event("E", &[]).stream("order", "1").id(format!("evt-{number}"))).await.unwrap();
        }
        let key = super::scope("1");
        log.append(event("S", &[]).tenant("acme").scope(&key, 0)).await.unwrap();
        log.append(event("S", &[]).tenant("acme").scope(&key, 1)).await.unwrap();
        assert!(verify(&log).await.is_sound());
        // Events as another program would write them, each good in itself.
        for (position, taken_from) in [(2, 1), (3, 2)] {
            rewrite(&log, taken_from, position).await;
        }
        tamper(&log, "UPDATE mainstay_scopes SET version = 1", &[]).await;
        log.repair_index(|_| ()).await.unwrap();
        let found = kinds(&verify(&log).await);
        assert!(found.contains(&(2, Damage::Stream)), "version 1 again: {found:?}");
        assert!(found.contains(&(2, Damage::Duplicate)), "evt-0 again: {found:?}");
        assert!(found.contains(&(5, Damage::Scope)), "{found:?}");
        tamper(&log, "UPDATE mainstay_scopes SET version = 9", &[]).await;
        let found = kinds(&verify(&log).await);
        assert!(found.contains(&(5, Damage::Scope)), "a scope ahead of its events: {found:?}");
        tamper(&log, "DELETE FROM mainstay_scopes", &[]).await;
        let found = kinds(&verify(&log).await);
        assert!(found.contains(&(5, Damage::Scope)), "a scope without a row: {found:?}");
        let stray = "INSERT INTO mainstay_scopes (scope_key, version, position, updated_at) \
                     VALUES ('tenant:acme:order:2', 1, 1, 0)";
        tamper(&log, stray, &[]).await;
        assert!(kinds(&verify(&log).await).contains(&(1, Damage::Scope)), "a scope without an event");
    });
}

/// Puts the header of one event at another position, with a checksum that fits there and a time long ago.
async fn rewrite(log: &mainstay_events::Log, from: i64, to: i64) {
    use mainstay_store::Tx;
    let read = async |tx: Tx, from: i64| {
        let sql = "SELECT header, payload FROM mainstay_events WHERE position = $1";
        Ok(tx.query_one(sql, &[Value::Int(from)]).await?.into_values())
    };
    let mut values = log.store().read_with(from, read).await.unwrap();
    let Value::Blob(header) = &mut values[0] else { panic!("a header") };
    let body = header.len() - 4;
    header[1..9].copy_from_slice(&to.to_le_bytes());
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&to.to_le_bytes());
    hasher.update(&header[..body]);
    let checksum = hasher.finalize();
    header[body..].copy_from_slice(&checksum.to_le_bytes());
    let (payload, header) = (values.pop().unwrap(), values.pop().unwrap());
    let sql = "UPDATE mainstay_events SET header = $2, payload = $3 WHERE position = $1";
    tamper(log, sql, &[Value::Int(to), header, payload]).await;
    assert!(kinds(&verify(log).await).contains(&(to as u64, Damage::Time)), "time goes back at {to}");
}

#[test]
fn the_index_is_compared_both_ways_and_repaired() {
    for_each_store(async |place| {
        let log = open(&place).await;
        fill(&log).await;
        let before = positions(&select(&log, Selection::all().matching(query(&[], &["x"]))).await);
        assert_eq!(verify(&log).await.problems, [], "and everything is in the table now");
        tamper(&log, "DELETE FROM mainstay_event_terms WHERE position IN (1, 2, 30, 47)", &[]).await;
        // A foreign term, an event that will only come, and one that never was.
        for entry in [(77, 3), (1 << 60, 51), (5, -4)] {
            let sql = "INSERT INTO mainstay_event_terms (term, position) VALUES ($1, $2)";
            tamper(&log, sql, &[Value::Int(entry.0), Value::Int(entry.1)]).await;
        }
        let found = kinds(&verify(&log).await);
        let of = |kind| found.iter().filter(|(_, one)| *one == kind).map(|(at, _)| *at).collect::<Vec<_>>();
        let unindexed = of(Damage::Unindexed);
        assert!([1, 2, 30, 47].iter().all(|at| unindexed.contains(at)), "{found:?}");
        assert_eq!(of(Damage::Foreign).len(), 3, "{found:?}");
        assert_eq!(found.len(), unindexed.len() + 3, "streams and scopes are whole: {found:?}");

        let repaired = log.repair_index(|_| ()).await.unwrap();
        assert_eq!(repaired, Repaired { added: unindexed.len() as u64, removed: 3 });
        assert_eq!(verify(&log).await.problems, []);
        assert_eq!(log.repair_index(|_| ()).await.unwrap(), Repaired::default(), "again does nothing");
        assert_eq!(positions(&select(&log, Selection::all().matching(query(&[], &["x"]))).await), before);
    });
}

#[test]
fn a_repair_leaves_alone_what_it_cannot_judge() {
    for_each_store(async |place| {
        let log = open(&place).await;
        log.append(append("A", &["once"])).await.unwrap();
        log.append(append("B", &[])).await.unwrap();
        tamper(&log, "DELETE FROM mainstay_events WHERE position = 1", &[]).await;
        assert_eq!(log.repair_index(|_| ()).await.unwrap(), Repaired::default());
        // What the lost event forbade stays forbidden.
        let once = mainstay_events::Condition::no_tag("once").unwrap();
        let error = log.append(append("C", &["once"]).unless(once)).await.unwrap_err();
        assert_eq!(error.code(), "LOG_CORRUPT");
        assert_eq!(kinds(&verify(&log).await), [(1, Damage::Missing)]);
    });
}

#[test]
fn a_report_is_bounded_and_counts_all() {
    for_each_kind(&[Kind::SqliteMemory], async |place| {
        let log = open(&place).await;
        for _ in 0..15 {
            log.append(Append::new((0..100).map(|_| saying("E", "x")))).await.unwrap();
        }
        assert_eq!(all(&log).await.len(), 1_500);
        assert_eq!(verify(&log).await.problems, [], "and everything is in the table now");
        tamper(&log, "DELETE FROM mainstay_event_terms", &[]).await;
        let report = verify(&log).await;
        assert_eq!((report.problems.len(), report.problem_count), (1_000, 1_500 + 15 * 99));
    });
}
