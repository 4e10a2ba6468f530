//! Inside a sandbox, localhost leads to the sidecar: through the image's entrypoint, also where it is used by hand.

use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::{Value, json};
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::engine::{self, DockerOutput};
use sluice_testkit::{Launch, Sidecar, Sluice, Upstream};

use crate::agents::{kit, without_calls};

const IMAGE: &str = "sluice-runtime:latest";

/// A container of the image without a controller; removed when dropped.
pub(crate) struct ByHand {
    name: String,
}

impl ByHand {
    /// Starts it in the background, without a network, as `docker run FLAGS IMAGE ARGV`.
    pub(crate) async fn start(flags: &[&str], argv: &[&str]) -> Self {
        let container = Self { name: unique_run_id("sluice-by-hand") };
        let run = ["run", "--detach", "--network=none", "--name", &container.name];
        let said = engine::docker(run.iter().chain(flags).chain(&[IMAGE]).chain(argv)).await;
        assert_eq!(said.code, 0, "{}", said.stderr);
        container
    }

    /// Runs it to its end, and returns its exit code and output.
    pub(crate) async fn run(flags: &[&str], argv: &[&str]) -> DockerOutput {
        let container = Self::start(flags, argv).await;
        let code = container.ended().await;
        let said = engine::docker(["logs", &container.name]).await;
        DockerOutput { code, ..said }
    }

    /// Waits for its end, and returns its exit code.
    pub(crate) async fn ended(&self) -> i32 {
        engine::lines(["wait", &self.name]).await.concat().parse().expect("docker wait prints the exit code")
    }

    /// Runs a shell script in it.
    pub(crate) async fn shell(&self, script: &str) -> DockerOutput {
        engine::exec(&self.name, ["sh", "-c", script]).await
    }
}

impl Drop for ByHand {
    fn drop(&mut self) {
        let mut command = Command::new("timeout");
        command.args(["60", "docker", "rm", "--force", "--volumes", &self.name]).env_remove("DOCKER_HOST");
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// A sidecar without an upstream, for the user of a sandbox.
pub(crate) fn for_sandbox() -> Launch {
    Sidecar::to_url("http://127.0.0.1:9").args(["--peer-uid", "1001"])
}

/// Returns the volume `DIRECTORY:/llm-sock:ro` for a sidecar with this directory.
pub(crate) fn socket_in(dir: &Path) -> String {
    format!("{}:/llm-sock:ro", dir.join("run").display())
}

fn ask(path: &str) -> String {
    format!("curl -sS -o /dev/null -w '%{{http_code}}' --path-as-is 'http://localhost:8080{path}'")
}

#[tokio::test]
async fn health_is_asked_through_localhost() {
    let (sluice, _upstream) = without_calls().await;
    let id = unique_run_id("health");
    let run = sluice.run(["-q", "--run-id", &id, "--", "curl", "-sS", "http://localhost:8080/health"]);

    let answer = run.finish().await.expect(0).value();

    assert_eq!((&answer["status"], &answer["runId"]), (&json!("ok"), &json!(id)), "{answer}");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn other_paths_do_not_exist() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let paths = [
        "/v1", "/healthz", "/health/", "/health/readiness", "/metrics", "/key/generate", "/v1/../key/generate",
        "/v1/files", "/model/info", "/api/v1/sandboxes", "//health", "/%68ealth", "/v1/chat/completions/x",
    ];
    let script: String = paths.iter().map(|path| format!("{}; echo; ", ask(path))).collect();

    let ran = sluice.run(["--json", "--", "sh", "-c", &script]).finish().await.expect(0);

    let report = ran.json();
    let codes: Vec<_> = paths.iter().copied().zip(report.stdout.lines()).collect();
    assert_eq!(codes, paths.map(|path| (path, "404")));
    assert_eq!((report.receipts.len(), upstream.requests().len()), (0, 0));
}

#[tokio::test]
async fn arguments_arrive_as_they_were_given() {
    let (sluice, _upstream) = without_calls().await;
    let odd = [
        "", " ", "a b", "it's", "\"", "$HOME", "`id`", "$(id)", "*", "\\", "\\n", "new\nline", "\ttab", "é漢🦀", "--",
        "-c", "--json", "&&", ";", "|", "#", "!", "~", "a=b", "%s", "{1,2}", "\u{1b}[0m",
    ];
    let tell = "import json, sys; print(json.dumps(sys.argv[1:]))";

    let run = sluice.run(["-q", "--", "python3", "-c", tell]).args(odd).finish().await.expect(0);
    // As process 1, the entrypoint starts the image's init before itself.
    let by_hand = ByHand::run(&[], &[&["python3", "-c", tell][..], &odd].concat()).await;

    assert_eq!(run.value(), json!(odd));
    assert_eq!(serde_json::from_str::<Value>(&by_hand.stdout).expect("JSON"), json!(odd));
}

#[tokio::test]
async fn a_program_is_not_started_without_its_socket() {
    let said = ByHand::run(&["-e", "OPENAI_API_BASE=http://localhost:8080"], &["echo", "begun"]).await;

    let why = "sluice: OPENAI_API_BASE is set, but there is no socket at /llm-sock/llm.sock after 30 s\n";
    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (1, "", why));
}

#[tokio::test]
async fn a_program_without_calls_needs_no_socket() {
    let script = "echo begun; (exec 3<>/dev/tcp/127.0.0.1/8080) 2>/dev/null || echo dead";

    let said = ByHand::run(&[], &["bash", "-c", script]).await;

    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "begun\ndead\n", ""));
}

