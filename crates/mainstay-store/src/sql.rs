//! Reads a statement once: counts its parameters, rewrites `$n` for SQLite, refuses what is not an author's.
//!
//! SQLite takes `$1` for a *name* and numbers names in the order they appear, so `… $2 … $1` would silently swap
//! its values; `?1` is what it calls a numbered parameter.

use crate::{Error, Result, Value};
use std::collections::HashMap;
use std::sync::Arc;

/// What SQLite allows in one statement, and less than what PostgreSQL does.
const MAX_PARAMETERS: u32 = 32_766;
/// Enough for any statement written by hand; generated ones should use `execute_many`.
const MAX_STATEMENT_BYTES: usize = 1 << 20;
/// Statements an application writes are few; beyond this someone pastes values into the text.
const MAX_CACHED: usize = 2_048;

/// First words of statements that control the transaction, the connection or the server.
const REFUSED: &[&str] = &[
    "ABORT",
    "ATTACH",
    "BEGIN",
    "CHECKPOINT",
    "CLUSTER",
    "COMMIT",
    "COPY",
    "DEALLOCATE",
    "DETACH",
    "DISCARD",
    "END",
    "EXECUTE",
    "LISTEN",
    "LOAD",
    "NOTIFY",
    "PRAGMA",
    "PREPARE",
    "RELEASE",
    "RESET",
    "ROLLBACK",
    "SAVEPOINT",
    "SET",
    "START",
    "UNLISTEN",
    "VACUUM",
];

/// What may stand before a parenthesis in a statement that only reads.
const READING: [&str; 40] = [
    "ABS",
    "ALL",
    "AND",
    "ANY",
    "ARRAY",
    "AS",
    "AVG",
    "BY",
    "CAST",
    "COALESCE",
    "COUNT",
    "EXCEPT",
    "EXISTS",
    "FILTER",
    "FROM",
    "IN",
    "INTERSECT",
    "JOIN",
    "LATERAL",
    "LENGTH",
    "LIMIT",
    "LOWER",
    "MAINSTAY_NOW",
    "MAX",
    "MIN",
    "NOT",
    "NULLIF",
    "ON",
    "OR",
    "OVER",
    "ROUND",
    "ROW_NUMBER",
    "SELECT",
    "SUBSTR",
    "SUM",
    "UNION",
    "UNNEST",
    "UPPER",
    "VALUES",
    "WHERE",
];

/// A statement that was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Statement {
    /// The text with `$n`, as PostgreSQL takes it.
    pub(crate) text: String,
    /// The text with `?n`, as SQLite takes it.
    pub(crate) sqlite_text: String,
    /// Whether it changes rows, so that asking how many makes sense.
    pub(crate) changes_rows: bool,
    /// Whether it may leave something behind: all but a SELECT, also one behind a WITH, that calls nothing but what is known to
    /// read.
    pub(crate) may_write: bool,
    /// The highest `n`.
    pub(crate) parameters: u32,
    /// The names of its columns, as they were first.
    #[cfg(feature = "sqlite")]
    columns: std::sync::OnceLock<Arc<[String]>>,
}

impl Statement {
    /// Reads `text`.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_STATEMENT_BYTES {
            return Err(refused(format!("{} bytes, at most {MAX_STATEMENT_BYTES}", text.len())));
        }
        if text.contains('\0') {
            return Err(refused("it has a NUL character"));
        }
        let mut scan = Scan::new(text);
        scan.run()?;
        let first = scan.words.first().map(String::as_str);
        match first {
            None => Err(refused("it is empty")),
            Some(word) if REFUSED.contains(&word) => {
                Err(refused(format!("{word} is the store's business, not a transaction's")))
            }
            Some("CREATE") if scan.words.get(1).is_some_and(|word| word == "TEMP" || word == "TEMPORARY") => {
                Err(refused("a temporary table belongs to a connection, and connections are shared"))
            }
            Some(_) if scan.statements > 1 && !scan.is_trigger() => {
                Err(refused("more than one statement; send them one at a time"))
            }
            Some(_) => Ok(Self {
                text: text.to_owned(),
                changes_rows: scan.changes_rows.unwrap_or(false),
                may_write: scan.calls_unknown
                    || match first {
                        Some("SELECT") => false,
                        Some("WITH") => scan.names_change,
                        _ => true,
                    },
                parameters: scan.parameters,
                sqlite_text: scan.rewritten,
                #[cfg(feature = "sqlite")]
                columns: std::sync::OnceLock::new(),
            }),
        }
    }

    /// Checks the parameters that are to go with it.
    pub(crate) fn check(&self, params: &[Value]) -> Result<()> {
        if params.len() != self.parameters as usize {
            let (wants, given) = (self.parameters, params.len());
            return Err(Error::Parameters(format!(
                "the statement has {wants}, {given} were given: {}",
                self.text
            )));
        }
        params.iter().enumerate().try_for_each(|(index, value)| value.check(index + 1))
    }

    /// The names of its columns, shared with earlier rows: they change only when a table does.
    #[cfg(feature = "sqlite")]
    pub(crate) fn columns<'a, N: Iterator<Item = &'a str>>(&self, names: impl Fn() -> N) -> Arc<[String]> {
        let make = || names().map(str::to_owned).collect();
        let known = self.columns.get_or_init(make);
        if names().eq(known.iter()) { known.clone() } else { make() }
    }

    /// Checks rows that stand one behind another and go with it as one list for each parameter.
    #[cfg(feature = "postgres")]
    pub(crate) fn check_columns(&self, values: &[Value]) -> Result<()> {
        let width = self.parameters as usize;
        if width == 0 || !values.len().is_multiple_of(width) {
            let count = values.len();
            return Err(Error::Parameters(format!(
                "{count} values do not fill rows of {width}: {}",
                self.text
            )));
        }
        values.iter().enumerate().try_for_each(|(index, value)| value.check(index % width + 1))
    }
}

