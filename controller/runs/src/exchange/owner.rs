//! Owners of files, and their read permissions.
//!
//! Pure.

/// A user with the group of its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Owner {
    /// Returns whether the user may read a file of this owner and mode, or use a directory and list it.
    pub(super) fn may_read(self, of: Self, mode: u32, is_directory: bool) -> bool {
        let needed = if is_directory { 0o5 } else { 0o4 };
        let shift = if of.gid == self.gid { 3 } else { 0 };
        self.uid == 0 || of.uid == self.uid || (mode >> shift) & needed == needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_needs_more_than_a_file() {
        let reader = Owner { uid: 1000, gid: 1000 };
        for (uid, gid, mode, file, directory) in [
            (1000, 1, 0, true, true),
            (0, 0, 0o644, true, false),
            (0, 0, 0o755, true, true),
            (0, 0, 0o711, false, false),
            (0, 1000, 0o040, true, false),
            (0, 1000, 0o750, true, true),
            (0, 1000, 0o705, false, false),
        ] {
            let found = [false, true].map(|is_directory| reader.may_read(Owner { uid, gid }, mode, is_directory));
            assert_eq!(found, [file, directory], "{uid} {gid} {mode:o}");
        }
        assert!(Owner { uid: 0, gid: 0 }.may_read(reader, 0, true));
    }
}
