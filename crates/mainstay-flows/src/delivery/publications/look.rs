//! Looking at publications.

use super::MAX_PAGE;
use super::letters::LetterStatus;
use super::publisher::Publisher;
use super::search::{Found, Search};
use super::status::Status;
use crate::error::Result;
use mainstay_store::{Bulk, Column, Row, Tx, Value, params};
use serde::Serialize;
use std::sync::{Arc, LazyLock};

/// One event for one target, and where it stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Publication {
    /// Its id.
    pub publication_id: String,
    /// The source's event.
    pub event_id: String,
    /// The tenant of that event.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenant_id: Option<String>,
    /// What happened.
    pub event_type: String,
    /// The context it comes from.
    pub source_context: String,
    /// The context it goes to.
    pub target_context: String,
    /// What it belongs together with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// Where it stands.
    pub status: Status,
    /// What was done about its dead letter, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub letter: Option<LetterStatus>,
    /// How many attempts have ended, and count.
    pub attempt_count: u32,
    /// What the last one that failed failed with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// The item of work that delivers it, or did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub work_id: Option<String>,
    /// When it was published.
    pub created_at: i64,
    /// When it came.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivered_at: Option<i64>,
}

/// Which publications.
#[derive(Debug, Clone, Default)]
pub struct PublicationFilter {
    /// To this target.
    pub target: Option<String>,
    /// Of this status.
    pub status: Option<Status>,
    /// After the publication of this id.
    pub after: Option<String>,
}

impl PublicationFilter {
    /// How publications are found: by the index of their status, or of a target's.
    fn search(&self) -> Search {
        let mut search = Search::default();
        let target = self.target.as_ref().map(Value::from);
        let Some(status) = self.status else {
            if let Some(target) = target {
                search.other("target = ?", Some(target));
            }
            return search;
        };
        if let Some(target) = target {
            search.indexed("target = ?", Some(target));
        }
        let kept = if status == Status::Retried { Status::Pending } else { status };
        search.indexed("status = ?", Some(Value::from(kept.as_str())));
        match status {
            Status::Retried => search.other("letter IS NOT NULL", None),
            Status::Pending => search.other("letter IS NULL", None),
            _ => {}
        }
        search
    }
}

/// A page of publications.
#[derive(Debug, Clone, Default)]
pub struct PublicationPage {
    /// The publications, the oldest first.
    pub publications: Vec<Publication>,
    /// Behind which publication the next page begins; nothing when there is none.
    pub next: Option<String>,
    /// Whether the page ended before it was full, because it had looked at as many publications as a page may.
    pub is_partial: bool,
}

const COLUMNS: &str = "id, event_id, event_type, source_context, target, correlation_id, status, attempt_count, error, \
     work_id, created_at, delivered_at, letter, tenant";
const BY_EVENT: &str = "WHERE event_id = $1 ORDER BY tenant, target";
const BY_EVENT_OF: &str = "WHERE event_id = $1 AND tenant = $2 ORDER BY target";

static THESE: LazyLock<Bulk> = LazyLock::new(|| {
    let text = format!("SELECT {COLUMNS} FROM mainstay_publications WHERE id IN ({{values}})");
    Bulk::among(&text, Column::Text)
});

async fn page_of(
    tx: Tx,
    (filter, limit): (PublicationFilter, usize),
) -> mainstay_store::Result<PublicationPage> {
    let after = filter.after.as_deref().unwrap_or_default();
    let Found { ids, reached: next } = filter.search().run(&tx, after, limit).await?;
    let rows = THESE.query(&tx, &ids.iter().map(Value::from).collect::<Vec<_>>()).await?;
    let mut publications = rows.iter().map(publication).collect::<mainstay_store::Result<Vec<_>>>()?;
    publications.sort_unstable_by(|one, other| one.publication_id.cmp(&other.publication_id));
    Ok(PublicationPage { is_partial: next.is_some() && ids.len() < limit, publications, next })
}

