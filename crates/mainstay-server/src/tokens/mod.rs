//! Tokens: who may ask the server for what.
//!
//! - [`new`](New): what a token is made from
//! - `secret`: the text that its holder keeps; only a hash of it is stored
//! - `table`: the rows, `mainstay_tokens`; nobody else touches them
//! - `rotate`: a new secret in place of one that is still used for a while
//! - `cache`: what was looked up a moment ago
//!
//! Times are judged by the database's clock. Rows are never deleted: a store that once had tokens never falls back to
//! being open to all.

mod cache;
mod new;
mod rotate;
mod secret;
mod table;

pub use new::{Invalid, Lives, MAX_NAME_BYTES, MAX_TENANT_BYTES, New, USUAL_LIFE};
pub use rotate::{Handover, MAX_OVERLAP, Rotation, USUAL_OVERLAP};
pub use secret::Secret;
pub(crate) use secret::{hex, without_secrets};
pub(crate) use table::TooMany;
pub use table::{After, COMPONENT, Token};

use crate::access::{Principal, Role, Scope};
use cache::{Cache, Known};
use mainstay_store::{Result, Store, Tx};
use std::sync::Arc;

/// The tokens of a store. Clones share what they know.
#[derive(Clone)]
pub struct Tokens {
    store: Store,
    cache: Arc<Cache>,
}

impl Tokens {
    /// The tokens of `store`, which was opened with [`COMPONENT`].
    pub fn new(store: Store) -> Self {
        Self { store, cache: Arc::default() }
    }

    /// Makes a token, unless its tenant has as many as it may. Its secret is told this once and never again.
    pub async fn create(&self, new: New) -> Result<(Token, Secret)> {
        let secret = Secret::generate()?;
        let stored = (secret.id().to_owned(), secret.hash(), new);
        let token = self
            .store
            .transact_with(stored, async |tx, (id, hash, new)| table::create(&tx, &id, &hash, &new).await)
            .await?;
        self.cache.exist();
        Ok((token, secret))
    }

    /// The id of an admin's token that is for the console alone, made if there is none: for who stands at the machine
    /// before anybody made a token. Nobody is told its text, and it closes nothing that was open without it.
    pub(crate) async fn console(&self) -> Result<String> {
        let secret = Secret::generate()?;
        let new =
            New::named("console", Role::Admin).map_err(mainstay_store::Error::application)?.never_expires();
        let stored = (secret.id().to_owned(), secret.hash(), new);
        let found = async |tx: Tx, (id, hash, new): (String, String, New)| {
            table::console(&tx, &id, &hash, &new).await
        };
        self.store.transact_with(stored, found).await
    }

    /// Who the holder of a token is, if it is valid now.
    pub(crate) async fn principal(&self, id: &str) -> Result<Option<Principal>> {
        let known = match self.cache.get(id) {
            Some(known) => known,
            None => self.look_up(id).await?,
        };
        Ok(known.filter(|known| known.is_valid).map(|known| known.principal(id)))
    }

    /// The token of this id, if there is one and it is one of this tenant.
    pub async fn get(&self, id: &str, tenant: Option<&str>) -> Result<Option<Token>> {
        let which = (id.to_owned(), tenant.map(str::to_owned));
        let read = async |tx: Tx, (id, tenant): (String, Option<String>)| {
            table::get(&tx, &id, tenant.as_deref()).await
        };
        self.store.read_with(which, read).await
    }

    /// Every token, oldest first; those of one tenant when it is named.
    pub async fn list(&self, tenant: Option<&str>) -> Result<Vec<Token>> {
        self.page(tenant, After::default(), usize::MAX).await
    }

    /// A page of these.
    pub async fn page(&self, tenant: Option<&str>, after: After, limit: usize) -> Result<Vec<Token>> {
        let asked = (tenant.map(str::to_owned), after, limit);
        let read = async |tx: Tx, (tenant, after, limit): (Option<String>, After, usize)| {
            table::list(&tx, tenant.as_deref(), &after, limit).await
        };
        self.store.read_with(asked, read).await
    }

