//! The position of one turn among the events of a worker's run, and the tokens of its calls.
//!
//! Pure. A turn begins when the worker has its message, and is over when the worker waits. Calls of the turn that end later
//! count as long as its client waits for them, and with the next turn otherwise.

use std::collections::BTreeSet;

use serde_json::Value;
use sluice_state::chats::ChatTurn;
use sluice_state::ledger::TokenSums;

use super::translation::TurnEvent;

/// Maximum number of calls that have not ended. A sidecar has fewer calls at once.
const OPEN_CALLS_MAX: usize = 1000;
/// Maximum number of messages during one turn that are known.
const MESSAGES_MAX: usize = 1000;

/// Position of an event relative to the turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventPlace {
    /// Before the turn, or after it.
    Outside,
    /// In the turn.
    Inside,
    /// The turn is over.
    End,
    /// The message of the turn was withdrawn.
    Withdrawn,
}

/// Finds the events and the calls of one turn.
#[derive(Debug)]
pub(crate) struct TurnWatch {
    message_id: Option<String>,
    /// Messages after the message of the turn.
    later: BTreeSet<String>,
    has_begun: bool,
    is_over: bool,
    is_next: bool,
    open_calls: BTreeSet<String>,
    tokens: TokenSums,
}

impl TurnWatch {
    /// Watches for a turn. The first event must be the one after its `begin_seq`.
    pub(crate) fn new(turn: &ChatTurn) -> Self {
        let message_id = turn.message.as_ref().map(|(id, _)| id.clone());
        Self {
            has_begun: message_id.is_none(),
            message_id,
            later: BTreeSet::new(),
            is_over: false,
            is_next: false,
            open_calls: BTreeSet::new(),
            tokens: TokenSums::default(),
        }
    }

    /// Takes an event of the run.
    pub(crate) fn event(&mut self, event: TurnEvent<'_>) -> EventPlace {
        let TurnEvent { event_type, data, is_system } = event;
        if event_type.starts_with("llm.") && is_system {
            self.call(event_type, data);
        }
        if self.is_over {
            // From here on, calls belong to the next turn.
            self.is_next |= is_system && event_type == "message.queued" && data["message_type"] == "user_message";
            return EventPlace::Outside;
        }
        if event_type == "message.queued"
            && is_system
            && self.later.len() < MESSAGES_MAX
            && let Some(id) = data["message_id"].as_str()
        {
            self.later.insert(id.to_owned());
        }
        if !self.has_begun {
            let is_own = self.message_id.is_some() && data["message_id"].as_str() == self.message_id.as_deref();
            match event_type {
                "message.deleted" if is_system && is_own => {
                    self.is_over = true;
                    return EventPlace::Withdrawn;
                }
                "message.delivered" if is_system && is_own => self.has_begun = true,
                "agent.message_injected" if is_own => self.has_begun = true,
                _ => {}
            }
            return EventPlace::Outside;
        }
        if event_type == "agent.waiting" && !is_system {
            if !self.is_end(&data["after"], data.get("after").is_some()) {
                return EventPlace::Outside;
            }
            self.is_over = true;
            return EventPlace::End;
        }
        EventPlace::Inside
    }

    /// Returns whether the worker waits after this turn. A report can come late, or twice, and then concerns an earlier turn.
    fn is_end(&self, after: &Value, is_named: bool) -> bool {
        match after.as_str() {
            Some(id) => self.message_id.as_deref() == Some(id) || self.later.contains(id),
            None => !is_named || self.message_id.is_none(),
        }
    }

    /// Returns whether the worker has the message.
    pub(crate) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns whether no call is known to be in progress.
    pub(crate) fn is_settled(&self) -> bool {
        self.open_calls.is_empty() || self.is_next
    }

    /// Returns the tokens of the calls of the turn.
    pub(crate) fn tokens(&self) -> &TokenSums {
        &self.tokens
    }

