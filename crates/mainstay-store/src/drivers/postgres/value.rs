//! Values on PostgreSQL's wire.

use crate::{Error, Result, Row, Value};
use std::error::Error as StdError;
use std::sync::Arc;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{FromSql, IsNull, Kind, ToSql, Type};

/// A parameter, encoded as the type that the server expects at its place.
#[derive(Debug)]
pub(super) enum Parameter<'a> {
    One(&'a Value),
    /// One column of rows that stand one behind another, as a list.
    Column {
        values: &'a [Value],
        first: usize,
        width: usize,
    },
}

impl ToSql for Parameter<'_> {
    fn to_sql(
        &self,
        wanted: &Type,
        out: &mut BytesMut,
    ) -> std::result::Result<IsNull, Box<dyn StdError + Sync + Send>> {
        match self {
            Self::One(value) => encode(value, wanted, out),
            Self::Column { values, first, width } => {
                encode_list(values.iter().skip(*first).step_by(*width), wanted, out)
            }
        }
    }

    fn accepts(_: &Type) -> bool {
        true
    }

    tokio_postgres::types::to_sql_checked!();
}

type Encoded = std::result::Result<IsNull, Box<dyn StdError + Sync + Send>>;

/// The binary form of an array of one dimension.
fn encode_list<'a>(
    values: impl ExactSizeIterator<Item = &'a Value>,
    wanted: &Type,
    out: &mut BytesMut,
) -> Encoded {
    let Kind::Array(member) = wanted.kind() else { return Err(format!("a list given for {wanted}").into()) };
    let count = i32::try_from(values.len())?;
    let (dimensions, lowest) = (1_i32, 1_i32);
    // The server finds out by itself whether there are nulls.
    for word in [dimensions, 0, member.oid().cast_signed(), count, lowest] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    for value in values {
        let at = out.len();
        out.extend_from_slice(&(-1_i32).to_be_bytes());
        if let IsNull::No = encode(value, member, out)? {
            let length = i32::try_from(out.len() - at - 4)?;
            out[at..at + 4].copy_from_slice(&length.to_be_bytes());
        }
    }
    Ok(IsNull::No)
}

fn encode(value: &Value, wanted: &Type, out: &mut BytesMut) -> Encoded {
    match (value, wanted) {
        (Value::Null, _) => Ok(IsNull::Yes),
        (Value::Bool(value), &Type::BOOL) => value.to_sql(wanted, out),
        (Value::Int(value), &Type::INT8) => value.to_sql(wanted, out),
        (Value::Int(value), &Type::INT4) => i32::try_from(*value)?.to_sql(wanted, out),
        (Value::Int(value), &Type::INT2) => i16::try_from(*value)?.to_sql(wanted, out),
        (Value::Int(value), &Type::FLOAT8) => (*value as f64).to_sql(wanted, out),
        (Value::Real(value), &Type::FLOAT8) => value.to_sql(wanted, out),
        (Value::Real(value), &Type::FLOAT4) => (*value as f32).to_sql(wanted, out),
        (Value::Text(value), &Type::JSONB) => {
            // The binary form of jsonb is its version and then text.
            out.extend_from_slice(&[1]);
            out.extend_from_slice(value.as_bytes());
            Ok(IsNull::No)
        }
        (Value::Text(value), &Type::UUID) => {
            out.extend_from_slice(uuid::Uuid::try_parse(value)?.as_bytes());
            Ok(IsNull::No)
        }
        (Value::Text(value), wanted) if is_text(wanted) => {
            out.extend_from_slice(value.as_bytes());
            Ok(IsNull::No)
        }
        (Value::Blob(value), &Type::BYTEA) => value.to_sql(wanted, out),
        (value, wanted) => Err(format!("{} given where the server expects {wanted}", value.kind()).into()),
    }
}

fn is_text(kind: &Type) -> bool {
    [Type::TEXT, Type::VARCHAR, Type::BPCHAR, Type::NAME, Type::UNKNOWN, Type::JSON].contains(kind)
}

/// A column as it came, decoded by its type.
struct Column(Value);

impl<'a> FromSql<'a> for Column {
    fn from_sql(kind: &Type, raw: &'a [u8]) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(match *kind {
            Type::BOOL => Value::Bool(FromSql::from_sql(kind, raw)?),
            Type::INT8 => Value::Int(FromSql::from_sql(kind, raw)?),
            Type::INT4 => Value::Int(i32::from_sql(kind, raw)?.into()),
            Type::INT2 => Value::Int(i16::from_sql(kind, raw)?.into()),
            Type::OID => Value::Int(u32::from_sql(kind, raw)?.into()),
            Type::FLOAT8 => Value::Real(FromSql::from_sql(kind, raw)?),
            Type::FLOAT4 => Value::Real(f32::from_sql(kind, raw)?.into()),
            Type::NUMERIC => numeric(raw)?,
            Type::BYTEA => Value::Blob(raw.to_owned()),
            Type::UUID => Value::Text(uuid::Uuid::from_slice(raw)?.hyphenated().to_string()),
            Type::JSONB => Value::Text(std::str::from_utf8(raw.get(1..).unwrap_or_default())?.to_owned()),
            Type::VOID => Value::Null,
            _ if is_text(kind) => Value::Text(std::str::from_utf8(raw)?.to_owned()),
            _ => return Err(format!("type {kind} is not one of Mainstay's; cast it in the statement").into()),
        }))
    }

    fn from_sql_null(_: &Type) -> std::result::Result<Self, Box<dyn StdError + Sync + Send>> {
        Ok(Self(Value::Null))
    }

    fn accepts(_: &Type) -> bool {
        true
    }
}

