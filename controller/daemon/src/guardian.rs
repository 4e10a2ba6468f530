//! The Guardian: rules over the event log that notice a run which goes wrong.
//!
//! A rule reads events, and never asks a model. When it matches, the event `guardian.intervention` records that, with
//! the numbers of the events that matched. In addition, a rule may send the agent a fixed text, or pause the run. It
//! never approves, raises, publishes or resumes a run, and its texts contain nothing that an agent wrote: neither a text nor
//! a number of an agent is passed on, so an agent cannot speak through it. See docs/design/guardian.md.

mod facts;
mod intervention;
mod rules;
mod run_guard;
pub(crate) mod watcher;

pub use rules::{CostRate, GuardianAction, GuardianRules, GuardianSettings, NoFileChange, RepetitionRule, SilenceRule};

#[cfg(test)]
mod tests;
