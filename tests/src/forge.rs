//! A forge of GitHub's kind (`tests/emulate/forge.mjs`): git over HTTP, and the API of an emulator with a state.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::leash::Leash;
use crate::scratch::write_private;

/// A forge with one private repository, `octo/app`, until it is dropped. Its branch `main` has the file `text` of three lines.
#[derive(Debug)]
pub struct Forge {
    leash: Leash,
    port: u16,
    token: String,
}

impl Forge {
    /// Starts it, with a token of its own.
    ///
    /// # Panics
    /// Without the packages of `tests/setup/emulate.sh`.
    pub async fn start() -> Self {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
        let modules = tests.join("../.cache/emulate/node_modules").canonicalize().expect("run tests/setup/emulate.sh");
        let token = format!("ghp_canary{:030x}", fastrand::u128(..) >> 8);
        let command = |directory: &Path| {
            write_private(&directory.join("token"), &format!("{token}\n"));
            first_commit(directory);
            let mut command = Command::new("node");
            command.arg(tests.join("emulate/forge.mjs")).arg(modules).arg(directory);
            command
        };
        let started = Leash::start_listening(command, "listening on 127.0.0.1:").await;
        let (leash, port) = started.unwrap_or_else(|why| panic!("{why}"));
        Self { leash, port, token }
    }

    /// Address of the repository.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/octo/app.git", self.port)
    }

    /// The credential, which only the forge may see.
    pub fn token(&self) -> &str {
        &self.token
    }

    /// The bare repository, which a test reads and writes without the forge.
    pub fn bare(&self) -> PathBuf {
        self.leash.directory().join("octo/app.git")
    }

    /// The project `work` of root and alice, with further settings.
    pub fn project(&self, settings: &str) -> String {
        let token = self.leash.directory().join("token");
        self.project_of(&format!("credentials = '{}'", token.display()), settings)
    }

    /// The same project with a GitHub App in place of the token.
    pub fn app_project(&self, settings: &str) -> String {
        let key = self.app_key();
        self.project_of(&format!("app_id = 7\ninstallation_id = 70\napp_key = '{}'", key.display()), settings)
    }

    /// File with the private key of the app.
    pub fn app_key(&self) -> PathBuf {
        self.leash.directory().join("app.pem")
    }

    fn project_of(&self, credential: &str, settings: &str) -> String {
        format!(
            "[[projects]]\nname = 'work'\nowners = ['root', 'alice']\nrepository = '{}'\n{credential}\n\
             forge = 'github'\nforge_api = 'http://127.0.0.1:{}/api/v3'\n{settings}\n",
            self.url(),
            self.port
        )
    }

    /// Runs git in the repository, and returns what it prints, without the last line end.
    pub fn git<A: AsRef<str>>(&self, args: impl IntoIterator<Item = A>) -> String {
        git(&self.bare(), args)
    }

    /// Branches, in order of their names.
    pub fn branches(&self) -> Vec<String> {
        let text = self.git(["for-each-ref", "--format=%(refname:lstrip=2)", "refs/heads/"]);
        text.lines().map(str::to_owned).collect()
    }

    /// Another person replaces the file `text` on `main`. Returns the new commit.
    pub fn change_main(&self, content: &str) -> String {
        let file = self.leash.directory().join("text");
        fs::write(&file, content).expect("it is ours");
        let blob = self.git(["hash-object", "-w", &file.display().to_string()]);
        let entry = format!("100644,{blob},text");
        let index = self.leash.directory().join("index");
        let with_index = |args: &[&str]| {
            let output = command(&self.bare()).args(args).env("GIT_INDEX_FILE", &index).output().expect("git is there");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
        };
        with_index(&["read-tree", "main"]);
        with_index(&["update-index", "--cacheinfo", &entry]);
        let tree = with_index(&["write-tree"]);
        let commit = self.git(["commit-tree", &tree, "-p", "main", "-m", "Change it elsewhere"]);
        self.git(["update-ref", "refs/heads/main", &commit]);
        commit
    }

    /// From now on every answer is a refusal that repeats the credential.
    pub fn refuse(&self) {
        fs::write(self.leash.directory().join("refuses"), "").expect("it is ours");
    }

    /// Another person pushes to a branch. Returns the new commit.
    pub fn push_to(&self, branch: &str) -> String {
        let tree = format!("{branch}^{{tree}}");
        let commit = self.git(["commit-tree", &tree, "-p", branch, "-m", "Pushed elsewhere"]);
        self.git(["update-ref", &format!("refs/heads/{branch}"), &commit]);
        commit
    }

    /// From now on another person pushes to the branch just before each merge.
    pub fn push_before_merges(&self) {
        fs::write(self.leash.directory().join("moves"), "").expect("it is ours");
    }

    /// The next requests for each of git's services fail, like requests to an overloaded server.
    pub fn fail_at_first(&self, requests: u32) {
        fs::write(self.leash.directory().join("fails"), requests.to_string()).expect("it is ours");
    }

    /// Gives the token these scopes, as a classic token of GitHub has them.
    pub fn set_scopes(&self, scopes: &str) {
        fs::write(self.leash.directory().join("scopes"), scopes).expect("it is ours");
    }

    /// All pull requests, as the API shows them.
    pub async fn pulls(&self) -> Vec<Value> {
        self.list("/_test/pulls").await
    }

    /// All tokens that the app has got.
    pub async fn app_tokens(&self) -> Vec<String> {
        let tokens = self.list("/_test/tokens").await;
        tokens.iter().filter_map(Value::as_str).map(str::to_owned).collect()
    }

    /// All requests so far: `method`, `path`, `isAllowed`, `isOfApp` (it had a token of the app), and of those with a token
    /// `processes` (number of those on this host) and `shown` (those that had a token in arguments or environment).
    pub async fn requests(&self) -> Vec<Value> {
        self.list("/_test/requests").await
    }

    async fn list(&self, path: &str) -> Vec<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("it listens");
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.expect("it reads");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).await.expect("it answers");
        let text = String::from_utf8_lossy(&bytes);
        let body = text.split_once("\r\n\r\n").map(|(_, body)| serde_json::from_str(body));
        body.and_then(Result::ok).unwrap_or_else(|| panic!("{text}\n{}", self.leash.log()))
    }
}

