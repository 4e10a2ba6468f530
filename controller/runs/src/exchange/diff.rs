//! The difference of two versions of one file, in the format of `git apply`.
//!
//! Pure. A text becomes hunks of lines; other content becomes a binary patch, which has both versions.

use std::fmt::Write;
use std::ops::Range;

use imara_diff::Hunk;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use sluice_contract::hex;

use super::lines::{LineBudget, changed_lines};

/// Number of unchanged lines around a change.
const CONTEXT: u32 = 3;
/// Maximum size of a version that is compared line by line.
const TEXT_MAX: usize = 8 << 20;

/// One version of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Version<'a> {
    /// Mode as git writes it.
    pub(super) mode: &'static str,
    pub(super) content: &'a [u8],
}

/// Hash by which a repository names its objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ObjectHash {
    Sha1,
    Sha256,
}

/// The difference of two versions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct FileDiff {
    pub(super) text: Vec<u8>,
    pub(super) insertions: u64,
    pub(super) deletions: u64,
}

/// Returns the difference of two versions of the file at a path; empty if they are the same. A file that becomes a link, or
/// a link that becomes a file, is deleted and created.
pub(super) fn diff(
    path: &[u8],
    before: Option<Version<'_>>,
    after: Option<Version<'_>>,
    hash: ObjectHash,
    budget: &mut LineBudget,
) -> FileDiff {
    let is_link = |version: Version<'_>| version.mode == "120000";
    match (before, after) {
        (before, after) if before == after => FileDiff::default(),
        (Some(old), Some(new)) if is_link(old) != is_link(new) => {
            let mut whole = one(path, Some(old), None, hash, budget);
            let created = one(path, None, Some(new), hash, budget);
            whole.text.extend_from_slice(&created.text);
            FileDiff { insertions: created.insertions, ..whole }
        }
        (before, after) => one(path, before, after, hash, budget),
    }
}

fn one(
    path: &[u8],
    before: Option<Version<'_>>,
    after: Option<Version<'_>>,
    hash: ObjectHash,
    budget: &mut LineBudget,
) -> FileDiff {
    let [a, b] = [b"a/".as_slice(), b"b/"].map(|side| quote(&[side, path].concat()));
    let mut head = format!("diff --git {a} {b}\n");
    let mode = match (before, after) {
        (Some(old), Some(new)) if old.mode != new.mode => {
            let _ = write!(head, "old mode {}\nnew mode {}\n", old.mode, new.mode);
            String::new()
        }
        (Some(old), Some(_)) => format!(" {}", old.mode),
        (Some(old), None) => {
            let _ = writeln!(head, "deleted file mode {}", old.mode);
            String::new()
        }
        (None, Some(new)) => {
            let _ = writeln!(head, "new file mode {}", new.mode);
            String::new()
        }
        (None, None) => String::new(),
    };
    let [old, new] = [before, after].map(|version| version.map_or(b"".as_slice(), |version| version.content));
    let mut diff = FileDiff { text: head.into_bytes(), ..FileDiff::default() };
    if old == new && before.is_some() && after.is_some() {
        return diff;
    }
    let [old_id, new_id] = [before, after].map(|version| object_id(version, hash));
    diff.text.extend_from_slice(format!("index {old_id}..{new_id}{mode}\n").as_bytes());
    if is_text(old) && is_text(new) {
        if old != new {
            let name =
                |version: Option<Version<'_>>, name| if version.is_some() { name } else { "/dev/null".to_owned() };
            let names = format!("--- {}\n+++ {}\n", name(before, a), name(after, b));
            diff.text.extend_from_slice(names.as_bytes());
            hunks(old, new, budget, &mut diff);
        }
    } else {
        diff.text.extend_from_slice(b"GIT binary patch\n");
        literal(new, &mut diff.text);
        literal(old, &mut diff.text);
    }
    diff
}

fn is_text(content: &[u8]) -> bool {
    content.len() <= TEXT_MAX && !content.contains(&0)
}

/// Appends the changed lines with their context.
fn hunks(old: &[u8], new: &[u8], budget: &mut LineBudget, diff: &mut FileDiff) {
    let lines = |text| -> Vec<&[u8]> { <[u8]>::split_inclusive(text, |byte| *byte == b'\n').collect() };
    let (old, new) = (lines(old), lines(new));
    let changes = changed_lines(&old, &new, budget);
    diff.insertions += changes.iter().map(|hunk| hunk.after.len() as u64).sum::<u64>();
    diff.deletions += changes.iter().map(|hunk| hunk.before.len() as u64).sum::<u64>();
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in changes {
        if group.last().is_some_and(|last| hunk.before.start - last.before.end > 2 * CONTEXT) {
            write_group(&group, &old, &new, &mut diff.text);
            group.clear();
        }
        group.push(hunk);
    }
    write_group(&group, &old, &new, &mut diff.text);
}

fn write_group(group: &[Hunk], old: &[&[u8]], new: &[&[u8]], text: &mut Vec<u8>) {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return };
    let lead = CONTEXT.min(first.before.start);
    let old_len = u32::try_from(old.len()).unwrap_or(u32::MAX);
    let trail = CONTEXT.min(old_len - last.before.end);
    let before = first.before.start - lead..last.before.end + trail;
    let after = first.after.start - lead..last.after.end + trail;
    text.extend_from_slice(format!("@@ -{} +{} @@\n", position(&before), position(&after)).as_bytes());
    let mut at = before.start;
    for hunk in group {
        write_lines(b' ', old, at..hunk.before.start, text);
        write_lines(b'-', old, hunk.before.clone(), text);
        write_lines(b'+', new, hunk.after.clone(), text);
        at = hunk.before.end;
    }
    write_lines(b' ', old, at..before.end, text);
}

