//! Work with a forge that fails at first: requests that may succeed later are retried, after 1, 2 and 4 seconds.

use std::sync::Mutex;
use std::time::Duration;

use sluice_git::forge::{Pause, retrying};
use sluice_git::{Credentials, GitError, MirrorOptions, Published, RepositoryUrl};

use crate::support::forge::{allow_pushes, failing_forge};
use crate::support::{Host, branch, commit, git};

/// Records the seconds, and does not wait.
#[derive(Debug, Default)]
struct Counted(Mutex<Vec<u64>>);

impl Counted {
    fn take(&self) -> Vec<u64> {
        std::mem::take(&mut self.0.lock().expect("no panic"))
    }
}

impl Pause for Counted {
    async fn pause(&self, time: Duration) {
        self.0.lock().expect("no panic").push(time.as_secs());
    }
}

fn url(server: &str) -> RepositoryUrl {
    RepositoryUrl::parse(&format!("{server}/origin.git")).expect("an address")
}

#[tokio::test]
async fn a_fetch_from_an_overloaded_forge_succeeds_later() {
    let host = Host::new();
    host.origin("origin");
    let (none, options, pause) = (Credentials::None, MirrorOptions::default(), Counted::default());
    for (status, requests, waits) in [(503, 2, vec![1, 2]), (429, 3, vec![1, 2, 4])] {
        let (server, _) = failing_forge(host.scratch.path(), status, requests).await;
        let url = url(&server.address);
        let mirror = retrying(&pause, || host.home.mirror(&url, &none, &options)).await.expect("it succeeds");
        assert_eq!((mirror.base().as_str(), pause.take()), ("main", waits));
    }
    for (status, requests, waits) in [(503, 4, vec![1, 2, 4]), (403, 1, vec![]), (404, 1, vec![])] {
        let (server, seen) = failing_forge(host.scratch.path(), status, requests).await;
        let url = url(&server.address);
        let failed = retrying(&pause, || host.home.mirror(&url, &none, &options)).await;
        assert!(matches!(failed, Err(GitError::Failed { .. })), "{status}: {failed:?}");
        assert_eq!((seen.all().len(), pause.take()), (waits.len() + 1, waits), "{status}");
    }
}

#[tokio::test]
async fn a_push_to_an_overloaded_forge_succeeds_later() {
    let host = Host::new();
    let origin = host.origin("origin");
    allow_pushes(&origin);
    let run = host.workspace(&origin, "r1", "http://localhost:8080").await;
    let new = commit(&run.directory, "one");
    let reference = format!("refs/heads/{}", branch());
    git(&run.directory, ["bundle", "create", "-q", "../bundle", &reference, &format!("^{}", run.repository.base())]);
    let bundle = std::fs::File::open(host.path("bundle")).expect("a bundle");
    run.repository.import_bundle(bundle).await.expect("it is accepted");
    let head = run.repository.head().await.expect("a head");
    let (server, _) = failing_forge(host.scratch.path(), 503, 2).await;
    let (url, target, pause) = (url(&server.address), branch(), Counted::default());

    let push = || run.repository.publish(&url, &Credentials::None, &target, &head, None);
    assert_eq!(retrying(&pause, push).await.expect("it succeeds"), Published::Pushed);

    assert_eq!(pause.take(), [1, 2]);
    assert_eq!(git(&origin, ["rev-parse", &reference]), new);
    // The repeated push finds the branch of the push with the lost answer.
    let push = || run.repository.publish(&url, &Credentials::None, &target, &head, None);
    assert_eq!(retrying(&pause, push).await.expect("it is there"), Published::AlreadyThere);
    git(&origin, ["update-ref", &reference, "main"]);
    let push = || run.repository.publish(&url, &Credentials::None, &target, &head, None);
    assert!(matches!(retrying(&pause, push).await, Err(GitError::BranchTaken { .. })));
    assert_eq!(pause.take(), [0; 0], "a taken name stays taken");
}

/// A git that gives up a silent connection after one second in place of 60.
const IMPATIENT: &str = "for word do
  shift
  case $word in http.lowSpeedTime=60) word=http.lowSpeedTime=1;; esac
  set -- \"$@\" \"$word\"
done
exec /usr/bin/git \"$@\"";

/// Bug: a forge that accepted connections and sent nothing held the lock of the mirror for an hour.
#[tokio::test]
async fn a_silent_forge_is_given_up_soon() {
    let host = Host::new();
    let home = host.with_git("impatient", IMPATIENT);
    // The kernel accepts the connections, and no program answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = url(&format!("http://{}", silent.local_addr().expect("an address")));
    let options = MirrorOptions::default();
    let mirror = || home.mirror(&url, &Credentials::None, &options);

    let failed = tokio::time::timeout(Duration::from_secs(60), mirror()).await.expect("git ends by itself");
    let failed = failed.expect_err("there is no answer");
    assert!(failed.to_string().contains("Operation too slow") && failed.is_retryable(), "{failed}");

    // The paused clock of the runtime jumps to the limit for listing branches; git's own clock does not.
    tokio::time::pause();
    let failed = mirror().await.expect_err("there is no answer");
    assert!(matches!(failed, GitError::TimedOut { seconds: 120, .. }), "{failed}");
}
