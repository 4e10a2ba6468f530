//! Credentials reach the one address that they are for, and nothing else.

use std::fs;

use hyper::body::Incoming;
use hyper::{Request, Response};
use sluice_git::{Credentials, GitError, MirrorOptions, Published, RepositoryUrl, SecretText};

use crate::support::forge::{AUTHORIZATION, TOKEN, USER, allow_pushes, forge, redirection};
use crate::support::http::{Whole, serve};
use crate::support::{Host, listing};

fn token() -> Credentials {
    Credentials::Token { username: USER.to_owned(), token: SecretText::new(TOKEN.to_owned()) }
}

fn url(server: &str, path: &str) -> RepositoryUrl {
    RepositoryUrl::parse(&format!("{server}/{path}")).expect("an address")
}

#[tokio::test]
async fn a_token_is_sent_to_its_repository() {
    let host = Host::new();
    host.origin("origin");
    let (server, seen) = forge(host.scratch.path(), true).await;
    let url = url(&server.address, "origin.git");
    let mirror = host.home.mirror(&url, &token(), &MirrorOptions::default()).await.expect("a mirror");
    assert_eq!(mirror.base().as_str(), "main");
    assert!(seen.all().iter().any(|(_, given)| given.as_deref() == Some(AUTHORIZATION)));
    for entry in listing(&host.path("state")) {
        let path = entry.rsplit_once(' ').expect("a size").0;
        let bytes = fs::read(path).unwrap_or_default();
        assert!(!bytes.windows(6).any(|six| six == b"s3cret"), "{path}");
        assert!(!path.contains("secrets-"), "{path}");
    }
    let wrong = Credentials::Token { username: USER.to_owned(), token: SecretText::new("wrong".to_owned()) };
    let error = host.home.mirror(&url, &wrong, &MirrorOptions::default()).await.expect_err("it is refused").to_string();
    assert!(!error.contains("wrong") && !error.contains(&host.scratch.path().display().to_string()), "{error}");
}

#[tokio::test]
async fn a_redirection_gets_no_credential() {
    let host = Host::new();
    host.origin("origin");
    let (thief, stolen) = forge(host.scratch.path(), true).await;
    let (server, _) = redirection(thief.address.clone()).await;
    let url = url(&server.address, "origin.git");
    assert!(host.home.mirror(&url, &token(), &MirrorOptions::default()).await.is_err());
    assert_eq!(stolen.all(), []);
}

/// Bug: the operator's log had the credential if a forge repeated it in its refusal.
#[tokio::test]
async fn a_refusal_that_repeats_the_credential_shows_none() {
    let host = Host::new();
    let server = serve(|request: Request<Incoming>| async move {
        let given = request.headers().get("authorization").and_then(|value| value.to_str().ok()).unwrap_or_default();
        let answer = Response::builder().header("www-authenticate", "Basic realm=\"forge\"");
        let status = if given.is_empty() { 401 } else { 403 };
        let text = format!("no rights for {given}, which is {TOKEN}");
        answer.status(status).header("content-type", "text/plain").body(Whole::new(text.into())).expect("a response")
    });
    let server = server.await;
    let url = url(&server.address, "origin.git");

    let refused =
        host.home.mirror(&url, &token(), &MirrorOptions::default()).await.expect_err("it is refused").to_string();

    assert!(refused.contains("no rights for Basic (token), which is (token)"), "{refused}");
    let (_, encoded) = AUTHORIZATION.split_once(' ').expect("a scheme");
    assert!(!refused.contains(TOKEN) && !refused.contains(encoded), "{refused}");
}

#[tokio::test]
async fn a_credential_fits_its_address() {
    let host = Host::new();
    let origin = host.origin("origin");
    let key = || Credentials::SshKey { key: SecretText::new(String::new()), known_hosts: String::new() };
    for (address, credentials) in [
        ("https://127.0.0.1:1/r".to_owned(), key()),
        ("git@127.0.0.1:r".to_owned(), token()),
        ("git@127.0.0.1:r".to_owned(), Credentials::None),
    ] {
        let url = RepositoryUrl::parse(&address).expect("an address");
        let refused = host.home.mirror(&url, &credentials, &MirrorOptions::default()).await;
        assert!(matches!(refused, Err(GitError::CredentialKind { .. })), "{refused:?}");
    }
    host.mirror_of(&origin).await;
}

