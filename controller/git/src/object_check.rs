//! Sizes of the objects of a pack.
//!
//! Pure.

use crate::ingest_refusal::IngestRefusal;
use crate::limits::{COMMIT_BYTES, OBJECT_BYTES, STRUCTURE_BYTES};

/// Objects by kind, each within its limit.
#[derive(Debug, Default)]
pub(crate) struct ObjectSizes {
    trees: Vec<String>,
    structure: u64,
}

impl ObjectSizes {
    /// Reads lines `ID KIND SIZE` and checks each size.
    pub(crate) fn parse(lines: &[u8]) -> Result<Self, IngestRefusal> {
        let mut sizes = Self::default();
        for line in String::from_utf8_lossy(lines).lines() {
            let words: Vec<&str> = line.split(' ').collect();
            let [id, kind, size] = words[..] else {
                return Err(IngestRefusal::Pack("an object has no size".to_owned()));
            };
            let size: u64 = size.parse().map_err(|_| IngestRefusal::Pack("an object has no size".to_owned()))?;
            match kind {
                "blob" if size > OBJECT_BYTES => return Err(IngestRefusal::Blob(id.to_owned())),
                "commit" | "tag" if size > COMMIT_BYTES => return Err(IngestRefusal::Commit(id.to_owned())),
                "blob" => {}
                "tree" => {
                    sizes.structure = sizes.structure.saturating_add(size);
                    sizes.trees.push(id.to_owned());
                }
                _ => sizes.structure = sizes.structure.saturating_add(size),
            }
        }
        Ok(sizes)
    }

    /// Returns the ids of the trees, a line each.
    pub(crate) fn trees(&self) -> Result<String, IngestRefusal> {
        if self.structure > STRUCTURE_BYTES {
            return Err(IngestRefusal::Structure);
        }
        Ok(self.trees.iter().flat_map(|id| [id.as_str(), "\n"]).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_object_has_its_limit() {
        let check = |text: String| ObjectSizes::parse(text.as_bytes()).and_then(|sizes| sizes.trees());
        assert_eq!(check("a blob 5\nb tree 6\nc commit 7\n".to_owned()), Ok("b\n".to_owned()));
        assert_eq!(check(format!("a blob {OBJECT_BYTES}\n")), Ok(String::new()));
        assert_eq!(check(format!("a blob {}\n", OBJECT_BYTES + 1)), Err(IngestRefusal::Blob("a".to_owned())));
        assert_eq!(check(format!("a commit {}\n", COMMIT_BYTES + 1)), Err(IngestRefusal::Commit("a".to_owned())));
        assert_eq!(check(format!("a tree {STRUCTURE_BYTES}\nb tree 1\n")), Err(IngestRefusal::Structure));
        assert!(check("a blob\n".to_owned()).is_err());
    }
}
