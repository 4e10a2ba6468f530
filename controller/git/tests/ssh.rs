//! Work with a forge over ssh: a real `sshd`, its key checked, and one key of ours.

use sluice_git::{GitError, MirrorOptions, Published, RepositoryUrl};

use crate::support::sshd::Sshd;
use crate::support::{Host, branch, commit, git, identity, listing, run_id, text, write};

fn url(sshd: &Sshd, host: &Host) -> RepositoryUrl {
    let path = text(&host.path("origin.git"));
    RepositoryUrl::parse(&format!("ssh://root@127.0.0.1:{}{path}", sshd.port)).expect("an address")
}

#[tokio::test]
async fn a_run_begins_and_is_published_over_ssh() {
    let host = Host::new();
    let origin = host.origin("origin");
    let sshd = Sshd::start(&host.path("ssh"));
    let (url, credentials) = (url(&sshd, &host), sshd.credentials());

    let mirror = host.home.mirror(&url, &credentials, &MirrorOptions::default()).await;
    let mirror = mirror.unwrap_or_else(|error| panic!("{error}\n{}", sshd.log()));
    assert_eq!(mirror.tip().as_str(), git(&origin, ["rev-parse", "main"]));
    let run = mirror.run_repository(&run_id("r1")).await.expect("a repository");
    let work = host.path("work");
    run.clone_into(&work, &branch(), "http://localhost:8080/git/r1.git", &identity()).await.expect("a clone");
    write(&work, "README.md", "more\n");
    let new = commit(&work, "one");
    let reference = format!("refs/heads/{}", branch());
    git(&work, ["bundle", "create", "-q", "../bundle", &reference, &format!("^{}", run.base())]);
    run.import_bundle(std::fs::File::open(host.path("bundle")).expect("a bundle")).await.expect("it is accepted");
    let head = run.head().await.expect("a head");
    let published = run.publish(&url, &credentials, &branch(), &head, None).await;

    assert_eq!(published.unwrap_or_else(|error| panic!("{error}\n{}", sshd.log())), Published::Pushed);
    assert_eq!(git(&origin, ["rev-parse", &reference]), new);
    let again = run.publish(&url, &credentials, &branch(), &head, None).await.expect("it answers");
    assert_eq!(again, Published::AlreadyThere);
    let left: Vec<String> = listing(&host.path("state")).into_iter().filter(|path| path.contains("secrets-")).collect();
    assert_eq!(left, [""; 0], "the key is gone");
}

#[tokio::test]
async fn another_host_key_is_refused_before_the_login() {
    let host = Host::new();
    host.origin("origin");
    let sshd = Sshd::start(&host.path("ssh"));

    let refused = host.home.mirror(&url(&sshd, &host), &sshd.with("client", "other"), &MirrorOptions::default()).await;

    let error = refused.expect_err("the host is another one");
    assert!(error.to_string().contains("Host key verification failed"), "{error}\n{}", sshd.log());
    assert!(!error.is_retryable());
    assert!(!sshd.log().contains("Accepted"), "{}", sshd.log());
}

#[tokio::test]
async fn another_client_key_is_refused() {
    let host = Host::new();
    host.origin("origin");
    let sshd = Sshd::start(&host.path("ssh"));

    let refused = host.home.mirror(&url(&sshd, &host), &sshd.with("other", "host"), &MirrorOptions::default()).await;

    let Err(error @ GitError::Failed { .. }) = refused else { panic!("{refused:?}\n{}", sshd.log()) };
    assert!(error.to_string().contains("Permission denied"), "{error}\n{}", sshd.log());
    assert!(!error.is_retryable());
}
