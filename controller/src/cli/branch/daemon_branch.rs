//! The branch of a daemon's run, over its API.

use std::time::Duration;

use serde_json::json;
use sluice_client::{ApiClient, ApiRequest, ApiRunBranch, RunCommits, RunPullRequest};
use sluice_git::ObjectId;
use sluice_git::forge::MergeMethod;

use super::change::{BranchChange, PullRequestPlace, ShownCommit, ShownFile};
use crate::cli::error::CommandError;
use crate::cli::named_run;

/// Maximum time for which the daemon may work at the forge, such as the upload of a large branch.
pub(in crate::cli) const FORGE_WORK: Duration = Duration::from_secs(600);
/// Maximum size of a patch; the daemon sends less.
const PATCH_MAX: usize = 8 << 20;

/// A run with a clone.
pub(super) struct DaemonBranch {
    api: ApiClient,
    run: String,
}

impl DaemonBranch {
    pub(super) async fn find(api: ApiClient, name: &str) -> Result<Self, CommandError> {
        let run = named_run::find(&api, name).await?.sandbox.sandbox_id;
        Ok(Self { api, run })
    }

    pub(super) fn run(&self) -> &str {
        &self.run
    }

    async fn branch(&self) -> Result<ApiRunBranch, CommandError> {
        Ok(self.api.send(ApiRequest::get(&["sandboxes", &self.run, "git"])).await?)
    }

    pub(super) async fn change(&self) -> Result<BranchChange, CommandError> {
        let found = self.branch().await?;
        let none =
            || CommandError::wrong_usage(format!("run {} has no clone yet; it gets one when it begins", self.run));
        let base = found.base_sha.ok_or_else(none)?;
        let commits: RunCommits = self.api.send(ApiRequest::get(&["sandboxes", &self.run, "git", "commits"])).await?;
        let files = found.files.into_iter();
        let files = files.map(|file| ShownFile { path: file.path, added: file.added, removed: file.removed });
        let commits = commits.commits.into_iter().map(|one| ShownCommit { id: one.sha, subject: one.subject });
        Ok(BranchChange {
            branch: Some(found.branch),
            head: found.head_sha.unwrap_or_else(|| base.clone()),
            base,
            commits: commits.collect(),
            files: files.collect(),
            guarded: found.guarded_paths,
            is_too_large: found.is_too_large,
        })
    }

    pub(super) async fn patch(&self) -> Result<Vec<u8>, CommandError> {
        let request = ApiRequest::get(&["sandboxes", &self.run, "git", "diff"]);
        Ok(self.api.bytes_up_to(request, PATCH_MAX).await?.1)
    }

    pub(super) async fn publish(&self, head: &ObjectId, has_guarded: bool) -> Result<(String, String), CommandError> {
        let body = json!({"head_sha": head.as_str(), "accept_guarded_paths": has_guarded});
        let request = ApiRequest::post(&["sandboxes", &self.run, "git", "publish"]).json(&body);
        let published: ApiRunBranch = self.api.send(request.waiting(FORGE_WORK)).await?;
        Ok((published.branch, published.url))
    }

    pub(super) async fn open_pull_request(&self) -> Result<PullRequestPlace, CommandError> {
        let request = ApiRequest::post(&["sandboxes", &self.run, "git", "pr"]);
        let opened: RunPullRequest = self.api.send(request.waiting(FORGE_WORK)).await?;
        Ok(PullRequestPlace { branch: self.branch().await?.branch, number: Some(opened.number), url: opened.url })
    }

    pub(super) async fn merge(&self, head: &ObjectId, method: MergeMethod) -> Result<Option<String>, CommandError> {
        let body = json!({"head_sha": head.as_str(), "method": method.as_str()});
        let request = ApiRequest::post(&["sandboxes", &self.run, "git", "pr", "merge"]).json(&body);
        let _: RunPullRequest = self.api.send(request.waiting(FORGE_WORK)).await?;
        Ok(self.branch().await?.merged_sha)
    }
}

#[cfg(test)]
mod tests {
    use sluice_client::Server;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::UnixListener;

    use super::*;

    const CONFLICT: &str = r#"{"error":{"code":"branch_moved","message":"the branch has moved"}}"#;

    async fn answer_late(listener: UnixListener) {
        let (mut socket, _) = listener.accept().await.expect("a connection");
        let mut request = Vec::new();
        while !request.ends_with(b"}") {
            socket.read_buf(&mut request).await.expect("a request");
        }
        tokio::time::sleep(Duration::from_secs(590)).await;
        let head = format!("HTTP/1.1 409 Conflict\r\ncontent-length: {}\r\n\r\n", CONFLICT.len());
        socket.write_all(format!("{head}{CONFLICT}").as_bytes()).await.expect("the client waits");
    }

    /// Bug: `sluice push` gave up after 30 s, while the daemon still published.
    #[tokio::test(start_paused = true)]
    async fn a_publication_may_take_minutes() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("daemon");
        let listener = UnixListener::bind(&path).expect("a socket");
        let server = Server::new(&format!("unix:{}", path.display()), None, None).expect("an address");
        let found = DaemonBranch { api: ApiClient::new(server), run: "r_1".to_owned() };
        let head = "a".repeat(40).parse().expect("an object id");

        let (published, ()) = tokio::join!(found.publish(&head, false), answer_late(listener));

        assert_eq!(published.expect_err("it is refused").message, "branch_moved: the branch has moved");
    }
}
