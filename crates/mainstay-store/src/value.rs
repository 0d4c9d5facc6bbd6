//! Values that go into and come out of SQL, alike for both databases.

use crate::{Error, Result};
use std::sync::Arc;

/// A value in SQL. Time is milliseconds since the epoch in a `BIGINT`; JSON is `TEXT`.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// True or false. SQLite keeps it as 1 or 0 and gives it back as [`Value::Int`]; `get::<bool>` takes both.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A floating-point number.
    Real(f64),
    /// Text.
    Text(String),
    /// Bytes.
    Blob(Vec<u8>),
}

impl Value {
    /// The name of what this is.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Int(_) => "an integer",
            Self::Real(_) => "a float",
            Self::Text(_) => "text",
            Self::Blob(_) => "bytes",
        }
    }

    /// Refuses what one of the databases cannot keep: PostgreSQL has no NUL in text, SQLite turns NaN into NULL.
    pub(crate) fn check(&self, position: usize) -> Result<()> {
        match self {
            Self::Text(text) if text.contains('\0') => Err(Error::Text(position)),
            Self::Real(number) if number.is_nan() => {
                Err(Error::Parameters(format!("${position} is not a number")))
            }
            _ => Ok(()),
        }
    }
}

/// Makes the parameters of a statement from Rust values: `params![1, "two", None::<i64>]`.
#[macro_export]
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::Value::from($value)),*] };
}

macro_rules! from {
    ($($type:ty => $value:ident $make:expr;)*) => {
        $(impl From<$type> for Value {
            fn from($value: $type) -> Self {
                $make
            }
        })*
    };
}

from! {
    bool => value Self::Bool(value);
    i16 => value Self::Int(value.into());
    i32 => value Self::Int(value.into());
    i64 => value Self::Int(value);
    u16 => value Self::Int(value.into());
    u32 => value Self::Int(value.into());
    f64 => value Self::Real(value);
    &str => value Self::Text(value.to_owned());
    String => value Self::Text(value);
    &String => value Self::Text(value.clone());
    &[u8] => value Self::Blob(value.to_owned());
    Vec<u8> => value Self::Blob(value);
}

impl<T: Into<Value>> From<Option<T>> for Value {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Null, Into::into)
    }
}

/// A Rust type that a column can be read as.
pub trait FromValue<'a>: Sized {
    /// Reads it, or says what the type is called.
    fn from_value(value: &'a Value) -> std::result::Result<Self, &'static str>;
}

impl<'a> FromValue<'a> for &'a Value {
    fn from_value(value: &'a Value) -> std::result::Result<Self, &'static str> {
        Ok(value)
    }
}

impl<'a, T: FromValue<'a>> FromValue<'a> for Option<T> {
    fn from_value(value: &'a Value) -> std::result::Result<Self, &'static str> {
        if *value == Value::Null { Ok(None) } else { T::from_value(value).map(Some) }
    }
}

macro_rules! read {
    ($($type:ty, $name:literal: $($pattern:pat $(if $guard:expr)? => $make:expr),+;)*) => {
        $(impl<'a> FromValue<'a> for $type {
            fn from_value(value: &'a Value) -> std::result::Result<Self, &'static str> {
                match value {
                    $($pattern $(if $guard)? => Ok($make),)+
                    _ => Err($name),
                }
            }
        })*
    };
}

read! {
    bool, "a boolean": Value::Bool(value) => *value, Value::Int(value @ (0 | 1)) => *value == 1;
    i64, "an integer": Value::Int(value) => *value;
    // SQLite gives an integer for a REAL expression that happens to be whole in some aggregates.
    f64, "a float": Value::Real(value) => *value, Value::Int(value) => *value as f64;
    &'a str, "text": Value::Text(value) => value;
    String, "text": Value::Text(value) => value.clone();
    &'a [u8], "bytes": Value::Blob(value) => value;
    Vec<u8>, "bytes": Value::Blob(value) => value.clone();
}

macro_rules! read_narrower {
    ($($type:ty, $name:literal;)*) => {
        $(impl FromValue<'_> for $type {
            fn from_value(value: &Value) -> std::result::Result<Self, &'static str> {
                match value {
                    Value::Int(value) => (*value).try_into().map_err(|_| $name),
                    _ => Err($name),
                }
            }
        })*
    };
}

read_narrower! {
    i32, "a 32-bit integer";
    u32, "an unsigned 32-bit integer";
    u64, "an unsigned integer";
}

/// A row of a result.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    columns: Arc<[String]>,
    values: Vec<Value>,
}

impl Row {
    pub(crate) fn new(columns: Arc<[String]>, values: Vec<Value>) -> Self {
        Self { columns, values }
    }

    /// The value of a column, by name or by index from 0.
    pub fn get<'a, T: FromValue<'a>>(&'a self, column: impl ColumnIndex) -> Result<T> {
        let value = column.position(&self.columns).and_then(|position| self.values.get(position));
        let value = value.ok_or_else(|| Error::Decode {
            column: column.describe(),
            reason: format!("no such column; there are: {}", self.columns.join(", ")),
        })?;
        T::from_value(value).map_err(|wanted| Error::Decode {
            column: column.describe(),
            reason: format!("is {}, not {wanted}", value.kind()),
        })
    }

    /// The names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.columns
    }

    /// The values, in the order of the columns.
    pub fn into_values(self) -> Vec<Value> {
        self.values
    }
}

/// A way to name a column.
pub trait ColumnIndex {
    /// The index in the row.
    fn position(&self, columns: &[String]) -> Option<usize>;
    /// The text for an error message.
    fn describe(&self) -> String;
}

impl ColumnIndex for usize {
    fn position(&self, _columns: &[String]) -> Option<usize> {
        Some(*self)
    }

    fn describe(&self) -> String {
        self.to_string()
    }
}

impl ColumnIndex for &str {
    fn position(&self, columns: &[String]) -> Option<usize> {
        columns.iter().position(|column| column == self)
    }

    fn describe(&self) -> String {
        format!("{self:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        let columns = ["id", "name", "score", "gone", "flag"].map(str::to_owned);
        Row::new(Arc::from(columns), params![7, "ada", 1.5, None::<i64>, 1].to_vec())
    }

    #[test]
    fn reads_by_name_and_by_index() {
        assert_eq!(row().get::<i64>("id").unwrap(), 7);
        assert_eq!(row().get::<u32>(0).unwrap(), 7);
        assert_eq!(row().get::<&str>("name").unwrap(), "ada");
        assert_eq!(row().get::<f64>("score").unwrap(), 1.5);
        assert_eq!(row().get::<Option<i64>>("gone").unwrap(), None);
        assert!(row().get::<bool>("flag").unwrap());
    }

    #[test]
    fn says_what_is_there_instead() {
        let error = row().get::<i64>("name").unwrap_err();
        assert_eq!(error.to_string(), "column \"name\": is text, not an integer");
        let error = row().get::<i64>("nmae").unwrap_err();
        assert_eq!(
            error.to_string(),
            "column \"nmae\": no such column; there are: id, name, score, gone, flag"
        );
        assert_eq!(row().get::<i64>("gone").unwrap_err().code(), "STORE_DECODE_FAILED");
        assert!(row().get::<u32>(9).is_err());
        assert!(row().get::<bool>("id").is_err(), "7 is no boolean");
    }
}
