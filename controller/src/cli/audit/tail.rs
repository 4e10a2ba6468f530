//! `sluice audit tail`: a run's log while it is written.

use std::io::{self, BufReader, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sluice_contract::Record;
use sluice_contract::reader::{AuditLine, Cursor, lines_from, read_file};
use sluice_contract::record::CallResult;

use super::super::{Failed, put};
use super::{bad_line, one_line};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(200);

/// Prints each line as it comes, until the log is closed, or nobody is left who could go on with it. A signal ends us
/// as it ends anybody: nothing is open.
pub(super) async fn tail(path: &Path, as_json: bool) -> Result<ExitCode, Failed> {
    let failed = |error: &io::Error| Failed {
        code: sluice_contract::exit::UNREADABLE,
        message: format!("cannot read {}: {error}; name an audit file, or a run of this host", path.display()),
    };
    let mut file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut cursor = Cursor::default();
    let mut look = tokio::time::interval(EVERY);
    let mut was_alone = false;
    loop {
        let is_alone = !is_written(&file).map_err(|error| failed(&error))?;
        let bytes = file.seek(SeekFrom::Start(cursor.offset)).and_then(|_| read_file(BufReader::new(&file)));
        let bytes = bytes.map_err(|error| failed(&error))?;
        let mut lines = lines_from(cursor, &bytes);
        for line in &mut lines {
            let line = line.map_err(|fault| bad_line(&fault))?;
            let text = if as_json { line.bytes.to_vec() } else { one_line(&describe(&line)).into_bytes() };
            let written = put(&text);
            // Or nobody reads on.
            if matches!(line.record, Record::Close(_)) || written.is_err() {
                return Ok(ExitCode::SUCCESS);
            }
        }
        let is_still = lines.cursor() == cursor;
        cursor = lines.cursor();
        if is_still && is_alone && was_alone {
            return Err(Failed {
                code: sluice_contract::exit::INCOMPLETE,
                message: format!("{} has no close, and no sidecar writes it any more", path.display()),
            });
        }
        was_alone = is_alone;
        look.tick().await;
    }
}

/// Whether a sidecar holds the file. Its lock is looked up and not tried: a sidecar that starts now must get it.
fn is_written(file: &std::fs::File) -> io::Result<bool> {
    let inode = format!(":{}", file.metadata()?.ino());
    let locks = std::fs::read_to_string("/proc/locks")?;
    Ok(locks.lines().any(|lock| lock.contains(" FLOCK ") && lock.split(' ').any(|word| word.ends_with(&inode))))
}

fn describe(line: &AuditLine<'_>) -> String {
    let said = match &line.record {
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
        Record::Close(close) => {
            format!("{} calls, {} refused, ${}: {}", close.calls, close.refused, close.cost_usd, close.reason)
        }
        Record::Other(_) => String::new(),
    };
    format!("{}  {:<9} {said}", line.header.ts.get(11..26).unwrap_or(&line.header.ts), line.header.kind)
}
