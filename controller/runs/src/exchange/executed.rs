//! The files of a work tree that git on the host executes, from the configurations of its repositories.
//!
//! The metadata of git on the host are those of its owner: no run has ever written them.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::baseline::{Baseline, CONFIG_MAX};
use super::git_config;
use super::tree::{join, split};

/// Settings in the configurations of a work tree.
#[derive(Debug, Default)]
pub(super) struct HostConfig {
    /// Paths that git executes.
    pub(super) executed: BTreeSet<Vec<u8>>,
    /// True if the repository of the work tree names its objects by SHA-256.
    pub(super) is_sha256: bool,
}

/// Reads the configurations of the repository and of those inside it.
pub(super) fn read(directory: &Path, baseline: &Baseline) -> HostConfig {
    use std::os::unix::ffi::OsStrExt;
    let mut found = HostConfig::default();
    for name in &baseline.git_names {
        let inner = split(name).0;
        let path = |name: &[u8]| directory.join(std::ffi::OsStr::from_bytes(name));
        let config = config(&path(name));
        let work_tree = path(inner).display().to_string();
        let exists = |path: &[u8]| baseline.entries.contains_key(&join(inner, path));
        let executed = git_config::executed_paths(&config, work_tree.trim_end_matches('/'), exists);
        found.executed.extend(executed.iter().map(|path| join(inner, path)));
        found.is_sha256 |= inner.is_empty() && git_config::is_sha256(&config);
    }
    found
}

/// Returns all configuration of a repository, whose metadata may be elsewhere, as in a linked work tree or a submodule.
fn config(git: &Path) -> String {
    let mut directory = git.to_owned();
    if git.is_file() {
        let link = text(git);
        let Some(target) = link.trim().strip_prefix("gitdir:") else { return String::new() };
        directory = beside(git, target.trim());
    }
    let common = text(&directory.join("commondir"));
    let common = if common.is_empty() { directory.clone() } else { directory.join(common.trim()) };
    [directory.join("config.worktree"), common.join("config")].map(|path| text(&path)).join("\n")
}

fn beside(file: &Path, target: &str) -> PathBuf {
    file.parent().unwrap_or(Path::new("/")).join(target)
}

/// Returns the text of a small file; empty if it cannot be read.
fn text(path: &Path) -> String {
    let mut content = Vec::new();
    let is_file = path.metadata().is_ok_and(|meta| meta.is_file());
    let read = || File::open(path)?.take(CONFIG_MAX).read_to_end(&mut content);
    if !is_file || { read }().is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&content).into_owned()
}
