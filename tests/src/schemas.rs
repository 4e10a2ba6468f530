//! The published schemas of JSON objects, checked by `tests/python/json_schemas.py`.

use std::path::Path;
use std::process::Stdio;

use serde_json::Value;
use tokio::io::AsyncWriteExt;

use crate::leash::{python, python_file};

/// Returns the faults of these cases, one on each line. A case is an object with `schema`, `case` and `object`.
pub async fn faults(cases: &[Value]) -> String {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/json");
    let mut command = tokio::process::Command::new(python());
    command.arg(python_file("json_schemas.py")).arg(directory);
    let mut checker = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the tests have Python");
    let mut stdin = checker.stdin.take().expect("it has a pipe");
    let text = serde_json::to_vec(cases).expect("plain data");
    stdin.write_all(&text).await.expect("the script reads its input");
    drop(stdin);
    let ended = checker.wait_with_output().await.expect("the script ends");
    assert!(ended.status.success(), "json_schemas.py: {}", ended.status);
    String::from_utf8(ended.stdout).expect("the script prints text")
}
