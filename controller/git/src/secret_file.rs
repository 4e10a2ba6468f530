//! Files with secrets: tokens and keys of forges, and the reasons why one cannot be used.

use std::fs::OpenOptions;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use zeroize::Zeroizing;

/// Maximum size of a file with a credential.
const FILE_MAX: u64 = 64 << 10;

/// Reason why a credential cannot be used. It contains nothing of the credential.
#[derive(Debug, thiserror::Error)]
pub enum CredentialFault {
    /// The file cannot be read.
    #[error("its file cannot be read")]
    Read(#[source] io::Error),
    /// Users other than the owner can read or write the file.
    #[error("its file has mode {0:o}; run chmod 600 on it")]
    Mode(u32),
    /// The file is empty, too long, or has characters that a header cannot contain.
    #[error("its file is not one line of visible characters")]
    Text,
    /// The file is not an RSA key.
    #[error("its file is not the private RSA key of a GitHub App in PEM form")]
    Key,
}

/// Reads a file with a secret. Only its owner may read or write it.
pub(crate) fn read_secret(path: &Path) -> Result<Zeroizing<String>, CredentialFault> {
    // A pipe in its place must not block the program.
    let opened = OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path);
    let file = opened.map_err(CredentialFault::Read)?;
    // The open file is examined: its name could lead to another file by now.
    let mode = file.metadata().map_err(CredentialFault::Read)?.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CredentialFault::Mode(mode));
    }
    let mut text = Zeroizing::new(String::with_capacity(usize::try_from(FILE_MAX).unwrap_or_default() + 1));
    let read = file.take(FILE_MAX + 1).read_to_string(&mut text).map_err(CredentialFault::Read)?;
    if read as u64 > FILE_MAX { Err(CredentialFault::Text) } else { Ok(text) }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_secret_is_private_and_short() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("secret");
        let write = |size: u64, mode| {
            fs::write(&path, "a".repeat(usize::try_from(size).expect("a number"))).expect("it is ours");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            read_secret(&path).map(|secret| secret.len() as u64)
        };
        assert_eq!(write(FILE_MAX, 0o600).expect("a secret"), FILE_MAX);
        assert!(matches!(write(FILE_MAX + 1, 0o600), Err(CredentialFault::Text)));
        assert!(matches!(write(1, 0o620), Err(CredentialFault::Mode(0o620))));
        // Only a bounded part is read, whatever the size of the file.
        fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("it is ours");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("it is ours");
        assert!(matches!(read_secret(&path), Err(CredentialFault::Text)));
    }
}
