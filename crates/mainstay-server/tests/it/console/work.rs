//! Work: queues of keys, and items by their state.

use super::{House, PATIENCE};
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_store};
use mainstay_work::NewWork;
use std::collections::BTreeSet;

/// Where the next page of keys is, if there is one.
fn next_keys(page: &str) -> Option<String> {
    let (_, keys) = page.split_once("<h2>Queues of keys</h2>").unwrap();
    let (_, rest) = keys.split("</section>").next().unwrap().split_once("rel=\"next\" href=\"")?;
    Some(rest.split('"').next().unwrap().replace("&amp;", "&"))
}

#[tokio::test]
async fn all_keys_of_a_pool_are_found_page_by_page() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    house.services.work.pause("shop").await.unwrap();
    // Some end with a blank, which must not be lost on the way to the next page.
    let keys: BTreeSet<String> = (0..120).map(|number| format!("key {number:03} ")).collect();
    for key in &keys {
        let charge = NewWork::new("shop", "charge", "").unwrap().key(key);
        house.services.work.enqueue(charge).await.unwrap();
    }
    let mut found = Vec::new();
    let mut at = Some("/console/work/pools/shop?state=ready".to_owned());
    let mut pages = 0;
    while let Some(path) = at {
        let page = browser.page(&path).await;
        let (_, listed) = page.split_once("<h2>Queues of keys</h2>").unwrap();
        let listed = listed.split("</section>").next().unwrap();
        found.extend(listed.split("<code>").skip(1).map(|rest| rest.split('<').next().unwrap().to_owned()));
        // Items stay where they are while one goes through the keys.
        assert!(page.contains("<option value=\"ready\" selected>"), "{path}: {page}");
        assert!(listed.contains("First page") == (pages > 0), "{path}: {listed}");
        (at, pages) = (next_keys(&page), pages + 1);
        assert!(pages < 10, "it never ends");
    }
    assert_eq!((pages, found), (3, keys.into_iter().collect::<Vec<_>>()));
}

#[test]
fn items_that_succeeded_or_were_cancelled_are_found_by_their_state_and_offer_nothing() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Operator).await;
        let note =
            house.services.work.enqueue(NewWork::new("shop", "note", "").unwrap()).await.unwrap().work_id;
        house.services.work.wait_for(&note, PATIENCE).await.unwrap();
        let later = NewWork::new("shop", "charge", "").unwrap().run_after(PATIENCE);
        let cancelled = house.services.work.enqueue(later).await.unwrap().work_id;
        house.services.work.cancel(&cancelled).await.unwrap();
        for (state, own, others) in [
            ("success", &note, [&cancelled, &house.work_id]),
            ("canceled", &cancelled, [&note, &house.work_id]),
        ] {
            let page = browser.page(&format!("/console/work?state={state}")).await;
            assert!(page.contains(&format!("<option value=\"{state}\" selected>")), "{page}");
            let (_, items) = page.split_once("<h2>Items</h2>").unwrap();
            assert!(
                items.contains(own) && !others.iter().any(|other| items.contains(*other)),
                "{state}: {items}"
            );
            assert!(!items.contains("/console/act"), "{state}: {items}");
            let one = browser.page(&format!("/console/work/{own}")).await;
            assert!(!one.contains("/console/act"), "{state}: {one}");
        }
        let failed = browser.page("/console/work?state=failed").await;
        assert!(failed.contains(&house.work_id) && failed.contains("/retry"), "{failed}");
    });
}
