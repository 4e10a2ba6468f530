//! Formats all data about a run as text.

use sluice_contract::text::sanitize;
use sluice_runs::record::{RequestRecord, ResultRecord};
use sluice_runs::timings::Timings;

use super::super::output::dash;
use super::Inspection;

/// Formats one part of a text: a name, then its value.
fn row(name: &str, value: &str) -> String {
    format!("{name:<11} {}\n", sanitize(value))
}

pub(super) fn text(inspection: &Inspection) -> String {
    let Inspection { run, request, result, no_record, no_audit, tails, .. } = inspection;
    let mut text = row("run", &run.run) + &row("state", &state(inspection));
    if let Some(message) = result.as_ref().and_then(|result| result.error_message.as_ref()) {
        text += &row("cause", message);
    }
    // A run of the API, and a run without a record, have no result here.
    let ended = result.as_ref().map(|result| result.time.as_str()).or(inspection.sandbox["ended_at"].as_str());
    let time = match ended {
        Some(end) => format!("{} to {end}, {} s", run.started, run.age_s),
        None => format!("{}, {} s so far; it goes on or has no record of its end", run.started, run.age_s),
    };
    text += &sandbox_rows(&inspection.sandbox);
    text += &row("time", &time);
    text += &row("use", &used(inspection));
    text += &request.iter().map(request_rows).collect::<String>();
    text += &result.iter().map(result_rows).collect::<String>();
    text += &row("audit", inspection.paths["audit"].as_str().or(no_audit.as_deref()).unwrap_or("-"));
    text += &row("record", inspection.paths["record"].as_str().or(no_record.as_deref()).unwrap_or("-"));
    for (name, lines) in [("stdout", &tails.stdout), ("stderr", &tails.stderr), ("sidecar", &tails.sidecar)] {
        text += &lines.iter().map(|line| row(name, line)).collect::<String>();
    }
    text
}

fn state(inspection: &Inspection) -> String {
    let code = inspection.run.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    // A verdict is a word, or an object with the word as its name.
    let verdict =
        inspection.verdict.as_str().or_else(|| inspection.verdict.as_object()?.keys().next().map(String::as_str));
    let verdict = verdict.map_or_else(String::new, |verdict| format!(", verdict {verdict}"));
    format!("{}{code}{verdict}", inspection.run.state)
}

/// Returns the rows of a daemon's run.
fn sandbox_rows(sandbox: &serde_json::Value) -> String {
    let member = |name: &str| sandbox[name].as_str();
    let Some(state) = member("state") else { return String::new() };
    let outcome = member("outcome").map_or_else(String::new, |outcome| format!(", {outcome}"));
    let attempt = format!(", attempt {}", sandbox["attempt"]);
    let mut text = row("sandbox", &format!("{state}{outcome}{attempt}"));
    text += &member("error_message").map(|message| row("cause", message)).unwrap_or_default();
    text += &member("name").map(|name| row("name", name)).unwrap_or_default();
    let (owner, agent) = (member("owner_id").unwrap_or_default(), member("agent_id").unwrap_or_default());
    text += &row("owner", &format!("{owner}, agent {agent}"));
    text + &member("waiting_for").map(|reason| row("waits for", reason)).unwrap_or_default()
}

fn used(inspection: &Inspection) -> String {
    let run = &inspection.run;
    let open = run.open_calls.filter(|open| *open > 0).map_or_else(String::new, |open| format!(" ({open} open)"));
    let tokens = inspection.result.as_ref().map_or_else(String::new, |result| {
        format!(", {} tokens in, {} out", dash(result.usage.input), dash(result.usage.output))
    });
    let refused = inspection.result.as_ref().map_or_else(String::new, |result| format!(", {} refused", result.refused));
    let cost = run.cost_usd.as_ref().map_or_else(|| "no known cost".to_owned(), |cost| format!("${cost}"));
    format!("{} calls{open}{refused}{tokens}, {cost}", dash(run.calls))
}

fn request_rows(request: &RequestRecord) -> String {
    let mut text = row("agent", &format!("{}, account {}", request.agent, request.account));
    text += &row("models", &if request.models.is_empty() { "all".to_owned() } else { request.models.join(" ") });
    text += &row("image", &request.image);
    text += &row("argv", &request.argv.join(" "));
    text += &request.message.iter().map(|message| row("message", message)).collect::<String>();
    for volume in &request.volumes {
        let access = serde_json::to_value(volume.access).unwrap_or_default();
        let access = access.as_str().unwrap_or_default().to_owned();
        text += &row("mount", &format!("{} at {}, {access}", volume.source.display(), volume.target));
    }
    if !request.variables.is_empty() {
        text += &row("variables", &format!("{} (values are not recorded)", request.variables.join(" ")));
    }
    let settings: Vec<_> = request.settings.iter().map(|(name, value)| format!("{name}={value}")).collect();
    text += &row("upstream", &request.upstream);
    // The request of a daemon's run has none.
    if !settings.is_empty() {
        text += &row("settings", &settings.join(", "));
    }
    text
}

fn result_rows(result: &ResultRecord) -> String {
    let mut text = row("timings", &times(result.timings));
    if let Some(output) = &result.output {
        text += &row("output", &format!("{} bytes on stdout, {} on stderr", output.stdout.bytes, output.stderr.bytes));
    }
    for (reason, count) in &result.refused_by_reason {
        text += &row("refused", &format!("{count} × {reason}"));
    }
    text + &result.notes.iter().map(|note| row("note", note)).collect::<String>()
}

fn times(times: Timings) -> String {
    let parts = [
        ("sidecar", times.sidecar_ready),
        ("create", times.container_create),
        ("start", times.container_start),
        ("run", times.run),
        ("teardown", times.teardown),
    ];
    let parts = parts.into_iter().filter_map(|(name, ms)| ms.map(|ms| format!("{name} {ms:.0} ms")));
    let text = parts.collect::<Vec<_>>().join(", ");
    if text.is_empty() { "it never started".to_owned() } else { text }
}
