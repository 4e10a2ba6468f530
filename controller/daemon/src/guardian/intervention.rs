//! Texts of the Guardian: an event for people, and a fixed text for an agent.
//!
//! Pure. The texts contain nothing from an agent, and the texts for agents contain no limits: a run that knows its
//! limits works just below them.

use serde_json::json;
use sluice_contract::Usd;
use sluice_state::events::{EventSource, NewLoggedEvent};
use sluice_state::sandboxes::Sandbox;

use super::run_guard::{Evidence, Hit, Rule};

/// Type of the events of the Guardian.
pub(super) const INTERVENTION: &str = "guardian.intervention";

/// Returns the text that an agent gets.
pub(super) fn nudge(rule: Rule) -> &'static str {
    match rule {
        Rule::RepeatedTool => {
            "The same tool was called again and again with the same input. Read the results that you have, and take another \
             way, or say what prevents you from going on."
        }
        Rule::RepeatedError => {
            "The same error came again and again. Do not repeat what fails: find its cause, take another way, or say what \
             prevents you from going on."
        }
        Rule::CostRate => {
            "This run spends its budget fast. Do the next step with few and short calls, and leave out what the task does \
             not need."
        }
        Rule::NoFileChange => {
            "Many calls were made, and no file has changed. Do the next step of the task now, or say what prevents you from \
             going on."
        }
        Rule::Silence => "Nothing was heard of this run for a while. Go on with the task, or say what you wait for.",
    }
}

/// Returns the reason that people read.
pub(super) fn reason(rule: Rule) -> &'static str {
    match rule {
        Rule::RepeatedTool => "the same tool call was repeated",
        Rule::RepeatedError => "the same error was repeated",
        Rule::CostRate => "the run costs more than its rate",
        Rule::NoFileChange => "calls go on, and no file changes",
        Rule::Silence => "nothing happens",
    }
}

/// Result of an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Performed {
    /// The action is done.
    Done,
    /// The action was no longer possible, for example because the run has ended.
    NotPossible,
}

/// Returns the event of a hit.
pub(super) fn intervention(run: &Sandbox, hit: &Hit, performed: Performed, now_us: i64) -> NewLoggedEvent {
    let Evidence { count, events, seconds, cost } = &hit.evidence;
    let data = json!({
        "rule": hit.rule.as_str(),
        "reason": reason(hit.rule),
        "action": hit.action.as_str(),
        "performed": performed == Performed::Done,
        "evidence": {
            "count": count, "events": events, "seconds": seconds,
            "cost_usd": cost.map(|cost| Usd::from_nanos(cost).to_string()),
        },
    });
    NewLoggedEvent {
        attempt: Some(run.key.attempt),
        agent_id: Some(run.agent_id.clone()),
        source: EventSource::System,
        ..NewLoggedEvent::of_run(&run.owner, run.key.run_id.as_str(), INTERVENTION, data.to_string(), now_us)
    }
}
