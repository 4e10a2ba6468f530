//! The host directories that a run can read, and their paths in the sandbox.
//!
//! Pure. The API treats a path outside the table and outside the workspace as one that does not exist.

use std::path::Path;

use serde::{Deserialize, Serialize};
use sluice_runs::blueprint::{MountAccess, Volume};

/// Directory of the sandbox in which each grant has its own path.
pub const GRANTS: &str = "/mnt/grants";

/// Host directories, sorted; none of them is inside another one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MountTable(Vec<String>);

impl MountTable {
    /// Returns the table of these grants, which are absolute paths without `.` and `..`.
    #[must_use]
    pub fn of(grants: impl IntoIterator<Item = String>) -> Self {
        let mut sorted: Vec<String> = grants.into_iter().collect();
        // Compared by path components, so that a directory is followed by its contents.
        sorted.sort_by(|one, other| Path::new(one).cmp(Path::new(other)));
        let mut table: Vec<String> = Vec::with_capacity(sorted.len());
        for grant in sorted {
            if table.last().is_none_or(|last| !Path::new(&grant).starts_with(last)) {
                table.push(grant);
            }
        }
        Self(table)
    }

    /// Returns whether the run sees none of the host's directories.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the directories on the host.
    #[must_use]
    pub fn sources(&self) -> &[String] {
        &self.0
    }

    /// Returns the directories as the sandbox sees them.
    #[must_use]
    pub fn targets(&self) -> Vec<String> {
        self.0.iter().map(|source| target(source)).collect()
    }

    /// Returns the mounts of the container.
    #[must_use]
    pub fn volumes(&self) -> Vec<Volume> {
        let volume =
            |source: &String| Volume { source: source.into(), target: target(source), access: MountAccess::ReadOnly };
        self.0.iter().map(volume).collect()
    }
}

fn target(source: &str) -> String {
    format!("{GRANTS}{source}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(grants: &[&str]) -> MountTable {
        MountTable::of(grants.iter().map(ToString::to_string))
    }

    #[test]
    fn nested_and_repeated_grants_are_dropped() {
        let rows: [(&[&str], &[&str]); 5] = [
            (&[], &[]),
            (&["/b", "/a", "/b"], &["/a", "/b"]),
            (&["/a/b/c", "/a", "/a/b"], &["/a"]),
            // A character that sorts before the separator does not come between a directory and its contents.
            (&["/a/b", "/a-b", "/a!", "/a"], &["/a", "/a!", "/a-b"]),
            (&["/srv/x/1", "/srv/x", "/srv/xy", "/srv/w/x"], &["/srv/w/x", "/srv/x", "/srv/xy"]),
        ];
        for (grants, expected) in rows {
            assert_eq!(table(grants).sources(), expected, "{grants:?}");
        }
    }

    #[test]
    fn grants_are_seen_read_only_below_one_directory() {
        let table = table(&["/srv/data", "/opt/models"]);
        assert_eq!(table.targets(), ["/mnt/grants/opt/models", "/mnt/grants/srv/data"]);
        let [first, second] = &table.volumes()[..] else { panic!("{table:?}") };
        assert_eq!((first.source.as_path(), first.access), (Path::new("/opt/models"), MountAccess::ReadOnly));
        assert_eq!((second.target.as_str(), second.access), ("/mnt/grants/srv/data", MountAccess::ReadOnly));
    }

    #[test]
    fn a_table_is_stored_as_a_list() {
        let table = table(&["/srv/data"]);
        let text = serde_json::to_string(&table).expect("plain data");
        assert_eq!(text, r#"["/srv/data"]"#);
        assert_eq!(serde_json::from_str::<MountTable>(&text).ok(), Some(table));
    }
}
