//! Output of a run over the API.

use std::process::ExitCode;

use sluice_client::{ApiClient, ApiLogLine, ApiLogStream, ApiRequest, ApiSandboxDetail, LogSelection};
use sluice_contract::time::unix_micros;
use sluice_runs::terminal::SanitizedWriter;

use super::super::error::CommandError;
use super::super::named_run;
use super::super::output::DataStream;
use super::super::run_status::RunStatus;
use super::line_selection::{LineFlags, LineSelection, SelectedLine};
use super::source::left_out;
use super::{LogsArgs, exit_code, reader_gone};

/// Shows the output of a run of a daemon.
pub(super) async fn show(api: &ApiClient, args: &LogsArgs, flags: LineFlags) -> Result<ExitCode, CommandError> {
    if args.sidecar || args.controller {
        let message = "--sidecar and --controller are on the host of the daemon; leave them out, or use them there";
        return Err(CommandError::wrong_usage(message));
    }
    let mut run = named_run::find(api, &args.run).await?;
    let id = run.sandbox.sandbox_id.clone();
    let stream = if args.stdout { Some("stdout") } else { args.stderr.then_some("stderr") };
    let mut lines = (args.json || !flags.select_all()).then(|| LineSelection::new(flags));
    let mut stdout = DataStream::sanitized();
    let mut stderr = SanitizedWriter::new(std::io::stderr());
    // If only stderr is selected, it is the data of the command.
    let mut put = |line: &SelectedLine| match (args.json, line.stream == 1 && stream.is_none()) {
        (true, _) => stdout.put(&line.json()),
        (false, true) => stderr.put(&line.bytes),
        (false, false) => stdout.put(&line.bytes),
    };
    // If lines are selected, the existing output is read first: the last lines are known only then.
    let mut selection =
        LogSelection { sandbox: id.clone(), stream, attempt: None, follow: args.follow && lines.is_none(), after: 0 };
    loop {
        // Read before the output, so that all output of an ended run is included.
        let is_over = run.sandbox.is_ended() || !args.follow;
        if args.follow {
            selection.follow_attempt(&run.sandbox);
        }
        let mut logs = ApiLogStream::new(api, selection.clone());
        while let Some(line) = logs.next().await? {
            selection.after = line.position;
            let line = content(&line);
            let shown = match &mut lines {
                Some(lines) => lines.push(line.stream, line.time_us, &line.bytes),
                None => vec![line],
            };
            if let Err(error) = shown.iter().try_for_each(&mut put) {
                return reader_gone(&error);
            }
        }
        let rest = lines.as_mut().map(|lines| if is_over { lines.finish() } else { lines.caught_up() });
        if let Err(error) = rest.unwrap_or_default().iter().try_for_each(&mut put) {
            return reader_gone(&error);
        }
        if is_over {
            break;
        }
        selection.follow = true;
        // The run may have ended, or the daemon ends its streams because it restarts.
        run = shown(api, &id).await?;
    }
    Ok(if args.follow { exit_code(&RunStatus::of_api(&run)) } else { ExitCode::SUCCESS })
}

/// Returns a line of the API as a piece of output.
fn content(line: &ApiLogLine) -> SelectedLine {
    let bytes = line.missing.map_or_else(|| line.bytes(), left_out);
    let time_us = humantime::parse_rfc3339_weak(&line.ts).ok().and_then(unix_micros).unwrap_or_default();
    SelectedLine { stream: usize::from(line.stream == "stderr"), time_us, bytes }
}

/// Returns a run, waiting for a daemon that restarts.
async fn shown(api: &ApiClient, id: &str) -> Result<ApiSandboxDetail, CommandError> {
    Ok(api.send_again(ApiRequest::get(&["sandboxes", id])).await?)
}
