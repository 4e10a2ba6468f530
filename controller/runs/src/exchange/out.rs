//! The files that a run has left for `--out`.

use std::io;

use super::copy::{Age, Allowance, NewEntry};
use super::error::ExchangeError;
use super::git_names::{is_git_directory, is_git_name};
use super::interrupt::CancelFlag;
use super::owner::Owner;
use super::tree::{Kind, Tree, join, open_file};

/// Maximum number of files and directories.
const ENTRIES_MAX: u64 = 100_000;
/// Maximum size of all files together.
const BYTES_MAX: u64 = 2 << 30;

/// Outcome of a copy.
#[derive(Debug, Default)]
pub(super) struct CopiedOut {
    pub(super) files: u64,
    pub(super) bytes: u64,
    /// Entries that were not copied, with the reasons.
    pub(super) left_out: Vec<(Vec<u8>, String)>,
}

/// Copies regular files and directories into an empty directory.
pub(super) fn copy_out(
    from: &Tree,
    to: &Tree,
    owner: Owner,
    interrupt: &CancelFlag,
) -> Result<CopiedOut, ExchangeError> {
    let mut copied = CopiedOut::default();
    let mut allowance = Allowance::new(BYTES_MAX, interrupt);
    from.walk(ENTRIES_MAX, |listing| {
        if is_git_directory(listing.entries.iter().map(|(name, _)| name.as_slice())) {
            copied.left_out.push((listing.path.to_vec(), "it is a repository of git".to_owned()));
            return Ok(Vec::new());
        }
        let directory = to.directory(listing.path).map_err(to.error(listing.path))?;
        let mut enter = Vec::new();
        for (index, (name, entry)) in listing.entries.iter().enumerate() {
            let path = join(listing.path, name);
            let place = NewEntry { directory: &directory, name, owner, mode: 0o755 };
            let why = match entry.kind {
                _ if is_git_name(name) => Some("git would take it for a repository"),
                Kind::Directory => {
                    place.make_directory().map_err(to.error(&path))?;
                    enter.push(index);
                    None
                }
                Kind::File => {
                    let mode = if entry.is_executable() { 0o755 } else { 0o644 };
                    let file = open_file(listing.directory, name).map_err(from.error(&path))?;
                    match (NewEntry { mode, ..place }).copy(&file, Age::Original, &mut allowance) {
                        Err(error) if error.kind() == io::ErrorKind::FileTooLarge => {
                            return Err(from.too_large(b"", BYTES_MAX));
                        }
                        done => done.map_err(to.error(&path))?,
                    }
                    copied.files += 1;
                    None
                }
                Kind::Link => Some("it is a link"),
                Kind::Special => Some("it is a device, a FIFO or a socket"),
            };
            copied.left_out.extend(why.map(|why| (path, why.to_owned())));
        }
        Ok(enter)
    })?;
    Ok(CopiedOut { bytes: allowance.used(), ..copied })
}
