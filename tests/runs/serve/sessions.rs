//! `sluice open`, and the sessions of browsers: who may use them.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use super::commands::{faults, ran};
use super::http::address;
use super::*;

/// A user of the host that is not root.
const NOBODY: u32 = 65534;

/// A browser that opens the file of `sluice open`, keeps the list of all processes, and logs in by the click.
const BROWSER: &str = r#"set -e
cd "$(dirname "$0")"
stat -c %a "$1" > mode
sed -n 's/.*name="code" value="\([^"]*\)".*/\1/p' "$1" | tr -d '\n' > code
page=$(sed -n 's/.*action="\([^"]*\)".*/\1/p' "$1")
cat /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null | tr '\0' ' ' > processes
{ printf code=; cat code; } > form
curl -s -H 'Origin: null' -H 'Sec-Fetch-Site: cross-site' -H 'Sec-Fetch-Mode: navigate' --data @form "$page" > shown
curl -s -o answer -D head -H "Origin: ${page%/login}" --data @form "$page/confirm""#;

/// Sends a request with a cookie as a user of the host, and returns its status.
fn status(uid: u32, url: &str, cookie: &str) -> String {
    let sent = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", "X-Sluice: 1", "-b", cookie, url])
        .uid(uid)
        .gid(uid)
        .output()
        .expect("there is a curl");
    String::from_utf8(sent.stdout).expect("a number")
}

fn read(directory: &Path, name: &str) -> String {
    fs::read_to_string(directory.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Returns the cookie that an answer sets.
fn cookie(head: &str) -> String {
    let set = head.lines().find_map(|line| line.strip_prefix("set-cookie: ")).unwrap_or_else(|| panic!("{head}"));
    set.split(';').next().expect("a value").to_owned()
}

#[tokio::test]
async fn a_browser_logs_in_without_a_code_in_sight() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let browser = sluice.script("browser", BROWSER);

    let opened = daemon.command(["open", "--json"]).env("BROWSER", &browser).finish().await.expect(0);

    let object = opened.value();
    assert_eq!((&object["owner"], &object["role"], &object["run"]), (&json!("root"), &json!("owner"), &Value::Null));
    let (code, processes) = (read(sluice.dir(), "code"), read(sluice.dir(), "processes"));
    assert!(code.len() == 68 && code.starts_with("slc_"), "{code}");
    assert_eq!(read(sluice.dir(), "mode"), "600\n");
    assert!(processes.contains("sluice-login-") && !processes.contains(&code), "ps shows the file alone");
    let file = processes.split(' ').find(|word| word.contains("sluice-login-")).expect("the file");
    assert!(!Path::new(file).exists(), "{file} was removed");
    assert!(read(sluice.dir(), "shown").contains("Log in as root (owner)"));
    let (head, log) = (read(sluice.dir(), "head"), daemon.process().stderr());
    assert!(head.starts_with("HTTP/1.1 303") && head.contains("location: /\r"), "{head}");
    assert!(!log.contains(&code) && !opened.stderr.contains(&code) && !opened.stdout.contains(&code), "{log}");
    for name in [&code[..], cookie(&head).split_once('=').expect("a value").1] {
        let found = Command::new("grep").args(["-rlaF", name]).arg(sluice.state()).output().expect("there is a grep");
        assert_eq!(String::from_utf8_lossy(&found.stdout), "", "it is in memory alone");
    }
    let found = faults(&[("open", object)]).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_stolen_cookie_is_of_no_use_to_others() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let printed = ran(&daemon, &["open", "--print", "--admin", "--json"], 0).await.value();
    let (page, code) = (printed["page"].as_str().expect("a page"), printed["code"].as_str().expect("a code"));
    let origin = page.strip_suffix("/login").expect("a page");
    let exchanged = Command::new("curl")
        .args(["-s", "-o", "/dev/null", "-D", "-", "-H", &format!("Origin: {origin}")])
        .args(["--data", &format!("code={code}"), &format!("{page}/confirm")])
        .output()
        .expect("there is a curl");
    let cookie = cookie(&String::from_utf8_lossy(&exchanged.stdout));
    let session = format!("http://{}/api/v1/session", address(&daemon));

    assert_eq!(status(0, &session, &cookie), "200");
    assert_eq!(status(NOBODY, &session, &cookie), "401", "another user of the host");
    assert_eq!(status(0, &session, &cookie), "200", "the session goes on");
    assert_eq!(status(0, &format!("{session}?token={code}"), &cookie), "422");
    assert_eq!(status(0, &format!("http://{}/api/v1/login-codes/x", address(&daemon)), &cookie), "403");
    daemon.kill().await;
    let daemon = sluice.serve().await;
    let session = format!("http://{}/api/v1/session", address(&daemon));
    assert_eq!(status(0, &session, &cookie), "401", "a restart ends it");
    let found = faults(&[("open", printed)]).await;
    assert!(found.is_empty(), "{found:?}");
}

#[tokio::test]
async fn a_browser_that_cannot_start_is_an_error() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let daemon = sluice.serve().await;
    let failed = daemon.command(["open"]).env("BROWSER", "/nonexistent/browser").finish().await.expect(1);
    assert!(failed.stderr.contains("use sluice open --print"), "{}", failed.stderr);
    // This script fails like xdg-open on a host without a browser.
    let failing = sluice.script("failing", "exit 3");
    let failed = daemon.command(["open"]).env("BROWSER", &failing).finish().await.expect(1);
    let told = "no browser could be started: ";
    assert!(failed.stderr.contains(told) && failed.stderr.contains("exit status: 3"), "{}", failed.stderr);
    assert!(failed.stderr.contains("use sluice open --print"), "{}", failed.stderr);
    let text = ran(&daemon, &["open", "--print"], 0).await.stdout;
    assert!(text.contains("page     http://127.0.0.1:") && text.contains("code     slc_"), "{text}");
    let id = daemon.create(shell("true")).await;
    let text = ran(&daemon, &["open", &id, "--print"], 0).await.stdout;
    let origin = text.strip_prefix("page     ").and_then(|text| text.split("/login").next()).expect("a page");
    assert!(text.contains(&format!("\nrun      {origin}/sandboxes/{id}\n")), "{text}");
}
