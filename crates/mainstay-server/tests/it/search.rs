//! Searches in large texts: they find what there is, cost a bounded time a page, and leave readers to others.

use crate::client::{Request, get, soon};
use crate::running::{Running, options};
use mainstay_server::{Builder, Role, Services, equipped};
use mainstay_testkit::stores::{Place, for_each_store};
use mainstay_work::{Call, Failure, Functions, NewWork, Pool};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Arguments of each item: a text in which a naive search begins anew at every letter.
const ARGS_BYTES: usize = 60_000;
const ITEMS: usize = 400;
/// Longest time of a read beside searches, also on a busy machine.
const QUICK: Duration = Duration::from_secs(5);

async fn shop(place: &Place) -> (Running, Services, String) {
    let store = equipped(place.options()).open().await.unwrap();
    let functions = Functions::new().action("note", async |_: Call, _: Value| Ok::<_, Failure>(()));
    let services = Builder::on_store(store.clone()).functions(functions).open().await.unwrap();
    services.work.pool(Pool::new("shop")).await.unwrap();
    let server = Running::start_with(options(), services.clone()).await;
    let token = server.token(Role::Reader).await;
    (server, services, token)
}

#[test]
fn searches_that_look_at_much_leave_other_reads_quick_and_find_what_there_is() {
    for_each_store(async |place| {
        let (server, services, token) = shop(&place).await;
        let rare = format!("{}b", "a".repeat(255));
        let oldest =
            services.work.enqueue(NewWork::new("shop", "note", &rare).unwrap()).await.unwrap().work_id;
        let large = NewWork::new("shop", "note", &"a".repeat(ARGS_BYTES)).unwrap();
        for _ in 0..ITEMS / 50 {
            services.work.enqueue_all(vec![large.clone(); 50]).await.unwrap();
        }
        let asked = move |path: String| get(&path).token(&token);
        let address = server.address;
        let worst = format!("/admin/work?args={rare}");
        let searches: Vec<_> = (0..8)
            .map(|_| {
                let request = asked(worst.clone());
                tokio::spawn(async move {
                    let mut came = Vec::new();
                    for _ in 0..3 {
                        came.push(request.send(address).await);
                    }
                    came
                })
            })
            .collect();
        let mut reads = 0;
        while reads < 20 || searches.iter().any(|search| !search.is_finished()) {
            let began = Instant::now();
            let answer = asked("/v1/pools".to_owned()).send(address).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(began.elapsed() < QUICK, "{}: a read took {:?}", place.kind(), began.elapsed());
            reads += 1;
        }
        for search in searches {
            for answer in search.await.unwrap() {
                match answer.status {
                    200 => assert_eq!(
                        (&answer.json()["isPartial"], answer.json()["next"].is_string()),
                        (&true.into(), true)
                    ),
                    _ => {
                        answer.problem(503, "SEARCH_BUSY");
                        assert!(answer.header("retry-after").is_some());
                    }
                }
            }
        }
        // Page after page, it is found.
        let (mut path, mut found, mut pages) = (worst.clone(), Vec::new(), 0);
        loop {
            let page = soon(asked(path).send(address)).await;
            assert_eq!(page.status, 200, "{page:?}");
            let page = page.json();
            found.extend(
                page["work"]
                    .as_array()
                    .unwrap()
                    .iter()
                    .map(|item| item["workId"].as_str().unwrap().to_owned()),
            );
            pages += 1;
            let Some(next) = page["next"].as_str() else { break };
            assert_eq!(page["isPartial"], true);
            path = format!("{worst}&cursor={next}");
        }
        assert_eq!(found, [oldest], "and nothing else");
        assert!(pages >= 3, "24 MB are more than a page looks through: {pages}");
        let page = asked("/admin/work?args=aaa&limit=2".to_owned()).send(address).await.json();
        assert_eq!(
            (page["work"].as_array().unwrap().len(), page.get("isPartial")),
            (2, None),
            "what is full is not partial"
        );
    });
}

#[test]
fn a_text_that_is_too_long_is_refused() {
    for_each_store(async |place| {
        let (server, _rooms, token) = shop(&place).await;
        let refused = async |request: Request| request.token(&token).send(server.address).await;
        let answer = refused(get(&format!("/admin/work?args={}", "a".repeat(257)))).await;
        assert_eq!(answer.problem(400, "WORK_INVALID")["field"], "args");
        let answer = refused(get(&format!("/admin/dead-letters?error={}", "a".repeat(257)))).await;
        answer.problem(400, "WORK_INVALID");
    });
}

#[test]
fn a_value_that_was_kept_too_deep_breaks_neither_lists_nor_the_console() {
    for_each_store(async |place| {
        let (server, services, token) = shop(&place).await;
        let new = |args: &str| NewWork::new("shop", "note", args).unwrap();
        let deep = services.work.enqueue(new("HERE")).await.unwrap().work_id;
        let other = services.work.enqueue(new("plain")).await.unwrap().work_id;
        // As an earlier version has kept it.
        let spoil = async |tx: mainstay_store::Tx| {
            let deep = format!("{}1e999{}", "[".repeat(30_000), "]".repeat(30_000));
            let sql = "UPDATE mainstay_work SET item = replace(item, '\"HERE\"', $1)";
            tx.execute(sql, mainstay_store::params![deep]).await
        };
        server.store.transact(spoil).await.unwrap();
        for path in ["/admin/work", "/admin/pools/shop/work?limit=10"] {
            let page = get(path).token(&token).send(server.address).await;
            assert_eq!(page.status, 200, "{page:?}");
            let ids: Vec<Value> =
                page.json()["work"].as_array().unwrap().iter().map(|item| item["workId"].clone()).collect();
            assert!(
                ids.contains(&other.as_str().into()) && ids.contains(&deep.as_str().into()),
                "{path}: {ids:?}"
            );
            assert!(page.body.contains("[nested too deep]"), "{path}");
        }
        let one = get(&format!("/admin/work/{deep}")).token(&token).send(server.address).await;
        assert_eq!((one.status, one.body.contains("[nested too deep]")), (200, true));
        let browser = crate::console::Browser::log_in(&server, &token).await;
        for page in ["/console/work".to_owned(), format!("/console/work/{deep}")] {
            let page = browser.send(get(&page)).await;
            assert_eq!(page.status, 200);
            assert!(page.body.contains("note"), "{}", page.body);
        }
        let found = get("/admin/work?args=plain").token(&token).send(server.address).await.json();
        assert_eq!(found["work"][0]["workId"], other);
    });
}
