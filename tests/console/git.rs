//! The tab of a run's repository: what came out, what a person accepts, and the commands that publish it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};
use sluice_testkit::controller::Daemon;
use sluice_testkit::{Sluice, Upstream};

use super::accessible::{axe, violations};
use super::{Browser, agent, choose, log_in};

/// Commits texts with markup and hidden characters and a file that CI obeys, and pushes them. Then it waits for the
/// file `go`, and pushes again.
const HOSTILE_COMMITS: &str = r#"
cd repo
mkdir -p .github/workflows
echo 'on: push' > .github/workflows/ci.yml
printf '<script>document.title="owned"</script>\n' > '<img src=x onerror=alert(1)>.html'
printf 'hidden \342\200\256txet\n' > "$(printf 'a\342\200\256txt.exe')"
git add -A
git commit -qm "$(printf '<img src=x onerror=alert(2)> \342\200\256tcejbus')"
git push -q
while [ ! -e ../go ]; do sleep 0.2; done
echo five >> text
git commit -qam 'The second commit'
git push -q
"#;

/// Delays the answers that the page gets about the run.
const SLOW_LOOKS: &str = "const { fetch } = window; \
    window.fetch = async (path, ...more) => { \
        const answer = await fetch(path, ...more); \
        if (String(path).endsWith(document.body.dataset.id)) await new Promise((done) => setTimeout(done, 1000)); \
        return answer; \
    };";

fn git(directory: &Path, words: &[&str]) {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=t", "-c", "user.email=t@t", "-c", "init.defaultBranch=main", "-C"]).arg(directory);
    let ran = command.args(words).output().expect("git is there");
    assert!(ran.status.success(), "git {words:?}: {}", String::from_utf8_lossy(&ran.stderr));
}

/// Makes a bare repository with one commit on `main`.
pub(super) fn bare_repository(sluice: &Sluice) -> PathBuf {
    let (work, bare) = (sluice.dir().join("origin"), sluice.dir().join("forge.git"));
    std::fs::create_dir(&work).expect("a fresh directory");
    std::fs::write(work.join("text"), "one\n").expect("it is ours");
    git(&work, &["init", "--quiet"]);
    git(&work, &["add", "--all"]);
    git(&work, &["commit", "--quiet", "--message", "start"]);
    git(&work, &["clone", "--quiet", "--bare", ".", &bare.display().to_string()]);
    bare
}

/// Writes the configuration of a daemon with a project and its repository, and returns the path.
fn with_repository(sluice: &Sluice) -> String {
    let bare = bare_repository(sluice);
    let project = format!(
        "[[projects]]\nname = 'site'\nowners = ['root']\nrepository = '{}'\nforge = 'local'\nmerge = true\n",
        bare.display()
    );
    sluice.file("sluice.toml", &project)
}

fn on_repository(name: &str, script: &str) -> Value {
    let mut request = agent(name, script);
    request["project"] = json!("site");
    request["repository"] = json!({ "ticket": "ABC-1", "title": "Show the branch" });
    request
}

async fn post(daemon: &Daemon<'_>, id: &str, path: &str, body: Value) -> Value {
    daemon.request("POST", &format!("/api/v1/sandboxes/{id}/git/{path}"), &body).await.expect(200).json()
}

/// Opens the tab of a run.
async fn open_tab(browser: &Browser, daemon: &Daemon<'_>, id: &str) {
    browser.open(&format!("http://{}/sandboxes/{id}", daemon.address())).await;
    choose(browser, "Git").await;
}

