use super::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::{Receiver, channel};
use std::time::SystemTime;

/// A request that a collector got: its path, headers and body.
type Got = (String, String, Value);

/// A collector on this machine that answers what it is told to, in turn, and then always with the last of it.
fn collector(answers: &'static [u16]) -> (SocketAddr, Receiver<Got>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (sender, got) = channel();
    std::thread::spawn(move || {
        let mut number = 0;
        for stream in listener.incoming().flatten() {
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut headers) = (String::new(), String::new());
            while reader.read_line(&mut first).unwrap_or(0) > 0 {
                while !headers.ends_with("\r\n\r\n") && reader.read_line(&mut headers).unwrap() > 2 {}
                let length = headers.to_lowercase();
                let length = length.split("content-length: ").nth(1).unwrap().lines().next().unwrap();
                let mut body = vec![0; length.parse().unwrap()];
                reader.read_exact(&mut body).unwrap();
                let path = first.split(' ').nth(1).unwrap().to_owned();
                let status = answers[number.min(answers.len() - 1)];
                number += 1;
                let _ = sender.send((path, headers.clone(), serde_json::from_slice(&body).unwrap()));
                let mut stream = &stream;
                let _ = write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: 2\r\n\r\n{{}}");
                first.clear();
                headers.clear();
            }
        }
    });
    (address, got)
}

fn options(address: impl std::fmt::Display) -> Options {
    Options {
        endpoint: format!("http://{address}/"),
        headers: vec![("x-key".to_owned(), "k1".to_owned())],
        service: "shop".to_owned(),
        ratio: 1.0,
    }
}

fn ids() -> Ids {
    Ids {
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned()),
        span_id: Some("00f067aa0ba902b7".to_owned()),
        parent_span_id: Some("00f067aa0ba902b6".to_owned()),
        correlation_id: Some("corr-1".to_owned()),
    }
}

fn span(export: &Export) -> Finished {
    let fields = vec![("function", Told::Text("ship".to_owned())), ("attempt", Told::Integer(2))];
    export.begin("work", &ids(), fields).unwrap()
}

#[test]
fn a_collector_gets_spans_with_their_ids_times_and_attributes() {
    let (address, got) = collector(&[200]);
    let export = Export::start(options(address)).unwrap();
    let before = SystemTime::now();
    let mut span = span(&export);
    span.add(&ids(), vec![("outcome", Told::Text("failed".to_owned()))]);
    export.end(span);
    export.stop();
    let (path, headers, body) = got.recv().unwrap();
    assert_eq!(path, "/v1/traces");
    assert!(headers.to_lowercase().contains("x-key: k1"), "{headers}");
    assert!(headers.to_lowercase().contains("content-type: application/json"), "{headers}");
    let resource = &body["resourceSpans"][0];
    assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "shop");
    let span = &resource["scopeSpans"][0]["spans"][0];
    assert_eq!(span["traceId"], "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(
        (&span["spanId"], &span["parentSpanId"]),
        (&"00f067aa0ba902b7".into(), &"00f067aa0ba902b6".into())
    );
    assert_eq!((&span["name"], &span["kind"]), (&"work ship".into(), &5.into()));
    assert_eq!(span["status"]["code"], 2);
    let nanos = |name: &str| span[name].as_str().unwrap().parse::<u128>().unwrap();
    let unix = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos();
    let (began, ended) = (nanos("startTimeUnixNano"), nanos("endTimeUnixNano"));
    assert!(unix(before) <= began && began <= ended && ended <= unix(SystemTime::now()), "{span}");
    let attributes: Vec<String> = span["attributes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| format!("{}={}", one["key"].as_str().unwrap(), one["value"]))
        .collect();
    assert_eq!(
        attributes,
        [
            r#"mainstay.function={"stringValue":"ship"}"#,
            r#"mainstay.attempt={"intValue":"2"}"#,
            r#"mainstay.outcome={"stringValue":"failed"}"#,
            r#"mainstay.correlation_id={"stringValue":"corr-1"}"#
        ]
    );
}

#[test]
fn spans_are_sent_again_when_the_collector_is_busy_and_not_when_it_refuses() {
    let (address, got) = collector(&[503, 200]);
    let export = Export::start(options(address)).unwrap();
    export.end(span(&export));
    let (first, second) = (got.recv().unwrap().2, got.recv().unwrap().2);
    assert_eq!(first, second);
    export.stop();
    assert_eq!(export.queue.dropped(), 0);

    let (address, got) = collector(&[400]);
    let export = Export::start(options(address)).unwrap();
    export.end(span(&export));
    got.recv().unwrap();
    export.stop();
    assert_eq!((export.queue.dropped(), got.try_iter().count()), (1, 0));
}

#[test]
fn without_a_collector_spans_are_dropped_and_nobody_waits() {
    // Nobody listens where somebody just did.
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let export = Export::start(options(gone)).unwrap();
    let many = queue::MAX_WAITING + 2 * queue::BATCH;
    for _ in 0..many {
        export.end(span(&export));
    }
    export.stop();
    assert_eq!(export.queue.dropped(), many as u64);
    export.end(span(&export));
    assert_eq!(export.queue.dropped(), many as u64 + 1, "whoever is late is counted too");
}

#[test]
fn a_share_of_the_traces_is_exported_and_each_of_them_whole() {
    let sampled = |ratio: f64| {
        let random = mainstay::core::random::SeededRandom::new(7);
        let traces = (0..10_000).map(|_| mainstay::core::trace::TraceContext::root(&random));
        let spans = traces.map(|trace| {
            let ids = Ids { trace_id: Some(trace.trace_id), span_id: Some(trace.span_id), ..Ids::default() };
            Finished::begin("work", &ids, Vec::new()).unwrap()
        });
        spans.filter(|span| span.is_sampled(ratio)).count()
    };
    assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
    assert!((800..1_200).contains(&sampled(0.1)), "{}", sampled(0.1));
}

#[test]
fn ids_that_no_collector_understands_are_not_exported() {
    let named = Ids { trace_id: Some("trace-abc".to_owned()), ..ids() };
    assert_eq!(Finished::begin("work", &named, Vec::new()), None);
    let root = Ids { parent_span_id: None, ..ids() };
    assert_eq!(Finished::begin("work", &root, Vec::new()).unwrap().parent_span_id, None);
}
