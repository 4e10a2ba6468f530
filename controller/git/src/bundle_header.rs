//! The header of a git bundle.
//!
//! Pure. The bundle comes from the sandbox.

use crate::object_id::ObjectId;

/// Maximum number of bytes of a header.
pub(crate) const HEADER_BYTES: usize = 64 * 1024;

/// Refs of a bundle.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct BundleHeader {
    refs: Vec<(String, ObjectId)>,
}

/// Reason why a bundle is not accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The file is not a git bundle.
    #[error("its header is not that of a git bundle")]
    Header,
    /// The bundle has a capability that is not accepted.
    #[error("its capability '{}' is not accepted; make it without a filter", sluice_contract::text::truncate(.0))]
    Capability(String),
    /// The bundle has a ref that is not accepted.
    #[error("it has the ref '{}', and only the run's branch and what was not committed are accepted", sluice_contract::text::truncate(.0))]
    Reference(String),
}

impl BundleHeader {
    /// Reads the lines before the empty one. Only the `allowed` refs may be in it.
    pub(crate) fn parse(lines: &[Vec<u8>], allowed: &[&str]) -> Result<Self, BundleError> {
        let (first, rest) = lines.split_first().ok_or(BundleError::Header)?;
        if !matches!(&first[..], b"# v2 git bundle" | b"# v3 git bundle") {
            return Err(BundleError::Header);
        }
        let mut header = Self::default();
        for line in rest {
            let text = std::str::from_utf8(line).unwrap_or_default();
            if let Some(capability) = text.strip_prefix('@') {
                if !matches!(capability, "object-format=sha1" | "object-format=sha256") {
                    return Err(BundleError::Capability(capability.to_owned()));
                }
            } else if line.starts_with(b"-") {
                // A commit that the repository should have. If it is missing, the check of the objects fails.
            } else {
                let (id, name) = text.split_once(' ').ok_or(BundleError::Header)?;
                if !allowed.contains(&name) {
                    return Err(BundleError::Reference(name.to_owned()));
                }
                if header.get(name).is_some() {
                    return Err(BundleError::Header);
                }
                header.refs.push((name.to_owned(), id.parse().map_err(|_| BundleError::Header)?));
            }
        }
        Ok(header)
    }

    /// Returns the object of a ref.
    pub(crate) fn get(&self, name: &str) -> Option<&ObjectId> {
        self.refs.iter().find(|(known, _)| known == name).map(|(_, id)| id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bundle_has_the_allowed_refs_alone() {
        let id = "1".repeat(40);
        let parse = |text: String| {
            let lines: Vec<Vec<u8>> = text.lines().map(|line| line.as_bytes().to_vec()).collect();
            BundleHeader::parse(&lines, &["refs/heads/x", "refs/sluice/wip/r1"])
        };
        let good =
            parse(format!("# v3 git bundle\n@object-format=sha1\n-{id} words\n{id} refs/heads/x")).expect("a header");
        assert!(good.get("refs/heads/x").is_some() && good.get("refs/sluice/wip/r1").is_none());
        for (text, expected) in [
            (String::new(), BundleError::Header),
            ("# v4 git bundle".to_owned(), BundleError::Header),
            ("# v3 git bundle\n@filter=blob:none".to_owned(), BundleError::Capability("filter=blob:none".to_owned())),
            (format!("# v2 git bundle\n{id} refs/heads/y"), BundleError::Reference("refs/heads/y".to_owned())),
            (format!("# v2 git bundle\n{id} refs/heads/x\n{id} refs/heads/x"), BundleError::Header),
            (
                format!("# v2 git bundle\n{id} refs/heads/x\n{id} refs/sluice/wip/r1\n{id} refs/heads/x"),
                BundleError::Header,
            ),
            ("# v2 git bundle\nx refs/heads/x".to_owned(), BundleError::Header),
            ("# v2 git bundle\nx".to_owned(), BundleError::Header),
        ] {
            assert_eq!(parse(text.clone()), Err(expected), "{text}");
        }
    }
}