#[tokio::test]
async fn a_branch_is_followed_to_its_pull_request() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &with_repository(&sluice)]).await;
    let id = daemon.create(on_repository("branch", HOSTILE_COMMITS)).await;
    daemon.reaches(&id, "RUNNING").await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    open_tab(&browser, &daemon, &id).await;

    browser.shows("Commits: 1").await;
    for text in [
        "feature/ABC-1-show-the-branch", "<img src=x onerror=alert(2)>", "<img src=x onerror=alert(1)>.html",
        "a\\u{202e}txt.exe", "Guarded files: 1", ".github/workflows/ci.yml", "not yet: a person publishes it",
    ] {
        browser.shows(text).await;
    }
    // The next read of the run overtakes the slow read at its end.
    browser.script(SLOW_LOOKS).await;
    let go = format!("/api/v1/sandboxes/{id}/files/workspace/go");
    daemon.request("PUT", &go, &json!({})).await.expect(200);
    browser.shows("Commits: 2").await;
    browser.shows("The second commit").await;
    daemon.ended(&id).await;
    let branch = daemon.get(&format!("/api/v1/sandboxes/{id}/git")).await.expect(200).json();
    let head = branch["head_sha"].as_str().expect("a commit");
    browser.shows("2 ahead, 0 behind").await;
    browser.shows("CI or the forge obey these changed files").await;
    browser.shows(&format!("sluice approve {id} apr-")).await;
    browser.shows(&format!("sluice push {id} --head {head} --accept-guarded")).await;
    browser.click("[role=tabpanel] section[aria-labelledby=patch] button").await;
    browser.shows("b/.github/workflows/ci.yml").await;
    browser
        .script("document.querySelectorAll('[aria-labelledby=patch] details').forEach(one => { one.open = true; })")
        .await;
    browser.shows("+<script>document.title=\"owned\"</script>").await;
    browser.shows("+hidden U+202Etxet").await;
    assert!(!browser.text().await.contains('\u{202e}'), "no text is turned around");

    post(&daemon, &id, "publish", json!({ "head_sha": head, "accept_guarded_paths": true })).await;
    browser.shows(&format!("sluice pr {id}")).await;
    browser.becomes("return !document.querySelector('.ask.approval')").await;
    post(&daemon, &id, "pr", Value::Null).await;
    browser.becomes("return /Pull request\\s+#1 open/.test(document.querySelector('.details')?.innerText)").await;
    browser.shows(&format!("sluice merge {id} --head {head}")).await;
    let made = "return document.querySelectorAll('#app script, #app img, #app a[href^=javascript], #app a[href^=file]').length";
    assert_eq!(browser.script(made).await, 0);
    browser.becomes("return document.title === 'Completed: branch - Sluice'").await;
}

#[tokio::test]
async fn a_session_denies_a_publication_and_approves_none() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &with_repository(&sluice)]).await;
    let commit = "cd repo && mkdir .github && echo on > \".github/$(printf 'a\\342\\200\\256.yml')\" && git add -A && \
                  git commit -qm ci && git push -q";
    let id = daemon.create(on_repository("branch", commit)).await;
    daemon.ended(&id).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/approvals", daemon.address())).await;
    for text in ["feature/ABC-1-show-the-branch", ".github/a\\u{202e}.yml", "A browser session publishes nothing."] {
        browser.shows(text).await;
    }
    let buttons =
        "return [...document.querySelectorAll('.ask.approval .row button')].map(one => one.textContent.trim())";
    assert_eq!(browser.script(buttons).await, json!(["Deny"]));
    let found = violations(&browser, &axe()).await;
    assert!(found.is_empty(), "{found:?}");

    browser.press("Deny").await;
    browser.shows("Nothing waits for you").await;
    let decided = daemon.get(&format!("/api/v1/sandboxes/{id}/approvals")).await.expect(200).json();
    assert_eq!(decided["approvals"][0]["decision"], "deny", "{decided}");
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_form_creates_a_run_on_a_branch() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &with_repository(&sluice)]).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.open(&format!("http://{}/sandboxes/new", daemon.address())).await;
    browser.write("#task", "describe the build").await;
    browser.write("#model", "m").await;
    let is_hidden = "return document.getElementById('repository').hidden";
    assert_eq!(browser.script(is_hidden).await, true, "there is no project yet");

    browser
        .script("const one = document.getElementById('project'); one.value = 'site'; one.dispatchEvent(new Event('input', {bubbles: true}))")
        .await;
    browser.becomes("return !document.getElementById('repository').hidden").await;
    browser.click("#on_repository").await;
    browser.write("#ticket", "ABC-9").await;
    browser.write("#title", "Describe it").await;
    browser
        .script("const one = document.getElementById('type'); one.value = 'docs'; one.dispatchEvent(new Event('input', {bubbles: true}))")
        .await;
    browser.shows(r#""repository":{"ticket":"ABC-9","title":"Describe it","type":"docs"}"#).await;
    browser.click("#new-run button.primary").await;
    browser.shows("First answer").await;
    browser.click("a.button.primary").await;
    browser
        .becomes("return document.querySelector('.run-header .facts code')?.textContent === 'docs/ABC-9-describe-it'")
        .await;
    assert_eq!(browser.faults().await, Vec::<String>::new());
}

