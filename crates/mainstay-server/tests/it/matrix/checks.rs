//! The four tests.

use crate::client::{Answer, Request, get, post, soon};
use crate::everybody::{CANARY, House};
use crate::matrix::callers::{self, Caller};
use crate::matrix::description::{self, Described};
use crate::matrix::{hostile, rows};
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store};
use serde_json::{Map, Value, json};

/// Those that answer 503 when something is wrong, as here it is.
const PROBES: [&str; 3] = ["health", "ready", "readyz"];

/// A house without anything at work in it.
struct Quiet {
    house: House,
    kind: Kind,
    operations: Vec<Described>,
    callers: Vec<Caller>,
}

impl Quiet {
    async fn open(place: &Place) -> Self {
        let mut house = House::open(place).await;
        let callers = callers::all(&house).await;
        // That there are tokens is known here within a second.
        while get("/v1/events").send(house.server.address).await.status != 401 {}
        let operations = description::all(&house).await;
        house.quiet().await;
        Self { house, kind: place.kind(), operations, callers }
    }

    async fn ask(&self, caller: &Caller, request: Request) -> Answer {
        let request = caller.token.iter().fold(request, |request, token| request.token(token));
        request.begin(self.house.server.address).await
    }

    fn caller(&self, name: &str) -> &Caller {
        self.callers.iter().find(|caller| caller.name == name).unwrap()
    }
}

/// The mistake in an answer that no request excuses.
fn complaint(operation: &Described, answer: &Answer) -> Option<String> {
    let is_probe = PROBES.contains(&operation.id.as_str());
    let wrong = match answer.status {
        500.. if !is_probe => "failed",
        status if !operation.describes(status) => "has a status that is not described",
        400.. if is_probe => return None,
        // Refused by the parser of HTTP, before there is a route.
        400 | 431 if answer.body.is_empty() => return None,
        400.. if answer.header("content-type") != Some("application/problem+json") => {
            "is no problem document"
        }
        400.. if !answer.json()["code"].is_string() => "has no code",
        _ => return None,
    };
    Some(format!("{}: {wrong}: {answer:.600?}", operation.id))
}

/// Requests for every parameter of an operation: valid, with hostile texts, and with a reserved name.
fn of_every_kind(operation: &Described) -> Vec<Request> {
    let mut requests = vec![operation.valid()];
    let odd = ["' OR 1=1; --", hostile::RESERVED[0]];
    for text in odd {
        requests.extend(operation.path_parameters().iter().map(|name| operation.with_path(name, text)));
        requests.extend(operation.query.first().map(|name| operation.with_query(name, text)));
        let field = operation.fields.first();
        requests.extend(field.map(|(pointer, base)| operation.with_field(pointer, base, json!(text))));
    }
    requests.extend(operation.body.as_ref().map(|_| operation.with_body("{")));
    requests
}

#[test]
fn a_caller_that_is_refused_changes_nothing_whatever_it_sends() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let mut wrong = Vec::new();
        for caller in &quiet.callers {
            let before = rows::all(&quiet.house, quiet.kind).await;
            let mut refused = 0;
            for operation in &quiet.operations {
                let status = caller.is_refused_by(operation);
                let is_scoped = caller.role.is_some_and(Role::is_scoped);
                if status.is_none() && !(is_scoped && operation.permission != "public") {
                    continue;
                }
                for request in of_every_kind(operation) {
                    let answer = quiet.ask(caller, request.clone()).await;
                    refused += 1;
                    let is_refused = status.map_or(answer.status >= 400, |status| answer.status == status);
                    if !is_refused || complaint(operation, &answer).is_some() {
                        wrong.push(format!(
                            "{} for {}: {request:.300?}: {answer:.300?}",
                            operation.id, caller.name
                        ));
                    }
                }
            }
            let changed = rows::changed(&before, &rows::all(&quiet.house, quiet.kind).await);
            assert!(changed.is_empty(), "{} changed {changed:?}", caller.name);
            let may_much = matches!(caller.role, Some(Role::Operator | Role::Admin));
            assert!(refused > 100 || may_much, "{refused} requests of {}", caller.name);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
    });
}

/// Parameters and fields that name what belongs to a tenant. Others name what is the deployment's.
const IDS: [&str; 13] = [
    "id",
    "eventId",
    "intentKey",
    "replayId",
    "correlationId",
    "causationId",
    "commandId",
    "idempotencyKey",
    "lease",
    "streamId",
    "key",
    "tenant",
    "tenantId",
];

/// Fields in which a caller chooses the id of what it makes.
const CHOSEN: [(&str, &str); 2] = [("appendEvents", "eventId"), ("dispatchCommand", "commandId")];

