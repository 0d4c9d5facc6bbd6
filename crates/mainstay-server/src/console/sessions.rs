//! Who is logged in: the table `mainstay_console_sessions`.
//!
//! A session stands for a token, which alone says what may be done: when the token is revoked, its sessions are worthless. A
//! link is the same with one use, which makes it a session. What is stored is a hash, as of tokens.

use crate::app::App;
use crate::tokens::hex;
use mainstay_store::migrations::{Component, Script, Step};
use mainstay_store::{Error, Result, Store, Tx, params};
use sha2::{Digest, Sha256};
use std::time::Duration;

/// The schema of the sessions; a store that a server stands on is opened with it.
pub(crate) static COMPONENT: Component =
    Component { name: "console", steps: &[CREATE_SESSIONS, END_IDLE_SESSIONS] };

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

/// Sessions that a program of before began, and links, have no such end.
const END_IDLE_SESSIONS: Step = Step {
    name: "end_idle_console_sessions",
    script: Script::Both(&["ALTER TABLE mainstay_console_sessions ADD COLUMN idle_until BIGINT"]),
    needs: 0,
};

/// Interval in which the last use is noted. Each note is a commit.
const USE_NOTED_EVERY_MS: i64 = 60_000;
/// Long enough to walk over to a browser.
const LINK_MS: i64 = 15 * 60 * 1_000;

const INSERT: &str = "INSERT INTO mainstay_console_sessions (hash, token_id, is_link, expires_at, idle_until) \
    VALUES ($1, $2, $3, mainstay_now() + CAST($4 AS BIGINT), mainstay_now() + CAST($5 AS BIGINT))";
const FIND: &str = "SELECT token_id, idle_until - mainstay_now() AS idle_ms FROM mainstay_console_sessions \
    WHERE hash = $1 AND is_link = $2 AND expires_at > mainstay_now() \
        AND (idle_until IS NULL OR idle_until > mainstay_now())";
const USE: &str = "UPDATE mainstay_console_sessions SET idle_until = mainstay_now() + CAST($2 AS BIGINT) \
    WHERE hash = $1 AND is_link = 0";
const REMOVE: &str = "DELETE FROM mainstay_console_sessions WHERE hash = $1";
/// A token has so many sessions at most; the newest stay.
const MOST_OF_A_TOKEN: i64 = 20;
const MAKE_ROOM: &str = "DELETE FROM mainstay_console_sessions WHERE token_id = $1 AND is_link = $2 AND hash NOT IN \
    (SELECT hash FROM mainstay_console_sessions WHERE token_id = $1 AND is_link = $2 \
     ORDER BY expires_at DESC, hash LIMIT $3)";
const PRUNE: &str = "DELETE FROM mainstay_console_sessions \
    WHERE expires_at <= mainstay_now() OR idle_until <= mainstay_now()";
const REMOVE_OF: &str =
    "DELETE FROM mainstay_console_sessions WHERE CAST($1 AS TEXT) IS NULL OR token_id = $1";

/// Ends every session of the console and every link into it: of one token, or of all. Says how many.
pub async fn sign_out(store: &Store, token: Option<String>) -> Result<u64> {
    store.transact_with(token, async |tx, token| tx.execute(REMOVE_OF, params![token]).await).await
}

/// The sessions of a store.
pub(crate) struct Sessions {
    store: Store,
    life_ms: i64,
    idle_ms: i64,
}

impl Sessions {
    pub(crate) fn new(app: &App) -> Self {
        let ms = |time: Duration| i64::try_from(time.as_millis()).unwrap_or(i64::MAX / 2);
        let options = app.options();
        let (life_ms, idle_ms) = (ms(options.session_life), ms(options.session_idle));
        Self { store: app.store().clone(), life_ms, idle_ms }
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
        let stored = (hash(&secret), token.to_owned(), self.span(is_link));
        self.store
            .transact_with(stored, async |tx, (hash, token, span)| {
                tx.execute(PRUNE, &[]).await?;
                insert(&tx, &hash, &token, &span).await
            })
            .await?;
        Ok(secret)
    }

    fn span(&self, is_link: bool) -> Span {
        match is_link {
            true => Span { is_link: 1, life_ms: LINK_MS, idle_ms: None },
            false => Span { is_link: 0, life_ms: self.life_ms, idle_ms: Some(self.idle_ms) },
        }
    }

