//! `sluice diff`, `apply`, `push`, `pr` and `merge`: the commits of a run in its clone, and their publication at the forge.
//!
//! `diff` and `apply` also take the patch of a run that worked on a copy of a directory. A daemon's run is handled over the
//! daemon's API, which records who published and merged.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use serde_json::{Value, json};
use sluice_contract::text::sanitize;
use sluice_git::ObjectId;
use sluice_git::forge::MergeMethod;
use sluice_state::layout::Layout;
use sluice_state::store::RunDriver;

use super::database::open;
use super::error::CommandError;
use super::find_run::find_run;
use super::host_args::HostArgs;
use super::output::{print, print_json, say};
use super::server_args::ServerArgs;

mod change;
mod daemon_branch;
mod host_branch;
mod patch_file;
mod work_tree;

use change::PullRequestPlace;
use daemon_branch::DaemonBranch;
pub(super) use daemon_branch::FORGE_WORK;
use host_branch::HostBranch;
use patch_file::PatchFile;

/// A run with a clone.
#[derive(Debug, Args)]
struct BranchArgs {
    /// The run, or the beginning of its id
    #[arg(value_name = "RUN")]
    run: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

const DIFF_EXAMPLES: &str = "\
Examples:
  sluice diff nightly
  sluice diff nightly --stat --json | jq -r .head";

/// Shows what a run committed in its clone: commits, changed files, and the patch. Of a run with --patch, shows the patch.
#[derive(Debug, Args)]
#[command(before_help = DIFF_EXAMPLES)]
pub(super) struct DiffArgs {
    /// Leave out the patch
    #[arg(long)]
    stat: bool,
    #[command(flatten)]
    branch: BranchArgs,
}

const APPLY_EXAMPLES: &str = "\
Examples:
  sluice apply nightly --to ~/app
  sluice apply nightly --to ~/app --yes";

/// Applies what a run committed, or the patch of a run with --patch, to a work tree, after showing it: git apply --index, as
/// the owner of the directory.
#[derive(Debug, Args)]
#[command(before_help = APPLY_EXAMPLES)]
pub(super) struct ApplyArgs {
    /// The work tree
    #[arg(long, value_name = "DIR", default_value = ".")]
    to: PathBuf,
    /// Apply it; otherwise it is only shown and checked
    #[arg(long)]
    yes: bool,
    #[command(flatten)]
    branch: BranchArgs,
}

const PUSH_EXAMPLES: &str = "\
Examples:
  head=$(sluice diff nightly --stat --json | jq -r .head)
  sluice diff nightly
  sluice push nightly --head \"$head\"";

/// Publishes the branch of a run at its forge. CI there runs what the agent wrote: look at it with sluice diff.
#[derive(Debug, Args)]
#[command(before_help = PUSH_EXAMPLES)]
pub(super) struct PushArgs {
    /// The commit that was reviewed
    #[arg(long, value_name = "SHA")]
    head: String,
    /// Publish changes of files that CI or the forge obey, which the error without this flag lists
    #[arg(long)]
    accept_guarded: bool,
    #[command(flatten)]
    branch: BranchArgs,
}

const PR_EXAMPLES: &str = "\
Examples:
  sluice pr nightly";

/// Opens a draft of a pull request for the published branch of a run.
#[derive(Debug, Args)]
#[command(before_help = PR_EXAMPLES)]
pub(super) struct PrArgs {
    #[command(flatten)]
    branch: BranchArgs,
}

const MERGE_EXAMPLES: &str = "\
Examples:
  sluice merge nightly --head 4f6c… --method rebase";

/// Merges the pull request of a run, if merge = true in the project and the head is still that commit.
#[derive(Debug, Args)]
#[command(before_help = MERGE_EXAMPLES)]
pub(super) struct MergeArgs {
    /// The commit that was reviewed
    #[arg(long, value_name = "SHA")]
    head: String,
    /// Way of the merge
    #[arg(long, value_name = "METHOD", default_value = "squash", value_parser = ["squash", "merge", "rebase"])]
    method: String,
    #[command(flatten)]
    branch: BranchArgs,
}

/// A run with a clone, or with a patch.
#[allow(clippy::large_enum_variant, reason = "a command has one")]
enum FoundBranch {
    /// The branch of a one-shot run, in the state directory.
    Host(HostBranch),
    /// A patch without a branch.
    File(PatchFile),
    /// The branch of a daemon's run.
    Daemon(DaemonBranch),
}

impl FoundBranch {
    async fn find(args: &BranchArgs) -> Result<Self, CommandError> {
        if let Some(api) = args.server.named(&args.host)? {
            return Ok(Self::Daemon(DaemonBranch::find(api, &args.run).await?));
        }
        let usage = |error| CommandError::usage(&error);
        let layers = args.host.layers(BTreeMap::new()).map_err(usage)?;
        let host = layers.host_without_key().map_err(usage)?;
        let store = open(&host.state_dir)?;
        let found = find_run(&store, &args.run).await?;
        if found.entry.driver == RunDriver::Daemon {
            // The daemon records the user of each step, and asks for a second person.
            let api = args.server.daemon(&args.host)?;
            return Ok(Self::Daemon(DaemonBranch::find(api, found.entry.key.run_id.as_str()).await?));
        }
        let key = &found.entry.key;
        let file = PatchFile::find(&Layout::at(&host.state_dir), key)?;
        match (HostBranch::open(host, layers.projects(), store, key).await?, file) {
            (Some(branch), _) => Ok(Self::Host(branch)),
            (None, Some(file)) => Ok(Self::File(file)),
            (None, None) => {
                let message = format!("run {} worked on no repository, or has no record of its patch", key.run_id);
                Err(CommandError::wrong_usage(message))
            }
        }
    }