    /// Makes a token worthless: here at once, on other nodes within a second. Revoking again changes nothing. `None`
    /// when there is none with this id, or none of this tenant.
    pub async fn revoke(&self, id: &str, tenant: Option<&str>) -> Result<Option<Token>> {
        let which = (id.to_owned(), tenant.map(str::to_owned));
        let revoked = self
            .store
            .transact_with(which, async |tx, (id, tenant)| table::revoke(&tx, &id, tenant.as_deref()).await)
            .await;
        // Also when the outcome is unknown: looking again costs a read.
        self.cache.forget(id);
        revoked
    }

    /// Makes every token worthless that is not worthless yet, and says how many. A store that was restored from a backup must not
    /// revive tokens that were revoked after the backup.
    pub async fn revoke_all(&self) -> Result<u64> {
        let revoked = self.store.transact(async |tx| table::revoke_all(&tx).await).await;
        self.cache.forget_all();
        revoked
    }

    /// Whether there is a token, or ever was.
    pub async fn exist(&self) -> Result<bool> {
        if let Some(exist) = self.cache.do_exist() {
            return Ok(exist);
        }
        let asked = cache::now();
        let exist = self.store.read(async |tx| table::exist(&tx).await).await?;
        self.cache.looked(exist, asked);
        Ok(exist)
    }

    /// Who presents this text, if it is a token that is valid now.
    pub async fn authenticate(&self, presented: &str) -> Result<Option<Principal>> {
        let Some(secret) = Secret::parse(presented) else { return Ok(None) };
        let known = match self.cache.get(secret.id()) {
            Some(known) => known,
            None => self.look_up(secret.id()).await?,
        };
        let Some(known) = known.filter(|known| secret.is_hashed_as(&known.hash)) else { return Ok(None) };
        if !known.is_valid {
            return Ok(None);
        }
        Ok(Some(known.principal(secret.id())))
    }

    /// Whether somebody who was let in would be let in now: its token is still valid or, without one, still not needed.
    pub async fn is_still_valid(&self, principal: &Principal) -> Result<bool> {
        if principal.user.is_some() {
            return Ok(true);
        }
        let Some(id) = &principal.token else { return self.exist().await.map(|exist| !exist) };
        Ok(self.principal(id).await?.is_some())
    }

    async fn look_up(&self, id: &str) -> Result<Option<Known>> {
        let (asked, generation) = (cache::now(), self.cache.generation());
        let found = self.store.read_with(id.to_owned(), async |tx, id| table::find(&tx, &id).await).await?;
        let known = found.map(|found| {
            if found.is_valid() && found.is_use_stale() {
                self.note_use(id.to_owned());
            }
            let is_valid = found.is_valid();
            let Found { hash, role, tenant, scope, .. } = found;
            Known { is_valid, hash, role, tenant, scope: scope.map(Arc::new) }
        });
        self.cache.put(id, known.clone(), asked, generation);
        Ok(known)
    }

    /// Writes down that a token was used, without making its user wait. If that fails, the next use is written down.
    fn note_use(&self, id: String) {
        let store = self.store.clone();
        tokio::spawn(async move {
            let noted = store.transact_with(id, async |tx, id| table::note_use(&tx, &id).await).await;
            if let Err(error) = noted {
                tracing::debug!(%error, "the use of a token was not written down");
            }
        });
    }
}

impl Known {
    fn principal(self, id: &str) -> Principal {
        let Self { role, tenant, scope, .. } = self;
        Principal { role, tenant, token: Some(id.to_owned()), user: None, scope }
    }
}

/// What was read of a token to judge it.
struct Found {
    hash: String,
    role: Role,
    tenant: Option<String>,
    scope: Option<Scope>,
    expires_at: Option<i64>,
    revoked_at: Option<i64>,
    last_used_at: Option<i64>,
    /// The database's time of the reading.
    now: i64,
}

impl Found {
    fn is_valid(&self) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|expires_at| self.now < expires_at)
    }

    fn is_use_stale(&self) -> bool {
        self.last_used_at.is_none_or(|used| self.now - used >= table::USE_NOTED_EVERY_MS)
    }
}
