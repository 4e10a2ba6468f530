//! Tests the rules on event logs of real runs: each matches a run that goes wrong, and no well-behaved run.
//!
//! The logs come from the worker of the image with Claude Code, Codex and plain programs, under a real daemon;
//! tests/agent/record_events.mjs records them again.

use serde::Deserialize;

use super::*;

/// An event of a recorded log.
#[derive(Deserialize)]
struct Recorded {
    seq: i64,
    at_ms: i64,
    event_type: String,
    source: String,
    event_data: Value,
}

macro_rules! recorded {
    ($($name:literal)*) => {
        [$(($name, include_str!(concat!("../../../../../tests/agent/recorded/events/", $name, ".jsonl")))),*]
    };
}

const LOGS: [(&str, &str); 7] = recorded!(
    "claude-work" "codex-work" "program-work" "claude-loop" "codex-loop" "program-costs" "program-silent"
);

/// Returns a log, and the times at which its program has started and ended.
fn log(text: &str) -> (Vec<LoggedEvent>, i64, i64) {
    let (mut begun, mut ended, mut events) = (0, i64::MAX, Vec::new());
    for line in text.lines() {
        let recorded: Recorded = serde_json::from_str(line).expect("one event in a line");
        let Recorded { seq, at_ms, event_type, source, event_data } = recorded;
        let at_us = at_ms * 1000;
        match event_data["to"].as_str() {
            Some("RUNNING") => begun = at_us,
            Some("COMPLETING") => ended = at_us,
            _ => {}
        }
        let source = if source == "system" { EventSource::System } else { EventSource::Agent };
        events.push(LoggedEvent { seq, source, created_us: at_us, ..event(0, &event_type, &event_data) });
    }
    (events, begun, ended)
}

/// Returns the names of the logs that meet a rule, and the hits of each.
fn met(rules: GuardianRules) -> Vec<(&'static str, Vec<Rule>)> {
    let mut met = Vec::new();
    for (name, text) in LOGS {
        let (events, begun, ended) = log(text);
        let mut guard = RunGuard::new(rules, begun);
        let (mut look_us, mut found) = (begun, Vec::new());
        for event in events.iter().filter(|event| (begun..ended).contains(&event.created_us)) {
            while look_us < event.created_us {
                found.extend(guard.look(look_us));
                look_us += SECOND / 10;
            }
            found.extend(fact(event).into_iter().flat_map(|fact| guard.observe(event.seq, event.created_us, &fact)));
        }
        if !found.is_empty() {
            met.push((name, found.into_iter().map(|hit| hit.rule).collect()));
        }
    }
    met
}

#[test]
fn loops_of_real_agents_repeat_tools_and_errors() {
    let rules = GuardianRules { repeated_tool: repetition(5, 60), ..GuardianRules::default() };
    let looping = |rule| vec![("claude-loop", vec![rule]), ("codex-loop", vec![rule])];
    assert_eq!(met(rules), looping(Rule::RepeatedTool));
    let rules = GuardianRules { repeated_error: repetition(5, 60), ..GuardianRules::default() };
    assert_eq!(met(rules), looping(Rule::RepeatedError));
}

#[test]
fn agents_that_keep_their_own_state_change_no_file() {
    // Claude Code and Codex write sessions and databases below the home directory all the time, also in a loop.
    let no_file_change = Some(NoFileChange { after: seconds(1), calls: 4, action: NOTIFY });
    let rules = GuardianRules { no_file_change, ..GuardianRules::default() };
    let found: Vec<_> = met(rules).into_iter().map(|(name, _)| name).collect();
    assert!(found.contains(&"claude-loop") && found.contains(&"codex-loop"), "{found:?}");
    assert!(!found.contains(&"codex-work") && !found.contains(&"program-work"), "{found:?}");
}

#[test]
fn costs_of_a_recorded_run_are_added_up() {
    let cost_rate = Some(CostRate { nano_usd: 2_000_000_000, within: seconds(60), action: NOTIFY });
    let rules = GuardianRules { cost_rate, ..GuardianRules::default() };
    assert_eq!(met(rules), [("program-costs", vec![Rule::CostRate])]);
}

#[test]
fn a_recorded_call_that_takes_long_is_no_silence() {
    // The call of codex-work takes twelve seconds.
    let silence = Some(SilenceRule { after: seconds(10), action: NOTIFY });
    let rules = GuardianRules { silence, ..GuardianRules::default() };
    assert_eq!(met(rules), [("program-silent", vec![Rule::Silence])]);
}
