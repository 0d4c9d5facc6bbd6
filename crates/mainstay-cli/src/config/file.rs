//! Reads `mainstay.toml`.

use super::setting::{Section, Setting, Value};
use super::table::{Collection, Reader};
use super::{COLLECTIONS, Draft, Error, Place, SECTIONS};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

/// The file that is read when none is named.
pub(super) const USUAL: &str = "mainstay.toml";
/// Nobody writes a larger one by hand; a device or a log named by mistake is noticed instead of read into memory.
const MAX_BYTES: u64 = 1 << 20;

/// The text of the file that was asked for, or of the usual one if there is one.
pub(super) fn find(asked: Option<&Path>) -> Result<Option<(PathBuf, Vec<u8>)>, Error> {
    let path = asked.unwrap_or(Path::new(USUAL));
    let file = path.display().to_string();
    match read(path) {
        Ok(bytes) if bytes.len() as u64 > MAX_BYTES => {
            Err(Error::Unreadable { file, reason: "it is larger than 1 MiB".to_owned() })
        }
        Ok(bytes) => Ok(Some((path.to_owned(), bytes))),
        Err(error) if error.kind() == io::ErrorKind::NotFound && asked.is_none() => Ok(None),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(Error::NotFound { file }),
        Err(error) => Err(Error::Unreadable { file, reason: error.to_string() }),
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Takes what the file says into the draft.
pub(super) fn apply(file: &Path, bytes: &[u8], draft: &mut Draft) {
    let file = file.display().to_string();
    let text = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => {
            let valid = String::from_utf8_lossy(&bytes[..error.valid_up_to()]);
            let place = Place::in_file(&file, &valid, valid.len());
            return draft.problems.push(Error::Syntax { place, message: "this is not UTF-8".to_owned() });
        }
    };
    let reading = Reading { file: &file, text };
    match DeTable::parse(text) {
        Ok(root) => reading.root(root.get_ref(), draft),
        Err(error) => {
            let place = reading.place(error.span().map_or(0, |span| span.start));
            draft.problems.push(Error::Syntax { place, message: error.message().replace('\n', ", ") });
        }
    }
}

struct Reading<'a> {
    file: &'a str,
    text: &'a str,
}

impl Reading<'_> {
    fn place(&self, offset: usize) -> Place {
        Place::in_file(self.file, self.text, offset)
    }

    fn root(&self, root: &DeTable<'_>, draft: &mut Draft) {
        for (name, value) in root {
            let (place, key) = (self.place(name.span().start), name.get_ref().to_string());
            if let Some(collection) = COLLECTIONS.iter().find(|collection| collection.name == key) {
                self.collection(collection, place, value.get_ref(), draft);
                continue;
            }
            let section = SECTIONS.iter().find(|section| section.name == key);
            match (section, value.get_ref()) {
                (Some(section), DeValue::Table(table)) => self.section(section, table, draft),
                (Some(section), other) => {
                    let found = describe(other);
                    draft.problems.push(Error::NotASection {
                        place,
                        section: section.name.to_owned(),
                        found,
                    });
                }
                (None, DeValue::Table(_) | DeValue::Array(_)) => {
                    draft.problems.push(Error::UnknownSection { place, section: key });
                }
                (None, _) => draft.problems.push(Error::OutsideSections { place, key }),
            }
        }
    }

    fn collection(
        &self,
        collection: &'static Collection,
        place: Place,
        value: &DeValue<'_>,
        draft: &mut Draft,
    ) {
        let DeValue::Table(tables) = value else {
            let (section, found) = (collection.name.to_owned(), describe(value));
            return draft.problems.push(Error::NotASection { place, section, found });
        };
        let place = |offset: usize| self.place(offset);
        let mut reader = Reader { place: &place, problems: &mut draft.problems };
        draft.tables.extend(reader.collection(collection, tables, &describe));
    }

    fn section(&self, section: &'static Section, table: &DeTable<'_>, draft: &mut Draft) {
        for (name, value) in table {
            match section.settings.iter().copied().find(|setting| setting.key == name.get_ref()) {
                Some(setting) => self.setting(setting, value, draft),
                None => draft.problems.push(Error::UnknownKey {
                    place: self.place(name.span().start),
                    section: section.name,
                    key: name.get_ref().to_string(),
                }),
            }
        }
    }

    fn setting(&self, setting: &'static Setting, value: &Spanned<DeValue<'_>>, draft: &mut Draft) {
        draft.take(setting, simple(value.get_ref()), self.place(value.span().start), || {
            describe(value.get_ref())
        });
    }
}

/// The value, if it is of a kind that some setting takes.
fn simple(value: &DeValue<'_>) -> Option<Value> {
    match value {
        DeValue::String(text) => Some(Value::Text(text.to_string().into())),
        DeValue::Integer(number) => {
            i64::from_str_radix(number.as_str(), number.radix()).ok().map(Value::Integer)
        }
        DeValue::Float(number) => Some(Value::Decimal(number.as_str().to_owned().into())),
        DeValue::Boolean(flag) => Some(Value::Boolean(*flag)),
        DeValue::Array(values) => {
            let text = |value: &Spanned<DeValue<'_>>| value.get_ref().as_str().map(str::to_owned);
            values.iter().map(text).collect::<Option<_>>().map(Value::List)
        }
        _ => None,
    }
}

/// The value as it continues the word "not".
fn describe(value: &DeValue<'_>) -> String {
    match value {
        DeValue::String(text) => format!("the text {text:?}"),
        DeValue::Integer(number) => number.as_str().to_owned(),
        DeValue::Float(number) => number.as_str().to_owned(),
        DeValue::Boolean(flag) => flag.to_string(),
        DeValue::Datetime(_) => "a date".to_owned(),
        DeValue::Array(_) => "a list".to_owned(),
        DeValue::Table(_) => "a table".to_owned(),
    }
}
