//! Files that are replaced as a whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use serde::Serializer;

/// Replaces or creates a file that only its owner may use, through `temporary` in the same file system. After a power
/// cut, `path` has either its old content or all of the new one. `temporary` is overwritten, so concurrent callers need
/// a lock.
///
/// # Errors
/// Errors of the file system; then `path` is unchanged, unless only the sync of its directory failed.
pub fn replace(path: &Path, temporary: &Path, content: &[u8]) -> io::Result<()> {
    let done = write(temporary, content).and_then(|()| fs::rename(temporary, path));
    if done.is_err() {
        let _ = fs::remove_file(temporary);
    }
    done?;
    sync_directory(parent(path))
}

/// Syncs the names in a directory to disk.
///
/// # Errors
/// Errors of the file system.
pub fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the directory of a file.
pub(crate) fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    // A file that a killed process has left may have another mode, or be a link.
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)?;
    file.sync_all()
}

/// Serialises a path as text, also one that is not UTF-8.
pub(crate) fn serialize_path<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&path.display())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn a_file_is_replaced_whole_and_stays_private() {
        let directory = tempfile::tempdir().expect("there is room");
        let (path, temporary) = (directory.path().join("file"), directory.path().join("file.new"));
        fs::write(&temporary, "a part that a killed process left").expect("it is ours");
        for content in [&b"old and long"[..], b"new"] {
            replace(&path, &temporary, content).expect("there is room");
            assert_eq!(fs::read(&path).expect("it is there"), content);
            assert_eq!(fs::metadata(&path).expect("it is there").mode() & 0o777, 0o600);
            assert!(!temporary.exists());
        }
    }

    /// Bug: commands ended by a panic after their work was done.
    #[test]
    fn a_path_of_any_bytes_is_serialised() {
        use std::os::unix::ffi::OsStrExt;

        #[derive(serde::Serialize)]
        struct Named<'a> {
            #[serde(serialize_with = "serialize_path")]
            path: &'a Path,
        }
        let path = Path::new(std::ffi::OsStr::from_bytes(b"/b/\xff"));
        let text = serde_json::to_string(&Named { path }).expect("any path is text");
        assert_eq!(text, "{\"path\":\"/b/\u{fffd}\"}");
    }

    #[test]
    fn a_failed_replacement_leaves_nothing_behind() {
        let directory = tempfile::tempdir().expect("there is room");
        let (path, temporary) = (directory.path().join("file"), directory.path().join("file.new"));
        fs::create_dir(&path).expect("there is room");
        fs::write(path.join("inside"), "").expect("there is room");
        assert!(replace(&path, &temporary, b"new").is_err());
        assert!(path.join("inside").exists() && !temporary.exists());
    }
}
