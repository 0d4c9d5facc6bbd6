//! Operations as `/openapi.json` describes them, and requests made from that.

use crate::client::{Request, get, request};
use crate::everybody::{CANARY, House, SCOPE_KEY, operations};
use crate::matrix::hostile::encoded;
use mainstay_server::Role;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// An operation, and what it takes.
pub(super) struct Described {
    pub(super) id: String,
    pub(super) method: String,
    path: String,
    pub(super) permission: String,
    /// The scoped role that is let in too.
    pub(super) scoped: Option<Role>,
    statuses: Vec<String>,
    /// Values of the parameters in its path.
    values: BTreeMap<String, String>,
    /// Parameters of its query.
    pub(super) query: Vec<String>,
    /// A valid body, if it takes one.
    pub(super) body: Option<Value>,
    /// Every field of its body, as a pointer, with a body in which the field is there.
    pub(super) fields: Vec<(String, Value)>,
}

impl Described {
    /// The parameters in its path.
    pub(super) fn path_parameters(&self) -> Vec<String> {
        self.values.keys().cloned().collect()
    }

    pub(super) fn value(&self, parameter: &str) -> &str {
        &self.values[parameter]
    }

    /// The request that names what is there and has a valid body.
    pub(super) fn valid(&self) -> Request {
        self.made(&self.values, "", self.body.as_ref().map(Value::to_string))
    }

    pub(super) fn with_path(&self, parameter: &str, text: &str) -> Request {
        let mut values = self.values.clone();
        values.insert(parameter.to_owned(), encoded(text));
        self.made(&values, "", self.body.as_ref().map(Value::to_string))
    }

    pub(super) fn with_query(&self, parameter: &str, text: &str) -> Request {
        let query = format!("?{parameter}={}", encoded(text));
        self.made(&self.values, &query, self.body.as_ref().map(Value::to_string))
    }

    pub(super) fn with_field(&self, pointer: &str, base: &Value, value: Value) -> Request {
        let mut body = base.clone();
        *body.pointer_mut(pointer).unwrap() = value;
        self.with_body(&body.to_string())
    }

    pub(super) fn with_body(&self, body: &str) -> Request {
        self.made(&self.values, "", Some(body.to_owned()))
    }

    fn made(&self, values: &BTreeMap<String, String>, query: &str, body: Option<String>) -> Request {
        let fill =
            |path: String, (name, value): (&String, &String)| path.replace(&format!("{{{name}}}"), value);
        let path = values.iter().fold(self.path.clone(), fill) + query;
        match body {
            Some(body) => request(&self.method, &path).header("Content-Type", "application/json").body(&body),
            None if self.method == "GET" => get(&path),
            None => request(&self.method, &path),
        }
    }

    /// Whether an answer may have this status: what is not described by its number must be a problem.
    pub(super) fn describes(&self, status: u16) -> bool {
        status >= 400 || self.statuses.contains(&status.to_string())
    }
}

/// Every operation, in the order of the description.
pub(super) async fn all(house: &House) -> Vec<Described> {
    let document = get("/openapi.json").send(house.server.address).await.json();
    let mut all = Vec::new();
    for operation in operations(&house.server).await {
        let described = &document["paths"][&operation.path][operation.method.to_lowercase()];
        let values = house
            .path_values(&operation)
            .into_iter()
            .map(|(name, value)| (name.trim_matches(['{', '}']).to_owned(), encoded(value)));
        let parameters = described["parameters"].as_array().cloned().unwrap_or_default();
        let query = parameters
            .iter()
            .filter(|one| one["in"] == "query")
            .map(|one| one["name"].as_str().unwrap().to_owned());
        let schema = &described["requestBody"]["content"]["application/json"]["schema"];
        let examples = Examples { document: &document, house, operation: &operation.id };
        let body = schema.is_object().then(|| examples.whole(schema));
        let fields = body.as_ref().map(|body| examples.fields(schema, body)).unwrap_or_default();
        let mut table = house.server.table.iter();
        let route = table.find(|one| one.method.as_str() == operation.method && one.path == operation.path);
        all.push(Described {
            scoped: route.unwrap().scoped,
            statuses: described["responses"].as_object().unwrap().keys().cloned().collect(),
            values: values.collect(),
            query: query.collect(),
            body,
            fields,
            id: operation.id,
            method: operation.method,
            path: operation.path,
            permission: operation.permission,
        });
    }
    all
}

/// Values that the schemas of an operation describe.
struct Examples<'a> {
    document: &'a Value,
    house: &'a House,
    operation: &'a str,
}

