//! Finding the programs of a PostgreSQL server.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The oldest major version that Mainstay supports.
const OLDEST: u32 = 15;

/// Folders that hold one `<version>/bin` or `<name>@<version>/bin` per installed version.
const PARENTS: [&str; 4] = ["/usr/lib/postgresql", "/usr", "/opt/homebrew/opt", "/usr/local/opt"];

/// A folder with `postgres` and `initdb`.
#[derive(Clone, Debug)]
pub(super) struct Binaries {
    folder: PathBuf,
}

impl Binaries {
    pub(super) fn find() -> Result<Self> {
        if let Some(folder) = std::env::var_os("MAINSTAY_PG_BIN") {
            let folder = PathBuf::from(folder);
            let version = version(&folder).with_context(|| {
                format!("MAINSTAY_PG_BIN={} holds no working postgres and initdb", folder.display())
            })?;
            if version < OLDEST {
                bail!("MAINSTAY_PG_BIN is PostgreSQL {version}; {OLDEST} or newer is needed");
            }
            return Ok(Self { folder });
        }
        let usable = |folder: &PathBuf| version(folder).is_ok_and(|version| version >= OLDEST);
        let folder = candidates().into_iter().find(usable).with_context(|| {
            format!(
                "no PostgreSQL {OLDEST} or newer found; run ./test, which installs it, \
                 or set MAINSTAY_PG_BIN to the folder that holds postgres and initdb"
            )
        })?;
        Ok(Self { folder })
    }

    pub(super) fn postgres(&self) -> PathBuf {
        self.folder.join("postgres")
    }

    pub(super) fn initdb(&self) -> PathBuf {
        self.folder.join("initdb")
    }
}

fn candidates() -> Vec<PathBuf> {
    let mut versioned: Vec<(u32, PathBuf)> = PARENTS
        .iter()
        .filter_map(|parent| std::fs::read_dir(parent).ok())
        .flat_map(Iterator::flatten)
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let digits = name.trim_start_matches("postgresql@").trim_start_matches("pgsql-");
            Some((digits.parse().ok()?, entry.path().join("bin")))
        })
        .collect();
    versioned.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let path = std::env::var_os("PATH").unwrap_or_default();
    versioned
        .into_iter()
        .map(|(_, folder)| folder)
        .chain([PathBuf::from("/usr/local/pgsql/bin")])
        .chain(std::env::split_paths(&path))
        .filter(|folder| folder.join("postgres").exists())
        .collect()
}

/// The major version, from running the programs: a package may be registered while its files are gone.
fn version(folder: &Path) -> Result<u32> {
    let output = |program: &str| -> Result<String> {
        let path = folder.join(program);
        let output =
            Command::new(&path).arg("--version").output().with_context(|| path.display().to_string())?;
        if !output.status.success() {
            bail!("{} --version: {}", path.display(), output.status);
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    output("initdb")?;
    let text = output("postgres")?;
    major(&text).with_context(|| format!("cannot read a version from {text:?}"))
}

/// From `postgres (PostgreSQL) 15.19 (Debian 15.19-0)` or `postgres (PostgreSQL) 18beta1`.
fn major(text: &str) -> Option<u32> {
    let number = text.split_once(") ")?.1;
    let end = number.find(|c: char| !c.is_ascii_digit()).unwrap_or(number.len());
    number[..end].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::major;

    #[test]
    fn reads_versions_of_releases_and_betas() {
        assert_eq!(major("postgres (PostgreSQL) 15.19 (Debian 15.19-0+deb12u1)\n"), Some(15));
        assert_eq!(major("postgres (PostgreSQL) 18beta1\n"), Some(18));
        assert_eq!(major("postgres"), None);
    }
}
