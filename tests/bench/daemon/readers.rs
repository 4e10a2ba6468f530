//! Readers of the stream of all events, and the time until the last one has an event.

use std::time::{Duration, Instant};

use serde_json::json;
use tokio::io::AsyncReadExt;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::client::send;
use super::site::DaemonSite;
use super::{NAME, ReaderFigures};
use crate::Outcome;

const PATIENCE: Duration = Duration::from_secs(60);

pub(super) async fn measure(site: &DaemonSite, readers: usize, rounds: usize) -> Outcome<ReaderFigures> {
    eprintln!("{NAME}: {readers} readers of all events");
    let (heard, mut hear) = mpsc::unbounded_channel();
    let mut open = JoinSet::new();
    for number in 0..readers {
        let token = &site.tokens[number % site.tokens.len()];
        let request = ("GET", "/api/v1/events/stream?types=sandbox.created");
        let mut stream = send(&site.api(), request, Some(token), None).await?;
        let heard = heard.clone();
        open.spawn(async move {
            let mut text = Vec::new();
            // Each reader reports the snapshot, then each event.
            for marker in std::iter::once("event: snapshot".to_owned()).chain((0..).map(|n| format!("mark-{n}-end"))) {
                while !text.windows(marker.len()).any(|part| part == marker.as_bytes()) {
                    let mut bytes = [0; 16384];
                    match stream.read(&mut bytes).await {
                        Ok(read) if read > 0 => text.extend_from_slice(&bytes[..read]),
                        _ => return,
                    }
                }
                text.clear();
                let _ = heard.send(Instant::now());
            }
        });
    }
    all(&mut hear, readers).await?;
    let mut last_ms = Vec::new();
    for round in 0..rounds {
        let body = json!({ "argv": ["true"], "model": "bench-chat", "name": format!("mark-{round}-end") });
        let created = site.create_run(round, &body).await?;
        let committed = Instant::now();
        let last = all(&mut hear, readers).await?;
        last_ms.push(last.saturating_duration_since(committed).as_secs_f64() * 1e3);
        site.ended(created["sandbox_id"].as_str().ok_or("a run without an id")?).await?;
    }
    Ok(ReaderFigures { readers, last_ms })
}

/// Waits until all readers have reported, and returns the time of the last report.
async fn all(hear: &mut mpsc::UnboundedReceiver<Instant>, readers: usize) -> Outcome<Instant> {
    let mut last = Instant::now();
    for number in 0..readers {
        let heard = timeout(PATIENCE, hear.recv()).await;
        last =
            heard.map_err(|_| format!("{} readers have not got the event", readers - number))?.ok_or("no readers")?;
    }
    Ok(last)
}
