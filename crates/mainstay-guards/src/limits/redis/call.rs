//! Calls of many callers, carried out by one run of a script.

use super::line::{Connection, Line};
use crate::{Error, Result};
use futures_util::future::join_all;
use mainstay_store::batch::Runs;
use redis::{Cmd, ErrorKind, RedisError, ServerErrorKind};
use std::collections::BTreeMap;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

/// Something that is asked of a script.
pub(super) trait Call: Send + Sync + Sized + 'static {
    /// What comes of it.
    type Answer: Send + 'static;
    /// The script.
    const SCRIPT: &'static str;
    /// How many numbers the script answers each call with.
    const NUMBERS: usize;

    /// Calls of the same partition can be carried out together, wherever in a cluster that is.
    fn partition(&self) -> u32;

    /// The command, `EVALSHA` or `EVAL`, that carries all of them out.
    fn command(name: &str, script: &str, calls: &[&Self]) -> Cmd;

    /// What the script's numbers mean.
    fn answer(numbers: &[i64]) -> Result<Self::Answer>;
}

/// Answers calls by asking Redis.
pub(super) struct Caller<C> {
    line: Arc<Line>,
    is_cluster: bool,
    timeout: Duration,
    hash: String,
    calls: PhantomData<C>,
}

impl<C: Call> Caller<C> {
    pub(super) fn new(line: Arc<Line>, is_cluster: bool, timeout: Duration) -> Self {
        let hash = redis::Script::new(C::SCRIPT).get_hash().to_owned();
        Self { line, is_cluster, timeout, hash, calls: PhantomData }
    }

    pub(super) fn line(&self) -> &Arc<Line> {
        &self.line
    }

    /// Runs the script once for calls whose keys lie together, for as long as it takes.
    async fn query(&self, connection: &Connection, calls: &[&C]) -> Result<Vec<i64>> {
        self.line.figures().batch_size.record(calls.len() as u64);
        let mut answer = connection.query(&C::command("EVALSHA", &self.hash, calls)).await;
        if answer.as_ref().is_err_and(is_script_missing) {
            // A Redis that was restarted, or whose scripts were flushed: this loads it again, and runs it.
            answer = connection.query(&C::command("EVAL", C::SCRIPT, calls)).await;
        }
        let numbers: Vec<i64> = answer.map_err(|error| self.line.failed(&error))?;
        if numbers.len() != C::NUMBERS * calls.len() {
            return Err(Error::LimiterAway("Redis gave an answer that makes no sense".into()));
        }
        Ok(numbers)
    }

    async fn run_group(&self, connection: &Connection, calls: &[&C]) -> Vec<Result<C::Answer>> {
        let asked = tokio::time::timeout(self.timeout, self.query(connection, calls)).await;
        match asked.unwrap_or_else(|_| Err(self.line.no_answer(self.timeout))) {
            Ok(numbers) => numbers.chunks(C::NUMBERS).map(C::answer).collect(),
            Err(error) => calls.iter().map(|_| Err(error.clone())).collect(),
        }
    }
}

impl<C: Call> Runs for Caller<C> {
    type Ask = C;
    type Answer = Result<C::Answer>;

    async fn run(&self, calls: Vec<C>) -> Vec<Result<C::Answer>> {
        let connection = match self.line.connection() {
            Ok(connection) => connection,
            Err(error) => return calls.iter().map(|_| Err(error.clone())).collect(),
        };
        if !self.is_cluster {
            return self.run_group(&connection, &calls.iter().collect::<Vec<_>>()).await;
        }
        let mut groups: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
        for (number, call) in calls.iter().enumerate() {
            groups.entry(call.partition()).or_default().push(number);
        }
        let group = async |numbers: &Vec<usize>| {
            let group: Vec<&C> = numbers.iter().map(|number| &calls[*number]).collect();
            self.run_group(&connection, &group).await
        };
        let done = join_all(groups.values().map(group)).await;
        let mut answers: Vec<(usize, Result<C::Answer>)> =
            groups.into_values().flatten().zip(done.into_iter().flatten()).collect();
        answers.sort_unstable_by_key(|(number, _)| *number);
        answers.into_iter().map(|(_, answer)| answer).collect()
    }

    /// A lone caller keeps the time itself.
    async fn run_alone(&self, call: C) -> Result<C::Answer> {
        let connection = self.line.connection()?;
        C::answer(&self.query(&connection, &[&call]).await?)
    }

    fn lost(&self) -> Result<C::Answer> {
        Err(Error::LimiterAway("too many callers wait for Redis".into()))
    }
}

fn is_script_missing(error: &RedisError) -> bool {
    error.kind() == ErrorKind::Server(ServerErrorKind::NoScript)
}

/// What is told of a key that is not ours.
pub(super) fn somebody_elses() -> Error {
    Error::invalid("key", "is used by somebody else in this Redis")
}
