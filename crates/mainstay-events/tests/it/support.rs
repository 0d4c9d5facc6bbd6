//! What the tests of the log have in common.

use mainstay_events::{Append, COMPONENT, Event, Item, Log, NewEvent, Page, Query, Selection};
use mainstay_store::Tx;
use mainstay_testkit::stores::Place;

/// The log of a fresh store.
pub(crate) async fn open(place: &Place) -> Log {
    let store = place.options().component(COMPONENT).open().await.unwrap();
    Log::open(&store).await.unwrap()
}

/// An event with tags.
pub(crate) fn event(event_type: &str, tags: &[&str]) -> NewEvent {
    let event = NewEvent::new(event_type, &serde_json::json!({"of": event_type})).unwrap();
    tags.iter().fold(event, |event, tag| event.tag(*tag))
}

/// An append of one event with tags.
pub(crate) fn append(event_type: &str, tags: &[&str]) -> Append {
    event(event_type, tags).into()
}

/// A query of one item.
pub(crate) fn query(types: &[&str], tags: &[&str]) -> Query {
    Query::new(vec![item(types, tags)]).unwrap()
}

/// An item.
pub(crate) fn item(types: &[&str], tags: &[&str]) -> Item {
    let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    Item { types: owned(types), tags: owned(tags) }
}

/// Every event of the log.
pub(crate) async fn all(log: &Log) -> Vec<Event> {
    select(log, Selection::all()).await
}

/// Every event of a selection, page by page.
pub(crate) async fn select(log: &Log, mut selection: Selection) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let page = log.read(&selection, 7).await.unwrap();
        events.extend(page.events);
        let Some(next) = page.next else { return events };
        selection.after = next;
    }
}

/// The same, from the newest event on.
pub(crate) async fn select_backwards(log: &Log, mut selection: Selection) -> Vec<Event> {
    let mut events = Vec::new();
    loop {
        let page = log.read_backwards(&selection, 7).await.unwrap();
        events.extend(page.events);
        let Some(next) = page.next else { return events };
        selection.until = Some(next);
    }
}

/// A page of a selection as a decision sees it, inside of a transaction that may write.
pub(crate) async fn deciding(log: &Log, selection: Selection) -> Page {
    let read =
        async |tx: Tx, (log, selection): (Log, Selection)| Ok(log.read_in(&tx, &selection, 100).await?);
    log.store().transact_with((log.clone(), selection), read).await.unwrap()
}

/// The positions of events.
pub(crate) fn positions(events: &[Event]) -> Vec<u64> {
    events.iter().map(Event::position).collect()
}
