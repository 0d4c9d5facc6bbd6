//! Reads, beside the writer: each on a snapshot of its own.

use super::connection::Session;
use super::job::Job;
use super::{Shared, StopOnExit, failure};

/// A reader's thread.
pub(super) fn work(shared: &Shared, session: &Session, runtime: &tokio::runtime::Handle) {
    let _context = runtime.enter();
    let _stop = StopOnExit { shared, wal: None };
    while let Some(mut job) = shared.reads.wait() {
        if job.claim(&shared.figures) {
            read(session, &mut job);
            job.reply();
        }
    }
}

fn read(session: &Session, job: &mut Job) {
    if let Err(error) = session.control("BEGIN") {
        return job.attempt.fail(failure::of(error));
    }
    session.attend(job.claim.clone());
    job.run(session);
    if session.is_in_transaction() {
        // Ending a read cannot fail in a way that matters to its result.
        drop(session.control("ROLLBACK"));
    }
}
