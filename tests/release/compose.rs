//! The sidecar's image beside an agent, by `deploy/compose.sidecar.yaml`.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use sluice_testkit::{TempDir, Upstream, write_private};

use crate::{checkout, released, run};

/// User of the sidecar's image.
const SIDECAR_UID: u32 = 65_532;

/// A Compose project; its containers and volumes are removed when it is dropped.
struct Project {
    name: String,
    dir: TempDir,
    upstream: String,
}

impl Project {
    fn new(upstream: &str) -> Self {
        run(Command::new("docker").arg("load").arg("--input").arg(released(".image.tar.gz")));
        let dir = TempDir::new();
        let name = dir.path().file_name().expect("a directory").to_string_lossy().to_lowercase().replace('.', "");
        write_private(&dir.join("key"), "sk-of-the-operator\n");
        std::os::unix::fs::chown(dir.join("key"), Some(SIDECAR_UID), Some(SIDECAR_UID)).expect("a test runs as root");
        // The scripted upstream listens on the host's loopback.
        fs::write(dir.join("host.yaml"), "services: {sidecar: {network_mode: host}}\n")
            .expect("a fresh directory takes files");
        Self { name, dir, upstream: upstream.to_owned() }
    }

    /// Runs the project until its agent ends.
    async fn up(&self, agent: &str) -> Output {
        let mut command = tokio::process::Command::from(self.command(agent));
        command.args(["up", "--no-color", "--exit-code-from", "agent"]).stdin(Stdio::null());
        command.output().await.expect("there is Compose")
    }

    fn command(&self, agent: &str) -> Command {
        let (program, first) = compose_program();
        let mut command = Command::new(program);
        command.args(first).args(["--project-name", &self.name]);
        for file in [checkout().join("deploy/compose.sidecar.yaml"), self.dir.join("host.yaml")] {
            command.arg("--file").arg(file);
        }
        command.env("RUN_ID", &self.name).env("SLUICE_UPSTREAM", &self.upstream).env("AGENT_COMMAND", agent);
        command.env("SLUICE_KEY_FILE", self.dir.join("key")).env("ACCOUNT", "acct-1").env_remove("DOCKER_HOST");
        command
    }

    /// Returns the lines of the audit file, copied out of its volume.
    fn audit(&self) -> (PathBuf, Vec<Value>) {
        let path = self.dir.join("audit.jsonl");
        let from = format!("{}_sidecar_1:/var/log/sluice/{}.0.jsonl", self.name, self.name);
        let from = if compose_program().1.is_empty() { from } else { from.replace("_sidecar_", "-sidecar-") };
        run(Command::new("docker").args(["cp", &from]).arg(&path).env_remove("DOCKER_HOST"));
        let text = fs::read_to_string(&path).expect("a file that was copied");
        (path, text.lines().map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        let down = ["down", "--volumes", "--remove-orphans", "--timeout", "5"];
        let _ = self.command("true").args(down).stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Returns the program of Compose: the plugin of `docker`, or Debian's own program.
fn compose_program() -> (&'static str, &'static [&'static str]) {
    let plugin = Command::new("docker").args(["compose", "version"]).output();
    if plugin.is_ok_and(|output| output.status.success()) { ("docker", &["compose"]) } else { ("docker-compose", &[]) }
}

#[tokio::test]
async fn an_agent_of_ones_own_gets_its_answer() {
    let upstream = Upstream::provider("hello from the model").start().await;
    let project = Project::new(upstream.url());
    let ask = r#"curl -sS --fail http://localhost:8080/v1/chat/completions
        -d '{"model":"m","messages":[{"role":"user","content":"hello"}]}'"#;

    let done = project.up(ask).await;

    let said = String::from_utf8_lossy(&done.stdout) + String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{said}");
    assert!(said.contains("hello from the model"), "{said}");
    let request = upstream.only_request();
    assert_eq!(request.header("authorization"), Some("Bearer sk-of-the-operator"));
    let (path, lines) = project.audit();
    let kinds: Vec<_> = lines.iter().map(|line| line["kind"].as_str().unwrap_or_default()).collect();
    assert_eq!(kinds, ["open", "intent", "outcome", "close"], "{lines:?}");
    run(Command::new("python3").arg(checkout().join("proxy/contract/verify_audit.py")).arg(path));
}

#[tokio::test]
async fn the_agents_exit_code_is_that_of_compose() {
    let upstream = Upstream::provider("hello").start().await;
    let project = Project::new(upstream.url());

    let done = project.up("sh -c 'exit 42'").await;

    assert_eq!(done.status.code(), Some(42), "{}", String::from_utf8_lossy(&done.stderr));
}
