//! GitHub and GitHub Enterprise Server, by their REST API; GraphQL is used only to mark a draft as ready for review,
//! which REST cannot do.

mod app;
mod shapes;

use http::Method;
use serde_json::{Value, json};
use sluice_upstream::Upstream;

pub use app::AppKey;
use app::Installation;

use self::shapes::{GitHubPullRequest, GitHubRepository, GitReference, Merged};
use super::api::{ApiAnswer, Authorization, ForgeClient, encoded, encoded_path};
use super::credential::ForgeToken;
use super::error::ForgeError;
use super::merge_request::{MergeAnswer, MergeMethod, MergeRequest};
use super::pull_request::{BranchDeletion, NewPullRequest, PullRequest, branch, commit_id, preferred};
use super::repository::RepositoryName;

/// Version of the REST API.
const HEADERS: [(&str, &str); 2] = [("accept", "application/vnd.github+json"), ("x-github-api-version", "2022-11-28")];
/// Word before the token in the `authorization` header.
const SCHEME: &str = "Bearer";
/// Maximum number of pull requests of one branch that are read.
const PER_BRANCH: u8 = 5;

/// A repository at GitHub.
#[derive(Debug)]
pub struct GitHub {
    rest: ForgeClient,
    graphql: ForgeClient,
    /// Address of the web interface, without a final slash.
    web: String,
    repository: RepositoryName,
    credential: ClientCredential,
}

/// Credential for GitHub.
#[derive(Debug)]
pub enum GitHubCredential {
    /// A token of a user, with contents and pull requests of the repository, and without `workflow`.
    Token(ForgeToken),
    /// A GitHub App that is installed for the repository.
    App(AppKey),
}

#[derive(Debug)]
enum ClientCredential {
    Token(ForgeToken),
    Installation(Installation),
}

impl GitHub {
    /// Makes a client. `api` is `https://api.github.com`, or `https://HOST/api/v3` of a GitHub Enterprise Server.
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// [`ForgeError::Address`]
    pub fn new(api: &Upstream, repository: RepositoryName, credential: GitHubCredential) -> Result<Self, ForgeError> {
        let (graphql, web) = siblings(&api.url);
        let credential = match credential {
            GitHubCredential::Token(token) => ClientCredential::Token(token),
            GitHubCredential::App(key) => ClientCredential::Installation(Installation::new(key)),
        };
        Ok(Self {
            rest: ForgeClient::new(api, &HEADERS)?,
            graphql: ForgeClient::new(&Upstream { url: graphql, ca: api.ca.clone() }, &HEADERS)?,
            web,
            repository,
            credential,
        })
    }

    pub(super) async fn find_pull_request(&self, new: &NewPullRequest<'_>) -> Result<Option<PullRequest>, ForgeError> {
        let query = format!(
            "/pulls?state=all&head={}&base={}&sort=created&direction=desc&per_page={PER_BRANCH}",
            encoded(&format!("{}:{}", self.repository.owner(), new.head)),
            encoded(new.base)
        );
        let answer = self.ask(Method::GET, &query, None).await?;
        let what = answer.what.clone();
        let found = answer.data::<Vec<GitHubPullRequest>>()?.into_iter().map(|one| self.read(one, &what));
        let found = found.collect::<Result<Vec<_>, _>>()?;
        // GitHub ignores a filter that it does not understand.
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
        let authorization = self.authorization().await?;
        let mutation = marking_ready(&draft.node_id);
        let answer = self.graphql.send(&authorization, Method::POST, "/graphql", Some(&mutation)).await?.success()?;
        // GraphQL answers a failure with status 200.
        match answer.member("errors") {
            None => Ok(()),
            Some(errors) => {
                let text = errors.pointer("/0/message").and_then(Value::as_str).unwrap_or_default();
                let text = super::api::shorten(&authorization.token.redact(text));
                Err(ForgeError::Refused(answer.what, answer.status, text))
            }
        }
    }

    pub(super) async fn merge(
        &self,
        found: &PullRequest,
        request: &MergeRequest<'_>,
    ) -> Result<MergeAnswer, ForgeError> {
        let path = format!("/pulls/{}/merge", found.number);
        let answer = self.ask(Method::PUT, &path, Some(&merging(request))).await?;
        match answer.status {
            409 => Ok(MergeAnswer::HeadMoved),
            // GitHub asks to try again if another merge came first.
            405 if answer.text.starts_with("Base branch was modified") => Err(ForgeError::Undecided(found.number)),
            405 | 422 => Ok(MergeAnswer::Refused(answer.text)),
            _ => {
                let what = answer.what.clone();
                let Merged { merged, sha } = answer.data()?;
                if merged {
                    Ok(MergeAnswer::Merged(sha.map(|sha| commit_id(&sha, &what)).transpose()?))
                } else {
                    Err(ForgeError::Unexpected(what, "says that nothing was merged"))
                }
            }
        }
    }

