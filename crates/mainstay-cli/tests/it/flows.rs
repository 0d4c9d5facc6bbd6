//! `mainstay projections`, `mainstay replay`, `mainstay publications`, `mainstay dead-letters` and `mainstay trace`, on the server of an application.

use crate::program::{Answer, Folder};
use mainstay::events::{Event, NewEvent};
use mainstay::flows::commands::{Command, Commands, Decision, Handling};
use mainstay::flows::delivery::publications::{Delivery, Retry, Target, Targets};
use mainstay::flows::projections::{Category, Model, Poison, Projection, Registry};
use mainstay::store::{Tx, params};
use mainstay::work::{Failure, RetryPolicy};
use mainstay_server::tokens::New;
use mainstay_server::{Builder, Options, Role, Routes, Server, Tokens, equipped};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(20);

fn registry() -> Registry {
    let table = ["CREATE TABLE {table} (id TEXT NOT NULL)"];
    let orders = Projection::new("orders", Category::View).table("orders", &table).each(
        async |tx: Tx, model: Model, event: Event| {
            let sql = format!("INSERT INTO {} (id) VALUES ($1)", model.table("orders")?);
            tx.execute(&sql, params![event.id()]).await
        },
    );
    let spoiled = async |_: Tx, _: Model, event: Event| match event.event_type() {
        "OrderSpoiled" => Err(mainstay::store::Error::application("spoiled")),
        _ => Ok(()),
    };
    let once = RetryPolicy::new(1, 1, 1.0, 1).unwrap();
    let risky = Projection::new("risky", Category::Logic).poison(Poison::new(1, false)).each(spoiled);
    let strict = Projection::new("strict", Category::Logic).retry(once).each(spoiled);
    Registry::new().with(orders).with(risky).with(strict)
}

fn targets() -> Targets {
    let refusing = Target::subscriber("analytics", async |_: Delivery| Err(Failure::permanent("no")));
    Targets::new(Retry { max_retries: 0, initial_backoff_ms: 1, base: 1.0 })
        .with(Target::subscriber("inventory", async |_: Delivery| Ok(())))
        .with(refusing)
}

fn commands() -> Commands {
    Commands::new().on("SubmitOrder", async |_: Handling, _: u32| {
        let events = ["OrderSubmitted", "OrderSpoiled"];
        let events = events.into_iter().map(|name| NewEvent::new(name, &1)).collect::<Result<Vec<_>, _>>()?;
        Ok(Decision::success((), events))
    })
}

/// Runs `body` while the server of an application runs, in which a command with two events was carried out.
fn with_application(body: impl FnOnce(&dyn Fn(&str) -> Answer)) {
    let (folder, runtime) = (Folder::new(), tokio::runtime::Runtime::new().unwrap());
    let (url, token, stop, served) = runtime.block_on(async {
        let store = equipped(mainstay::store::Options::new("sqlite::memory:")).open().await.unwrap();
        let (commands, registry, targets) = (commands(), registry(), targets());
        let services = Builder::on_store(store.clone())
            .commands(commands)
            .projections(registry)
            .targets(targets)
            .open()
            .await;
        let services = services.unwrap();
        let (engine, projecting) = (services.work.start().await.unwrap(), services.projections.start());
        let command = Command::new("SubmitOrder", &7).unwrap().correlation("corr-123").id("cmd-1");
        services.commands.dispatch(command).await.unwrap();
        for projection in ["orders", "risky", "strict"] {
            services.projections.wait_for(projection, 2, PATIENCE).await.unwrap();
        }
        let new = New::named("test", Role::Admin).unwrap();
        let (_, secret) = Tokens::new(store.clone()).create(new).await.unwrap();
        let options = Options::default().listen("127.0.0.1:0".parse().unwrap());
        let server = Server::bind_with(options, services, Routes::default()).await.unwrap();
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let url = server.url();
        let served = tokio::spawn(async move {
            server.run(async { drop(stopped.await) }).await;
            projecting.stop(PATIENCE).await;
            engine.stop(PATIENCE).await.unwrap();
        });
        (url, secret.reveal().to_owned(), stop, served)
    });
    let with = [("MAINSTAY_TOKEN", &*token)];
    body(&|arguments| folder.run_with(&with, &format!("{arguments} --server {url}")));
    stop.send(()).unwrap();
    runtime.block_on(served).unwrap();
}

fn said(answer: &Answer) -> &str {
    assert_eq!(answer.code, 0, "{answer:?}");
    &answer.stdout
}

