//! How an event lies in the database: a header and a payload, each with a checksum.
//!
//! The payload (data and metadata) can be erased; the header stays, with its own checksum and the one of the payload
//! that was. A header's checksum also covers the position, so that a row that turns up at another place is noticed.
//!
//! ```text
//! header:  version u8 · timestamp i64 · payload crc u32 · category u8 · flags u16 · schema version u32
//!          · id · type · correlation id · what the flags announce · tags · crc u32
//! payload: data · metadata, or once it was erased: 0 · crc u32 · zeros, as long as what was there
//! ```
//! An erasure leaves a mark with a checksum instead of nothing: a damaged row can come out as one without a payload, and
//! must not pass for an erased one. The mark is as long as the payload was, so that SQLite overwrites the row in place
//! and moves nothing; that its old bytes are gone then does not rest on how a database rearranges its pages.
//!
//! Numbers are little-endian; texts are a length (LEB128) and bytes. A new field is a new flag at the end, so that old
//! records stay readable; a new layout is a new version.

use crate::error::Error;
use crate::event::{Category, Event, Fields, Payload, Span};
use mainstay_store::{Row, Value};

const VERSION: u8 = 1;
const FIXED_BYTES: usize = 20;
const CHECKSUM_BYTES: usize = 4;

const CONTEXT: u16 = 1;
const TENANT: u16 = 1 << 1;
const STREAM: u16 = 1 << 2;
const CAUSATION: u16 = 1 << 3;
const TRACE: u16 = 1 << 4;
const TRACE_PARENT: u16 = 1 << 5;
const IDEMPOTENCY: u16 = 1 << 6;
const SCOPE: u16 = 1 << 7;

/// The length of a fingerprint.
pub(crate) const FINGERPRINT_BYTES: usize = 16;

