//! What is done about dead letters where no server runs: in the store itself.
//!
//! This program is no node then. What is done about many letters it carries out, and nothing else: what is tried again waits
//! for a server.

use super::{DeadLettersVerb, Filter, How, Page, Wanted, bar, cancelling, dealing, previewing, running};
use crate::config::{self, Config};
use crate::output::{json, masked};
use crate::verbs::progress;
use crate::{Error, Result, workshop};
use mainstay::flows::dead_letters::{
    self, Action, DeadLetters, Filter as Which, Listed, Operation, OperationStatus,
};
use mainstay::store::Store;
use mainstay::work::{self, Functions, Work};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::time::Duration;

/// Who wants it, for whoever asks later.
const ASKED_BY: &str = "local";
/// Often enough to see that it moves.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// A chunk takes milliseconds.
const PATIENCE: Duration = Duration::from_secs(30);

/// The inbox of a store that this process holds.
pub(super) struct Here {
    letters: DeadLetters,
    /// Whoever starts this carries out what is done about many letters, and nothing else.
    hands: Work,
    is_json: bool,
}

impl Here {
    pub(super) async fn open(config: &Config, store: &Store, is_json: bool) -> Result<Self> {
        let rooms = workshop::open(config, store).await?;
        let upkeep = config::dead_letters::upkeep(config);
        let (functions, letters) = dead_letters::functions(Functions::new(), upkeep);
        let hands = Work::open(store, functions).await?;
        let letters = letters.open(&rooms.work, &rooms.projections, &rooms.publications).await?;
        Ok(Self { letters, hands, is_json })
    }

    /// Does what a server would do, and answers in the same way.
    pub(super) async fn ask(&self, verb: &DeadLettersVerb) -> Result<Value> {
        let letters = &self.letters;
        match verb {
            DeadLettersVerb::List { filter, page } => self.list(filter, page).await,
            DeadLettersVerb::Show { letter_id } => Ok(masked(&letters.get(number(letter_id)?).await?)),
            DeadLettersVerb::Stats { filter } => Ok(json(&letters.stats(filter.which()?).await?)),
            DeadLettersVerb::Groups { filter, limit } => {
                Ok(json!({ "groups": letters.groups(filter.which()?, (*limit).into()).await? }))
            }
            DeadLettersVerb::Retry(wanted) => self.act(Action::Retry, wanted).await,
            DeadLettersVerb::Ignore(wanted) => self.act(Action::Ignore, wanted).await,
            DeadLettersVerb::Purge { filter, how } => self.act_on_many(Action::Purge, filter, how).await,
            DeadLettersVerb::Run { operation_id, no_wait } => self.run(operation_id, !no_wait).await,
            DeadLettersVerb::Cancel { operation_id } => {
                let cancel = async { Ok(json(&letters.cancel_by(operation_id, ASKED_BY).await?)) };
                cancelling(operation_id).carry_out(self.store(), cancel).await
            }
            DeadLettersVerb::Operation { operation_id, wait: false } => {
                Ok(json(&letters.operation(operation_id).await?))
            }
            DeadLettersVerb::Operation { operation_id, wait: true } => self.carry_out(operation_id).await,
            DeadLettersVerb::Operations { status, page } => self.operations(status.as_deref(), page).await,
        }
    }

    fn store(&self) -> &Store {
        self.hands.store()
    }

    async fn list(&self, filter: &Filter, page: &Page) -> Result<Value> {
        let before = page.cursor.as_deref().map(|cursor| Listed::parse_id(cursor).ok_or_else(no_page));
        let limit = usize::from(page.limit);
        let letters = self.letters.list(filter.which()?, before.transpose()?, limit).await?;
        let next = letters.last().filter(|_| letters.len() == limit).map(|last| Listed::id(last.number));
        Ok(json!({ "letters": masked(&letters), "next": next }))
    }

    async fn operations(&self, status: Option<&str>, page: &Page) -> Result<Value> {
        let status: Option<OperationStatus> =
            status.map(|status| read("status", json!(status))).transpose()?;
        if page.cursor.as_ref().is_some_and(|cursor| !cursor.starts_with("operation_")) {
            return Err(no_page());
        }
        let limit = usize::from(page.limit);
        let operations = self.letters.operations(status, page.cursor.clone(), limit).await?;
        let last = operations.last().filter(|_| operations.len() == limit);
        let next = last.map(|last| last.operation_id.clone());
        Ok(json!({ "operations": operations, "next": next }))
    }

    async fn act(&self, action: Action, wanted: &Wanted) -> Result<Value> {
        let Some(id) = &wanted.letter_id else {
            return self.act_on_many(action, &wanted.filter, &wanted.how).await;
        };
        let act = async {
            let number = number(id)?;
            Ok(match action {
                Action::Ignore => self.letters.ignore(number, ASKED_BY).await?,
                _ => self.letters.retry(number, ASKED_BY).await?,
            })
        };
        let done = dealing(id, action).carry_out(self.store(), act).await?;
        self.waits(&done);
        Ok(json(&done))
    }

    /// Previews, and runs if that is wanted.
    async fn act_on_many(&self, action: Action, filter: &Filter, how: &How) -> Result<Value> {
        let preview = async { Ok(self.letters.preview(action, filter.which()?, ASKED_BY).await?) };
        let previewed = previewing(action, filter).carry_out(self.store(), preview).await?;
        match how.run {
            true => self.run(&previewed.operation_id, !how.no_wait).await,
            false => Ok(json(&previewed)),
        }
    }

    async fn run(&self, operation_id: &str, is_awaited: bool) -> Result<Value> {
        let begin = async { Ok(self.letters.run_by(operation_id, ASKED_BY).await?) };
        let begun = running(operation_id).carry_out(self.store(), begin).await?;
        if is_awaited {
            return self.carry_out(operation_id).await;
        }
        eprintln!("It goes on once a server runs on this store.");
        Ok(json(&begun))
    }

    /// Carries an operation out that runs.
    async fn carry_out(&self, operation_id: &str) -> Result<Value> {
        let engine = self.hands.start().await?;
        let ended = loop {
            match self.letters.operation(operation_id).await {
                Ok(running) if running.status == OperationStatus::Running => {
                    progress::show(self.is_json, &bar(&json(&running)));
                    tokio::time::sleep(LOOK_EVERY).await;
                }
                ended => break ended,
            }
        };
        engine.stop(PATIENCE).await?;
        let ended = ended?;
        progress::show(self.is_json, &bar(&json(&ended)));
        progress::end(self.is_json);
        self.waits(&ended);
        Ok(json(&ended))
    }

    /// Says what is left to do.
    fn waits(&self, done: &Operation) {
        if done.action == Action::Retry && done.done > 0 && !self.is_json {
            eprintln!("What is tried again waits until a server runs on this store.");
        }
    }
}

impl Filter {
    fn which(&self) -> Result<Which> {
        read("filter", self.body())
    }
}

fn no_page() -> Error {
    Error::Argument("--cursor is not the `next` of a page".to_owned())
}

fn number(letter_id: &str) -> Result<i64> {
    Ok(Listed::parse_id(letter_id).ok_or_else(|| work::Error::LetterNotFound(letter_id.to_owned()))?)
}

fn read<T: DeserializeOwned>(what: &str, value: Value) -> Result<T> {
    serde_json::from_value(value).map_err(|error| Error::Argument(format!("{what}: {error}")))
}
