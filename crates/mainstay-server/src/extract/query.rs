//! The parameters of the query.

use super::field;
use crate::{Answer, Problem, error};
use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use serde::de::value::{Error, MapDeserializer, SeqDeserializer};
use serde::de::{DeserializeOwned, Deserializer, Error as _, IntoDeserializer, Visitor};
use serde::forward_to_deserialize_any;
use std::collections::HashMap;

/// The parameters of the query.
///
/// A field that is a `Vec` takes every value of its key, every other one takes just one. `?verbose` is a `bool` that is
/// true. A key that the type does not know is refused; the type therefore flattens nothing.
#[derive(Debug, Clone)]
pub struct Query<T>(pub T);

impl<T, S> FromRequestParts<S> for Query<T>
where
    T: DeserializeOwned,
    S: Sync,
{
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// Most parameters of a query, each value of a list counted. A read by types and tags names at most a few hundred.
const MAX_PARAMETERS: usize = 1_000;

pub(crate) fn parse<T: DeserializeOwned>(query: &str) -> Answer<T> {
    let (mut keys, mut places) = (Vec::<(String, Values)>::new(), HashMap::<String, usize>::new());
    for (number, (key, value)) in form_urlencoded::parse(query.as_bytes()).enumerate() {
        if number == MAX_PARAMETERS {
            let detail = format!("The query has more than {MAX_PARAMETERS} parameters.");
            return Err(Problem::new(&error::QUERY_INVALID, detail));
        }
        if key.contains(char::REPLACEMENT_CHARACTER) || value.contains(char::REPLACEMENT_CHARACTER) {
            return Err(Problem::invalid_parameter(&key, "is not UTF-8"));
        }
        // Neither database can hold it, so there is nothing to be found under it.
        if value.contains('\0') {
            return Err(Problem::invalid_parameter(&key, "has a NUL character"));
        }
        match places.get(&*key) {
            Some(place) => keys[*place].1.0.push(value.into_owned()),
            None => {
                places.insert(key.to_string(), keys.len());
                keys.push((key.into_owned(), Values(vec![value.into_owned()])));
            }
        }
    }
    let parameters = MapDeserializer::new(keys.into_iter());
    serde_path_to_error::deserialize(parameters).map_err(|error| {
        let message = error.inner().to_string();
        match field::name(error.path(), &message) {
            Some(field) => Problem::invalid_parameter(&field, message),
            None => Problem::new(&error::QUERY_INVALID, message),
        }
    })
}

/// Everything that was said of one key; never empty.
struct Values(Vec<String>);

impl Values {
    fn only(self) -> Result<String, Error> {
        let [value] =
            <[String; 1]>::try_from(self.0).map_err(|_| Error::custom("is given more than once"))?;
        Ok(value)
    }
}

impl IntoDeserializer<'_, Error> for Values {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ty;)*) => {
        $(fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            let text = self.only()?;
            let number = text.parse::<$type>().map_err(|_| {
                Error::custom(format!("must be a number from {} to {}, not {text:?}", <$type>::MIN, <$type>::MAX))
            })?;
            visitor.$visit(number)
        })*
    };
}

impl<'de> Deserializer<'de> for Values {
    type Error = Error;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.only()?)
    }

    numbers! {
        deserialize_i8 visit_i8 i8;
        deserialize_i16 visit_i16 i16;
        deserialize_i32 visit_i32 i32;
        deserialize_i64 visit_i64 i64;
        deserialize_u8 visit_u8 u8;
        deserialize_u16 visit_u16 u16;
        deserialize_u32 visit_u32 u32;
        deserialize_u64 visit_u64 u64;
        deserialize_f32 visit_f32 f32;
        deserialize_f64 visit_f64 f64;
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        match self.only()?.as_str() {
            "" | "true" => visitor.visit_bool(true),
            "false" => visitor.visit_bool(false),
            other => Err(Error::custom(format!("must be true or false, not {other:?}"))),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_seq(SeqDeserializer::new(self.0.into_iter().map(|value| Self(vec![value]))))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_enum(IntoDeserializer::<Error>::into_deserializer(self.only()?))
    }

    /// This is how a type asks for the value of a key that it does not know.
    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("is not known"))
    }

    forward_to_deserialize_any! {
        i128 u128 char str string bytes byte_buf unit unit_struct tuple tuple_struct map struct identifier
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "camelCase", default)]
    struct Page {
        after: Option<u64>,
        limit: u32,
        #[serde(rename = "type")]
        types: Vec<String>,
        correlation_id: Option<String>,
        verbose: bool,
        order: Order,
    }

    #[derive(Debug, Default, PartialEq, Deserialize)]
    #[serde(rename_all = "lowercase")]
    enum Order {
        #[default]
        Up,
        Down,
    }

    #[test]
    fn a_key_given_several_times_is_a_list() {
        let page: Page =
            parse("type=A%20b&after=7&type=C+d&limit=10&verbose&correlationId=x%26y&order=down").unwrap();
        let expected = Page {
            after: Some(7),
            limit: 10,
            types: vec!["A b".to_owned(), "C d".to_owned()],
            correlation_id: Some("x&y".to_owned()),
            verbose: true,
            order: Order::Down,
        };
        assert_eq!(page, expected);
        assert_eq!(parse::<Page>("").unwrap(), Page::default());
        assert!(!parse::<Page>("verbose=false").unwrap().verbose);
    }

    #[test]
    fn a_query_has_a_bounded_number_of_parameters() {
        let types = |count: usize| vec!["type=A"; count].join("&");
        assert_eq!(parse::<Page>(&types(MAX_PARAMETERS)).unwrap().types.len(), MAX_PARAMETERS);
        let keys: Vec<String> = (0..=MAX_PARAMETERS).map(|number| format!("{number}=")).collect();
        for many in [types(MAX_PARAMETERS + 1), keys.join("&"), "&a".repeat(100_000)] {
            let problem = format!("{:?}", parse::<Page>(&many).unwrap_err());
            assert!(problem.contains("more than 1000 parameters"), "{problem}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (query, field, said) in [
            ("after=-1", "after", "must be a number from 0 to 18446744073709551615, not \\\"-1\\\""),
            ("after=18446744073709551616", "after", "must be a number"),
            ("after=", "after", "must be a number"),
            ("limit=1.5", "limit", "must be a number"),
            ("limit=4294967296", "limit", "to 4294967295"),
            ("limit=1&limit=2", "limit", "more than once"),
            ("correlationId=a&correlationId=b", "correlationId", "more than once"),
            ("limt=1", "limt", "is not known"),
            ("type%00=1", "type\\0", "is not known"),
            ("verbose=yes", "verbose", "must be true or false"),
            ("order=sideways", "order", "unknown variant"),
            ("correlationId=%ff", "correlationId", "is not UTF-8"),
        ] {
            let problem = format!("{:?}", parse::<Page>(query).unwrap_err());
            assert!(problem.contains(&format!("field: Some(\"{field}\")")), "{query}: {problem}");
            assert!(problem.contains(said), "{query}: {problem}");
        }
        #[derive(Debug, Deserialize)]
        struct Needs {
            #[serde(rename = "id")]
            _id: String,
        }
        assert!(format!("{:?}", parse::<Needs>("").unwrap_err()).contains("field: Some(\"id\")"));
    }
}
