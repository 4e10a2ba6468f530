//! The files that hold a secret: read once, and refused if other users than the owner can read them.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use sluice_contract::AuditSigner;
use sluice_contract::certificate::KEY_FILE_MAX;
use zeroize::Zeroizing;

use crate::secret::{Secret, SecretError};
use crate::settings::ProxySettings;
use crate::start_error::{SidecarExit, StartError, unreadable};

/// Reads a key or a token from the file, or from stdin to its end.
pub(super) fn secret(flag: &'static str, path: Option<&Path>) -> Result<Secret, StartError> {
    let read = match path {
        Some(path) => Secret::read(private(flag, path)?),
        None => Secret::read(io::stdin()),
    };
    read.map_err(|error| match (&error, path) {
        (SecretError::Unreadable(source), Some(path)) => unreadable(flag, path, source),
        _ => StartError::caused(flag, SidecarExit::NoInput, &error),
    })
}

/// Reads the key that signs the end of the audit file.
pub(super) fn signer(settings: &ProxySettings) -> Result<Option<AuditSigner>, StartError> {
    const FLAG: &str = "--audit-key-file";
    let Some(path) = &settings.audit_key_file else { return Ok(None) };
    // One byte more than the longest file, so that a longer one is refused and not cut.
    let mut buffer = Zeroizing::new([0; KEY_FILE_MAX + 1]);
    let mut file = private(FLAG, path)?;
    let mut len = 0;
    while len < buffer.len() {
        match file.read(&mut buffer[len..]) {
            Ok(0) => break,
            Ok(n) => len += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(unreadable(FLAG, path, &error)),
        }
    }
    let signer = AuditSigner::parse(&buffer[..len]);
    signer
        .map(Some)
        .map_err(|error| StartError::new(FLAG, SidecarExit::NoInput, format!("{}: {error}", path.display())))
}

/// Opens a file that only its owner can read. A pipe or similar has no mode that matters.
fn private(flag: &'static str, path: &Path) -> Result<File, StartError> {
    let opened = File::open(path).and_then(|file| file.metadata().map(|meta| (file, meta)));
    let (file, meta) = opened.map_err(|source| unreadable(flag, path, &source))?;
    let mode = meta.mode() & 0o777;
    if meta.is_file() && mode & 0o077 != 0 {
        let path = path.display();
        let cause = format!("{path} has mode {mode:04o}: others than its owner can read it; chmod 600 {path}");
        return Err(StartError::new(flag, SidecarExit::Permission, cause));
    }
    Ok(file)
}
