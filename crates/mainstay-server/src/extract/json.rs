//! The body as JSON.

use super::{body, field};
use crate::app::App;
use crate::{Answer, Problem, error};
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue};
use axum::response::{IntoResponse, Response};
use mainstay_core::json;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_ignored::Path;

/// Deepest nesting of a body.
pub const MAX_DEPTH: usize = json::MAX_DEPTH;

/// A body of JSON, taken or answered.
///
/// Taken, its media type is checked, it is read up to the size its route allows and within the time the server gives
/// it, and a field that the type does not know is refused.
#[derive(Debug, Clone)]
pub struct Json<T>(pub T);

impl<T: DeserializeOwned> FromRequest<App> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &App) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        check_media_type(&parts.headers)?;
        let bytes = body::read(body, &parts.extensions, app.options()).await?;
        parse(&bytes).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(bytes) => {
                ([(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response()
            }
            Err(error) => Problem::internal(error).into_response(),
        }
    }
}

fn check_media_type(headers: &HeaderMap) -> Answer<()> {
    let said = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let essence = said.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    let is_json =
        essence == "application/json" || (essence.starts_with("application/") && essence.ends_with("+json"));
    if is_json {
        return Ok(());
    }
    let found = if said.is_empty() { "nothing".to_owned() } else { format!("{said:?}") };
    Err(Problem::new(&error::MEDIA_TYPE_UNSUPPORTED, format!("The Content-Type says {found}.")))
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Answer<T> {
    // A payload that is kept as text is parsed by its readers only. NUL is refused where each field is checked, by name.
    json::check_readable(bytes, MAX_DEPTH).map_err(|found| {
        let problem = Problem::new(&error::BODY_INVALID, format!("The body {found}."));
        if matches!(found, json::Error::TooDeep(_)) { problem.with("maxDepth", MAX_DEPTH) } else { problem }
    })?;
    let mut unknown = None;
    let mut text = serde_json::Deserializer::from_slice(bytes);
    let mut note = |path: Path<'_>| {
        unknown.get_or_insert_with(|| written(&path));
    };
    let parsed = serde_path_to_error::deserialize(serde_ignored::Deserializer::new(&mut text, &mut note));
    let value = parsed.map_err(|error| {
        let message = error.inner().to_string();
        invalid(field::name(error.path(), &message), &message)
    })?;
    text.end().map_err(|error| invalid(None, &error.to_string()))?;
    match unknown {
        Some(field) => Err(Problem::invalid_field(&field, "is not known")),
        None => Ok(value),
    }
}

fn invalid(field: Option<String>, message: &str) -> Problem {
    match field {
        Some(field) => Problem::invalid_field(&field, message),
        None => Problem::new(&error::BODY_INVALID, message),
    }
}

/// The place of a field as the other errors write it.
fn written(path: &Path<'_>) -> String {
    match path {
        Path::Root => String::new(),
        Path::Seq { parent, index } => format!("{}[{index}]", written(parent)),
        Path::Map { parent, key } => {
            let parent = written(parent);
            if parent.is_empty() { key.clone() } else { format!("{parent}.{key}") }
        }
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => {
            written(parent)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::value::RawValue;

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Batch {
        events: Vec<Event>,
    }

    #[derive(Debug, Deserialize)]
    struct Event {
        #[serde(rename = "type")]
        kind: String,
        data: Box<RawValue>,
        version: Option<u32>,
        #[serde(default)]
        stream: Option<Stream>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Stream {
        id: String,
    }

    fn refused(text: &str) -> String {
        let problem = parse::<Batch>(text.as_bytes()).unwrap_err();
        format!("{problem:?}")
    }

    #[test]
    fn a_payload_is_kept_as_it_was_written() {
        let text =
            r#"{"events":[{"type":"A","data":{"b": 1.50, "unknown":[{}]},"version":7,"stream":{"id":"x"}}]}"#;
        let batch: Batch = parse(text.as_bytes()).unwrap();
        let event = &batch.events[0];
        assert_eq!(event.data.get(), r#"{"b": 1.50, "unknown":[{}]}"#);
        assert_eq!((event.kind.as_str(), event.version), ("A", Some(7)));
        assert_eq!(event.stream.as_ref().unwrap().id, "x");
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, field) in [
            (r#"{"events":[{"type":"A","data":1},{"type":5,"data":1}]}"#, "events[1].type"),
            (r#"{"events":[{"type":"A","data":1,"version":-1}]}"#, "events[0].version"),
            (r#"{"events":[{"type":"A","data":1,"version":99999999999}]}"#, "events[0].version"),
            (r#"{"events":[{"data":1}]}"#, "events[0].type"),
            (r#"{"events":[{"type":"A","data":1,"tpye":1}]}"#, "events[0].tpye"),
            (r#"{"events":[],"condition":{}}"#, "condition"),
            (r#"{"events":[{"type":"A","data":1,"stream":{"id":"x","key":1}}]}"#, "events[0].stream.key"),
            (r#"{"events":[],"events":[]}"#, "events"),
            (r#"{}"#, "events"),
        ] {
            let refused = refused(text);
            assert!(refused.contains(&format!("field: Some({field:?})")), "{text}: {refused}");
        }
        for text in ["", "[", "null", "{\"events\":[]} x", "{\"events\":[]", "\u{feff}{}"] {
            assert!(refused(text).contains("BODY_INVALID"), "{text}");
        }
    }

    #[test]
    fn what_a_reader_cannot_take_is_refused_also_where_it_is_kept_as_text() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        for (data, said) in [
            (nested(MAX_DEPTH), "nested deeper than 64"),
            (nested(30_000), "nested deeper than 64"),
            ("1e999".to_owned(), "no double"),
            (r#""\ud800""#.to_owned(), "surrogate"),
        ] {
            let raw = format!(r#"{{"events":[{{"type":"A","data":{data}}}]}}"#);
            assert!(refused(&raw).contains(said), "{said}");
        }
        let raw = format!(r#"{{"events":[{{"type":"A","data":{}}}]}}"#, nested(MAX_DEPTH - 3));
        assert!(parse::<Batch>(raw.as_bytes()).is_ok());
    }
}