#[test]
fn read_models_are_listed_stopped_and_filled_anew() {
    with_application(|run| {
        insta::assert_snapshot!(said(&run("projections list")), @r"
        PROJECTION  STATUS  LAG  POSITION  PROCESSED  FAILED
        orders      active  0    2         2          0
        risky       active  0    2         1          1
        strict      active  0    2         1          1
        ");
        assert!(said(&run("projections pause orders")).contains("paused"));
        assert!(said(&run("projections resume orders")).contains("active"));
        assert_eq!(run("projections show orders --json").json()["category"], "view");
        assert!(said(&run("projections checkpoints")).contains("orders"));
        let replay = run("replay start orders --chunk-size 1 --wait");
        assert!(said(&replay).contains("completed") && said(&replay).contains("2 of 2"), "{replay:?}");
        assert!(run("replay list").stderr.contains("No replay runs."));
        let missing = run("replay show replay_9");
        assert_ne!(missing.code, 0);
        assert!(missing.stderr.contains("REPLAY_NOT_FOUND"), "{missing:?}");
        let unknown = run("replay start nothing");
        assert!(unknown.stderr.contains("UNKNOWN_PROJECTION"), "{unknown:?}");
    });
}

#[test]
fn b_250_b_251_figures_are_told_by_the_server() {
    with_application(|run| {
        let report = run("metrics --json").json();
        for (projection, letters) in [("orders", 0), ("risky", 1), ("strict", 1)] {
            assert_eq!(report["projectionLags"][projection], 0);
            assert_eq!(report["dlqSizes"][projection], letters, "{projection}");
        }
        assert_eq!(report["eventThroughput"]["none"], 0, "they were there before the server was");
        assert_eq!(report["workpoolDepths"]["projectionPool"], 0);
        let told = run("metrics");
        let line = said(&told).lines().find(|line| line.starts_with("command.latency_ms")).unwrap();
        assert!(line.contains("SubmitOrder success") && line.ends_with("; 1)"), "{line}");
    });
    let folder = Folder::new();
    assert_eq!(folder.run("migrate").code, 0);
    let refused = folder.run("metrics");
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("--server"), "{refused:?}");
}

#[test]
fn what_a_read_model_could_not_take_is_listed_and_left() {
    with_application(|run| {
        let poison = run("projections poison --json").json();
        let event_id = poison["poisonEvents"][0]["eventId"].as_str().unwrap().to_owned();
        assert!(said(&run("projections poison")).contains("spoiled"));
        assert_eq!(said(&run(&format!("projections ignore-poison risky {event_id}"))), "1 done\n");
        assert!(run("projections poison").stderr.contains("There are none."));
        assert!(run("projections letters --projection risky").stderr.contains("There are none."));
    });
}

#[test]
fn a_letter_is_shown_left_and_tried_again() {
    with_application(|run| {
        let letters = run("projections letters --json").json();
        let event_id = letters["letters"][0]["eventId"].as_str().unwrap().to_owned();
        let shown = run(&format!("projections letter strict {event_id}"));
        let payload = said(&shown).lines().find(|line| line.starts_with("payload")).unwrap();
        assert!(payload.ends_with(" 1") && said(&shown).contains("spoiled"), "{shown:?}");
        assert_eq!(said(&run(&format!("projections ignore strict {event_id}"))), "1 done\n");
        let many =
            run("dead-letters retry --kind projection --status ignored --limit 10 --run --json").json();
        assert!(many["total"] == 1 && many["done"] == 1, "{many}");
        let refused = run("dead-letters retry --status resolved");
        assert!(refused.code != 0 && refused.stderr.contains("WORK_INVALID"), "{refused:?}");
        assert_eq!(run("dead-letters purge --older-than 7d --run --json").json()["done"], 0);
    });
}

#[test]
fn what_belongs_together_is_shown_in_the_order_of_time() {
    with_application(|run| {
        let trace = run("trace corr-123");
        let told: Vec<&str> = said(&trace).lines().collect();
        assert!(
            told[1].contains("command")
                && told[1].contains("SubmitOrder")
                && told[1].contains("executed cmd-1")
        );
        for what in ["OrderSubmitted", "took OrderSubmitted at 1", "quarantined: spoiled"] {
            assert!(told.iter().any(|line| line.contains(what)), "{what}: {told:?}");
        }
        assert_eq!(run("trace corr-123 --json").json()["command"]["commandType"], "SubmitOrder");
        assert!(run("trace nothing").stderr.contains("Nothing belongs to nothing."));
    });
}

#[test]
fn a_store_that_no_application_serves_has_no_read_models_to_ask_about() {
    let folder = Folder::new();
    folder.run("events append --type OrderPlaced --data 1 --correlation-id corr-1");
    for verb in ["projections list", "publications list"] {
        let refused = folder.run(verb);
        assert!(refused.code != 0 && refused.stderr.contains("--server"), "{refused:?}");
    }
    assert!(folder.run("trace corr-1").stdout.contains("OrderPlaced"));
}