#[tokio::test]
async fn the_tab_of_a_branch_breaks_no_rule() {
    let axe = axe();
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &with_repository(&sluice)]).await;
    let id = daemon
        .create(on_repository("branch", &HOSTILE_COMMITS.replace("while [ ! -e ../go ]; do", "while false; do")))
        .await;
    let run = daemon.ended(&id).await;
    assert_eq!(run["outcome"], "success", "{run}");
    let plain = daemon.create(agent("plain", "")).await;
    daemon.ended(&plain).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;

    for (colours, size) in [("light", (1360, 960)), ("dark", (360, 800))] {
        browser.looks(size, colours).await;
        open_tab(&browser, &daemon, &id).await;
        browser.shows("Commits: 2").await;
        browser.click("[role=tabpanel] section[aria-labelledby=patch] button").await;
        browser.becomes("return document.querySelector('[aria-labelledby=patch] details') !== null").await;
        browser
            .script("document.querySelectorAll('[aria-labelledby=patch] details').forEach(one => { one.open = true; })")
            .await;
        browser.becomes("return document.querySelector('.diff .add') !== null").await;
        assert_eq!(violations(&browser, &axe).await, Vec::<String>::new(), "{colours}");
        let is_wide = "return document.documentElement.scrollWidth > document.documentElement.clientWidth";
        assert_eq!(browser.script(is_wide).await, false, "{colours}: the page is as wide as the window");
    }
    browser.open(&format!("http://{}/sandboxes/{plain}", daemon.address())).await;
    choose(&browser, "Details").await;
    let tabs = "return [...document.querySelectorAll('[role=tab]')].map(tab => tab.textContent).includes('Git')";
    assert_eq!(browser.script(tabs).await, false, "a run without a repository has no such tab");
}

#[tokio::test]
async fn only_addresses_of_the_web_are_links() {
    let upstream = Upstream::provider("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve_with(["--config", &with_repository(&sluice)]).await;
    let push = "cd repo; echo two >> text; git commit -qam 'Add a line'; git push -q";
    let id = daemon.create(on_repository("linked", push)).await;
    daemon.ended(&id).await;
    let browser = Browser::start().await;
    log_in(&browser, &daemon).await;
    browser.expects_fault("status of 502");
    let links =
        "return [...document.querySelectorAll('[role=tabpanel] .details a')].map(a => [a.href, a.rel, a.target])";

    // Only the row has a pull request, and the forge has none: the tab shows what is recorded.
    for (url, expected) in [
        ("javascript:alert(1)", json!([])),
        ("https://forge.test/pulls/7", json!([["https://forge.test/pulls/7", "noopener noreferrer", "_blank"]])),
    ] {
        let set = format!(
            "UPDATE git_runs SET pull_request = 7, pull_request_url = '{url}', last_error = '<b>x</b>' WHERE run_id = '{id}'"
        );
        sluice.sql(&set).await;
        open_tab(&browser, &daemon, &id).await;
        browser.shows("#7").await;
        browser.shows("<b>x</b>").await;
        assert_eq!(browser.script(links).await, expected, "{url}");
    }
}
