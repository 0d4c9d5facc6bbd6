//! What a target sees of an event.

use super::bench::{Bench, Context, targets};
use mainstay_flows::delivery::publications::{LetterStatus, PublicEvent, Status};
use mainstay_testkit::stores::for_each_store;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[test]
fn a_translator_makes_the_public_event_and_the_row_holds_it() {
    for_each_store(async |place| {
        let (inventory, plain) = (Context::default(), Context::default());
        let translated = inventory.target("inventory").translate(|event: &PublicEvent| {
            let data: Value = serde_json::from_str(event.data.get()).map_err(|error| error.to_string())?;
            event.with("OrderPlacedIntegration", &json!({ "order": data["orderId"] }))
        });
        let bench = Bench::open(&place, targets([translated, plain.target("plain")])).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!({ "orderId": "ord-1", "margin": 7 })).await;
        bench.publish(&id, &["inventory", "plain"]).await;
        let publication = bench.until(&id, "inventory", Status::Delivered).await;
        assert_eq!(
            (publication.event_id.as_str(), publication.event_type.as_str()),
            (&*id, "OrderPlacedIntegration")
        );
        let given = &inventory.given()[0];
        assert_eq!(given.event.data.get(), r#"{"order":"ord-1"}"#);
        assert_eq!(given.event.event_type, "OrderPlacedIntegration");
        bench.until(&id, "plain", Status::Delivered).await;
        assert_eq!(plain.given()[0].event.event_type, "OrderSubmitted", "others see what they did");
    });
}

#[test]
fn a_translator_that_fails_makes_a_letter_and_affects_no_other_target() {
    for_each_store(async |place| {
        let is_broken = Arc::new(AtomicBool::new(true));
        let (first, second, third) = (Context::default(), Context::default(), Context::default());
        let broken = is_broken.clone();
        let failing = first.target("failing").translate(move |event: &PublicEvent| {
            match broken.load(Ordering::SeqCst) {
                true => Err("no such field".to_owned()),
                false => event.with("Mended", &json!(1)),
            }
        });
        let panicking = second.target("panicking").translate(|_: &PublicEvent| panic!("on purpose"));
        let large = Context::default()
            .target("large")
            .translate(|event: &PublicEvent| event.with("Large", &"x".repeat(70_000)));
        let bench = Bench::open(&place, targets([failing, panicking, large, third.target("plain")])).await;
        let _engine = bench.start().await;
        let id = bench.event("OrderSubmitted", &json!({ "orderId": "ord-1" })).await;
        bench.publish(&id, &["failing", "panicking", "large", "plain"]).await;
        bench.until(&id, "plain", Status::Delivered).await;
        for (target, reason) in [
            ("failing", "validationError: the translator of failing failed: no such field"),
            ("panicking", "validationError: the translator of panicking failed: it panicked"),
            (
                "large",
                "validationError: the translator of large failed: data: has 70002 bytes, which are more than 65536",
            ),
        ] {
            let publication = bench.publication(&id, target).await;
            assert_eq!((publication.status, publication.error.as_deref()), (Status::Failed, Some(reason)));
            assert_eq!(publication.attempt_count, 0);
            let letters = bench.letters(target).await;
            assert_eq!((letters.len(), letters[0].status), (1, LetterStatus::Pending));
            assert_eq!(letters[0].event.data.get(), r#"{"orderId":"ord-1"}"#, "the source's event is kept");
            let again = bench.publisher.retry_letter(&id, target).await.unwrap_err();
            assert_eq!(again.code(), "TRANSLATION_FAILED");
            assert_eq!(bench.letters(target).await[0].retry_count, 0, "nothing has changed");
        }
        assert!(first.given().is_empty() && second.given().is_empty());

        is_broken.store(false, Ordering::SeqCst);
        bench.publisher.retry_letter(&id, "failing").await.unwrap();
        bench.until(&id, "failing", Status::Delivered).await;
        assert_eq!(first.given()[0].event.event_type, "Mended", "the mended translator was asked");
    });
}
