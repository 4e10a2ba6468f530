//! The report: a Markdown text, the same on the terminal and in the file, and JSON.

use std::fmt::Write;
use std::process::ExitCode;

use serde::Serialize;

use crate::Outcome;
use crate::console::ConsoleFigures;
use crate::contenders::Contender;
use crate::daemon::DaemonFigures;
use crate::instructions::InstructionCount;
use crate::ledger::LedgerFigures;
use crate::machine::MachineInfo;
use crate::options::Options;
use crate::rounds::{ModeResult, Result, Round};
use crate::runs::{Rate, RunComparison};
use crate::scale::{FullHost, Live};
use crate::startup::{Startup, median};
use crate::syscalls::SyscallCount;

/// All that was measured.
#[derive(Serialize)]
pub(crate) struct BenchFigures {
    pub(crate) startups: Vec<Startup>,
    pub(crate) syscalls: Vec<SyscallCount>,
    pub(crate) instructions: Vec<InstructionCount>,
    pub(crate) runs: Option<RunComparison>,
    pub(crate) daemon: Option<DaemonFigures>,
    pub(crate) console: Option<ConsoleFigures>,
    pub(crate) crowds: Vec<FullHost>,
    pub(crate) ledgers: Vec<LedgerFigures>,
    pub(crate) modes: Vec<ModeResult>,
}

#[derive(Serialize)]
struct RawFigures<'a> {
    machine: &'a MachineInfo,
    #[serde(flatten)]
    figures: &'a BenchFigures,
}

