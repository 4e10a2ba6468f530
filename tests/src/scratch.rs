//! Directories that live as long as a test.

use std::fs::{OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A fresh directory, removed with everything in it when dropped.
#[derive(Debug)]
pub struct TempDir(tempfile::TempDir);

impl TempDir {
    /// Creates the directory.
    pub fn new() -> Self {
        // Programs under test run as other users.
        Self(directory(0o755).expect("the directory for temporary files takes another one"))
    }

    /// The directory's path.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// A path inside it.
    pub fn join(&self, name: &str) -> PathBuf {
        self.path().join(name)
    }
}

/// Makes a directory of this mode.
///
/// The name is short: a unix socket path holds 107 bytes.
pub(crate) fn directory(mode: u32) -> io::Result<tempfile::TempDir> {
    tempfile::Builder::new().prefix("slk").permissions(Permissions::from_mode(mode)).tempdir()
}

/// Writes a file that only its owner can read, as a key must be.
pub fn write_private(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes())).expect("a test's directory takes files");
}

/// Writes a shell script. A separate process writes it: a file that this one has open for writing cannot be
/// executed ("Text file busy"), and a child that another test starts meanwhile keeps it open for a moment longer.
pub fn write_script(path: &Path, lines: &str) {
    let mut writer = Command::new("sh")
        .args(["-c", "cat > \"$0\" && chmod 755 \"$0\""])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut stdin = writer.stdin.take().expect("stdin is piped");
    stdin.write_all(format!("#!/bin/sh\n{lines}\n").as_bytes()).expect("cat reads it");
    drop(stdin);
    assert!(writer.wait().expect("it is our child").success(), "cannot write {}", path.display());
}

impl Default for TempDir {
    fn default() -> Self {
        Self::new()
    }
}
