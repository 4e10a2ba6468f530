//! The settings of a host repository: read to find programs that git executes, and cleaned for the copy of a run.
//!
//! Pure. Git on the host runs programs that the configuration names. Where these are files of the work tree, such as hooks
//! of `core.hooksPath`, a run must not change them.

use std::collections::BTreeSet;

use super::git_settings::{Setting, write};
use super::tree::join;

/// Sections whose values git does not execute.
const DATA: [&[u8]; 7] = [b"branch", b"user", b"url", b"color", b"extensions", b"author", b"committer"];
/// Parts of the names of settings that hold or print credentials, or lead to them.
const SECRETS: [&str; 8] = ["extraheader", "helper", "pass", "token", "secret", "credential", "cookie", "proxy"];

/// Directories by which the paths in a configuration are resolved.
#[derive(Debug, Clone, Copy)]
pub(super) struct ConfigPlace<'a> {
    /// The directory of the run's repository, on the host.
    pub(super) directory: &'a [u8],
    /// The work tree of the configuration in that directory: where git starts programs.
    pub(super) work_tree: &'a [u8],
    /// Home directory of the owner, on the host.
    pub(super) home: &'a [u8],
}

/// Adds the paths in the directory that git may execute. `exists` tells whether a word that looks like a name is a file there.
pub(super) fn add_executed(
    settings: &[Setting],
    place: ConfigPlace<'_>,
    exists: impl Fn(&[u8]) -> bool,
    paths: &mut BTreeSet<Vec<u8>>,
) {
    for setting in settings.iter().filter(|setting| !is_data(setting) && !is_include(setting)) {
        let value = setting.value.as_deref().unwrap_or_default();
        if setting.name == b"hookspath" {
            paths.extend(path_of(value, place).filter(|path| !path.is_empty()));
            continue;
        }
        // A program without arguments: its name can contain white space without quotes.
        paths.extend(path_of(value, place).filter(|path| exists(path)));
        for word in words(value).chain(shell_words(value)) {
            let path = path_of(&word, place).filter(|path| !path.is_empty());
            paths.extend(path.filter(|path| word.contains(&b'/') || exists(path)));
        }
    }
}

/// Returns whether a setting names a file with more settings.
pub(super) fn is_include(setting: &Setting) -> bool {
    matches!(setting.section.as_slice(), b"include" | b"includeif") && setting.name == b"path"
}

/// Returns whether the repository names its objects by SHA-256.
pub(super) fn is_sha256(settings: &[Setting]) -> bool {
    settings.iter().any(|setting| {
        let value = setting.value.as_deref().unwrap_or_default();
        setting.section == b"extensions" && setting.name == b"objectformat" && value.eq_ignore_ascii_case(b"sha256")
    })
}

/// Returns the configuration without credentials and comments: for the copy of a run.
pub(super) fn without_credentials(settings: &[Setting]) -> Vec<u8> {
    let is_kept = |setting: &&Setting| {
        let name = String::from_utf8_lossy(&setting.name);
        setting.section != b"credential" && !SECRETS.iter().any(|secret| name.contains(secret))
    };
    let clean = |setting: &Setting| Setting {
        subsection: setting.subsection.as_deref().map(without_user),
        value: setting.value.as_deref().map(without_user),
        ..setting.clone()
    };
    let kept: Vec<_> = settings.iter().filter(is_kept).map(clean).collect();
    write(&kept)
}

fn is_data(setting: &Setting) -> bool {
    match setting.section.as_slice() {
        b"remote" => !matches!(setting.name.as_slice(), b"uploadpack" | b"receivepack" | b"vcs"),
        b"submodule" => setting.name != b"update",
        section => DATA.contains(&section),
    }
}

