//! What a command causes can be traced back to it.

use super::house::{House, order};
use mainstay_core::trace::TraceContext;
use mainstay_events::Selection;
use mainstay_testkit::stores::for_each_store;
use std::time::Duration;

#[test]
fn b_257_b_258_b_260_b_261_a_trace_goes_from_the_command_to_its_events_and_work() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        let trace =
            TraceContext { trace_id: "trace-abc".into(), span_id: "span-001".into(), parent_span_id: None };
        let command =
            order("PlaceOrder", 7).trace(trace).correlation("corr-123").causation("evt-1").id("cmd-1");
        house.dispatcher.dispatch(command).await.unwrap();
        let page = house.log.read(&Selection::all().correlated("corr-123"), 10).await.unwrap();
        let event = page.events[0].trace().unwrap();
        assert_eq!(event.trace_id, "trace-abc");
        assert_eq!(page.events[0].causation_id(), Some("cmd-1"));
        let kept = house.texts("SELECT command FROM mainstay_commands").await;
        let kept: serde_json::Value = serde_json::from_str(&kept[0]).unwrap();
        assert_eq!(kept["trace"]["traceId"], "trace-abc");
        assert_eq!(kept["trace"]["parentSpanId"], "span-001");
        assert_eq!(event.parent_span_id.as_deref(), kept["trace"]["spanId"].as_str());
        assert_eq!(kept["causationId"], "evt-1");
        let engine = house.work.start().await.unwrap();
        while !house.diary.entries().contains(&"ship 7 trace-abc".to_owned()) {
            tokio::task::yield_now().await;
        }
        engine.stop(Duration::from_secs(5)).await.unwrap();
    });
}

#[test]
fn b_259_without_a_trace_one_is_begun_and_used_downstream() {
    for_each_store(async |place| {
        let house = House::open(&place).await;
        house.send("PlaceOrder", 7).await.unwrap();
        let page = house.log.read(&Selection::all(), 10).await.unwrap();
        let event = page.events[0].trace().unwrap();
        let kept = house.texts("SELECT command FROM mainstay_commands").await;
        let kept: serde_json::Value = serde_json::from_str(&kept[0]).unwrap();
        assert_eq!(kept["trace"]["traceId"], event.trace_id.as_str());
        assert_eq!(event.trace_id.len(), 32);
    });
}
