//! Filters: which letters, and how their rows are found.

use super::{Kind, Listed, Status, listed};
use crate::error::{Error, Result};
use mainstay_store::Value;
use serde::{Deserialize, Serialize};

/// Longest text that a filter names.
pub const MAX_FILTER_BYTES: usize = 256;

/// Which letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Filter {
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<Kind>,
    /// Of this function, projection or target.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Of work of this pool; letters of other sources have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pool: Option<String>,
    /// Of this status.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Status>,
    /// Of this group of errors.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "hex")]
    pub group: Option<i64>,
    /// With an error that has this text in it, in small or capital letters.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Of what belongs together under this id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation_id: Option<String>,
    /// That failed at this moment or later, in milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_since: Option<i64>,
    /// That failed before this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_before: Option<i64>,
}

/// The number of a group as text: JSON's numbers are not long enough.
mod hex {
    use serde::{Deserialize, Deserializer, Serializer};

    #[expect(clippy::ref_option, reason = "what serde hands over")]
    pub(super) fn serialize<S: Serializer>(group: &Option<i64>, serializer: S) -> Result<S::Ok, S::Error> {
        match group {
            Some(group) => serializer.collect_str(&format_args!("{group:016x}")),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(text: D) -> Result<Option<i64>, D::Error> {
        let Some(text) = Option::<String>::deserialize(text)? else { return Ok(None) };
        let group = super::parse_group(&text);
        group
            .map(Some)
            .ok_or_else(|| serde::de::Error::custom("a group is 16 digits and letters from a to f"))
    }
}

fn parse_group(text: &str) -> Option<i64> {
    let group = u64::from_str_radix(text, 16).ok().filter(|_| text.len() == 16)?;
    Some(i64::from_ne_bytes(group.to_ne_bytes()))
}

impl Filter {
    /// Whether anybody can have such letters.
    pub fn check(&self) -> Result<()> {
        if let Some(kind) = &self.kind {
            kind.check()?;
        }
        let texts = [
            ("name", &self.name),
            ("pool", &self.pool),
            ("error", &self.error),
            ("correlationId", &self.correlation_id),
        ];
        for (field, text) in texts {
            if text
                .as_ref()
                .is_some_and(|text| !(1..=MAX_FILTER_BYTES).contains(&text.len()) || text.contains('\0'))
            {
                return Err(Error::invalid(field, format!("must be 1 to {MAX_FILTER_BYTES} bytes")));
            }
        }
        for (field, moment) in [("failedSince", self.failed_since), ("failedBefore", self.failed_before)] {
            if moment.is_some_and(|moment| moment < 0) {
                return Err(Error::invalid(field, "must not be negative"));
            }
        }
        Ok(())
    }

    /// Reads a group as it is shown.
    pub fn parse_group(text: &str) -> Result<i64> {
        parse_group(text)
            .ok_or_else(|| Error::invalid("group", "is none: it is 16 digits and letters from a to f"))
    }

    /// Whether rows that an index has not told apart are looked through for a page.
    pub fn is_search(&self) -> bool {
        self.rows_by().1
    }

    /// Whether more is counted than letters of a status, so that the answers to all filters are not few.
    pub(crate) fn is_narrow(&self) -> bool {
        *self != Self { status: self.status, ..Self::default() }
    }

    /// Whether one index has every column that the filter names and that is counted.
    pub(super) fn is_in_one_index(&self) -> bool {
        self.error.is_none() && self.correlation_id.is_none() && self.pool.is_none()
    }

    /// Index by which rows are read in the order of their numbers, and whether the filter asks for more than it tells apart.
    fn rows_by(&self) -> (Option<Indexed>, bool) {
        let is_given = |index: &Indexed| match index {
            Indexed::Correlation => self.correlation_id.is_some(),
            Indexed::Group => self.group.is_some(),
            Indexed::Pool => self.pool.is_some(),
            Indexed::Status => self.status.is_some(),
        };
        let mut given = Indexed::ALL.into_iter().filter(is_given);
        let (first, has_second) = (given.next(), given.next().is_some());
        let has_others = self.kind.is_some()
            || self.name.is_some()
            || self.error.is_some()
            || self.failed_since.is_some()
            || self.failed_before.is_some();
        (first, has_second || has_others)
    }

    /// The condition by whose index rows are read. Its value follows `values`.
    pub(super) fn by_index(&self, values: Vec<Value>) -> Conditions {
        let mut conditions = Conditions { values, ..Conditions::default() };
        if let (Some(index), _) = self.rows_by() {
            self.add(index, &mut conditions, true);
        }
        conditions
    }

    /// All conditions on a row, apart from the text of its error. Their values follow `values`.
    pub(super) fn conditions(&self, values: Vec<Value>) -> Conditions {
        let mut conditions = self.by_index(values);
        let (by, _) = self.rows_by();
        for index in Indexed::ALL {
            if by != Some(index) {
                self.add(index, &mut conditions, false);
            }
        }
        if let Some(kind) = &self.kind {
            conditions.add(false, "kind = ?", Value::from(kind.as_str()));
        }
        if let Some(name) = &self.name {
            conditions.add(false, "name = ?", Value::from(name));
        }
        if let Some(since) = self.failed_since {
            conditions.add(false, "failed_at >= ?", Value::Int(since));
        }
        if let Some(before) = self.failed_before {
            conditions.add(false, "failed_at < ?", Value::Int(before));
        }
        conditions
    }

    /// Adds the condition of a column that has an index, if the filter names the column.
    fn add(&self, index: Indexed, conditions: &mut Conditions, is_indexed: bool) {
        let condition = match index {
            Indexed::Correlation => {
                self.correlation_id.as_ref().map(|wanted| ("correlation = ?", Value::from(wanted)))
            }
            Indexed::Group => self.group.map(|wanted| ("error_group = ?", Value::Int(wanted))),
            Indexed::Pool => self.pool.as_ref().map(|wanted| {
                // A name that no pool has finds nothing.
                ("pool = (SELECT p.number FROM mainstay_pools p WHERE p.name = ?)", Value::from(wanted))
            }),
            Indexed::Status => self.status.map(|wanted| ("status = ?", Value::Int(wanted.number()))),
        };
        if let Some((text, value)) = condition {
            conditions.add(is_indexed, text, value);
        }
    }

    /// Text that errors are searched for.
    pub(super) fn needle(&self) -> Option<Needle> {
        self.error.as_deref().map(|text| Needle(listed(text).to_ascii_lowercase()))
    }

    /// Whether a letter is one of these, as it is now; its pool is not known from the letter, and never changes.
    pub(crate) fn names(&self, letter: &Listed) -> bool {
        fn is<T: PartialEq>(wanted: Option<&T>, value: &T) -> bool {
            wanted.is_none_or(|wanted| wanted == value)
        }
        is(self.kind.as_ref(), &letter.kind)
            && is(self.name.as_ref(), &letter.name)
            && is(self.status.as_ref(), &letter.status)
            && is(self.group.as_ref(), &letter.group)
            && (self.correlation_id.is_none() || self.correlation_id == letter.correlation_id)
            && self.failed_since.is_none_or(|since| letter.failed_at >= since)
            && self.failed_before.is_none_or(|before| letter.failed_at < before)
            && self.needle().is_none_or(|needle| needle.is_in(&letter.error))
    }
}

/// Indexes that have rows of one value in the order of their numbers; those that tell more apart come first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Indexed {
    Correlation,
    Group,
    Pool,
    Status,
}

impl Indexed {
    const ALL: [Self; 4] = [Self::Correlation, Self::Group, Self::Pool, Self::Status];
}

/// Conditions on rows, in SQL.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    /// The one by whose index rows are read, behind a `WHERE` that has something before it.
    pub(super) indexed: String,
    /// Those that rows are looked through for.
    pub(super) others: String,
    /// Values of all parameters.
    pub(super) values: Vec<Value>,
}

