//! What a test does with a child that runs.

use std::{
    process::{ChildStdin, Command, ExitStatus},
    time::Duration,
};

use anyhow::{Context, bail, ensure};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::{STARTED, output::Output};

/// A child process. It is killed when this is dropped.
#[derive(Debug)]
pub struct Running {
    test: String,
    process: std::process::Child,
    /// Kept open as long as the child may live, see [`die_with_parent`](super::die_with_parent). It is not left in
    /// `process`, whose `wait` would close it.
    _input: Option<ChildStdin>,
    output: Output,
}

impl Running {
    pub(super) fn start(test: &str, command: &mut Command) -> anyhow::Result<Running> {
        let mut process = command.spawn().context("the test binary does not start again")?;
        let mut output = Output::default();
        process.stdout.take().into_iter().for_each(|pipe| output.read(pipe));
        process.stderr.take().into_iter().for_each(|pipe| output.read(pipe));
        Ok(Running { test: test.to_owned(), _input: process.stdin.take(), process, output })
    }

    /// The child's process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Waits until the child has said something that begins with `prefix`, now or earlier, and returns it.
    pub fn wait_for(&self, prefix: &str, timeout: Duration) -> anyhow::Result<String> {
        let found = self.output.wait_until(timeout, |said| {
            said.messages.iter().find(|message| message.starts_with(prefix)).cloned()
        });
        found.with_context(|| self.failed(&format!("did not say `{prefix}` in {timeout:?}")))
    }

    /// Waits until the child has acknowledged at least `number` times.
    pub fn wait_for_acks(&self, number: usize, timeout: Duration) -> anyhow::Result<()> {
        let enough =
            self.output.wait_until(timeout, |said| said.acknowledged().nth(number.checked_sub(1)?).map(drop));
        let acked = || self.output.said().acknowledged().count();
        enough.with_context(|| self.failed(&format!("acknowledged {} of {number} in {timeout:?}", acked())))
    }

    /// Everything the child has acknowledged so far, in order. After [`kill9`](Running::kill9) or
    /// [`wait`](Running::wait) this is complete.
    pub fn acknowledged(&self) -> Vec<String> {
        self.output.said().acknowledged().map(str::to_owned).collect()
    }

    /// Everything the child has said so far, acknowledgements included.
    pub fn said(&self) -> Vec<String> {
        self.output.said().messages.clone()
    }

    /// All that the child has said and printed so far, for whoever reads why a test failed.
    pub fn story(&self) -> String {
        self.output.said().describe()
    }

    /// Kills the child as `kill -9` does and waits for its end.
    pub fn kill9(&mut self) -> anyhow::Result<ExitStatus> {
        self.process.kill()?;
        let status = self.process.wait()?;
        self.output.finish();
        Ok(status)
    }

    /// Halts the child, as a machine that swaps or a debugger does; when this returns, it does nothing any more.
    pub fn stop(&self) -> anyhow::Result<()> {
        kill_process(self.pid(), Signal::STOP)?;
        // The signal alone only asks for it.
        waitid(WaitId::Pid(self.pid()), WaitIdOptions::STOPPED)
            .with_context(|| self.failed("ended before it could be stopped"))?;
        Ok(())
    }

    /// Lets a stopped child go on.
    pub fn cont(&self) -> anyhow::Result<()> {
        Ok(kill_process(self.pid(), Signal::CONT)?)
    }

    /// Waits for the child to end by itself.
    pub fn wait(&mut self, timeout: Duration) -> anyhow::Result<ExitStatus> {
        let ended = self.output.wait_until(timeout, |said| said.ended().then_some(()));
        ended.with_context(|| self.failed(&format!("has not ended in {timeout:?}")))?;
        let status = self.process.wait()?;
        self.output.finish();
        let started = self.output.said().messages.iter().any(|message| message == STARTED);
        ensure!(started, self.failed("never called `is_child`; is that the name of a test?"));
        Ok(status)
    }

    /// Waits for the child to end by itself and to have passed as a test.
    pub fn wait_for_success(&mut self, timeout: Duration) -> anyhow::Result<()> {
        let status = self.wait(timeout)?;
        if !status.success() {
            bail!(self.failed(&format!("failed with {status}")));
        }
        Ok(())
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    fn failed(&self, how: &str) -> String {
        format!("the child `{}` {how}. {}", self.test, self.output.said().describe())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Fails for a child that has ended, which is as well.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
