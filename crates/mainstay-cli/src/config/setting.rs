//! What a setting is: where it stands, which values it takes, and what it is for.

use axum::http::{HeaderName, Uri};
use mainstay::store::Location;
use mainstay::work::egress::Egress;
use std::borrow::Cow;
use std::fmt;
use std::net::SocketAddr;

/// A section of the configuration file.
#[derive(Debug)]
pub struct Section {
    /// The name between the brackets.
    pub name: &'static str,
    /// What the section is about, in a sentence.
    pub doc: &'static str,
    /// Its settings, in the order in which they are shown.
    pub settings: &'static [&'static Setting],
}

/// One setting. The file, the environment, the reference and the checks all know it from here.
#[derive(Debug)]
pub struct Setting {
    /// The section it stands in.
    pub section: &'static str,
    /// The key, in camelCase.
    pub key: &'static str,
    /// Which values it takes.
    pub kind: Kind,
    /// The value when nobody says otherwise.
    pub default: Value,
    /// The flag that overrides it.
    pub flag: Option<&'static str>,
    /// What it is for, in sentences.
    pub doc: &'static str,
}

impl Setting {
    /// The name a person calls it by: `store.busyTimeoutMs`.
    pub fn name(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The environment variable that overrides it: `MAINSTAY__STORE__BUSY_TIMEOUT_MS`.
    pub fn variable(&self) -> String {
        let mut key = String::new();
        for letter in self.key.chars() {
            if letter.is_ascii_uppercase() {
                key.push('_');
            }
            key.push(letter.to_ascii_uppercase());
        }
        format!("MAINSTAY__{}__{key}", self.section.to_ascii_uppercase())
    }
}

/// Which values a setting takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The URL of a store.
    StoreUrl,
    /// An IP address and a port.
    Address,
    /// The path of a file; empty for none.
    File,
    /// Ranges of addresses.
    Ranges,
    /// The name of a header.
    Header,
    /// The URL of a collector; empty for none.
    Endpoint,
    /// Where a secret is; empty for none.
    Variable,
    /// What something is called.
    Name,
    /// A share, from 0 to 1.
    Ratio,
    /// True or false.
    Boolean,
    /// A whole number; without `most` it has no upper end.
    Integer {
        /// The smallest.
        least: i64,
        /// The largest.
        most: Option<i64>,
    },
}

/// What is wrong with a value.
#[derive(Debug)]
pub enum Fault {
    /// It is of another kind, or out of range.
    NotAllowed,
    /// It is a store URL that cannot be understood.
    Url(mainstay::store::Error),
    /// One of the ranges is none.
    Range(mainstay::work::egress::RangeError),
}

impl Kind {
    /// Checks a value against the kind and its range.
    pub fn check(self, value: &Value) -> Result<(), Fault> {
        match (self, value) {
            (Self::StoreUrl, Value::Text(url)) => Location::parse(url).map(drop).map_err(Fault::Url),
            (Self::Address, Value::Text(address)) if address.parse::<SocketAddr>().is_ok() => Ok(()),
            (Self::File, Value::Text(path)) if !path.contains('\0') => Ok(()),
            (Self::Ranges, Value::List(ranges)) => Egress::new(ranges).map(drop).map_err(Fault::Range),
            (Self::Header, Value::Text(name)) if HeaderName::from_bytes(name.as_bytes()).is_ok() => Ok(()),
            (Self::Endpoint, Value::Text(url)) if url.is_empty() || is_endpoint(url) => Ok(()),
            (Self::Variable, Value::Text(text)) if text.is_empty() || is_variable(text) => Ok(()),
            (Self::Name, Value::Text(name)) if is_name(name) => Ok(()),
            (Self::Ratio, Value::Integer(0 | 1)) => Ok(()),
            (Self::Ratio, Value::Decimal(text))
                if text.parse().is_ok_and(|ratio: f64| (0.0..=1.0).contains(&ratio)) =>
            {
                Ok(())
            }
            (Self::Boolean, Value::Boolean(_)) => Ok(()),
            (Self::Integer { least, most }, Value::Integer(number))
                if *number >= least && most.is_none_or(|most| *number <= most) =>
            {
                Ok(())
            }
            _ => Err(Fault::NotAllowed),
        }
    }