#[tokio::test]
async fn ssh_starts_with_the_key_and_known_hosts() {
    let host = Host::new();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("an address").port();
    drop(listener);
    let url = RepositoryUrl::parse(&format!("ssh://git@127.0.0.1:{port}/o/r.git")).expect("an address");
    let key =
        Credentials::SshKey { key: SecretText::new("-----BEGIN X-----\n".to_owned()), known_hosts: String::new() };
    let error = host.home.mirror(&url, &key, &MirrorOptions::default()).await.expect_err("no server").to_string();
    assert!(error.contains("Connection refused"), "{error}");
}

#[tokio::test]
async fn a_shallow_history_serves_a_run() {
    let host = Host::new();
    let bare = host.origin("origin");
    let work = host.path("origin.work");
    for name in ["a", "b", "c"] {
        crate::support::commit(&work, name);
    }
    crate::support::git(&work, ["push", "-q", &crate::support::text(&bare), "main"]);
    let (server, _) = forge(host.scratch.path(), false).await;
    let options = MirrorOptions { depth: Some(1), ..MirrorOptions::default() };
    let url = url(&server.address, "origin.git");
    let mirror = host.home.mirror(&url, &Credentials::None, &options).await.expect("a mirror");
    let run = mirror.run_repository(&crate::support::run_id("r1")).await.expect("a repository");
    let relay = crate::support::relay::relay(&host.home).await;
    let directory = host.path("r1.work");
    let origin = format!("{}/git/r1.git", relay.address);
    run.clone_into(&directory, &crate::support::branch(), &origin, &crate::support::identity()).await.expect("a clone");
    assert_eq!(crate::support::git(&directory, ["rev-list", "--count", "HEAD"]), "1");
    crate::support::commit(&directory, "mine");
    let (is_done, words) = crate::support::git_async(&directory, ["push"]).await;
    assert!(is_done, "{words}");

    allow_pushes(&bare);
    let head = run.head().await.expect("a head");
    let published = run.publish(&url, &Credentials::None, &crate::support::branch(), &head, None).await;
    assert_eq!(published.expect("it is new"), Published::Pushed);
    let reference = crate::support::branch().reference();
    assert_eq!(crate::support::git(&bare, ["rev-parse", &reference]), head.to_string());
    assert_eq!(crate::support::git(&bare, ["rev-list", "--count", &reference]), "5", "the history there is whole");
    crate::support::git(&bare, ["fsck", "--strict"]);
    // The base has moved meanwhile: the mirror has two boundaries of its history now.
    crate::support::commit(&work, "d");
    crate::support::git(&work, ["push", "-q", &crate::support::text(&bare), "main"]);
    let mirror = host.home.mirror(&url, &Credentials::None, &options).await.expect("a mirror");
    assert_eq!(mirror.tip().as_str(), crate::support::git(&bare, ["rev-parse", "main"]));
    mirror.run_repository(&crate::support::run_id("r2")).await.expect("a repository");
}

#[tokio::test]
async fn ten_thousand_refs_do_not_stop_a_fetch() {
    let host = Host::new();
    let bare = host.origin("origin");
    let head = crate::support::git(&bare, ["rev-parse", "main"]);
    let refs: String = (0..10_000).map(|number| format!("{head} refs/heads/many/{number}\n")).collect();
    fs::write(bare.join("packed-refs"), format!("{head} refs/heads/main\n{refs}")).expect("it is ours");
    let (server, _) = forge(host.scratch.path(), false).await;
    let url = url(&server.address, "origin.git");
    let mirror = host.home.mirror(&url, &Credentials::None, &MirrorOptions::default()).await.expect("a mirror");
    assert_eq!(mirror.tip().as_str(), head);
}
