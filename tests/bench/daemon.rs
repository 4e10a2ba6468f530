//! The daemon: its memory, its queue, its events and streams, its lists, and the way from a POST to a program.

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Value, json};

use crate::Outcome;
use crate::measure;
use crate::options::Options;
use crate::startup::median;

pub(crate) mod client;
mod first_instruction;
mod readers;
mod rows;
pub(crate) mod site;

use site::DaemonSite;

/// The name in `--only`.
pub(crate) const NAME: &str = "daemon";

/// The figures of the daemon.
#[derive(Debug, Serialize)]
pub(crate) struct DaemonFigures {
    /// Memory of the process before its first request, and its peak, in KiB.
    pub(crate) idle_rss: u64,
    pub(crate) peak_rss: u64,
    pub(crate) queue: QueueFigures,
    pub(crate) events: EventFigures,
    pub(crate) readers: ReaderFigures,
    pub(crate) first_instruction: FirstInstruction,
    /// Runs that are added to the database for the lists.
    pub(crate) rows: usize,
    pub(crate) lists: Vec<ListFigures>,
}

/// Runs that are created at once, each with one call.
#[derive(Debug, Serialize)]
pub(crate) struct QueueFigures {
    pub(crate) runs: usize,
    /// Runs that ended by success, and their receipts.
    pub(crate) succeeded: usize,
    pub(crate) receipts: usize,
    pub(crate) seconds: f64,
    /// Slowest POST, in milliseconds.
    pub(crate) slowest_post_ms: f64,
}

/// Calls of many runs as events.
#[derive(Debug, Serialize)]
pub(crate) struct EventFigures {
    pub(crate) runs: usize,
    pub(crate) expected: usize,
    pub(crate) found: usize,
    pub(crate) seconds: f64,
}

/// Readers of one event.
#[derive(Debug, Serialize)]
pub(crate) struct ReaderFigures {
    pub(crate) readers: usize,
    /// From the commit of an event to the last reader that has it, in milliseconds, round by round.
    pub(crate) last_ms: Vec<f64>,
}

/// Times from a request to the first instruction of a program, in milliseconds, round by round.
#[derive(Debug, Serialize)]
pub(crate) struct FirstInstruction {
    pub(crate) docker_ms: Vec<f64>,
    pub(crate) post_ms: Vec<f64>,
}

/// Answers to one request.
#[derive(Debug, Serialize)]
pub(crate) struct ListFigures {
    pub(crate) path: &'static str,
    pub(crate) median_ms: f64,
    pub(crate) worst_ms: f64,
}

impl FirstInstruction {
    /// Returns the median of the rounds' ratios.
    pub(crate) fn ratio(&self) -> Option<f64> {
        median(&self.post_ms.iter().zip(&self.docker_ms).map(|(post, docker)| post / docker).collect::<Vec<_>>())
    }
}

/// Measures a daemon, and then a second one on the same state directory, to which many runs are added.
pub(crate) async fn measure(scratch: &Path, upstream: u16, options: &Options) -> Outcome<DaemonFigures> {
    let site = DaemonSite::create(scratch, NAME, upstream)?;
    let daemon = site.start().await?;
    tokio::time::sleep(Duration::from_secs(2)).await;
    let idle_rss = measure::memory(&[daemon.pid()])?.rss;
    let rounds = if options.quick { 3 } else { 15 };
    let first_instruction = first_instruction::measure(&site, rounds).await?;
    let queue = queue(&site, if options.quick { 20 } else { 200 }).await?;
    let events = if options.quick { events(&site, 5, 20) } else { events(&site, 50, 100) }.await?;
    let readers = readers::measure(&site, if options.quick { 100 } else { 500 }, 5).await?;
    let peak_rss = measure::memory(&[daemon.pid()])?.peak;
    drop(daemon);
    let rows = if options.quick { 1_000 } else { 10_000 };
    let lists = rows::measure(&site, rows).await?;
    Ok(DaemonFigures { idle_rss, peak_rss, queue, events, readers, first_instruction, rows, lists })
}

/// Creates runs of one call each, and waits until all have ended.
async fn queue(site: &DaemonSite, runs: usize) -> Outcome<QueueFigures> {
    eprintln!("{NAME}: {runs} runs at once");
    let begun = Instant::now();
    let (ids, slowest_post_ms) = create(site, runs, "curl -sf --json \"$BODY\" $URL").await?;
    let (mut succeeded, mut receipts) = (0, 0);
    for id in &ids {
        let run = site.ended(id).await?;
        succeeded += usize::from(run["outcome"] == "success");
    }
    let seconds = begun.elapsed().as_secs_f64();
    for id in &ids {
        let found = site.get(&format!("/api/v1/sandboxes/{id}/receipts?limit=500")).await?;
        receipts += found["receipts"].as_array().map_or(0, Vec::len);
    }
    Ok(QueueFigures { runs, succeeded, receipts, seconds, slowest_post_ms })
}

/// Creates runs that make this many calls each, and counts the events of these calls in the log.
async fn events(site: &DaemonSite, runs: usize, calls: usize) -> Outcome<EventFigures> {
    eprintln!("{NAME}: events of {calls} calls of each of {runs} runs");
    let script = format!("curl -sf --json \"$BODY\" $(yes $URL | head -n {calls})");
    let begun = Instant::now();
    let (ids, _) = create(site, runs, &script).await?;
    for id in &ids {
        site.ended(id).await?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let mut found = 0;
    for id in &ids {
        for name in ["llm.call_started", "llm.call"] {
            let page = site.get(&format!("/api/v1/sandboxes/{id}/events?limit=1&event_type={name}")).await?;
            found += page["total_count"].as_u64().unwrap_or(0) as usize;
        }
    }
    Ok(EventFigures { runs, expected: 2 * runs * calls, found, seconds })
}

/// Creates runs of a shell script, one after the other, by many owners. Returns their ids and the slowest answer.
async fn create(site: &DaemonSite, runs: usize, script: &str) -> Outcome<(Vec<String>, f64)> {
    let question = r#"{"model":"bench-chat","messages":[]}"#;
    let script = format!("BODY='{question}'; URL=$OPENAI_BASE_URL/chat/completions; {script} > /dev/null");
    let body = json!({ "argv": ["sh", "-c", script], "model": "bench-chat", "ttl_minutes": 60 });
    let (mut ids, mut slowest) = (Vec::new(), 0.0_f64);
    for number in 0..runs {
        let begun = Instant::now();
        let created: Value = site.create_run(number, &body).await?;
        slowest = slowest.max(begun.elapsed().as_secs_f64() * 1e3);
        ids.push(created["sandbox_id"].as_str().ok_or("a run without an id")?.to_owned());
    }
    Ok((ids, slowest))
}
