//! Who is logged in: the table `mainstay_console_sessions`.
//!
//! A session stands for a token, which alone says what may be done: when the token is revoked, its sessions are worthless. A
//! link is the same with one use, which makes it a session. What is stored is a hash, as of tokens.

use crate::app::App;
use crate::tokens::hex;
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Result, Store, Tx, params};
use sha2::{Digest, Sha256};

/// The schema of the sessions; a store that a server stands on is opened with it.
pub(crate) static COMPONENT: Component = Component { name: "console", steps: &[CREATE_SESSIONS] };

const CREATE_SESSIONS: Step = Step {
    name: "create_console_sessions",
    script: Script::Both(&[
        "CREATE TABLE mainstay_console_sessions (
            hash TEXT NOT NULL PRIMARY KEY,
            token_id TEXT NOT NULL,
            is_link BIGINT NOT NULL,
            expires_at BIGINT NOT NULL)",
        "CREATE INDEX mainstay_console_sessions_by_expiry ON mainstay_console_sessions (expires_at)",
    ]),
    needs: 0,
};

/// A day's work; then one logs in again.
pub(super) const SESSION_MS: i64 = 12 * 60 * 60 * 1_000;
/// Long enough to walk over to a browser.
const LINK_MS: i64 = 15 * 60 * 1_000;

const INSERT: &str = "INSERT INTO mainstay_console_sessions (hash, token_id, is_link, expires_at) \
    VALUES ($1, $2, $3, mainstay_now() + CAST($4 AS BIGINT))";
const FIND: &str = "SELECT token_id FROM mainstay_console_sessions \
    WHERE hash = $1 AND is_link = $2 AND expires_at > mainstay_now()";
const REMOVE: &str = "DELETE FROM mainstay_console_sessions WHERE hash = $1";
/// A token has so many sessions at most; the newest stay.
const MOST_OF_A_TOKEN: i64 = 20;
const MAKE_ROOM: &str = "DELETE FROM mainstay_console_sessions WHERE token_id = $1 AND is_link = $2 AND hash NOT IN \
    (SELECT hash FROM mainstay_console_sessions WHERE token_id = $1 AND is_link = $2 \
     ORDER BY expires_at DESC, hash LIMIT $3)";
const PRUNE: &str = "DELETE FROM mainstay_console_sessions WHERE expires_at <= mainstay_now()";

/// The sessions of a store.
pub(crate) struct Sessions {
    store: Store,
}

impl Sessions {
    pub(crate) fn new(app: &App) -> Self {
        Self { store: app.store().clone() }
    }

    /// A link that can be used once, for the holder of a token: the text of its secret.
    pub(crate) async fn link(&self, token: &str) -> Result<String> {
        self.make(token, true).await
    }

    /// A session for the holder of a token: the text of its secret.
    pub(super) async fn begin(&self, token: &str) -> Result<String> {
        self.make(token, false).await
    }

    async fn make(&self, token: &str, is_link: bool) -> Result<String> {
        let secret = generate()?;
        let stored = (hash(&secret), token.to_owned(), is_link);
        self.store
            .transact_with(stored, async |tx, (hash, token, is_link)| {
                tx.execute(PRUNE, &[]).await?;
                tx.execute(MAKE_ROOM, params![&token, i64::from(is_link), MOST_OF_A_TOKEN - 1]).await?;
                insert(&tx, &hash, &token, is_link).await
            })
            .await?;
        Ok(secret)
    }

    /// Makes a link a session: its secret and its token. `None` when the link was used, is too old, or never was.
    pub(super) async fn redeem(&self, link: &str) -> Result<Option<(String, String)>> {
        let secret = generate()?;
        let hashes = (hash(link), hash(&secret));
        let token = self
            .store
            .transact_with(hashes, async |tx, (link, session)| {
                let Some(row) = tx.query_optional(FIND, params![link.clone(), 1_i64]).await? else {
                    return Ok(None);
                };
                // Of two that use it at once, one finds it gone.
                if tx.execute(REMOVE, params![link]).await? == 0 {
                    return Ok(None);
                }
                let token: String = row.get("token_id")?;
                insert(&tx, &session, &token, false).await?;
                Ok(Some(token))
            })
            .await?;
        Ok(token.map(|token| (secret, token)))
    }

    /// The token for which a session stands, if there is such a session.
    pub(super) async fn token(&self, secret: &str) -> Result<Option<String>> {
        let read = async |tx: Tx, hash: String| {
            let row = tx.query_optional(FIND, params![hash, 0_i64]).await?;
            row.map(|row| row.get("token_id")).transpose()
        };
        self.store.read_with(hash(secret), read).await
    }

    /// Ends a session.
    pub(super) async fn end(&self, secret: &str) -> Result<()> {
        let remove = async |tx: Tx, hash: String| tx.execute(REMOVE, params![hash]).await.map(drop);
        self.store.transact_with(hash(secret), remove).await
    }
}

async fn insert(tx: &Tx, hash: &str, token: &str, is_link: bool) -> Result<()> {
    let life = if is_link { LINK_MS } else { SESSION_MS };
    tx.execute(INSERT, params![hash, token, i64::from(is_link), life]).await.map(drop)
}

fn generate() -> Result<String> {
    let mut random = [0; 32];
    getrandom::fill(&mut random)
        .map_err(|error| Error::application(format!("the system has no random numbers: {error}")))?;
    Ok(hex(&random))
}

fn hash(secret: &str) -> String {
    hex(&Sha256::digest(secret.as_bytes()))
}

/// What a form of this session must bring along, so that no page of elsewhere can send one.
pub(super) fn csrf(secret: &str) -> String {
    hex(&Sha256::digest(format!("form of {secret}").as_bytes()))
}
