//! The program of the bridge on the host: the sidecar's, if a sandbox can execute it.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// A program that can be mounted as a bridge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BridgeProgram {
    /// Real path on the host.
    pub path: PathBuf,
    /// Loader that the program needs; `None` if it is static, so that it runs in any image.
    pub loader: Option<String>,
}

/// Reason why a sandbox cannot execute the program.
#[derive(Debug, thiserror::Error)]
pub enum BridgeProgramError {
    /// The file cannot be read.
    #[error("cannot read the sidecar's program {0}, which is the bridge of an image without one")]
    Unreadable(PathBuf, #[source] io::Error),
    /// The mode of the file forbids it.
    #[error(
        "the sidecar's program {0} is the bridge of an image without one, and its mode {1:04o} does not let the \
         sandbox's user execute it; chmod 0755 {0}"
    )]
    NotExecutable(PathBuf, u32),
}

impl BridgeProgram {
    /// Examines the sidecar's program.
    ///
    /// # Errors
    /// [`BridgeProgramError`].
    pub fn of(proxy: &Path) -> Result<Self, BridgeProgramError> {
        let unreadable = |error| BridgeProgramError::Unreadable(proxy.to_owned(), error);
        let path = fs::canonicalize(proxy).map_err(unreadable)?;
        let file = File::open(&path).map_err(unreadable)?;
        let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
        if mode & 0o001 == 0 {
            return Err(BridgeProgramError::NotExecutable(path, mode));
        }
        let mut head = Vec::new();
        file.take(HEAD).read_to_end(&mut head).map_err(unreadable)?;
        Ok(Self { path, loader: loader(&head) })
    }

    /// Returns the limitation of a program that is not static.
    #[must_use]
    pub fn limitation(&self) -> Option<String> {
        let Self { path, loader } = self;
        loader.as_ref().map(|loader| {
            format!(
                "{} is mounted as the bridge and is not static: it starts only in images with its C library ({loader}); \
                 make dist builds a static one",
                path.display()
            )
        })
    }
}

/// Length of the part of a file that has the program headers and the loader's path.
const HEAD: u64 = 16 << 10;

/// Returns the loader of a 64-bit little-endian ELF program; `None` for a static program and for other files.
fn loader(file: &[u8]) -> Option<String> {
    const INTERPRETER: u64 = 3;
    let number = |at: usize, length: usize| {
        let bytes = file.get(at..at.checked_add(length)?)?;
        Some(bytes.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte)))
    };
    let place = |at: usize, length: usize| usize::try_from(number(at, length)?).ok();
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (table, size, count) = (place(32, 8)?, place(54, 2)?, place(56, 2)?);
    let header = (0..count)
        .filter_map(|index| table.checked_add(index.checked_mul(size)?))
        .find(|header| number(*header, 4) == Some(INTERPRETER))?;
    let (begin, length) = (place(header.checked_add(8)?, 8)?, place(header.checked_add(32)?, 8)?);
    let path = file.get(begin..begin.checked_add(length)?).unwrap_or(b"unknown");
    Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF head with one program header of this type.
    fn elf(kind: u8, text: &[u8]) -> Vec<u8> {
        let mut file = vec![0; 64 + 56];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        (file[32], file[54], file[56]) = (64, 56, 1);
        file[64] = kind;
        (file[72], file[96]) = (120, u8::try_from(text.len()).expect("short"));
        file.extend_from_slice(text);
        file
    }

    #[test]
    fn a_dynamic_program_names_its_loader() {
        assert_eq!(loader(&elf(3, b"/lib64/ld.so\0")).as_deref(), Some("/lib64/ld.so"));
        assert_eq!(loader(&elf(1, b"/lib64/ld.so\0")), None);
    }

    #[test]
    fn a_file_that_ends_early_has_no_loader() {
        let whole = elf(3, b"/lib64/ld.so\0");
        for length in 0..120 {
            assert_eq!(loader(&whole[..length]).filter(|loader| loader != "unknown"), None, "{length}");
        }
        for file in [&b""[..], b"#!/bin/sh\n", b"\x7fELF\x01\x01"] {
            assert_eq!(loader(file), None);
        }
        let mut far = whole;
        far[32..40].fill(0xff);
        assert_eq!(loader(&far), None);
    }

    #[test]
    fn the_programs_mode_must_let_others_execute() {
        let path = std::env::temp_dir().join(format!("sluice-bridge-{}", std::process::id()));
        fs::write(&path, elf(1, b"")).expect("it is new");
        for (mode, is_usable) in [(0o755, true), (0o711, true), (0o700, false), (0o644, false)] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("it is ours");
            assert_eq!(BridgeProgram::of(&path).is_ok(), is_usable, "{mode:o}");
        }
        fs::remove_file(&path).expect("it is ours");
        assert!(matches!(BridgeProgram::of(&path), Err(BridgeProgramError::Unreadable(..))));
    }
}
