//! The process: one instance, refusals to start, graceful stop, TLS.

use std::time::Duration;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};

use crate::daemon::{Daemon, DaemonError};
use crate::listen_plan::ListenRefusal;
use crate::test_daemon::{TestDaemon, read_answer, settings};

#[tokio::test]
async fn one_daemon_has_a_state_directory() {
    let daemon = TestDaemon::start().await;
    let error = Daemon::start(&daemon.settings).await.expect_err("it is in use");
    assert!(matches!(error, DaemonError::Lock(_)), "{error}");
    daemon.running.stop().await;
    assert!(!daemon.settings.run_dir.join("admin.sock").exists(), "its sockets are gone");
    Daemon::start(&daemon.settings).await.expect("it is free").stop().await;
}

#[tokio::test]
async fn it_refuses_to_listen_unsafely() {
    let scratch = tempfile::tempdir().expect("there is room");
    let mut settings = settings(scratch.path());
    settings.listen = vec!["0.0.0.0:0".to_owned()];
    let error = Daemon::start(&settings).await.expect_err("it is unsafe");
    assert!(matches!(error, DaemonError::Listen(ListenRefusal::NoTls(_))), "{error}");
    assert!(!settings.run_dir.exists(), "nothing is bound");
}

#[tokio::test]
async fn a_stop_finishes_the_request_under_way() {
    let daemon = TestDaemon::with(|settings| settings.limits.stop_time = Duration::from_secs(60)).await;
    let address = daemon.address();
    let mut idle = TcpStream::connect(address).await.expect("it listens");
    idle.write_all(format!("GET /alive HTTP/1.1\r\nHost: {address}\r\n\r\n").as_bytes()).await.expect("it listens");
    let mut first = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut idle, &mut first).await.expect("it answers");
    assert_eq!(&first, b"HTTP/1.1 200");

    let mut busy = UnixStream::connect(daemon.socket("api.sock")).await.expect("it listens");
    let head = format!(
        "PUT /api/v1/budgets/acct-1 HTTP/1.1\r\nHost: localhost\r\n{}\r\n\
                Content-Type: application/json\r\nContent-Length: 26\r\nExpect: 100-continue\r\n\r\n",
        daemon.bearer("slu_admin")
    );
    busy.write_all(head.as_bytes()).await.expect("it listens");
    let mut interim = [0; 25];
    tokio::io::AsyncReadExt::read_exact(&mut busy, &mut interim).await.expect("the handler reads the body");
    let stop = tokio::spawn(daemon.running.stop());
    read_answer(idle).await;
    // A child that another test starts may keep a copy of the socket for a moment.
    while TcpStream::connect(address).await.is_ok() {}
    busy.write_all(br#"{"kind":"set","usd":"12.5"}"#[..26].as_ref()).await.expect("it is still read");
    let answer = read_answer(busy).await;
    assert_eq!(answer.status, 400, "the body was cut short, and answered: {answer:?}");
    tokio::time::timeout(Duration::from_secs(50), stop).await.expect("it ends by itself").expect("it does not panic");
}

#[tokio::test]
async fn a_signal_is_a_good_end() {
    let daemon = TestDaemon::start().await;
    let ended = daemon.running.run_until(std::future::ready(())).await;
    assert!(ended.is_ok(), "{ended:?}");
}

#[tokio::test]
async fn a_failed_part_ends_the_daemon() {
    let mut daemon = TestDaemon::start().await;
    daemon.running.tasks.spawn("a part", |_| std::future::ready(()));
    let ended = daemon.running.run_until(std::future::pending()).await;
    assert!(matches!(ended, Err(DaemonError::TaskEnded("a part"))), "{ended:?}");
}
