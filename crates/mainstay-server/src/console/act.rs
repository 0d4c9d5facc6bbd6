//! What a form does: the call of the JSON API that it names.
//!
//! The fields of a form are `call` (a method and a path of the API), `back` (where to go afterwards), `said` (what to tell then),
//! `csrf`, and what the call's document is made of: `set.NAME` is a text, `number.NAME` a number. A form can do what its sender's
//! token can do, and nothing else: the call passes the same guard.

use super::login::destination;
use super::visit::{Asked, TOLD, Visit};
use crate::{Answer, Problem, audit, error};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderValue, Method};
use axum::response::{IntoResponse, Redirect, Response};
use serde_json::{Map, Number, Value};
use subtle::ConstantTimeEq;

/// What a form is called in the audit that is not let in. One that is let in is the call that it makes.
pub(super) const FORM: &str = "POST /console";
/// Browsers keep four kilobytes of a cookie, or nothing.
const MAX_TOLD_BYTES: usize = 800;
/// How long what is to be told waits for the next page.
const TOLD_SECONDS: u32 = 20;

/// Does what a form says, and goes back to where it was.
pub(super) async fn act(visit: Visit, form: Asked) -> Answer<Response> {
    check(&visit, &form).await?;
    let (method, path) = call(&form)?;
    let document = document(&form)?;
    let came = visit.api.call(method, &path, document.as_ref()).await;
    let (told, back) = match &came {
        Ok(answer) => {
            let said = form.get("said").unwrap_or("Done.");
            // A form may go on to what it has made.
            let back = form.get("onward").and_then(|onward| {
                let (template, member) = onward.split_once(" with ")?;
                Some(format!("{template}{}", answer.get(member)?.as_str()?))
            });
            (format!("ok {said}"), back.or_else(|| form.get("back").map(str::to_owned)))
        }
        Err(fault) => (format!("no {} ({})", fault.detail, fault.code), form.get("back").map(str::to_owned)),
    };
    let mut answer = Redirect::to(&destination(back.as_deref())).into_response();
    let told = escaped_within(&told, MAX_TOLD_BYTES);
    let cookie = format!("{TOLD}={told}; Path=/console; HttpOnly; SameSite=Strict; Max-Age={TOLD_SECONDS}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
    Ok(answer)
}

/// A text as a cookie can hold it, cut before what would make it longer than this.
fn escaped_within(text: &str, most: usize) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        let mut bytes = [0; 4];
        let letter: String =
            form_urlencoded::byte_serialize(letter.encode_utf8(&mut bytes).as_bytes()).collect();
        if escaped.len() + letter.len() > most {
            break;
        }
        escaped += &letter;
    }
    escaped
}

/// Refuses a form that does not come from a page of this session, and writes that down.
pub(super) async fn check(visit: &Visit, form: &Asked) -> Answer<()> {
    let brought = form.get("csrf").unwrap_or_default();
    if bool::from(brought.as_bytes().ct_eq(visit.session.csrf.as_bytes())) {
        return Ok(());
    }
    audit::note(&visit.app, FORM, Some(&visit.principal), Some(&error::ORIGIN_REFUSED)).await;
    Err(Problem::new(
        &error::ORIGIN_REFUSED,
        "The form does not come from a page of this session; load the page again.",
    ))
}

fn call(form: &Asked) -> Answer<(Method, String)> {
    let named = form.get("call").and_then(|call| call.split_once(' '));
    let known = named.and_then(|(method, path)| {
        let method = [Method::POST, Method::PUT, Method::DELETE].into_iter().find(|known| known == method)?;
        let is_api = path.starts_with("/admin/") || path.starts_with("/v1/");
        is_api.then(|| (method, path.to_owned()))
    });
    known.ok_or_else(|| Problem::invalid_field("call", "is not a call of the API that changes something"))
}

/// The document of the call; none when the form has no field for it.
fn document(form: &Asked) -> Answer<Option<Value>> {
    let mut document = Map::new();
    let mut is_there = false;
    for (name, value) in form.pairs() {
        let (name, value) = match name.split_once('.') {
            Some(("set", name)) => (name, Value::from(value)),
            Some(("number", name)) => {
                let number: Option<Number> = value.parse().ok();
                (
                    name,
                    number
                        .map(Value::Number)
                        .ok_or_else(|| Problem::invalid_field(name, "must be a number"))?,
                )
            }
            _ => continue,
        };
        is_there = true;
        // One level of nesting is what the API has.
        match name.split_once('.') {
            Some((outer, inner)) => {
                let outer = document.entry(outer).or_insert_with(|| Value::Object(Map::new()));
                if let Value::Object(outer) = outer {
                    outer.insert(inner.to_owned(), value);
                }
            }
            None => drop(document.insert(name.to_owned(), value)),
        }
    }
    // `document` says that the call takes one, also when nothing is in it.
    Ok((is_there || form.get("document").is_some()).then_some(Value::Object(document)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_fits_a_cookie_and_ends_with_a_whole_letter() {
        assert_eq!(escaped_within("no a b", 800), "no+a+b");
        for text in ["ä".repeat(1_000), "a".repeat(1_000), "€".repeat(300)] {
            let escaped = escaped_within(&text, 800);
            assert!((790..=800).contains(&escaped.len()), "{escaped}");
            let query = format!("t={escaped}");
            let (_, told) = form_urlencoded::parse(query.as_bytes()).next().unwrap();
            assert!(text.starts_with(&*told), "{told}");
        }
    }
}
