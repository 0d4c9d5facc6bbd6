//! A new secret in place of one that goes on working for a while, so that programs can change over one by one.

use super::{Lives, New, Secret, Token, Tokens, TooMany, table};
use mainstay_store::{Error, Result, Tx, params};
use std::time::Duration;

/// Time for which the old secret goes on working, unless the caller chooses another: a day.
pub const USUAL_OVERLAP: Duration = Duration::from_secs(24 * 60 * 60);
/// Longest time for which two secrets work: 30 days.
pub const MAX_OVERLAP: Duration = Duration::from_secs(30 * 24 * 60 * 60);
/// Most secrets of one token that work at a time. Rotations are not counted among the tokens of a tenant; this is their bound.
pub(super) const MAX_SECRETS: i64 = 3;

/// Lets a token end after the overlap, unless it ends before. Of two rotations at once, one finds it rotated.
const HAND_OVER: &str = "UPDATE mainstay_tokens SET rotated_to = $2, \
    expires_at = CASE WHEN expires_at < mainstay_now() + CAST($3 AS BIGINT) THEN expires_at \
        ELSE mainstay_now() + CAST($3 AS BIGINT) END \
    WHERE id = $1 AND rotated_to IS NULL AND revoked_at IS NULL AND console_only = 0 \
        AND (expires_at IS NULL OR expires_at > mainstay_now())";

/// The line of a token.
const LINE: &str = "SELECT coalesce(line, id) FROM mainstay_tokens WHERE id = $1";
/// Tokens of a line that are valid.
const COUNT_IN_LINE: &str = "SELECT count(*) FROM mainstay_tokens WHERE (line = $1 OR id = $1) \
    AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > mainstay_now())";

/// Outcome of a rotation.
#[derive(Debug)]
pub enum Rotation {
    /// The new token with its secret, and the old one as it is now.
    Done(Box<Handover>),
    /// There is no token with this id, or none of this tenant.
    Unknown,
    /// The token was revoked, has expired, or is that of the console; or it was rotated before, to this one.
    Spent(Option<String>),
}

/// A token that takes the place of another one.
#[derive(Debug)]
pub struct Handover {
    /// The new token.
    pub token: Token,
    /// Its secret, told this once.
    pub secret: Secret,
    /// The old token.
    pub replaces: Token,
}

impl Tokens {
    /// Makes a token with the same name, role, scope, tenant and length of life as another one, which ends after `overlap`.
    pub async fn rotate(
        &self,
        id: &str,
        tenant: Option<&str>,
        overlap: Duration,
        lives: &Lives,
    ) -> Result<Rotation> {
        let secret = Secret::generate()?;
        let asked = Asked {
            id: id.to_owned(),
            tenant: tenant.map(str::to_owned),
            overlap_ms: millis(overlap.min(MAX_OVERLAP)),
            most_ms: lives.most.map(millis),
            new_id: secret.id().to_owned(),
            hash: secret.hash(),
        };
        let outcome = self.store.transact_with(asked, async |tx, asked| rotate(&tx, &asked).await).await;
        // Also when the outcome is unknown: looking again costs a read.
        self.cache.forget(id);
        Ok(match outcome? {
            Outcome::Done(tokens) => {
                let [token, replaces] = *tokens;
                Rotation::Done(Box::new(Handover { token, secret, replaces }))
            }
            Outcome::Unknown => Rotation::Unknown,
            Outcome::Spent(successor) => Rotation::Spent(successor),
        })
    }
}

#[derive(Clone)]
struct Asked {
    id: String,
    tenant: Option<String>,
    overlap_ms: i64,
    most_ms: Option<i64>,
    new_id: String,
    hash: String,
}

enum Outcome {
    /// The new token and the old one.
    Done(Box<[Token; 2]>),
    Unknown,
    Spent(Option<String>),
}

async fn rotate(tx: &Tx, asked: &Asked) -> Result<Outcome> {
    let tenant = asked.tenant.as_deref();
    let Some(old) = table::get(tx, &asked.id, tenant).await? else { return Ok(Outcome::Unknown) };
    if tx.execute(HAND_OVER, params![&asked.id, &asked.new_id, asked.overlap_ms]).await? == 0 {
        return Ok(Outcome::Spent(old.rotated_to));
    }
    // Without an overlap, the old secret has just ended: such a rotation is never refused.
    let line: String = tx.query_one(LINE, params![&asked.id]).await?.get(0)?;
    if tx.query_one(COUNT_IN_LINE, params![&line]).await?.get::<i64>(0)? >= MAX_SECRETS {
        return Err(Error::application(TooMany::InLine));
    }
    let life_ms = old.expires_at.map(|end| end - old.created_at);
    let new = New {
        name: old.name,
        role: old.role,
        tenant: old.tenant,
        expires_in_ms: life_ms.into_iter().chain(asked.most_ms).min(),
        scope: old.scope.unwrap_or_default(),
    };
    let token = table::insert(tx, &asked.new_id, &asked.hash, &new, Some(&line)).await?;
    let gone = || Error::application("a token is gone that was changed a moment ago");
    let replaces = table::get(tx, &asked.id, tenant).await?.ok_or_else(gone)?;
    Ok(Outcome::Done(Box::new([token, replaces])))
}

fn millis(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}
