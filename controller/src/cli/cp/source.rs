//! Copies a file or a directory of this host into a sandbox.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use bytes::Bytes;
use serde::Deserialize;
use sluice_client::{ApiClient, ApiRequest};
use sluice_contract::exit;
use sluice_contract::text::sanitize;

use super::super::error::CommandError;
use super::host_tree::{self, EntryKind, HostTree, Source, is_changed};
use super::tree::{BYTES_MAX, DEPTH_MAX, ENTRIES_MAX};
use super::{CopySummary, UncopiedFile};

/// Maximum size of a file that the API accepts.
const UPLOAD_MAX: u64 = 64 << 20;

/// The answer to an upload.
#[derive(Deserialize)]
struct UploadAnswer {
    size: u64,
}

/// Copies a file or a directory to a path in a sandbox. A directory is new there.
pub(super) async fn copy_in(
    api: &ApiClient,
    id: &str,
    source: &Path,
    target: &str,
) -> Result<CopySummary, CommandError> {
    let unreadable = |error: io::Error| CommandError::wrong_usage(format!("cannot read {}: {error}", source.display()));
    let opened = host_tree::open(source).map_err(unreadable)?;
    let mut place = target.as_bytes().to_vec();
    if target.ends_with('/') {
        let whole = source.canonicalize().map_err(unreadable)?;
        place.extend_from_slice(whole.file_name().unwrap_or(OsStr::new("")).as_bytes());
    }
    let mut copy = CopyIn { api, id, source, copied: CopySummary::default(), entries: 0 };
    let content = match opened {
        Source::Directory(tree) => {
            copy.directory(&tree, place).await?;
            return Ok(copy.copied);
        }
        Source::File(file) => Some(host_tree::read(file, UPLOAD_MAX).map_err(unreadable)?),
        Source::Other => None,
    };
    let Some(content) = content.filter(|content| content.len() as u64 <= UPLOAD_MAX) else {
        let max = UPLOAD_MAX >> 20;
        let message = format!("{} is neither a directory nor a file of at most {max} MiB", source.display());
        return Err(CommandError::wrong_usage(message));
    };
    copy.put(&place, content).await?;
    Ok(copy.copied)
}

struct CopyIn<'a> {
    api: &'a ApiClient,
    id: &'a str,
    source: &'a Path,
    copied: CopySummary,
    entries: u64,
}

impl CopyIn<'_> {
    async fn directory(&mut self, tree: &HostTree, target: Vec<u8>) -> Result<(), CommandError> {
        self.make(&target).await?;
        let mut open = vec![(Vec::new(), 0)];
        while let Some((directory, depth)) = open.pop() {
            let Some(names) = self.found(&directory, tree.names(&directory))? else { continue };
            for name in names {
                self.count()?;
                let path = if directory.is_empty() { name } else { [&directory, &b"/"[..], &name].concat() };
                let inside = [&target, &b"/"[..], &path].concat();
                match self.found(&path, tree.kind(&path))? {
                    Some(EntryKind::Directory) if depth < DEPTH_MAX => {
                        self.make(&inside).await?;
                        open.push((path, depth + 1));
                    }
                    Some(EntryKind::Directory) => self.leave_out(&path, "it is too deep"),
                    Some(EntryKind::Link) => self.leave_out(&path, "it is a link"),
                    Some(EntryKind::Special) => self.leave_out(&path, "it is neither a file nor a directory"),
                    Some(EntryKind::File) => {
                        if let Some(file) = self.found(&path, tree.file(&path))? {
                            self.file(&path, file, &inside).await?;
                        }
                    }
                    None => {}
                }
            }
        }
        Ok(())
    }

    /// Leaves out an entry that has gone or was replaced since its directory was read.
    fn found<T>(&mut self, path: &[u8], result: io::Result<T>) -> Result<Option<T>, CommandError> {
        match result {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_changed(&error) => {
                self.leave_out(path, "it has changed meanwhile");
                Ok(None)
            }
            Err(error) => Err(self.unreadable(path, &error)),
        }
    }

    async fn file(&mut self, path: &[u8], file: Option<File>, target: &[u8]) -> Result<(), CommandError> {
        let Some(file) = file else {
            self.leave_out(path, "it is neither a file nor a directory");
            return Ok(());
        };
        let content = host_tree::read(file, UPLOAD_MAX).map_err(|error| self.unreadable(path, &error))?;
        if content.len() as u64 > UPLOAD_MAX {
            self.leave_out(path, "it has more than 64 MiB");
            return Ok(());
        }
        self.put(target, content).await
    }

    async fn put(&mut self, target: &[u8], content: Vec<u8>) -> Result<(), CommandError> {
        let request = ApiRequest::put(&["sandboxes", self.id, "files"], Bytes::from(content)).path(target);
        let written: UploadAnswer = self.api.send_in_turn(request).await?;
        self.copied.files += 1;
        self.copied.bytes += written.size;
        if self.copied.bytes > BYTES_MAX {
            return Err(too_large(&format!("more than {} GiB", BYTES_MAX >> 30)));
        }
        Ok(())
    }

    async fn make(&mut self, target: &[u8]) -> Result<(), CommandError> {
        let request = ApiRequest::put(&["sandboxes", self.id, "files"], Bytes::new()).path(target);
        self.api.bytes_in_turn(request.query("directory", "true")).await?;
        Ok(())
    }

    fn count(&mut self) -> Result<(), CommandError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX { Err(too_large(&format!("more than {ENTRIES_MAX} files"))) } else { Ok(()) }
    }

    fn leave_out(&mut self, path: &[u8], reason: &'static str) {
        let path = sanitize(&self.source.join(OsStr::from_bytes(path)).to_string_lossy());
        self.copied.left_out.push(UncopiedFile { path, reason });
    }

    fn unreadable(&self, path: &[u8], error: &io::Error) -> CommandError {
        let path = sanitize(&self.source.join(OsStr::from_bytes(path)).to_string_lossy());
        let message = format!("cannot read {path}: {error}; what was copied before stays in the sandbox");
        CommandError { code: exit::FAILED, message }
    }
}

fn too_large(what: &str) -> CommandError {
    let message = format!("the directory has {what}, which sluice cp does not copy; what was copied before stays");
    CommandError { code: exit::FAILED, message }
}
