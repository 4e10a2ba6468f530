//! The errors of the modules that a start uses, as errors of their flags.

use std::path::Path;

use sluice_contract::recovery::Unusable;

use crate::audit::OpenError;
use crate::harden::HardenError;
use crate::socket::BindError;
use crate::start_error::{SidecarExit, StartError};

pub(super) fn audit_error(path: &Path, error: &OpenError) -> StartError {
    let fix = match error {
        OpenError::Unusable(Unusable::Damaged(_)) => "; it is left unchanged for an investigation; start a new attempt",
        OpenError::Unusable(_) => "; give each attempt a file of its own",
        OpenError::GoOn(_) => "; it must be readable and writable, with room beside it",
        OpenError::Locked => "; another sidecar is writing it",
        OpenError::NotAFile => "; name a file to create",
        OpenError::Create(_) => "; its directory must exist and be writable",
    };
    let exit = match error {
        OpenError::Create(source) | OpenError::GoOn(source)
            if source.kind() == std::io::ErrorKind::PermissionDenied =>
        {
            SidecarExit::Permission
        }
        _ => SidecarExit::Audit,
    };
    let StartError { cause, .. } = StartError::caused("--audit", exit, error);
    StartError::new("--audit", exit, format!("{}: {cause}{fix}", path.display()))
}

pub(super) fn bind_error(flag: &'static str, path: &Path, error: &BindError) -> StartError {
    let exit = if error.is_permission() { SidecarExit::Permission } else { SidecarExit::CannotCreate };
    let StartError { cause, .. } = StartError::caused(flag, exit, error);
    StartError::new(flag, exit, format!("{}: {cause}", path.display()))
}

pub(super) fn harden_error(error: &HardenError) -> StartError {
    if let HardenError::User { .. } = error {
        return StartError::caused("--user", SidecarExit::Permission, error);
    }
    StartError::caused("hardening", SidecarExit::Software, error)
}
