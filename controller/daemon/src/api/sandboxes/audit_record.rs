//! Records of an audit file, as the owner of the run sees them.
//!
//! Pure. An allow-list: processes, the upstream, errors of connections and budgets of LiteLLM are the operator's, and so is a
//! member that a newer sidecar adds.

use serde_json::{Map, Value};

/// Members of each record.
const COMMON: &[&str] = &["attempt", "kind", "prev", "run_id", "seq", "ts", "v"];

/// Members of the records of each kind.
const OF_KIND: [(&str, &[&str]); 10] = [
    ("open", &["billing_account_id", "graph_id", "limits", "policy", "proxy_version", "sync"]),
    (
        "intent",
        &[
            "bound", "call", "call_id", "injected_message_ids", "method", "model", "path", "req_bytes",
            "reserved_strict", "reserved_tokens", "reserved_usd", "stream", "stripped",
        ],
    ),
    (
        "outcome",
        &[
            "account", "cache_hit", "call", "call_id", "cost_source", "cost_usd", "drained", "end", "litellm_call_id",
            "model", "model_served", "null_reason", "resp_bytes", "response_id", "result", "status", "timing_us",
            "usage",
        ],
    ),
    ("refused", &["account", "method", "model", "param", "path", "reason", "status", "tool"]),
    ("recovered", &["bytes", "offset", "open_calls", "sha256"]),
    ("epoch", &["policy", "sync"]),
    ("control", &["from", "reason", "to", "what"]),
    ("held", &["asked", "cap", "hold_id", "max_wait_s"]),
    ("released", &["decision", "hold_id", "waited_ms"]),
    ("close", &["calls", "cost_usd", "head", "key_id", "reason", "refused", "relay", "signature", "unknown", "usage"]),
];

/// Returns what an owner sees of a record.
pub(super) fn shown(mut record: Map<String, Value>) -> Map<String, Value> {
    let kind = record.get("kind").and_then(Value::as_str).unwrap_or_default();
    let own = OF_KIND.iter().find(|(name, _)| *name == kind).map_or(&[][..], |(_, members)| members);
    record.retain(|name, _| COMMON.contains(&name.as_str()) || own.contains(&name.as_str()));
    record
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Members that only the operator sees.
    const HIDDEN: [&str; 12] = [
        "boot_id", "budget_limit_usd", "budget_of", "budget_spent_usd", "build", "by", "certificate", "connect_detail",
        "connect_error", "peer", "pid", "upstream",
    ];

    #[test]
    fn members_of_the_operator_are_hidden_in_all_golden_files() {
        let golden = concat!(env!("CARGO_MANIFEST_DIR"), "/../../proxy/contract/tests/golden");
        let (mut kinds, mut hidden) = (BTreeSet::new(), BTreeSet::new());
        for file in std::fs::read_dir(golden).expect("it is in the repository").flatten() {
            let text = String::from_utf8_lossy(&std::fs::read(file.path()).expect("it is readable")).into_owned();
            for record in text.lines().filter_map(|line| serde_json::from_str::<Map<String, Value>>(line).ok()) {
                let before: BTreeSet<_> = record.keys().cloned().collect();
                kinds.extend(record.get("kind").and_then(Value::as_str).map(str::to_owned));
                let after: BTreeSet<_> = shown(record).keys().cloned().collect();
                assert!(COMMON.iter().all(|name| !before.contains(*name) || after.contains(*name)));
                hidden.extend(before.difference(&after).cloned());
            }
        }
        assert!(OF_KIND.iter().all(|(kind, _)| kinds.contains(*kind)), "{kinds:?}");
        let unknown: Vec<_> = hidden.iter().filter(|name| !HIDDEN.contains(&name.as_str())).collect();
        // A member that no version writes yet.
        assert_eq!(unknown, ["later"]);
        assert!(["pid", "peer", "upstream", "boot_id"].iter().all(|name| hidden.contains(*name)), "{hidden:?}");
    }
}