impl Conditions {
    fn add(&mut self, is_indexed: bool, text: &str, value: Value) {
        self.values.push(value);
        let sql = if is_indexed { &mut self.indexed } else { &mut self.others };
        sql.push_str(" AND ");
        sql.push_str(&text.replace('?', &format!("${}", self.values.len())));
    }
}

/// Text that is searched for, in small or capital letters of ASCII.
#[derive(Debug)]
pub(super) struct Needle(String);

impl Needle {
    /// Whether a text has it. The time is linear in the length of the text, which `LIKE`, `instr` and `strpos` are not.
    pub(super) fn is_in(&self, text: &str) -> bool {
        text.to_ascii_lowercase().contains(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_is_read_as_it_is_shown() {
        let filter = Filter { group: Some(-2), ..Filter::default() };
        let text = serde_json::to_string(&filter).unwrap();
        assert_eq!(text, r#"{"group":"fffffffffffffffe"}"#);
        assert_eq!(serde_json::from_str::<Filter>(&text).unwrap(), filter);
        for bad in ["", "xyz", "fffffffffffffffff", "1"] {
            assert!(Filter::parse_group(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_filter_that_is_too_long_or_empty_is_refused() {
        let long = Filter { error: Some("x".repeat(MAX_FILTER_BYTES + 1)), ..Filter::default() };
        assert_eq!(long.check().unwrap_err().code(), "WORK_INVALID");
        assert!(Filter { kind: Some(Kind::from("")), ..Filter::default() }.check().is_err());
        assert!(Filter { failed_since: Some(-1), ..Filter::default() }.check().is_err());
        assert!(Filter { name: Some("sendEmail".into()), ..Filter::default() }.check().is_ok());
    }
}
