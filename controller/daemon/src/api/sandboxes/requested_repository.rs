//! The repository that a run works on: members of the request, and what is stored of them.
//!
//! Pure. A request names a project and no URL: with a URL, an owner could read repositories of the host, and have the
//! operator's credentials sent to a server of its choice.

use serde::Deserialize;
use sluice_git::Branch;
use sluice_git::branch_name::{BranchNameError, BranchParts, BranchPrefix, branch_name};
use sluice_runs::project_repository::ProjectRepository;
use sluice_state::git_runs::PublishRule;
use utoipa::ToSchema;

use crate::api_error::ApiError;
use crate::stored_request::StoredRepository;

/// Work on the repository of the project. The run gets a clone on a branch of its own.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RequestedRepository {
    /// Branch that the run begins with; the default one of the repository otherwise.
    base: Option<String>,
    /// Ticket, for the name of the branch.
    ticket: Option<String>,
    /// Title of the work, for the name of the branch and for the pull request. One line.
    #[schema(max_length = 200)]
    title: Option<String>,
    /// Type of the work, the first part of the branch: feature, fix, hotfix, refactor, docs, test or chore.
    #[serde(rename = "type")]
    kind: Option<String>,
    /// `approve`, `auto` or `never`: at most what the project allows.
    publish: Option<String>,
    /// True if a draft of a pull request is to be opened when the branch is published.
    #[serde(default)]
    pull_request: bool,
}

const TITLE_MAX: usize = 200;

impl RequestedRepository {
    /// Checks the members, and chooses the branch.
    ///
    /// # Errors
    /// 422, with the name of the member.
    pub(super) fn check(self, project: &ProjectRepository, run_id: &str) -> Result<StoredRepository, ApiError> {
        if let Some(base) = &self.base {
            base.parse::<Branch>().map_err(|error| invalid("base", format!("repository.base: {error}")))?;
        }
        if let Some(title) = &self.title
            && (title.trim().is_empty() || title.chars().count() > TITLE_MAX || title.contains(char::is_control))
        {
            return Err(invalid("title", "repository.title is one line of 1 to 200 characters".to_owned()));
        }
        let named = |error: BranchNameError| {
            let field = if matches!(error, BranchNameError::Type(_)) { "type" } else { "ticket" };
            invalid(field, format!("repository.{field}: {error}"))
        };
        let prefix: BranchPrefix =
            self.kind.as_deref().map_or(Ok(BranchPrefix::default()), str::parse).map_err(named)?;
        let parts = BranchParts { prefix, ticket: self.ticket.as_deref(), title: self.title.as_deref(), run_id };
        let branch = branch_name(&parts).map_err(named)?;
        branch.parse::<Branch>().map_err(|error| invalid("ticket", format!("repository.ticket: {error}")))?;
        let publish = publish_rule(self.publish.as_deref(), project.publish)?;
        if self.pull_request && publish == PublishRule::Never {
            let message = "a pull request needs a published branch; leave out repository.pull_request, or publish it";
            return Err(invalid("pull_request", message.to_owned()));
        }
        Ok(StoredRepository {
            base: self.base,
            branch,
            ticket: self.ticket,
            title: self.title,
            publish: publish.as_str().to_owned(),
            pull_request: self.pull_request,
        })
    }
}

/// Returns the rule of a run: that of its project, or a stricter one.
fn publish_rule(asked: Option<&str>, project: PublishRule) -> Result<PublishRule, ApiError> {
    let Some(asked) = asked else { return Ok(project) };
    let rule = PublishRule::of(asked)
        .ok_or_else(|| invalid("publish", "repository.publish is approve, auto or never".to_owned()))?;
    if rule.stricter(project) != rule {
        let message = format!("the project publishes by the rule {}; a run may only be stricter", project.as_str());
        return Err(invalid("publish", message));
    }
    Ok(rule)
}

fn invalid(field: &str, message: String) -> ApiError {
    ApiError::invalid(&format!("repository.{field}"), message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use sluice_git::RepositoryUrl;

    fn checked(request: serde_json::Value, project: PublishRule) -> Result<StoredRepository, ApiError> {
        let request: RequestedRepository = serde_json::from_value(request).expect("a request");
        let url = RepositoryUrl::parse("https://forge.test/o/r").expect("an address");
        let project = ProjectRepository { publish: project, ..ProjectRepository::of(url) };
        request.check(&project, "r_1")
    }

    #[test]
    fn the_branch_has_ticket_and_title() {
        let request = serde_json::json!({ "ticket": "ABC-1", "title": "Mend the parser", "type": "fix" });
        let stored = checked(request, PublishRule::Approve).expect("it is valid");
        assert_eq!(stored.branch, "fix/ABC-1-mend-the-parser");
        assert_eq!((stored.publish.as_str(), stored.pull_request), ("approve", false));
        let stored = checked(serde_json::json!({}), PublishRule::Approve).expect("it is valid");
        assert_eq!(stored.branch, "run/r_1");
    }

    #[test]
    fn a_run_is_stricter_than_its_project_at_most() {
        let rule = |asked: &str, project| checked(serde_json::json!({ "publish": asked }), project);
        for (asked, project) in [("auto", PublishRule::Approve), ("approve", PublishRule::Never)] {
            assert!(rule(asked, project).is_err(), "{asked}");
        }
        for asked in ["auto", "approve", "never"] {
            assert_eq!(rule(asked, PublishRule::Auto).expect("it is stricter").publish, asked);
        }
        assert!(rule("maybe", PublishRule::Auto).is_err());
    }

    #[test]
    fn wrong_members_are_named() {
        let wrong = [
            (serde_json::json!({ "base": "a..b" }), "repository.base"),
            (serde_json::json!({ "base": "-x" }), "repository.base"),
            (serde_json::json!({ "base": "v1@x" }), "repository.base"),
            (serde_json::json!({ "ticket": "A B" }), "repository.ticket"),
            (serde_json::json!({ "ticket": "AB(1)" }), "repository.ticket"),
            (serde_json::json!({ "ticket": "Ä-1" }), "repository.ticket"),
            (serde_json::json!({ "type": "bug?" }), "repository.type"),
            (serde_json::json!({ "title": "two\nlines" }), "repository.title"),
            (serde_json::json!({ "publish": "never", "pull_request": true }), "repository.pull_request"),
        ];
        for (request, field) in wrong {
            let error = checked(request, PublishRule::Auto).expect_err(field);
            assert!(format!("{error:?}").contains(field), "{error:?}");
        }
    }
}