/// Statements read so far, so that each text is read once.
#[derive(Debug, Default)]
pub(crate) struct Cache {
    known: HashMap<Box<str>, Arc<Statement>>,
    /// The last one whose text was at such an address: most texts are constants, and are where they were.
    latest: [Option<Arc<Statement>>; 32],
}

impl Cache {
    pub(crate) fn get(&mut self, text: &str) -> Result<Arc<Statement>> {
        let slot = (text.as_ptr().addr() >> 3) % self.latest.len();
        match &self.latest[slot] {
            Some(latest) if latest.text == text => Ok(latest.clone()),
            _ => {
                let statement = self.find(text)?;
                self.latest[slot] = Some(statement.clone());
                Ok(statement)
            }
        }
    }

    fn find(&mut self, text: &str) -> Result<Arc<Statement>> {
        if let Some(statement) = self.known.get(text) {
            return Ok(statement.clone());
        }
        let statement = Arc::new(Statement::parse(text)?);
        if self.known.len() >= MAX_CACHED {
            self.known.clear();
        }
        self.known.insert(text.into(), statement.clone());
        Ok(statement)
    }
}

fn refused(reason: impl Into<String>) -> Error {
    Error::StatementRefused(reason.into())
}

/// One pass over the text that knows literals, quoted names and comments.
struct Scan<'a> {
    text: &'a str,
    at: usize,
    rewritten: String,
    parameters: u32,
    /// The first few words outside of literals, in capitals: enough to tell what kind of statement it is.
    words: Vec<String>,
    statements: u32,
    between_statements: bool,
    depth: u32,
    /// Whether the verb of the statement, outside of all parentheses, is one that changes rows.
    changes_rows: Option<bool>,
    /// The word before.
    previous: String,
    /// Whether it calls a function that is not known to read only, or selects into a table.
    calls_unknown: bool,
    /// Whether anything in it changes rows, wherever it stands.
    names_change: bool,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        let rewritten = String::with_capacity(text.len());
        Self {
            text,
            at: 0,
            rewritten,
            parameters: 0,
            words: Vec::new(),
            statements: 0,
            between_statements: true,
            depth: 0,
            changes_rows: None,
            previous: String::new(),
            calls_unknown: false,
            names_change: false,
        }
    }

    fn run(&mut self) -> Result<()> {
        while let Some(next) = self.rest().chars().next() {
            let rest = self.rest();
            if next.is_whitespace() {
                self.keep(next.len_utf8());
            } else if rest.starts_with("--") {
                self.keep(rest.find('\n').unwrap_or(rest.len()));
            } else if rest.starts_with("/*") {
                self.keep(rest.find("*/").map_or(rest.len(), |end| end + 2));
            } else if next == ';' {
                self.between_statements = true;
                self.keep(1);
            } else {
                self.statements += u32::from(self.between_statements);
                self.between_statements = false;
                self.token(next)?;
            }
        }
        Ok(())
    }

    fn token(&mut self, next: char) -> Result<()> {
        let rest = self.rest();
        if next == '\'' || next == '"' || next == '`' {
            self.keep(quoted_length(rest, next, false));
        } else if (next == 'E' || next == 'e') && rest[1..].starts_with('\'') {
            self.keep(1);
            self.keep(quoted_length(self.rest(), '\'', true));
        } else if next == '$' {
            return self.dollar();
        } else if is_word_start(next) || next.is_ascii_digit() {
            let length = rest.find(|c: char| !is_word(c)).unwrap_or(rest.len());
            self.word(&rest[..length]);
            self.keep(length);
        } else {
            match next {
                '(' => self.depth += 1,
                ')' => self.depth = self.depth.saturating_sub(1),
                _ => {}
            }
            self.keep(next.len_utf8());
        }
        Ok(())
    }

    fn word(&mut self, word: &str) {
        let is_called = self.rest()[word.len()..].trim_start().starts_with('(');
        let word = word.to_uppercase();
        // A name behind these has columns or is a type, but is not called.
        let is_named = ["AS", "RECURSIVE", "WITH"].contains(&&*self.previous);
        let is_known = is_named || READING.contains(&word.as_str());
        self.calls_unknown |= word == "INTO" || is_called && !is_known;
        self.names_change |= ["INSERT", "UPDATE", "DELETE", "MERGE", "REPLACE"].contains(&word.as_str());
        if self.depth == 0 && self.changes_rows.is_none() {
            self.changes_rows = match word.as_str() {
                "INSERT" | "UPDATE" | "DELETE" | "REPLACE" => Some(true),
                "SELECT" | "VALUES" | "CREATE" | "ALTER" | "DROP" | "EXPLAIN" => Some(false),
                _ => None,
            };
        }
        self.previous.clone_from(&word);
        if self.words.len() < 4 {
            self.words.push(word);
        }
    }

    /// `$1` is a parameter; `$$…$$` and `$tag$…$tag$` are PostgreSQL's literals.
    fn dollar(&mut self) -> Result<()> {
        let rest = self.rest();
        let digits = rest[1..].bytes().take_while(u8::is_ascii_digit).count();
        if digits > 0 {
            let number = rest[1..=digits].parse().unwrap_or(u32::MAX);
            if number == 0 || number > MAX_PARAMETERS {
                return Err(Error::Parameters(format!("${number} is not between $1 and ${MAX_PARAMETERS}")));
            }
            self.parameters = self.parameters.max(number);
            self.rewritten.push('?');
            self.rewritten.push_str(&rest[1..=digits]);
            self.at += digits + 1;
            return Ok(());
        }
        let tag =
            rest[1..].find(|c: char| !is_word(c) || c == '$').filter(|end| rest[1 + end..].starts_with('$'));
        let length = tag.map_or(1, |end| {
            let (opening, body) = rest.split_at(end + 2);
            body.find(opening).map_or(rest.len(), |close| opening.len() * 2 + close)
        });
        self.keep(length);
        Ok(())
    }

    fn is_trigger(&self) -> bool {
        self.words.first().is_some_and(|word| word == "CREATE")
            && self.words.iter().any(|word| word == "TRIGGER")
    }

    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn keep(&mut self, length: usize) {
        self.rewritten.push_str(&self.text[self.at..self.at + length]);
        self.at += length;
    }
}

