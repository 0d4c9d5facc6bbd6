//! The few changes that the testkit makes to `postgres://` URLs.

use anyhow::{Context, Result, bail};

/// The maintenance database of one of our own servers.
pub(super) fn local(port: u16) -> String {
    format!("postgres://mainstay@127.0.0.1:{port}/postgres")
}

pub(super) fn check(url: &str) -> Result<()> {
    if !url.starts_with("postgres://") && !url.starts_with("postgresql://") {
        bail!("the URL must start with postgres://");
    }
    url.parse::<tokio_postgres::Config>().context("not a URL of a PostgreSQL server")?;
    Ok(())
}

/// The same server and options, another database.
pub(super) fn with_database(url: &str, name: &str) -> String {
    let (server, options) = match url.split_once('?') {
        Some((server, options)) => (server, format!("?{options}")),
        None => (url, String::new()),
    };
    let host_start = server.find("://").map_or(0, |at| at + 3);
    let host_end = server[host_start..].find('/').map_or(server.len(), |at| host_start + at);
    format!("{}/{name}{options}", &server[..host_end])
}

/// The same server, database and options, another user.
pub(super) fn with_user(url: &str, user: &str, password: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("postgres", url));
    let authority_end = rest.find(['/', '?']).unwrap_or(rest.len());
    let host = rest[..authority_end].rsplit_once('@').map_or(0, |(user, _)| user.len() + 1);
    format!("{scheme}://{user}:{password}@{}", &rest[host..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_the_database_and_keeps_the_rest() {
        assert_eq!(with_database("postgres://u:p@h:1/old?a=b", "new"), "postgres://u:p@h:1/new?a=b");
        assert_eq!(with_database("postgres://h", "new"), "postgres://h/new");
        assert_eq!(with_database("postgres://h?host=/run/pg", "new"), "postgres://h/new?host=/run/pg");
    }

    #[test]
    fn changes_the_user_and_keeps_the_rest() {
        assert_eq!(with_user("postgres://u:p@h:1/db?a=b", "x", "y"), "postgres://x:y@h:1/db?a=b");
        assert_eq!(with_user("postgresql://h/db", "x", "y"), "postgresql://x:y@h/db");
    }

    #[test]
    fn refuses_what_is_no_url() {
        assert!(check("host=localhost").is_err());
        assert!(check("postgres://h:port/db").is_err());
        assert!(check("postgresql://u@h/db").is_ok());
    }
}
