//! The files of `make release`, as an operator without Rust gets them.
//!
//! These tests need the feature `release`, because a plain `cargo test` has no release. `make test` makes one first.

mod compose;
mod packages;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Returns the path of the checkout.
fn checkout() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
}

/// Returns the path of the only file of the release with this ending.
fn released(ending: &str) -> PathBuf {
    let dir = checkout().join("dist/release");
    let entries = std::fs::read_dir(&dir).expect("there is a release: run make release first");
    let paths = entries.map(|entry| entry.expect("a directory can be read").path());
    let mut found: Vec<PathBuf> = paths.filter(|path| path.to_string_lossy().ends_with(ending)).collect();
    assert_eq!(found.len(), 1, "{} has files with the ending {ending}: {found:?}", dir.display());
    found.remove(0)
}

/// Runs a command to its end, and returns its stdout. Panics if it fails.
fn run(command: &mut Command) -> String {
    let output =
        command.stdin(Stdio::null()).output().unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {stderr}", output.status);
    String::from_utf8(output.stdout).expect("text")
}

/// Returns a command in this directory.
fn command_in(dir: &Path, words: &[&str]) -> Command {
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).current_dir(dir);
    command
}
