//! The table `mainstay_tokens`.

use super::rotate::MAX_SECRETS;
use super::{Found, New};
use crate::access::{Role, Scope};
use jiff::Timestamp;
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Result, Row, Tx, params};
use serde::{Deserialize, Serialize};
use std::fmt;
use utoipa::ToSchema;

/// The schema of the tokens; a store that a server stands on is opened with it.
pub static COMPONENT: Component = Component {
    name: "tokens",
    steps: &[CREATE_TOKENS, ADD_CONSOLE_ONLY, ORDER_BY_AGE, ADD_SCOPE, ADD_SUCCESSOR, ADD_LINE],
};

const CREATE_TOKENS: Step = Step {
    name: "create_tokens",
    script: Script::Both(&["CREATE TABLE mainstay_tokens (
        id TEXT NOT NULL PRIMARY KEY,
        hash TEXT NOT NULL,
        name TEXT NOT NULL,
        role TEXT NOT NULL,
        tenant TEXT,
        created_at BIGINT NOT NULL,
        expires_at BIGINT,
        revoked_at BIGINT,
        last_used_at BIGINT)"]),
    needs: 0,
};

/// A token for the console alone: nobody holds its text, and a store that has no other is as open as before.
const ADD_CONSOLE_ONLY: Step = Step {
    name: "add_console_only",
    script: Script::Both(&["ALTER TABLE mainstay_tokens ADD COLUMN console_only BIGINT NOT NULL DEFAULT 0"]),
    needs: 0,
};

/// A page of tokens costs the same wherever it is.
const ORDER_BY_AGE: Step = Step {
    name: "order_tokens_by_age",
    script: Script::Both(&["CREATE INDEX mainstay_tokens_by_age ON mainstay_tokens (created_at, id)"]),
    needs: 0,
};

/// The scope of a worker's or a publisher's token, as JSON. A program of before does not know these roles, and refuses them.
const ADD_SCOPE: Step = Step {
    name: "add_scope",
    script: Script::Both(&["ALTER TABLE mainstay_tokens ADD COLUMN scope TEXT"]),
    needs: 0,
};

/// The token that takes the place of one that was rotated.
const ADD_SUCCESSOR: Step = Step {
    name: "add_successor",
    script: Script::Both(&["ALTER TABLE mainstay_tokens ADD COLUMN rotated_to TEXT"]),
    needs: 0,
};

/// A line: the token that a first token became by rotations, and the tokens before it. Its name is the id of the first token,
/// or null for a token that was never rotated. Of a program of before, a rotation begins a new line.
const ADD_LINE: Step = Step {
    name: "add_line",
    script: Script::Both(&[
        "ALTER TABLE mainstay_tokens ADD COLUMN line TEXT",
        "CREATE INDEX mainstay_tokens_by_line ON mainstay_tokens (line)",
        "CREATE INDEX mainstay_tokens_by_tenant ON mainstay_tokens (tenant)",
    ]),
    needs: 0,
};

/// How exactly the last use is known. Each note is a commit, and nobody asks for seconds.
pub(super) const USE_NOTED_EVERY_MS: i64 = 60_000;

const INSERT: &str = "INSERT INTO mainstay_tokens (id, hash, name, role, tenant, scope, line, created_at, expires_at) \
    VALUES ($1, $2, $3, $4, $5, $6, $7, mainstay_now(), mainstay_now() + CAST($8 AS BIGINT))";
/// Most valid tokens of a tenant.
const MOST_OF_TENANT: i64 = 1_000;
/// Most valid tokens without a tenant. Those of tenants are not among them: a tenant must not stop the deployment's admins.
const MOST: i64 = 10_000;
// A token and the tokens that it replaced count once, so that a rotation takes no room.
const COUNT: &str = "SELECT count(DISTINCT coalesce(line, id)) FROM mainstay_tokens WHERE tenant IS NULL \
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > mainstay_now())";
const COUNT_OF_TENANT: &str = "SELECT count(DISTINCT coalesce(line, id)) FROM mainstay_tokens WHERE tenant = $1 \
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > mainstay_now())";
const SELECT: &str = "SELECT id, name, role, tenant, scope, created_at, expires_at, revoked_at, last_used_at, \
    rotated_to FROM mainstay_tokens WHERE id = $1";
const SELECT_PAGE: &str = "SELECT id, name, role, tenant, scope, created_at, expires_at, revoked_at, last_used_at, \
    rotated_to FROM mainstay_tokens WHERE (created_at, id) > ($1, $2) AND (CAST($3 AS TEXT) IS NULL OR tenant = $3) \
    ORDER BY created_at, id LIMIT $4";
const SELECT_FOR_JUDGEMENT: &str = "SELECT hash, role, tenant, scope, expires_at, revoked_at, last_used_at, \
    mainstay_now() AS now FROM mainstay_tokens WHERE id = $1";
const EXISTS: &str = "SELECT EXISTS (SELECT 1 FROM mainstay_tokens WHERE console_only = 0)";
const CONFINE: &str = "UPDATE mainstay_tokens SET console_only = 1 WHERE id = $1";
const SELECT_CONSOLE: &str = "SELECT id FROM mainstay_tokens WHERE console_only = 1 AND revoked_at IS NULL \
    ORDER BY created_at, id LIMIT 1";
const REVOKE: &str =
    "UPDATE mainstay_tokens SET revoked_at = mainstay_now() WHERE id = $1 AND revoked_at IS NULL";
const REVOKE_ALL: &str = "UPDATE mainstay_tokens SET revoked_at = mainstay_now() WHERE revoked_at IS NULL";
const NOTE_USE: &str = "UPDATE mainstay_tokens SET last_used_at = mainstay_now() \
    WHERE id = $1 AND (last_used_at IS NULL OR last_used_at <= mainstay_now() - CAST($2 AS BIGINT))";

/// A token, as it may be shown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub struct Token {
    /// Names the token; no secret.
    pub id: String,
    /// What it is for.
    pub name: String,
    /// What it allows.
    pub role: Role,
    /// The tenant it is confined to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tenant: Option<String>,
    /// The names for which a token of a worker or a publisher may be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<Scope>,
    /// When it was made.
    #[serde(with = "moment")]
    #[schema(value_type = String, format = DateTime)]
    pub created_at: i64,
    /// From when on it is worthless.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub expires_at: Option<i64>,
    /// Since when it is worthless.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub revoked_at: Option<i64>,
    /// When it was used last, to the minute.
    #[serde(default, with = "moment::optional", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<String>, format = DateTime)]
    pub last_used_at: Option<i64>,
    /// The token that takes its place, once it was rotated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotated_to: Option<String>,
}

