use serde_json::{Value, json};
use sluice_runs::engine::Engine;
use sluice_runs::sidecar_user::SidecarUsers;
use sluice_state::process::Process;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixListener;

use super::*;
use crate::pause::{Requester, pause};
use crate::test_daemon::TestDaemon;
use crate::tests::fake_sidecar::FakeSidecar;

#[tokio::test]
async fn the_row_decides_what_the_clocks_do() {
    let daemon = TestDaemon::with_runs().await;
    let (id, paths) = daemon.working_run().await;
    let context = &daemon.running.context;
    let sidecar = FakeSidecar::start(&paths.control, json!({}), json!({}));
    // An engine that has a version; no step here asks it for a container.
    let socket = paths.work.join("engine.sock");
    let listener = UnixListener::bind(&socket).expect("the name is free");
    let answer =
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 21\r\n\r\n{\"ApiVersion\":\"1.41\"}";
    let engine = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut head = [0; 4096];
            let _ = stream.read(&mut head).await;
            let _ = stream.write_all(answer.as_bytes()).await;
        }
    });
    let host = Host {
        layout: context.layout.clone(),
        instance: "test".to_owned(),
        store: daemon.store().clone(),
        engine: Engine::connect(&format!("unix://{}", socket.display())).await.expect("it answers"),
        keys: context.keys.clone(),
        proxy: "/bin/false".into(),
        sidecar_users: SidecarUsers { uids: "3000-3999".parse().expect("a range"), gid: None },
        litellm: None,
        git: context.git.clone(),
        owner: Process::current().expect("there is /proc"),
    };
    let key: RunKey = format!("{id}.0").parse().expect("a key");
    let (_cancel, cancelled) = watch::channel(None);
    let mut keeper =
        PauseKeeper::new(Arc::clone(context), Arc::new(host), key.clone(), Arc::new(LiveRun::default()), cancelled);
    let told = || sidecar.requests("POST /clock").iter().map(|body| body["stopped"].clone()).collect::<Vec<Value>>();
    let find =
        async || daemon.store().find_sandbox(None, &key.run_id).await.expect("it is readable").expect("it is there");

    // A step that was interrupted has told the sidecar to stop.
    keeper.clocks_stopped = Some(true);
    keeper.step().await.expect("the sidecar answers");
    keeper.step().await.expect("the sidecar answers");
    assert_eq!(told(), [false], "once");
    // An earlier daemon may have told it anything.
    keeper.clocks_stopped = None;
    keeper.step().await.expect("the sidecar answers");
    assert_eq!(told(), [false, false]);

    pause(context, find().await, Requester::Rule("a test")).await.expect("it works");
    assert_eq!(keeper.step().await.expect("the sidecar answers"), PauseStep::CloseGate);
    assert_eq!(keeper.step().await.expect("the sidecar answers"), PauseStep::Mark(Cause::Pause));
    assert!(find().await.clocks_stopped_us.is_some());
    assert_eq!(told()[2..], [true]);
    // A step that was interrupted has told the sidecar to go on.
    keeper.clocks_stopped = Some(false);
    keeper.step().await.expect("the sidecar answers");
    assert_eq!(told()[3..], [true]);
    engine.abort();
}