impl Examples<'_> {
    fn resolved(&self, schema: &Value) -> Value {
        if let Some(reference) = schema["$ref"].as_str() {
            let found = self.document.pointer(reference.trim_start_matches('#')).unwrap();
            return self.resolved(found);
        }
        for choice in ["oneOf", "anyOf"] {
            if let Some(choices) = schema[choice].as_array() {
                let some = choices.iter().find(|one| one["type"] != "null").unwrap();
                return self.resolved(some);
            }
        }
        if let Some(parts) = schema["allOf"].as_array() {
            let mut whole = Map::new();
            for part in parts {
                merge(&mut whole, self.resolved(part));
            }
            merge(&mut whole, schema.clone());
            return Value::Object(whole);
        }
        schema.clone()
    }

    /// A valid body with nothing that is not required, by the schema or by what the schema cannot say.
    fn whole(&self, schema: &Value) -> Value {
        let mut body = self.of("", schema);
        let further = match self.operation {
            "createToken" => json!({"scope": {"pools": ["shop"], "functions": ["refuse"]}}),
            "setTimer" => json!({"afterMs": 3_600_000}),
            _ => return body,
        };
        body.as_object_mut().unwrap().extend(further.as_object().unwrap().clone());
        body
    }

    /// A valid value of the field at `pointer`, with nothing that is not required.
    fn of(&self, pointer: &str, schema: &Value) -> Value {
        let schema = self.resolved(schema);
        if let Some(known) = self.house.known(self.operation, pointer) {
            return known;
        }
        if let Some(choices) = schema["enum"].as_array() {
            return choices[0].clone();
        }
        if !schema["const"].is_null() {
            return schema["const"].clone();
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => kinds.iter().find(|kind| **kind != "null").unwrap(),
            kind => kind,
        };
        match kind.as_str() {
            Some("string") if schema["format"] == "date-time" => json!("2026-01-01T00:00:00Z"),
            Some("string") => json!("x"),
            Some("integer" | "number") => {
                if schema["minimum"].is_number() {
                    schema["minimum"].clone()
                } else {
                    json!(1)
                }
            }
            Some("boolean") => json!(false),
            Some("array") => json!([self.of(&format!("{pointer}/0"), &schema["items"])]),
            Some("object") => {
                let required = schema["required"].as_array().cloned().unwrap_or_default();
                let names = required.iter().map(|name| name.as_str().unwrap());
                let member = |name: &str| {
                    (name.to_owned(), self.of(&format!("{pointer}/{name}"), &schema["properties"][name]))
                };
                names.map(member).collect::<Map<_, _>>().into()
            }
            _ => json!({}),
        }
    }

    /// Every field down to the third level, each with a body in which it is there. Items of a list are of the list's level.
    fn fields(&self, schema: &Value, base: &Value) -> Vec<(String, Value)> {
        let (mut found, mut ahead) = (Vec::new(), vec![(String::new(), schema.clone(), base.clone(), 0)]);
        while let Some((pointer, schema, base, depth)) = ahead.pop() {
            let schema = self.resolved(&schema);
            let (members, is_list) = match schema["properties"].as_object() {
                Some(members) => (members.clone(), false),
                None if schema["items"].is_object() => {
                    (Map::from_iter([("0".to_owned(), schema["items"].clone())]), true)
                }
                None => continue,
            };
            for (name, member) in members {
                let inner = format!("{pointer}/{name}");
                let mut body = base.clone();
                let parent = body.pointer_mut(&pointer).unwrap();
                if is_list {
                    *parent = json!([self.of(&inner, &member)]);
                } else if let Some(parent) = parent.as_object_mut() {
                    parent.entry(name.clone()).or_insert_with(|| self.of(&inner, &member));
                } else {
                    continue;
                }
                found.push((inner.clone(), body.clone()));
                if is_list || depth < 2 {
                    ahead.push((inner, member, body, depth + usize::from(!is_list)));
                }
            }
        }
        found
    }
}

fn merge(whole: &mut Map<String, Value>, part: Value) {
    let Value::Object(part) = part else { return };
    for (key, value) in part {
        match (whole.get_mut(&key), value) {
            (Some(Value::Object(known)), Value::Object(more)) => known.extend(more),
            (Some(Value::Array(known)), Value::Array(more)) => known.extend(more),
            (_, value) => drop(whole.insert(key, value)),
        }
    }
}

impl House {
    /// A value for a field of an operation that names what exists: of the deployment, or of the other tenant.
    fn known(&self, operation: &str, pointer: &str) -> Option<Value> {
        Some(match (operation, pointer.rsplit('/').next().unwrap()) {
            ("appendEvents", "type") if pointer.ends_with("/stream/type") => json!("order"),
            ("appendEvents", "id") => json!(CANARY),
            ("appendEvents", "type") => json!("OrderSubmitted"),
            ("appendEvents", "idempotencyKey") => json!(CANARY),
            ("appendEvents" | "recordIntent" | "dispatchCommand", "causationId" | "eventId") => {
                json!(self.id("eventId"))
            }
            (_, "key") if pointer.ends_with("/scope/key") => json!(SCOPE_KEY),
            ("recordIntent", "operationType") => json!("Submission"),
            ("recordIntent", "streamType") => json!("Order"),
            ("createToken", "role") => json!("worker"),
            (_, "streamId" | "correlationId" | "key" | "commandId") => json!(CANARY),
            (_, "tenant" | "tenantId") => json!("globex"),
            (_, "lease") => json!(self.id("lease")),
            (_, "pool") => json!("shop"),
            (_, "function") => json!("refuse"),
            (_, "functions") => json!(["refuse"]),
            (_, "eventId") => json!(self.id("eventId")),
            (_, "schedule") => json!({"everyMs": 3_600_000}),
            (_, "sourceContext") => json!("orders"),
            (_, "targetContexts") => json!(["inventory"]),
            (_, "commandType") => json!("Place"),
            (_, "payload" | "reason") => json!(CANARY),
            (_, "cron") => json!("0 2 * * *"),
            (_, "code") => json!("STORE_BUSY"),
            (_, "period") => json!("1s"),
            // A worker that waits for work waits as long as it may.
            (_, "waitMs") => json!(0),
            _ => return None,
        })
    }
}