/// `sum` over BIGINT is NUMERIC here and an integer on SQLite: whole numbers that fit come out as integers on both.
fn numeric(raw: &[u8]) -> std::result::Result<Value, Box<dyn StdError + Sync + Send>> {
    const BASE: i64 = 10_000;
    const NEGATIVE: u16 = 0x4000;
    let words: Vec<u16> = raw.chunks_exact(2).map(|pair| u16::from_be_bytes([pair[0], pair[1]])).collect();
    let [_count, weight, sign, _scale, digits @ ..] = words.as_slice() else {
        return Err("short numeric".into());
    };
    if *sign != 0 && *sign != NEGATIVE {
        return Err("numeric is not a number".into());
    }
    let weight = i32::from(weight.cast_signed());
    let is_whole = digits.len() as i32 <= weight + 1;
    if is_whole {
        let places = (weight + 1).max(0) as usize;
        let digit = |place: usize| i64::from(digits.get(place).copied().unwrap_or(0));
        // Counted downwards from 0, so that the smallest i64 fits.
        let negated =
            (0..places).try_fold(0_i64, |sum, place| sum.checked_mul(BASE)?.checked_sub(digit(place)));
        let value = if *sign == NEGATIVE { negated } else { negated.and_then(i64::checked_neg) };
        if let Some(value) = value {
            return Ok(Value::Int(value));
        }
    }
    // Through decimal text, so that the nearest float comes out, as SQLite has it.
    let places = (digits.len() as i32).max(weight + 1);
    let mut text = String::from(if *sign == NEGATIVE { "-0" } else { "0" });
    for place in 0..places {
        let digit = digits.get(place as usize).copied().unwrap_or(0);
        text.push_str(&format!("{digit:04}"));
    }
    Ok(Value::Real(format!("{text}e{}", 4 * (weight + 1 - places)).parse()?))
}

/// Takes the rows of a result over.
pub(super) fn rows(found: &[tokio_postgres::Row]) -> Result<Vec<Row>> {
    let Some(first) = found.first() else { return Ok(Vec::new()) };
    let columns: Arc<[String]> = first.columns().iter().map(|column| column.name().to_owned()).collect();
    let value = |row: &tokio_postgres::Row, index: usize| match row.try_get::<_, Column>(index) {
        Ok(column) => Ok(column.0),
        Err(error) => Err(Error::Decode {
            column: format!("{:?}", columns[index]),
            reason: StdError::source(&error).map_or_else(|| error.to_string(), ToString::to_string),
        }),
    };
    found
        .iter()
        .map(|row| {
            let values = (0..columns.len()).map(|index| value(row, index)).collect::<Result<_>>()?;
            Ok(Row::new(columns.clone(), values))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(weight: i16, sign: u16, digits: &[u16]) -> Vec<u8> {
        let head = [digits.len() as u16, weight.cast_unsigned(), sign, 0];
        head.iter().chain(digits).flat_map(|word| word.to_be_bytes()).collect()
    }

    #[test]
    fn numerics_that_are_whole_and_fit_are_integers() {
        for (weight, sign, digits, expected) in [
            (0, 0, &[][..], Value::Int(0)),
            (0, 0, &[42], Value::Int(42)),
            (1, 0x4000, &[1, 2345], Value::Int(-12_345)),
            (2, 0, &[5], Value::Int(500_000_000)),
            (4, 0, &[922, 3372, 368, 5477, 5807], Value::Int(i64::MAX)),
            (4, 0x4000, &[922, 3372, 368, 5477, 5808], Value::Int(i64::MIN)),
            (0, 0, &[2, 5000], Value::Real(2.5)),
            (-1, 0x4000, &[2500], Value::Real(-0.25)),
            (-1, 0, &[3333, 3333, 3333, 3333, 3333], Value::Real(1.0 / 3.0)),
            (-2, 0, &[25], Value::Real(0.000_000_25)),
        ] {
            assert_eq!(numeric(&encoded(weight, sign, digits)).unwrap(), expected);
        }
        assert!(matches!(numeric(&encoded(4, 0, &[922, 3372, 368, 5477, 5808])).unwrap(), Value::Real(_)));
        assert!(numeric(&encoded(0, 0xC000, &[])).is_err(), "NaN");
        assert!(numeric(&[1, 2]).is_err());
    }
}
