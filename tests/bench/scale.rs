//! Many contenders at a time on one host, idle, and with a live stream each.

use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;
use tokio::task::JoinSet;

use crate::Outcome;
use crate::contenders::{BenchSite, Contender, Started};
use crate::load::{Load, LoadResult};
use crate::measure;
use crate::modes::{Connections, Mode};
use crate::options::Options;
use crate::rounds::percentile;
use crate::wire::{CallKind, Pace};

/// The name in `--only`.
pub(crate) const NAME: &str = "scale";

/// Duration of the measurement of idle contenders.
const WATCHED: Duration = Duration::from_secs(5);

/// The contenders and their numbers, within the memory of a host of 24 GB.
const CROWDS: [(Contender, usize, Activity); 10] = [
    (Contender::Sluice, 300, Activity::Streams),
    (Contender::Nginx, 300, Activity::Streams),
    (Contender::Haproxy, 300, Activity::Streams),
    (Contender::Hyper, 300, Activity::Streams),
    (Contender::Relay, 300, Activity::Streams),
    (Contender::Sluice, 1000, Activity::Nothing),
    (Contender::Nginx, 1000, Activity::Nothing),
    (Contender::Hyper, 1000, Activity::Nothing),
    (Contender::Relay, 1000, Activity::Nothing),
    (Contender::Sluice, 3000, Activity::Nothing),
];

/// The work of each contender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Activity {
    Nothing,
    /// One stream, a chunk each 40 ms.
    Streams,
}

/// The figures of many contenders of one kind.
#[derive(Debug, Serialize)]
pub(crate) struct FullHost {
    pub(crate) contender: &'static str,
    pub(crate) count: usize,
    /// Starts per second, two at a time, until each contender has answered.
    pub(crate) starts_per_s: f64,
    /// Memory of all contenders together, with nothing to do.
    pub(crate) idle_pss_kib: u64,
    /// CPU time of each contender in one second, with nothing to do.
    pub(crate) idle_cpu_us_per_s: f64,
    /// Open files of the first contender, with nothing to do.
    pub(crate) files: usize,
    pub(crate) live: Option<Live>,
}

/// The figures of a stream through each.
#[derive(Debug, Serialize)]
pub(crate) struct Live {
    pub(crate) pss_kib: u64,
    pub(crate) cpu_us_per_chunk: f64,
    /// Latency of a chunk, from the upstream's stamp to the client, microseconds.
    pub(crate) chunk_p50_us: f64,
    pub(crate) chunk_p99_us: f64,
}

/// Measures one group of contenders after the other.
pub(crate) async fn measure(field: &BenchSite<'_>, options: &Options) -> Outcome<Vec<FullHost>> {
    let mut crowds = Vec::new();
    for (contender, count, doing) in CROWDS {
        if options.contenders.contains(&contender) {
            let count = if options.quick { count / 10 } else { count };
            eprintln!("{NAME}: {count} × {}", contender.name());
            crowds.push(crowd(contender, count, doing, field).await?);
        }
    }
    Ok(crowds)
}

async fn crowd(contender: Contender, count: usize, doing: Activity, field: &BenchSite<'_>) -> Outcome<FullHost> {
    let dir = field.scratch.join(NAME);
    std::fs::create_dir(&dir)?;
    let begun = Instant::now();
    let (started, _threads) = start(contender, count, &BenchSite { scratch: &dir, ..*field })?;
    let starts_per_s = count as f64 / begun.elapsed().as_secs_f64();
    let pids = measure::trees(started.iter().flat_map(|started| started.pids.clone()).collect());
    tokio::time::sleep(Duration::from_millis(500)).await;
    let before = (Instant::now(), measure::cpu_ns(&pids)?);
    tokio::time::sleep(WATCHED).await;
    let idle_ns = (measure::cpu_ns(&pids)? - before.1) as f64 / before.0.elapsed().as_secs_f64();
    let mut crowd = FullHost {
        contender: contender.name(),
        count,
        starts_per_s,
        idle_pss_kib: measure::memory(&pids)?.pss,
        idle_cpu_us_per_s: idle_ns / 1e3 / count as f64,
        files: measure::files(pids[0])?,
        live: None,
    };
    if doing == Activity::Streams {
        crowd.live = Some(live(&started, &pids).await?);
    }
    // All are ended at the same time, since each needs time to end.
    thread::scope(|scope| {
        for started in started {
            scope.spawn(move || drop(started));
        }
    });
    std::fs::remove_dir_all(&dir)?;
    Ok(crowd)
}

/// Starts them, two at a time. A child that ends with its parent ends with the thread that started it, so these threads
/// live as long as the returned guards.
fn start(contender: Contender, count: usize, field: &BenchSite<'_>) -> Outcome<(Vec<Started>, Vec<Sender<()>>)> {
    const AT_ONCE: usize = 2;
    let (mut guards, mut shares) = (Vec::new(), Vec::new());
    for first in 0..AT_ONCE {
        let (scratch, port) = (field.scratch.to_owned(), field.port);
        let (done, share) = channel();
        let (guard, ended) = channel::<()>();
        thread::spawn(move || {
            let field = BenchSite { scratch: &scratch, port };
            let names = (first..count).step_by(AT_ONCE).map(|number| number.to_string());
            let started: Result<Vec<_>, String> =
                names.map(|name| contender.launch(&field, &name).map_err(|error| error.to_string())).collect();
            // A receiver that has been dropped has failed already.
            let _heard = done.send(started);
            let _dropped = ended.recv();
        });
        guards.push(guard);
        shares.push(share);
    }
    let mut started = Vec::new();
    for share in shares {
        started.extend(share.recv()??);
    }
    Ok((started, guards))
}

async fn live(started: &[Started], pids: &[i32]) -> Outcome<Live> {
    let pace = Pace::Slow;
    let mode = Mode {
        name: NAME,
        title: "",
        ask: CallKind::Paced(pace),
        connections: Connections::Kept(1),
        calls: 1,
        quick_calls: 1,
    };
    let mut streams = Vec::new();
    for started in started {
        let load = Load::new(&mode, &started.socket);
        streams.push((load.open().await?, load));
    }
    let before = measure::cpu_ns(pids)?;
    let mut rounds = JoinSet::new();
    for (clients, load) in streams {
        rounds.spawn(async move { load.round(clients, 1).await });
    }
    // The memory is measured in the middle of the streams.
    tokio::time::sleep(pace.interval() * u32::try_from(pace.chunks() / 2)?).await;
    let pss_kib = measure::memory(pids)?.pss;
    let rounds: Vec<LoadResult> = rounds.join_all().await;
    let cpu_ns = measure::cpu_ns(pids)? - before;
    if let Some(fault) = rounds.iter().flat_map(|seen| &seen.faults).next() {
        return Err(format!("a stream has failed: {fault}").into());
    }
    let mut chunks: Vec<u32> = rounds.into_iter().flat_map(|seen| seen.chunks_us).collect();
    chunks.sort_unstable();
    let chunk = |share| percentile(&chunks, share).map_or(0.0, f64::from);
    Ok(Live {
        pss_kib,
        cpu_us_per_chunk: cpu_ns as f64 / 1e3 / (started.len() * pace.chunks()) as f64,
        chunk_p50_us: chunk(0.50),
        chunk_p99_us: chunk(0.99),
    })
}
