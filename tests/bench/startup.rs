//! The cost of a contender before its first call: time to ready, idle memory, size on disk.

use std::time::Duration;

use serde::Serialize;

use crate::Outcome;
use crate::contenders::{BenchSite, Contender};
use crate::measure::{self, Memory};
use crate::options::Options;

/// The start-up figures of one contender.
#[derive(Debug, Serialize)]
pub(crate) struct Startup {
    pub(crate) contender: &'static str,
    pub(crate) title: &'static str,
    /// Medians and worst, fork to first answered `GET /health`, in milliseconds.
    pub(crate) answers_ms: f64,
    pub(crate) answers_worst_ms: f64,
    /// Median, fork to ready line, in milliseconds.
    pub(crate) announced_ms: Option<f64>,
    pub(crate) idle: Memory,
    pub(crate) processes: usize,
    pub(crate) binary_bytes: u64,
}

/// Starts the contender many times and looks at the last one while it idles.
pub(crate) async fn measure(contender: Contender, field: &BenchSite<'_>, options: &Options) -> Outcome<Startup> {
    let times = if options.quick { 7 } else { 31 };
    let (mut answers, mut announced) = (Vec::new(), Vec::new());
    for _ in 1..times {
        let started = contender.start(field)?;
        answers.push(started.answers.as_secs_f64() * 1e3);
        announced.extend(started.announced.map(|after| after.as_secs_f64() * 1e3));
        drop(started);
        tokio::task::yield_now().await;
    }
    let last = contender.start(field)?;
    tokio::time::sleep(Duration::from_millis(100)).await;
    Ok(Startup {
        contender: contender.name(),
        title: contender.title(),
        answers_ms: median(&answers).ok_or("no start was measured")?,
        answers_worst_ms: answers.iter().copied().fold(0.0, f64::max),
        announced_ms: median(&announced),
        idle: measure::memory(&last.pids)?,
        processes: last.pids.len(),
        binary_bytes: std::fs::metadata(contender.binary()?)?.len(),
    })
}

/// Returns the middle value, or the mean of the two middle values.
pub(crate) fn median(values: &[f64]) -> Option<f64> {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let upper = *sorted.get(middle)?;
    Some(if sorted.len() % 2 == 1 { upper } else { (sorted[middle - 1] + upper) / 2.0 })
}