    /// Makes a link a session: its secret and its token. `None` when the link was used, is too old, or never was.
    pub(super) async fn redeem(&self, link: &str) -> Result<Option<(String, String)>> {
        let secret = generate()?;
        let hashes = (hash(link), hash(&secret), self.span(false));
        let token = self
            .store
            .transact_with(hashes, async |tx, (link, session, span)| {
                let Some(row) = tx.query_optional(FIND, params![link.clone(), 1_i64]).await? else {
                    return Ok(None);
                };
                // Of two that use it at once, one finds it gone.
                if tx.execute(REMOVE, params![link]).await? == 0 {
                    return Ok(None);
                }
                let token: String = row.get("token_id")?;
                insert(&tx, &session, &token, &span).await?;
                Ok(Some(token))
            })
            .await?;
        Ok(token.map(|token| (secret, token)))
    }

    /// The token for which a session stands, if there is such a session. Looking does not keep it from ending idle.
    pub(super) async fn token(&self, secret: &str) -> Result<Option<String>> {
        Ok(self.find(secret).await?.map(|(token, _)| token))
    }

    /// The same for a request that its reader has made, which lets the session last on.
    pub(super) async fn used(&self, secret: &str) -> Result<Option<String>> {
        let Some((token, left_ms)) = self.find(secret).await? else { return Ok(None) };
        let step_ms = USE_NOTED_EVERY_MS.min(self.idle_ms / 4);
        if left_ms.is_none_or(|left_ms| left_ms <= self.idle_ms - step_ms) {
            let note =
                async |tx: Tx, (hash, idle_ms): (String, i64)| tx.execute(USE, params![hash, idle_ms]).await;
            self.store.transact_with((hash(secret), self.idle_ms), note).await?;
        }
        Ok(Some(token))
    }

    /// The token of a session, and the time after which the session ends unless it is used.
    async fn find(&self, secret: &str) -> Result<Option<(String, Option<i64>)>> {
        let read = async |tx: Tx, hash: String| {
            let row = tx.query_optional(FIND, params![hash, 0_i64]).await?;
            row.map(|row| Ok((row.get("token_id")?, row.get("idle_ms")?))).transpose()
        };
        self.store.read_with(hash(secret), read).await
    }

    /// Ends a session.
    pub(super) async fn end(&self, secret: &str) -> Result<()> {
        let remove = async |tx: Tx, hash: String| tx.execute(REMOVE, params![hash]).await.map(drop);
        self.store.transact_with(hash(secret), remove).await
    }
}

/// The times of a session or a link.
#[derive(Clone)]
struct Span {
    is_link: i64,
    life_ms: i64,
    idle_ms: Option<i64>,
}

async fn insert(tx: &Tx, hash: &str, token: &str, span: &Span) -> Result<()> {
    tx.execute(MAKE_ROOM, params![token, span.is_link, MOST_OF_A_TOKEN - 1]).await?;
    tx.execute(INSERT, params![hash, token, span.is_link, span.life_ms, span.idle_ms]).await.map(drop)
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

#[cfg(test)]
mod tests {
    use super::*;
    use mainstay_store::Options;

    /// Every link that is used makes a session; they are no more than those of logins.
    #[tokio::test]
    async fn links_make_no_more_sessions_than_a_token_may_have() {
        let store = crate::equipped(Options::new("sqlite::memory:")).open().await.unwrap();
        let sessions = Sessions { store: store.clone(), life_ms: 60_000, idle_ms: 60_000 };
        let mut last = None;
        for _ in 0..MOST_OF_A_TOKEN + 5 {
            let link = sessions.link("token").await.unwrap();
            last = sessions.redeem(&link).await.unwrap();
        }
        let count = async |tx: Tx| {
            tx.query_one("SELECT count(*) FROM mainstay_console_sessions", &[]).await?.get::<i64>(0)
        };
        assert_eq!(store.read(count).await.unwrap(), MOST_OF_A_TOKEN);
        let (secret, _) = last.unwrap();
        assert_eq!(sessions.token(&secret).await.unwrap().as_deref(), Some("token"), "the newest stay");
    }
}
