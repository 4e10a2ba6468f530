//! Size of a work tree, computed before any of it is written.
//!
//! Pure.

use crate::limits::{CHECKOUT_BYTES, TREE_PATHS};

/// Form of an entry for `git ls-tree`: its size, or `-` for an entry that is not a file.
pub(crate) const SIZE_FORM: &str = "--format=%(objectsize)";

/// Returns true if a work tree of these entries is within the limits for a clone.
pub(crate) fn fits(sizes: &[u8]) -> bool {
    let (mut paths, mut bytes) = (0_u64, 0_u64);
    for line in sizes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let size = std::str::from_utf8(line).ok().and_then(|line| line.trim().parse::<u64>().ok());
        (paths, bytes) = (paths + 1, bytes.saturating_add(size.unwrap_or(0)));
    }
    paths <= TREE_PATHS && bytes <= CHECKOUT_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_work_tree_has_few_paths_and_bytes() {
        assert!(fits(b"") && fits(b"5\n-\n") && fits(format!("{CHECKOUT_BYTES}\n0\n").as_bytes()));
        assert!(!fits(format!("{CHECKOUT_BYTES}\n1\n").as_bytes()));
        assert!(!fits(format!("{0}\n{0}\n", u64::MAX).as_bytes()));
        let most = "0\n".repeat(usize::try_from(TREE_PATHS).expect("a number"));
        assert!(fits(most.as_bytes()) && !fits(format!("{most}0\n").as_bytes()));
    }
}
