//! Copies a directory, or a file, of a sandbox to a new directory of the host.
//!
//! The sandbox chooses names and kinds. So each name is one component of a path, each file is created anew, and no existing
//! file is opened.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use http::HeaderValue;
use http::header::RANGE;
use serde::Deserialize;
use sluice_client::{ApiClient, ApiRequest, ClientError};
use sluice_contract::exit;
use sluice_contract::text::sanitize;

use super::super::error::CommandError;
use super::{CopySummary, UncopiedFile, base_name};

pub(super) const ENTRIES_MAX: u64 = 100_000;
pub(super) const BYTES_MAX: u64 = 2 << 30;
pub(super) const DEPTH_MAX: usize = 64;
/// Maximum number of bytes of one answer.
const PART: u64 = 8 << 20;

/// A page of names of a directory.
#[derive(Deserialize)]
struct Files {
    files: Vec<ListedName>,
    next_cursor: Option<String>,
}

/// A name in a directory.
#[derive(Deserialize)]
struct ListedName {
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    name_base64: Option<String>,
    kind: String,
}

/// Copies a path of a sandbox to a directory that does not exist yet. After an error, nothing of it is left.
pub(super) async fn copy_out(
    api: &ApiClient,
    id: &str,
    path: &str,
    target: &Path,
) -> Result<CopySummary, CommandError> {
    let make = |error: io::Error| {
        let message = format!("cannot make the new directory {}: {error}", target.display());
        CommandError { code: exit::FAILED, message }
    };
    new_directory(target).map_err(make)?;
    let mut copy = TreeCopy { api, id, copied: CopySummary::default(), entries: 0 };
    let done = copy.path(path.as_bytes(), target).await;
    if done.is_err() {
        // This command has made the whole directory.
        let _ = fs::remove_dir_all(target);
    }
    done.map(|()| copy.copied)
}

struct TreeCopy<'a> {
    api: &'a ApiClient,
    id: &'a str,
    copied: CopySummary,
    entries: u64,
}

