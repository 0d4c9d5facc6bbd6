//! What the command line does to a store itself is in the audit, as if a server had done it.

use crate::endpoint::Endpoint;
use crate::program::Folder;
use crate::serve_work::{ended, enqueue};
use crate::serving::Serving;
use mainstay::store::Options;
use mainstay_testkit::postgres::Postgres;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::process::Command;

const DONE: &str = "done";

/// A folder whose store has four items of work that failed, under a configuration with a cron. What is left running is a server
/// beside which the store can be opened; a file can not, so that its server has ended.
struct Shop {
    folder: Folder,
    items: Vec<String>,
    actions: BTreeSet<String>,
    _endpoint: Endpoint,
    _beside: Option<Serving>,
}

impl Shop {
    fn open(postgres: Option<&str>) -> Self {
        let endpoint = Endpoint::start(|_| (400, r#"{"error":"no such customer"}"#.to_owned()));
        let (folder, at) = (Folder::new(), endpoint.address);
        let store = postgres.map(|url| format!("[store]\nurl = {url:?}\n")).unwrap_or_default();
        let toml = format!(
            "{store}[pools.shop]\n[egress]\nallow = [\"127.0.0.0/8\"]\n[functions.send]\nurl = \"http://{at}/send\"\n\
             [crons.nightly]\nfunction = \"send\"\npool = \"shop\"\nschedule = {{ cron = \"0 3 * * *\" }}\n\
             [limits.mail]\nrate = 3\nperiod = \"1h\"\n"
        );
        folder.write("mainstay.toml", &toml);
        let server = Serving::start(&folder);
        let fail = |number: usize| {
            let id = enqueue(&server, &json!({"function": "send", "args": number}));
            assert_eq!(ended(&server, &id)["result"]["kind"], "failed");
            id
        };
        let items = (0..4).map(fail).collect();
        let actions = actions(&server);
        let beside = match postgres {
            Some(_) => Some(server),
            None => {
                server.stop("-TERM");
                None
            }
        };
        Self { folder, items, actions, _endpoint: endpoint, _beside: beside }
    }

    fn entries(&self) -> Vec<Value> {
        let listed = self.folder.run("audit list --limit 1000 --json").json();
        listed["entries"].as_array().unwrap().iter().rev().cloned().collect()
    }
}

/// What the audit calls every operation of the API.
fn actions(server: &Serving) -> BTreeSet<String> {
    let answer = server.ask("GET /openapi.json");
    let description: Value = serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap();
    let paths = description["paths"].as_object().unwrap().iter();
    let named = paths.flat_map(|(path, item)| {
        item.as_object().unwrap().keys().map(move |method| format!("{} {path}", method.to_uppercase()))
    });
    named.collect()
}

/// On a file that nobody serves, and on PostgreSQL beside a server that runs.
fn for_each_shop(body: impl Fn(Shop)) {
    body(Shop::open(None));
    let database = Postgres::shared().unwrap().database().unwrap();
    body(Shop::open(Some(database.url())));
}

pub(crate) fn me() -> String {
    let told = Command::new("id").arg("-un").output().unwrap();
    format!("local:{}", String::from_utf8(told.stdout).unwrap().trim())
}

#[test]
fn whatever_a_verb_changes_in_a_store_is_written_down_with_who_and_what_came_of_it() {
    for_each_shop(|shop| {
        let Shop { folder, items, .. } = &shop;
        let token = folder.run("token create --name ci --role reader --json").json();
        let token_id = token["token"]["id"].as_str().unwrap();
        let mut expected = vec![("POST /admin/tokens".to_owned(), DONE.to_owned())];
        let mut run = |verb: &str, action: &str, came_to: &str| {
            let answer = folder.run(verb);
            let (_, code) = came_to.split_once(' ').unwrap_or_default();
            assert!(
                if code.is_empty() { answer.code == 0 } else { answer.stderr.contains(code) },
                "{answer:?}"
            );
            expected.push((action.to_owned(), came_to.to_owned()));
            answer
        };
        run(&format!("token revoke {token_id}"), "DELETE /admin/tokens/{id}", DONE);
        run("token revoke nobody", "DELETE /admin/tokens/{id}", "refused TOKEN_NOT_FOUND");
        run("token create --name ci --role admin --tenant a:b", "POST /admin/tokens", "refused BODY_INVALID");

        run("circuits set mail {\"failureThreshold\":3}", "PUT /admin/circuits/{name}", DONE);
        run("circuits open mail --reason test", "POST /admin/circuits/{name}/force", DONE);
        run("circuits close mail --reason test", "POST /admin/circuits/{name}/force", DONE);
        run("circuits release mail --reason test", "POST /admin/circuits/{name}/release", DONE);
        run("circuits reset mail --reason test", "POST /admin/circuits/{name}/reset", DONE);
        run("limits set mail --rate 5 --period 1m", "PUT /admin/limits/{name}", DONE);
        run("limits block mail ada --for 10m", "POST /v1/limits/{name}/block", DONE);
        run("limits reset mail ada", "POST /v1/limits/{name}/reset", DONE);
        run("limits block none ada --for 10m", "POST /v1/limits/{name}/block", "refused UNKNOWN_LIMIT");

        run("work pause shop", "POST /admin/pools/{pool}/pause", DONE);
        let waiting = folder.run("work enqueue shop send").stdout.trim().to_owned();
        let waiting = waiting.as_str();
        run(&format!("work run-now {waiting}"), "POST /admin/work/{id}/run-now", DONE);
        run(&format!("work cancel {waiting}"), "POST /admin/work/{id}/cancel", DONE);
        run(&format!("work retry {}", items[0]), "POST /admin/work/{id}/retry", DONE);
        run("work retry nothing", "POST /admin/work/{id}/retry", "refused DEAD_LETTER_NOT_FOUND");
        run("work crons --pause nightly", "POST /v1/crons/{name}/pause", DONE);
        run("work crons --resume nightly", "POST /v1/crons/{name}/resume", DONE);
        run("work crons --remove nightly", "DELETE /v1/crons/{name}", DONE);
        run("work crons --remove nothing", "DELETE /v1/crons/{name}", "refused UNKNOWN_CRON");
        run("work pools delete nowhere", "DELETE /admin/pools/{pool}", "refused UNKNOWN_POOL");

        let letters = folder.run("dead-letters list --status pending --json").json();
        let letter = letters["letters"][0]["letterId"].as_str().unwrap();
        run(&format!("dead-letters ignore {letter}"), "POST /admin/dead-letters/{id}/ignore", DONE);
        run(&format!("dead-letters retry {letter}"), "POST /admin/dead-letters/{id}/retry", DONE);
        run(
            "dead-letters retry nothing",
            "POST /admin/dead-letters/{id}/retry",
            "refused DEAD_LETTER_NOT_FOUND",
        );
        let preview = run("dead-letters purge --json", "POST /admin/dead-letter-operations", DONE).json();
        let operation = preview["operationId"].as_str().unwrap();
        run(&format!("dead-letters run {operation}"), "POST /admin/dead-letter-operations/{id}/run", DONE);
        run(
            &format!("dead-letters cancel {operation}"),
            "POST /admin/dead-letter-operations/{id}/cancel",
            "refused LETTER_OPERATION_STATUS_CONFLICT",
        );

        for number in [1, 2] {
            let begin = "--context orders --timeout 5m --on-timeout alert --started-at";
            assert_eq!(folder.run(&format!("intents record Refund Order {number} {begin} 1000")).code, 0);
        }
        run("intents complete Refund:Order:1:1000", "POST /v1/intents/{intentKey}/complete", DONE);
        run("intents abandon Refund:Order:2:1000", "POST /admin/intents/{intentKey}/abandon", DONE);
        run(
            "intents abandon Refund:Order:1:1000",
            "POST /admin/intents/{intentKey}/abandon",
            "refused INTENT_ALREADY_ENDED",
        );
        assert_eq!(folder.run("events append --type OrderPlaced --data 1 --tag order:1").code, 0);
        run("events erase --tag order:1 --reason asked --actor ada", "mainstay events erase", DONE);
        run(
            "events erase --event none --reason asked --actor ada",
            "mainstay events erase",
            "refused EVENT_NOT_FOUND",
        );
        run("work resume shop", "POST /admin/pools/{pool}/resume", DONE);

        let entries = shop.entries();
        let told = entries.iter().map(|entry| {
            let text = |name: &str| entry[name].as_str().unwrap_or_default().to_owned();
            (text("action"), format!("{} {}", text("outcome"), text("code")).trim().to_owned())
        });
        assert_eq!(told.collect::<Vec<_>>(), expected);
        for entry in &entries {
            let action = entry["action"].as_str().unwrap();
            assert!(shop.actions.contains(action) || action == "mainstay events erase", "{action}");
            assert_eq!(entry["userId"], me(), "{entry}");
        }
        let (first, forced) = (&entries[0]["args"], &entries[5]["args"]);
        assert_eq!((&first["path"], &first["body"]["name"]), (&json!("/admin/tokens"), &json!("ci")));
        assert_eq!(forced["path"], "/admin/circuits/mail/force");
        assert_eq!(forced["body"], json!({"state": "open", "reason": "test", "forMs": null}));
        assert!(!json!(entries).to_string().contains(token["secret"].as_str().unwrap()));
        let whole = folder.run("audit verify");
        assert!(whole.code == 0 && whole.stderr.contains("whole"), "{whole:?}");
        let of_me = folder.run(&format!("audit list --limit 1000 --user {} --json", me())).json();
        assert_eq!(of_me["entries"].as_array().unwrap().len(), expected.len());
    });
}

#[test]
fn what_only_looks_and_what_applications_do_all_day_is_not_written_down() {
    for_each_shop(|shop| {
        for verb in [
            "token list",
            "circuits list",
            "circuits history",
            "limits list",
            "limits value mail ada",
            "limits check mail ada",
            "limits consume mail ada",
            "limits reserve mail bob",
            "work list",
            "work pools",
            "work crons",
            "work enqueue shop send",
            "work run send",
            "dead-letters list",
            "dead-letters stats",
            "dead-letters operations",
            "intents list",
            "intents record Refund Order 1 --context orders --timeout 5m --on-timeout alert",
            "events append --type OrderPlaced --data 1",
            "events read",
            "audit list",
            "audit verify",
        ] {
            let answer = shop.folder.run(verb);
            assert!(answer.code == 0 || answer.stderr.contains("LIMIT_"), "{verb}: {answer:?}");
        }
        assert_eq!(shop.entries(), Vec::<Value>::new());
    });
}

/// The entry is part of the transaction: where it cannot be written, nothing is done.
#[test]
fn there_is_no_action_without_its_entry() {
    let folder = Folder::new();
    assert_eq!(folder.run("token list").code, 0);
    let url = format!("sqlite:{}", folder.path().join("mainstay.db").display());
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let store = Options::new(url).open().await.unwrap();
        let change = "DELETE FROM mainstay_audit_head";
        store.transact(async move |tx| tx.execute(change, &[]).await).await.unwrap();
        store.close().await;
    });
    let answer = folder.run("token create --name ci --role reader");
    assert_eq!((answer.code, answer.stdout.as_str()), (1, ""), "{answer:?}");
    assert_eq!(folder.run("token list --json").json()["tokens"], json!([]));
}