/// Everything a header holds, before it is one.
pub(crate) struct Head<'a> {
    pub(crate) position: u64,
    pub(crate) timestamp_ms: i64,
    pub(crate) payload_checksum: u32,
    pub(crate) category: Category,
    pub(crate) schema_version: u32,
    pub(crate) id: &'a str,
    pub(crate) event_type: &'a str,
    pub(crate) correlation_id: &'a str,
    pub(crate) context: Option<&'a str>,
    pub(crate) tenant: Option<&'a str>,
    pub(crate) stream: Option<(&'a str, &'a str, u64)>,
    pub(crate) causation_id: Option<&'a str>,
    pub(crate) trace: Option<(&'a str, &'a str, Option<&'a str>)>,
    pub(crate) idempotency: Option<(&'a str, [u8; FINGERPRINT_BYTES])>,
    pub(crate) scope: Option<(&'a str, u64)>,
    pub(crate) tags: &'a [String],
}

/// Writes a header.
pub(crate) fn encode_header(head: &Head<'_>) -> Vec<u8> {
    let tag_bytes: usize = head.tags.iter().map(|tag| tag.len() + 2).sum();
    let mut out = Vec::with_capacity(FIXED_BYTES + 192 + tag_bytes);
    let mut flags = 0;
    for (flag, is_there) in [
        (CONTEXT, head.context.is_some()),
        (TENANT, head.tenant.is_some()),
        (STREAM, head.stream.is_some()),
        (CAUSATION, head.causation_id.is_some()),
        (TRACE, head.trace.is_some()),
        (TRACE_PARENT, head.trace.is_some_and(|(_, _, parent)| parent.is_some())),
        (IDEMPOTENCY, head.idempotency.is_some()),
        (SCOPE, head.scope.is_some()),
    ] {
        flags |= if is_there { flag } else { 0 };
    }
    out.push(VERSION);
    out.extend(head.timestamp_ms.to_le_bytes());
    out.extend(head.payload_checksum.to_le_bytes());
    out.push(head.category as u8);
    out.extend(u16::to_le_bytes(flags));
    out.extend(head.schema_version.to_le_bytes());
    put_text(&mut out, head.id);
    put_text(&mut out, head.event_type);
    put_text(&mut out, head.correlation_id);
    for text in [head.context, head.tenant].into_iter().flatten() {
        put_text(&mut out, text);
    }
    if let Some((stream_type, stream_id, version)) = head.stream {
        put_text(&mut out, stream_type);
        put_text(&mut out, stream_id);
        put_number(&mut out, version);
    }
    if let Some(causation_id) = head.causation_id {
        put_text(&mut out, causation_id);
    }
    if let Some((trace_id, span_id, parent)) = head.trace {
        for text in [Some(trace_id), Some(span_id), parent].into_iter().flatten() {
            put_text(&mut out, text);
        }
    }
    if let Some((key, fingerprint)) = head.idempotency {
        put_text(&mut out, key);
        out.extend(fingerprint);
    }
    if let Some((key, version)) = head.scope {
        put_text(&mut out, key);
        put_number(&mut out, version);
    }
    put_number(&mut out, head.tags.len() as u64);
    head.tags.iter().for_each(|tag| put_text(&mut out, tag));
    let checksum = header_checksum(head.position, &out);
    out.extend(checksum.to_le_bytes());
    out
}

/// Writes a payload.
pub(crate) fn encode_payload(data: &str, metadata: Option<&str>) -> Vec<u8> {
    let metadata = metadata.unwrap_or_default();
    let mut out = Vec::with_capacity(data.len() + metadata.len() + 6);
    put_text(&mut out, data);
    out.extend(metadata.as_bytes());
    out
}

/// The first byte of an erased payload. Of no other: data is never empty.
const ERASED: u8 = 0;

/// What takes the place of a payload of `length` bytes.
pub(crate) fn erased_payload(position: u64, header: &[u8], length: usize) -> Vec<u8> {
    let mut out = vec![ERASED];
    out.extend(erasure_checksum(position, header).to_le_bytes());
    out.resize(out.len().max(length), 0);
    out
}

/// Whether a payload was erased, or what is wrong with the mark.
fn is_erased(position: u64, header: &[u8], payload: &[u8]) -> Result<bool, &'static str> {
    match payload.first() {
        Some(&ERASED) if payload == erased_payload(position, header, payload.len()) => Ok(true),
        Some(&ERASED) => Err("the mark of an erasure is wrong"),
        _ => Ok(false),
    }
}

fn erasure_checksum(position: u64, header: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(b"erased");
    hasher.update(&position.to_le_bytes());
    hasher.update(header);
    hasher.finalize()
}

/// The checksum of a payload.
pub(crate) fn payload_checksum(payload: &[u8]) -> u32 {
    crc32fast::hash(payload)
}

/// Reads an event, or says what is wrong with it. Without a payload only the header is read.
pub(crate) fn decode(
    position: u64,
    header: Vec<u8>,
    mut payload: Option<Vec<u8>>,
) -> Result<Event, &'static str> {
    let body = header.len().checked_sub(CHECKSUM_BYTES).filter(|length| *length >= FIXED_BYTES);
    let body = body.ok_or("the header is too short")?;
    let stored = u32::from_le_bytes(fixed(&header, body));
    if header_checksum(position, &header[..body]) != stored {
        return Err("the header's checksum is wrong");
    }
    // Only now may the content be believed.
    let fields = Reader::new(&header[..body]).fields()?;
    if payload.as_ref().map_or(Ok(false), |payload| is_erased(position, &header, payload))? {
        payload = None;
    }
    let mut data = Span::default();
    if let Some(payload) = &payload {
        if payload_checksum(payload) != fields.payload_checksum {
            return Err("the payload's checksum is wrong");
        }
        data = Reader::new(payload).text()?;
        text_of(&payload[data.end()..])?;
    }
    let payload = payload.map_or(Payload::Nowhere, Payload::Apart);
    Ok(Event::of(position, header, payload, fields, data))
}

/// As [`decode`], for what this process wrote itself and has had in its memory ever since: nothing is checked again, which
/// is most of what reading an event costs. Header and payload stand one behind the other. Nobody has erased it.
pub(crate) fn decode_own(position: u64, bytes: &[u8], payload_at: usize) -> Result<Event, &'static str> {
    let (header, payload) = bytes.split_at_checked(payload_at).ok_or("the header is cut off")?;
    let body = header.len().checked_sub(CHECKSUM_BYTES).filter(|length| *length >= FIXED_BYTES);
    let body = &header[..body.ok_or("the header is too short")?];
    let fields = Reader { is_own: true, ..Reader::new(body) }.fields()?;
    let data = Reader { is_own: true, ..Reader::new(payload) }.text()?;
    Ok(Event::of(position, bytes.to_vec(), Payload::Behind(payload_at), fields, data))
}

