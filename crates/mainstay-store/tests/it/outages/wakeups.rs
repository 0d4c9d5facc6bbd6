//! Wake-ups between nodes, whatever happens to the line.

use super::{Line, PATIENCE, on_postgres, soon};
use mainstay_store::{Listener, Store, Topic};
use std::time::{Duration, Instant};

/// Long enough for a wake-up that comes when it should not.
const QUIET: Duration = Duration::from_millis(300);

fn topic(name: &str) -> Topic {
    Topic::new(name).unwrap()
}

async fn wake(store: &Store, name: &str) {
    store.transact_with(topic(name), async |tx, topic| tx.wake(&topic)).await.unwrap();
}

/// Waits until `to` hears of what is committed at `from`. Afterwards nothing wakes its listeners by itself.
pub(crate) async fn until_linked(from: &Store, to: &Store) {
    let mut listener = to.listen(topic("ping"));
    let began = Instant::now();
    loop {
        wake(from, "ping").await;
        if listener.woken(Duration::from_millis(100)).await {
            return;
        }
        assert!(began.elapsed() < PATIENCE, "the nodes never heard of each other");
    }
}

pub(crate) async fn forget(listener: &mut Listener) {
    while listener.woken(Duration::ZERO).await {}
}

#[test]
fn a_commit_on_one_node_wakes_the_others() {
    on_postgres(async |place| {
        let (a, b) = (place.open().await, place.open().await);
        let (mut here, mut there, mut other) =
            (a.listen(topic("work")), b.listen(topic("work")), b.listen(topic("other")));
        until_linked(&a, &b).await;
        until_linked(&b, &a).await;
        for listener in [&mut here, &mut there, &mut other] {
            forget(listener).await;
        }
        let began = Instant::now();
        wake(&a, "work").await;
        assert!(there.woken(PATIENCE).await && here.woken(PATIENCE).await);
        eprintln!("a commit on one node woke the other after {:?}", began.elapsed());
        assert!(began.elapsed() < soon());
        assert!(!other.woken(QUIET).await, "it was not about this");
        assert!(!here.woken(Duration::ZERO).await, "once is enough");
    });
}

#[test]
fn a_node_whose_line_was_cut_looks_again_once_and_then_hears_as_before() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        let (a, b) = (place.open().await, line.open().await);
        let mut listener = b.listen(topic("work"));
        until_linked(&a, &b).await;
        forget(&mut listener).await;
        line.proxy.cut().await;
        wake(&a, "work").await;
        assert!(!listener.woken(QUIET).await, "nobody can have told it");
        line.proxy.heal().await;
        let began = Instant::now();
        assert!(listener.woken(PATIENCE).await, "something may have been missed");
        eprintln!("linked again after {:?}", began.elapsed());
        assert!(began.elapsed() < soon());
        assert!(!listener.woken(QUIET).await, "once");
        assert!(b.figures().wakeup_reconnects.get() >= 1);
        wake(&a, "work").await;
        assert!(listener.woken(PATIENCE).await);
    });
}

#[test]
fn what_a_node_could_not_send_is_sent_when_it_is_linked_again() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        let (a, b) = (line.open().await, place.open().await);
        let mut listener = b.listen(topic("work"));
        until_linked(&a, &b).await;
        forget(&mut listener).await;
        // The message goes out on a line that carries nothing and is then cut.
        line.proxy.half_open();
        wake(&a, "work").await;
        assert!(!listener.woken(QUIET).await);
        line.proxy.cut().await;
        line.proxy.heal().await;
        assert!(listener.woken(PATIENCE).await);
    });
}

#[test]
fn a_line_gone_silent_is_given_up() {
    on_postgres(async |place| {
        let line = Line::to(&place);
        let a = line.options().busy_timeout(Duration::from_secs(2)).open().await.unwrap();
        let b = place.open().await;
        let mut listener = b.listen(topic("work"));
        until_linked(&a, &b).await;
        forget(&mut listener).await;
        line.proxy.half_open();
        wake(&a, "work").await;
        let began = Instant::now();
        while a.figures().wakeup_reconnects.get() == 0 {
            assert!(!listener.woken(Duration::from_millis(10)).await, "the line is dead");
            assert!(began.elapsed() < PATIENCE, "the link is believed in for ever");
        }
        line.proxy.heal().await;
        assert!(listener.woken(PATIENCE).await);
    });
}

#[test]
fn a_thousand_topics_of_one_transaction_wake_all() {
    on_postgres(async |place| {
        let (a, b) = (place.open().await, place.open().await);
        let names: Vec<String> =
            (0..1_000).map(|number| format!("work:pool-{number}/of.many_topics")).collect();
        let topics: Vec<Topic> = names.iter().map(|name| topic(name)).collect();
        let mut listeners: Vec<Listener> = topics.iter().map(|topic| b.listen(topic.clone())).collect();
        until_linked(&a, &b).await;
        for listener in &mut listeners {
            forget(listener).await;
        }
        let wake_all =
            a.transact_with(topics, async |tx, topics| topics.iter().try_for_each(|topic| tx.wake(topic)));
        wake_all.await.unwrap();
        for (listener, name) in listeners.iter_mut().zip(&names) {
            assert!(listener.woken(PATIENCE).await, "{name}");
        }
    });
}

#[test]
fn a_node_that_closes_after_a_commit_has_told_the_others() {
    on_postgres(async |place| {
        let b = place.open().await;
        let mut listener = b.listen(topic("work"));
        until_linked(&place.open().await, &b).await;
        for _ in 0..5 {
            forget(&mut listener).await;
            let a = place.open().await;
            wake(&a, "work").await;
            a.close().await;
            assert!(listener.woken(PATIENCE).await);
        }
    });
}
