//! How one comes in, with a token or with a link that can be used once, and out again.

use super::door::{COOKIE_NAME, Way};
use super::visit::{Asked, LoginForm, Visit};
use super::{Console, LOGIN, ROOT, Sessions, page, sign_out};
use crate::{Answer, audit, error};
use axum::extract::{RawQuery, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Redirect, Response};
use maud::html;

/// What the audit calls the ways in and out.
const BY_LINK: &str = "GET /console/login";
const BY_TOKEN: &str = "POST /console/login";
const LEFT: &str = "POST /console/logout";

/// The form; or, with a link, the way in.
pub(super) async fn form(
    State(console): State<Console>,
    way: Way,
    RawQuery(query): RawQuery,
) -> Answer<Response> {
    let asked = Asked::parse(query.as_deref().unwrap_or_default());
    let to = destination(asked.get("to"));
    let Some(link) = asked.get("link") else { return Ok(ask(StatusCode::OK, &to, None)) };
    let sessions = Sessions::new(&console.app);
    let redeemed = sessions.redeem(link).await?;
    let principal = match &redeemed {
        Some((_, token)) => console.app.tokens().principal(token).await?,
        None => None,
    };
    let (Some((secret, _)), Some(principal)) = (&redeemed, &principal) else {
        // A session of a token that was revoked meanwhile would be worthless, and nobody's.
        if let Some((secret, _)) = &redeemed {
            sessions.end(secret).await?;
        }
        console.app.figures().refused.increment();
        audit::note(&console.app, BY_LINK, None, Some(&error::UNAUTHENTICATED)).await;
        let why = "The link was used already, or is too old. Log in with a token.";
        return Ok(ask(StatusCode::UNAUTHORIZED, &to, Some(why)));
    };
    audit::note(&console.app, BY_LINK, Some(principal), None).await;
    Ok(come_in(&console, &way, secret, &to))
}

/// Lets the holder of a token in.
pub(super) async fn enter(
    State(console): State<Console>,
    way: Way,
    LoginForm(asked): LoginForm,
) -> Answer<Response> {
    let to = destination(asked.get("to"));
    let presented = asked.get("token").unwrap_or_default();
    let Some(principal) = console.app.tokens().authenticate(presented).await? else {
        console.app.figures().refused.increment();
        audit::note(&console.app, BY_TOKEN, None, Some(&error::UNAUTHENTICATED)).await;
        return Ok(ask(StatusCode::UNAUTHORIZED, &to, Some("The token is unknown, revoked or expired.")));
    };
    if principal.role.is_scoped() {
        console.app.figures().refused.increment();
        audit::note(&console.app, BY_TOKEN, Some(&principal), Some(&error::UNAUTHORIZED)).await;
        let why =
            "The token is one of a program. The console needs that of a reader, an operator or an admin.";
        return Ok(ask(StatusCode::FORBIDDEN, &to, Some(why)));
    }
    let secret = Sessions::new(&console.app).begin(principal.name()).await?;
    audit::note(&console.app, BY_TOKEN, Some(&principal), None).await;
    Ok(come_in(&console, &way, &secret, &to))
}

/// Ends the session, or every session of its token.
pub(super) async fn leave(
    State(console): State<Console>,
    visit: Visit,
    way: Way,
    asked: Asked,
) -> Answer<Response> {
    super::act::check(&visit, &asked).await?;
    match (asked.get("everywhere"), &visit.principal.token) {
        (Some(_), Some(token)) => drop(sign_out(console.app.store(), Some(token.clone())).await?),
        _ => Sessions::new(&console.app).end(&visit.session.secret).await?,
    }
    audit::note(&console.app, LEFT, Some(&visit.principal), None).await;
    let mut answer = Redirect::to(LOGIN).into_response();
    set_cookie(&way, &mut answer, "", 0);
    Ok(answer)
}

fn come_in(console: &Console, way: &Way, secret: &str, to: &str) -> Response {
    let mut answer = Redirect::to(to).into_response();
    set_cookie(way, &mut answer, secret, console.app.options().session_life.as_secs());
    answer
}

/// A link to a page of the console from elsewhere should find its reader logged in: hence Lax. What changes something is
/// no link.
fn set_cookie(way: &Way, answer: &mut Response, value: &str, seconds: u64) {
    let secure = if way.is_secret { "; Secure" } else { "" };
    let cookie =
        format!("{COOKIE_NAME}={value}; Path={ROOT}; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}");
    if let Ok(cookie) = HeaderValue::try_from(cookie) {
        answer.headers_mut().append(SET_COOKIE, cookie);
    }
}

/// Where to go afterwards: to a page of the console, whatever else was asked.
pub(super) fn destination(asked: Option<&str>) -> String {
    let is_ours = |to: &&str| {
        (*to == ROOT || to.starts_with("/console/") || to.starts_with("/console?"))
            && !to.contains(|letter: char| letter.is_control() || letter == '\\')
    };
    asked.filter(is_ours).unwrap_or(ROOT).to_owned()
}

fn ask(status: StatusCode, to: &str, why: Option<&str>) -> Response {
    let body = html! {
        main.login {
            h1 { (page::mark()) "Mainstay" }
            @if let Some(why) = why { p.notice.bad role="alert" { (why) } }
            form method="post" action=(LOGIN) {
                // For whoever keeps passwords by name.
                input type="text" name="username" value="mainstay" autocomplete="username" hidden;
                label for="token" { "Token" }
                input #token type="password" name="token" autocomplete="current-password" required autofocus;
                input type="hidden" name="to" value=(to);
                button type="submit" { "Log in" }
            }
            p.hint { "Make one with " code { "mainstay token create --role operator --name me" } "." }
        }
    };
    (status, page::bare("Log in", &body)).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_sent_elsewhere() {
        for good in ["/console", "/console/work?pool=a", "/console?x=1"] {
            assert_eq!(destination(Some(good)), good);
        }
        for bad in
            ["https://evil.example", "//evil.example", "/consolation", "/console/\r\nx: y", "/\\evil", ""]
        {
            assert_eq!(destination(Some(bad)), ROOT, "{bad}");
        }
    }
}
