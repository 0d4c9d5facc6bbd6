//! Named tables: `[pools.emailPool]`. Each kind of table has fields, as each section has settings; there may be any
//! number of tables of a kind, so they have no variables and no flags.

use super::{Error, Place};
use mainstay::core::names::is_reserved;
use serde_json::{Map, Value as Json};
use std::fmt;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// A kind of table.
#[derive(Debug)]
pub struct Collection {
    /// The first name between the brackets.
    pub name: &'static str,
    /// What such a table is about, in sentences.
    pub doc: &'static str,
    /// Its fields, in the order in which they are shown.
    pub fields: &'static [Field],
    /// One as it may be written.
    pub example: &'static str,
}

/// A field of a table.
#[derive(Debug)]
pub struct Field {
    /// The key, in camelCase.
    pub key: &'static str,
    /// Which values it takes.
    pub kind: FieldKind,
    /// What holds when it is left out, as it is written in the file; without this it must be given.
    pub default: Option<&'static str>,
    /// What it is for, in sentences.
    pub doc: &'static str,
}

/// Which values a field takes.
#[derive(Debug, Clone, Copy)]
pub enum FieldKind {
    /// Text.
    Text(&'static str),
    /// The name of a pool, a function or a circuit.
    Name(&'static str),
    /// A secret: text, or two of them while one replaces the other.
    Secret,
    /// One of these words.
    OneOf(&'static [&'static str]),
    /// A whole number.
    Integer {
        /// The smallest.
        least: i64,
        /// The largest.
        most: i64,
    },
    /// A number above zero.
    Positive,
    /// True or false.
    Boolean,
    /// A table of its own.
    Table(&'static [Field]),
    /// Anything that can be written as JSON.
    Any,
}

/// As it continues the words "must be".
impl fmt::Display for FieldKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(what) | Self::Name(what) => out.write_str(what),
            Self::Secret => out.write_str("a text such as \"env:NAME\", or a list of two"),
            Self::OneOf(words) => {
                let words: Vec<_> = words.iter().map(|word| format!("{word:?}")).collect();
                out.write_str(&words.join(" or "))
            }
            Self::Integer { least, most } => write!(out, "a whole number from {least} to {most}"),
            Self::Positive => out.write_str("a number above 0"),
            Self::Boolean => out.write_str("true or false"),
            Self::Table(fields) => {
                let keys: Vec<_> = fields.iter().map(|field| field.key).collect();
                write!(out, "a table of {}", keys.join(", "))
            }
            Self::Any => out.write_str("something that can be written as JSON"),
        }
    }
}

/// A table that was read.
#[derive(Debug, Clone)]
pub struct Table {
    /// Its kind.
    pub collection: &'static Collection,
    /// Its name.
    pub name: String,
    /// Where it begins.
    pub place: Place,
    /// What it says.
    pub given: Given,
}

impl Table {
    /// The name a person calls it by: `pools.emailPool`.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.collection.name, self.name)
    }
}

/// What a table says, field by field.
#[derive(Debug, Clone, Default)]
pub struct Given(Vec<Entry>);

/// A field that a table has.
#[derive(Debug, Clone)]
pub struct Entry {
    /// The field.
    pub field: &'static Field,
    /// Where its value stands.
    pub place: Place,
    /// Its value, as JSON.
    pub value: Json,
    /// What a table of its own says.
    inner: Given,
}

impl Given {
    /// Every field that was given.
    pub fn entries(&self) -> &[Entry] {
        &self.0
    }

    /// Everything that was given, as JSON.
    pub fn to_json(&self) -> Map<String, Json> {
        self.0.iter().map(|entry| (entry.field.key.to_owned(), entry.value.clone())).collect()
    }

    /// The entry of a field, if it was given.
    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.0.iter().find(|entry| entry.field.key == key)
    }

    /// The value of a field that is text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.entry(key).and_then(|entry| entry.value.as_str())
    }

    /// The value of a field that is a whole number; ranges begin at 0 or above.
    pub fn number(&self, key: &str) -> Option<u64> {
        self.entry(key).and_then(|entry| entry.value.as_u64())
    }

    /// The value of a field that is any number.
    pub fn fraction(&self, key: &str) -> Option<f64> {
        self.entry(key).and_then(|entry| entry.value.as_f64())
    }

    /// What a table in this table says; nothing when there is none.
    pub fn table(&self, key: &str) -> Option<&Given> {
        self.entry(key).map(|entry| &entry.inner)
    }
}

/// Reads tables of a file.
pub(super) struct Reader<'a> {
    pub(super) place: &'a dyn Fn(usize) -> Place,
    pub(super) problems: &'a mut Vec<Error>,
}

