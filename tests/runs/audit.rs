//! Guarantees for an auditor: `sluice audit`, the independent verifier in Python, and runs with an incomplete log.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde_json::Value;
use sluice_contract::PrivateKey;
use sluice_testkit::controller::FinishedCommand;
use sluice_testkit::{PATIENCE, Sluice, Upstream};

pub(crate) mod faults;
mod forgery;
mod keys;
mod verify;
mod views;
mod witness;

/// Shell function for the sandbox: `ask` makes one call, and prints the answer.
const ASK: &str = r#"ask() {
    curl --silent --no-buffer "$OPENAI_BASE_URL/chat/completions" \
        --json '{"model": "m", "messages": [{"role": "user", "content": "hello"}]'"$1"'}'
}
"#;

/// Makes a run with a call, a refusal and another call, and returns its name once it is over.
async fn finished(sluice: &Sluice) -> String {
    let script = format!("{ASK} ask >/dev/null; curl -s $OPENAI_BASE_URL/files >/dev/null; ask >/dev/null");
    let report = sluice.run(["--json", "--", "sh", "-c", &script]).finish().await.expect(0).json();
    assert_eq!((report.audit.lines, report.audit.complete), (7, true), "{report:?}");
    report.run_id
}

/// Runs `sluice audit` to its end.
async fn audit<A: AsRef<str>>(sluice: &Sluice, args: impl IntoIterator<Item = A>) -> FinishedCommand {
    sluice.command(["audit"]).args(args).finish().await
}

/// Returns the public key of a state directory that has only ever had one.
async fn public_key(sluice: &Sluice) -> String {
    let keys = audit(sluice, ["keys"]).await.expect(0).stdout;
    assert_eq!(keys.lines().count(), 1, "{keys}");
    keys.trim().to_owned()
}

/// Returns the private key, which only root on the host can read.
fn private_key(sluice: &Sluice) -> PrivateKey {
    let seed = fs::read(sluice.state().join("keys/signing")).expect("the first run has made it");
    PrivateKey::parse(&seed).expect("it is a key")
}

/// A verdict on a file: exit code, and the first bad line, 0 for none.
type DockerOutput = (i64, u64);

/// Returns our verdict on each file; each must be named as on the command line.
async fn ours(sluice: &Sluice, files: &[PathBuf], args: &[&str]) -> Vec<DockerOutput> {
    let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
    let ran = audit(
        sluice,
        ["verify", "--json"].iter().copied().chain(names.iter().map(String::as_str)).chain(args.iter().copied()),
    )
    .await;
    let value = ran.value();
    let said = value["files"].as_array().unwrap_or_else(|| panic!("no files in {value}"));
    let of = |(said, name): (&Value, &String)| {
        assert_eq!(said["file"], name.as_str());
        (said["exit_code"].as_i64().expect("a code"), said["detail"]["line"].as_u64().unwrap_or(0))
    };
    assert_eq!(said.len(), names.len());
    said.iter().zip(&names).map(of).collect()
}

/// Asks verify_audit.py about one file after the other, as its own command line would.
const PAGE: &str = r"
import contextlib, io, sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
import verify_audit as page
for file in sys.argv[3:]:
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        code = page.main([file, *sys.argv[2].split()])
    print(code, said.getvalue().strip())
";

/// Returns the verdict of verify_audit.py on each file.
fn theirs(files: &[PathBuf], args: &[&str]) -> Vec<DockerOutput> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../proxy/contract");
    let mut python = Command::new("python3");
    python.args(["-c", PAGE]).arg(directory).arg(args.join(" ")).args(files);
    let output = python.output().expect("there is a python3");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(said.lines().count(), files.len(), "{said}");
    let of = |line: &str| {
        let (code, text) = line.split_once(' ').unwrap_or((line, ""));
        let line = text.strip_prefix("tampered: line ").and_then(|text| text.split(':').next()?.parse().ok());
        (code.parse().expect("a code"), line.unwrap_or(0))
    };
    said.lines().map(of).collect()
}

/// Waits for a state that no signal announces.
pub(crate) async fn eventually(what: &str, is_so: impl AsyncFn() -> bool) {
    let mut looks = tokio::time::interval(Duration::from_millis(20));
    let wait = async {
        while !is_so().await {
            looks.tick().await;
        }
    };
    tokio::time::timeout(PATIENCE, wait)
        .await
        .unwrap_or_else(|_| panic!("waited {PATIENCE:?}, but this did not happen: {what}"));
}

/// An upstream whose answers cost $0.0000054 each.
async fn upstream() -> Upstream {
    Upstream::chat("hello").start().await
}
