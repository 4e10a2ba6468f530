//! The clone of `--repo URL`, from flags and settings.

use std::sync::Arc;

use sluice_daemon::run_policy::Project;
use sluice_git::branch_name::{BranchNameError, BranchParts, BranchPrefix, branch_name};
use sluice_git::{Branch, BranchError, CommitterIdentity, IdentityError, RepositoryUrl, UrlError, split_branch};
use sluice_runs::project_access;
use sluice_runs::project_repository::{ForgeKind, ForgeSettings, ProjectRepository};
use sluice_runs::publication::PublicationError;
use sluice_runs::run_clone::RunClone;
use sluice_state::git_runs::PublishRule;

use super::args::RunArgs;
use crate::settings::Settings;

/// A clone that cannot be made.
#[derive(Debug, thiserror::Error)]
pub(super) enum CloneRequestError {
    #[error("--repo")]
    Url(#[from] UrlError),
    #[error("--repo {0}: the branch after '#'")]
    Base(String, #[source] BranchError),
    #[error(transparent)]
    Name(#[from] BranchNameError),
    #[error(transparent)]
    Branch(#[from] BranchError),
    #[error("the credentials of {url} ([[projects]])")]
    Credentials {
        url: String,
        #[source]
        source: PublicationError,
    },
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("--pr: publish is never for {0}; change [[projects]] in the configuration file, or leave out --pr")]
    Never(String),
    #[error("--pr: --publish never leaves the branch unpublished; leave out --publish never, or --pr")]
    NeverByFlag,
}

/// Returns whether the run gets a clone: the repository is an address, or a flag needs a branch.
pub(super) fn is_cloned(args: &RunArgs) -> bool {
    let Some(given) = &args.repo else { return false };
    let is_path = given.starts_with('/') && given.contains('#');
    is_address(given) || is_path || args.wants_branch()
}

/// Returns true for an address of a network and for `file://`.
fn is_address(given: &str) -> bool {
    let scp = given.split_once(':').is_some_and(|(host, path)| {
        host.contains('@') && !host.contains('/') && !path.is_empty() && path != "ro" && path != "rw"
    });
    given.contains("://") || scp
}

/// Returns the clone of a run, if it gets one.
pub(super) async fn clone(
    args: &RunArgs,
    settings: &Settings,
    run_id: &str,
) -> Result<Option<Arc<RunClone>>, CloneRequestError> {
    let Some(given) = args.repo.as_ref().filter(|_| is_cloned(args)) else { return Ok(None) };
    let (url, base) = address(given)?;
    let (scope, project) = project_of(&settings.projects, &url);
    let identity = match &project.author {
        Some(author) => author.clone(),
        None => CommitterIdentity::new(&format!("Sluice run {run_id}"), "run@sluice.invalid")?,
    };
    check_pull_request(args, &project, &url)?;
    let prefix = args.task_type.as_deref().map(str::parse::<BranchPrefix>).transpose()?.unwrap_or_default();
    let parts = BranchParts { prefix, ticket: args.ticket.as_deref(), title: args.title.as_deref(), run_id };
    let options = project.mirror_options(scope, base);
    let branch: Branch = branch_name(&parts)?.parse()?;
    let home = settings.host.git.clone();
    let failed = |source| CloneRequestError::Credentials { url: url.to_string(), source };
    let credentials = project_access::credentials(&project).await.map_err(failed)?;
    Ok(Some(Arc::new(RunClone { home, url, credentials, options, branch, identity })))
}

/// Returns the project with this repository, and its name; otherwise a project without credentials and forge. A directory of
/// this host is a forge of its own.
pub(in crate::cli) fn project_of(projects: &[Project], url: &RepositoryUrl) -> (String, ProjectRepository) {
    let found = projects.iter().find_map(|project| {
        let repository = project.repository.as_ref()?;
        repository.url.is_same_place(url).then(|| (project.name.clone(), repository.clone()))
    });
    found.unwrap_or_else(|| {
        let kind = if url.directory().is_some() { ForgeKind::Local } else { ForgeKind::None };
        let project =
            ProjectRepository { forge: ForgeSettings { kind, api: None }, ..ProjectRepository::of(url.clone()) };
        (String::new(), project)
    })
}

/// Checks that `--pr` is not given for a branch that is never published.
fn check_pull_request(
    args: &RunArgs,
    project: &ProjectRepository,
    url: &RepositoryUrl,
) -> Result<(), CloneRequestError> {
    if !args.pr || rule(args, project) != PublishRule::Never {
        return Ok(());
    }
    Err(match args.publish.as_deref() {
        Some("never") => CloneRequestError::NeverByFlag,
        _ => CloneRequestError::Never(url.to_string()),
    })
}

/// Returns the rule for the branch of a run.
pub(super) fn rule(args: &RunArgs, project: &ProjectRepository) -> PublishRule {
    match args.publish.as_deref() {
        // A flag of the command line loosens no `never` of the file.
        _ if project.publish == PublishRule::Never => PublishRule::Never,
        Some("auto") => PublishRule::Auto,
        Some("never") => PublishRule::Never,
        Some(_) => PublishRule::Approve,
        None if args.pr => PublishRule::Auto,
        None => project.publish,
    }
}

/// Returns address and base branch of `--repo`. A relative path is a directory of this host.
pub(super) fn address(given: &str) -> Result<(RepositoryUrl, Option<Branch>), CloneRequestError> {
    let (text, base) = split_branch(given);
    let text = if is_address(text) || text.starts_with('/') {
        text.to_owned()
    } else {
        std::fs::canonicalize(text).map_or_else(|_| text.to_owned(), |path| path.display().to_string())
    };
    let url = RepositoryUrl::parse(&text)?;
    let base = base.map(str::parse).transpose().map_err(|error| CloneRequestError::Base(url.to_string(), error))?;
    Ok((url, base))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_a_branch_asks_for_a_clone() {
        let args = |repo: &str, pr| {
            let mut args = RunArgs::default();
            (args.repo, args.pr) = (Some(repo.to_owned()), pr);
            args
        };
        for (repo, expected) in [
            ("https://h/o/r", true),
            ("file:///srv/r", true),
            ("git@h:o/r", true),
            ("/srv/r#main", true),
            ("/srv/r", false),
            ("/srv/r:rw", false),
            ("user@dir:rw", false),
            (".", false),
            (".:ro", false),
            ("a#b", false),
        ] {
            assert_eq!(is_cloned(&args(repo, false)), expected, "{repo}");
            assert!(is_cloned(&args(repo, true)), "{repo} with --pr");
        }
    }

    #[test]
    fn a_flag_never_loosens_a_never() {
        use PublishRule::{Approve, Auto, Never};
        let url = RepositoryUrl::parse("/srv/r").expect("an address");
        let plain = ProjectRepository::of(url);
        let project = |publish| ProjectRepository { publish, ..plain.clone() };
        let args = |publish: Option<&str>, pr| {
            let mut args = RunArgs::default();
            (args.publish, args.pr) = (publish.map(str::to_owned), pr);
            args
        };
        for (file, flag, pr, expected) in [
            (Approve, None, false, Approve),
            (Approve, None, true, Auto),
            (Approve, Some("auto"), false, Auto),
            (Auto, None, false, Auto),
            (Auto, Some("approve"), true, Approve),
            (Auto, Some("never"), false, Never),
            (Never, Some("auto"), true, Never),
        ] {
            assert_eq!(rule(&args(flag, pr), &project(file)), expected, "{file:?} {flag:?} {pr}");
        }
    }

    /// Bug: `--publish never --pr` was answered with a change of the configuration file.
    #[test]
    fn a_refused_pull_request_names_its_cause() {
        let url = RepositoryUrl::parse("/srv/r").expect("an address");
        let found = |publish, flag: Option<&str>| {
            let mut args = RunArgs::default();
            (args.publish, args.pr) = (flag.map(str::to_owned), true);
            let project = ProjectRepository { publish, ..ProjectRepository::of(url.clone()) };
            check_pull_request(&args, &project, &url).map_err(|error| error.to_string())
        };
        let flag = found(PublishRule::Approve, Some("never")).expect_err("the flag says never");
        assert!(flag.contains("--publish never") && !flag.contains("[[projects]]"), "{flag}");
        let file = found(PublishRule::Never, Some("auto")).expect_err("the file says never");
        assert!(file.contains("[[projects]]"), "{file}");
        assert!(found(PublishRule::Approve, None).is_ok());
    }
}
