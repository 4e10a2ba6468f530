//! `sluice audit tail`: follows an audit file while it is written.

use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sluice_contract::reader::{AuditLine, Cursor, lines_from, read_file};
use sluice_contract::record::{CallResult, Control, ControlValues};
use sluice_contract::{Record, exit};

use super::super::error::CommandError;
use super::super::output::{OutputFormat, put};
use super::files::{ADVICE, bad_line, cannot_read, one_line};

/// Time between two reads of the file.
const EVERY: Duration = Duration::from_millis(200);

/// Prints each line when it is written, until the log is closed, or no sidecar can continue it. A signal ends the process
/// at once: nothing needs to be cleaned up.
pub(super) async fn tail(path: &Path, format: OutputFormat) -> Result<ExitCode, CommandError> {
    let failed = |error: &io::Error| cannot_read(path, &format!("{error}; {ADVICE}"));
    let mut file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut cursor = Cursor::default();
    let mut look = tokio::time::interval(EVERY);
    let mut was_unwritten = false;
    loop {
        let is_unwritten = !is_written(&file).map_err(|error| failed(&error))?;
        let bytes = file.seek(SeekFrom::Start(cursor.offset)).and_then(|_| read_file(BufReader::new(&file)));
        let bytes = bytes.map_err(|error| failed(&error))?;
        let mut lines = lines_from(cursor, &bytes);
        for line in &mut lines {
            let line = line.map_err(|fault| bad_line(&fault))?;
            let text = match format {
                OutputFormat::Json => line.bytes.to_vec(),
                OutputFormat::Text => one_line(&describe(&line)).into_bytes(),
            };
            let written = put(&text);
            // An error means that the reader has closed stdout.
            if matches!(line.record, Record::Close(_)) || written.is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let is_unchanged = lines.cursor() == cursor;
        cursor = lines.cursor();
        if is_unchanged && is_unwritten && was_unwritten {
            return Err(CommandError {
                code: exit::INCOMPLETE,
                message: format!("{} has no close, and no sidecar writes it any more", path.display()),
            });
        }
        was_unwritten = is_unwritten;
        look.tick().await;
    }
}

/// Returns whether a sidecar holds the file's lock. The lock is only queried: a sidecar that starts now must
/// get it.
fn is_written(file: &std::fs::File) -> io::Result<bool> {
    let inode = format!(":{}", file.metadata()?.ino());
    let locks = std::fs::read_to_string("/proc/locks")?;
    Ok(locks.lines().any(|lock| lock.contains(" FLOCK ") && lock.split(' ').any(|word| word.ends_with(&inode))))
}

fn describe(line: &AuditLine<'_>) -> String {
    let detail = match &line.record {
        Record::Open(open) => format!("account {}, upstream {}", open.billing_account_id, open.upstream),
        Record::Intent(intent) => {
            format!(
                "{} {} {}, model {}",
                intent.call,
                intent.method,
                intent.path,
                intent.model.as_deref().unwrap_or("-")
            )
        }
        Record::Outcome(outcome) => {
            let cost = outcome.cost_usd.as_deref().map_or("cost not known yet".to_owned(), |cost| format!("${cost}"));
            let tokens = outcome.usage.map_or(0, |usage| usage.all());
            let status = match (outcome.result, outcome.status) {
                (CallResult::UpstreamError, Some(status)) => format!(" {status}"),
                _ => String::new(),
            };
            format!("{} {}{status}, {tokens} tokens, {cost}", outcome.call, outcome.result.as_str())
        }
        Record::Refused(refused) => {
            let names = [("model", &refused.model), ("param", &refused.param), ("tool", &refused.tool)];
            let named = names.into_iter().filter_map(|(what, name)| Some(format!(", {what} {}", name.as_ref()?.0)));
            format!("{} {}: {}{}", refused.method, refused.path, refused.reason, named.collect::<String>())
        }
        Record::Recovered(recovered) => {
            format!("{} bytes torn off, {} calls open", recovered.bytes, recovered.open_calls.len())
        }
        Record::Epoch(epoch) => format!("the sidecar was started again, pid {}", epoch.pid),
        Record::Control(control) => changed(control),
        Record::Held(held) => {
            let asked = held.asked.as_ref().map(|asked| format!(", asks for {}", asked.0));
            format!("{}: {}{}, at most {} s", held.hold_id, held.cap, asked.unwrap_or_default(), held.max_wait_s)
        }
        Record::Released(end) => {
            format!("{}: {} by {} after {} ms", end.hold_id, end.decision.as_str(), end.by, end.waited_ms)
        }
        Record::Close(close) => {
            format!("{} calls, {} refused, ${}: {}", close.calls, close.refused, close.cost_usd, close.reason)
        }
        Record::Other(_) => String::new(),
    };
    format!("{}  {:<9} {detail}", line.header.ts.get(11..26).unwrap_or(&line.header.ts), line.header.kind)
}

/// Names each value that the operator changed, with its old and its new content.
fn changed(control: &Control<'_>) -> String {
    let was = values(&control.from);
    let pairs = values(&control.to).into_iter().map(|(name, to)| {
        let from = was.iter().find(|(known, _)| *known == name).map_or("none", |(_, value)| value);
        format!("{name} {from} -> {to}")
    });
    let by = control.by.as_ref().map(|by| format!(", by {}", by.0));
    let reason = control.reason.as_ref().map(|reason| format!(": {}", reason.0));
    let changes = pairs.collect::<Vec<_>>().join(", ");
    format!("{changes}{}{}", by.unwrap_or_default(), reason.unwrap_or_default())
}

fn values(values: &ControlValues<'_>) -> Vec<(&'static str, String)> {
    let counts =
        [("deadline_s", values.deadline_s), ("max_calls", values.max_calls), ("max_tokens", values.max_tokens)];
    let counts = counts.into_iter().filter_map(|(name, count)| Some((name, count?.0.to_string())));
    let cost = values.max_cost_usd.iter().map(|cost| ("max_cost_usd", cost.0.to_string()));
    let texts = [("decision", &values.decision), ("hold_id", &values.hold_id)];
    let texts = texts.into_iter().filter_map(|(name, text)| Some((name, text.as_ref()?.0.to_string())));
    let flags = [("paused", values.paused), ("stopped", values.stopped)];
    let flags = flags.into_iter().filter_map(|(name, flag)| Some((name, flag?.to_string())));
    counts.chain(cost).chain(texts).chain(flags).collect()
}
