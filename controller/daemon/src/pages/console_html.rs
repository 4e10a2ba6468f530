//! The list of runs and one run as HTML that needs no script.
//!
//! Pure.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde_json::Value;
use sluice_contract::RunKey;
use sluice_contract::time::from_unix_micros;
use sluice_state::events::{EventSource, LoggedEvent};
use sluice_state::ledger::usd;
use sluice_state::sandboxes::{Sandbox, SandboxPage, SandboxState, SandboxVerdict, WaitCause};

use super::foreign::{foreign, from_agent};
use super::html::escape;

/// Maximum number of characters that a page shows of an event.
const EVENT_MAX: usize = 500;
/// Members that describe an event best, by priority.
const TELLING: [&str; 8] = ["text", "message", "name", "file_path", "to", "model", "reason", "content"];

/// Returns the runs of a page, their filters, the causes for which they wait, and their costs.
pub(super) fn list(page: &SandboxPage, causes: &BTreeMap<RunKey, WaitCause>, text: &str, creates_runs: bool) -> String {
    let mut main = String::new();
    if !creates_runs {
        main.push_str("<p class=\"quiet\">This host creates no sandboxes: <code>sandbox_enabled</code> is off.</p>\n");
    }
    if creates_runs {
        main.push_str("<p><a class=\"button primary\" href=\"/sandboxes/new\">New sandbox</a></p>\n");
    }
    let total: u64 = page.counts.values().sum();
    let _ = write!(
        main,
        "<form class=\"row wrap toolbar\"><label class=\"grow\"><span class=\"visually-hidden\">Search</span>\
         <input type=\"search\" name=\"q\" maxlength=\"200\" value=\"{}\"></label><button>Search</button></form>\n\
         <nav class=\"filters\" aria-label=\"States\"><a href=\"/sandboxes\">All {total}</a>",
        escape(text)
    );
    for state in SandboxState::ALL {
        let (word, count) = (state.as_str(), page.counts.get(&state).copied().unwrap_or_default());
        let _ = write!(main, " <a href=\"/sandboxes?state={word}\">{word} {count}</a>");
    }
    let _ = writeln!(
        main,
        " <a href=\"/sandboxes?waiting_for=approval\">Awaiting approval {}</a></nav>",
        page.awaiting_approval
    );
    if page.sandboxes.is_empty() {
        main.push_str("<p>There is no sandbox here. <code>sluice run -d</code> starts one.</p>\n");
        return main;
    }
    main.push_str(
        "<table class=\"runs\"><thead><tr><th scope=\"col\">Sandbox</th><th scope=\"col\">State</th>\
         <th scope=\"col\">Agent</th><th scope=\"col\">Created</th><th scope=\"col\">Cost</th></tr></thead><tbody>\n",
    );
    page.sandboxes.iter().for_each(|run| main.push_str(&row(run, causes.get(&run.key))));
    main.push_str("</tbody></table>\n");
    main
}

fn row(run: &Sandbox, cause: Option<&WaitCause>) -> String {
    let id = &run.key.run_id;
    let name = run.name.as_deref().map_or_else(|| id.to_string(), foreign);
    let cap = run.cap.map_or_else(String::new, |cap| format!(" of ${}", usd(cap.into())));
    format!(
        "<tr><td class=\"main-cell\"><a href=\"/sandboxes/{id}\">{name}</a> <span class=\"id\">{id}</span></td>\
         <td data-label=\"State\">{}{}</td><td data-label=\"Agent\">{}</td><td data-label=\"Created\">{}</td>\
         <td data-label=\"Cost\">{}{cap}</td></tr>\n",
        badge(run),
        cause.map_or_else(String::new, wait),
        foreign(&run.agent_id),
        time(run.created_us),
        cost(run)
    )
}

/// Returns what a run in the queue waits for, if that is a retry or other runs.
fn wait(cause: &WaitCause) -> String {
    if !matches!(cause.waiting_for, "retry" | "dependencies") {
        return String::new();
    }
    let reason = cause.reason.as_deref().map_or_else(String::new, |reason| format!(": {}", escape(reason)));
    format!(" <span class=\"id\">waits for {}{reason}</span>", cause.waiting_for)
}

/// Returns what all attempts of a run have cost so far, as far as it is known.
fn cost(run: &Sandbox) -> String {
    run.sums.nano_usd.map_or_else(|| "not known yet".to_owned(), |nanos| format!("${}", usd(nanos.into())))
}

fn badge(run: &Sandbox) -> String {
    let tone = match run.state {
        SandboxState::Pending => "grey",
        SandboxState::Creating => "blue",
        SandboxState::Running => "green",
        SandboxState::Completing => "yellow",
        SandboxState::Completed => "done",
        SandboxState::Failed => "red",
    };
    let code = run.verdict.as_ref().and_then(|verdict: &SandboxVerdict| verdict.failure().0);
    let code = code.map_or_else(String::new, |code| format!(" <span class=\"id\">{}</span>", escape(code)));
    format!("<span class=\"badge {tone}\">{}</span>{code}", run.state.as_str())
}

fn time(us: i64) -> String {
    humantime::format_rfc3339_seconds(from_unix_micros(us)).to_string()
}

/// Returns the facts about a run.
pub(super) fn run_facts(run: &Sandbox) -> String {
    let message = run.verdict.as_ref().and_then(|verdict| verdict.failure().1).map_or_else(String::new, foreign);
    let ended = run.ended_us.map_or_else(|| "no".to_owned(), time);
    format!(
        "<p>{} <span class=\"fault-text\">{message}</span></p>\n<dl class=\"facts\">\
         <div><dt>Id</dt><dd><code>{}</code></dd></div><div><dt>Agent</dt><dd>{}</dd></div>\
         <div><dt>Created</dt><dd>{}</dd></div><div><dt>Ended</dt><dd>{ended}</dd></div></dl>\n",
        badge(run),
        run.key.run_id,
        foreign(&run.agent_id),
        time(run.created_us)
    )
}

/// Returns events, the oldest first. What an agent has written is marked.
pub(super) fn events(events: &[LoggedEvent]) -> String {
    let mut text = String::from("<h2>Newest events</h2>\n<ol class=\"plain-events\">\n");
    for event in events.iter().rev().filter(|event| event.event_type != "agent.heartbeat") {
        let data: Value = serde_json::from_str(&event.event_data).unwrap_or_default();
        let telling = TELLING.iter().find_map(|name| data.get(name)?.as_str()).unwrap_or_default();
        let shown: String = telling.chars().take(EVENT_MAX).collect();
        let shown = match event.source {
            EventSource::System => foreign(&shown),
            EventSource::Agent | EventSource::Worker if shown.is_empty() => String::new(),
            EventSource::Agent | EventSource::Worker => from_agent(&shown),
        };
        let _ = writeln!(
            text,
            "<li id=\"seq-{}\"><time>{}</time> <strong>{}</strong> <span class=\"quiet\">from {}</span> {shown}</li>",
            event.seq,
            time(event.created_us),
            foreign(&event.event_type),
            event.source.as_str()
        );
    }
    text.push_str("</ol>\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_shows_what_its_run_waits_for() {
        for (waiting_for, reason, expected) in [
            ("retry", Some("a<b"), " <span class=\"id\">waits for retry: a&lt;b</span>"),
            ("dependencies", None, " <span class=\"id\">waits for dependencies</span>"),
            ("turn", None, ""),
            ("approval", None, ""),
        ] {
            let cause = WaitCause { waiting_for, reason: reason.map(str::to_owned), error_message: None };
            assert_eq!(wait(&cause), expected, "{waiting_for}");
        }
    }
}