impl TreeCopy<'_> {
    async fn path(&mut self, path: &[u8], target: &Path) -> Result<(), CommandError> {
        let first = match self.page(path, None).await {
            Ok(page) => page,
            Err(error) if error.failure().is_some_and(|failure| failure.code == "not_a_directory") => {
                let name = base_name(&String::from_utf8_lossy(path));
                return self.file(path, &target.join(name)).await;
            }
            Err(error) => return Err(error.into()),
        };
        let mut open = vec![(path.to_vec(), target.to_owned(), 0)];
        let mut first = Some(first);
        while let Some((path, target, depth)) = open.pop() {
            let mut cursor = None::<String>;
            loop {
                let page = match first.take() {
                    Some(page) => page,
                    None => self.page(&path, cursor.as_deref()).await?,
                };
                for entry in page.files {
                    let (inside, outside) = self.place(&path, &target, &entry)?;
                    match entry.kind.as_str() {
                        "file" => self.file(&inside, &outside).await?,
                        "directory" if depth < DEPTH_MAX => {
                            new_directory(&outside).map_err(|error| failed(&outside, &error))?;
                            open.push((inside, outside, depth + 1));
                        }
                        "directory" => self.leave_out(&inside, "it is too deep"),
                        "link" => self.leave_out(&inside, "it is a link"),
                        _ => self.leave_out(&inside, "it is neither a file nor a directory"),
                    }
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Returns the paths of an entry on both sides.
    fn place(&mut self, path: &[u8], target: &Path, entry: &ListedName) -> Result<(Vec<u8>, PathBuf), CommandError> {
        self.entries += 1;
        if self.entries > ENTRIES_MAX {
            return Err(too_large(&format!("more than {ENTRIES_MAX} files")));
        }
        let name = entry.name().ok_or_else(|| {
            let message = "the daemon named a file that is not one name; nothing was copied".to_owned();
            CommandError { code: exit::FAILED, message }
        })?;
        let inside = [path.strip_suffix(b"/").unwrap_or(path), b"/", &name].concat();
        Ok((inside, target.join(OsString::from_vec(name))))
    }

    async fn page(&self, path: &[u8], cursor: Option<&str>) -> Result<Files, ClientError> {
        let request = ApiRequest::get(&["sandboxes", self.id, "files"]).query_of("cursor", cursor);
        self.api.send_in_turn(request.query("path_base64", &BASE64_URL_SAFE_NO_PAD.encode(path))).await
    }

    /// Copies a file, part by part: it may be longer than one answer.
    async fn file(&mut self, path: &[u8], target: &Path) -> Result<(), CommandError> {
        let mut options = OpenOptions::new();
        let opened = options.write(true).create_new(true).mode(0o644).open(target);
        let mut file = opened.map_err(|error| failed(target, &error))?;
        let mut offset = 0;
        loop {
            let range = format!("bytes={offset}-{}", offset + PART - 1);
            let range = HeaderValue::from_str(&range).expect("digits are visible");
            let request = ApiRequest::get(&["sandboxes", self.id, "files"]).path(path).header(RANGE, range);
            let part = match self.api.bytes_in_turn(request).await {
                Ok((_, part)) => part,
                // The file is empty, or ends where the last part did.
                Err(error) if error.failure().is_some_and(|failure| failure.status == 416) => Vec::new(),
                Err(error) => return Err(error.into()),
            };
            file.write_all(&part).map_err(|error| failed(target, &error))?;
            offset += part.len() as u64;
            self.copied.bytes += part.len() as u64;
            if self.copied.bytes > BYTES_MAX {
                return Err(too_large(&format!("more than {} GiB", BYTES_MAX >> 30)));
            }
            if (part.len() as u64) < PART {
                self.copied.files += 1;
                return Ok(());
            }
        }
    }

    fn leave_out(&mut self, path: &[u8], reason: &'static str) {
        let path = sanitize(&String::from_utf8_lossy(path));
        self.copied.left_out.push(UncopiedFile { path, reason });
    }
}

impl ListedName {
    /// Returns the name; `None` for one that is not one component of a path.
    fn name(&self) -> Option<Vec<u8>> {
        let name = match (&self.name, &self.name_base64) {
            (Some(name), _) => name.clone().into_bytes(),
            (None, Some(text)) => BASE64_STANDARD.decode(text).ok()?,
            (None, None) => return None,
        };
        let is_one = !matches!(&name[..], b"" | b"." | b"..") && !name.iter().any(|byte| matches!(byte, b'/' | 0));
        is_one.then_some(name)
    }
}

fn new_directory(path: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o755).create(path)
}

fn failed(path: &Path, error: &io::Error) -> CommandError {
    let path = sanitize(&String::from_utf8_lossy(path.as_os_str().as_bytes()));
    CommandError { code: exit::FAILED, message: format!("cannot write {path}: {error}; nothing was copied") }
}

fn too_large(what: &str) -> CommandError {
    let message = format!("the directory has {what}, which sluice cp does not copy; name a part of it");
    CommandError { code: exit::FAILED, message }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_one_component_of_a_path() {
        let entry = |name: Option<&str>, name_base64: Option<&str>| ListedName {
            name: name.map(str::to_owned),
            name_base64: name_base64.map(str::to_owned),
            kind: "file".to_owned(),
        };
        for wrong in ["", ".", "..", "/etc/passwd", "../x", "a/b", "a\0"] {
            assert_eq!(entry(Some(wrong), None).name(), None, "{wrong:?}");
            let encoded = BASE64_STANDARD.encode(wrong);
            assert_eq!(entry(None, Some(&encoded)).name(), None, "{wrong:?}");
        }
        assert_eq!(entry(None, None).name(), None);
        assert_eq!(entry(None, Some("%")).name(), None);
        assert_eq!(entry(Some("a b\n..."), None).name().as_deref(), Some(&b"a b\n..."[..]));
        assert_eq!(entry(None, Some("/wA=")).name(), None, "it has a NUL byte");
        assert_eq!(entry(None, Some("/wE=")).name().as_deref(), Some(&[0xff, 1][..]));
    }
}
