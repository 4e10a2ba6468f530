//! The Guardian: rules over the event log that notice a run which goes wrong.
//!
//! A rule reads what happened, and knows no judgement of a model. When it is met, the event `guardian.intervention` says so,
//! with the numbers of the events that met it. Beside that, a rule may send the agent a fixed text, or pause the run. It
//! never approves, raises, publishes or lets a run go on, and its texts have nothing that an agent wrote: neither a text nor
//! a number of an agent is passed on, so an agent cannot speak through it. See docs/design/guardian.md.

mod facts;
mod intervention;
mod rules;
mod run_guard;
pub(crate) mod watcher;

pub use rules::{CostRate, GuardianAction, GuardianRules, GuardianSettings, NoFileChange, RepetitionRule, SilenceRule};

#[cfg(test)]
mod tests;
