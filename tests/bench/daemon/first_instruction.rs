//! From a request to the first instruction of a program: the daemon beside `docker run`, in turns.

use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::client::ask;
use super::site::DaemonSite;
use super::{FirstInstruction, NAME};
use crate::Outcome;

/// A program that prints the time in nanoseconds.
const PROGRAM: [&str; 2] = ["date", "+%s%N"];

pub(super) async fn measure(site: &DaemonSite, rounds: usize) -> Outcome<FirstInstruction> {
    eprintln!("{NAME}: from POST to the first instruction beside docker run");
    let mut figures = FirstInstruction { docker_ms: Vec::new(), post_ms: Vec::new() };
    // The first run of each is cold, and not counted.
    for round in 0..=rounds {
        let (docker, post) = (of_docker()?, of_daemon(site, round).await?);
        if round > 0 {
            figures.docker_ms.push(docker);
            figures.post_ms.push(post);
        }
    }
    Ok(figures)
}

fn of_docker() -> Outcome<f64> {
    let begun = now()?;
    let mut command = Command::new("docker");
    let output = command.args(["run", "--rm", "--network=none", "sluice-runtime:latest"]).args(PROGRAM).output()?;
    ms_between(begun, std::str::from_utf8(&output.stdout)?)
}

async fn of_daemon(site: &DaemonSite, round: usize) -> Outcome<f64> {
    let body = json!({ "argv": PROGRAM, "model": "bench-chat" });
    let begun = now()?;
    let created = site.create_run(round, &body).await?;
    let id = created["sandbox_id"].as_str().ok_or("a run without an id")?;
    site.ended(id).await?;
    let path = format!("/api/v1/sandboxes/{id}/logs?stream=stdout");
    let mut stream = ask(&site.admin(), ("GET", &path), None, None).await?;
    // One line of JSON, in one chunk or with its length.
    stream = stream.lines().find(|line| line.starts_with('{')).ok_or("a run without output")?.to_owned();
    let line: Value = serde_json::from_str(&stream)?;
    ms_between(begun, line["text"].as_str().ok_or("output that is not text")?)
}

fn ms_between(begun: u128, printed: &str) -> Outcome<f64> {
    let printed: u128 = printed.trim().parse()?;
    Ok(printed.saturating_sub(begun) as f64 / 1e6)
}

fn now() -> Outcome<u128> {
    Ok(SystemTime::now().duration_since(UNIX_EPOCH)?.as_nanos())
}