/// Makes the bare repository, with one commit on `main`.
fn first_commit(directory: &Path) {
    let bare = directory.join("octo/app.git");
    fs::create_dir_all(&bare).expect("a fresh directory takes another");
    git(&bare, ["init", "--quiet", "--bare", "--initial-branch=main"]);
    let file = directory.join("text");
    fs::write(&file, "one\ntwo\nthree\n").expect("it is ours");
    let blob = git(&bare, ["hash-object", "-w", &file.display().to_string()]);
    let tree = directory.join("tree");
    fs::write(&tree, format!("100644 blob {blob}\ttext\n")).expect("it is ours");
    let made = command(&bare).arg("mktree").stdin(fs::File::open(tree).expect("it is ours")).output();
    let tree = String::from_utf8_lossy(&made.expect("git is there").stdout).trim().to_owned();
    let commit = git(&bare, ["commit-tree", &tree, "-m", "start"]);
    git(&bare, ["update-ref", "refs/heads/main", &commit]);
}

/// Returns git in a repository, with only the configuration of the repository.
fn command(bare: &Path) -> Command {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-C"]).arg(bare).env_clear();
    command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
    command.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
    command
}

fn git<A: AsRef<str>>(bare: &Path, args: impl IntoIterator<Item = A>) -> String {
    let args: Vec<_> = args.into_iter().map(|word| word.as_ref().to_owned()).collect();
    let ran = command(bare).args(&args).output().expect("git is there");
    assert!(ran.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&ran.stderr));
    String::from_utf8_lossy(&ran.stdout).trim_end().to_owned()
}