/// Prints and writes the figures. Fails if a call through a sidecar failed; failures of other contenders are in their
/// rows.
pub(crate) fn publish(machine: &MachineInfo, figures: &BenchFigures, options: &Options) -> Outcome<ExitCode> {
    let text = markdown(machine, figures, options)?;
    println!("{text}");
    if let Some(path) = &options.json {
        std::fs::write(path, serde_json::to_vec_pretty(&RawFigures { machine, figures })?)?;
    }
    let ours = [Contender::Sluice, Contender::SluiceSync].map(Contender::name);
    let mut results = figures.modes.iter().flat_map(|mode| &mode.results);
    let failed = results.any(|result| result.errors > 0 && ours.contains(&result.contender));
    match &options.results() {
        _ if failed => eprintln!("calls have failed: no report was written"),
        Some(path) => {
            std::fs::write(path, &text)?;
            eprintln!("written: {}", path.display());
        }
        None => eprintln!("a partial run: RESULTS.md is left as it is (--results FILE writes a report)"),
    }
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

fn markdown(machine: &MachineInfo, figures: &BenchFigures, options: &Options) -> Outcome<String> {
    let BenchFigures { startups, syscalls, instructions, runs, daemon, console, crowds, ledgers, modes } = figures;
    let mut text = String::new();
    let out = &mut text;
    writeln!(out, "# Side by side\n\nWritten by `{}` on {}.\n", machine.command, machine.date)?;
    writeln!(
        out,
        "- {}, {} cores, {} GiB, Linux {}, {}",
        machine.cpu, machine.cores, machine.memory_gib, machine.kernel, machine.system
    )?;
    writeln!(out, "- {}", machine.versions.join("; "))?;
    writeln!(out, "- {}; load average at the start {}", machine.pinning, machine.load)?;
    writeln!(
        out,
        "- medians of {} interleaved rounds; × is the median of the ratios of CPU per call within each round; \
         CPU is the time on a core of all threads of the contender's processes (schedstat)\n\
         - sizes in 10⁶ bytes; peak RSS is that of the mode, summed over processes; every answer was checked \
         (status, length, end), and that the upstream saw our key and account, except for hyper and the relay\n",
        options.rounds()
    )?;
    for startup in startups {
        writeln!(out, "- **{}**: {}", startup.contender, startup.title)?;
    }
    summary(out, modes)?;
    syncs(out, modes)?;
    if !syscalls.is_empty() {
        system_calls(out, syscalls)?;
    }
    if !instructions.is_empty() {
        costs(out, instructions)?;
    }
    if !startups.is_empty() {
        starts(out, startups)?;
    }
    if !crowds.is_empty() {
        full_hosts(out, crowds)?;
    }
    ledger_sizes(out, ledgers)?;
    if let Some(runs) = runs {
        whole_runs(out, runs)?;
    }
    if let Some(daemon) = daemon {
        the_daemon(out, daemon)?;
    }
    if let Some(console) = console {
        console.write(out)?;
    }
    for mode in modes {
        table(out, mode)?;
    }
    Ok(text)
}

fn summary(out: &mut String, modes: &[ModeResult]) -> Outcome<()> {
    let Some(first) = modes.first() else { return Ok(()) };
    writeln!(out, "\n## CPU, µs per call (paced: per chunk)\n")?;
    write!(out, "| mode |")?;
    for result in &first.results {
        write!(out, " {} |", result.contender)?;
    }
    writeln!(out, "\n|---|{}", "---:|".repeat(first.results.len()))?;
    for mode in modes {
        write!(out, "| {} |", mode.mode)?;
        let per = if is_paced(mode) { mode.chunks as f64 } else { 1.0 };
        for result in &mode.results {
            let cpu = of(result, |round| round.cpu_us_per_call / per);
            write!(out, " {} |", cell(cpu, 1))?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn system_calls(out: &mut String, counted: &[SyscallCount]) -> Outcome<()> {
    writeln!(out, "\n## System calls per call\n\nCounted by `strace`, which slows all of them down.\n")?;
    writeln!(out, "| mode | contender | system calls | |\n|---|---|---:|---|")?;
    for SyscallCount { mode, contender, per_call, mostly } in counted {
        writeln!(out, "| {mode} | {contender} | {per_call:.1} | {mostly} |")?;
    }
    Ok(())
}

fn costs(out: &mut String, costs: &[InstructionCount]) -> Outcome<()> {
    writeln!(
        out,
        "\n## Instructions per call\n\nCounted by callgrind in user space, over one connection, as the difference between two \
         runs. SHA-256, for the audit chain, is counted separately: valgrind emulates a processor without the instructions for \
         it. Allocations are calls of `malloc` and of the other functions that allocate.\n"
    )?;
    writeln!(
        out,
        "| mode | contender | instructions | of SHA-256 in software | allocations |\n|---|---|---:|---:|---:|"
    )?;
    for InstructionCount { mode, contender, instructions, sha256, allocations } in costs {
        writeln!(out, "| {mode} | {contender} | {instructions:.0} | {sha256:.0} | {allocations:.1} |")?;
    }
    Ok(())
}

/// Writes the section about disk syncs. Simultaneous calls share a sync: without that, each would need two, for its
/// intent and its outcome.
fn syncs(out: &mut String, modes: &[ModeResult]) -> Outcome<()> {
    let durable = |mode: &ModeResult| mode.results.iter().find_map(|result| result.syncs_per_call);
    if !modes.iter().any(|mode| durable(mode).is_some()) {
        return Ok(());
    }
    writeln!(out, "\n## Disk syncs per call, `--audit-sync call`\n\n| mode | syncs/call |\n|---|---:|")?;
    for (mode, syncs) in modes.iter().filter_map(|mode| Some((mode, durable(mode)?))) {
        writeln!(out, "| {} | {syncs:.3} |", mode.mode)?;
    }
    Ok(())
}

fn starts(out: &mut String, startups: &[Startup]) -> Outcome<()> {
    writeln!(out, "\n## Start and idle\n")?;
    writeln!(
        out,
        "| contender | answers /health, ms | worst | ready line, ms | idle RSS, MB | idle PSS, MB | processes | binary, MB |"
    )?;
    writeln!(out, "|---|---:|---:|---:|---:|---:|---:|---:|")?;
    for startup in startups {
        writeln!(
            out,
            "| {} | {:.2} | {:.2} | {} | {:.1} | {:.1} | {} | {:.1} |",
            startup.contender,
            startup.answers_ms,
            startup.answers_worst_ms,
            cell(startup.announced_ms, 2),
            mb(startup.idle.rss),
            mb(startup.idle.pss),
            startup.processes,
            startup.binary_bytes as f64 / 1e6,
        )?;
    }
    Ok(())
}

fn full_hosts(out: &mut String, crowds: &[FullHost]) -> Outcome<()> {
    writeln!(
        out,
        "\n## Many on one host\n\nNot pinned. A stream has a chunk every 40 ms; its latency includes the time that the load generator and \
         the upstream take on the same cores.\n"
    )?;
    writeln!(
        out,
        "| contender | at a time | starts/s | idle PSS, MB | of each | idle CPU, µs/s of each | files | PSS with a stream each, MB | \
         CPU µs/chunk | latency of a chunk p50, µs | p99, µs |"
    )?;
    writeln!(out, "|---|{}", "---:|".repeat(10))?;
    for crowd in crowds {
        let live = |figure: fn(&Live) -> f64, digits| cell(crowd.live.as_ref().map(figure), digits);
        writeln!(
            out,
            "| {} | {} | {:.0} | {:.0} | {:.2} | {:.1} | {} | {} | {} | {} | {} |",
            crowd.contender,
            crowd.count,
            crowd.starts_per_s,
            mb(crowd.idle_pss_kib),
            mb(crowd.idle_pss_kib) / crowd.count as f64,
            crowd.idle_cpu_us_per_s,
            crowd.files,
            live(|live| mb(live.pss_kib), 0),
            live(|live| live.cpu_us_per_chunk, 1),
            live(|live| live.chunk_p50_us, 0),
            live(|live| live.chunk_p99_us, 0),
        )?;
    }
    Ok(())
}

fn ledger_sizes(out: &mut String, ledgers: &[LedgerFigures]) -> Outcome<()> {
    let Some(first) = ledgers.first() else { return Ok(()) };
    write!(out, "\n## The ledger at size\n\n| |")?;
    for LedgerFigures { receipts, runs, .. } in ledgers {
        let plural = if *runs == 1 { "" } else { "s" };
        write!(out, " {receipts} receipts in {runs} run{plural} |")?;
    }
    writeln!(out, "\n|---|{}", "---:|".repeat(ledgers.len()))?;
    write!(out, "| database, bytes a receipt |")?;
    for LedgerFigures { receipts, database, .. } in ledgers {
        write!(out, " {} |", database / receipts)?;
    }
    writeln!(out)?;
    for (place, measured) in first.commands.iter().enumerate() {
        write!(out, "| `sluice {}` |", measured.command)?;
        for ledger in ledgers {
            let one = &ledger.commands[place];
            write!(out, " {:.2} s, {} MB |", one.seconds, one.peak / 1_000_000)?;
        }
        writeln!(out)?;
    }
    Ok(())
}

fn whole_runs(out: &mut String, RunComparison { ways, phases, rates }: &RunComparison) -> Outcome<()> {
    writeln!(out, "\n## A whole run of `true`\n")?;
    writeln!(out, "| | ms, median | least–most | × docker run | |\n|---|---:|---:|---:|---|")?;
    for row in ways {
        let (least, most) = row.ms.iter().fold((f64::MAX, 0.0_f64), |(l, m), ms| (l.min(*ms), m.max(*ms)));
        writeln!(
            out,
            "| {} | {} | {least:.0}–{most:.0} | {} | {} |",
            row.name,
            cell(median(&row.ms), 1),
            cell(row.ratio(&ways[0]), 2),
            row.title,
        )?;
    }
    writeln!(out, "\nPhases of `sluice run`, ms: {}. The sidecar starts during container_create.", phases.describe())?;
    writeln!(
        out,
        "\n| runs at a time | `docker run --rm`, per minute | `sluice run`, per minute | × |\n|---:|---:|---:|---:|"
    )?;
    for Rate { at_once, docker, sluice } in rates {
        writeln!(out, "| {at_once} | {docker:.0} | {sluice:.0} | {:.2} |", sluice / docker)?;
    }
    Ok(())
}

fn the_daemon(out: &mut String, figures: &DaemonFigures) -> Outcome<()> {
    let DaemonFigures { idle_rss, peak_rss, queue, events, readers, first_instruction, rows, lists } = figures;
    writeln!(out, "\n## The daemon\n\n| | |\n|---|---:|")?;
    writeln!(out, "| idle RSS, MB | {:.1} |\n| peak RSS, MB | {:.1} |", mb(*idle_rss), mb(*peak_rss))?;
    writeln!(
        out,
        "| {} runs created at once, with a call each: success, receipts | {}, {} |\n| until the last has ended, s | {:.1} |\n\
         | slowest POST, ms | {:.1} |",
        queue.runs, queue.succeeded, queue.receipts, queue.seconds, queue.slowest_post_ms,
    )?;
    writeln!(
        out,
        "| events of calls of {} runs in the log | {} of {} |\n| these events, a minute | {:.0} |",
        events.runs,
        events.found,
        events.expected,
        events.found as f64 * 60.0 / events.seconds,
    )?;
    let worst = readers.last_ms.iter().copied().fold(0.0, f64::max);
    writeln!(
        out,
        "| an event at the last of {} readers, ms: median, worst | {}, {worst:.0} |",
        readers.readers,
        cell(median(&readers.last_ms), 0),
    )?;
    writeln!(
        out,
        "| POST to the first instruction of a program, ms | {} |\n| the same for `docker run`, ms | {} |\n| ratio | {} |",
        cell(median(&first_instruction.post_ms), 0),
        cell(median(&first_instruction.docker_ms), 0),
        cell(first_instruction.ratio(), 2),
    )?;
    for list in lists {
        let (path, worst) = (list.path, list.worst_ms);
        writeln!(out, "| `GET {path}` with {rows} runs, ms: median, worst | {:.1}, {worst:.1} |", list.median_ms)?;
    }
    Ok(())
}

fn table(out: &mut String, mode: &ModeResult) -> Outcome<()> {
    let streams = mode.chunks > 1;
    writeln!(out, "\n## {}: {}\n", mode.mode, mode.title)?;
    let per_chunk = if streams { " CPU µs/chunk |" } else { "" };
    let latency = if is_paced(mode) { "latency of a chunk" } else { "call" };
    writeln!(
        out,
        "| contender | CPU µs/call |{per_chunk} range | × nginx | × relay | first byte p50, µs | {latency} p50, µs | p99, µs | calls/s | peak RSS, MB | PSS, MB |"
    )?;
    writeln!(
        out,
        "|---|---:|{}---:|---:|---:|---:|---:|---:|---:|---:|",
        if streams { "---:|---:|" } else { "---:|" }
    )?;
    for result in &mode.results {
        if let Some(error) = &result.first_error {
            let error = error.replace(['\r', '\n', '|'], " ");
            writeln!(out, "| {} | **{} errors**, the first: {error} |", result.contender, result.errors)?;
            continue;
        }
        let cpu = |round: &Round| round.cpu_us_per_call;
        write!(out, "| {} | {} |", result.contender, cell(of(result, cpu), 1))?;
        if streams {
            write!(out, " {} |", cell(of(result, |round| cpu(round) / mode.chunks as f64), 2))?;
        }
        let (least, most) = result
            .rounds
            .iter()
            .fold((f64::MAX, 0.0_f64), |(least, most), round| (least.min(cpu(round)), most.max(cpu(round))));
        writeln!(
            out,
            " {least:.1}–{most:.1} | {} | {} | {} | {} | {} | {} | {:.1} | {:.1} |",
            cell(ratio(mode, result, Contender::Nginx), 2),
            cell(ratio(mode, result, Contender::Relay), 2),
            cell(of(result, |round| round.first_p50_us), 0),
            cell(of(result, |round| round.chunk_p50_us.unwrap_or(round.p50_us)), 0),
            cell(of(result, |round| round.chunk_p99_us.unwrap_or(round.p99_us)), 0),
            cell(of(result, |round| round.calls_per_s), 0),
            mb(result.memory.peak),
            mb(result.memory.pss),
        )?;
    }
    Ok(())
}

/// Returns true for a mode of paced streams: only these have stamps.
fn is_paced(mode: &ModeResult) -> bool {
    mode.results.iter().flat_map(|result| &result.rounds).any(|round| round.chunk_p50_us.is_some())
}

/// Returns the median of a figure over the rounds.
fn of(result: &Result, figure: impl Fn(&Round) -> f64) -> Option<f64> {
    median(&result.rounds.iter().map(figure).collect::<Vec<_>>())
}

/// Returns the median of the ratios within each round.
fn ratio(mode: &ModeResult, result: &Result, to: Contender) -> Option<f64> {
    let other = mode.results.iter().find(|other| other.contender == to.name())?;
    let pairs = result.rounds.iter().zip(&other.rounds);
    median(&pairs.map(|(ours, theirs)| ours.cpu_us_per_call / theirs.cpu_us_per_call).collect::<Vec<_>>())
}

fn cell(value: Option<f64>, digits: usize) -> String {
    value.map_or_else(|| "–".to_owned(), |value| format!("{value:.digits$}"))
}

fn mb(kib: u64) -> f64 {
    kib as f64 * 1024.0 / 1e6
}
