//! Gitea and Forgejo, by their REST API.
//!
//! A draft is a pull request with a title that begins with `WIP:`. Neither server has a field for conflicts:
//! `mergeable` is also false for drafts, and while the server checks for conflicts.

use http::Method;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_upstream::Upstream;

use super::api::{ApiAnswer, Authorization, ForgeClient, encoded, encoded_path};
use super::credential::ForgeToken;
use super::error::ForgeError;
use super::merge_request::{MergeAnswer, MergeRequest};
use super::pull_request::{
    BranchDeletion, NewPullRequest, PullRequest, PullRequestState, branch, commit_id, preferred,
};
use super::repository::{NamedRepository, RepositoryName};

/// Maximum number of open pull requests that are read.
const OPEN_MAX: u8 = 50;
const HEADERS: [(&str, &str); 1] = [("accept", "application/json")];
/// Beginning of a draft's title.
const DRAFT: &str = "WIP: ";
/// Beginnings of titles that mark a draft in the servers' default configuration.
const DRAFT_MARKS: [&str; 2] = ["wip:", "[wip]"];

/// A repository at Gitea or Forgejo.
#[derive(Debug)]
pub struct Gitea {
    api: ForgeClient,
    /// Address of the web interface, without a final slash.
    web: String,
    repository: RepositoryName,
    authorization: Authorization,
}

#[derive(Debug, Deserialize)]
struct GiteaPullRequest {
    number: u64,
    state: String,
    title: String,
    #[serde(default)]
    draft: Option<bool>,
    #[serde(default)]
    merged: bool,
    #[serde(default)]
    merge_commit_sha: Option<String>,
    #[serde(default)]
    mergeable: bool,
    head: GiteaSide,
    base: GiteaSide,
}

#[derive(Debug, Deserialize)]
struct GiteaSide {
    /// Name of the branch, also when it is deleted; `ref` then is a ref of the server.
    label: String,
    sha: String,
    #[serde(default)]
    repo: Option<NamedRepository>,
}

#[derive(Debug, Deserialize)]
struct GiteaRepository {
    default_branch: String,
}

#[derive(Debug, Deserialize)]
struct GiteaBranch {
    commit: GiteaCommit,
}

#[derive(Debug, Deserialize)]
struct GiteaCommit {
    id: String,
}

impl Gitea {
    /// Makes a client. `server` is the address of the web interface, `https://HOST`. Nothing is sent yet.
    ///
    /// # Errors
    /// [`ForgeError::Address`]
    pub fn new(server: &Upstream, repository: RepositoryName, token: ForgeToken) -> Result<Self, ForgeError> {
        let web = server.url.trim_end_matches('/').to_owned();
        let authorization = Authorization { scheme: "token", token };
        Ok(Self { api: ForgeClient::new(server, &HEADERS)?, web, repository, authorization })
    }

    pub(super) async fn find_pull_request(&self, new: &NewPullRequest<'_>) -> Result<Option<PullRequest>, ForgeError> {
        // The base is one segment of the path, and the head is the rest.
        let path = format!("/pulls/{}/{}", encoded(new.base), encoded_path(new.head));
        let answer = self.ask(Method::GET, &path, None).await?;
        let what = answer.what.clone();
        let mut found = match answer.data() {
            Err(ForgeError::NotFound(_)) => return Ok(None),
            found => vec![self.read(found?, &what)?],
        };
        // If there are several pull requests, the server returns one, possibly an old one instead of the open one.
        if found.iter().all(|one| one.state != PullRequestState::Open) {
            let answer =
                self.ask(Method::GET, &format!("/pulls?state=open&sort=recentupdate&limit={OPEN_MAX}"), None).await?;
            let what = answer.what.clone();
            for one in answer.data::<Vec<GiteaPullRequest>>()? {
                found.push(self.read(one, &what)?);
            }
        }
        let is_ours = |one: &PullRequest| one.head == new.head && one.base == new.base && !one.is_from_fork;
        Ok(preferred(found.into_iter().filter(is_ours), new.head_sha))
    }

    pub(super) async fn open_pull_request(&self, new: &NewPullRequest<'_>) -> Result<PullRequest, ForgeError> {
        let answer = self.ask(Method::POST, "/pulls", Some(&opening(new))).await?;
        let what = answer.what.clone();
        self.read(answer.data()?, &what)
    }

    pub(super) async fn pull_request(&self, number: u64) -> Result<PullRequest, ForgeError> {
        let answer = self.ask(Method::GET, &format!("/pulls/{number}"), None).await?;
        let what = answer.what.clone();
        self.read(answer.data()?, &what)
    }

    pub(super) async fn mark_ready(&self, draft: &PullRequest) -> Result<(), ForgeError> {
        let title = json!({"title": without_mark(&draft.title)});
        self.ask(Method::PATCH, &format!("/pulls/{}", draft.number), Some(&title)).await?.success().map(drop)
    }