#[test]
fn publications_are_made_looked_at_and_dealt_with() {
    with_application(|run| {
        let trace = run("trace corr-123 --json").json();
        let event_id = trace["events"][0]["eventId"].as_str().unwrap().to_owned();
        let publish =
            format!("publications publish {event_id} --source orders --target inventory --target analytics");
        let published = run(&publish);
        assert!(said(&published).contains("inventory  published"), "{published:?}");
        let ended = |target: &str, status: &str| {
            for _ in 0..2_000 {
                let found = run(&format!("publications status {event_id} --json")).json();
                let found = found["publications"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .find(|one| one["targetContext"] == target);
                if found.is_some_and(|one| one["status"] == status) {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("{target} is never {status}");
        };
        ended("inventory", "delivered");
        ended("analytics", "failed");
        let listed = run("publications list --target inventory");
        assert!(
            said(&listed).contains("OrderSubmitted") && said(&listed).contains("delivered"),
            "{listed:?}"
        );
        let letters = run("publications letters");
        assert!(said(&letters).contains("permanentServiceError: no"), "{letters:?}");
        insta::assert_snapshot!(said(&run("publications stats")), @r"
        TARGET     STATUS   LETTERS
        analytics  pending  1
        inventory  pending  0
        ");
        let letter = run(&format!("publications letter analytics {event_id}"));
        assert!(said(&letter).contains("pending"), "{letter:?}");
        let retried = run(&format!("publications retry analytics {event_id}"));
        assert!(said(&retried).starts_with("tried again by work_"), "{retried:?}");
        ended("analytics", "failed");
        assert_eq!(said(&run(&format!("publications ignore analytics {event_id}"))), "1 done\n");
        assert_eq!(run("publications letters --status ignored --json").json()["letters"][0]["retryCount"], 1);
        let again = run(&publish);
        assert!(said(&again).contains("published before"), "{again:?}");
        let unknown = run(&format!("publications publish {event_id} --source orders --target nowhere"));
        assert!(unknown.stderr.contains("UNKNOWN_TARGET"), "{unknown:?}");
        assert!(run("publications list --status retried").stderr.contains("There are none."));
    });
}

#[test]
fn dead_letters_of_any_kind_are_looked_at_and_dealt_with() {
    with_application(|run| {
        let listed = run("dead-letters list");
        assert!(said(&listed).starts_with("LETTER") && said(&listed).contains("spoiled"), "{listed:?}");
        let letter = run("dead-letters list --kind projection --name strict --status pending --json").json();
        let letter_id = letter["letters"][0]["letterId"].as_str().unwrap().to_owned();
        let shown = run(&format!("dead-letters show {letter_id}"));
        assert!(said(&shown).contains("corr-123") && said(&shown).contains("payload"), "{shown:?}");
        let stats = run("dead-letters stats");
        assert!(said(&stats).contains("pending  projection        strict  1"), "{stats:?}");
        assert!(said(&stats).contains("pending  quarantinedEvent  risky   1"), "{stats:?}");
        let groups = run("dead-letters groups");
        assert!(said(&groups).contains("strict") && said(&groups).contains("spoiled"), "{groups:?}");
        assert!(run("dead-letters list --older-than 1d").stderr.contains("There are none."));

        // What is to be done about many is shown first.
        let previewed = run("dead-letters retry --kind projection --newer-than 1d --error SPOILED");
        assert!(
            said(&previewed).contains("previewed") && said(&previewed).contains("strict"),
            "{previewed:?}"
        );
        let operation_id = previewed.stderr.trim().rsplit(' ').next().unwrap().to_owned();
        let done = run(&format!("dead-letters run {operation_id}"));
        assert!(said(&done).contains("done"), "{done:?}");
        let pending = |retries: u64| {
            for _ in 0..2_000 {
                let found = run(&format!("dead-letters show {letter_id} --json")).json();
                if found["status"] == "pending" && found["retryCount"] == retries {
                    return;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            panic!("it never failed again");
        };
        pending(1);
        let retried = run(&format!("dead-letters retry {letter_id}"));
        assert!(said(&retried).contains(&letter_id), "{retried:?}");
        pending(2);
        let ignored = run("dead-letters ignore --kind projection --run --json").json();
        assert_eq!((ignored["status"].as_str(), ignored["done"].as_u64()), (Some("done"), Some(1)));
        run(&format!("dead-letters ignore {letter_id}")).assert_failed(1, "DEAD_LETTER_NOT_PENDING");
        assert_eq!(run("dead-letters purge --status ignored --run --json").json()["done"], 1);
        assert!(run("dead-letters list --kind projection").stderr.contains("There are none."));
        let operations = run("dead-letters operations");
        assert_eq!(said(&operations).lines().count(), 5, "{operations:?}");
        assert!(said(&run(&format!("dead-letters operation {operation_id} --wait"))).contains("retry"));
        run(&format!("dead-letters cancel {operation_id}"))
            .assert_failed(1, "LETTER_OPERATION_STATUS_CONFLICT");
        run("dead-letters show letter_99").assert_failed(1, "DEAD_LETTER_NOT_FOUND");
        run("dead-letters list --status dead").assert_failed(2, "QUERY_INVALID");
        assert_ne!(run(&format!("dead-letters retry {letter_id} --kind work")).code, 0);
    });
}
