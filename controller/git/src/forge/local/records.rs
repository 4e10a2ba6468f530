//! The files of a local forge: one for each pull request, named by its number.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::NamedTempFile;

use crate::forge::error::ForgeError;
use crate::forge::pull_request::PullRequestState;

/// Maximum number of pull requests of one repository.
const RECORDS_MAX: usize = 10_000;
/// Maximum size of a file.
const FILE_MAX: u64 = 1 << 20;

/// A pull request of a local forge.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LocalRecord {
    pub(super) head: String,
    pub(super) base: String,
    pub(super) title: String,
    pub(super) body: String,
    pub(super) is_draft: bool,
    pub(super) state: PullRequestState,
    /// Commit of the head when the pull request was opened or merged.
    pub(super) head_sha: String,
    /// Commit of a merge that has begun. The merge is complete if the base contains this commit.
    pub(super) merge: Option<String>,
}

/// The directory of the files.
#[derive(Debug)]
pub(super) struct LocalRecords {
    directory: PathBuf,
}

impl LocalRecords {
    pub(super) fn new(directory: PathBuf) -> Self {
        Self { directory }
    }

    /// Returns all records with their numbers.
    pub(super) fn all(&self) -> Result<Vec<(u64, LocalRecord)>, ForgeError> {
        self.numbers()?.into_iter().map(|number| self.get(number).map(|record| (number, record))).collect()
    }

    pub(super) fn get(&self, number: u64) -> Result<LocalRecord, ForgeError> {
        match read(&self.path(number)) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(missing(number)),
            record => record.map_err(failed("read a pull request")),
        }
    }

    /// Adds a record with the next number.
    pub(super) fn add(&self, record: &LocalRecord) -> Result<u64, ForgeError> {
        let write = || {
            fs::create_dir_all(&self.directory)?;
            let mut number = self.numbers_of_files()?.into_iter().max().unwrap_or(0) + 1;
            if number > RECORDS_MAX as u64 {
                return Err(io::Error::other(format!(
                    "there are {RECORDS_MAX} pull requests, the most that there can be"
                )));
            }
            let mut file = self.unnamed(record)?;
            loop {
                match file.persist_noclobber(self.path(number)) {
                    Ok(_) => break,
                    // Another process has used the number.
                    Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => file = error.file,
                    Err(error) => return Err(error.error),
                }
                number += 1;
            }
            self.sync().map(|()| number)
        };
        write().map_err(failed("add a pull request"))
    }

    pub(super) fn replace(&self, number: u64, record: &LocalRecord) -> Result<(), ForgeError> {
        let write = || {
            self.unnamed(record)?.persist(self.path(number)).map_err(|error| error.error)?;
            self.sync()
        };
        write().map_err(failed("change a pull request"))
    }

    fn path(&self, number: u64) -> PathBuf {
        self.directory.join(format!("{number}.json"))
    }

    fn numbers(&self) -> Result<Vec<u64>, ForgeError> {
        self.numbers_of_files().map_err(failed("list the pull requests"))
    }

    fn numbers_of_files(&self) -> io::Result<Vec<u64>> {
        let entries = match fs::read_dir(&self.directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?,
        };
        let mut numbers = Vec::new();
        for entry in entries {
            let name = entry?.file_name();
            numbers.extend(name.to_str().and_then(|name| name.strip_suffix(".json")?.parse::<u64>().ok()));
        }
        numbers.sort_unstable();
        Ok(numbers)
    }

    fn unnamed(&self, record: &LocalRecord) -> io::Result<NamedTempFile> {
        let mut file = NamedTempFile::new_in(&self.directory)?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        file.as_file().sync_all()?;
        Ok(file)
    }

    fn sync(&self) -> io::Result<()> {
        fs::File::open(&self.directory)?.sync_all()
    }
}

fn read(path: &Path) -> io::Result<LocalRecord> {
    if fs::metadata(path)?.len() > FILE_MAX {
        return Err(io::Error::other(format!("its file is longer than {FILE_MAX} bytes")));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

fn missing(number: u64) -> ForgeError {
    ForgeError::NotFound(format!("pull request {number}"))
}

fn failed(what: &'static str) -> impl FnOnce(io::Error) -> ForgeError {
    move |error| ForgeError::Records(what, error)
}
