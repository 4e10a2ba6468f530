//! `sluice-chaos`: kills every process at random moments under load, and checks that nothing is lost.
//!
//! Lanes run side by side until the kills are used up; each plays one episode after the other, and an episode
//! is one audit file. One more lane kills controllers of real runs. Upstreams and clients are this same binary,
//! run as child processes. At the end it checks for leftovers and prints one line.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool: the figures and the progress are its output"
)]

mod answers;
mod cast;
mod check;
mod client;
mod episode;
mod fault;
mod figures;
mod opinions;
mod options;
mod process;
mod random;
mod record;
mod remains;
mod runs;
mod upstream;

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use clap::Parser;
use fastrand::Rng;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;

use cast::EpisodeFiles;
use fault::ChaosFault;
use figures::ChaosFigures;
use options::{Options, Programs};

/// The program stops after this number of faults.
const FAULTS_MAX: u64 = 3;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["__upstream", address, record, seed] => upstream::serve(address, record, seed).map(|()| ExitCode::SUCCESS),
        ["__client", socket, record, run, seed, workers] => {
            client::drive(socket, record, run, seed, workers).map(|()| ExitCode::SUCCESS)
        }
        _ => chaos(),
    };
    done.unwrap_or_else(|fault| {
        eprintln!("sluice-chaos: {fault}");
        ExitCode::FAILURE
    })
}

fn chaos() -> Result<ExitCode, ChaosFault> {
    let options = Options::parse();
    let programs = Programs::find()?;
    // The name is short: a unix socket path holds 107 bytes.
    let mut scratch = tempfile::Builder::new().prefix("slc").permissions(Permissions::from_mode(0o755)).tempdir()?;
    let done = single_threaded()?.block_on(run(options, programs, scratch.path().to_owned()));
    // The files of a failed episode are kept.
    scratch.disable_cleanup(matches!(done, Ok(code) if code == ExitCode::FAILURE));
    done
}

async fn run(options: Options, programs: Programs, scratch: PathBuf) -> Result<ExitCode, ChaosFault> {
    eprintln!(
        "chaos: {} kills, {} of them of controllers, seed {}: {}, {}",
        options.kills,
        options.controllers(),
        options.seed,
        programs.sidecar.display(),
        programs.controller.display()
    );
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let shared = Arc::new(Shared::new(options, programs, scratch));
    let mut random = Rng::with_seed(shared.options.seed);
    let mut lanes = JoinSet::new();
    for number in 1..=shared.options.lanes {
        lanes.spawn(lane(Arc::clone(&shared), number, random.fork()));
    }
    lanes.spawn(runs::lane(Arc::clone(&shared), host(0), random.fork()));
    // Whichever way this ends, dropping the lanes ends every child.
    let stopped = tokio::select! {
        () = finish(&mut lanes, &shared) => None,
        _ = interrupt.recv() => Some(130),
        _ = terminate.recv() => Some(143),
    };
    lanes.shutdown().await;
    let swept = runs::clean_up(&shared).await;
    let cleaned = swept.and(remains::gone(&shared.scratch).await);
    if let Some(code) = stopped {
        cleaned?;
        eprintln!("chaos: stopped; nothing is left");
        return Ok(ExitCode::from(code));
    }
    if let Err(fault) = cleaned {
        shared.report(&fault, None);
    }
    let (figures, faults) = (*shared.figures(), shared.faults.load(Ordering::Relaxed));
    println!("chaos: {figures}; seed {}", shared.options.seed);
    if faults == 0 && figures.lost == 0 {
        return Ok(ExitCode::SUCCESS);
    }
    println!("chaos: FAILED; its files are kept in {}", shared.scratch.display());
    Ok(ExitCode::FAILURE)
}

async fn finish(lanes: &mut JoinSet<()>, shared: &Shared) {
    while let Some(ended) = lanes.join_next().await {
        if let Err(error) = ended {
            shared.report(&ChaosFault::new(format!("a lane has panicked: {error}")), None);
        }
    }
}

/// Plays one episode after the other.
async fn lane(shared: Arc<Shared>, number: u64, mut random: Rng) {
    let host = host(number);
    let mut count = 0;
    while shared.goes_on() {
        count += 1;
        let name = format!("{number}-{count}");
        let dir = shared.scratch.join(&name);
        let played = match EpisodeFiles::set(dir.clone(), format!("chaos-{name}")) {
            Ok(stage) => episode::play(&shared, stage, &host, random.fork()).await,
            Err(error) => Err(error.into()),
        };
        let done = played.and_then(|()| remains::nothing_of(&dir, Some(&host)));
        match done.and_then(|()| std::fs::remove_dir_all(&dir).map_err(ChaosFault::from)) {
            Ok(()) => {}
            Err(fault) => shared.report(&fault, Some(&dir)),
        }
    }
}

/// Returns an address of the loopback net for this lane alone: another process cannot take a port that its upstream
/// has left for a moment.
fn host(lane: u64) -> String {
    let [low, high, ..] = std::process::id().to_le_bytes();
    format!("127.{}.{high}.{low}", 64 + lane % 128)
}

/// State that all lanes share.
#[derive(Debug)]
struct Shared {
    options: Options,
    programs: Programs,
    scratch: PathBuf,
    figures: Mutex<ChaosFigures>,
    /// Kills that no lane has taken yet.
    left: AtomicU64,
    controllers_left: AtomicU64,
    done: AtomicU64,
    faults: AtomicU64,
}

impl Shared {
    fn new(options: Options, programs: Programs, scratch: PathBuf) -> Self {
        Self {
            left: AtomicU64::new(options.kills - options.controllers()),
            controllers_left: AtomicU64::new(options.controllers()),
            done: AtomicU64::new(0),
            faults: AtomicU64::new(0),
            figures: Mutex::default(),
            options,
            programs,
            scratch,
        }
    }

    fn goes_on(&self) -> bool {
        self.left.load(Ordering::Relaxed) > 0 && self.faults.load(Ordering::Relaxed) < FAULTS_MAX
    }

    /// Takes `count` kills if that many are left.
    fn takes(&self, count: u64) -> bool {
        self.goes_on() && take(&self.left, count)
    }

    fn takes_controller(&self) -> bool {
        self.faults.load(Ordering::Relaxed) < FAULTS_MAX && take(&self.controllers_left, 1)
    }

    /// Gives back a kill that was taken for a controller which had ended by itself.
    fn gives_back_controller(&self) {
        self.controllers_left.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a kill, and prints the progress at each tenth.
    fn killed(&self) {
        let done = self.done.fetch_add(1, Ordering::Relaxed) + 1;
        if done.is_multiple_of((self.options.kills / 10).max(1)) {
            eprintln!("chaos: {done} killed");
        }
    }

    fn add(&self, figures: &ChaosFigures) {
        self.figures().add(figures);
    }

    fn report(&self, fault: &ChaosFault, kept: Option<&Path>) {
        self.faults.fetch_add(1, Ordering::Relaxed);
        self.figures().lost += fault.lost;
        let place = kept.map(|path| format!(" (kept: {})", path.display())).unwrap_or_default();
        eprintln!("chaos: FAULT: {fault}{place}");
    }

    fn figures(&self) -> MutexGuard<'_, ChaosFigures> {
        self.figures.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(from: &AtomicU64, count: u64) -> bool {
    from.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(count)).is_ok()
}

/// The runtime of every part: the thread that starts a child must live as long as the child.
fn single_threaded() -> io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
