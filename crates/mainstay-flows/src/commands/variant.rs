//! How serde sees a variant of an enum: a name and what it holds.

use super::codec::Unreadable;
use serde::de::value::{EnumAccessDeserializer, StrDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, MapAccess, VariantAccess, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;
use std::fmt;
use std::result::Result;

pub(super) const PLAIN: &str = "an application's events are one enum that derives Serialize and Deserialize, \
     without serde's tag, content or untagged";

/// The variant of this name with this data, which are JSON.
pub(super) fn read<T: DeserializeOwned>(name: &str, data: &str) -> Result<T, Unreadable> {
    T::deserialize(EnumAccessDeserializer::new(Stored { name, data })).map_err(|Refusal(reason)| reason)
}

/// What serde takes a type for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shape {
    /// An enum with variants of these names.
    Enum(&'static [&'static str]),
    /// A struct of this name.
    Struct(&'static str),
    /// Something else.
    Other,
}

/// What serde takes `T` for.
pub(super) fn shape<T: DeserializeOwned>() -> Shape {
    let mut shape = Shape::Other;
    // It always fails: what it asks for on the way is what is wanted.
    let _ = T::deserialize(Asked(&mut shape));
    shape
}

struct Asked<'a>(&'a mut Shape);

impl<'de> Deserializer<'de> for Asked<'_> {
    type Error = serde::de::value::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = Shape::Struct(name);
        self.deserialize_any(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = Shape::Struct(name);
        self.deserialize_any(visitor)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = Shape::Struct(name);
        self.deserialize_any(visitor)
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Self::Error> {
        Err(serde::de::Error::custom(PLAIN))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Self::Error> {
        *self.0 = Shape::Enum(variants);
        self.deserialize_any(visitor)
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit
        seq tuple tuple_struct map identifier ignored_any
    }
}

/// An event as serde writes a variant: `{"OrderPlaced": {…}}`, or `"OrderPlaced"` when it holds nothing.
pub(super) struct Written {
    pub(super) name: String,
    pub(super) data: Box<RawValue>,
}

impl<'de> Deserialize<'de> for Written {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> Visitor<'de> for Form {
            type Value = Written;

            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str(PLAIN)
            }

            fn visit_str<E: serde::de::Error>(self, name: &str) -> Result<Written, E> {
                Ok(Written { name: name.to_owned(), data: RawValue::NULL.to_owned() })
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Written, A::Error> {
                let plain = || serde::de::Error::custom(PLAIN);
                let (name, data) = map.next_entry()?.ok_or_else(plain)?;
                let rest: Option<(String, Box<RawValue>)> = map.next_entry()?;
                if rest.is_some() { Err(plain()) } else { Ok(Written { name, data }) }
            }
        }
        deserializer.deserialize_any(Form)
    }
}

/// An event as the log has it, in the form in which serde reads a variant.
struct Stored<'a> {
    name: &'a str,
    data: &'a str,
}

#[derive(Debug)]
struct Refusal(Unreadable);

impl serde::de::Error for Refusal {
    fn custom<T: fmt::Display>(reason: T) -> Self {
        Self(Unreadable::Invalid(reason.to_string()))
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self(Unreadable::UnknownType)
    }
}

impl std::error::Error for Refusal {}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

impl<'de> EnumAccess<'de> for Stored<'de> {
    type Error = Refusal;
    type Variant = Data<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Data<'de>), Refusal> {
        let variant = seed.deserialize(StrDeserializer::<Refusal>::new(self.name))?;
        Ok((variant, Data(self.data)))
    }
}

struct Data<'a>(&'a str);

type Json<'de> = serde_json::Deserializer<serde_json::de::StrRead<'de>>;

impl<'de> Data<'de> {
    fn read<T>(self, read: impl FnOnce(&mut Json<'de>) -> serde_json::Result<T>) -> Result<T, Refusal> {
        let mut json = serde_json::Deserializer::from_str(self.0);
        let value = read(&mut json).and_then(|value| json.end().map(|()| value));
        value.map_err(serde::de::Error::custom)
    }
}

impl<'de> VariantAccess<'de> for Data<'de> {
    type Error = Refusal;

    /// That it happened is all that is asked for.
    fn unit_variant(self) -> Result<(), Refusal> {
        Ok(())
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Refusal> {
        self.read(|json| seed.deserialize(json))
    }

    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, Refusal> {
        self.read(|json| json.deserialize_tuple(len, visitor))
    }

    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Refusal> {
        self.read(|json| json.deserialize_struct("", fields, visitor))
    }
}
