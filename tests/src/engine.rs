//! The Docker Engine seen through the `docker` program, independent of the product's client.

use std::process::Stdio;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;
use tokio::time::timeout;

use crate::wait::PATIENCE;

mod hold;

pub use hold::Hold;

/// Result of a `docker` command.
#[derive(Debug, Clone)]
pub struct DockerOutput {
    /// Exit code.
    pub code: i32,
    /// All of stdout.
    pub stdout: String,
    /// All of stderr.
    pub stderr: String,
}

/// The longest time of a `docker` command: it may build an image, or wait for a container.
const LIMIT: Duration = Duration::from_secs(240);

/// Runs `docker` to its end; panics when it takes longer than four minutes.
pub async fn docker<A: AsRef<str>>(args: impl IntoIterator<Item = A>) -> DockerOutput {
    let mut command = command(args);
    let ran = timeout(LIMIT, command.output()).await;
    let ran = ran.unwrap_or_else(|_| panic!("{command:?} took longer than {LIMIT:?}"));
    let ran = ran.unwrap_or_else(|error| panic!("cannot run {command:?}: {error}"));
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    DockerOutput { code: ran.status.code().unwrap_or(-1), stdout: text(ran.stdout), stderr: text(ran.stderr) }
}

/// Runs `docker` and returns the lines of its stdout; panics when it fails.
pub async fn lines<A: AsRef<str>>(args: impl IntoIterator<Item = A>) -> Vec<String> {
    let args: Vec<String> = args.into_iter().map(|arg| arg.as_ref().to_owned()).collect();
    let said = docker(&args).await;
    assert_eq!(said.code, 0, "docker {args:?}: {}", said.stderr);
    said.stdout.lines().map(str::to_owned).collect()
}

/// Returns the output of `docker inspect` for a container; panics when there is none.
pub async fn inspect(container: &str) -> Value {
    let said = lines(["container", "inspect", container]).await.concat();
    let mut all: Vec<Value> = serde_json::from_str(&said).expect("docker inspect prints JSON");
    all.pop().expect("one container was asked for")
}

/// Returns the names of all containers with this label, in any state.
pub async fn containers_with(label: &str) -> Vec<String> {
    lines(["ps", "--all", "--no-trunc", "--filter", &format!("label={label}"), "--format", "{{.Names}}"]).await
}

/// Returns true if there is a container of this name.
pub async fn exists(container: &str) -> bool {
    docker(["container", "inspect", "--format", "{{.Id}}", container]).await.code == 0
}

/// Runs a command in a running container, as its user.
pub async fn exec<A: AsRef<str>>(container: &str, args: impl IntoIterator<Item = A>) -> DockerOutput {
    let args = args.into_iter().map(|arg| arg.as_ref().to_owned());
    docker(["exec".to_owned(), container.to_owned()].into_iter().chain(args)).await
}

/// Waits until containers with this label have begun this `event` (`create`, `start`, `oom`, `die`, `destroy`) `count`
/// times since `since` (seconds since 1970), and returns the name of the last of them.
///
/// The engine reports past events too, so that none is missed.
pub async fn event(event: &str, label: &str, since: f64, count: usize) -> String {
    let [since, event_filter, label_filter] =
        [format!("{since:.3}"), format!("event={event}"), format!("label={label}")];
    let mut child = command([
        "events", "--since", &since, "--filter", "type=container", "--filter", &event_filter, "--filter",
        &label_filter, "--format", "{{.Actor.Attributes.name}}",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .expect("docker can be run");
    let mut lines = BufReader::new(child.stdout.take().expect("stdout is piped")).lines();
    let seek = async {
        let mut name = String::new();
        for _ in 0..count {
            name = lines.next_line().await.expect("a pipe can be read").expect("docker events goes on");
        }
        name
    };
    let name = timeout(PATIENCE, seek).await;
    let name = name.unwrap_or_else(|_| panic!("waited {PATIENCE:?} for {event} × {count} of {label}"));
    child.kill().await.expect("our own child can be killed");
    name
}

/// Removes all containers with this label, and their volumes; for the end of a test, without a runtime.
pub(crate) fn remove_all(label: &str) {
    let script = r#"ids=$(docker ps -aq --filter "label=$1") && [ -z "$ids" ] || docker rm --force --volumes $ids"#;
    let _ = std::process::Command::new("timeout")
        .args(["60", "sh", "-c", script, "sh", label])
        .env_remove("DOCKER_HOST")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

fn command<A: AsRef<str>>(args: impl IntoIterator<Item = A>) -> Command {
    let mut command = Command::new("docker");
    command
        .args(args.into_iter().map(|arg| arg.as_ref().to_owned()))
        // The engine of the tests is the one that the controller finds by default.
        .env_remove("DOCKER_HOST")
        .env_remove("DOCKER_CONTEXT")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}