/// Removes the user and password of each URL.
fn without_user(text: &[u8]) -> Vec<u8> {
    let (mut cleaned, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.windows(3).position(|part| part == b"://") {
        let (head, tail) = rest.split_at(at + 3);
        cleaned.extend_from_slice(head);
        let host = tail.iter().position(|byte| b"/?# \t\n\"'".contains(byte)).unwrap_or(tail.len());
        let user = tail[..host].iter().rposition(|byte| *byte == b'@').map_or(0, |at| at + 1);
        rest = &tail[user..];
    }
    cleaned.extend_from_slice(rest);
    cleaned
}

fn words(value: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let is_edge = |byte: &u8| byte.is_ascii_whitespace() || b"\"'`;|&()<>$!\\=".contains(byte);
    value.split(is_edge).filter(|word| !word.is_empty()).map(<[u8]>::to_vec)
}

/// Returns the words of a command as a shell reads them: quotes keep white space together.
fn shell_words(value: &[u8]) -> Vec<Vec<u8>> {
    let (mut words, mut word, mut quote) = (Vec::new(), Vec::new(), None);
    let mut bytes = value.iter().copied();
    while let Some(byte) = bytes.next() {
        match (quote, byte) {
            (Some(open), byte) if byte == open => quote = None,
            (None, b'"' | b'\'') => quote = Some(byte),
            (None | Some(b'"'), b'\\') => word.extend(bytes.next()),
            (None, byte) if byte.is_ascii_whitespace() || b";|&()<>!=".contains(&byte) => {
                words.push(std::mem::take(&mut word));
            }
            (_, byte) => word.push(byte),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Returns the path in the directory that a word means at the place where git starts programs; `None` if it is outside.
fn path_of(word: &[u8], place: ConfigPlace<'_>) -> Option<Vec<u8>> {
    if let Some(rest) = word.strip_prefix(b"~/") {
        return path_of(&[place.home, b"/", rest].concat(), place);
    }
    if !word.starts_with(b"/") {
        return resolve(place.work_tree, word);
    }
    let directory = place.directory.strip_suffix(b"/").unwrap_or(place.directory);
    resolve(b"", word.strip_prefix(directory)?.strip_prefix(b"/")?)
}

/// Returns the path that a relative path means from a directory; `None` if it leads out of the tree. Links are not
/// resolved.
pub(super) fn resolve(from: &[u8], path: &[u8]) -> Option<Vec<u8>> {
    let mut resolved = from.to_vec();
    for part in path.split(|byte| *byte == b'/') {
        match part {
            b"" | b"." => {}
            b".." if resolved.is_empty() => return None,
            b".." => {
                let parent = resolved.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
                resolved.truncate(parent);
            }
            part => resolved = join(&resolved, part),
        }
    }
    Some(resolved)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::git_settings::parse;

    fn executed(config: &str, work_tree: &str) -> Vec<String> {
        let files = [b"run.sh".as_slice(), b"my tools/gpg"];
        let place = ConfigPlace { directory: b"/srv/code", work_tree: work_tree.as_bytes(), home: b"/srv" };
        let mut paths = BTreeSet::new();
        let settings = parse(config.as_bytes()).expect("it is valid");
        add_executed(&settings, place, |path| files.contains(&path), &mut paths);
        paths.iter().map(|path| String::from_utf8_lossy(path).into_owned()).collect()
    }

    #[test]
    fn programs_of_the_work_tree_are_found() {
        let config = "[core]\n\thooksPath = .husky/_\n\tfsmonitor = ./tools/monitor.sh\n\tbare = false\n\
            [filter \"x\"]\n\tclean = python3 \"tools/clean.py\" %f\n\tsmudge = cat\n[alias]\n\tgo = !run.sh\n\
            [remote \"origin\"]\n\turl = src/main.rs\n[diff \"y\"]\n\ttextconv = /srv/code/bin/text\n\tcommand = /usr/bin/x\n";
        assert_eq!(executed(config, ""), [".husky/_", "bin/text", "run.sh", "tools/clean.py", "tools/monitor.sh"]);
    }

    #[test]
    fn values_are_those_that_git_sees() {
        for (config, expected) in [
            ("[core]\n\thooksPath = hooks # ours\n", "hooks"),
            ("[core]\n\thooksPath = \"my hooks\" ; ours\n", "my hooks"),
            ("[core]\n\thooksPath = ~/code/hooks\n", "hooks"),
            ("[core] fsmonitor = to\\\nols/m.sh\n", "tools/m.sh"),
            ("[submodule \"s\"]\n\turl = ./s\n\tupdate = !run.sh\n", "run.sh"),
            ("[remote \"s\"]\n\tuploadpack = ./pack\n", "pack"),
        ] {
            assert_eq!(executed(config, ""), [expected], "{config}");
        }
        let quoted = executed("[filter \"x\"]\n\tclean = 'my tools/clean' \\\"b c/d\\\" e\\\\ f/g\n", "");
        let program = executed("[gpg]\n\tprogram = ./my tools/gpg\n", "");
        assert!(program.contains(&"my tools/gpg".to_owned()), "{program:?}");
        for path in ["my tools/clean", "b c/d", "e f/g"] {
            assert!(quoted.contains(&path.to_owned()), "{path}: {quoted:?}");
        }
        assert_eq!(executed("[core]\n\thooksPath = ../hooks\n", "sub"), ["hooks"], "of the repository outside");
        assert!(executed("[core]\n\thooksPath = ../hooks\n", "").is_empty());
    }

    #[test]
    fn credentials_do_not_enter_the_copy() {
        let config = "[remote \"o\"]\n\turl = https://me:secret@example.com/x.git # secret\n\tfetch = +a:b\n\
            [http] extraheader = AUTHORIZATION: c2Vj\n\
            [http \"https://u:token@e.com/\"]\n\tsslVerify = true\n\textraHeader = A: \\\n secret\n\
            [credential]\n\thelper = store\n\tuseHttpPath\n[url \"https://u:token@e.com/\"]\n\tinsteadOf = git@e.com:\n\
            [sendemail]\n\tsmtpPass = secret\n\tsmtpUser = me\n[imap]\n\tpass = secret\n";
        let settings = parse(config.as_bytes()).expect("it is valid");
        let cleaned = String::from_utf8(without_credentials(&settings)).expect("it is text");
        for secret in ["secret", "c2Vj", "token", "store"] {
            assert!(!cleaned.contains(secret), "{secret}: {cleaned}");
        }
        assert!(cleaned.contains("url = https://example.com/x.git\n\tfetch = +a:b\n"), "{cleaned}");
        assert!(cleaned.contains("[url \"https://e.com/\"]\n\tinsteadof = git@e.com:"), "{cleaned}");
        assert!(cleaned.contains("\tsmtpuser = me\n") && cleaned.contains("\tsslverify = true\n"), "{cleaned}");
    }

    #[test]
    fn the_object_format_is_read() {
        let read = |config: &[u8]| is_sha256(&parse(config).expect("it is valid"));
        assert!(read(b"[extensions]\n\tobjectFormat = sha256\n") && !read(b"[core]\n\tbare = false\n"));
    }
}
