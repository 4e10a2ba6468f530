//! A program runs in any image: the sidecar's program is mounted as its bridge.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use nix::sys::signal::Signal;
use serde_json::json;
use sluice_testkit::controller::unique_run_id;
use sluice_testkit::sidecar::{CANARY, program};
use sluice_testkit::{Sluice, TempDir, Upstream, engine};

use crate::agents::{kit, without_calls};
use crate::bridge::{ByHand, for_sandbox, socket_in};

/// An image without a bridge, made for one test; removed when dropped.
struct OwnImage {
    name: String,
}

impl OwnImage {
    /// An image with the runtime image's files, and these lines in its Dockerfile.
    async fn with(lines: &str) -> Self {
        Self::build(&format!("FROM sluice-runtime:latest\nENTRYPOINT []\nWORKDIR /\nENV HOME=\n{lines}\n"), None).await
    }

    /// Builds a Dockerfile; `app.py` and `program` are in its directory.
    async fn build(dockerfile: &str, program: Option<&Path>) -> Self {
        let dir = TempDir::new();
        for (name, text) in [("Dockerfile", dockerfile), ("app.py", APP)] {
            fs::write(dir.join(name), text).expect("a fresh directory takes files");
        }
        if let Some(program) = program {
            fs::copy(program, dir.join("program")).expect("a fresh directory takes files");
        }
        let image = Self { name: unique_run_id("sluice-own-image") };
        let path = dir.path().display().to_string();
        engine::lines(["build", "--quiet", "--force-rm", "--network=none", "--tag", &image.name, &path]).await;
        image
    }
}

