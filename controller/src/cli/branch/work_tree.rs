//! A patch in a person's own work tree.

use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_contract::exit;
use sluice_contract::text::sanitize;

use super::CommandError;

/// Returns the path of the work tree that `--to` names, without links.
pub(super) fn find(named: &Path) -> Result<PathBuf, CommandError> {
    std::fs::canonicalize(named).map_err(|error| {
        CommandError::wrong_usage(format!("--to {}: {error}; name the work tree of a git repository", named.display()))
    })
}

/// Lets git apply a patch as the owner of the directory, who has the same rights anyway.
pub(super) fn apply(directory: &Path, patch: &[u8], flags: &[&str]) -> Result<(), CommandError> {
    let failed = |error: std::io::Error| CommandError::failed(&error);
    let owner = std::fs::metadata(directory).map_err(failed)?;
    let mut command = Command::new("git");
    command.arg("apply").args(flags).arg("-").current_dir(directory);
    command.env_clear().env("PATH", "/usr/local/bin:/usr/bin:/bin").env("GIT_CONFIG_NOSYSTEM", "1");
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    if nix::unistd::Uid::effective().is_root() {
        command.uid(owner.uid()).gid(owner.gid());
    }
    let mut child = command.spawn().map_err(failed)?;
    let mut stdin = child.stdin.take().expect("it is piped");
    let done = std::thread::scope(|scope| {
        // Git that refuses the patch closes the pipe early.
        scope.spawn(move || stdin.write_all(patch));
        child.wait_with_output()
    });
    let done = done.map_err(failed)?;
    if done.status.success() {
        return Ok(());
    }
    let message = format!("git apply: {}", sanitize(String::from_utf8_lossy(&done.stderr).trim()));
    Err(CommandError { code: exit::FAILED, message })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_work_tree_is_named() {
        let error = find(Path::new("/nope")).expect_err("it does not exist");
        assert_eq!(error.code, exit::USAGE);
        assert!(error.message.starts_with("--to /nope: "), "{}", error.message);
    }
}
