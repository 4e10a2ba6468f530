//! Answers to errors of repositories and forges.

use http::StatusCode;
use serde_json::json;
use sluice_git::GitError;
use sluice_runs::publication::PublicationError;

use crate::api_error::ApiError;

/// Returns the answer to an error of git. Its text is for the operator.
pub(super) fn of_git(error: &GitError) -> ApiError {
    // Another error is a fault of the host: the operator's log has it.
    if matches!(error, GitError::TimedOut { .. }) {
        let message = "git took too long in the repository of the run; try again";
        return ApiError::too_many("git_busy", message, 5);
    }
    ApiError::internal(error)
}

impl From<PublicationError> for ApiError {
    fn from(error: PublicationError) -> Self {
        let conflict = |code: &'static str| Self::new(StatusCode::CONFLICT, code, error.to_string());
        let unavailable = |code, message: &str| Self::new(StatusCode::BAD_GATEWAY, code, message);
        match &error {
            PublicationError::NoRepository => Self::new(StatusCode::NOT_FOUND, "no_repository", error.to_string()),
            PublicationError::ProjectChanged => conflict("no_repository"),
            PublicationError::NoClone => conflict("invalid_state"),
            PublicationError::Never => conflict("never_published"),
            PublicationError::OtherRepository => conflict("repository_changed"),
            PublicationError::Nothing => conflict("nothing_to_publish"),
            PublicationError::HeadMoved { head } => conflict("head_moved").with_details(json!({ "head_sha": head })),
            PublicationError::TooLarge => conflict("too_large"),
            PublicationError::Guarded { head, paths } => {
                conflict("guarded_paths").with_details(json!({ "head_sha": head, "guarded_paths": paths }))
            }
            PublicationError::Taken(_) => conflict("branch_taken"),
            PublicationError::NotPublished => conflict("not_published"),
            PublicationError::NoPullRequest => conflict("no_pull_request"),
            PublicationError::NoForge | PublicationError::NoApi => conflict("no_forge"),
            PublicationError::MergeIsOff => Self::new(StatusCode::FORBIDDEN, "merge_is_off", error.to_string()),
            PublicationError::Forge(_) => unavailable("pr_failed", &error.public_text()),
            PublicationError::Git(_) | PublicationError::Branch(_) => {
                unavailable("publish_failed", &error.public_text())
            }
            PublicationError::Credentials(_)
            | PublicationError::Token(_)
            | PublicationError::AppKey(_)
            | PublicationError::NoToken => {
                Self::new(StatusCode::SERVICE_UNAVAILABLE, "no_credentials", error.public_text())
            }
            PublicationError::Store(error) => Self::of_state(error, error.is_retryable()),
        }
    }
}
