//! Traces: what failed is on the time line, and marked.

use super::{House, PATIENCE};
use mainstay_events::{Append, NewEvent};
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_store};

/// The entry of a trace that has this text, from its beginning to its end.
fn entry<'a>(page: &'a str, text: &str) -> &'a str {
    let mut entries = page.split("<li").skip(1).map(|rest| rest.split("</li>").next().unwrap());
    entries.find(|entry| entry.contains(text)).unwrap_or_else(|| panic!("{text}: {page}"))
}

#[test]
fn an_event_that_was_put_aside_is_where_a_trace_failed() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Reader).await;
        let spoiled = NewEvent::new("OrderSpoiled", &1).unwrap().correlation("corr-poison");
        let appended = house.services.log.append(Append::from(spoiled)).await.unwrap();
        let (event, position) = (&appended.events[0].event_id, appended.events[0].position);
        house.services.projections.wait_for("orders", position, PATIENCE).await.unwrap();
        let page = browser.page("/console/traces/corr-poison").await;
        assert!(page.contains("Something failed: the poison event"), "{page}");
        let entry = entry(&page, "poison event</span>");
        assert!(entry.contains("class=\"failure\"") && entry.contains("id=\"failure\""), "{entry}");
        for part in ["/console/projections/orders", &format!("/console/events/{event}"), "spoiled"] {
            assert!(entry.contains(part), "{part}: {entry}");
        }
        // Once somebody has left it for good, nothing is wrong any more.
        house.services.projections.ignore_quarantined("orders", event).await.unwrap();
        let page = browser.page("/console/traces/corr-poison").await;
        assert!(!page.contains("Something failed"), "{page}");
    });
}

#[tokio::test]
async fn a_publication_that_failed_is_marked() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    let event = NewEvent::new("OrderSubmitted", &1).unwrap().correlation("corr-published");
    let event = house.services.log.append(Append::from(event)).await.unwrap().events[0].event_id.clone();
    house.services.publications.publish(&event, "orders", ["inventory"]).await.unwrap();
    let delivery = house.services.publications.status(&event).await.unwrap()[0].work_id.clone().unwrap();
    house.services.work.wait_for(&delivery, PATIENCE).await.unwrap();
    let page = browser.page("/console/traces/corr-published").await;
    let entry = entry(&page, "publication</span>");
    assert!(entry.contains("failed") && entry.contains("class=\"failure\""), "{entry}");
}
