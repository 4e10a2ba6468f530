//! Answers to errors of files in a sandbox.
//!
//! Pure.

use http::StatusCode;
use sluice_runs::workspace_files::{FileError, NAMES_MAX};
use sluice_state::sandboxes::Sandbox;

use crate::api_error::ApiError;

impl From<FileError> for ApiError {
    fn from(error: FileError) -> Self {
        let conflict = |code, message: &str| Self::new(StatusCode::CONFLICT, code, message);
        match error {
            // Paths outside the roots do not exist for a client, and links are not followed outside.
            FileError::NotFound | FileError::Outside | FileError::BadPath => no_file(),
            FileError::NotAFile => {
                conflict("not_a_file", "this is not a regular file; list its directory to see what it is")
            }
            FileError::NotADirectory => conflict("not_a_directory", "this, or a part of its path, is not a directory"),
            FileError::Exists => conflict("exists", "something has this name already; name another"),
            FileError::TooManyNames => {
                let message =
                    format!("the directory has more than {NAMES_MAX} names; let the program list it, or exec");
                Self::new(StatusCode::UNPROCESSABLE_ENTITY, "too_many_names", message)
            }
            FileError::TooLarge(max) => {
                let message = format!("the content has more than {max} bytes; send less");
                Self::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message)
            }
            FileError::Io(error) => match error.kind() {
                std::io::ErrorKind::StorageFull | std::io::ErrorKind::QuotaExceeded => {
                    let message = "there is no room for the file; remove others in the workspace";
                    Self::new(StatusCode::INSUFFICIENT_STORAGE, "no_room", message)
                }
                _ => Self::internal(&error),
            },
        }
    }
}

/// Returns the error of a path at which clients see nothing.
pub(super) fn no_file() -> ApiError {
    let message =
        "there is no such file; paths are absolute in the sandbox, below /workspace, and lead through no link";
    ApiError::new(StatusCode::NOT_FOUND, "no_file", message)
}

/// Returns the error of a run whose workspace does not exist yet, or no longer exists.
pub(super) fn no_workspace(run: &Sandbox, operation: &'static str) -> ApiError {
    if !run.state.is_ended() {
        return super::not_live(run, operation);
    }
    let message = "the workspace of this run was removed at its end; GET artifacts has what it left in /workspace/out";
    ApiError::new(StatusCode::GONE, "workspace_removed", message)
}
