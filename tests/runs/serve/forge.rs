//! Runs of the daemon with a forge of GitHub's kind: the credential is nowhere but in its file and in the requests to
//! the forge.

use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use base64::Engine;
use sluice_testkit::Forge;

use super::http::{self, DaemonAnswer};
use super::*;

/// Commits a change, and pushes it as agents do.
pub(super) const COMMIT_AND_PUSH: &str = "cd repo && echo four >>text && git commit -qam 'Add a line' && git push -q";

/// Prints all that a program of a sandbox can see of processes and variables, and the names of the files with a secret.
/// The secret comes backwards, and one planted file has it for certain.
const LOOK: &str = "env; git -C repo config --list --show-origin; cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ | tr '\\0' '\\n'; \
    printf %s \"$BACKWARDS\" | rev >/tmp/planted; \
    printf 'found in %s\\n' $(grep -rlaFs --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr -f /tmp/planted /); rm /tmp/planted";

pub(super) fn on_repository(script: &str, repository: Value) -> Value {
    let mut request = shell(script);
    request["project"] = json!("work");
    request["repository"] = repository;
    request
}

/// Creates a run as the owner of a token, and returns its id.
pub(super) async fn create(address: &str, token: &str, request: &Value) -> String {
    let created = http::send(address, token, "POST", "/api/v1/sandboxes", request).await;
    assert_eq!(created.status, 201, "{}", created.text);
    body(&created)["run_id"].as_str().expect("an id").to_owned()
}

pub(super) fn body(answer: &DaemonAnswer) -> Value {
    let (_, body) = answer.text.split_once("\r\n\r\n").expect("a head");
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {}", answer.text))
}

/// The forms of a credential that are looked for: the token without its prefix, which all escapes leave as it is, and
/// the form that it has in a header of git.
fn forms(token: &str) -> [String; 2] {
    let (_, secret) = token.split_once('_').expect("it has a prefix");
    let encoded = base64::engine::general_purpose::STANDARD_NO_PAD.encode(token);
    // The last characters depend on what comes after them.
    [secret.to_owned(), encoded[..encoded.len() - 4].to_owned()]
}

#[track_caller]
fn assert_hidden(forms: &[String], what: &str, text: &str) {
    for form in forms {
        assert!(!text.contains(form.as_str()), "{what} has the credential of the forge: {text}");
    }
}

/// Runs grep, which reads the text from its input: in its arguments, the sampler of another test would find it.
fn file_names_with(text: &str, directory: &Path) -> std::process::Output {
    let mut grep = Command::new("grep");
    grep.args(["-rlaF", "-f", "-"]).arg(directory).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = grep.spawn().expect("there is a grep");
    child.stdin.take().expect("it is piped").write_all(text.as_bytes()).expect("it reads");
    child.wait_with_output().expect("it ends")
}

/// Checks the contents and the names of all files below a directory.
fn assert_in_no_file(forms: &[String], directory: &Path) {
    for form in forms {
        let found = file_names_with(form, directory);
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "a file has the credential");
        assert_eq!((found.status.code(), found.status.signal()), (Some(1), None), "all files were read");
    }
}

/// Reads arguments and environments of all processes of this host again and again, until it is ended or dropped.
struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<(usize, Vec<String>)>>,
}

impl Sampler {
    fn start(forms: [String; 2]) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&is_over);
        let thread = std::thread::spawn(move || {
            let (mut samples, mut found) = (0, Vec::new());
            while !seen.load(Ordering::Relaxed) {
                samples += 1;
                for entry in std::fs::read_dir("/proc").expect("there are processes").flatten() {
                    for name in ["cmdline", "environ"] {
                        let bytes = std::fs::read(entry.path().join(name)).unwrap_or_default();
                        let text = String::from_utf8_lossy(&bytes);
                        if forms.iter().any(|form| text.contains(form.as_str())) {
                            found.push(format!("{name}: {text}"));
                        }
                    }
                }
            }
            (samples, found)
        });
        Self { is_over, thread: Some(thread) }
    }

    /// Number of samples, and what was found.
    fn end(mut self) -> (usize, Vec<String>) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().expect("it runs").join().expect("it has no fault")
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}

/// A run of the daemon and one of the command line get a part of the history, and their branches get to the forge.
#[tokio::test]
async fn a_shallow_clone_is_published() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    ["two\n", "three\n"].iter().for_each(|text| drop(forge.change_main(text)));
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\ndepth = 2"));
    let script = format!("git -C repo rev-list --count HEAD; {COMMIT_AND_PUSH}");
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;

    let id = create(&http::address(&daemon), &alice, &on_repository(&script, json!({"ticket": "AB-1"}))).await;
    let run = daemon.ended(&id).await;

    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    assert_eq!(stdout(&daemon, &id).await.trim(), "2", "commits of the history");
    let ran = sluice.run(["--repo", &forge.url(), "--ticket", "AB-2", "--", "sh", "-c", &script]);
    assert_eq!(ran.finish().await.expect(0).stdout.trim(), "2", "commits of the history");
    assert_eq!(forge.branches(), ["feature/AB-1", "feature/AB-2", "main"]);
    for branch in ["feature/AB-1", "feature/AB-2"] {
        assert_eq!(forge.git(["rev-list", "--count", branch]), "4", "{branch}: the history there is whole");
    }
}