/// After which token a page begins; the default is before all of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct After {
    /// When it was made.
    pub created_at: i64,
    /// Its id.
    pub id: String,
}

impl Default for After {
    fn default() -> Self {
        Self { created_at: i64::MIN, id: String::new() }
    }
}

impl From<&Token> for After {
    fn from(token: &Token) -> Self {
        Self { created_at: token.created_at, id: token.id.clone() }
    }
}

/// As the `cursor` of a page.
impl fmt::Display for After {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "t{}.{}", self.created_at, self.id)
    }
}

impl After {
    /// What a cursor says, if it is one.
    pub fn parse(cursor: &str) -> Option<Self> {
        let (created_at, id) = cursor.strip_prefix('t')?.split_once('.')?;
        Some(Self { created_at: created_at.parse().ok()?, id: id.to_owned() })
    }
}

/// Milliseconds as people and other programs write a moment.
mod moment {
    use super::Timestamp;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn text(ms: i64) -> String {
        Timestamp::from_millisecond(ms).map_or_else(|_| format!("{ms} ms"), |time| format!("{time:.3}"))
    }

    fn read<E: serde::de::Error>(text: &str) -> Result<i64, E> {
        text.parse::<Timestamp>().map(Timestamp::as_millisecond).map_err(E::custom)
    }

    pub(super) fn serialize<S: Serializer>(ms: &i64, out: S) -> Result<S::Ok, S::Error> {
        text(*ms).serialize(out)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(input: D) -> Result<i64, D::Error> {
        read(&String::deserialize(input)?)
    }

    pub(super) mod optional {
        use super::{Deserialize, Deserializer, Serialize, Serializer, read, text};

        pub(in super::super) fn serialize<S: Serializer>(
            ms: &Option<i64>,
            out: S,
        ) -> Result<S::Ok, S::Error> {
            ms.map(text).serialize(out)
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            input: D,
        ) -> Result<Option<i64>, D::Error> {
            Option::<String>::deserialize(input)?.map(|text| read(&text)).transpose()
        }
    }
}

/// There are as many tokens as there may be.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TooMany {
    /// Of a tenant.
    #[error("the tenant has {MOST_OF_TENANT} valid tokens already")]
    OfTenant,
    /// Without a tenant.
    #[error("there are {MOST} valid tokens without a tenant already")]
    WithoutTenant,
    /// In the line of a token that is rotated.
    #[error(
        "{MAX_SECRETS} secrets of this token work already; revoke an old one, or rotate with an overlap of 0"
    )]
    InLine,
}

