//! `sluice cp`: files out of a sandbox, and into one.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use serde::Serialize;
use serde_json::json;

use super::error::CommandError;
use super::host_args::HostArgs;
use super::named_run;
use super::output::{print, print_json, say};
use super::server_args::ServerArgs;

mod host_tree;
mod source;
mod tree;

const EXAMPLES: &str = "\
Examples:
  sluice cp nightly:/workspace/out results        to the new directory results
  sluice cp fix.diff nightly:/workspace/fix.diff
  sluice cp fixtures nightly:/workspace/            to the new directory /workspace/fixtures";

/// Copies files out of a sandbox of a daemon into a new directory, or a file or a directory into a live sandbox.
///
/// Regular files and directories are copied, with the modes 0644 and 0755. Links are not followed; they are named and left out,
/// as are devices, and files that change meanwhile. At most 100,000 files and 2 GiB are copied; into a sandbox, files of at most 64 MiB.
#[derive(Debug, Args)]
#[command(before_help = EXAMPLES)]
pub(super) struct CpArgs {
    /// RUN:/PATH in a sandbox, or a file or directory here
    #[arg(value_name = "SOURCE")]
    source: String,
    /// A directory that does not exist yet, or RUN:/PATH in a sandbox; one that ends with / is the directory of the copy
    #[arg(value_name = "TARGET")]
    target: String,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    server: ServerArgs,
    #[command(flatten)]
    host: HostArgs,
}

/// An entry that was left out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct UncopiedFile {
    path: String,
    reason: &'static str,
}

/// Result of a copy: the numbers of files and bytes, and the entries that were left out.
#[derive(Debug, Default)]
struct CopySummary {
    files: u64,
    bytes: u64,
    left_out: Vec<UncopiedFile>,
}

pub(super) async fn run(args: &CpArgs) -> Result<ExitCode, CommandError> {
    let (name, path, is_out) = match (in_sandbox(&args.source), in_sandbox(&args.target)) {
        (Some((run, path)), None) => (run, path, true),
        (None, Some((run, path))) => (run, path, false),
        _ => {
            let message = "one of SOURCE and TARGET is RUN:/PATH in a sandbox, and the other is on this host; write ./NAME \
                           for a file here whose name has a colon";
            return Err(CommandError::wrong_usage(message));
        }
    };
    let api = args.server.daemon(&args.host)?;
    let id = named_run::find(&api, name).await?.sandbox.sandbox_id;
    let copied = if is_out {
        tree::copy_out(&api, &id, path, Path::new(&args.target)).await?
    } else {
        source::copy_in(&api, &id, Path::new(&args.source), path).await?
    };
    let CopySummary { files, bytes, left_out } = copied;
    for UncopiedFile { path, reason } in &left_out {
        say(&format!("left out {path}: {reason}"));
    }
    if args.json {
        print_json(&json!({ "run": id, "path": path, "files": files, "bytes": bytes, "left_out": left_out }));
    } else {
        let noun = if files == 1 { "file" } else { "files" };
        print(&format!("{files} {noun}, {bytes} bytes\n"));
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns run and path of `RUN:/PATH`; `None` for a path on this host.
fn in_sandbox(text: &str) -> Option<(&str, &str)> {
    let (run, path) = text.split_once(':')?;
    let is_run = !run.is_empty() && !run.starts_with(['/', '.']);
    (is_run && path.starts_with('/')).then_some((run, path))
}

/// Returns the last part of a path in a sandbox.
fn base_name(path: &str) -> PathBuf {
    PathBuf::from(path.trim_end_matches('/').rsplit('/').next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sandboxes_are_told_from_those_of_the_host() {
        for (text, expected) in [
            ("nightly:/workspace/out", Some(("nightly", "/workspace/out"))),
            ("alice/nightly:/workspace", Some(("alice/nightly", "/workspace"))),
            ("./a:/b", None),
            ("/a:/b", None),
            ("a:b", None),
            (":/b", None),
            ("file", None),
        ] {
            assert_eq!(in_sandbox(text), expected, "{text}");
        }
        assert_eq!(base_name("/workspace/out/"), PathBuf::from("out"));
    }
}
