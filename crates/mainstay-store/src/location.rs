//! Where a store lives: the URL that names it.

use crate::{Error, Result};
use std::fmt;
use std::path::PathBuf;

/// A store URL that was understood.
#[derive(Clone, PartialEq, Eq)]
pub enum Location {
    /// `sqlite::memory:`: gone when the store is dropped.
    Memory,
    /// `sqlite:FILE`.
    File(PathBuf),
    /// `postgres://…`.
    Postgres(String),
}

impl Location {
    /// Reads a store URL.
    pub fn parse(url: &str) -> Result<Self> {
        let bad = |reason: &str| Error::Url { url: without_password(url), reason: reason.to_owned() };
        if url.trim() != url || url.is_empty() {
            return Err(bad("is empty or begins or ends with white space"));
        }
        let (scheme, rest) =
            url.split_once(':').ok_or_else(|| bad("has no scheme; did you mean sqlite:FILE?"))?;
        match scheme {
            "sqlite" if rest == ":memory:" => Ok(Self::Memory),
            "sqlite" => match rest.strip_prefix("//").unwrap_or(rest) {
                "" => Err(bad("names no file")),
                path if path.ends_with('/') => Err(bad("names a folder, not a file")),
                path if path.contains('\0') => Err(bad("has a NUL character")),
                path if path.contains('?') => Err(bad("has options after '?'; set them in mainstay.toml")),
                // A typo of :memory: must not become a file of that name.
                path if path.starts_with(':') => Err(bad("is neither a file nor sqlite::memory:")),
                path => Ok(Self::File(path.into())),
            },
            "postgres" | "postgresql" if rest.starts_with("//") => {
                #[cfg(feature = "postgres")]
                crate::drivers::postgres::check_url(url)?;
                Ok(Self::Postgres(url.to_owned()))
            }
            "postgres" | "postgresql" => {
                Err(bad("must continue with //, as in postgres://user@host/database"))
            }
            other => Err(bad(&format!("has the unknown scheme {other:?}; {}", nearest_scheme(other)))),
        }
    }
}

fn nearest_scheme(typed: &str) -> &'static str {
    if typed.starts_with('p') { "did you mean postgres://?" } else { "did you mean sqlite: or postgres://?" }
}

/// The URL as it may be shown: what stands between `user:` and `@` is a password.
fn without_password(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else { return url.to_owned() };
    let Some((user, host)) = rest.rsplit_once('@') else { return without_password_option(url) };
    let name = user.split_once(':').map_or(user.to_owned(), |(name, _)| format!("{name}:***"));
    without_password_option(&format!("{scheme}://{name}@{host}"))
}

/// `?password=…` is a password too.
fn without_password_option(url: &str) -> String {
    let Some(at) = url.find("password=") else { return url.to_owned() };
    let value = at + "password=".len();
    let end = url[value..].find('&').map_or(url.len(), |length| value + length);
    format!("{}***{}", &url[..value], &url[end..])
}

impl fmt::Display for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory => out.write_str("sqlite::memory:"),
            Self::File(path) => write!(out, "sqlite:{}", path.display()),
            Self::Postgres(url) => out.write_str(&without_password(url)),
        }
    }
}

/// As [`Display`](fmt::Display): a password must not reach a log through `{:?}` either.
impl fmt::Debug for Location {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_three_forms() {
        assert_eq!(Location::parse("sqlite::memory:").unwrap(), Location::Memory);
        assert_eq!(Location::parse("sqlite:a/b.db").unwrap(), Location::File("a/b.db".into()));
        assert_eq!(Location::parse("sqlite:///a/b.db").unwrap(), Location::File("/a/b.db".into()));
        assert!(matches!(Location::parse("postgresql://u@h/d").unwrap(), Location::Postgres(_)));
    }

    #[test]
    fn a_typo_is_named() {
        for (url, hint) in [
            ("", "is empty"),
            ("mainstay.db", "did you mean sqlite:FILE?"),
            ("sqlit:mainstay.db", "did you mean sqlite: or postgres://?"),
            ("postgre://h/d", "did you mean postgres://?"),
            ("postgres:h/d", "must continue with //"),
            ("sqlite:", "names no file"),
            ("sqlite:folder/", "names a folder"),
            ("sqlite::memory", "is neither a file nor sqlite::memory:"),
            ("sqlite:a.db?mode=ro", "has options after '?'"),
            (" sqlite:a.db", "white space"),
            ("postgres://h", "names no database"),
            ("postgres://h:port/d", "invalid"),
            ("postgres://h/d?sslmode=maybe", "sslmode=maybe"),
        ] {
            let error = Location::parse(url).unwrap_err();
            assert_eq!(error.code(), "STORE_URL_INVALID");
            assert!(error.to_string().contains(hint), "{error}");
        }
    }

    #[test]
    fn a_password_is_never_shown() {
        for url in
            ["postgres://ada:s3cret@h/d", "postgres://ada@h/d?password=s3cret&x=1", "pg://a:s3cret@h/d"]
        {
            let shown =
                Location::parse(url).map_or_else(|error| error.to_string(), |parsed| format!("{parsed:?}"));
            assert!(!shown.contains("s3cret") && shown.contains("***"), "{shown}");
        }
    }
}
