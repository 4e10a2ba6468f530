//! Commands for the next step of a run's branch: its publication, its pull request, the merge.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use serde::Deserialize;
use serde_json::json;
use sluice_git::ObjectId;
use sluice_runs::project_repository::ForgeKind;
use sluice_state::git_runs::{GitRun, PublishRule};

use super::{CommandView, Commands, origin, unsafe_word};
use crate::api::Context;
use crate::api::sandboxes::lookup;
use crate::api_error::{ApiError, ErrorBody};
use crate::extract::{PathNames, Query};
use crate::git::project;
use crate::permission::Operation;
use crate::principal::Principal;
use crate::shell_command::{ShellCommand, UnsafeWord, curl};

/// The commit of a step.
#[derive(Debug, Deserialize, utoipa::IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct BranchQuery {
    /// Commit that was reviewed; the newest of the run otherwise.
    head_sha: Option<String>,
    /// True if the command is to accept the changed files of `guarded_paths`.
    #[serde(default)]
    accept_guarded_paths: bool,
}

/// The step that a branch waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NextStep {
    Publish { has_guarded: bool },
    OpenPullRequest,
    Merge,
}

/// Returns the commands for the next step of a run's branch; none if it has no next step.
#[utoipa::path(
    get, path = "/api/v1/sandboxes/{id}/git/commands",
    params(("id" = String, Path, description = "Id, or a name of the own owner"), BranchQuery),
    responses(
        (status = 200, body = Commands), (status = 401, body = ErrorBody), (status = 403, body = ErrorBody),
        (status = 404, body = ErrorBody), (status = 422, body = ErrorBody)
    )
)]
pub(super) async fn of_branch(
    State(context): Context,
    principal: Principal,
    PathNames([id]): PathNames<1>,
    Query(query): Query<BranchQuery>,
) -> Result<Json<Commands>, ApiError> {
    let run = lookup::named(&context, &principal, Operation::Read, &id).await?;
    let row = context
        .store
        .find_git_run(&run.key.run_id)
        .await?
        .ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "no_repository", "this run works on no repository"))?;
    let Some(head) = query.head_sha.or_else(|| row.head_sha.clone()) else { return Ok(Json(Commands::default())) };
    let message = "head_sha is the id of a commit in hexadecimal digits, as GET …/git shows it";
    let head: ObjectId = head.parse().map_err(|_| ApiError::invalid("head_sha", message))?;
    let project = project(&context, &run);
    let has_forge = project.is_some_and(|project| project.forge.kind != ForgeKind::None);
    let may_merge = project.is_some_and(|project| project.may_merge);
    let step = next_step(&row, head.as_str(), query.accept_guarded_paths, has_forge, may_merge);
    let base = format!("{}/api/v1/sandboxes/{}/git", origin(&context), run.key.run_id);
    let command = step.map(|step| command(step, run.key.run_id.as_str(), head.as_str(), &base)).transpose();
    Ok(Json(Commands { commands: command.map_err(unsafe_word)?.into_iter().collect() }))
}

/// Returns the next step for the recorded state of a branch.
fn next_step(row: &GitRun, head: &str, has_guarded: bool, has_forge: bool, may_merge: bool) -> Option<NextStep> {
    if row.new.publish == PublishRule::Never || row.merged_sha.is_some() {
        return None;
    }
    if row.published_sha.as_deref() != Some(head) {
        return (row.base_sha.as_deref() != Some(head)).then_some(NextStep::Publish { has_guarded });
    }
    match row.pull_request {
        None => has_forge.then_some(NextStep::OpenPullRequest),
        Some(_) => may_merge.then_some(NextStep::Merge),
    }
}