/// What is wrong when there is no event at a position.
pub(crate) fn missing(position: u64) -> Error {
    Error::Corrupt { position, reason: "it is missing".to_owned() }
}

/// The event of a row `(position, header, payload)`.
pub(crate) fn event_of(row: Row) -> crate::Result<Event> {
    let [Value::Int(position), Value::Blob(header), payload] = values(row) else {
        return Err(Error::Corrupt { position: 0, reason: "the row has another shape".to_owned() });
    };
    let position = position as u64;
    let decoded = match payload {
        Value::Blob(payload) => decode(position, header, Some(payload)),
        // Also an erased one is there: nothing, or something else, is damage.
        _ => Err("the payload is missing"),
    };
    decoded.map_err(|reason| Error::Corrupt { position, reason: reason.to_owned() })
}

/// The event of a row `(position, header)`, without its payload.
pub(crate) fn header_of(row: &Row) -> crate::Result<Event> {
    let (position, header) = (row.get(0)?, row.get(1)?);
    decode(position, header, None).map_err(|reason| Error::Corrupt { position, reason: reason.to_owned() })
}

fn values(row: Row) -> [Value; 3] {
    row.into_values().try_into().unwrap_or([Value::Null, Value::Null, Value::Null])
}

fn header_checksum(position: u64, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&position.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

fn fixed<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    let mut out = [0; N];
    if let Some(found) = bytes.get(at..at + N) {
        out.copy_from_slice(found);
    }
    out
}

fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_text(out: &mut Vec<u8>, text: &str) {
    put_number(out, text.len() as u64);
    out.extend(text.as_bytes());
}

fn text_of(bytes: &[u8]) -> Result<&str, &'static str> {
    std::str::from_utf8(bytes).map_err(|_| "a text is not UTF-8")
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Whether this process wrote it, so that its texts are texts.
    is_own: bool,
}

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, is_own: false }
    }

    fn fields(mut self) -> Result<Fields, &'static str> {
        let bytes = self.bytes;
        if bytes[0] != VERSION {
            return Err("the record was written by a newer program");
        }
        let flags = u16::from_le_bytes(fixed(bytes, 14));
        let has = |flag| flags & flag != 0;
        self.at = FIXED_BYTES;
        let mut fields = Fields {
            timestamp_ms: i64::from_le_bytes(fixed(bytes, 1)),
            payload_checksum: u32::from_le_bytes(fixed(bytes, 9)),
            category: Category::from_byte(bytes[13]).ok_or("the category is unknown")?,
            schema_version: u32::from_le_bytes(fixed(bytes, 16)),
            id: self.text()?,
            event_type: self.text()?,
            correlation_id: self.text()?,
            ..Fields::default()
        };
        fields.context = self.text_if(has(CONTEXT))?;
        fields.tenant = self.text_if(has(TENANT))?;
        if has(STREAM) {
            fields.stream = Some((self.text()?, self.text()?, self.number()?));
        }
        fields.causation_id = self.text_if(has(CAUSATION))?;
        if has(TRACE) {
            fields.trace = Some((self.text()?, self.text()?, self.text_if(has(TRACE_PARENT))?));
        }
        if has(IDEMPOTENCY) {
            let key = self.text()?;
            fields.idempotency = Some((key, fixed(bytes, self.at)));
            self.at += FINGERPRINT_BYTES;
        }
        if has(SCOPE) {
            fields.scope = Some((self.text()?, self.number()?));
        }
        fields.tag_count = self.number()? as u32;
        fields.tags_at = self.at as u32;
        for _ in 0..fields.tag_count {
            self.text()?;
        }
        Ok(fields)
    }

    fn number(&mut self) -> Result<u64, &'static str> {
        let (number, next) = number_at(self.bytes, self.at).ok_or("a number is cut off")?;
        self.at = next;
        Ok(number)
    }

    fn text(&mut self) -> Result<Span, &'static str> {
        let length = self.number()? as usize;
        let span = Span::new(self.at, length);
        let bytes = self.bytes.get(self.at..self.at.saturating_add(length)).ok_or("a text is cut off")?;
        if !self.is_own {
            text_of(bytes)?;
        }
        self.at += length;
        Ok(span)
    }

    fn text_if(&mut self, is_there: bool) -> Result<Option<Span>, &'static str> {
        if is_there { self.text().map(Some) } else { Ok(None) }
    }
}

