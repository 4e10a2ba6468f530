//! The command line of the bench.

use std::path::PathBuf;

use crate::Outcome;
use crate::contenders::Contender;
use crate::measure::Placement;
use crate::{instructions, ledger, modes, runs, scale, syscalls};

/// Printed for `--help`.
pub(crate) const HELP: &str = "\
sluice-bench: the sidecar beside nginx, HAProxy, hyper alone and a raw relay, on one upstream, in one run

  --quick               fewer rounds and calls, under a minute; figures are rougher
  --only MODE,…         only these modes: chat-1 chat-8 chat-64 new-connection burst-100 messages-100
                        responses-100 paced-64 paced-512 body-20k body-200k body-5m, and
                        runs: sluice run beside docker run; scale: a host full of them;
                        ledger: up to a million receipts;
                        syscalls: what strace counts; instructions: what callgrind counts
  --contenders NAME,…   only these: sluice sluice-sync nginx nginx-template haproxy hyper relay
  --rounds N            measured rounds per mode
  --json FILE           write every round's figures
  --results FILE        write the Markdown report here; a full run writes tests/bench/RESULTS.md
  --placement HOW       one: load, upstream and contender on one core (default); split: the contender
                        on another core; free: as the kernel likes

SLUICE_PROXY_BIN names the sidecar's binary, SLUICE_BIN the controller's; else they are looked for
beside this one, then in target/release. Nothing fails because of a figure; a wrong answer of ours fails the run.
";

/// What the user asked for.
#[derive(Debug)]
pub(crate) struct Options {
    /// Fewer rounds, fewer calls.
    pub(crate) quick: bool,
    /// Names of modes; empty means all.
    pub(crate) only: Vec<String>,
    /// In the order of the tables.
    pub(crate) contenders: Vec<Contender>,
    /// Measured rounds per mode; default by `quick`.
    pub(crate) rounds: usize,
    /// Where the raw figures go.
    pub(crate) json: Option<PathBuf>,
    /// Where the Markdown goes. `None`: print only.
    pub(crate) results: Option<PathBuf>,
    pub(crate) placement: Placement,
    /// The words after the program's name, for the report.
    pub(crate) words: Vec<String>,
}

impl Options {
    /// `None` means that help was asked for.
    pub(crate) fn parse(words: &[String]) -> Outcome<Option<Self>> {
        let mut options = Self {
            quick: false,
            only: Vec::new(),
            contenders: Contender::ALL.to_vec(),
            rounds: 0,
            json: None,
            results: None,
            placement: Placement::One,
            words: words.to_vec(),
        };
        let mut rest = words.iter();
        while let Some(word) = rest.next() {
            let mut value = || rest.next().ok_or_else(|| format!("{word} needs a value"));
            match word.as_str() {
                "--help" | "-h" => return Ok(None),
                "--quick" => options.quick = true,
                "--only" => options.only = value()?.split(',').map(str::to_owned).collect(),
                "--contenders" => options.contenders = contenders(value()?)?,
                "--rounds" => options.rounds = value()?.parse()?,
                "--placement" => options.placement = Placement::parse(value()?)?,
                "--json" => options.json = Some(value()?.into()),
                "--results" => options.results = Some(value()?.into()),
                _ => return Err(format!("unknown option {word}; see --help").into()),
            }
        }
        let known = |name: &&String| {
            modes::names()
                .chain([runs::NAME, scale::NAME, ledger::NAME, syscalls::NAME, instructions::NAME])
                .any(|known| known == **name)
        };
        if let Some(unknown) = options.only.iter().find(|name| !known(name)) {
            return Err(format!("unknown mode {unknown}; see --help").into());
        }
        if options.rounds == 0 {
            options.rounds = if options.quick { 3 } else { 7 };
        }
        // A partial run must not overwrite the committed report unasked.
        let partial = options.quick || !options.only.is_empty() || options.contenders.len() < Contender::ALL.len();
        if options.results.is_none() && !partial {
            options.results = Some(concat!(env!("CARGO_MANIFEST_DIR"), "/bench/RESULTS.md").into());
        }
        Ok(Some(options))
    }
}

impl Options {
    /// Whether this is measured.
    pub(crate) fn wants(&self, name: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|wanted| wanted == name)
    }

    /// Whether any mode is.
    pub(crate) fn wants_modes(&self) -> bool {
        modes::names().any(|name| self.wants(name))
    }
}

fn contenders(list: &str) -> Outcome<Vec<Contender>> {
    list.split(',')
        .map(|name| {
            Contender::ALL
                .into_iter()
                .find(|contender| contender.name() == name)
                .ok_or_else(|| format!("unknown contender {name}; see --help").into())
        })
        .collect()
}