    pub(super) async fn merge(
        &self,
        found: &PullRequest,
        request: &MergeRequest<'_>,
    ) -> Result<MergeAnswer, ForgeError> {
        let path = format!("/pulls/{}/merge", found.number);
        let answer = self.ask(Method::POST, &path, Some(&merging(request))).await?;
        match (answer.status, answer.member("message")) {
            (409, Some(_)) if answer.text.contains("out of date") => Ok(MergeAnswer::HeadMoved),
            // With conflicts, the answer has the output of git instead of a message.
            (409, None) => Ok(MergeAnswer::HasConflicts),
            (405, Some(_)) if answer.text.contains("try again later") => Err(ForgeError::Undecided(found.number)),
            (405 | 409 | 422 | 423, _) => Ok(MergeAnswer::Refused(answer.text)),
            // The answer has no body.
            _ => answer.success().map(|_| MergeAnswer::Merged(None)),
        }
    }

    pub(super) async fn delete_branch(&self, name: &str, expected: &str) -> Result<BranchDeletion, ForgeError> {
        let path = format!("/branches/{}", encoded_path(name));
        let found = match self.ask(Method::GET, &path, None).await?.data::<GiteaBranch>() {
            Err(ForgeError::NotFound(_)) => return Ok(BranchDeletion::Deleted),
            found => found?,
        };
        if found.commit.id != expected {
            return Ok(BranchDeletion::Moved);
        }
        if self.default_branch().await? == name {
            return Ok(BranchDeletion::Kept("it is the default branch".to_owned()));
        }
        let answer = self.ask(Method::DELETE, &path, None).await?;
        match answer.status {
            404 => Ok(BranchDeletion::Deleted),
            403 | 409 | 423 => Ok(BranchDeletion::Kept(answer.text)),
            _ => answer.success().map(|_| BranchDeletion::Deleted),
        }
    }

    pub(super) async fn default_branch(&self) -> Result<String, ForgeError> {
        let answer = self.ask(Method::GET, "", None).await?;
        let what = answer.what.clone();
        branch(&answer.data::<GiteaRepository>()?.default_branch, &what)
    }

    /// Sends a request about the repository.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<ApiAnswer, ForgeError> {
        self.api.send(&self.authorization, method, &format!("/api/v1/repos/{}{path}", self.repository), body).await
    }

    fn read(&self, found: GiteaPullRequest, what: &str) -> Result<PullRequest, ForgeError> {
        let merge_commit = found.merge_commit_sha.filter(|_| found.merged);
        Ok(PullRequest {
            number: found.number,
            url: Some(format!("{}/{}/pulls/{}", self.web, self.repository, found.number)),
            head: branch(&found.head.label, what)?,
            head_sha: commit_id(&found.head.sha, what)?,
            base: branch(&found.base.label, what)?,
            state: match (found.merged, found.state.as_str()) {
                (true, _) => PullRequestState::Merged,
                (false, "open") => PullRequestState::Open,
                (false, _) => PullRequestState::Closed,
            },
            // Versions before 1.23 do not have the member.
            is_draft: found.draft.unwrap_or_else(|| mark(&found.title).is_some()),
            mergeable: found.mergeable.then_some(true),
            merge_commit: merge_commit.map(|sha| commit_id(&sha, what)).transpose()?,
            is_from_fork: found.head.repo.is_none_or(|repo| !self.repository.is(&repo.full_name)),
            title: found.title,
            node_id: String::new(),
        })
    }
}

/// Returns the length of the mark of a draft at the beginning of a title.
fn mark(title: &str) -> Option<usize> {
    let lower = title.to_ascii_lowercase();
    DRAFT_MARKS.iter().find(|mark| lower.starts_with(**mark)).map(|mark| mark.len())
}

/// Returns a title without the marks of a draft.
fn without_mark(title: &str) -> &str {
    let mut title = title.trim();
    while let Some(length) = mark(title) {
        title = title[length..].trim_start();
    }
    title
}

/// Returns a title with the mark of a draft, or without one.
fn marked(title: &str, is_draft: bool) -> String {
    let title = without_mark(title);
    if is_draft { format!("{DRAFT}{title}") } else { title.to_owned() }
}

fn opening(new: &NewPullRequest<'_>) -> Value {
    json!({"title": marked(new.title, new.is_draft), "body": new.body, "head": new.head, "base": new.base})
}

fn merging(request: &MergeRequest<'_>) -> Value {
    json!({
        "Do": request.method.as_str(), "MergeTitleField": request.title, "MergeMessageField": request.message,
        "head_commit_id": request.head_sha, "delete_branch_after_merge": false,
    })
}

#[cfg(test)]
mod tests;
