//! Requests of OTLP over HTTP, decoded with opentelemetry-proto: another implementation than the one that is tested.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::leash::{python, python_file};
use crate::upstream::ReceivedRequest;

/// The directory of the packages that `tests/setup/langfuse.sh` installs.
///
/// # Panics
/// When they are missing: a test that cannot run must not pass.
pub fn packages() -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/langfuse");
    assert!(directory.join(".stamp").exists(), "packages are missing: run `make test`, or tests/setup/langfuse.sh");
    directory
}

/// The spans and metrics of requests: `{spans, metrics}`, as `tests/python/otlp.py` prints them.
///
/// # Panics
/// When a body is not exactly a message of OTLP.
pub fn decode(requests: &[ReceivedRequest]) -> Value {
    let mut command = Command::new(python());
    command.arg(python_file("otlp.py")).env("PYTHONPATH", packages());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the interpreter is there");
    let mut lines = String::new();
    for request in requests.iter().filter(|request| request.method == "POST") {
        let line = json!({
            "path": request.target, "type": request.header("content-type"), "encoding": request.header("content-encoding"),
            "body": request.body.iter().map(|byte| format!("{byte:02x}")).collect::<String>(),
        });
        lines += &format!("{line}\n");
    }
    child.stdin.take().expect("it is piped").write_all(lines.as_bytes()).expect("it reads to the end");
    let output = child.wait_with_output().expect("it ends");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("it prints JSON")
}