fn publication(row: &Row) -> mainstay_store::Result<Publication> {
    let letter: Option<&str> = row.get(12)?;
    let status = Status::of(row.get(6)?, letter.is_some());
    let error: Option<String> = row.get(8)?;
    Ok(Publication {
        publication_id: row.get(0)?,
        event_id: row.get(1)?,
        tenant_id: Some(row.get::<String>(13)?).filter(|tenant| !tenant.is_empty()),
        event_type: row.get(2)?,
        source_context: row.get(3)?,
        target_context: row.get(4)?,
        correlation_id: row.get(5)?,
        status,
        letter: letter.map(LetterStatus::of),
        attempt_count: row.get(7)?,
        // What came in the end has no error, though there may be a letter that does.
        error: error.filter(|_| status != Status::Delivered),
        work_id: row.get(9)?,
        created_at: row.get(10)?,
        delivered_at: row.get(11)?,
    })
}

impl Publisher {
    /// Where the publications of an event stand, one for each target (item 171); none of an event that was not
    /// published.
    pub async fn status(&self, event_id: &str) -> Result<Vec<Publication>> {
        let read = async |tx: Tx, (tenant, event_id): (Option<Arc<str>>, String)| {
            let from = format!("SELECT {COLUMNS} FROM mainstay_publications");
            let rows = match tenant {
                Some(tenant) => {
                    tx.query(&format!("{from} {BY_EVENT_OF}"), params![event_id, &*tenant]).await?
                }
                None => tx.query(&format!("{from} {BY_EVENT}"), params![event_id]).await?,
            };
            rows.iter().map(publication).collect::<mainstay_store::Result<Vec<Publication>>>()
        };
        let which = (self.tenant.clone(), event_id.to_owned());
        let mut found = self.shared.store.read_with(which, read).await?;
        let owner = found.first().and_then(|first| first.tenant_id.clone());
        if owner.is_some() && found.iter().any(|one| one.tenant_id != owner) {
            let id = event_id.to_owned();
            return Err(mainstay_events::Error::SeveralTenants { what: "event id", id }.into());
        }
        found.retain(|one| one.tenant_id == owner);
        self.with_attempts(found).await
    }

    /// The oldest publications of a filter, however many others lie between them.
    pub async fn list(&self, filter: PublicationFilter, limit: usize) -> Result<Vec<Publication>> {
        let (mut filter, limit, mut publications) = (filter, limit.clamp(1, MAX_PAGE), Vec::new());
        loop {
            let page =
                self.shared.store.read_with((filter.clone(), limit - publications.len()), page_of).await?;
            publications.extend(page.publications);
            match page.next {
                Some(next) if publications.len() < limit => filter.after = Some(next),
                _ => return self.with_attempts(publications).await,
            }
        }
    }

    /// A page of publications, the oldest first. It looks at a bounded number of them, as a search if no index has what the filter
    /// names.
    pub async fn page(&self, filter: PublicationFilter, limit: usize) -> Result<PublicationPage> {
        let context = (filter, limit.clamp(1, MAX_PAGE));
        let store = &self.shared.store;
        let page = match context.0.search().is_search() {
            true => store.search_with(context, page_of).await?,
            false => store.read_with(context, page_of).await?,
        };
        Ok(PublicationPage { publications: self.with_attempts(page.publications).await?, ..page })
    }

    /// While a publication is under way, its item of work knows how often it was tried.
    async fn with_attempts(&self, mut publications: Vec<Publication>) -> Result<Vec<Publication>> {
        for publication in &mut publications {
            let Publication { status: Status::Pending | Status::Retried, work_id: Some(work_id), .. } =
                publication
            else {
                continue;
            };
            if let Some(item) = self.shared.work.status(work_id).await?.filter(|item| item.ended_at.is_none())
            {
                publication.attempt_count += item.attempts;
                publication.error = item.last_error.or(publication.error.take());
            }
        }
        Ok(publications)
    }
}