#[tokio::test]
async fn the_credential_of_a_forge_is_nowhere_else() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let (sluice, forms) = (Sluice::to(&upstream), forms(forge.token()));
    sluice.file("sluice.toml", &forge.project("publish = 'auto'\nmerge = true"));
    let sampler = Sampler::start(forms.clone());
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let mut request =
        on_repository(&format!("{LOOK}; {COMMIT_AND_PUSH}; cd ..; {LOOK}"), json!({"pull_request": true}));
    request["env"] = json!({"BACKWARDS": forms[0].chars().rev().collect::<String>()});
    let address = http::address(&daemon);

    let id = create(&address, &alice, &request).await;
    let run = daemon.ended(&id).await;

    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    assert_eq!(forge.pulls().await.len(), 1, "all was done that needs the credential");
    let seen = stdout(&daemon, &id).await;
    assert!(seen.contains("RUN_ID=") && seen.contains("user.email=run@sluice.invalid"), "{seen}");
    assert_hidden(&forms, "the sandbox", &seen);
    let found: Vec<_> = seen.lines().filter(|line| line.starts_with("found in ")).collect();
    assert_eq!(found, ["found in /tmp/planted"; 2], "files of the sandbox");

    let document = daemon.get("/api/openapi.json").await.expect(200).json();
    let ids: [(&str, &[String]); 1] = [("sandboxes", std::slice::from_ref(&id))];
    let mut shown = 0;
    for path in canaries::paths(&document, &ids) {
        let query = match path.rsplit('/').next() {
            Some("stream") => "?after=0",
            Some("wait") => "?timeout=100ms",
            _ => "",
        };
        let answer = http::get(&address, &alice, &format!("{path}{query}")).await;
        shown += usize::from(answer.status == 200);
        assert_hidden(&forms, &path, &answer.text);
    }
    assert!(shown > 24, "{shown}");
    let pull = daemon.get(&format!("/api/v1/sandboxes/{id}/git/pr")).await.expect(200).text();
    assert_hidden(&forms, "the pull request", &pull);

    assert_hidden(&forms, "the log", &daemon.process().stderr());
    daemon.stop().await;
    assert_in_no_file(&forms, &sluice.state());
    let (samples, found) = sampler.end();
    assert!(samples > 10, "{samples}");
    assert_eq!(found, [""; 0], "processes of this host");
    let requests = forge.requests().await;
    let with_credential: Vec<_> = requests.iter().filter(|request| request["isAllowed"] == true).collect();
    assert!(with_credential.len() >= 5, "clone, push and pull request: {requests:?}");
    for request in with_credential {
        assert!(request["processes"].as_u64() > Some(3), "they were looked at: {request}");
        assert_eq!(request["shown"], json!([]), "processes while the forge was asked: {request}");
    }
}

/// The clone and the push meet a forge that is overloaded at first.
#[tokio::test]
async fn git_tries_again_at_an_overloaded_forge() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.project("publish = 'auto'"));
    forge.fail_at_first(2);

    let run = sluice.run(["--repo", &forge.url(), "--ticket", "AB-1", "--", "sh", "-c", COMMIT_AND_PUSH]);
    run.finish().await.expect(0);

    assert_eq!(forge.branches(), ["feature/AB-1", "main"]);
    let requests = forge.requests().await;
    for service in ["git-upload-pack", "git-receive-pack"] {
        let asks =
            |one: &&Value| one["isAllowed"] == true && one["path"].as_str().is_some_and(|path| path.ends_with(service));
        assert!(requests.iter().filter(asks).count() >= 3, "{service}: {requests:?}");
    }
}