/// The number at `at`, and where it ends.
pub(crate) fn number_at(bytes: &[u8], mut at: usize) -> Option<(u64, usize)> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *bytes.get(at)?;
        at += 1;
        number |= u64::from(byte & 0x7F) << shift;
        if byte < 0x80 {
            return Some((number, at));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn head<'a>(tags: &'a [String], text: &'a str) -> Head<'a> {
        Head {
            position: 7,
            timestamp_ms: 1_700_000_000_000,
            payload_checksum: payload_checksum(&encode_payload("{\"a\":1}", Some("{}"))),
            category: Category::Fat,
            schema_version: 3,
            id: "evt-1",
            event_type: "OrderPlaced",
            correlation_id: "corr-1",
            context: Some("orders"),
            tenant: Some("acme"),
            stream: Some(("order", text, 300)),
            causation_id: Some(text),
            trace: Some(("t", "s", Some("p"))),
            idempotency: Some((text, [9; FINGERPRINT_BYTES])),
            scope: Some(("tenant:a:b:c", 1 << 40)),
            tags,
        }
    }

    #[test]
    fn what_is_written_is_read_back() {
        let tags = vec!["order:1".to_owned(), "customer:ä".to_owned()];
        let payload = encode_payload("{\"a\":1}", Some("{}"));
        let event = decode(7, encode_header(&head(&tags, "ord-1")), Some(payload)).unwrap();
        assert_eq!((event.position(), event.id(), event.event_type()), (7, "evt-1", "OrderPlaced"));
        assert_eq!(event.tags().collect::<Vec<_>>(), ["order:1", "customer:ä"]);
        let stream = event.stream().unwrap();
        assert_eq!((stream.stream_type, stream.id, stream.version), ("order", "ord-1", 300));
        assert_eq!((event.data(), event.metadata()), (Some("{\"a\":1}"), Some("{}")));
        assert_eq!(event.trace().unwrap().parent_span_id.as_deref(), Some("p"));
        assert_eq!(event.scope(), Some(("tenant:a:b:c", 1 << 40)));
        assert_eq!((event.context(), event.tenant()), (Some("orders"), Some("acme")));
        assert_eq!(event.idempotency_key(), Some("ord-1"));
        assert_eq!((event.category(), event.schema_version()), (Category::Fat, 3));
    }

    #[test]
    fn an_erased_payload_leaves_a_good_header() {
        let header = encode_header(&head(&[], "x"));
        let event = decode(7, header.clone(), Some(erased_payload(7, &header, 40))).unwrap();
        assert!(event.is_erased() && event.data().is_none() && event.metadata().is_none());
    }

    #[test]
    fn a_row_at_another_place_is_noticed() {
        assert!(decode(8, encode_header(&head(&[], "x")), None).is_err());
    }

    #[test]
    fn every_flipped_bit_of_an_erased_payload_is_noticed() {
        let header = encode_header(&head(&[], "x"));
        for length in [0, 5, 40] {
            let mark = erased_payload(7, &header, length);
            assert_eq!(mark.len(), length.max(5));
            for bit in 0..mark.len() * 8 {
                let mut damaged = mark.clone();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(decode(7, header.clone(), Some(damaged)).is_err(), "bit {bit} of {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn every_flipped_bit_is_noticed(bit in 0_usize..4096, text in "[a-z]{1,20}") {
            let tags = vec![text.clone()];
            let (header, payload) = (encode_header(&head(&tags, &text)), encode_payload("{\"a\":1}", Some("{}")));
            let mut whole = [&header[..], &payload[..]].concat();
            let bit = bit % (whole.len() * 8);
            whole[bit / 8] ^= 1 << (bit % 8);
            let (header, payload) = whole.split_at(header.len());
            prop_assert!(decode(7, header.to_vec(), Some(payload.to_vec())).is_err());
        }

        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            drop(decode(1, bytes.clone(), Some(bytes.clone())));
            // The same with a checksum that fits, so that the reader itself is reached.
            if bytes.len() >= FIXED_BYTES {
                bytes[0] = VERSION;
                let checksum = header_checksum(1, &bytes);
                bytes.extend(checksum.to_le_bytes());
                drop(decode(1, bytes, None));
            }
        }
    }
}