    /// Whether what is written there by mistake may be a secret.
    pub fn is_private(self) -> bool {
        matches!(self, Self::Endpoint | Self::Variable)
    }

    /// Reads what the environment or a flag says, which is always text.
    pub fn read(self, text: &str) -> Option<Value> {
        match self {
            Self::StoreUrl
            | Self::Address
            | Self::File
            | Self::Header
            | Self::Endpoint
            | Self::Variable
            | Self::Name => Some(Value::Text(text.to_owned().into())),
            Self::Ratio => Some(Value::Decimal(text.to_owned().into())),
            Self::Ranges => {
                let ranges = text.split(',').map(str::trim).filter(|range| !range.is_empty());
                Some(Value::List(ranges.map(str::to_owned).collect()))
            }
            Self::Boolean => text.parse().ok().map(Value::Boolean),
            Self::Integer { .. } => text.replace('_', "").parse().ok().map(Value::Integer),
        }
    }
}

fn is_endpoint(url: &str) -> bool {
    url.parse::<Uri>().is_ok_and(|url| {
        matches!(url.scheme_str(), Some("http" | "https"))
            && url.authority().is_some_and(|authority| !authority.as_str().contains('@'))
            && url.query().is_none()
    })
}

fn is_variable(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    text.strip_prefix("env:").is_some_and(|name| !name.is_empty() && name.bytes().all(is_plain))
}

fn is_name(name: &str) -> bool {
    (1..=128).contains(&name.len()) && !name.contains(char::is_control)
}

/// As it continues the words "must be".
impl fmt::Display for Kind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::StoreUrl => out.write_str("a store URL"),
            Self::Address => out.write_str("an address and a port, as in 127.0.0.1:7420"),
            Self::File => out.write_str("the path of a file"),
            Self::Ranges => out.write_str("a list of ranges of addresses, as in [\"10.0.0.0/8\"]"),
            Self::Header => out.write_str("the name of a header, as in \"X-Forwarded-For\""),
            Self::Endpoint => out.write_str(
                "the URL of a collector without a password or a query, as in http://127.0.0.1:4318, or empty",
            ),
            Self::Variable => {
                out.write_str("env: and the name of a variable, as in \"env:OTLP_HEADERS\", or empty")
            }
            Self::Name => out.write_str("a name of 1 to 128 bytes"),
            Self::Ratio => out.write_str("a number from 0 to 1"),
            Self::Boolean => out.write_str("true or false"),
            Self::Integer { least, most: Some(most) } => write!(out, "a whole number from {least} to {most}"),
            Self::Integer { least, most: None } => write!(out, "a whole number of at least {least}"),
        }
    }
}

/// The value of a setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// Text.
    Text(Cow<'static, str>),
    /// A whole number.
    Integer(i64),
    /// Another number, as it is written.
    Decimal(Cow<'static, str>),
    /// True or false.
    Boolean(bool),
    /// Several texts.
    List(Vec<String>),
}

impl Value {
    /// The value as it may be shown: a password in a URL is masked.
    pub fn shown(&self, kind: Kind) -> Self {
        match self {
            Self::Text(url) if kind == Kind::StoreUrl => {
                let shown =
                    Location::parse(url).map_or_else(|fault| fault.to_string(), |url| url.to_string());
                Self::Text(shown.into())
            }
            plain => plain.clone(),
        }
    }

    /// The value as JSON.
    pub fn to_json(&self) -> serde_json::Value {
        match self {
            Self::Text(text) => text.as_ref().into(),
            Self::Integer(number) => (*number).into(),
            Self::Decimal(text) => text.parse::<f64>().ok().into(),
            Self::Boolean(flag) => (*flag).into(),
            Self::List(texts) => texts.clone().into(),
        }
    }
}

/// As it is written in the configuration file.
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => toml::Value::String(text.clone().into_owned()).fmt(out),
            Self::Integer(number) => number.fmt(out),
            Self::Decimal(text) => text.fmt(out),
            Self::Boolean(flag) => flag.fmt(out),
            Self::List(texts) => {
                toml::Value::Array(texts.iter().map(|text| toml::Value::String(text.clone())).collect())
                    .fmt(out)
            }
        }
    }
}