/// Adds a token, unless its tenant, or the deployment, has as many as it may.
pub(super) async fn create(tx: &Tx, id: &str, hash: &str, new: &New) -> Result<Token> {
    // One after another on all nodes, so that two do not pass the bound together.
    tx.lock("mainstay.tokens").await?;
    let (found, most, full) = match &new.tenant {
        Some(tenant) => {
            (tx.query_one(COUNT_OF_TENANT, params![tenant]).await?, MOST_OF_TENANT, TooMany::OfTenant)
        }
        None => (tx.query_one(COUNT, &[]).await?, MOST, TooMany::WithoutTenant),
    };
    if found.get::<i64>(0)? >= most {
        return Err(Error::application(full));
    }
    insert(tx, id, hash, new, None).await
}

/// Adds a token without counting it: one that takes the place of another token of its line, or the token of the console.
pub(super) async fn insert(tx: &Tx, id: &str, hash: &str, new: &New, line: Option<&str>) -> Result<Token> {
    let New { name, role, tenant, expires_in_ms, scope } = new;
    let scope = role.is_scoped().then(|| serde_json::to_string(scope)).transpose();
    let scope = scope.map_err(Error::application)?;
    let row = params![id, hash, name, role.name(), tenant.clone(), scope, line, *expires_in_ms];
    tx.execute(INSERT, row).await?;
    token(&tx.query_one(SELECT, params![id]).await?)
}

/// The token of the console; `id`, `hash` and `new` become it when there is none.
pub(super) async fn console(tx: &Tx, id: &str, hash: &str, new: &New) -> Result<String> {
    if let Some(row) = tx.query_optional(SELECT_CONSOLE, &[]).await? {
        return row.get("id");
    }
    insert(tx, id, hash, new, None).await?;
    tx.execute(CONFINE, params![id]).await?;
    Ok(id.to_owned())
}

/// A page of tokens, oldest first: those after one that was made then and has that id.
pub(super) async fn list(tx: &Tx, tenant: Option<&str>, after: &After, limit: usize) -> Result<Vec<Token>> {
    let After { created_at, id } = after;
    let page = params![*created_at, id, tenant, i64::try_from(limit).unwrap_or(i64::MAX)];
    tx.query(SELECT_PAGE, page).await?.iter().map(token).collect()
}

pub(super) async fn revoke(tx: &Tx, id: &str, tenant: Option<&str>) -> Result<Option<Token>> {
    if get(tx, id, tenant).await?.is_none() {
        return Ok(None);
    }
    tx.execute(REVOKE, params![id]).await?;
    get(tx, id, tenant).await
}

/// The token of this id, if it is one of this tenant.
pub(super) async fn get(tx: &Tx, id: &str, tenant: Option<&str>) -> Result<Option<Token>> {
    let found = tx.query_optional(SELECT, params![id]).await?.as_ref().map(token).transpose()?;
    Ok(found.filter(|found| tenant.is_none() || found.tenant.as_deref() == tenant))
}

pub(super) async fn revoke_all(tx: &Tx) -> Result<u64> {
    tx.execute(REVOKE_ALL, &[]).await
}

pub(super) async fn exist(tx: &Tx) -> Result<bool> {
    tx.query_one(EXISTS, &[]).await?.get(0)
}

pub(super) async fn find(tx: &Tx, id: &str) -> Result<Option<Found>> {
    let Some(row) = tx.query_optional(SELECT_FOR_JUDGEMENT, params![id]).await? else { return Ok(None) };
    Ok(Some(Found {
        hash: row.get("hash")?,
        role: role(&row)?,
        tenant: row.get("tenant")?,
        scope: scope(&row)?,
        expires_at: row.get("expires_at")?,
        revoked_at: row.get("revoked_at")?,
        last_used_at: row.get("last_used_at")?,
        now: row.get("now")?,
    }))
}

pub(super) async fn note_use(tx: &Tx, id: &str) -> Result<()> {
    tx.execute(NOTE_USE, params![id, USE_NOTED_EVERY_MS]).await.map(drop)
}

fn token(row: &Row) -> Result<Token> {
    Ok(Token {
        id: row.get("id")?,
        name: row.get("name")?,
        role: role(row)?,
        tenant: row.get("tenant")?,
        scope: scope(row)?,
        created_at: row.get("created_at")?,
        expires_at: row.get("expires_at")?,
        revoked_at: row.get("revoked_at")?,
        last_used_at: row.get("last_used_at")?,
        rotated_to: row.get("rotated_to")?,
    })
}

/// The scope of a token. A scope that this version cannot read must not become some other scope.
fn scope(row: &Row) -> Result<Option<Scope>> {
    let text: Option<&str> = row.get("scope")?;
    let wrong = |error| Error::Decode { column: "scope".to_owned(), reason: format!("{error}") };
    text.map(serde_json::from_str).transpose().map_err(wrong)
}

/// A role that this version does not know must not become some other role.
fn role(row: &Row) -> Result<Role> {
    let name: &str = row.get("role")?;
    name.parse().map_err(|_| Error::Decode { column: "role".to_owned(), reason: format!("is {name:?}") })
}