/// Members of an answer that tell of places in the log, which all tenants share, and of what the caller itself did before.
const OF_THE_MOMENT: [&str; 5] = ["position", "head", "stream", "trace", "timeSinceIntent"];
/// Hexadecimal digits in a row that only an id or a moment of the server's own making has.
const MADE_DIGITS: usize = 12;

/// What an answer tells a caller that asked for one of two ids: its status, and what is the same for each such request.
fn told(answer: &Answer, ids: [&str; 2]) -> (u16, Value) {
    let text = ids.iter().fold(answer.body.clone(), |text, id| text.replace(id, "ID"));
    (answer.status, serde_json::from_str(&text).map(without_made).unwrap_or(Value::String(text)))
}

fn without_made(told: Value) -> Value {
    let is_made = |text: &str| {
        let runs = text.split(|letter: char| !letter.is_ascii_hexdigit());
        runs.into_iter().any(|run| run.len() >= MADE_DIGITS)
    };
    match told {
        Value::Array(items) => items.into_iter().map(without_made).collect(),
        Value::Object(members) => {
            let kept = members.into_iter().filter(|(name, _)| !OF_THE_MOMENT.contains(&name.as_str()));
            kept.map(|(name, member)| (name, without_made(member))).collect::<Map<_, _>>().into()
        }
        Value::String(text) if is_made(&text) => json!("made"),
        Value::Number(number) if is_made(&number.to_string()) => json!("made"),
        other => other,
    }
}

/// An id of the same form that names nothing.
fn unknown(id: &str) -> String {
    let mut changed = 0;
    let mut other: Vec<char> = id.chars().collect();
    for digit in other.iter_mut().rev().filter(|digit| digit.is_ascii_alphanumeric()) {
        *digit = if *digit == '7' { '8' } else { '7' };
        changed += 1;
        if changed == 4 {
            break;
        }
    }
    other.into_iter().collect()
}

/// What an operation is asked for, as pairs: an id of another tenant, and the requests with that id and with an unknown one.
fn pairs(operation: &Described) -> Vec<(String, Request, Request)> {
    let mut pairs = Vec::new();
    let is_id = |name: &str| IDS.contains(&name);
    for name in operation.path_parameters().iter().filter(|name| is_id(name)) {
        let theirs = operation.value(name).to_owned();
        let none = unknown(&theirs);
        let (one, other) = (operation.with_path(name, &theirs), operation.with_path(name, &none));
        pairs.push((theirs, one, other));
    }
    for name in operation.query.iter().filter(|name| is_id(name)) {
        let theirs = if name == "tenant" { "globex" } else { CANARY };
        let other = operation.with_query(name, &unknown(theirs));
        pairs.push((theirs.to_owned(), operation.with_query(name, theirs), other));
    }
    for (pointer, base) in &operation.fields {
        let named = pointer.rsplit('/').next().unwrap();
        if !is_id(named) || CHOSEN.contains(&(&*operation.id, named)) {
            continue;
        }
        let theirs = base.pointer(pointer).and_then(Value::as_str).unwrap();
        assert_ne!(theirs, "x", "{}: {pointer} names nothing of another tenant", operation.id);
        let request = |id: &str| operation.with_field(pointer, base, json!(id));
        pairs.push((theirs.to_owned(), request(theirs), request(&unknown(theirs))));
    }
    pairs
}

