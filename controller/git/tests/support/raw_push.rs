//! Pushes that no git client makes, byte by byte.

use std::io::Write as _;
use std::path::Path;
use std::process::Stdio;

use sluice_git::{PushOutcome, RunRepository};

use super::git_command;

pub(crate) const ZERO: &str = "0000000000000000000000000000000000000000";
pub(crate) const WISHES: &str = "report-status side-band-64k object-format=sha1 agent=git/2";

/// A line with its length.
pub(crate) fn line(text: &str) -> Vec<u8> {
    format!("{:04x}{text}", text.len() + 4).into_bytes()
}

/// Returns the commands, with the capabilities after the first one, and the flush.
pub(crate) fn commands(list: &[(&str, &str, &str)], wishes: &str) -> Vec<u8> {
    let mut body = Vec::new();
    for (place, (old, new, reference)) in list.iter().enumerate() {
        let wishes = if place == 0 { format!("\0 {wishes}") } else { String::new() };
        body.extend(line(&format!("{old} {new} {reference}{wishes}")));
    }
    body.extend_from_slice(b"0000");
    body
}

/// Returns a pack of the objects reachable from these revisions; `^x` excludes.
pub(crate) fn pack(directory: &Path, revisions: &str, words: &[&str]) -> Vec<u8> {
    let all = ["pack-objects", "--revs", "--stdout", "-q"].iter().chain(words);
    feed(directory, all, revisions.as_bytes())
}

/// Runs git with this input.
pub(crate) fn feed<'a>(directory: &Path, words: impl IntoIterator<Item = &'a &'a str>, input: &[u8]) -> Vec<u8> {
    let mut command = git_command(directory, words);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let input = input.to_vec();
    let writer = std::thread::spawn(move || stdin.write_all(&input));
    let output = child.wait_with_output().expect("git ends");
    let _ = writer.join();
    assert!(output.status.success());
    output.stdout
}

/// Sends a body.
pub(crate) async fn push(repository: &RunRepository, body: &[u8]) -> PushOutcome {
    repository.receive(body).await.expect("no fault of the host")
}
