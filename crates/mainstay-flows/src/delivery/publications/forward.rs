//! Publishing every event of some types, without anybody asking for each.

use super::event::PublicEvent;
use super::publisher::Publisher;
use super::targets::{Slot, Targets, opened};
use crate::projections::{Category, Model, Projection};
use mainstay_events::Event;
use mainstay_store::Tx;
use std::sync::Arc;

impl Targets {
    /// A projection that publishes every event of these types to targets, each exactly once: its checkpoint and the
    /// publications are one transaction. Add it to the projections of the program. Events whose data were erased are
    /// passed over.
    pub fn forwarding(
        &self,
        name: impl Into<String>,
        event_types: &[&str],
        source_context: impl Into<String>,
        targets: &[&str],
    ) -> Projection {
        let source_context: Arc<str> = source_context.into().into();
        let targets: Arc<[String]> = targets.iter().map(|name| (*name).to_owned()).collect();
        let slot = self.slot.clone();
        Projection::new(name, Category::Integration).on(event_types.iter().copied()).each(
            move |tx: Tx, _: Model, event: Event| {
                let (slot, source, targets): (Slot, _, _) =
                    (slot.clone(), source_context.clone(), targets.clone());
                async move {
                    if event.is_erased() {
                        return Ok(());
                    }
                    let publisher = Publisher { shared: opened(&slot)? };
                    publisher
                        .publish_in(&tx, &PublicEvent::try_from(&event)?, &source, targets.iter())
                        .await?;
                    Ok(())
                }
            },
        )
    }
}