#[test]
fn what_is_another_tenants_is_answered_as_what_is_not_there() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let mut wrong = Vec::new();
        let mut compared = 0;
        // What a scope does not name is like another tenant's to a token of a worker or a publisher.
        let is_confined =
            |caller: &Caller| caller.tenant.is_some() || caller.role.is_some_and(Role::is_scoped);
        for caller in quiet.callers.iter().filter(|caller| is_confined(caller)) {
            for operation in &quiet.operations {
                for (theirs, one, other) in pairs(operation) {
                    let (one, other) = (quiet.ask(caller, one).await, quiet.ask(caller, other).await);
                    compared += 1;
                    let none = unknown(&theirs);
                    let ids = [theirs.as_str(), none.as_str()];
                    if told(&one, ids) != told(&other, ids) {
                        wrong.push(format!(
                            "{} for {}: {one:.700?} and {other:.700?}",
                            operation.id, caller.name
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(compared > 250, "{compared} pairs");

        let caller = quiet.caller("operator of a tenant");
        let chosen = |operation: &&Described| CHOSEN.iter().any(|(id, _)| *id == operation.id);
        let mut chosen_ids = 0;
        for operation in quiet.operations.iter().filter(chosen) {
            for (pointer, base) in &operation.fields {
                if CHOSEN.iter().all(|(_, field)| !pointer.ends_with(&format!("/{field}"))) {
                    continue;
                }
                let theirs = base.pointer(pointer).and_then(|value| value.as_str()).unwrap();
                let ask = |id: &str| quiet.ask(caller, operation.with_field(pointer, base, json!(id)));
                let (one, other) = (ask(theirs).await, ask(&unknown(theirs)).await);
                chosen_ids += 1;
                assert_eq!(other.status, 200, "{other:?}");
                assert_eq!(one.status, 200, "another tenant's id is taken for this one: {one:?}");
            }
        }
        assert_eq!(chosen_ids, CHOSEN.len());
        a_follower_is_told_its_own(&quiet, caller).await;
    });
}

/// Follows the log by ids of another tenant until an event of the follower's own comes, which is the last.
async fn a_follower_is_told_its_own(quiet: &Quiet, caller: &Caller) {
    let event = json!({"type": "OrderSubmitted", "data": "the last", "correlationId": CANARY, "tags": [CANARY],
        "stream": {"type": "order", "id": CANARY}});
    let append = post("/v1/events", &json!({"events": [event]}).to_string());
    let appended = quiet.ask(caller, append).await;
    assert_eq!(appended.status, 200, "{appended:?}");
    let (address, token) = (quiet.house.server.address, caller.token.as_deref().unwrap());
    for query in [
        String::new(),
        format!("?correlationId={CANARY}"),
        format!("?tag={CANARY}"),
        format!("?streamType=order&streamId={CANARY}"),
    ] {
        let request = get(&format!("/v1/events/subscribe{query}")).token(token);
        let followed = soon(request.until("the last", address)).await;
        let events: Vec<&str> = followed.lines().filter(|line| line.starts_with("data: ")).collect();
        let own = format!("\"tenantId\":\"{}\"", caller.tenant.unwrap());
        assert!(
            !events.is_empty() && events.iter().all(|event| event.contains(&own)),
            "{query}: {events:#?}"
        );
    }
}

/// Parameters and fields that hold names, or lists of names.
const NAMES: [&str; 15] = [
    "pool",
    "pools",
    "function",
    "functions",
    "name",
    "target",
    "targets",
    "targetContexts",
    "handler",
    "onComplete",
    "action",
    "circuit",
    "projection",
    "streamTypes",
    "eventTypes",
];

/// Fields that are called as if they held a name: a label for people, and a choice of two.
const NO_NAMES: [(&str, &str); 2] = [("createToken", "/name"), ("previewDeadLetterOperation", "/action")];

/// Whether a parameter or field of an operation holds a name. A filter only finds what has a name already.
fn is_name(operation: &str, of: &str) -> bool {
    let named = of.strip_suffix("/0").unwrap_or(of).rsplit('/').next().unwrap();
    !of.starts_with("/filter/") && NAMES.contains(&named) && !NO_NAMES.contains(&(operation, of))
}

/// Codes with which an operation refuses a reserved name of its parameter or field.
fn refusals(operation: &str, of: &str) -> &'static [&'static str] {
    match (operation, of) {
        // A name that only finds what has it already.
        (_, "projection")
        | ("pauseProjection" | "recoverProjection" | "resumeProjection" | "triggerReplay", "name") => {
            &["UNKNOWN_PROJECTION"]
        }
        ("pausePool" | "resumePool" | "pauseWorkPool" | "resumeWorkPool" | "deleteWorkPool", "pool") => {
            &["UNKNOWN_POOL"]
        }
        ("consumeLimits", "/limits/0/name") => &["UNKNOWN_LIMIT"],
        (limit, "name") if limit.ends_with("Limit") && limit != "putLimit" => &["UNKNOWN_LIMIT"],
        ("publishEvent", "/targetContexts/0") | ("retryPublicationLetter", "target") => &["UNKNOWN_TARGET"],
        ("ignorePublicationLetter", "target") => &["PUBLICATION_LETTER_NOT_FOUND"],
        // A pattern of names.
        ("createToken", _) => &["BODY_INVALID"],
        _ => &["NAME_RESERVED"],
    }
}

#[test]
fn names_of_the_platform_are_refused_where_a_name_is_chosen() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let (mut wrong, mut tried, mut reserved) = (Vec::new(), 0, 0);
        for operation in quiet.operations.iter().filter(|operation| operation.method != "GET") {
            let mut requests = Vec::new();
            for name in hostile::RESERVED {
                for parameter in operation.path_parameters() {
                    let request = operation.with_path(&parameter, name);
                    requests.push((parameter, request));
                }
                let texts = operation.fields.iter();
                let texts =
                    texts.filter(|(pointer, base)| base.pointer(pointer).is_some_and(Value::is_string));
                requests.extend(texts.map(|(pointer, base)| {
                    (pointer.clone(), operation.with_field(pointer, base, json!(name)))
                }));
            }
            requests.retain(|(of, _)| is_name(&operation.id, of));
            // Callers that the route refuses have a test of their own.
            let callers = quiet.callers.iter().filter(|caller| caller.is_refused_by(operation).is_none());
            for (caller, (of, request)) in
                callers.flat_map(|caller| requests.iter().map(move |one| (caller, one)))
            {
                let answer = quiet.ask(caller, request.clone()).await;
                tried += 1;
                wrong.extend(complaint(operation, &answer));
                let shown = || format!("{} of {}: {request:?}: {answer:.300?}", operation.id, caller.name);
                if answer.status < 400 {
                    wrong.push(format!("taken: {}", shown()));
                    continue;
                }
                // A tenant's token and those of programs are refused for other reasons.
                let is_confined = caller.tenant.is_some() || caller.role.is_some_and(Role::is_scoped);
                let (codes, code) = (refusals(&operation.id, of), answer.json()["code"].clone());
                if !is_confined && !codes.iter().any(|expected| code == *expected) {
                    wrong.push(format!("not {codes:?}: {}", shown()));
                }
                reserved += usize::from(code == "NAME_RESERVED");
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(tried > 300 && reserved > 100, "{tried} requests, {reserved} of a chosen name");
    });
}

/// Callers that send hostile values. Values of other callers are refused unread, or read in the same way.
const HOSTILE: [&str; 4] =
    ["admin", "admin of a tenant", "worker of another pool", "publisher of other types"];

/// Valid requests with hostile values of the headers that the operation reads.
fn with_headers(operation: &Described) -> Vec<Request> {
    let is_read = |name: &&str| match *name {
        "Idempotency-Key" => operation.method != "GET",
        "Last-Event-ID" => operation.id == "subscribeEvents",
        _ => true,
    };
    let values = hostile::header_values();
    let headers = hostile::HEADERS.into_iter().filter(is_read);
    headers.flat_map(|name| values.iter().map(move |value| operation.valid().header(name, value))).collect()
}

#[test]
fn hostile_values_are_refused_or_harmless() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let admin = quiet.caller("admin");
        let tables = rows::platform_tables(&quiet.house, quiet.kind).await;
        let (mut wrong, mut tried) = (Vec::new(), 0);
        for operation in &quiet.operations {
            let mut requests = Vec::new();
            for text in hostile::texts() {
                requests
                    .extend(operation.path_parameters().iter().map(|name| operation.with_path(name, &text)));
                requests.extend(operation.query.iter().map(|name| operation.with_query(name, &text)));
            }
            for (pointer, base) in operation.fields.iter().filter(|(pointer, _)| !pointer.ends_with("waitMs"))
            {
                let texts = hostile::texts().into_iter().map(|text| json!(text));
                let values = texts.chain(hostile::values());
                requests.extend(values.map(|value| operation.with_field(pointer, base, value)));
            }
            if operation.body.is_some() {
                requests.extend(hostile::bodies().iter().map(|body| operation.with_body(body)));
                requests.push(operation.valid().without("Content-Type").header("Content-Type", "text/plain"));
            }
            // An admin is let in everywhere; a tenant's token and those of programs take ways of their own behind the door.
            let callers = HOSTILE.map(|name| quiet.caller(name));
            let callers = callers.iter().filter(|caller| caller.is_refused_by(operation).is_none());
            // Headers are read before it matters which caller it is.
            let (headers, admin) = (with_headers(operation), [admin]);
            let asked = callers.flat_map(|caller| requests.iter().map(move |one| (caller, one)));
            let asked =
                asked.chain(admin.iter().flat_map(|admin| headers.iter().map(move |one| (admin, one))));
            for (caller, request) in asked {
                let answer = quiet.ask(caller, request.clone()).await;
                tried += 1;
                let injected = answer.header("x-injected").map(|_| "a header was injected".to_owned());
                let said = complaint(operation, &answer).or(injected);
                wrong.extend(said.map(|said| format!("{said} after {request:.400?} of {}", caller.name)));
            }
        }
        let shown = &wrong[..wrong.len().min(40)];
        assert!(wrong.is_empty(), "{} of {tried}: {shown:#?}", wrong.len());
        assert!(tried > 5_000, "{tried} requests");

        // It goes on as if nothing had been.
        let mut answered = 0;
        for operation in &quiet.operations {
            let answer = quiet.ask(admin, operation.valid()).await;
            wrong.extend(complaint(operation, &answer));
            answered += usize::from(answer.status < 300);
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(answered > 70, "only {answered} valid requests were answered");
        let after = rows::platform_tables(&quiet.house, quiet.kind).await;
        assert_eq!(after, tables, "tables of the platform came or went");
    });
}
