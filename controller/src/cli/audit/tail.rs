//! `sluice audit tail`: a run's log while it is written.

use std::io::{Read, Seek, SeekFrom};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use sluice_contract::reader::{Cursor, Line, lines_from};
use sluice_contract::record::CallResult;
use sluice_contract::{Record, verdict};

use super::super::{Failed, print};

/// How often the file is looked at.
const EVERY: Duration = Duration::from_millis(200);

/// Prints each line as it comes, until the log is closed or we are told to stop.
pub(super) async fn tail(path: &Path, as_json: bool) -> Result<ExitCode, Failed> {
    let failed = |error: &std::io::Error| Failed {
        code: verdict::EXIT_UNREADABLE,
        message: format!("cannot read {}: {error}; name an audit file, or a run of this host", path.display()),
    };
    let mut file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let mut cursor = Cursor::default();
    let mut look = tokio::time::interval(EVERY);
    loop {
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(cursor.offset)).and_then(|_| file.read_to_end(&mut bytes)).map_err(|e| failed(&e))?;
        let mut lines = lines_from(cursor, &bytes);
        for line in &mut lines {
            let line = line.map_err(|fault| Failed::new(1, &fault))?;
            if as_json {
                print(&String::from_utf8_lossy(line.bytes));
            } else {
                print(&describe(&line));
            }
            if matches!(line.record, Record::Close(_)) {
                return Ok(ExitCode::SUCCESS);
            }
        }
        cursor = lines.cursor();
        tokio::select! {
            _ = look.tick() => {}
            _ = tokio::signal::ctrl_c() => return Ok(ExitCode::from(130)),
        }
    }
}

fn describe(line: &Line<'_>) -> String {
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
        Record::Refused(refused) => format!("{} {}: {}", refused.method, refused.path, refused.reason),
        Record::Recovered(recovered) => {
            format!("{} bytes torn off, {} calls open", recovered.bytes, recovered.open_calls.len())
        }
        Record::Epoch(epoch) => format!("the sidecar was started again, pid {}", epoch.pid),
        Record::Close(close) => {
            format!("{} calls, {} refused, ${}: {}", close.calls, close.refused, close.cost_usd, close.reason)
        }
        Record::Other(_) => String::new(),
    };
    format!("{}  {:<9} {said}\n", line.common.ts.get(11..26).unwrap_or(&line.common.ts), line.common.kind)
}