/// A run of the daemon and one of the command line: git and the API get tokens of the installation.
#[tokio::test]
async fn an_app_gets_tokens_that_are_nowhere_else() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", &forge.app_project("publish = 'auto'"));
    let key = std::fs::read_to_string(forge.app_key()).expect("it is there");
    let line = key.lines().nth(5).expect("a key has more lines").to_owned();
    let daemon = sluice.serve().await;
    let alice = http::token(&sluice, "alice", "owner", "acct-1").await;
    let repository = json!({"ticket": "AB-1", "pull_request": true});
    let mut request = on_repository(&format!("{COMMIT_AND_PUSH}; cd ..; {LOOK}"), repository);
    request["env"] = json!({"BACKWARDS": line.chars().rev().collect::<String>()});

    let id = create(&http::address(&daemon), &alice, &request).await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
    let (seen, events) = (stdout(&daemon, &id).await, Value::from(daemon.events(&id).await).to_string());
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).text();
    let log = daemon.process().stderr();
    daemon.stop().await;
    let ran = sluice.run(["--repo", &forge.url(), "--ticket", "AB-2", "--pr", "--", "sh", "-c", COMMIT_AND_PUSH]);
    let ran = ran.finish().await.expect(0);

    assert_eq!(forge.branches(), ["feature/AB-1", "feature/AB-2", "main"]);
    assert_eq!(forge.pulls().await.len(), 2);
    let tokens = forge.app_tokens().await;
    assert_eq!(tokens.len(), 6, "one each for clone, publication and pull request of two runs");
    let requests = forge.requests().await;
    let allowed: Vec<_> = requests.iter().filter(|request| request["isAllowed"] == true).collect();
    assert!(allowed.iter().all(|request| request["isOfApp"] == true), "{allowed:?}");
    let has = |method: &str, end: &str| {
        let is_one =
            |one: &&&Value| one["method"] == method && one["path"].as_str().is_some_and(|path| path.ends_with(end));
        assert_eq!(allowed.iter().filter(is_one).count(), 2, "{method} {end}: {allowed:?}");
    };
    has("POST", "/git-receive-pack");
    has("POST", "/repos/octo/app/pulls");
    for request in allowed {
        assert_eq!(request["shown"], json!([]), "processes while the forge was asked: {request}");
    }
    let mut forms: Vec<_> = tokens.iter().flat_map(|token| forms(token)).collect();
    forms.push(line);
    let found: Vec<_> = seen.lines().filter(|line| line.starts_with("found in ")).collect();
    assert_eq!(found, ["found in /tmp/planted"], "files of the sandbox");
    let texts = [("output", &seen), ("events", &events), ("branch", &branch), ("log", &log), ("report", &ran.stderr)];
    texts.iter().for_each(|(what, text)| assert_hidden(&forms, what, text));
    assert_hidden(&forms, "the answer", &ran.stdout);
}

/// Bug: the operator's log had the credential that the forge repeats in its refusal of a push.
#[tokio::test]
async fn a_refusal_of_the_forge_shows_no_credential() {
    let (upstream, forge) = (Upstream::never().start().await, Forge::start().await);
    let (sluice, forms) = (Sluice::to(&upstream), forms(forge.token()));
    sluice.file("sluice.toml", &forge.project("publish = 'approve'"));
    let daemon = sluice.serve().await;
    let (alice, address) = (http::token(&sluice, "alice", "owner", "acct-1").await, http::address(&daemon));
    let mut heads = Vec::new();
    for ticket in ["AB-9", "AB-10"] {
        let id = create(&address, &alice, &on_repository(COMMIT_AND_PUSH, json!({"ticket": ticket}))).await;
        let run = daemon.ended(&id).await;
        assert_eq!(run["outcome"], "success", "{run}\n{}", daemon.process().stderr());
        let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
        heads.push((id, json!({"head_sha": branch["head_sha"]})));
    }
    let post = async |id: &str, path: &str, body: &Value| {
        http::send(&address, &alice, "POST", &format!("/api/v1/sandboxes/{id}/git/{path}"), body).await
    };
    let [(held, head), (published, other)] = &heads[..] else { panic!("two runs: {heads:?}") };
    assert_eq!(post(published, "publish", other).await.status, 200);
    forge.refuse();

    let push = post(held, "publish", head).await;
    let pull = post(published, "pr", &Value::Null).await;

    assert_eq!((push.status, pull.status), (502, 502), "{}\n{}", push.text, pull.text);
    assert_eq!(forge.branches(), ["feature/AB-10", "main"]);
    // The log has what the forge says, with a mark in the place of each form of the credential.
    for words in ["no rights for Basic (token) ((token))", "no rights for Bearer (token) ((token))"] {
        daemon.process().says(words).await;
        assert!(!push.text.contains(words) && !pull.text.contains(words), "{}\n{}", push.text, pull.text);
    }
    assert!(pull.text.contains("(status 403)"), "{}", pull.text);
    assert_hidden(&forms, "the log", &daemon.process().stderr());
    for (what, answer) in [("the refusal of a push", push), ("the refusal of a pull request", pull)] {
        assert_hidden(&forms, what, &answer.text);
    }
    for id in [held, published] {
        for path in ["", "/git", "/events?limit=500", "/logs"] {
            let shown = daemon.get(&format!("/api/v1/sandboxes/{id}{path}")).await.expect(200).text();
            assert_hidden(&forms, path, &shown);
        }
    }
    daemon.stop().await;
    assert_in_no_file(&forms, &sluice.state());
}
