//! Messages of the operator in the conversation of an agent: where each goes, and how it stays there.
//!
//! Pure. The history of the agent does not hold an added message, so each later request would lack it: the model would
//! forget it, and the provider's prompt cache would break at its place. A message is therefore a kept edit. It has an
//! anchor, the item of the conversation that it follows, and goes back to the same place in every later request that
//! holds the anchor. The reasons: docs/design/kept-edits.md.

mod anchor;
mod facts;
mod item;
mod member;
mod message;
mod raw;
mod scan;
mod splice;
mod store;
#[cfg(test)]
mod tests;

pub use anchor::PlacedAnchor;
pub use facts::{Conversation, LastItem};
pub use message::{CallInjection, InjectionPlan, ListChange, NewMessage};
pub use scan::scan;
pub use splice::{Place, splices};
pub use store::MessageStore;