/// Formats a range of lines, which count from 1. An empty one is named by the line before it.
fn position(range: &Range<u32>) -> String {
    let start = if range.is_empty() { range.start } else { range.start + 1 };
    format!("{start},{}", range.len())
}

fn write_lines(sign: u8, lines: &[&[u8]], range: Range<u32>, text: &mut Vec<u8>) {
    for line in &lines[range.start as usize..range.end as usize] {
        text.push(sign);
        text.extend_from_slice(line);
        if !line.ends_with(b"\n") {
            text.extend_from_slice(b"\n\\ No newline at end of file\n");
        }
    }
}

/// Appends a version as git's base 85 of its compressed bytes, in lines of 52 bytes.
fn literal(content: &[u8], text: &mut Vec<u8>) {
    const LINE: usize = 52;
    text.extend_from_slice(format!("literal {}\n", content.len()).as_bytes());
    for line in miniz_oxide::deflate::compress_to_vec_zlib(content, 6).chunks(LINE) {
        let length = u8::try_from(line.len()).expect("a line is short");
        text.push(if length <= 26 { b'A' + length - 1 } else { b'a' + length - 27 });
        for group in line.chunks(4) {
            let mut bytes = [0; 4];
            bytes[..group.len()].copy_from_slice(group);
            text.extend_from_slice(&base85(u32::from_be_bytes(bytes)));
        }
        text.push(b'\n');
    }
    text.push(b'\n');
}

fn base85(mut value: u32) -> [u8; 5] {
    const DIGITS: &[u8; 85] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~";
    let mut digits = [0; 5];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[(value % 85) as usize];
        value /= 85;
    }
    digits
}

fn object_id(version: Option<Version<'_>>, hash: ObjectHash) -> String {
    let head = |content: &[u8]| format!("blob {}\0", content.len());
    match (version, hash) {
        (None, ObjectHash::Sha1) => "0".repeat(40),
        (None, ObjectHash::Sha256) => "0".repeat(64),
        (Some(Version { content, .. }), ObjectHash::Sha1) => {
            hex::encode(&Sha1::new().chain_update(head(content)).chain_update(content).finalize())
        }
        (Some(Version { content, .. }), ObjectHash::Sha256) => {
            hex::encode(&Sha256::new().chain_update(head(content)).chain_update(content).finalize())
        }
    }
}

/// Quotes a path as git does, also where git would not need to.
fn quote(path: &[u8]) -> String {
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+@=,%~".contains(byte);
    if path.iter().all(is_plain) {
        return String::from_utf8_lossy(path).into_owned();
    }
    let mut quoted = "\"".to_owned();
    for byte in path {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(*byte)]),
            b' '..=b'~' => quoted.push(char::from(*byte)),
            _ => {
                let _ = write!(quoted, "\\{byte:03o}");
            }
        }
    }
    quoted + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "100644";

    fn text(before: Option<&str>, after: Option<&str>) -> String {
        let version = |content: &'static str| Version { mode: FILE, content: content.as_bytes() };
        let leak = |text: &str| version(Box::leak(text.to_owned().into_boxed_str()));
        let diff = diff(b"dir/a file", before.map(leak), after.map(leak), ObjectHash::Sha1, &mut LineBudget::default());
        String::from_utf8(diff.text).expect("it is text")
    }

    #[test]
    fn changed_lines_have_their_context() {
        let old: String = (1..=20).map(|n| format!("{n}\n")).collect();
        let new = old.replace("\n2\n", "\ntwo\n").replace("\n20\n", "\n20");
        let made = text(Some(&old), Some(&new));
        let (_, hunks) = made.split_once("+++ \"b/dir/a file\"\n").expect("it has names");
        assert_eq!(
            hunks,
            "@@ -1,5 +1,5 @@\n 1\n-2\n+two\n 3\n 4\n 5\n@@ -17,4 +17,4 @@\n 17\n 18\n 19\n-20\n+20\n\\ No newline at end of file\n"
        );
    }

    #[test]
    fn new_and_deleted_files_are_named() {
        assert_eq!(
            text(None, Some("x\n")),
            "diff --git \"a/dir/a file\" \"b/dir/a file\"\nnew file mode 100644\n\
             index 0000000000000000000000000000000000000000..587be6b4c3f93f93c489c0111bba5596147a26cb\n\
             --- /dev/null\n+++ \"b/dir/a file\"\n@@ -0,0 +1,1 @@\n+x\n"
        );
        assert!(text(Some("x\n"), None).contains("deleted file mode 100644\n"));
        assert!(!text(None, Some("")).contains("---"), "an empty file has no lines");
        assert_eq!(text(Some("x"), Some("x")), "");
    }

    #[test]
    fn names_are_quoted_as_git_does() {
        assert_eq!(quote(b"a/plain-name.rs"), "a/plain-name.rs");
        assert_eq!(quote("a/é\n\"".as_bytes()), r#""a/\303\251\012\"""#);
    }
}