#[tokio::test]
async fn without_a_command_there_is_a_login_shell() {
    let container = ByHand::start(&["--interactive"], &[]).await;
    // Wait until the entrypoint, which is bash too, has replaced itself with the login shell.
    let script = "is() { [ \"$(tr '\\0' ' ' <$1 2>/dev/null)\" = 'bash -l ' ]; }; \
        until for f in /proc/[0-9]*/cmdline; do is $f && break; done; do :; done";

    assert_eq!(container.shell(script).await.code, 0);
}

#[tokio::test]
async fn a_socket_is_bridged_by_default() {
    let sidecar = for_sandbox().start().await;

    let said = ByHand::run(&["-v", &socket_in(sidecar.dir())], &["sh", "-c", &ask("/health")]).await;

    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (0, "200", ""));
}

#[tokio::test]
async fn a_late_socket_is_waited_for() {
    let launch = for_sandbox();
    let mount = socket_in(launch.dir());
    let flags = ["-v", &mount, "-e", "OPENAI_API_BASE=http://localhost:8080"];
    let container = ByHand::start(&flags, &["sh", "-c", &ask("/health")]).await;
    // Wait until the entrypoint has looked for the socket without success, and waits.
    let waits = "until grep -qs '[e]ntrypoint' /proc/[0-9]*/cmdline; do :; done; ! grep -sx socat /proc/[0-9]*/comm";
    assert_eq!(container.shell(waits).await.code, 0);

    let _sidecar = launch.start().await;

    assert_eq!(container.ended().await, 0);
    assert_eq!(engine::lines(["logs", &container.name]).await, ["200"]);
}

#[tokio::test]
async fn settings_that_socat_would_misread_are_refused() {
    for (setting, why) in [
        ("LLM_PROXY_PORT=80,fork", "LLM_PROXY_PORT is not a port: 80,fork"),
        ("LLM_PROXY_PORT=0", "LLM_PROXY_PORT is not a port: 0"),
        ("LLM_PROXY_PORT=65536", "LLM_PROXY_PORT is not a port: 65536"),
        ("LLM_PROXY_SOCKET=x,retry", "LLM_PROXY_SOCKET is not a plain absolute path: x,retry"),
        ("LLM_PROXY_SOCKET=/x,unlink", "LLM_PROXY_SOCKET is not a plain absolute path: /x,unlink"),
    ] {
        let said = ByHand::run(&["-e", "OPENAI_API_BASE=x", "-e", setting], &["echo", "begun"]).await;
        assert_eq!((said.code, said.stdout, said.stderr), (1, String::new(), format!("sluice: {why}\n")), "{setting}");
    }
}

#[tokio::test]
async fn a_killed_bridge_ends_the_run() {
    let (sluice, _upstream) = without_calls().await;

    let run = sluice.run(["--json"]).args(kit()).args(["--", "bash", "/kit/agents/kill_bridge.sh"]);
    let ran = run.finish().await.expect(137);

    let report = ran.json();
    assert_eq!(report.verdict(), (false, Some("container_failed"), 137));
    assert_eq!(report.stdout, "up\n");
    assert!(report.stderr.contains("sluice: the bridge to the model ended (socat exit 137); this run is over\n"));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn fifty_calls_at_once_are_carried() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let run = sluice.run(["--json", "--model", "m"]).args(kit());

    let ran = run.args(["--", "python3", "/kit/agents/parallel.py", "50"]).finish().await.expect(0);

    let report = ran.json();
    assert_eq!(report.stdout, "50 × (200, 'hello')\n");
    assert_eq!((report.receipts.len(), upstream.requests().len()), (50, 50));
    let ids: std::collections::BTreeSet<_> = report.receipts.iter().map(|receipt| &receipt.call_id).collect();
    assert_eq!(ids.len(), 50);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_half_closed_caller_still_gets_its_answer() {
    let upstream = Upstream::chat("hello").hold_head().start().await;
    let sluice = Sluice::to(&upstream);
    let run = sluice.run(["-q", "--model", "m"]).args(kit());
    let run = run.args(["--", "python3", "/kit/agents/half_closed.py"]).spawn();
    upstream.held(1).await;
    upstream.release();

    let ran = run.finish().await.expect(0);

    assert_eq!(ran.stdout, "HTTP/1.1 200 OK, and hello\n");
}

#[tokio::test]
async fn big_bodies_cross_the_bridge_whole_in_both_directions() {
    let said = "x".repeat(4 << 20);
    let upstream = Upstream::chat(&said).start().await;
    let sluice = Sluice::to(&upstream);
    let script = "import json, os, urllib.request as u\n\
        body = {'model': 'm', 'messages': [{'role': 'user', 'content': 'y' * (8 << 20)}]}\n\
        request = u.Request(os.environ['OPENAI_BASE_URL'] + '/chat/completions', json.dumps(body).encode())\n\
        request.add_header('content-type', 'application/json')\n\
        answer = json.load(u.urlopen(request))\n\
        print(len(answer['choices'][0]['message']['content']))";

    let ran = sluice.run(["-q", "--model", "m", "--", "python3", "-c", script]).finish().await.expect(0);

    assert_eq!(ran.stdout, format!("{}\n", 4 << 20));
    let received = upstream.only_request().json();
    assert_eq!(received["messages"][0]["content"].as_str().map(str::len), Some(8 << 20));
}