fn command(step: NextStep, id: &str, head: &str, base: &str) -> Result<CommandView, UnsafeWord> {
    let (name, words, path, body) = match step {
        NextStep::Publish { has_guarded: false } => {
            ("Publish this commit", vec!["sluice", "push", id, "--head", head], "publish", json!({ "head_sha": head }))
        }
        NextStep::Publish { has_guarded: true } => (
            "Publish this commit, and accept its guarded files",
            vec!["sluice", "push", id, "--head", head, "--accept-guarded"],
            "publish",
            json!({ "head_sha": head, "accept_guarded_paths": true }),
        ),
        NextStep::OpenPullRequest => ("Open its pull request", vec!["sluice", "pr", id], "pr", json!(null)),
        NextStep::Merge => (
            "Merge its pull request, as another person than its owner and its creator",
            vec!["sluice", "merge", id, "--head", head],
            "pr/merge",
            json!({ "head_sha": head }),
        ),
    };
    let body = (!body.is_null()).then(|| body.to_string());
    let curl = curl("POST", &format!("{base}/{path}"), body.as_deref())?;
    Ok(CommandView { name, cli: Some(ShellCommand::of(&words).text()?), curl })
}

#[cfg(test)]
mod tests {
    use sluice_state::git_runs::NewGitRun;

    use super::*;

    const HEAD: &str = "1111111111111111111111111111111111111111";

    fn row(publish: PublishRule) -> GitRun {
        let new = NewGitRun {
            run_id: "r1".parse().expect("an id"),
            url: "https://forge.test/a".to_owned(),
            base_branch: None,
            branch: "run/r1".to_owned(),
            ticket: None,
            title: None,
            publish,
            wants_pull_request: false,
        };
        GitRun {
            new,
            base_sha: Some("0".repeat(40)),
            head_sha: Some(HEAD.to_owned()),
            published_sha: None,
            pull_request: None,
            pull_request_url: None,
            merged_sha: None,
            last_error: None,
            retry_count: 0,
        }
    }

    #[test]
    fn each_step_follows_on_the_one_before() {
        let next = |row: &GitRun| next_step(row, HEAD, false, true, true);
        let begun = row(PublishRule::Approve);
        let published = GitRun { published_sha: Some(HEAD.to_owned()), ..begun.clone() };
        let requested = GitRun { pull_request: Some(1), ..published.clone() };
        let merged = GitRun { merged_sha: Some(HEAD.to_owned()), ..requested.clone() };
        assert_eq!(next(&begun), Some(NextStep::Publish { has_guarded: false }));
        assert_eq!(next(&published), Some(NextStep::OpenPullRequest));
        assert_eq!(next(&requested), Some(NextStep::Merge));
        assert_eq!(next(&merged), None);
        assert_eq!(next(&row(PublishRule::Never)), None, "its rule keeps it here");
        assert_eq!(next(&GitRun { base_sha: Some(HEAD.to_owned()), ..begun.clone() }), None, "there is nothing new");
        assert_eq!(next_step(&published, HEAD, false, false, true), None, "there is no forge");
        assert_eq!(next_step(&requested, HEAD, false, true, false), None, "nobody may merge");
        let moved = GitRun { published_sha: Some("2".repeat(40)), ..requested };
        assert_eq!(next(&moved), Some(NextStep::Publish { has_guarded: false }), "a newer commit is published, too");
    }

    #[test]
    fn a_command_names_the_commit() {
        let shown = |step| command(step, "r1", HEAD, "http://h/git").expect("plain words");
        let publish = shown(NextStep::Publish { has_guarded: true });
        assert_eq!(publish.cli.as_deref(), Some(&*format!("sluice push r1 --head {HEAD} --accept-guarded")));
        assert!(publish.curl.ends_with(&format!(
            "-X POST --json '{{\"accept_guarded_paths\":true,\"head_sha\":\"{HEAD}\"}}' http://h/git/publish"
        )));
        let merge = shown(NextStep::Merge);
        assert_eq!(merge.cli.as_deref(), Some(&*format!("sluice merge r1 --head {HEAD}")));
        assert!(merge.curl.contains(HEAD) && merge.curl.ends_with("/pr/merge"), "{}", merge.curl);
        assert!(!shown(NextStep::OpenPullRequest).curl.contains("--json"));
    }
}
