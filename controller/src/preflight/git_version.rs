//! Versions of git that have the corrections of July 2025 (CVE-2025-48384 and CVE-2025-48385).
//!
//! Pure.

/// First corrected release of each line. Lines after the last one never had the faults.
const CORRECTED: [[u32; 3]; 8] =
    [[2, 43, 7], [2, 44, 4], [2, 45, 4], [2, 46, 4], [2, 47, 3], [2, 48, 2], [2, 49, 1], [2, 50, 1]];
/// Version of Debian 12's package, up to the number of the update.
const DEBIAN_12: &str = "1:2.39.5-0+deb12u";
/// First update of that package with the corrections, by its changelog; update 2 has only the corrections of January 2025.
const DEBIAN_12_UPDATE: u32 = 3;

/// Whether a git has the corrections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Corrections {
    /// The git has the corrections.
    Present,
    /// The git lacks the corrections.
    Absent,
    /// A distribution may have added them.
    Unknown,
}

/// Returns whether a git has the corrections, by its stated version and the version of its Debian package, if it has one.
pub(super) fn corrections(version: &str, package: Option<&str>) -> Corrections {
    let Some(version) = numbers(version) else { return Corrections::Unknown };
    let is_corrected = match CORRECTED.iter().find(|first| first[..2] == version[..2]) {
        Some(first) => version >= *first,
        None => version > CORRECTED[CORRECTED.len() - 1],
    };
    if is_corrected {
        return Corrections::Present;
    }
    let update = package.and_then(|package| package.strip_prefix(DEBIAN_12)).and_then(|rest| rest.parse::<u32>().ok());
    match (package, update) {
        (_, Some(update)) if update >= DEBIAN_12_UPDATE => Corrections::Present,
        (_, Some(_)) => Corrections::Absent,
        (_, None) => Corrections::Unknown,
    }
}

/// Returns the version of the installed package git in dpkg's list.
pub(super) fn package_version(status: &str) -> Option<&str> {
    let entry = status.split("\n\n").find(|entry| entry.lines().next() == Some("Package: git"))?;
    let is_installed = entry.lines().any(|line| line == "Status: install ok installed");
    entry.lines().find_map(|line| line.strip_prefix("Version: ")).filter(|_| is_installed)
}

fn numbers(version: &str) -> Option<[u32; 3]> {
    // A distribution's own build adds words: "2.39.5 (Apple Git-154)".
    let mut parts = version.split([' ', '-']).next()?.split('.').map(str::parse);
    match (parts.next(), parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor)), Some(Ok(patch))) => Some([major, minor, patch]),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::Corrections::{Absent, Present, Unknown};
    use super::*;

    #[test]
    fn corrected_versions_of_git_are_known() {
        for (version, package, expected) in [
            ("2.50.1", None, Present),
            ("2.51.0", None, Present),
            ("3.0.0", None, Present),
            ("2.47.3", None, Present),
            ("2.43.7", None, Present),
            ("2.50.0", None, Unknown),
            ("2.47.2", None, Unknown),
            ("2.43.0", Some("1:2.43.0-1ubuntu7.3"), Unknown),
            ("2.39.5", None, Unknown),
            ("2.39.5", Some("1:2.39.5-0+deb12u1"), Absent),
            ("2.39.5", Some("1:2.39.5-0+deb12u2"), Absent),
            ("2.39.5", Some("1:2.39.5-0+deb12u3"), Present),
            ("2.39.5", Some("1:2.39.5-0+deb12u10"), Present),
            ("", None, Unknown),
            ("git", None, Unknown),
        ] {
            assert_eq!(corrections(version, package), expected, "{version} {package:?}");
        }
    }

    #[test]
    fn the_package_of_git_is_found() {
        let status = "Package: git-man\nStatus: install ok installed\nVersion: 1\n\nPackage: git\nStatus: install ok installed\n\
                      Version: 1:2.39.5-0+deb12u3\n\nPackage: x\nVersion: 2\n";
        assert_eq!(package_version(status), Some("1:2.39.5-0+deb12u3"));
        assert_eq!(
            package_version(&status.replace("Package: git\nStatus: install ok", "Package: git\nStatus: x")),
            None
        );
        assert_eq!(package_version(""), None);
    }
}