impl Reader<'_> {
    /// Reads all tables of a kind; `found` describes what stands where a table should.
    pub(super) fn collection(
        &mut self,
        collection: &'static Collection,
        tables: &DeTable<'_>,
        describe: &dyn Fn(&DeValue<'_>) -> String,
    ) -> Vec<Table> {
        let mut read = Vec::new();
        for (name, value) in tables {
            let (place, name) = ((self.place)(name.span().start), name.get_ref().to_string());
            let full_name = format!("{}.{name}", collection.name);
            match value.get_ref() {
                _ if is_reserved(&name) => {
                    self.problems.push(Error::ReservedName { place, name: full_name });
                }
                _ if !is_name(&name) => self.problems.push(Error::BadName { place, name: full_name }),
                DeValue::Table(table) => {
                    let given = self.fields(&full_name, &place, collection.fields, table, describe);
                    read.push(Table { collection, name, place, given });
                }
                other => {
                    let found = describe(other);
                    self.problems.push(Error::NotASection { place, section: full_name, found });
                }
            }
        }
        read
    }

    fn fields(
        &mut self,
        name: &str,
        place: &Place,
        fields: &'static [Field],
        table: &DeTable<'_>,
        describe: &dyn Fn(&DeValue<'_>) -> String,
    ) -> Given {
        let mut given = Given::default();
        for (key, value) in table {
            match fields.iter().find(|field| field.key == key.get_ref()) {
                Some(field) => {
                    let name = format!("{name}.{}", field.key);
                    given.0.extend(self.field(&name, field, value, describe));
                }
                None => self.problems.push(Error::UnknownField {
                    place: (self.place)(key.span().start),
                    table: name.to_owned(),
                    key: key.get_ref().to_string(),
                    fields,
                }),
            }
        }
        // In the order in which they are documented.
        let rank = |entry: &Entry| fields.iter().position(|field| std::ptr::eq(field, entry.field));
        given.0.sort_by_key(rank);
        for field in fields.iter().filter(|field| field.default.is_none()) {
            if !table.keys().any(|key| key.get_ref() == field.key) {
                let (place, table) = (place.clone(), name.to_owned());
                self.problems.push(Error::MissingField { place, table, field });
            }
        }
        given
    }

    fn field(
        &mut self,
        name: &str,
        field: &'static Field,
        value: &Spanned<DeValue<'_>>,
        describe: &dyn Fn(&DeValue<'_>) -> String,
    ) -> Option<Entry> {
        let place = (self.place)(value.span().start);
        let mut inner = Given::default();
        if let (FieldKind::Table(fields), DeValue::Table(table)) = (field.kind, value.get_ref()) {
            inner = self.fields(name, &place, fields, table, describe);
        }
        match json(value.get_ref()).filter(|json| fits(field.kind, json)) {
            Some(Json::String(text)) if matches!(field.kind, FieldKind::Name(_)) && is_reserved(&text) => {
                self.problems.push(Error::ReservedName { place, name: name.to_owned() });
                None
            }
            Some(value) => Some(Entry { field, place, value, inner }),
            None => {
                let found = describe(value.get_ref());
                self.problems.push(Error::InvalidField { place, name: name.to_owned(), field, found });
                None
            }
        }
    }
}

/// Names of pools, functions and crons, as the workshop takes them.
fn is_name(name: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:/".contains(&byte);
    (1..=mainstay::work::MAX_NAME_BYTES).contains(&name.len()) && name.bytes().all(plain)
}

fn fits(kind: FieldKind, value: &Json) -> bool {
    match (kind, value) {
        (FieldKind::Text(_) | FieldKind::Name(_), Json::String(text)) => !text.is_empty(),
        (FieldKind::Secret, Json::String(text)) => is_secret(text),
        (FieldKind::Secret, Json::Array(both)) => {
            (1..=2).contains(&both.len()) && both.iter().all(|one| one.as_str().is_some_and(is_secret))
        }
        (FieldKind::OneOf(words), Json::String(text)) => words.contains(&text.as_str()),
        (FieldKind::Integer { least, most }, Json::Number(number)) => {
            number.as_i64().is_some_and(|number| (least..=most).contains(&number))
        }
        (FieldKind::Positive, Json::Number(number)) => number.as_f64().is_some_and(|number| number > 0.0),
        (FieldKind::Table(_), Json::Object(_))
        | (FieldKind::Boolean, Json::Bool(_))
        | (FieldKind::Any, _) => true,
        _ => false,
    }
}

fn is_secret(text: &str) -> bool {
    !text.is_empty() && text != "env:"
}

/// The value as JSON, if there is such a thing.
fn json(value: &DeValue<'_>) -> Option<Json> {
    Some(match value {
        // Neither database can hold a NUL.
        DeValue::String(text) if text.contains('\0') => return None,
        DeValue::String(text) => Json::String(text.to_string()),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix()).ok()?.into(),
        DeValue::Float(number) => Json::Number(serde_json::Number::from_f64(number.as_str().parse().ok()?)?),
        DeValue::Boolean(flag) => Json::Bool(*flag),
        DeValue::Datetime(moment) => Json::String(moment.to_string()),
        DeValue::Array(values) => {
            Json::Array(values.iter().map(|value| json(value.get_ref())).collect::<Option<_>>()?)
        }
        DeValue::Table(table) => {
            let member = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                let key: &std::borrow::Cow<'_, str> = key.get_ref();
                Some((key.to_string(), json(value.get_ref())?))
            };
            Json::Object(table.iter().map(member).collect::<Option<_>>()?)
        }
    })
}
