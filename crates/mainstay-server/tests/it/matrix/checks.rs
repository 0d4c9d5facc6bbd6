//! The four tests.

use crate::client::{Answer, Request};
use crate::everybody::{CANARY, House};
use crate::matrix::callers::{self, Caller};
use crate::matrix::description::{self, Described};
use crate::matrix::{hostile, rows};
use mainstay_server::Role;
use mainstay_testkit::stores::{Kind, Place, for_each_lasting_store};
use serde_json::json;

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
        while crate::client::get("/v1/events").send(house.server.address).await.status != 401 {}
        let operations = description::all(&house).await;
        house.quiet().await;
        Self { house, kind: place.kind(), operations, callers }
    }

    async fn ask(&self, caller: &Caller, request: Request) -> Answer {
        let request = caller.token.iter().fold(request, |request, token| request.token(token));
        request.send(self.house.server.address).await
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

/// Parameters that name what belongs to a tenant. Others name what is the deployment's.
const IDS: [&str; 9] =
    ["id", "eventId", "intentKey", "replayId", "correlationId", "commandId", "lease", "streamId", "key"];

/// Fields in which a caller chooses the id of what it makes.
const CHOSEN: [(&str, &str); 2] = [("appendEvents", "eventId"), ("dispatchCommand", "commandId")];

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

#[test]
fn what_is_another_tenants_is_answered_as_what_is_not_there() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let mut wrong = Vec::new();
        let mut compared = 0;
        for caller in quiet.callers.iter().filter(|caller| caller.tenant.is_some()) {
            for operation in &quiet.operations {
                let mut pairs: Vec<(String, Request, Request)> = Vec::new();
                for name in operation.path_parameters().iter().filter(|name| IDS.contains(&name.as_str())) {
                    let theirs = operation.value(name).to_owned();
                    let none = unknown(&theirs);
                    pairs.push((
                        theirs.clone(),
                        operation.with_path(name, &theirs),
                        operation.with_path(name, &none),
                    ));
                }
                for name in operation.query.iter().filter(|name| IDS.contains(&name.as_str())) {
                    let none = unknown(CANARY);
                    pairs.push((
                        CANARY.to_owned(),
                        operation.with_query(name, CANARY),
                        operation.with_query(name, &none),
                    ));
                }
                for (pointer, base) in &operation.fields {
                    let named = pointer.rsplit('/').next().unwrap();
                    let is_chosen = CHOSEN.contains(&(&*operation.id, named));
                    let theirs = base.pointer(pointer).and_then(|value| value.as_str());
                    // A text that names nothing is no id.
                    let is_id = IDS.contains(&named) && !is_chosen && theirs != Some("x");
                    if let Some(theirs) = theirs.filter(|_| is_id) {
                        let request = |id: &str| operation.with_field(pointer, base, json!(id));
                        pairs.push((theirs.to_owned(), request(theirs), request(&unknown(theirs))));
                    }
                }
                for (theirs, one, other) in pairs {
                    let (one, other) = (quiet.ask(caller, one).await, quiet.ask(caller, other).await);
                    compared += 1;
                    let told = |answer: &Answer, id: &str| (answer.status, answer.body.replace(id, "ID"));
                    if told(&one, &theirs) != told(&other, &unknown(&theirs)) {
                        wrong.push(format!(
                            "{} for {}: {one:.400?} and {other:.400?}",
                            operation.id, caller.name
                        ));
                    }
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(compared > 100, "{compared} pairs");

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
    });
}

/// Parameters and fields that hold names. `0` is an item of a list of names.
const NAMES: [&str; 11] = [
    "pool",
    "function",
    "functions",
    "name",
    "target",
    "handler",
    "onComplete",
    "action",
    "circuit",
    "projection",
    "0",
];

/// Whether a parameter or field holds a name that its caller chooses. A filter only finds what has a name already.
fn is_name(of: &str) -> bool {
    let last = of.rsplit('/').next().unwrap();
    !of.starts_with("/filter/") && NAMES.contains(&last)
}

#[test]
fn names_of_the_platform_are_refused_where_a_name_is_chosen() {
    for_each_lasting_store(async |place| {
        let quiet = Quiet::open(&place).await;
        let (mut wrong, mut tried) = (Vec::new(), 0);
        for operation in quiet.operations.iter().filter(|operation| operation.method != "GET") {
            let mut requests = Vec::new();
            for name in hostile::RESERVED {
                let in_path = operation.path_parameters().into_iter().filter(|parameter| is_name(parameter));
                requests.extend(in_path.map(|parameter| operation.with_path(&parameter, name)));
                let in_body = operation.fields.iter().filter(|(pointer, _)| is_name(pointer));
                requests
                    .extend(in_body.map(|(pointer, base)| operation.with_field(pointer, base, json!(name))));
            }
            // Callers that the route refuses have a test of their own.
            let callers = quiet.callers.iter().filter(|caller| caller.is_refused_by(operation).is_none());
            for (caller, request) in callers.flat_map(|caller| requests.iter().map(move |one| (caller, one)))
            {
                let answer = quiet.ask(caller, request.clone()).await;
                tried += 1;
                wrong.extend(complaint(operation, &answer));
                if answer.status < 400 {
                    let of = format!("{} of {}", operation.id, caller.name);
                    wrong.push(format!("{of} took it: {request:?}: {answer:.300?}"));
                }
            }
        }
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(tried > 300, "{tried} requests");
    });
}

/// Callers that send hostile values. Values of other callers are refused unread, or read in the same way.
const HOSTILE: [&str; 4] =
    ["admin", "admin of a tenant", "worker of another pool", "publisher of other types"];

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
            for (caller, request) in callers.flat_map(|caller| requests.iter().map(move |one| (caller, one)))
            {
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
