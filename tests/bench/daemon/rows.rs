//! Lists and figures of a database with many runs.

use std::process::Command;
use std::time::{Duration, Instant};

use super::client::ask;
use super::site::DaemonSite;
use super::{ListFigures, NAME};
use crate::Outcome;
use crate::startup::median;

/// Requests, each a page of the list or a reading of the figures.
const PATHS: [&str; 4] = ["/api/v1/sandboxes", "/api/v1/sandboxes?limit=500", "/api/v1/monitoring/status", "/metrics"];
const ROUNDS: usize = 50;
/// Rows of runs that have ended, by ten owners.
const INSERT: &str = "
import sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.executemany(
    '''INSERT INTO sandboxes (run_id, owner, agent_id, agent_ephemeral, account, state, desired_state, outcome, max_retries,
           retry_on, request, priority, labels, hold_nano, created_us, ended_us, run_time_us)
       VALUES (?, ?, ?, 0, 'acct', 'COMPLETED', 'running', 'success', 3, '[]', '{}', 0, '{\"team\": \"search\"}', 0, ?, ?, 1)''',
    ((f'r_bench{n}', f'owner-{n % 10}', f'agent-{n}', n, n + 1) for n in range(int(sys.argv[2]))))
database.commit()
";

/// Adds rows to the database while no daemon uses it, then starts a daemon and measures its answers.
pub(super) async fn measure(site: &DaemonSite, rows: usize) -> Outcome<Vec<ListFigures>> {
    eprintln!("{NAME}: lists of {rows} runs");
    let added = Command::new("python3").args(["-c", INSERT]).arg(site.database()).arg(rows.to_string()).output()?;
    if !added.status.success() {
        return Err(format!("no rows were added: {}", String::from_utf8_lossy(&added.stderr)).into());
    }
    let _daemon = site.start().await?;
    let mut figures = Vec::new();
    for path in PATHS {
        let mut ms = Vec::new();
        for _ in 0..ROUNDS {
            if path == "/metrics" {
                // All requests within a second get the same reading.
                tokio::time::sleep(Duration::from_millis(1010)).await;
            }
            let begun = Instant::now();
            ask(&site.admin(), ("GET", path), None, None).await?;
            ms.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        let worst_ms = ms.iter().copied().fold(0.0, f64::max);
        figures.push(ListFigures { path, median_ms: median(&ms).ok_or("nothing was measured")?, worst_ms });
    }
    Ok(figures)
}
