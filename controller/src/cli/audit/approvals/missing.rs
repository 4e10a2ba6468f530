//! Decisions that the control log has, and the database does not.
//!
//! Pure. An approval is in the database before a person can decide about it, and stays there: nothing removes it, neither
//! the end of its run nor `sluice prune`. Without its approval, a decision shows that rows were lost or removed.

use std::collections::{BTreeMap, BTreeSet};

use sluice_contract::time::unix_micros;
use sluice_state::control_log::ControlLine;

/// Maximum number of lines that a message names.
const NAMED_MAX: usize = 20;

/// A decision about an approval that the database does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MissingDecision {
    /// Number of its line in the control log.
    pub(super) seq: u64,
    /// Id of the run that it is about.
    pub(super) run_id: String,
}

/// Returns the decisions about approvals that the database does not have, in the order of the log.
///
/// `lines` are the decisions that took effect, by the ids of their approvals. `known` has the run and the id of every
/// approval in the database, read after the log: with an older or partial list, a decision would look missing. A decision
/// before `since_us`, in microseconds since 1970, is left out, because its approval was asked before that time, too.
pub(super) fn missing_decisions(
    lines: &BTreeMap<String, ControlLine>,
    known: &BTreeSet<(&str, &str)>,
    since_us: Option<i64>,
) -> Vec<MissingDecision> {
    let is_old = |line: &ControlLine| since_us.zip(time_us(line)).is_some_and(|(since, time)| time < since);
    let missing = lines.iter().filter(|(_, line)| !is_old(line)).filter_map(|(id, line)| {
        let run_id = run_of(line).filter(|run_id| !known.contains(&(*run_id, id.as_str())))?;
        Some(MissingDecision { seq: line.seq, run_id: run_id.to_owned() })
    });
    let mut missing: Vec<_> = missing.collect();
    missing.sort_unstable_by_key(|decision| decision.seq);
    missing
}

/// Returns the text about missing decisions, with the numbers of their lines; `None` without any. `about` says which
/// decisions were searched, or is empty.
pub(super) fn missing_text(missing: &[MissingDecision], about: &str) -> Option<String> {
    if missing.is_empty() {
        return None;
    }
    let named: Vec<_> = missing.iter().take(NAMED_MAX).map(|decision| decision.seq.to_string()).collect();
    let named = named.join(", ");
    let more = match missing.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    Some(format!("the control log has decisions{about} that the database does not have: seq {named}{more}"))
}

/// Returns the run that a decision is about: its object is `RUN/APPROVAL`.
pub(super) fn run_of(line: &ControlLine) -> Option<&str> {
    line.object.as_deref()?.split_once('/').map(|(run, _)| run)
}

/// Returns the time of a line in microseconds since 1970.
fn time_us(line: &ControlLine) -> Option<i64> {
    humantime::parse_rfc3339(&line.ts).ok().and_then(unix_micros)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Noon of 2026-11-20 in microseconds since 1970.
    const NOON: i64 = 1_795_176_000_000_000;

    /// Returns the line of a decision, by the id of its approval.
    fn decided(seq: u64, run: &str, approval: &str, hour: u32) -> (String, ControlLine) {
        let line = json!({
            "key_id": "0", "object": format!("{run}/{approval}"), "operation": "approval.decide", "prev": "0",
            "principal": "uid:0", "result": "accepted", "role": "admin", "seq": seq, "signature": "0",
            "ts": format!("2026-11-20T{hour}:00:00.000000Z"), "v": 1, "way": "admin_socket"
        });
        (approval.to_owned(), serde_json::from_value(line).expect("it has all members"))
    }

    #[test]
    fn decisions_without_an_approval_are_missing() {
        let lines = [decided(7, "r1", "apr-1", 11), decided(9, "r1", "apr-2", 12), decided(8, "r2", "apr-3", 13)];
        let lines = BTreeMap::from(lines);
        let all = [("r1", "apr-1"), ("r1", "apr-2"), ("r2", "apr-3")];
        let elsewhere = [("r1", "apr-1"), ("r1", "apr-2"), ("r1", "apr-3")];
        for (known, since_us, expected) in [
            (&all[..], None, ""),
            (&all[..2], None, "8 r2"),
            (&all[2..], None, "7 r1, 9 r1"),
            // The approval of another run is another one.
            (&elsewhere[..], None, "8 r2"),
            (&all[..0], None, "7 r1, 8 r2, 9 r1"),
            (&all[..0], Some(NOON), "8 r2, 9 r1"),
            (&all[..], Some(NOON), ""),
            (&all[..0], Some(2 * NOON), ""),
        ] {
            let known: BTreeSet<_> = known.iter().copied().collect();
            let missing = missing_decisions(&lines, &known, since_us);
            let named = missing.iter().map(|decision| format!("{} {}", decision.seq, decision.run_id));
            assert_eq!(named.collect::<Vec<_>>().join(", "), expected, "{known:?} {since_us:?}");
        }
    }

    #[test]
    fn a_message_names_the_first_missing_lines() {
        let missing =
            |count: u64| -> Vec<_> { (0..count).map(|seq| MissingDecision { seq, run_id: "r1".to_owned() }).collect() };
        assert_eq!(missing_text(&missing(0), ""), None);
        let of_run = "the control log has decisions about this run that the database does not have: seq 0, 1";
        assert_eq!(missing_text(&missing(2), " about this run").as_deref(), Some(of_run));
        let many = missing_text(&missing(23), "").expect("some are missing");
        assert!(many.contains("decisions that the database") && many.ends_with(", 18, 19, and 3 more"), "{many}");
    }
}
