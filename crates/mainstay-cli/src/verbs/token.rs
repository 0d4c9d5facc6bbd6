//! `mainstay token`: who may use the server.

use crate::arguments::Global;
use crate::deed::Deed;
use crate::reach::Reached;
use crate::remote::segment;
use crate::{Error, Result, output};
use clap::{Args, Subcommand};
use mainstay_server::tokens::{New, Token as Row};
use mainstay_server::{Created, NewToken, Role, TokenList, Tokens};
use std::time::Duration;

/// Create, list and revoke the tokens of the server
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
    /// Make a token worthless: at once at the server that does it, within a second at others
    Revoke {
        /// The id of the token, as `list` tells it
        id: String,
    },
}

/// Create a token and print its secret, which is shown this once
#[derive(Debug, Args)]
struct Create {
    /// What it is for, so that people know later
    #[arg(long)]
    name: String,
    /// What it allows: reader, operator or admin
    #[arg(long)]
    role: Role,
    /// The tenant it is confined to; without one it sees all
    #[arg(long)]
    tenant: Option<String>,
    /// When it becomes worthless, counted from now: 90s, 30m, 12h, 30d or 52w; never, when left out
    #[arg(long, value_name = "TIME", value_parser = life)]
    expires_in: Option<Duration>,
}

impl Token {
    pub(crate) async fn run(&self, global: &Global) -> Result<()> {
        match &self.verb {
            TokenVerb::Create(create) => create.run(global).await,
            TokenVerb::List => list(global).await,
            TokenVerb::Revoke { id } => revoke(id, global).await,
        }
    }
}

impl Create {
    async fn run(&self, global: &Global) -> Result<()> {
        let asked = NewToken {
            name: self.name.clone(),
            role: self.role,
            tenant: self.tenant.clone(),
            expires_in_ms: self.expires_in.map(|life| u64::try_from(life.as_millis()).unwrap_or(u64::MAX)),
        };
        let deed = Deed::new("POST /admin/tokens", &[]).with(output::json(&asked));
        let created = match global.reach().await? {
            Reached::Server(server) => deed.ask(&server)?,
            Reached::Store(store) => {
                let make = async {
                    let new = New::try_from(asked).map_err(|invalid| Error::Argument(invalid.to_string()))?;
                    Ok(Tokens::new(store.clone()).create(new).await?)
                };
                let made = deed.carry_out(&store, make).await;
                store.close().await;
                let (token, secret) = made?;
                Created { secret: secret.reveal().to_owned(), token }
            }
        };
        if global.json {
            return output::print_json(&created);
        }
        output::print(&format!("{}\n", created.secret))?;
        eprintln!("Token {} was created. Its secret, above, is not shown again.", created.token.id);
        Ok(())
    }
}

async fn list(global: &Global) -> Result<()> {
    let tokens = match global.reach().await? {
        Reached::Server(server) => {
            let mut all: TokenList = server.get("/admin/tokens")?;
            while let Some(next) = all.next.take() {
                let page: TokenList = server.get(&format!("/admin/tokens?cursor={}", segment(&next)))?;
                all.tokens.extend(page.tokens);
                all.next = page.next;
            }
            all
        }
        Reached::Store(store) => {
            let tokens = Tokens::new(store.clone()).list(None).await;
            store.close().await;
            TokenList { tokens: tokens?, next: None }
        }
    };
    match global.json {
        true => output::print_json(&tokens),
        false => output::print(&table(&tokens.tokens)),
    }
}

async fn revoke(id: &str, global: &Global) -> Result<()> {
    let deed = Deed::new("DELETE /admin/tokens/{id}", &[id]);
    let revoked: Row = match global.reach().await? {
        Reached::Server(server) => {
            check(id)?;
            deed.ask(&server)?
        }
        Reached::Store(store) => {
            let revoke = async {
                let detail = format!("There is no token {id:?}.");
                let unknown = Error::Refused { code: "TOKEN_NOT_FOUND".to_owned(), detail };
                Tokens::new(store.clone()).revoke(id, None).await?.ok_or(unknown)
            };
            let revoked = deed.carry_out(&store, revoke).await;
            store.close().await;
            revoked?
        }
    };
    if global.json {
        return output::print_json(&revoked);
    }
    eprintln!("Token {} ({}) is worthless now.", revoked.id, revoked.name);
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

fn table(tokens: &[Row]) -> String {
    let moment = |at: Option<i64>| match at.map(jiff::Timestamp::from_millisecond) {
        Some(Ok(at)) => format!("{at:.0}"),
        _ => "-".to_owned(),
    };
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
            assert!(life(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_table_has_a_line_per_token() {
        let token = Row {
            id: "0123456789abcdef".to_owned(),
            name: "ci".to_owned(),
            role: Role::Operator,
            tenant: None,
            created_at: 1_800_000_000_000,
            expires_at: Some(1_800_000_060_000),
            revoked_at: None,
            last_used_at: None,
        };
        insta::assert_snapshot!(table(&[token]), @"
            ID                NAME  ROLE      TENANT  CREATED               EXPIRES               LAST USED  REVOKED
            0123456789abcdef  ci    operator  -       2027-01-15T08:00:00Z  2027-01-15T08:01:00Z  -          -
            ");
    }
}
