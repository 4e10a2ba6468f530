//! Tests of the GitHub forge against `emulate`, a stateful emulator of GitHub. It needs `tests/setup/emulate.sh` and
//! node.
//!
//! The emulator finds no conflicts, decides at once, has no GraphQL and answers a moved head with 422 in place of 409;
//! the unit tests of the crate cover these cases with a scripted server.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::Value;
use sluice_git::forge::{
    AppKey, BranchDeletion, Forge, ForgeError, GitHub, GitHubCredential, MergeMethod, MergeOutcome, MergeRequest,
    NewPullRequest, PullRequestState, RuntimePause, ForgeToken, merge,
};
use sluice_upstream::Upstream;

const BRANCH: &str = "feature/PROJ-1-page";
const NEW: NewPullRequest<'_> =
    NewPullRequest { head: BRANCH, head_sha: "", base: "main", title: "[PROJ-1] Page", body: "text", is_draft: true };

/// The emulator, until it is dropped.
struct Emulator {
    node: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    url: String,
    key: String,
    sha: String,
}

impl Emulator {
    fn start() -> Self {
        let crate_directory = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = crate_directory.join("../../.cache/emulate/node_modules");
        let modules = modules.canonicalize().expect("run tests/setup/emulate.sh");
        let mut node = Command::new("node")
            .arg(crate_directory.join("tests/emulator.mjs"))
            .arg(modules)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("node is installed");
        let (input, output) = (node.stdin.take(), BufReader::new(node.stdout.take().expect("it is a pipe")));
        let mut emulator = Self { node, input, output, url: String::new(), key: String::new(), sha: String::new() };
        let started = emulator.line();
        let text = |name: &str| started[name].as_str().expect(name).to_owned();
        (emulator.url, emulator.key, emulator.sha) = (text("url"), text("key"), text("sha"));
        emulator
    }

    fn line(&mut self) -> Value {
        let mut line = String::new();
        self.output.read_line(&mut line).expect("it can be read");
        serde_json::from_str(&line).expect("the emulator answers; its errors are above")
    }

    /// Performs an action of another person at the forge.
    fn act(&mut self, act: &str) -> Value {
        writeln!(self.input.as_mut().expect("it runs"), "{act}").expect("it runs");
        self.line()
    }

    fn forge(&self, credential: GitHubCredential) -> Forge {
        let repository = "octo/work".parse().expect("a name");
        GitHub::new(&Upstream::at(&self.url), repository, credential).expect("an address").into()
    }

    fn with_token(&self) -> Forge {
        self.forge(GitHubCredential::Token(ForgeToken::new("ghp-of-octo").expect("a token")))
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        // The emulator exits at the end of its input.
        self.input = None;
        let _ = self.node.wait();
    }
}

fn request(head_sha: &str) -> MergeRequest<'_> {
    MergeRequest { method: MergeMethod::Squash, head_sha, base: "main", title: "[PROJ-1] Page", message: "Sluice-Run: r" }
}

#[tokio::test]
async fn a_draft_is_opened_once_and_merged() {
    let mut emulator = Emulator::start();
    let forge = emulator.with_token();
    assert_eq!(forge.default_branch().await.expect("it answers"), "main");
    assert_eq!(forge.find_pull_request(&NEW).await.expect("it answers"), None);

    let opened = forge.publish(&NEW, &RuntimePause).await.expect("it is opened");
    assert_eq!(
        (opened.is_draft, opened.head_sha.as_str(), opened.state),
        (true, emulator.sha.as_str(), PullRequestState::Open)
    );
    assert_eq!(forge.publish(&NEW, &RuntimePause).await.expect("it is there").number, opened.number);

    emulator.act(&format!("ready {}", opened.number));
    let outcome = merge(&forge, opened.number, &request(&opened.head_sha), &RuntimePause).await.expect("it has an end");

    let MergeOutcome::Merged { commit: Some(commit), branch: BranchDeletion::Deleted } = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(emulator.act("head main")["object"]["sha"], commit.as_str());
    assert_eq!(emulator.act(&format!("message {commit}"))["message"], "[PROJ-1] Page\n\nSluice-Run: r");
    let branches = emulator.act("branches");
    assert_eq!(branches.as_array().expect("a list").len(), 1, "{branches}");
    // A second merge has the same result.
    let again = merge(&forge, opened.number, &request(&opened.head_sha), &RuntimePause).await.expect("it has an end");
    assert_eq!(again, MergeOutcome::Merged { commit: Some(commit), branch: BranchDeletion::Deleted });
}

#[tokio::test]
async fn a_head_that_moved_is_not_merged() {
    let mut emulator = Emulator::start();
    let forge = emulator.with_token();
    let opened = forge.publish(&NEW, &RuntimePause).await.expect("it is opened");
    emulator.act(&format!("ready {}", opened.number));
    emulator.act(&format!("move {}", opened.number));
    let main = emulator.act("head main");

    let outcome = merge(&forge, opened.number, &request(&opened.head_sha), &RuntimePause).await.expect("it has an end");

    assert_eq!(outcome, MergeOutcome::HeadMoved);
    assert_eq!(emulator.act("head main"), main);
    assert_eq!(forge.delete_branch(BRANCH, &opened.head_sha).await.expect("it answers"), BranchDeletion::Moved);
}

#[tokio::test]
async fn an_app_gets_rights_for_one_repository() {
    let mut emulator = Emulator::start();
    let key = AppKey::of_pem(7, 70, &emulator.key).expect("a key");
    assert_eq!(format!("{key:?}"), "AppKey { app: 7, installation: 70, .. }");
    let forge = emulator.forge(GitHubCredential::App(key));

    let opened = forge.publish(&NEW, &RuntimePause).await.expect("it is opened");
    assert_eq!(forge.publish(&NEW, &RuntimePause).await.expect("it is there").number, opened.number);

    let grants = emulator.act("grants").to_string();
    assert_eq!(grants.matches("\"permissions\"").count(), 1, "one token serves all requests: {grants}");
    assert!(grants.contains("\"contents\":\"write\"") && grants.contains("\"pull_requests\":\"write\""), "{grants}");
    assert!(!grants.contains("workflows") && grants.contains("\"repository_selection\":\"selected\""), "{grants}");
}

#[tokio::test]
async fn an_app_with_another_id_is_refused() {
    let emulator = Emulator::start();
    let key = AppKey::of_pem(8, 70, &emulator.key).expect("a key");
    let unknown = emulator.forge(GitHubCredential::App(key)).publish(&NEW, &RuntimePause).await;
    assert!(matches!(unknown, Err(ForgeError::Denied(..) | ForgeError::NotFound(_))), "{unknown:?}");
}
