//! The command line of the bench.

use std::path::PathBuf;

use clap::builder::PossibleValuesParser;
use clap::{CommandFactory, FromArgMatches, Parser};

use crate::contenders::Contender;
use crate::measure::Placement;

/// Measures the sidecar beside nginx, HAProxy, hyper alone and a raw relay, on one upstream, in one run.
#[derive(Debug, Parser)]
#[command(
    name = "sluice-bench",
    after_help = "SLUICE_PROXY_BIN names the sidecar's program, SLUICE_BIN the controller's. Without them, the bench looks \
                  beside its own program, then in target/release. No figure makes the bench fail; a wrong answer does."
)]
pub(crate) struct Options {
    /// Fewer rounds and calls: under a minute, with rougher figures.
    #[arg(long)]
    pub(crate) quick: bool,
    /// Measures only these [default: all]. runs: `sluice run` beside `docker run`; daemon:
    /// `sluice serve` under load; console: its pages in Chromium; scale: many sidecars on one host;
    /// ledger: up to a million receipts; syscalls: counts of strace; instructions: counts of callgrind.
    #[arg(long, value_name = "MODE,…", value_delimiter = ',')]
    only: Vec<String>,
    /// Compares only these.
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',', default_values_t = Contender::ALL)]
    pub(crate) contenders: Vec<Contender>,
    /// Measured rounds of each mode [default: 7, or 3 with --quick].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Writes the figures of each round into this file.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes the report as Markdown into this file; a full run writes tests/bench/RESULTS.md.
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
    /// Cores for load, upstream and contender.
    #[arg(long, value_enum, default_value_t = Placement::One)]
    pub(crate) placement: Placement,
    /// The words after the program's name, for the report.
    #[arg(skip)]
    pub(crate) words: Vec<String>,
}

impl Options {
    /// Reads the command line. `modes` are the names that `--only` takes.
    ///
    /// For `--help` and for a wrong word it prints and ends the process.
    pub(crate) fn parse_with(modes: impl IntoIterator<Item = &'static str>) -> Self {
        let names = PossibleValuesParser::new(modes);
        let mut command = Self::command().mut_arg("only", |only| only.value_parser(names));
        let matches = command.get_matches_mut();
        let options = Self::from_arg_matches(&matches).unwrap_or_else(|error| error.format(&mut command).exit());
        Self { words: std::env::args().skip(1).collect(), ..options }
    }

    /// Number of measured rounds of each mode.
    pub(crate) fn rounds(&self) -> usize {
        let default = if self.quick { 3 } else { 7 };
        self.rounds.map_or(default, |rounds| rounds as usize)
    }

    /// File of the report; `None` prints it only.
    pub(crate) fn results(&self) -> Option<PathBuf> {
        // A partial run must not overwrite the committed report unasked.
        let partial = self.quick || !self.only.is_empty() || self.contenders.len() < Contender::ALL.len();
        let committed = || (!partial).then(|| concat!(env!("CARGO_MANIFEST_DIR"), "/bench/RESULTS.md").into());
        self.results.clone().or_else(committed)
    }

    /// Returns true if the mode of this name is to be measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }
}
