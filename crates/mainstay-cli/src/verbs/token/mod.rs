//! `mainstay token`: who may use the server.
//!
//! - `make`: `create` and `rotate`, which tell a secret

mod make;

use crate::arguments::Global;
use crate::client::{Call, Client};
use crate::services::Opening::Anew;
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use mainstay_server::tokens::Token as Row;
use mainstay_server::{SignedOut, TokenList};
use make::{Create, Rotate};
use std::time::Duration;

/// Create, list, rotate and revoke the tokens of the server
///
/// Works on the store, or through the server that holds it; that needs a token of an admin (MAINSTAY_TOKEN or --token).
/// The first token is therefore created while no server runs on a SQLite file.
#[derive(Debug, Args)]
#[command(subcommand_value_name = "VERB", subcommand_help_heading = "Verbs")]
pub(crate) struct Token {
    #[command(subcommand)]
    verb: TokenVerb,
}

#[derive(Debug, Subcommand)]
enum TokenVerb {
    Create(Create),
    /// List the tokens, those that are worthless too
    List,
    Rotate(Rotate),
    /// End every session of the console that stands for a token, or all sessions; the tokens live on
    SignOut {
        /// The id of the token, as `list` tells it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// All sessions of all tokens
        #[arg(long)]
        all: bool,
    },
    /// Make a token worthless: at once at the server that does it, within a second at others
    Revoke {
        /// The id of the token, as `list` tells it
        id: String,
    },
}

impl Token {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        match &self.verb {
            TokenVerb::Create(create) => create.run(global).await,
            TokenVerb::List => list(global).await,
            TokenVerb::Rotate(rotate) => rotate.run(global).await,
            TokenVerb::SignOut { id, .. } => end_sessions(id.as_deref(), global).await,
            TokenVerb::Revoke { id } => revoke(id, global).await,
        }
    }
}

async fn list(global: &Global) -> Result<()> {
    let list = async |client: &Client| {
        let page = |cursor: Option<String>| {
            client.send::<TokenList>(Call::new("GET /admin/tokens", &[]).query("cursor", cursor))
        };
        let mut all = page(None).await?;
        while let Some(next) = all.next.take() {
            let page = page(Some(next)).await?;
            all.tokens.extend(page.tokens);
            all.next = page.next;
        }
        Ok(all)
    };
    let tokens = global.ask(Anew, list).await?;
    match global.json {
        true => output::print_json(&tokens),
        false => output::print(&table(&tokens.tokens)),
    }
}

async fn revoke(id: &str, global: &Global) -> Result<()> {
    check(id)?;
    let call = Call::new("DELETE /admin/tokens/{id}", &[id]);
    let revoked: Row = global.send(Anew, call).await?;
    if global.json {
        return output::print_json(&revoked);
    }
    eprintln!("Token {} ({}) is worthless now.", revoked.id, revoked.name);
    Ok(())
}

async fn end_sessions(id: Option<&str>, global: &Global) -> Result<()> {
    id.map_or(Ok(()), check)?;
    let call = match id {
        Some(id) => Call::new("POST /admin/tokens/{id}/sign-out", &[id]),
        None => Call::new("DELETE /admin/sessions", &[]),
    };
    let told: SignedOut = global.send(Anew, call).await?;
    if global.json {
        return output::print_json(&told);
    }
    eprintln!("Sessions and links into the console that were ended: {}.", told.ended);
    Ok(())
}

/// Refuses what is no id of any token.
fn check(id: &str) -> Result<()> {
    let is_plain = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_alphanumeric());
    match is_plain {
        true => Ok(()),
        false => {
            Err(Error::Argument(format!("{id:?} is not the id of a token; `mainstay token list` tells them")))
        }
    }
}

/// A moment as people read it.
fn moment(at: Option<i64>) -> String {
    match at.map(jiff::Timestamp::from_millisecond) {
        Some(Ok(at)) => format!("{at:.0}"),
        _ => "-".to_owned(),
    }
}

fn table(tokens: &[Row]) -> String {
    let row = |token: &Row| {
        [
            token.id.clone(),
            token.name.clone(),
            token.role.name().to_owned(),
            token.tenant.clone().unwrap_or("-".to_owned()),
            moment(Some(token.created_at)),
            moment(token.expires_at),
            moment(token.last_used_at),
            moment(token.revoked_at),
        ]
    };
    let rows: Vec<_> = tokens.iter().map(row).collect();
    output::table(["ID", "NAME", "ROLE", "TENANT", "CREATED", "EXPIRES", "LAST USED", "REVOKED"], &rows)
}

/// A time as people write it: a whole number and a unit.
pub(super) fn life(text: &str) -> std::result::Result<Duration, String> {
    let wrong = || format!("{text:?} is not a time such as 90s, 30m, 12h, 30d or 52w");
    let digits = text.trim_end_matches(|letter: char| !letter.is_ascii_digit());
    let unit = match &text[digits.len()..] {
        "s" => 1,
        "m" => 60,
        "h" => 60 * 60,
        "d" => 24 * 60 * 60,
        "w" => 7 * 24 * 60 * 60,
        _ => return Err(wrong()),
    };
    let count: u64 = digits.parse().map_err(|_| wrong())?;
    count.checked_mul(unit).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_a_number_and_a_unit() {
        assert_eq!(life("30d"), Ok(Duration::from_secs(2_592_000)));
        assert_eq!(life("90s"), Ok(Duration::from_secs(90)));
        for bad in
            ["", "30", "d", "-1d", "1.5h", "30 d", "1y", "99999999999999999999w", "9999999999999999999w", "ü"]
        {
            assert!(life(bad).is_err() && make::expiry(bad).is_err(), "{bad}");
        }
        assert_eq!(make::expiry("never"), Ok(make::Expiry::Never));
        assert_eq!(make::expiry("90s"), Ok(make::Expiry::After(Duration::from_secs(90))));
    }

    #[test]
    fn the_table_has_a_line_per_token() {
        let token = Row {
            id: "0123456789abcdef".to_owned(),
            name: "ci".to_owned(),
            role: mainstay_server::Role::Operator,
            tenant: None,
            created_at: 1_800_000_000_000,
            expires_at: Some(1_800_000_060_000),
            revoked_at: None,
            last_used_at: None,
            scope: None,
            rotated_to: None,
        };
        insta::assert_snapshot!(table(&[token]), @"
            ID                NAME  ROLE      TENANT  CREATED               EXPIRES               LAST USED  REVOKED
            0123456789abcdef  ci    operator  -       2027-01-15T08:00:00Z  2027-01-15T08:01:00Z  -          -
            ");
    }
}
