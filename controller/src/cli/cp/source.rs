//! A file, or a directory, of this host as a new one of a sandbox.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::OFlags;
use serde::Deserialize;
use sluice_client::{ApiClient, ApiRequest};
use sluice_contract::exit;
use sluice_contract::text::sanitize;

use super::super::database::wrong;
use super::super::error::CommandError;
use super::tree::{BYTES_MAX, DEPTH_MAX, ENTRIES_MAX};
use super::{Copied, LeftOut};

/// Size of the largest file that the API takes.
const UPLOAD_MAX: u64 = 64 << 20;

/// The answer to an upload.
#[derive(Deserialize)]
struct WrittenFile {
    size: u64,
}

/// Copies a file or a directory to a path in a sandbox. A directory is new there.
pub(super) async fn copy_in(api: &ApiClient, id: &str, source: &Path, target: &str) -> Result<Copied, CommandError> {
    let unreadable = |error: io::Error| wrong(format!("cannot read {}: {error}", source.display()));
    let meta = fs::metadata(source).map_err(unreadable)?;
    let mut place = target.as_bytes().to_vec();
    if target.ends_with('/') {
        let whole = source.canonicalize().map_err(unreadable)?;
        place.extend_from_slice(whole.file_name().unwrap_or(OsStr::new("")).as_bytes());
    }
    let mut copy = CopyIn { api, id, copied: Copied::default(), entries: 0 };
    if meta.is_dir() {
        copy.directory(source, place).await?;
    } else if meta.is_file() && meta.len() <= UPLOAD_MAX {
        copy.put(&place, fs::read(source).map_err(unreadable)?).await?;
    } else {
        let max = UPLOAD_MAX >> 20;
        let message = format!("{} is neither a directory nor a file of at most {max} MiB", source.display());
        return Err(wrong(message));
    }
    Ok(copy.copied)
}

struct CopyIn<'a> {
    api: &'a ApiClient,
    id: &'a str,
    copied: Copied,
    entries: u64,
}

impl CopyIn<'_> {
    async fn directory(&mut self, source: &Path, target: Vec<u8>) -> Result<(), CommandError> {
        self.make(&target).await?;
        let mut open = vec![(source.to_owned(), target, 0)];
        while let Some((source, target, depth)) = open.pop() {
            for entry in entries(&source).map_err(|error| unreadable(&source, &error))? {
                self.count()?;
                let name = entry.file_name().unwrap_or_default().as_bytes();
                let inside = [&target, &b"/"[..], name].concat();
                let kind = fs::symlink_metadata(&entry).map_err(|error| unreadable(&entry, &error))?.file_type();
                if kind.is_dir() && depth < DEPTH_MAX {
                    self.make(&inside).await?;
                    open.push((entry, inside, depth + 1));
                } else if kind.is_dir() {
                    self.leave_out(&entry, "it is too deep");
                } else if kind.is_symlink() {
                    self.leave_out(&entry, "it is a link");
                } else {
                    self.file(&entry, &inside).await?;
                }
            }
        }
        Ok(())
    }

    async fn file(&mut self, source: &Path, target: &[u8]) -> Result<(), CommandError> {
        match read_file(source).map_err(|error| unreadable(source, &error))? {
            Some(content) if content.len() as u64 <= UPLOAD_MAX => self.put(target, content).await,
            Some(_) => {
                self.leave_out(source, "it has more than 64 MiB");
                Ok(())
            }
            None => {
                self.leave_out(source, "it is neither a file nor a directory");
                Ok(())
            }
        }
    }

    async fn put(&mut self, target: &[u8], content: Vec<u8>) -> Result<(), CommandError> {
        let request = ApiRequest::put(&["sandboxes", self.id, "files"], Bytes::from(content)).path(target);
        let written: WrittenFile = self.api.send(request).await?;
        self.copied.files += 1;
        self.copied.bytes += written.size;
        if self.copied.bytes > BYTES_MAX {
            return Err(too_large(&format!("more than {} GiB", BYTES_MAX >> 30)));
        }
        Ok(())
    }

    async fn make(&mut self, target: &[u8]) -> Result<(), CommandError> {
        let request = ApiRequest::put(&["sandboxes", self.id, "files"], Bytes::new()).path(target);
        self.api.bytes(request.query("directory", "true")).await?;
        Ok(())
    }

    fn count(&mut self) -> Result<(), CommandError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX { Err(too_large(&format!("more than {ENTRIES_MAX} files"))) } else { Ok(()) }
    }

    fn leave_out(&mut self, path: &Path, reason: &'static str) {
        self.copied.left_out.push(LeftOut { path: sanitize(&path.to_string_lossy()), reason });
    }
}

/// Returns the paths of a directory's entries, in the order of their names.
fn entries(directory: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths =
        fs::read_dir(directory)?.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Reads a regular file, up to one byte more than is taken; `None` for another kind of file. No link is followed, and
/// nothing is waited for.
fn read_file(path: &Path) -> io::Result<Option<Vec<u8>>> {
    if !fs::symlink_metadata(path)?.is_file() {
        return Ok(None);
    }
    let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits();
    let file: File = OpenOptions::new().read(true).custom_flags(flags.cast_signed()).open(path)?;
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut content = Vec::new();
    file.take(UPLOAD_MAX + 1).read_to_end(&mut content)?;
    Ok(Some(content))
}

fn unreadable(path: &Path, error: &io::Error) -> CommandError {
    let message = format!("cannot read {}: {error}; what was copied before stays in the sandbox", path.display());
    CommandError { code: exit::FAILED, message }
}

fn too_large(what: &str) -> CommandError {
    let message = format!("the directory has {what}, which sluice cp does not copy; what was copied before stays");
    CommandError { code: exit::FAILED, message }
}