fn is_word_start(c: char) -> bool {
    c.is_alphabetic() || c == '_'
}

/// Both databases allow `$` inside a name, so `a$1` is a name and no parameter.
fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_' || c == '$'
}

/// The length of a quoted piece including its quotes; a doubled quote stands for one inside.
fn quoted_length(text: &str, quote: char, backslash_escapes: bool) -> usize {
    let mut chars = text.char_indices().skip(1).peekable();
    while let Some((at, c)) = chars.next() {
        if c == '\\' && backslash_escapes {
            chars.next();
        } else if c == quote {
            if chars.peek().is_none_or(|(_, following)| *following != quote) {
                return at + 1;
            }
            chars.next();
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sqlite(text: &str) -> String {
        Statement::parse(text).unwrap().sqlite_text
    }

    #[test]
    fn rewrites_parameters_and_nothing_else() {
        for (text, expected) in [
            ("SELECT $2, $1", "SELECT ?2, ?1"),
            ("SELECT '$1', $1", "SELECT '$1', ?1"),
            ("SELECT 'it''s $1', $1", "SELECT 'it''s $1', ?1"),
            ("SELECT \"a$1\", a$1, $1", "SELECT \"a$1\", a$1, ?1"),
            ("SELECT 1 -- $1\n, $1 /* $2 */", "SELECT 1 -- $1\n, ?1 /* $2 */"),
            ("SELECT $$ $1 $$, $1", "SELECT $$ $1 $$, ?1"),
            ("SELECT $tag$ $1 $$ $tag$, $1", "SELECT $tag$ $1 $$ $tag$, ?1"),
            ("SELECT E'\\' $1', $1", "SELECT E'\\' $1', ?1"),
            ("SELECT $10+$1", "SELECT ?10+?1"),
            ("SELECT 'ä$1', $1, 'ß'", "SELECT 'ä$1', ?1, 'ß'"),
        ] {
            assert_eq!(sqlite(text), expected);
        }
    }

    #[test]
    fn refuses_what_is_not_an_authors() {
        for text in [
            "COMMIT",
            "  /* well */ rollback to x",
            "-- first\nBEGIN",
            "pragma foreign_keys = off",
            "ATTACH 'x' AS y",
            "SET search_path = x",
            "NOTIFY x",
            "SELECT 1; SELECT 2",
            "SELECT 1; COMMIT",
            "CREATE TEMP TABLE t (id BIGINT)",
            "create temporary table t (id BIGINT)",
            "SELECT '\0'",
            "",
            "  ;  ",
            "-- nothing",
        ] {
            let error = Statement::parse(text).unwrap_err();
            assert_eq!(error.code(), "STORE_STATEMENT_REFUSED", "{text}: {error}");
        }
        for text in ["SELECT 1;", "SELECT 1; -- done", "SELECT ';'", "WITH x AS (SELECT 1) SELECT * FROM x"] {
            assert!(Statement::parse(text).is_ok(), "{text}");
        }
        let trigger = "CREATE TRIGGER t AFTER INSERT ON a BEGIN INSERT INTO b VALUES (1); DELETE FROM c; END";
        assert!(Statement::parse(trigger).is_ok());
    }

    #[test]
    fn counts_parameters() {
        let statement = Statement::parse("SELECT $1, $3, $1").unwrap();
        assert!(statement.check(&vec![Value::Null; 3]).is_ok());
        assert_eq!(statement.check(&[]).unwrap_err().code(), "STORE_PARAMETERS_INVALID");
        assert!(Statement::parse("SELECT $0").is_err());
        assert!(Statement::parse("SELECT $32767").is_err());
        assert!(Statement::parse("SELECT $99999999999999999999").is_err());
        let nul = Statement::parse("SELECT $1").unwrap().check(&[Value::Text("a\0b".into())]).unwrap_err();
        assert_eq!(nul.to_string(), "$1 is text with a NUL character");
    }

    #[test]
    fn knows_what_changes_rows() {
        for (text, expected) in [
            ("INSERT INTO a VALUES (1)", true),
            ("WITH x AS (SELECT 1) INSERT INTO a SELECT * FROM x", true),
            ("WITH x AS (SELECT 1) SELECT * FROM x", false),
            ("WITH x AS (DELETE FROM a RETURNING id) SELECT * FROM x", false),
            ("UPDATE a SET b = (SELECT 1)", true),
            ("CREATE TABLE a AS SELECT 1", false),
            ("EXPLAIN DELETE FROM a", false),
        ] {
            assert_eq!(Statement::parse(text).unwrap().changes_rows, expected, "{text}");
        }
    }

    #[test]
    fn knows_what_may_leave_something_behind() {
        for (text, expected) in [
            ("SELECT max(position), count(*) FROM a WHERE (b = 1) AND c IN (SELECT 1)", false),
            ("select * from a where id = $1 for update", false),
            ("SELECT nextval('a')", true),
            ("SELECT our_function ($1)", true),
            ("SELECT * INTO b FROM a", true),
            ("WITH x AS (DELETE FROM a RETURNING id) SELECT * FROM x", true),
            ("WITH x (id) AS (VALUES (1)) UPDATE a SET b = 1 FROM x", true),
            ("WITH x (id) AS (SELECT nextval('a')) SELECT * FROM x", true),
            ("WITH RECURSIVE x(id) AS (VALUES (1) UNION ALL SELECT id FROM x) SELECT max(id) FROM x", false),
            ("SELECT id FROM unnest(ARRAY(SELECT 1)) AS x (id) CROSS JOIN LATERAL (SELECT 2) AS y", false),
            ("SELECT CAST(a AS varchar(5)), b AS c, nextval ('d') FROM e", true),
            ("INSERT INTO a VALUES (1)", true),
            ("VALUES (1)", true),
        ] {
            assert_eq!(Statement::parse(text).unwrap().may_write, expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "\\PC{0,60}|[$'\"`E;a1 \\\\/*\\n-]{0,40}") {
            if let Ok(statement) = Statement::parse(&text) {
                prop_assert_eq!(statement.sqlite_text.len(), text.len());
            }
        }
    }
}
