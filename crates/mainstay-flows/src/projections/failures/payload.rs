//! What the events of letters say. It is read from the log, which is where it is erased.

use super::letters::Letter;
use crate::error::{Error, Result};
use mainstay_events::{Log, Selection};
use serde_json::value::RawValue;

/// Most bytes of the payloads of one page of letters; those for which there is no room come without, and are asked for one
/// by one.
pub const MAX_PAYLOADS_BYTES: usize = 8 << 20;

/// Gives letters their payloads.
pub(super) async fn fill(log: &Log, letters: &mut [Letter]) -> Result<()> {
    let mut room = MAX_PAYLOADS_BYTES;
    for letter in letters {
        let Some(payload) = of(log, letter.position, &letter.event_id).await? else { continue };
        match room.checked_sub(payload.get().len()) {
            Some(left) => room = left,
            None => return Ok(()),
        }
        letter.payload = Some(payload);
    }
    Ok(())
}

/// The payload of an event. Nothing if it was erased or is damaged: a letter is no worse to deal with then.
pub(super) async fn of(log: &Log, position: u64, event_id: &str) -> Result<Option<Box<RawValue>>> {
    let one = Selection::all().after(position.saturating_sub(1)).until(position);
    let page = match log.read(&one, 1).await.map_err(Error::from) {
        Ok(page) => page,
        Err(error) if error.is_retryable() => return Err(error),
        Err(_) => return Ok(None),
    };
    let event = page.events.first().filter(|event| event.id() == event_id);
    let data = event.and_then(|event| event.data());
    Ok(data.and_then(|data| RawValue::from_string(data.to_owned()).ok()))
}
