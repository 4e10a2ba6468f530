//! The roots of the files that a client may name: directories of the host, each at an absolute path in the sandbox.
//!
//! Pure.

use std::path::PathBuf;

/// A directory of the host that the sandbox and the owner of the run can see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRoot {
    /// Absolute path in the sandbox, without a slash at its end.
    pub inside: String,
    /// Directory of the host.
    pub directory: PathBuf,
    /// True if clients may write files there.
    pub is_writable: bool,
    /// True for a directory of the host that was granted to the run. Clients see only files in it that every user of
    /// the host may read.
    pub is_grant: bool,
}

/// Returns the root of an absolute path in the sandbox, and the path below it (`.` for the root itself). `None` means
/// that the path is outside of all roots, is not absolute, has a NUL, or has a component `..`. If roots are nested, the
/// innermost one is used.
#[must_use]
pub fn root_of<'r, 'p>(roots: &'r [FileRoot], path: &'p [u8]) -> Option<(&'r FileRoot, &'p [u8])> {
    if path.contains(&0) || path.split(|byte| *byte == b'/').any(|part| part == b"..") {
        return None;
    }
    let found = roots.iter().filter_map(|root| Some((root, below(&root.inside, path)?)));
    found.max_by_key(|(root, _)| root.inside.len())
}

fn below<'p>(inside: &str, path: &'p [u8]) -> Option<&'p [u8]> {
    let rest = path.strip_prefix(inside.as_bytes())?;
    let below = match rest.split_first() {
        None => return Some(b"."),
        Some((b'/', rest)) => rest,
        Some(_) => return None,
    };
    // A path that begins with a slash would be absolute again.
    let start = below.iter().position(|byte| *byte != b'/').unwrap_or(below.len());
    Some(if start == below.len() { b"." } else { &below[start..] })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(inside: &str) -> FileRoot {
        FileRoot { inside: inside.to_owned(), directory: PathBuf::from("/host"), is_writable: true, is_grant: false }
    }

    #[test]
    fn only_paths_below_a_root_are_inside() {
        let roots = [root("/workspace"), root("/mnt/grants/data"), root("/mnt/grants/data/deep")];
        for (path, expected) in [
            (&b"/workspace"[..], Some(("/workspace", &b"."[..]))),
            (b"/workspace/", Some(("/workspace", b"."))),
            (b"/workspace///", Some(("/workspace", b"."))),
            (b"/workspace/a/b", Some(("/workspace", b"a/b"))),
            (b"/workspace//etc/passwd", Some(("/workspace", b"etc/passwd"))),
            (b"/workspace/\xff", Some(("/workspace", b"\xff"))),
            (b"/workspace/..a", Some(("/workspace", b"..a"))),
            (b"/mnt/grants/data/deep/a", Some(("/mnt/grants/data/deep", b"a"))),
            (b"/mnt/grants/data/deeper", Some(("/mnt/grants/data", b"deeper"))),
            (b"/workspaces", None),
            (b"/workspace/../etc", None),
            (b"/workspace/..", None),
            (b"/workspace/a/../b", None),
            (b"/workspace/a\0b", None),
            (b"/mnt/grants", None),
            (b"/etc", None),
            (b"//workspace", None),
            (b"workspace", None),
            (b"", None),
        ] {
            let found = root_of(&roots, path).map(|(root, below)| (root.inside.as_str(), below));
            assert_eq!(found, expected, "{}", String::from_utf8_lossy(path));
        }
        assert_eq!(root_of(&[], b"/workspace"), None);
    }
}
