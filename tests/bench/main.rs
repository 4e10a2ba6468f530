//! `sluice-bench`: the sidecar beside nginx, HAProxy, hyper alone and a raw relay, on one upstream, in one run.
//!
//! The order of a run: options, upstream, start-up figures, complete runs, daemon, console, full hosts, ledgers,
//! counted figures, then each mode in interleaved rounds, then the report. The upstream, hyper alone and the relay are
//! this same binary, run as child processes.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a command-line tool: the table and the progress are its output"
)]

mod callgrind;
mod console;
mod contenders;
mod daemon;
mod hyper;
mod instructions;
mod ledger;
mod load;
mod machine;
mod measure;
mod modes;
mod options;
mod pacer;
mod process;
mod programs;
mod relay;
mod report;
mod response;
mod rounds;
mod runs;
mod scale;
mod startup;
mod streams;
mod syscalls;
mod upstream;
mod wire;

use std::error::Error;
use std::process::ExitCode;

use options::Options;
use tokio::runtime::{Builder, Runtime};
use tokio::signal::unix::{SignalKind, signal};

/// A result, or the error that ends the bench; `main` prints it.
type Outcome<T> = Result<T, Box<dyn Error>>;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["__upstream"] => upstream::serve(),
        ["__hyper", socket, port] => hyper::serve(socket, port),
        ["__relay", socket, port] => relay::serve(socket, port),
        _ => bench(),
    };
    match done {
        Ok(code) => code,
        Err(error) => {
            eprintln!("sluice-bench: {error}");
            ExitCode::FAILURE
        }
    }
}

fn bench() -> Outcome<ExitCode> {
    let counted =
        [runs::NAME, daemon::NAME, console::NAME, scale::NAME, ledger::NAME, syscalls::NAME, instructions::NAME];
    let options = Options::parse_with(modes::names().chain(counted));
    process::sweep_on_panic();
    single_threaded()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Whichever way this ends, dropping `run` ends every child and removes every file.
        tokio::select! {
            done = run(&options) => done,
            _ = interrupt.recv() => Ok(ExitCode::from(130)),
            _ = terminate.recv() => Ok(ExitCode::from(143)),
        }
    })
}

async fn run(options: &Options) -> Outcome<ExitCode> {
    let contenders = options.contenders.as_slice();
    for contender in contenders {
        contender.binary()?;
    }
    let scratch = process::Scratch::create()?;
    let mut machine = machine::MachineInfo::gather(options);
    let upstream = upstream::Child::start()?;
    let field = contenders::BenchSite { scratch: scratch.path(), port: upstream.port() };

    // This comes first: nothing starts as fast while thousands of processes are torn down.
    let mut startups = Vec::new();
    for contender in contenders.iter().filter(|_| modes::names().any(|name| options.wants(name))) {
        startups.push(startup::measure(*contender, &field, options).await?);
    }
    // This comes before anything is pinned: an engine uses the cores that it finds.
    let runs = if options.wants(runs::NAME) {
        eprintln!("{}: a whole run beside docker run", runs::NAME);
        Some(runs::measure(scratch.path(), upstream.port(), options)?)
    } else {
        None
    };
    let daemon = if options.wants(daemon::NAME) {
        Some(daemon::measure(scratch.path(), upstream.port(), options).await?)
    } else {
        None
    };
    let console = if options.wants(console::NAME) {
        Some(console::measure(scratch.path(), upstream.port(), options).await?)
    } else {
        None
    };
    let crowds = if options.wants(scale::NAME) { scale::measure(&field, options).await? } else { Vec::new() };
    let ledgers = if options.wants(ledger::NAME) { ledger::measure(scratch.path(), options)? } else { Vec::new() };
    let syscalls =
        if options.wants(syscalls::NAME) { syscalls::measure(contenders, &field).await? } else { Vec::new() };
    let instructions =
        if options.wants(instructions::NAME) { instructions::measure(contenders, &field).await? } else { Vec::new() };
    let cores = measure::Cores::choose(options.placement)?;
    if let Some(cores) = &cores {
        cores.pin_load(&[std::process::id().cast_signed(), upstream.pid()])?;
    }
    machine.pinning = measure::Cores::describe(cores.as_ref());

    let mut results = Vec::new();
    for mode in modes::chosen(options) {
        eprintln!("{}: {}", mode.name, mode.title);
        results.push(rounds::measure(mode, contenders, &field, cores.as_ref(), options).await?);
    }
    let figures = report::BenchFigures {
        startups,
        syscalls,
        instructions,
        runs,
        daemon,
        console,
        crowds,
        ledgers,
        modes: results,
    };
    report::publish(&machine, &figures, options)
}

/// The runtime of every part of the bench: one thread, as lean as the sidecar's.
fn single_threaded() -> std::io::Result<Runtime> {
    Builder::new_current_thread().enable_all().build()
}
