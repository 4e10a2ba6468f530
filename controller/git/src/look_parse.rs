//! Changed files and commits as git prints them for programs.
//!
//! Pure. Paths and texts come from the sandbox.

use std::collections::HashMap;

use crate::object_id::ObjectId;

/// Mode of a submodule: the entry names a commit of another repository.
pub(crate) const SUBMODULE: u32 = 160_000;

/// Kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangeStatus {
    /// New path.
    Added,
    /// Other content or mode.
    Modified,
    /// Removed path.
    Deleted,
    /// Other type: a file, link or submodule became another of these.
    TypeChanged,
}

impl ChangeStatus {
    /// Returns the word that output uses.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Added => "added",
            Self::Modified => "modified",
            Self::Deleted => "deleted",
            Self::TypeChanged => "type_changed",
        }
    }
}

/// One path that differs. A rename is a removal and an addition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedFile {
    /// Bytes of the path; `visible_path` converts them to text for people.
    pub path: Vec<u8>,
    /// Kind of the change.
    pub status: ChangeStatus,
    /// Mode of the new file, such as 100644, 100755, 120000 (link) or 160000 (submodule); 0 if the file was removed.
    pub mode: u32,
    /// Mode before the change, in the same form; 0 if the file is new.
    pub old_mode: u32,
    /// Added lines; none for a binary file.
    pub added: Option<u64>,
    /// Removed lines; none for a binary file.
    pub removed: Option<u64>,
}

/// One commit of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitLine {
    /// Id of the commit.
    pub id: ObjectId,
    /// Author as in the commit, without control characters.
    pub author: String,
    /// Author time, in seconds since 1970.
    pub time: i64,
    /// First line of the message, without control characters.
    pub subject: String,
}

/// Output that does not have git's format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrokenOutput;

/// Reads `diff-tree -r -z --raw`. Stops after `most` paths, and returns true if there were more.
pub(crate) fn changed_files(output: &[u8], most: usize) -> Result<(Vec<ChangedFile>, bool), BrokenOutput> {
    let mut files = Vec::new();
    let mut fields = output.split(|byte| *byte == 0).filter(|field| !field.is_empty());
    while let Some(field) = fields.next() {
        if files.len() == most {
            return Ok((files, true));
        }
        let raw = field.strip_prefix(b":").ok_or(BrokenOutput)?;
        files.push(raw_change(raw, fields.next().ok_or(BrokenOutput)?)?);
    }
    Ok((files, false))
}

/// Adds the numbers of lines of `diff-tree -r -z --numstat` to the files. Files without a number stay without one.
pub(crate) fn add_counts(files: &mut [ChangedFile], output: &[u8]) {
    let mut places: HashMap<Vec<u8>, &mut ChangedFile> =
        files.iter_mut().map(|file| (file.path.clone(), file)).collect();
    for field in output.split(|byte| *byte == 0) {
        let words: Vec<&[u8]> = field.splitn(3, |byte| *byte == b'\t').collect();
        if let [added, removed, path] = words[..]
            && let Some(file) = places.get_mut(path)
        {
            (file.added, file.removed) = (number(added), number(removed));
        }
    }
}

fn raw_change(raw: &[u8], path: &[u8]) -> Result<ChangedFile, BrokenOutput> {
    let words: Vec<&str> = std::str::from_utf8(raw).map_err(|_| BrokenOutput)?.split(' ').collect();
    let [old_mode, mode, _, _, status] = words[..] else { return Err(BrokenOutput) };
    let status = match status.bytes().next() {
        Some(b'A') => ChangeStatus::Added,
        Some(b'M') => ChangeStatus::Modified,
        Some(b'D') => ChangeStatus::Deleted,
        Some(b'T') => ChangeStatus::TypeChanged,
        _ => return Err(BrokenOutput),
    };
    let (old_mode, mode) = (old_mode.parse().map_err(|_| BrokenOutput)?, mode.parse().map_err(|_| BrokenOutput)?);
    Ok(ChangedFile { path: path.to_vec(), status, old_mode, mode, added: None, removed: None })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

/// Format of a commit for `rev-list`; `commit_lines` parses the output.
pub(crate) const COMMIT_FORM: &str = "--format=%H%x00%an <%ae>%x00%at%x00%s%x00";

/// Reads commits in [`COMMIT_FORM`].
pub(crate) fn commit_lines(output: &[u8]) -> Result<Vec<CommitLine>, BrokenOutput> {
    let mut fields = output.split(|byte| *byte == 0);
    let mut commits = Vec::new();
    loop {
        let first = fields.next().ok_or(BrokenOutput)?;
        let id = first.trim_ascii();
        if id.is_empty() {
            return Ok(commits);
        }
        let mut text = || fields.next().map(|field| sluice_contract::text::sanitize(&String::from_utf8_lossy(field)));
        let (author, time, subject) = (text(), text(), text());
        let (Some(author), Some(time), Some(subject)) = (author, time, subject) else { return Err(BrokenOutput) };
        let id = ObjectId::from_bytes(id).map_err(|_| BrokenOutput)?;
        commits.push(CommitLine { id, author, time: time.parse().unwrap_or(0), subject });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_bytes_with_their_counts() {
        let raw = |status: &str, path: &str| format!(":100644 100755 aaa bbb {status}\0{path}\0");
        let output = format!("{}{}", raw("M", "a\nb"), raw("A", "c\td"));
        let (mut files, is_cut) = changed_files(output.as_bytes(), 5).expect("two files");
        assert!(!is_cut);
        add_counts(&mut files, b"1\t2\ta\nb\0-\t-\tc\td\x003\t4\tother\x005");
        assert_eq!((&files[0].path[..], files[0].added, files[0].removed), (&b"a\nb"[..], Some(1), Some(2)));
        assert_eq!((&files[1].path[..], files[1].added, files[1].status), (&b"c\td"[..], None, ChangeStatus::Added));
        assert!(changed_files(output.as_bytes(), 1).expect("one file").1);
        assert_eq!((files[0].old_mode, files[0].mode), (100_644, 100_755));
        assert_eq!(changed_files(b":1 2 3\0a\0", 5), Err(BrokenOutput));
        assert_eq!(changed_files(b"1\t2\ta\0", 5), Err(BrokenOutput));
    }

    #[test]
    fn commits_have_four_fields() {
        let id = "1".repeat(40);
        let output = format!("{id}\0A <a@b>\x0012\0words \x1b[31m\0\n{id}\0B <a@b>\x00x\0\0\n");
        let commits = commit_lines(output.as_bytes()).expect("two commits");
        assert_eq!((commits.len(), commits[0].time, commits[1].time), (2, 12, 0));
        assert!(!commits[0].subject.contains('\x1b'));
        assert_eq!(commit_lines(b"x\0a\0b\0c\0"), Err(BrokenOutput));
        assert_eq!(commit_lines(b""), Ok(Vec::new()));
    }
}
