//! A database of one test.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use super::{sql, url};

/// A database that nobody else knows; dropped with this value, open connections included.
#[derive(Debug)]
pub struct Database {
    server_url: String,
    name: String,
    url: String,
    has_limited_user: AtomicBool,
}

impl Database {
    pub(super) fn create(server_url: &str) -> Result<Self> {
        let name = format!("test_{:016x}", super::unique());
        // template0 takes no connections, so nobody can be in our way there.
        let create = format!("CREATE DATABASE {name} TEMPLATE template0");
        sql::run(server_url, &[&create]).context("creating a database for a test")?;
        Ok(Self {
            url: url::with_database(server_url, &name),
            server_url: server_url.to_owned(),
            name,
            has_limited_user: AtomicBool::new(false),
        })
    }

    /// The URL of this database, for its owner.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The database's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Runs a script of SQL statements, such as a dump.
    pub fn run(&self, script: &str) -> Result<()> {
        sql::run(&self.url, &[script]).map(drop)
    }

    /// The URL of this database for a user who may connect and do nothing else: no schemas, no tables, not even
    /// temporary ones.
    pub fn limited_user(&self) -> Result<String> {
        let Self { name, .. } = self;
        let user = self.limited_name();
        if !self.has_limited_user.load(Ordering::Acquire) {
            let statements = [
                format!("CREATE ROLE {user} LOGIN PASSWORD 'limited'"),
                format!("REVOKE ALL ON DATABASE {name} FROM PUBLIC"),
                format!("GRANT CONNECT ON DATABASE {name} TO {user}"),
                "REVOKE CREATE ON SCHEMA public FROM PUBLIC".to_owned(),
            ];
            sql::run(&self.url, &statements.each_ref().map(String::as_str))
                .context("creating a limited user")?;
            self.has_limited_user.store(true, Ordering::Release);
        }
        Ok(url::with_user(&self.url, &user, "limited"))
    }

    fn limited_name(&self) -> String {
        format!("{}_limited", self.name)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        // Best effort: a test may have killed the server, and the server's end takes the database along.
        let drop_database = format!("DROP DATABASE IF EXISTS {} WITH (FORCE)", self.name);
        let drop_user = format!("DROP ROLE IF EXISTS {}", self.limited_name());
        let statements = [drop_database.as_str(), drop_user.as_str()];
        let count = if *self.has_limited_user.get_mut() { 2 } else { 1 };
        let _ = sql::run(&self.server_url, &statements[..count]);
    }
}
