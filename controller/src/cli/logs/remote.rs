//! Output of a run over the API.

use std::process::ExitCode;

use sluice_client::{ApiClient, ApiRequest, LogLine, LogSelection, LogStream, SandboxDetail};
use sluice_runs::terminal::SanitizedWriter;

use super::super::database::wrong;
use super::super::error::CommandError;
use super::super::named_run;
use super::super::output::DataStream;
use super::super::run_status::RunStatus;
use super::{LogsArgs, exit_code, reader_gone};

/// Shows the output of a run of a daemon.
pub(super) async fn show(api: &ApiClient, args: &LogsArgs) -> Result<ExitCode, CommandError> {
    if args.sidecar || args.controller {
        let message = "--sidecar and --controller are on the host of the daemon; leave them out, or use them there";
        return Err(wrong(message.to_owned()));
    }
    let mut run = named_run::find(api, &args.run).await?;
    let id = run.sandbox.sandbox_id.clone();
    let stream = if args.stdout { Some("stdout") } else { args.stderr.then_some("stderr") };
    let mut stdout = DataStream::sanitized();
    let mut stderr = SanitizedWriter::new(std::io::stderr());
    let mut put = |line: &LogLine| {
        let bytes = match line.missing {
            Some(missing) => format!("\n[{missing} bytes left out]\n").into_bytes(),
            None => line.bytes(),
        };
        // Alone, stderr is the data of the command.
        if line.stream == "stderr" && stream.is_none() { stderr.put(&bytes) } else { stdout.put(&bytes) }
    };
    let mut selection = LogSelection { sandbox: id.clone(), stream, follow: args.follow, after: 0 };
    loop {
        // Looked at before the output: what the run has written is there when it has ended.
        let is_over = run.sandbox.is_ended() || !args.follow;
        let mut logs = LogStream::new(api, selection.clone());
        while let Some(line) = logs.next().await? {
            selection.after = line.position;
            if let Err(error) = put(&line) {
                return reader_gone(&error);
            }
        }
        if is_over {
            break;
        }
        // The run may have ended, or the daemon ends its streams to start anew.
        run = shown(api, &id).await?;
    }
    Ok(if args.follow { exit_code(&RunStatus::of_api(&run)) } else { ExitCode::SUCCESS })
}

/// Returns a run, also while its daemon starts anew.
async fn shown(api: &ApiClient, id: &str) -> Result<SandboxDetail, CommandError> {
    Ok(api.send_again(ApiRequest::get(&["sandboxes", id])).await?)
}
