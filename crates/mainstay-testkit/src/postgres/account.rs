//! Who runs the server: oneself, or an unprivileged user when we are root, as PostgreSQL refuses root.

use std::os::unix::fs::{MetadataExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Used when we are root, first one that exists.
const STAND_INS: [&str; 2] = ["postgres", "nobody"];

#[derive(Clone, Debug)]
pub(super) enum Account {
    Oneself,
    StandIn { name: String, uid: u32, gid: u32 },
}

impl Account {
    pub(super) fn choose() -> Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self::Oneself);
        }
        let passwd = std::fs::read_to_string("/etc/passwd").context("reading /etc/passwd")?;
        STAND_INS.iter().find_map(|name| entry(&passwd, name)).with_context(|| {
            format!("PostgreSQL does not run as root, and none of the users {STAND_INS:?} exists")
        })
    }

    /// A command that runs as this account, in `folder`, in a process group of its own so that a Ctrl-C for the
    /// tests does not reach it.
    pub(super) fn command(&self, program: &Path, folder: &Path) -> Command {
        let mut command = Command::new(program);
        command.current_dir(folder).env("HOME", folder).stdin(Stdio::null()).process_group(0);
        if let Self::StandIn { uid, gid, .. } = self {
            // As root, setting the uid also clears the supplementary groups.
            command.uid(*uid).gid(*gid);
        }
        command
    }

    /// Gives a folder to this account, after checking that the account can get there.
    pub(super) fn hand_over(&self, folder: &Path) -> Result<()> {
        let Self::StandIn { name, uid, gid } = self else { return Ok(()) };
        for parent in folder.ancestors().skip(1) {
            let meta = std::fs::metadata(parent)?;
            if meta.mode() & 0o001 == 0 && meta.uid() != *uid {
                bail!(
                    "user {name}, who runs PostgreSQL for root, cannot enter {}; \
                     set TMPDIR to a folder that everyone may enter (mode 0755)",
                    parent.display()
                );
            }
        }
        chown(folder, Some(*uid), Some(*gid))
            .with_context(|| format!("giving {} to {name}", folder.display()))
    }
}

fn entry(passwd: &str, name: &str) -> Option<Account> {
    passwd.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() != Some(name) {
            return None;
        }
        let uid = fields.nth(1)?.parse().ok()?;
        let gid = fields.next()?.parse().ok()?;
        Some(Account::StandIn { name: name.to_owned(), uid, gid })
    })
}