impl Drop for OwnImage {
    fn drop(&mut self) {
        let mut command = Command::new("timeout");
        command.args(["60", "docker", "image", "rm", "--force", &self.name]).env_remove("DOCKER_HOST");
        let _ = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Makes one call, and prints its answer and where it runs.
const APP: &str = "import json, os, urllib.request as u\n\
    body = {'model': 'm', 'messages': [{'role': 'user', 'content': 'x'}]}\n\
    request = u.Request('http://localhost:8080/v1/chat/completions', json.dumps(body).encode())\n\
    request.add_header('content-type', 'application/json')\n\
    answer = json.load(u.urlopen(request))\n\
    print(json.dumps([answer['choices'][0]['message']['content'], os.getcwd(), os.environ['HOME'], os.getuid()]))";

#[tokio::test]
async fn a_program_in_any_image_calls_its_model() {
    let image = OwnImage::with("WORKDIR /app\nCOPY app.py .").await;
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);

    let run = sluice.run(["--json", "--model", "m", "--image", &image.name, "--", "python3", "app.py"]);
    let report = run.finish().await.expect(0).json();

    let seen: serde_json::Value = serde_json::from_str(&report.stdout).expect("the app prints JSON");
    assert_eq!(seen, json!(["hello", "/app", "/workspace", 1001]));
    assert_eq!((report.receipts.len(), upstream.requests().len()), (1, 1));
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn the_images_entrypoint_gets_the_arguments() {
    let image = OwnImage::with("USER nobody\nENTRYPOINT [\"printf\", \"<%s>\"]\nCMD [\"unused\"]").await;
    let (sluice, _upstream) = without_calls().await;

    let run = sluice.run(["-q", "--image", &image.name, "--", "a b", "", "$x", "--", "é"]);
    let ran = run.finish().await.expect(0);

    assert_eq!(ran.stdout, "<a b><><$x><--><é>");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn an_image_without_directory_starts_in_the_workspace() {
    let image = OwnImage::with("").await;
    let (sluice, _upstream) = without_calls().await;
    let script = "pwd; echo $HOME; echo x > written; id -u";

    let ran = sluice.run(["-q", "--image", &image.name, "--", "sh", "-c", script]).finish().await.expect(0);
    let chosen = sluice.run(["-q", "--image", &image.name, "-e", "HOME=/tmp", "--", "sh", "-c", "echo $HOME"]);

    assert_eq!(ran.stdout, "/workspace\n/workspace\n1001\n");
    assert_eq!(chosen.finish().await.expect(0).stdout, "/tmp\n");
}

#[tokio::test]
async fn exit_codes_and_signals_pass_the_bridge() {
    let image = OwnImage::with("").await;
    let (sluice, _upstream) = without_calls().await;
    for (words, code, error) in [
        (&["sh", "-c", "exit 42"][..], 42, "exit code 42"),
        (&["sh", "-c", "kill -USR1 $$"], 138, "signal 10"),
        (&["no-such-program"], 127, "exit code 127"),
        (&["/etc"], 126, "exit code 126"),
    ] {
        let ran = sluice.run(["--json", "--image", &image.name, "--"]).args(words).finish().await.expect(code);
        let report = ran.json();
        assert_eq!(report.verdict(), (false, Some("container_failed"), code), "{words:?}");
        let message = report.error_message.unwrap_or_default();
        assert!(message.contains(error), "{words:?}: {message}");
    }
    let missing = sluice.run(["-q", "--image", &image.name, "--", "no-such-program"]).finish().await.expect(127);
    assert!(missing.stderr.contains("sluice: cannot start \"no-such-program\": No such file"), "{}", missing.stderr);
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_stopped_program_gets_its_signal() {
    let image = OwnImage::with("").await;
    let (sluice, _upstream) = without_calls().await;
    let script = "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 0.05; done";

    let run = sluice.run(["--image", &image.name, "--stop-grace", "20s", "--", "sh", "-c", script]).spawn();
    run.prints("up\n").await;
    run.signal(Signal::SIGTERM);
    let ran = run.finish().await.expect(143);

    assert_eq!(ran.stdout, "up\nasked\n");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn many_and_large_calls_pass_the_mounted_bridge() {
    let image = OwnImage::with("").await;
    let upstream = Upstream::chat(&"x".repeat(2 << 20)).start().await;
    let sluice = Sluice::to(&upstream);
    let run = sluice.run(["--json", "--model", "m", "--image", &image.name]).args(kit());

    let report = run.args(["--", "python3", "/kit/agents/parallel.py", "50"]).finish().await.expect(0).json();

    // The output is one line with the number of calls and their one answer, with its middle left out; a failed call
    // would add another result.
    let calls = report.stdout.split(' ').next();
    let end = report.stdout.trim_end().rsplit_once('x').map(|(_, end)| end);
    assert_eq!((calls, end), (Some("50"), Some("')")), "{}", report.stderr);
    assert_eq!((report.receipts.len(), upstream.requests().len()), (50, 50));
}

#[tokio::test]
async fn input_reaches_a_program_behind_the_bridge() {
    let image = OwnImage::with("").await;
    let (sluice, _upstream) = without_calls().await;

    let count = "import sys; data = sys.stdin.buffer.read(); print(len(data), set(data))";
    let run = sluice.run(["-q", "--image", &image.name, "--", "python3", "-c", count]).stdin(vec![7; 3 << 20]);

    assert_eq!(run.finish().await.expect(0).stdout, format!("{} {{7}}\n", 3 << 20));
}

#[tokio::test]
async fn a_mounted_bridge_changes_nothing_else() {
    let image = OwnImage::with("WORKDIR /app").await;
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    let id = unique_run_id("mounted");
    let words = ["--", "sh", "-c", "echo up; exec sleep 600"];
    let ours = sluice.run(["--run-id", &format!("{id}-a"), "--model", "m"]).args(words).spawn();
    let own = sluice.run(["--run-id", &format!("{id}-b"), "--model", "m", "--image", &image.name]).args(words).spawn();
    ours.prints("up\n").await;
    own.prints("up\n").await;

    let ours = engine::inspect(&format!("sluice-{id}-a.0")).await;
    let mut own = engine::inspect(&format!("sluice-{id}-b.0")).await;

    let mount = own["HostConfig"]["Mounts"].as_array_mut().expect("a list").remove(2);
    assert_eq!((&mount["Target"], &mount["ReadOnly"]), (&json!("/.sluice/bridge"), &json!(true)));
    let plain = |value: &serde_json::Value| value.to_string().replace(&format!("{id}-b"), &format!("{id}-a"));
    assert_eq!(plain(&own["HostConfig"]), plain(&ours["HostConfig"]));
    assert_eq!(own["Config"]["User"], ours["Config"]["User"]);
    assert_eq!(own["Config"]["Entrypoint"], json!(["/.sluice/bridge", "bridge", "--"]));
    assert!(!own.to_string().contains(CANARY));
    // The program may read the bridge, which holds no secret.
    let script = "touch /.sluice/bridge 2>&1; touch /.sluice/x 2>&1; cat /proc/[0-9]*/environ | tr '\\0' '\\n'";
    let seen = engine::exec(&format!("sluice-{id}-b.0"), ["sh", "-c", script]).await;
    assert_eq!(seen.stdout.matches("touch: cannot touch").count(), 2, "{}", seen.stdout);
    assert!(!seen.stdout.contains(CANARY), "{}", seen.stdout);
}

#[tokio::test]
async fn only_a_static_bridge_runs_without_a_library() {
    let bridge = program();
    let image = OwnImage::build("FROM scratch\nCOPY program /program\n", Some(&bridge)).await;
    let (sluice, _upstream) = without_calls().await;
    let is_static =
        !fs::read(&bridge).expect("it is built").windows(7).any(|bytes| bytes == b"/lib64/" || bytes == b"/lib/ld");

    let ran = sluice.run(["--image", &image.name, "--", "/program", "--version"]).finish().await;
    let checked = sluice.command(["preflight", "--image", &image.name]).finish().await.stdout;

    if is_static {
        assert_eq!((ran.code, ran.stdout.starts_with("sluice-proxy ")), (0, true), "{}", ran.stderr);
        assert!(!ran.stderr.contains("warning"), "{}", ran.stderr);
    } else {
        assert_ne!(ran.code, 0);
        assert!(ran.stderr.contains("is not static") && ran.stderr.contains("make dist"), "{}", ran.stderr);
    }
    assert_eq!(checked.contains("is not static"), !is_static, "{checked}");
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn preflight_names_the_bridge_of_an_image() {
    let image = OwnImage::with("").await;
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    for (name, bridge) in [("sluice-runtime:latest", "image"), (&image.name, "mounted")] {
        let checked = sluice.command(["preflight", "--json", "--image", name]).finish().await.value();
        let checks = checked["checks"].as_array().expect("a list");
        let image = checks.iter().find(|check| check["name"] == "image").expect("it is checked");
        assert_eq!(image["bridge"], bridge, "{image}");
        assert!(["pass", "warn"].contains(&image["status"].as_str().unwrap_or_default()), "{image}");
    }
}

#[tokio::test]
async fn an_image_without_files_is_refused() {
    let image = OwnImage::build("FROM scratch\nLABEL a=b\n", None).await;
    let (sluice, _upstream) = without_calls().await;

    let ran = sluice.run(["--json", "--image", &image.name, "--", "true"]).finish().await.expect(125);
    let checked = sluice.command(["preflight", "--image", &image.name]).finish().await.expect(1).stdout;

    assert!(ran.value()["error_message"].to_string().contains("it has no files"), "{}", ran.stdout);
    assert!(checked.contains("FAIL  image") && checked.contains("it has no files"), "{checked}");
    assert_eq!(sluice.sql("SELECT count(*) FROM runs").await, "[[0]]");
}

#[tokio::test]
async fn a_bridge_without_sidecar_fails_loudly() {
    let program = format!("{}:/.sluice/bridge:ro", program().display());
    let flags = ["-v", &program, "--entrypoint", "/.sluice/bridge"];

    let said = ByHand::run(&flags, &["bridge", "--", "echo", "begun"]).await;

    assert_eq!((said.code, said.stdout.as_str()), (1, ""));
    assert!(said.stderr.starts_with("sluice: no sidecar answers at /llm-sock/llm.sock within 30 s"), "{}", said.stderr);
}

#[tokio::test]
async fn as_the_first_process_it_reaps_orphans() {
    let sidecar = for_sandbox().start().await;
    let program = format!("{}:/.sluice/bridge:ro", program().display());
    let socket = socket_in(sidecar.dir());
    let flags = ["-v", &program, "-v", &socket, "--entrypoint", "/.sluice/bridge"];
    // The orphan writes its pid, and ends.
    let script = "cat /proc/1/comm; sh -c 'sh -c \"echo \\$\\$ > /tmp/orphan\" & exit 0'; \
        until [ -s /tmp/orphan ] && ! [ -e /proc/$(cat /tmp/orphan) ]; do :; done; exit 9";

    let said = ByHand::run(&flags, &["bridge", "--", "sh", "-c", script]).await;

    assert_eq!((said.code, said.stdout.as_str(), said.stderr.as_str()), (9, "bridge\n", ""));
}
