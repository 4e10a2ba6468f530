//! The artifacts of a run in its record: a list, and the content of each in a file whose name is a number.
//!
//! The list and the files are ours, and no path of a sandbox becomes a path of the host. A record without a list has no
//! artifacts yet, or its run keeps none.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sluice_contract::hex;

use super::RunRecord;

/// File with the list of artifacts.
pub const ARTIFACTS: &str = "artifacts.json";
/// First part of the names of files with the content of artifacts.
const PREFIX: &str = "artifact.";

/// The artifacts of an attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArtifactList {
    /// The artifacts, in the order of their numbers.
    pub artifacts: Vec<Artifact>,
    /// Number of files and directories that were left out.
    pub left_out: u64,
    /// The first files that were left out.
    pub first_left_out: Vec<LeftOutFile>,
    /// A stable reason word if some artifacts are neither in `artifacts` nor counted in `left_out`.
    pub error: Option<String>,
}

/// A file that a run has left.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Artifact {
    /// Path below the directory of results, which need not be text.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub path: Vec<u8>,
    /// Number of bytes.
    pub size: u64,
    /// File mode: 0o644 or 0o755.
    pub mode: u32,
    /// SHA-256 in hex digits.
    pub sha256: String,
    /// Modification time in seconds since 1970.
    pub modified: i64,
}

/// A file or directory that was left out of the artifacts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeftOutFile {
    /// Path below the directory of results, which need not be text.
    #[serde(serialize_with = "to_hex", deserialize_with = "from_hex")]
    pub path: Vec<u8>,
    /// A stable word for the reason.
    pub reason: String,
}

impl RunRecord {
    /// Returns the list of artifacts; `None` if it was not written yet.
    ///
    /// # Errors
    /// Errors of the file system, and a file with other content.
    pub fn artifacts(&self) -> io::Result<Option<ArtifactList>> {
        self.read_json(ARTIFACTS)
    }

    /// Opens the content of the artifact with this number.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn open_artifact(&self, number: usize) -> io::Result<File> {
        File::open(self.artifact(number))
    }

    /// Creates the file of the artifact with this number.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn create_artifact(&self, number: usize) -> io::Result<File> {
        OpenOptions::new().write(true).create_new(true).mode(0o600).open(self.artifact(number))
    }

    /// Removes the file of the artifact with this number.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove_artifact(&self, number: usize) -> io::Result<()> {
        fs::remove_file(self.artifact(number))
    }

    /// Removes the files of a killed controller, which has written no list.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn remove_artifacts(&self) -> io::Result<()> {
        for entry in fs::read_dir(self.directory())? {
            let entry = entry?;
            if entry.file_name().to_str().is_some_and(is_artifact) {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Writes the list, once the files are complete and on disk.
    ///
    /// # Errors
    /// Errors of the file system.
    pub fn write_artifacts(&self, list: &ArtifactList) -> io::Result<()> {
        nix::unistd::syncfs(File::open(self.directory())?)?;
        self.write(ARTIFACTS, &serde_json::to_vec(list)?)
    }

    fn artifact(&self, number: usize) -> PathBuf {
        self.path(&format!("{PREFIX}{number}"))
    }
}

fn to_hex<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    hex::encode(bytes).serialize(serializer)
}

fn from_hex<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(deserializer)?;
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    let bytes = pairs.iter().map(|pair| hex::decode::<1>(pair).map(|[byte]| byte)).collect::<Option<Vec<_>>>();
    bytes.filter(|_| rest.is_empty()).ok_or_else(|| D::Error::custom("a path is not in hex digits"))
}

/// Returns true for the name of a file with the content of an artifact.
pub(super) fn is_artifact(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|number| !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::super::Records;
    use super::*;

    #[test]
    fn a_list_is_written_after_its_files() {
        let directory = tempfile::tempdir().expect("there is room");
        let record = Records::at(directory.path().to_owned()).create(&"r.0".parse().expect("a key")).expect("room");
        record.write("artifact.x", b"not a number").expect("there is room");
        record.create_artifact(7).expect("there is room");
        assert_eq!(record.artifacts().expect("it is readable"), None);
        record.remove_artifacts().expect("it is ours");
        assert!(record.open_artifact(7).is_err() && record.path("artifact.x").exists());

        record.create_artifact(0).and_then(|mut file| file.write_all(b"abc")).expect("there is room");
        assert!(record.create_artifact(0).is_err(), "no file is written twice");
        let artifact =
            Artifact { path: b"a\xff".to_vec(), size: 3, mode: 0o644, sha256: "aa".to_owned(), modified: -1 };
        let list = ArtifactList { artifacts: vec![artifact], left_out: 1, ..ArtifactList::default() };
        record.write_artifacts(&list).expect("there is room");

        assert_eq!(record.artifacts().expect("it is readable"), Some(list));
        let mut content = String::new();
        record.open_artifact(0).and_then(|mut file| file.read_to_string(&mut content)).expect("it is there");
        assert_eq!(content, "abc");
        record.remove_artifact(0).expect("it is ours");
        assert!(record.open_artifact(0).is_err());
    }
}
