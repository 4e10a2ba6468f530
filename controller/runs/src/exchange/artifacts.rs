//! The files that a daemon's run has left in `/workspace/out`, kept in its record after the workspace is gone.
//!
//! The same files are exported as for `sluice run --out`, read in the same way. A file in the run's directory, invisible to
//! the sandbox, marks that the run keeps them. So any controller that takes the run down keeps them: this one or a later one.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::PathBuf;

use rustix::fs::fstat;
use sha2::{Digest, Sha256};
use sluice_contract::hex;
use sluice_contract::text::error_chain;
use sluice_state::layout::RunPaths;
use sluice_state::records::{Artifact, ArtifactList, LeftOutFile, RunRecord};

use super::error::ExchangeError;
use super::git_names::{is_git_directory, is_git_name};
use super::interrupt::CancelFlag;
use super::tree::{Kind, Listing, Tree, TreeEntry, join, open_file};
use super::{OUT, is_gone};

/// Maximum number of files and directories.
const ENTRIES_MAX: u64 = 10_000;
/// Maximum size of all paths together.
const PATHS_MAX: usize = 2 << 20;
/// Maximum number of files in the list of those that were left out.
const FIRST_LEFT_OUT: usize = 100;
/// Number of bytes in one copy step.
const CHUNK: usize = 256 << 10;

/// Notes that the run keeps its artifacts, with at most this many bytes.
///
/// # Errors
/// Errors of the file system.
pub(crate) fn expect(paths: &RunPaths, max: u64) -> io::Result<()> {
    fs::write(marker(paths), max.to_string())?;
    crate::workspace::make_directory(&paths.work, OUT).map(drop)
}

/// Keeps the artifacts of a run in its record, if it keeps them and has not done so yet. No process of the run is left.
/// Returns a remark for the operator if some could not be kept.
///
/// # Errors
/// Errors of the file system of the record.
pub(crate) fn keep(paths: &RunPaths, record: &RunRecord, interrupt: &CancelFlag) -> io::Result<Option<String>> {
    let Some(max) = expected(paths)? else { return Ok(None) };
    if !record.exists() || record.artifacts().is_ok_and(|list| list.is_some()) {
        return Ok(None);
    }
    record.remove_artifacts()?;
    let mut collector =
        ArtifactCollector { record, interrupt, left: max, left_for_paths: PATHS_MAX, list: ArtifactList::default() };
    let walked = match Tree::open(&paths.work.join(OUT), interrupt) {
        // A run may remove the directory, or never make it.
        Err(ExchangeError::File { source, .. }) if is_gone(&source) => Ok(()),
        Err(error) => Err(error),
        Ok(tree) => tree.walk(ENTRIES_MAX, |listing| collector.visit(&tree, listing)),
    };
    let remark = walked.err().map(|error| {
        collector.list.error = Some(word(&error).to_owned());
        format!("not all artifacts are kept: {}", error_chain(&error))
    });
    record.write_artifacts(&collector.list)?;
    Ok(remark)
}

fn marker(paths: &RunPaths) -> PathBuf {
    paths.conf.join("artifacts")
}

fn expected(paths: &RunPaths) -> io::Result<Option<u64>> {
    match fs::read_to_string(marker(paths)) {
        Ok(text) => Ok(text.parse().ok()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the stable word of an error.
fn word(error: &ExchangeError) -> &'static str {
    match error {
        ExchangeError::TooMany { .. } => "too_many",
        ExchangeError::TooDeep { .. } => "too_deep",
        ExchangeError::NamesTooLarge { .. } => "paths_too_long",
        _ => "not_readable",
    }
}

/// Copies artifacts into a record.
struct ArtifactCollector<'a> {
    record: &'a RunRecord,
    interrupt: &'a CancelFlag,
    /// Bytes that may still be copied.
    left: u64,
    /// Bytes that further paths may have.
    left_for_paths: usize,
    list: ArtifactList,
}

impl ArtifactCollector<'_> {
    fn visit(&mut self, tree: &Tree, listing: &Listing<'_>) -> Result<Vec<usize>, ExchangeError> {
        if is_git_directory(listing.entries.iter().map(|(name, _)| name.as_slice())) {
            self.leave_out(listing.path, "git");
            return Ok(Vec::new());
        }
        let mut enter = Vec::new();
        for (index, (name, entry)) in listing.entries.iter().enumerate() {
            let path = join(listing.path, name);
            match entry.kind {
                _ if is_git_name(name) => self.leave_out(&path, "git"),
                Kind::Directory => enter.push(index),
                Kind::Link => self.leave_out(&path, "link"),
                Kind::Special => self.leave_out(&path, "special"),
                Kind::File => {
                    let file = open_file(listing.directory, name).map_err(tree.error(&path))?;
                    self.keep(&path, entry, &file).map_err(tree.error(&path))?;
                }
            }
        }
        Ok(enter)
    }

    fn leave_out(&mut self, path: &[u8], reason: &str) {
        self.list.left_out += 1;
        if self.list.first_left_out.len() < FIRST_LEFT_OUT && path.len() <= self.left_for_paths {
            self.left_for_paths -= path.len();
            self.list.first_left_out.push(LeftOutFile { path: path.to_vec(), reason: reason.to_owned() });
        }
    }

    fn keep(&mut self, path: &[u8], entry: &TreeEntry, file: &File) -> io::Result<()> {
        if path.len() > self.left_for_paths {
            self.leave_out(b"", "path_too_long");
            return Ok(());
        }
        let number = self.list.artifacts.len();
        let Some((size, sha256)) = self.copy(file, number)? else {
            self.leave_out(path, "too_large");
            return Ok(());
        };
        self.left -= size;
        self.left_for_paths -= path.len();
        self.list.artifacts.push(Artifact {
            path: path.to_vec(),
            size,
            mode: if entry.is_executable() { 0o755 } else { 0o644 },
            sha256,
            modified: fstat(file)?.st_mtime,
        });
        Ok(())
    }

    /// Returns size and SHA-256 of a copied file; `None` without room for it.
    fn copy(&self, mut from: &File, number: usize) -> io::Result<Option<(u64, String)>> {
        if from.metadata()?.len() > self.left {
            return Ok(None);
        }
        let (mut to, mut buffer) = (self.record.create_artifact(number)?, vec![0; CHUNK]);
        let (mut size, mut digest) = (0, Sha256::new());
        loop {
            self.interrupt.check()?;
            let len = match from.read(&mut buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                len => len?,
            };
            size += len as u64;
            if len == 0 {
                return Ok(Some((size, hex::encode(&digest.finalize()))));
            }
            if size > self.left {
                self.record.remove_artifact(number)?;
                return Ok(None);
            }
            to.write_all(&buffer[..len])?;
            digest.update(&buffer[..len]);
        }
    }
}

#[cfg(test)]
mod tests;
