//! What people get to see of work.

use crate::output::table;
use crate::shown::{age, lines, moment, plain, short, text};
use serde_json::Value;

/// The longest cell of a table that is shown whole.
const LONGEST: usize = 40;

pub(super) fn items(items: &[Value]) -> String {
    let row = |item: &Value| {
        [
            text(&item["workId"]),
            text(&item["function"]),
            text(&item["native"]),
            short(&item["key"], LONGEST),
            text(&item["attempts"]),
            moment(&item["enqueuedAt"]),
            moment(&item["dueAt"]),
        ]
    };
    let rows: Vec<_> = items.iter().map(row).collect();
    table(["WORK ID", "FUNCTION", "STATE", "KEY", "ATTEMPTS", "ENQUEUED", "DUE"], &rows)
}

pub(super) fn item(item: &Value) -> String {
    let result = &item["result"];
    lines(&[
        ("work", text(&item["workId"])),
        ("pool", text(&item["pool"])),
        ("function", text(&item["function"])),
        ("state", format!("{} ({})", text(&item["state"]), text(&item["native"]))),
        ("attempts", text(&item["attempts"])),
        ("key", text(&item["key"])),
        ("args", text(item.get("args").unwrap_or(&Value::Null))),
        ("context", text(&item["context"])),
        ("correlated", text(item.get("correlationId").unwrap_or(&Value::Null))),
        ("retry of", text(item.get("retryOf").unwrap_or(&Value::Null))),
        ("retried as", text(item.get("retriedAs").unwrap_or(&Value::Null))),
        ("enqueued", moment(&item["enqueuedAt"])),
        ("due", moment(&item["dueAt"])),
        ("ended", moment(&item["endedAt"])),
        ("last error", text(&item["lastError"])),
        ("returned", text(result.get("returnValue").unwrap_or(&Value::Null))),
    ])
}

pub(super) fn pools(pools: &[Value]) -> String {
    let row = |pool: &Value| {
        let rate = |value: &Value| format!("{:.1}", value.as_f64().unwrap_or(0.0));
        [
            text(&pool["name"]),
            text(&pool["pending"]),
            text(&pool["running"]),
            text(&pool["settings"]["maxParallelism"]),
            age(&pool["oldestAgeMs"]),
            rate(&pool["startedPerSecond"]),
            rate(&pool["endedPerSecond"]),
            if pool["isPaused"] == true { "yes" } else { "-" }.to_owned(),
        ]
    };
    let rows: Vec<_> = pools.iter().map(row).collect();
    table(["POOL", "PENDING", "RUNNING", "AT ONCE", "OLDEST", "STARTED/S", "ENDED/S", "PAUSED"], &rows)
}

pub(super) fn keys(keys: &[Value]) -> String {
    let row = |key: &Value| {
        [
            short(&key["key"], LONGEST),
            text(&key["depth"]),
            if key["isRunning"] == true { "yes" } else { "-" }.to_owned(),
            text(&key["front"]["workId"]),
            text(&key["front"]["function"]),
            moment(&key["oldestAt"]),
        ]
    };
    let rows: Vec<_> = keys.iter().map(row).collect();
    table(["KEY", "DEPTH", "RUNS", "IN FRONT", "FUNCTION", "OLDEST"], &rows)
}

pub(super) fn crons(crons: &[Value]) -> String {
    let schedule = |schedule: &Value| match (&schedule["cron"], &schedule["everyMs"]) {
        (Value::String(cron), _) => format!("{} {}", plain(cron), text(&schedule["timeZone"])),
        (_, every) => format!("every {}", age(every)),
    };
    let row = |cron: &Value| {
        [
            text(&cron["name"]),
            schedule(&cron["schedule"]),
            text(&cron["pool"]),
            text(&cron["function"]),
            if cron["isPaused"] == true { "paused".to_owned() } else { moment(&cron["nextAt"]) },
            moment(&cron["lastAt"]),
            text(&cron["fired"]),
        ]
    };
    let rows: Vec<_> = crons.iter().map(row).collect();
    table(["CRON", "SCHEDULE", "POOL", "FUNCTION", "NEXT", "LAST", "FIRED"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn pools_and_crons_have_a_line_each() {
        let pool = json!({"name": "mail", "pending": 5, "running": 2, "settings": {"maxParallelism": 10},
            "oldestAgeMs": 90_500, "startedPerSecond": 1.25, "endedPerSecond": 0, "isPaused": true});
        insta::assert_snapshot!(pools(&[pool]), @"
            POOL  PENDING  RUNNING  AT ONCE  OLDEST  STARTED/S  ENDED/S  PAUSED
            mail  5        2        10       90.5 s  1.2        0.0      yes
            ");
        let daily = json!({"name": "daily", "schedule": {"cron": "0 2 * * *", "timeZone": "UTC"}, "pool": "mail",
            "function": "send", "nextAt": 1_800_000_000_000_i64, "lastAt": null, "fired": 0, "isPaused": false});
        let often = json!({"name": "often", "schedule": {"everyMs": 500, "fromMs": 0}, "pool": "mail",
            "function": "send", "nextAt": i64::MAX, "lastAt": 1_800_000_000_000_i64, "fired": 7, "isPaused": true});
        insta::assert_snapshot!(crons(&[daily, often]), @"
            CRON   SCHEDULE       POOL  FUNCTION  NEXT                      LAST                      FIRED
            daily  0 2 * * * UTC  mail  send      2027-01-15T08:00:00.000Z  -                         0
            often  every 500 ms   mail  send      paused                    2027-01-15T08:00:00.000Z  7
            ");
    }
}
