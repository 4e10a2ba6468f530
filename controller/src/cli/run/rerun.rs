//! `sluice rerun`: makes the request of an earlier run again.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde_json::Value;
use sluice_client::ApiClient;
use sluice_contract::exit;
use sluice_git::branch_name::BranchPrefix;
use sluice_runs::blueprint::{MountAccess, REPOSITORY, Volume};
use sluice_runs::record::RequestRecord;
use sluice_state::git_runs::NewGitRun;
use sluice_state::layout::Layout;
use sluice_state::records::{MESSAGES, REQUEST};
use sluice_state::store::RunDriver;

use super::super::database::open;
use super::super::error::CommandError;
use super::super::find_run::find_run;
use super::super::host_args::HostArgs;
use super::super::logs::no_record;
use super::super::parse::one_word;
use super::super::server_args::ServerArgs;
use super::args::RunArgs;
use super::no_run::NoRun;
use super::{recording, report, run_once};

mod at_daemon;

/// Makes the request of an earlier run again, as a new run: the same program or messages, mounts, image, settings and caps.
///
/// Values of environment variables are not recorded: they are taken from the environment of this command. The key and the
/// address of the upstream are those of the present settings.
///
/// For a run of a daemon, the daemon gets the request once more, and the id of the new run is printed. The new run has no name,
/// and neither waits for other runs nor resumes one.
#[derive(Debug, Args)]
pub(in crate::cli) struct RerunArgs {
    /// The run, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// A model that the new run may use, in place of those of the earlier run; repeat for more
    #[arg(long, value_name = "NAME", value_parser = one_word)]
    model: Vec<String>,
    /// The id of the new run, which can be used once [default: an id with the time]
    #[arg(long, value_name = "ID")]
    run_id: Option<String>,
    /// Print one JSON object in place of the answer
    #[arg(long)]
    json: bool,
    /// Print neither progress nor a receipt
    #[arg(long, short)]
    quiet: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

pub(in crate::cli) async fn rerun(args: RerunArgs) -> Result<ExitCode, CommandError> {
    let as_json = args.json;
    match daemon_of(&args).await {
        Ok(Some(api)) => {
            let done = at_daemon::rerun(&api, &args).await;
            return report(as_json, done.map_err(|error| NoRun::from(error.without_program())));
        }
        Ok(None) => {}
        Err(error) => return report(as_json, Err(NoRun::from(error.without_program()))),
    }
    let done = match run_args(args).await {
        Ok(args) => run_once(args).await,
        Err(error) => Err(NoRun::from(error.without_program())),
    };
    report(as_json, done)
}

/// Returns the daemon that the run belongs to; none for a run of `sluice run`.
async fn daemon_of(args: &RerunArgs) -> Result<Option<ApiClient>, CommandError> {
    if let Some(named) = args.server.named(&args.host)? {
        return Ok(Some(named));
    }
    let settings = args.host.settings()?;
    let store = open(&settings.host.state_dir)?;
    let run = find_run(&store, &args.run).await?;
    match run.entry.driver {
        RunDriver::Daemon => args.server.daemon(&args.host).map(Some),
        RunDriver::Once => Ok(None),
    }
}

/// Returns the flags of a run that makes the recorded request again.
async fn run_args(args: RerunArgs) -> Result<RunArgs, CommandError> {
    let settings = args.host.settings()?;
    let store = open(&settings.host.state_dir)?;
    let run = find_run(&store, &args.run).await?;
    let branch = store.find_git_run(&run.entry.key.run_id).await.map_err(|error| CommandError::failed(&error))?;
    let record = Layout::at(&settings.host.state_dir).records().of(&run.entry.key);
    let request: Option<RequestRecord> = record.read_json(REQUEST).map_err(|error| CommandError::failed(&error))?;
    let request = request.ok_or_else(|| no_record(&run, None, settings.record.keep))?;
    let env = variables(&request, |name| std::env::var(name).ok())?;
    let (repo, volume) = mounts(&request.volumes);
    let mut again = RunArgs::with_settings(recording::as_flags(&request.settings));
    match request.message {
        Some(message) => again.message = Some(message),
        None if request.has_messages => {
            let path = record.path(MESSAGES);
            again.message = only_message(&path);
            again.messages = again.message.is_none().then_some(path);
        }
        None => {}
    }
    again.argv = request.program;
    again.interactive = request.interactive;
    again.tty = request.tty;
    again.agent = Some(request.agent);
    again.image = Some(request.image);
    again.account = Some(request.account);
    again.model = args.model;
    again.run_id = args.run_id;
    again.json = args.json;
    again.quiet = args.quiet;
    again.env = env;
    again.repo = request.files.repo.or(repo);
    again.volume = volume;
    again.file = request.files.file;
    again.patch = request.files.patch.map(PathBuf::from);
    again.out = request.files.out.map(PathBuf::from);
    again.keep_workspace = request.files.keep_workspace;
    again.host = args.host;
    if let Some(branch) = branch {
        work_on_clone(&mut again, branch.new);
    }
    Ok(again)
}

/// Gives the new run a clone of the same repository, from the branch that the earlier run began with. It gets a new
/// branch of its own.
fn work_on_clone(again: &mut RunArgs, earlier: NewGitRun) {
    let base = earlier.base_branch.map(|base| format!("#{base}")).unwrap_or_default();
    let scheme = if earlier.url.starts_with('/') { "file://" } else { "" };
    again.repo = Some(format!("{scheme}{}{base}", earlier.url));
    let prefix = earlier.branch.split_once('/').map_or("", |(prefix, _)| prefix);
    again.task_type = prefix.parse::<BranchPrefix>().ok().map(|_| prefix.to_owned());
    again.ticket = earlier.ticket;
    again.title = earlier.title;
    again.pr = earlier.wants_pull_request;
    again.publish = Some(earlier.publish.as_str().to_owned());
}

/// Returns the text of recorded messages that consist of one message of the user: some agents take only such a message.
fn only_message(path: &Path) -> Option<String> {
    let messages: Value = serde_json::from_slice(&std::fs::read(path).ok()?).ok()?;
    match messages.as_array()?.as_slice() {
        [only] if only["role"] == "user" => only["content"].as_str().map(str::to_owned),
        _ => None,
    }
}

/// Returns the variables of the request with their present values, as `--env` takes them.
fn variables(request: &RequestRecord, value: impl Fn(&str) -> Option<String>) -> Result<Vec<String>, CommandError> {
    let names = request.variables.iter().map(String::as_str);
    Ok(with_values(names, value)?.into_iter().map(|(name, value)| format!("{name}={value}")).collect())
}

/// Returns names of variables with their values, or an error that names those without one.
fn with_values<'a>(
    names: impl Iterator<Item = &'a str>,
    value: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(String, String)>, CommandError> {
    let (mut pairs, mut missing) = (Vec::new(), Vec::new());
    for name in names {
        match value(name) {
            Some(value) => pairs.push((name.to_owned(), value)),
            None => missing.push(name),
        }
    }
    if missing.is_empty() {
        return Ok(pairs);
    }
    let names = missing.join(", ");
    let message = format!("values of variables are not recorded; set {names} in the environment of sluice rerun");
    Err(CommandError { code: exit::NOT_STARTED, message })
}

/// Returns the values of `--repo` and `--volume`.
fn mounts(volumes: &[Volume]) -> (Option<String>, Vec<String>) {
    let access = |volume: &Volume| match volume.access {
        MountAccess::ReadOnly => "ro",
        MountAccess::ReadWrite => "rw",
    };
    let (repos, others): (Vec<_>, Vec<_>) = volumes.iter().partition(|volume| volume.target == REPOSITORY);
    let repo = repos.first().map(|volume| format!("{}:{}", volume.source.display(), access(volume)));
    let volume =
        others.iter().map(|volume| format!("{}:{}:{}", volume.source.display(), volume.target, access(volume)));
    (repo, volume.collect())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct RerunCommandLine {
        #[command(flatten)]
        rerun: RerunArgs,
    }

    /// Bug: the exit code was 2, which could be the one of a program.
    #[tokio::test]
    async fn a_rerun_that_begins_no_run_has_125() {
        let words = ["rerun", "--server", "nonsense", "nightly"];
        let args = RerunCommandLine::try_parse_from(words).unwrap_or_else(|error| panic!("{error}")).rerun;
        let error = rerun(args).await.expect_err("it is not an address");
        assert_eq!(error.code, exit::NOT_STARTED, "{}", error.message);
    }
}