    fn call(&mut self, event_type: &str, data: &Value) {
        let id = data["call_id"].as_str().unwrap_or_default();
        if self.is_next {
            return;
        }
        if event_type == "llm.call_started" && self.open_calls.len() < OPEN_CALLS_MAX {
            self.open_calls.insert(id.to_owned());
        }
        if event_type != "llm.call" {
            return;
        }
        self.open_calls.remove(id);
        let usage = &data["usage"];
        let TokenSums { cache_write, cached_input, input, output, reasoning, total } = &mut self.tokens;
        let sums = [
            ("cache_write", cache_write),
            ("cached_input", cached_input),
            ("input", input),
            ("output", output),
            ("reasoning", reasoning),
            ("total", total),
        ];
        for (name, sum) in sums {
            if let Some(tokens) = usage[name].as_u64() {
                *sum = Some(sum.unwrap_or_default().saturating_add(i128::from(tokens)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use sluice_state::messages::MessageState;

    use super::*;

    fn watch(message: Option<&str>) -> TurnWatch {
        let message = message.map(|id| (id.to_owned(), MessageState::Queued));
        TurnWatch::new(&ChatTurn { number: 1, message, is_resumable: false, begin_seq: 0, interrupts: 0, end: None })
    }

    fn see(watch: &mut TurnWatch, event_type: &str, data: &Value) -> EventPlace {
        let is_system = !event_type.starts_with("agent.");
        watch.event(TurnEvent { event_type, data, is_system })
    }

    #[test]
    fn a_turn_is_from_its_message_to_the_wait() {
        use EventPlace::{End, Inside, Outside};
        let mut turn = watch(Some("m2"));
        let text = json!({ "text": "x" });
        let of = |id: &str| json!({ "message_id": id, "message_type": "user_message" });
        for (event_type, data, place) in [
            ("agent.assistant_message", &text, Outside),
            ("agent.message_injected", &of("m1"), Outside),
            ("agent.waiting", &json!({}), Outside),
            ("agent.message_injected", &of("m2"), Outside),
            ("message.delivered", &of("m2"), Inside),
            ("agent.assistant_message", &text, Inside),
            ("agent.waiting", &json!({}), End),
            ("agent.assistant_message", &text, Outside),
            ("agent.waiting", &json!({}), Outside),
        ] {
            assert_eq!(see(&mut turn, event_type, data), place, "{event_type} {data}");
        }
        assert_eq!(see(&mut watch(None), "agent.assistant_message", &text), Inside, "the first has no message");
        let mut delivered = watch(Some("m2"));
        assert_eq!(see(&mut delivered, "message.delivered", &of("m2")), Outside);
        assert!(delivered.has_begun(), "a worker need not report it");
        assert_eq!(see(&mut watch(Some("m2")), "message.deleted", &of("m2")), EventPlace::Withdrawn);
    }

    #[test]
    fn a_wait_after_an_earlier_message_ends_nothing() {
        let begun = || {
            let mut turn = watch(Some("m2"));
            see(&mut turn, "message.delivered", &json!({ "message_id": "m2" }));
            see(&mut turn, "message.queued", &json!({ "message_id": "m3", "message_type": "interrupt" }));
            turn
        };
        for (after, place) in [
            (json!({ "after": "m1" }), EventPlace::Outside),
            (json!({ "after": null }), EventPlace::Outside),
            (json!({ "after": "m2" }), EventPlace::End),
            (json!({ "after": "m3" }), EventPlace::End),
            (json!({}), EventPlace::End),
        ] {
            assert_eq!(see(&mut begun(), "agent.waiting", &after), place, "{after}");
        }
        assert_eq!(
            see(&mut watch(None), "agent.waiting", &json!({ "after": null })),
            EventPlace::End,
            "the first turn"
        );
    }

    #[test]
    fn an_agent_does_not_report_for_the_daemon() {
        let mut turn = watch(None);
        let forged = json!({ "call_id": "c", "usage": { "input": 5 } });
        turn.event(TurnEvent { event_type: "llm.call", data: &forged, is_system: false });
        assert_eq!(turn.tokens(), &TokenSums::default());
    }

    #[test]
    fn usage_is_that_of_the_turns_calls() {
        let mut turn = watch(None);
        let call = |id: &str| json!({ "call_id": id, "usage": { "input": 5, "output": 2, "total": 7 } });
        see(&mut turn, "llm.call_started", &call("a"));
        see(&mut turn, "llm.call", &call("a"));
        see(&mut turn, "llm.call_started", &call("b"));
        see(&mut turn, "agent.waiting", &json!({}));
        assert!(!turn.is_settled(), "its end is not known yet");
        see(&mut turn, "llm.call", &call("b"));
        assert!(turn.is_settled());
        see(&mut turn, "message.queued", &json!({ "message_type": "user_message" }));
        see(&mut turn, "llm.call_started", &call("c"));
        see(&mut turn, "llm.call", &call("c"));
        let expected = TokenSums { input: Some(10), output: Some(4), total: Some(14), ..TokenSums::default() };
        assert_eq!((turn.tokens(), turn.is_settled()), (&expected, true), "calls of the next turn are not its own");
    }
}