    fn run(&self) -> &str {
        match self {
            Self::Host(found) => found.run(),
            Self::File(found) => found.run(),
            Self::Daemon(found) => found.run(),
        }
    }

    /// Returns what the run changed, as `--json` has it, and in lines for a terminal.
    async fn change(&self) -> Result<(Value, String), CommandError> {
        let change = match self {
            Self::Host(found) => found.change().await?,
            Self::File(found) => return Ok((found.json(), found.text())),
            Self::Daemon(found) => found.change().await?,
        };
        Ok((change.json(self.run()), change.text()))
    }

    async fn patch(&self) -> Result<Vec<u8>, CommandError> {
        match self {
            Self::Host(found) => found.patch().await,
            Self::File(found) => found.read(),
            Self::Daemon(found) => found.patch().await,
        }
    }

    /// Publishes the branch; returns its name and the address of the repository.
    async fn publish(&self, head: ObjectId, has_guarded: bool) -> Result<(String, String), CommandError> {
        match self {
            Self::Host(found) => found.publish(head, has_guarded).await,
            Self::File(found) => Err(found.no_branch()),
            Self::Daemon(found) => found.publish(&head, has_guarded).await,
        }
    }

    async fn open_pull_request(&self) -> Result<PullRequestPlace, CommandError> {
        match self {
            Self::Host(found) => found.open_pull_request().await,
            Self::File(found) => Err(found.no_branch()),
            Self::Daemon(found) => found.open_pull_request().await,
        }
    }

    /// Merges the pull request; returns the commit of the merge, if the forge reports it.
    async fn merge(&self, head: &ObjectId, method: MergeMethod) -> Result<Option<String>, CommandError> {
        match self {
            Self::Host(found) => found.merge(head, method).await,
            Self::File(found) => Err(found.no_branch()),
            Self::Daemon(found) => found.merge(head, method).await,
        }
    }
}

/// Parses the commit of `--head`.
fn commit(text: &str) -> Result<ObjectId, CommandError> {
    let wrong = |error: sluice_git::NotAnObjectId| {
        CommandError::wrong_usage(format!("--head {text}: {error}; sluice diff shows the head of a run"))
    };
    text.parse().map_err(wrong)
}

pub(super) async fn diff(args: &DiffArgs) -> Result<ExitCode, CommandError> {
    let found = FoundBranch::find(&args.branch).await?;
    let (object, summary) = found.change().await?;
    if args.branch.json {
        print_json(&object);
        return Ok(ExitCode::SUCCESS);
    }
    let patch = if args.stat { String::new() } else { shown(&found.patch().await?) };
    print(&format!("{summary}{patch}"));
    Ok(ExitCode::SUCCESS)
}

/// Returns a patch for a terminal: lines stay, and nothing in them controls it.
fn shown(patch: &[u8]) -> String {
    String::from_utf8_lossy(patch).lines().map(|line| format!("{}\n", sanitize(line))).collect()
}

pub(super) async fn apply(args: &ApplyArgs) -> Result<ExitCode, CommandError> {
    let found = FoundBranch::find(&args.branch).await?;
    let patch = found.patch().await?;
    if !args.branch.json {
        print(&shown(&patch));
    }
    let directory = work_tree::find(&args.to)?;
    work_tree::apply(&directory, &patch, &["--check", "--index"])?;
    if args.yes {
        work_tree::apply(&directory, &patch, &["--index"])?;
    } else {
        say("nothing was changed; the patch fits, and --yes applies it");
    }
    if args.branch.json {
        print_json(&json!({"run_id": found.run(), "applied": args.yes, "bytes": patch.len()}));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn push(args: &PushArgs) -> Result<ExitCode, CommandError> {
    let head = commit(&args.head)?;
    let found = FoundBranch::find(&args.branch).await?;
    let (branch, url) = found.publish(head, args.accept_guarded).await?;
    if args.branch.json {
        print_json(&json!({"run_id": found.run(), "branch": branch, "head": args.head, "url": url}));
    } else {
        print(&format!("{branch} at {url}\n"));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn pr(args: &PrArgs) -> Result<ExitCode, CommandError> {
    let found = FoundBranch::find(&args.branch).await?;
    let opened = found.open_pull_request().await?;
    if args.branch.json {
        print_json(&json!({
            "run_id": found.run(), "branch": opened.branch, "pull_request": opened.number,
            "pull_request_url": opened.url,
        }));
    } else {
        print(&format!("{}\n", opened.shown()));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) async fn merge(args: &MergeArgs) -> Result<ExitCode, CommandError> {
    let method: MergeMethod = args.method.parse().map_err(|error| CommandError::usage(&error))?;
    let head = commit(&args.head)?;
    let found = FoundBranch::find(&args.branch).await?;
    let merged = found.merge(&head, method).await?;
    if args.branch.json {
        print_json(&json!({"run_id": found.run(), "merged": merged}));
    } else {
        print(&format!("merged as {}\n", merged.unwrap_or_default()));
    }
    Ok(ExitCode::SUCCESS)
}

#[cfg(test)]
mod tests {
    use sluice_contract::exit;

    use super::*;

    #[test]
    fn a_wrong_head_is_named() {
        let error = commit("abc").expect_err("it is no commit");
        assert_eq!(error.code, exit::USAGE);
        assert!(error.message.starts_with("--head abc: it is not the id"), "{}", error.message);
    }
}
