//! The configuration of a repository of the host: read for what git executes, and cleaned for the copy of a run.
//!
//! Pure. Git on the host runs programs that the configuration names. Where these are files of the work tree, such as hooks
//! of `core.hooksPath`, a run must not change them.

use std::collections::BTreeSet;

/// Sections whose values git does not execute.
const DATA: [&str; 8] = ["remote", "branch", "user", "url", "submodule", "color", "extensions", "author"];
/// Beginnings of the names of settings that hold or print credentials.
const SECRETS: [&str; 6] = ["extraheader", "helper", "askpass", "password", "token", "proxy"];

/// One setting.
struct Setting<'a> {
    section: String,
    name: String,
    value: &'a str,
}

/// Returns the paths in the work tree that git may execute or read as configuration, relative to the work tree. `exists` says
/// whether a word that looks like a name is a file there.
pub(super) fn executed_paths(config: &str, work_tree: &str, exists: impl Fn(&[u8]) -> bool) -> BTreeSet<Vec<u8>> {
    let mut paths = BTreeSet::new();
    for setting in settings(config).filter(|setting| !DATA.contains(&setting.section.as_str())) {
        let is_include = setting.section.starts_with("include");
        let is_path = is_include || setting.name == "hookspath";
        let words: Vec<&str> = if is_path { vec![setting.value.trim_matches('"')] } else { words(setting.value) };
        for word in words {
            // A path of an inclusion is relative to the file that has it.
            let from: &[&str] = if is_include { &[".git"] } else { &[] };
            let Some(path) = normalize(word, work_tree, from).filter(|path| !path.is_empty()) else { continue };
            if is_path || word.contains('/') || exists(path.as_bytes()) {
                paths.insert(path.into_bytes());
            }
        }
    }
    paths
}

/// Returns whether the objects of the repository are named by SHA-256.
pub(super) fn is_sha256(config: &str) -> bool {
    settings(config).any(|setting| setting.name == "objectformat" && setting.value.eq_ignore_ascii_case("sha256"))
}

/// Returns the configuration without credentials: for the copy of a run.
pub(super) fn without_credentials(config: &str) -> String {
    let mut cleaned = String::new();
    for line in config.lines() {
        let name = line.trim_start().to_ascii_lowercase();
        if SECRETS.iter().any(|secret| name.starts_with(secret)) {
            continue;
        }
        cleaned.push_str(&without_user(line));
        cleaned.push('\n');
    }
    cleaned
}

/// Removes the user and password of each URL.
fn without_user(line: &str) -> String {
    let (mut cleaned, mut rest) = (String::new(), line);
    while let Some(at) = rest.find("://") {
        let (head, tail) = rest.split_at(at + 3);
        cleaned.push_str(head);
        let host = tail.find(['/', '"', ' ', '\t']).unwrap_or(tail.len());
        let user = tail[..host].rfind('@').map_or(0, |at| at + 1);
        rest = &tail[user..];
    }
    cleaned + rest
}

fn settings(config: &str) -> impl Iterator<Item = Setting<'_>> {
    let mut section = String::new();
    config.lines().filter_map(move |line| {
        let mut line = line.trim();
        if let Some(head) = line.strip_prefix('[') {
            let (head, rest) = head.split_once(']').unwrap_or((head, ""));
            let name = head.split([' ', '"', '.']).next().unwrap_or_default();
            section = name.to_ascii_lowercase();
            line = rest.trim();
        }
        let (name, value) = line.split_once('=')?;
        Some(Setting { section: section.clone(), name: name.trim().to_ascii_lowercase(), value: value.trim() })
    })
}

fn words(value: &str) -> Vec<&str> {
    let is_edge = |c: char| c.is_whitespace() || "\"'`;|&()<>$!\\=".contains(c);
    value.split(is_edge).filter(|word| !word.is_empty()).collect()
}

/// Returns the path in the work tree; `None` if it is outside.
fn normalize(word: &str, work_tree: &str, from: &[&str]) -> Option<String> {
    let (word, mut parts) = match word.strip_prefix('/') {
        Some(_) => (word.strip_prefix(work_tree)?.strip_prefix('/')?, Vec::new()),
        None => (word, from.to_vec()),
    };
    for part in word.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()?),
            part => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_of_the_work_tree_are_found() {
        let config = "[core]\n\thooksPath = .husky/_\n\tfsmonitor = ./tools/monitor.sh\n\tbare = false\n\
            [filter \"x\"]\n\tclean = python3 \"tools/clean.py\" %f\n\tsmudge = cat\n\
            [include]\n\tpath = ../.gitconfig\n[alias]\n\tgo = !run.sh\n\
            [remote \"origin\"]\n\turl = src/main.rs\n[diff \"y\"]\n\ttextconv = /srv/code/bin/text\n\tcommand = /usr/bin/x\n";
        let found = executed_paths(config, "/srv/code", |path| path == b"run.sh");
        let found: Vec<_> = found.iter().map(|path| String::from_utf8_lossy(path)).collect();
        assert_eq!(found, [".gitconfig", ".husky/_", "bin/text", "run.sh", "tools/clean.py", "tools/monitor.sh"]);
    }

    #[test]
    fn credentials_do_not_enter_the_copy() {
        let config = "[remote \"o\"]\n\turl = https://me:secret@example.com/x.git\n\tfetch = +a:b\n\
            [http \"https://e.com/\"]\n\textraheader = AUTHORIZATION: basic c2VjcmV0\n[credential]\n\thelper = store\n\
            [url \"https://token@e.com/\"]\n\tinsteadOf = git@e.com:\n";
        let cleaned = without_credentials(config);
        for secret in ["secret", "c2Vj", "token", "store"] {
            assert!(!cleaned.contains(secret), "{secret}: {cleaned}");
        }
        assert!(cleaned.contains("url = https://example.com/x.git\n\tfetch = +a:b\n"), "{cleaned}");
        assert!(cleaned.contains("[url \"https://e.com/\"]\n\tinsteadOf = git@e.com:"), "{cleaned}");
    }

    #[test]
    fn the_object_format_is_read() {
        assert!(is_sha256("[extensions]\n\tobjectFormat = sha256\n") && !is_sha256("[core]\n\tbare = false\n"));
    }
}
