//! Projections that publish every event of some types.

use super::event::PublicEvent;
use super::publisher::Publisher;
use crate::projections::{Category, Model, Projection};
use mainstay_events::Event;
use mainstay_store::Tx;
use std::sync::Arc;

/// The events that a projection publishes, and their targets.
#[derive(Debug, Clone)]
pub(super) struct Forwarding {
    pub(super) name: String,
    pub(super) event_types: Vec<String>,
    pub(super) source_context: String,
    pub(super) targets: Vec<String>,
}

impl Publisher {
    /// The projections of [`Targets::forward`](super::Targets::forward). Add them to the projections of the program.
    pub fn forwardings(&self) -> impl Iterator<Item = Projection> {
        self.shared.forwardings.iter().cloned().map(|forwarding| self.forwarding(forwarding))
    }

    fn forwarding(&self, forwarding: Forwarding) -> Projection {
        let Forwarding { name, event_types, source_context, targets } = forwarding;
        let context = Arc::new((self.clone(), source_context, targets));
        Projection::new(name, Category::Integration).on(event_types).each(
            move |tx: Tx, _: Model, event: Event| {
                let context = context.clone();
                async move {
                    if event.is_erased() {
                        return Ok(());
                    }
                    let (publisher, source_context, targets) = &*context;
                    let event = PublicEvent::try_from(&event)?;
                    publisher.publish_in(&tx, &event, source_context, targets).await?;
                    Ok(())
                }
            },
        )
    }
}
