//! Events: each filter filters, alone and together with others.

use super::{Browser, House, later};
use mainstay_events::{Append, NewEvent};
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_store};

/// The positions that a page lists, as it lists them.
fn positions(page: &str) -> Vec<u64> {
    let cells = page.split("data-title=\"Position\"><div>").skip(1);
    cells.map(|rest| rest.split('<').next().unwrap().parse().unwrap()).collect()
}

async fn found(browser: &Browser, query: &str) -> Vec<u64> {
    let page = browser.page(&format!("/console/events?{query}")).await;
    assert!(page.contains("class=\"filters\"") && !page.contains("notice bad"), "{query}: {page}");
    positions(&page)
}

/// Events from 3 on, each at a time of its own; 1 and 2 are the house's.
async fn told(house: &House) {
    let event = |kind: &str, stream: (&str, &str), tag: &str, correlation: &str| {
        NewEvent::new(kind, &1).unwrap().stream(stream.0, stream.1).tag(tag).correlation(correlation)
    };
    for event in [
        event("Paid", ("Order", "a"), "order:a", "corr-a"),
        event("Paid", ("Order", "b"), "order:b", "corr-b"),
        event("Sent", ("Order", "a"), "order:a", "corr-b"),
        event("Paid", ("Order", "a"), "order:b", "corr-a"),
        event("Paid", ("Parcel", "a"), "order:a", "corr-a"),
    ] {
        later(&house.server.store).await;
        house.services.log.append(Append::from(event)).await.unwrap();
    }
}

#[test]
fn each_filter_of_the_events_filters_and_so_do_several() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let browser = house.log_in(Role::Reader).await;
        told(&house).await;
        for (query, wanted) in [
            ("", &[7, 6, 5, 4, 3, 2, 1][..]),
            ("type=Sent", &[5]),
            ("tag=order%3Ab", &[6, 4]),
            ("stream=Order/a", &[6, 5, 3]),
            ("stream=Order/o%2F1", &[2, 1]),
            ("correlationId=corr-b", &[5, 4]),
            ("stream=Order/a&type=Paid", &[6, 3]),
            ("stream=Order/a&type=Paid&tag=order%3Aa", &[3]),
            ("stream=Order/a&correlationId=corr-b", &[5]),
            ("stream=Order/a&until=5", &[5, 3]),
            ("stream=Order/c", &[]),
            ("from=2020-01-01T00:00", &[7, 6, 5, 4, 3, 2, 1]),
            ("from=2100-01-01T00:00", &[]),
            ("to=2020-01-01T00:00:00", &[]),
            ("to=2100-01-01T00:00&stream=Order/b", &[4]),
            ("from=2100-01-01T00:00&stream=Order/b", &[]),
        ] {
            assert_eq!(found(&browser, query).await, wanted, "{query}");
        }
        let page = browser.page("/console/events?stream=Order/a&type=Paid").await;
        for kept in ["name=\"stream\" value=\"Order/a\"", "name=\"type\" value=\"Paid\""] {
            assert!(page.contains(kept), "{kept}: {page}");
        }
    });
}

#[tokio::test]
async fn times_divide_events_where_they_say() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    told(&house).await;
    let page = browser.page("/console/events").await;
    let mut times: Vec<&str> =
        page.split("datetime=\"").skip(1).map(|rest| rest.split('"').next().unwrap()).collect();
    times.reverse();
    assert_eq!(times.len(), 7, "{page}");
    // As the form has them, which knows no zones.
    let at = |position: usize| times[position - 1].trim_end_matches('Z').to_owned();
    for (query, wanted) in [
        (format!("from={}", at(6)), &[7, 6][..]),
        (format!("to={}", at(4)), &[3, 2, 1]),
        (format!("from={}&to={}", at(4), at(7)), &[6, 5, 4]),
        (format!("from={}&to={}&type=Paid", at(4), at(7)), &[6, 4]),
        (format!("from={}&stream=Order/a", at(4)), &[6, 5]),
    ] {
        assert_eq!(found(&browser, &query).await, wanted, "{query}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_named_and_nothing_is_shown() {
    let place = Place::new(Kind::SqliteMemory);
    let house = House::open(&place).await;
    let browser = house.log_in(Role::Reader).await;
    for (query, named) in [
        ("stream=order-1", "“order-1” is no stream"),
        ("from=yesterday&type=OrderSubmitted", "“yesterday” is no time"),
    ] {
        let page = browser.page(&format!("/console/events?{query}")).await;
        assert!(page.contains(named) && page.contains("class=\"filters\""), "{query}: {page}");
        assert!(positions(&page).is_empty(), "{query}: {page}");
    }
}