    pub(super) async fn delete_branch(&self, name: &str, expected: &str) -> Result<BranchDeletion, ForgeError> {
        let path = encoded_path(name);
        let found = match self.ask(Method::GET, &format!("/git/ref/heads/{path}"), None).await?.data::<GitReference>() {
            // Many repositories delete merged branches by themselves.
            Err(ForgeError::NotFound(_)) => return Ok(BranchDeletion::Deleted),
            found => found?,
        };
        if found.object.sha != expected {
            return Ok(BranchDeletion::Moved);
        }
        if self.default_branch().await? == name {
            return Ok(BranchDeletion::Kept("it is the default branch".to_owned()));
        }
        let answer = self.ask(Method::DELETE, &format!("/git/refs/heads/{path}"), None).await?;
        match answer.status {
            404 => Ok(BranchDeletion::Deleted),
            422 if answer.text.contains("does not exist") => Ok(BranchDeletion::Deleted),
            403 | 409 | 422 => Ok(BranchDeletion::Kept(answer.text)),
            _ => answer.success().map(|_| BranchDeletion::Deleted),
        }
    }

    pub(super) async fn default_branch(&self) -> Result<String, ForgeError> {
        let answer = self.ask(Method::GET, "", None).await?;
        let what = answer.what.clone();
        branch(&answer.data::<GitHubRepository>()?.default_branch, &what)
    }

    /// Returns the scopes of a classic token. Other credentials have permissions instead of scopes, which GitHub does
    /// not report here.
    pub(super) async fn token_scopes(&self) -> Result<Option<Vec<String>>, ForgeError> {
        let answer = self.ask(Method::GET, "", None).await?.success()?;
        let Some(scopes) = answer.headers.get("x-oauth-scopes").and_then(|value| value.to_str().ok()) else {
            return Ok(None);
        };
        let scopes = scopes.split(',').map(str::trim).filter(|scope| !scope.is_empty()).take(100);
        Ok(Some(scopes.map(super::api::shorten).collect()))
    }

    /// Returns the token, for git. For a GitHub App, a new token is requested if this value has no valid one.
    ///
    /// # Errors
    /// [`ForgeError`]
    pub async fn token(&self) -> Result<ForgeToken, ForgeError> {
        Ok(self.authorization().await?.token)
    }

    async fn authorization(&self) -> Result<Authorization, ForgeError> {
        let token = match &self.credential {
            ClientCredential::Token(token) => token.clone(),
            ClientCredential::Installation(installation) => installation.token(&self.rest, &self.repository).await?,
        };
        Ok(Authorization { scheme: SCHEME, token })
    }

    /// Sends a request about the repository.
    async fn ask(&self, method: Method, path: &str, body: Option<&Value>) -> Result<ApiAnswer, ForgeError> {
        let authorization = self.authorization().await?;
        self.rest.send(&authorization, method, &format!("/repos/{}{path}", self.repository), body).await
    }

    fn read(&self, found: GitHubPullRequest, what: &str) -> Result<PullRequest, ForgeError> {
        let url = format!("{}/{}/pull/{}", self.web, self.repository, found.number);
        found.into_pull_request(&self.repository, url, what)
    }
}

/// Returns the addresses of the GraphQL API and of the web interface.
fn siblings(api: &str) -> (String, String) {
    let api = api.trim_end_matches('/');
    match api.strip_suffix("/api/v3") {
        Some(web) => (format!("{web}/api"), web.to_owned()),
        None => (api.to_owned(), api.replacen("://api.", "://", 1)),
    }
}

fn opening(new: &NewPullRequest<'_>) -> Value {
    json!({
        "title": new.title, "body": new.body, "head": new.head, "base": new.base, "draft": new.is_draft,
        "maintainer_can_modify": false,
    })
}

fn merging(request: &MergeRequest<'_>) -> Value {
    let mut body = json!({"sha": request.head_sha, "merge_method": request.method.as_str()});
    // Without these members, GitHub writes the messages of the agent's commits into the squash.
    if request.method != MergeMethod::Rebase {
        body["commit_title"] = json!(request.title);
        body["commit_message"] = json!(request.message);
    }
    body
}

fn marking_ready(node_id: &str) -> Value {
    json!({
        "query": "mutation($id: ID!) { markPullRequestReadyForReview(input: {pullRequestId: $id}) \
                  { pullRequest { isDraft } } }",
        "variables": {"id": node_id},
    })
}

#[cfg(test)]
mod schema;
#[cfg(test)]
mod tests;
