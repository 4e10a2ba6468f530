//! The names that git reads as the metadata of a repository.
//!
//! Pure. Git on the host executes what such metadata names: hooks, filters, file system monitors. So nothing with such a name
//! comes out of a sandbox. Git and file systems know more spellings than `.git`: any case, trailing dots and spaces, the
//! short name `git~1`, streams of NTFS, and characters that HFS+ ignores.

/// Returns whether git, on any file system, may treat a file of this name as the metadata of a repository.
#[must_use]
pub fn is_git_name(name: &[u8]) -> bool {
    let text = String::from_utf8_lossy(name);
    let visible: String = text.chars().filter(|c| !is_ignored_by_hfs(*c)).collect();
    let stem = visible.split(':').next().unwrap_or_default().trim_end_matches(['.', ' ']);
    stem.eq_ignore_ascii_case(".git") || stem.eq_ignore_ascii_case("git~1")
}

/// Returns whether any part of a path is such a name.
#[must_use]
pub fn has_git_name(path: &[u8]) -> bool {
    path.split(|byte| *byte == b'/').any(is_git_name)
}

/// Returns whether git treats a directory with these names as a repository, such as a bare one. The objects and references
/// of a repository can be in another directory, named by `commondir`.
#[must_use]
pub fn is_git_directory<'a>(names: impl IntoIterator<Item = &'a [u8]>) -> bool {
    let [mut head, mut objects, mut refs, mut commondir] = [false; 4];
    for name in names {
        head |= name.eq_ignore_ascii_case(b"HEAD");
        objects |= name.eq_ignore_ascii_case(b"objects");
        refs |= name.eq_ignore_ascii_case(b"refs");
        commondir |= name.eq_ignore_ascii_case(b"commondir");
    }
    head && (commondir || (objects && refs))
}

/// Characters that HFS+ ignores in names, as listed by git.
fn is_ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_of_git_is_known() {
        for name in [".git", ".GIT", ".Git ", ".git...", "git~1", "GIT~1", ".git::$INDEX_ALLOCATION", ".g\u{200c}it"] {
            assert!(is_git_name(name.as_bytes()), "{name:?}");
        }
        for name in [".gitignore", ".gitattributes", ".gitmodules", ".github", "git", "x.git", ".git-blame-ignore-revs"]
        {
            assert!(!is_git_name(name.as_bytes()), "{name:?}");
        }
        assert!(has_git_name(b"a/.git/config") && has_git_name(b".GIT") && !has_git_name(b"a/git/config"));
    }

    #[test]
    fn a_bare_repository_is_known_by_its_names() {
        for (names, expected) in [
            (&["HEAD", "objects", "refs"][..], true),
            (&["head", "OBJECTS", "Refs", "config"], true),
            (&["HEAD", "commondir"], true),
            (&["HEAD", "refs"], false),
            (&["objects", "refs"], false),
            (&[], false),
        ] {
            assert_eq!(is_git_directory(names.iter().map(|name| name.as_bytes())), expected, "{names:?}");
        }
    }
}
