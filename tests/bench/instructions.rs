//! Instructions and allocations of a call, as callgrind counts them.
//!
//! Two runs differ only in the number of their calls; the difference of the counts is the cost of those calls.
//! Start, end and the first calls cancel out, and neither the clock nor other work on the machine matters.

use serde::Serialize;

use crate::Outcome;
use crate::callgrind::Profile;
use crate::contenders::{BenchSite, Contender, Processor};
use crate::load::Load;
use crate::modes::{self, Connections, Mode};

/// The name in `--only`.
pub(crate) const NAME: &str = "instructions";

/// The measured modes, over one connection, so that calls share no turn of the loop.
const MODES: [&str; 7] = ["chat-1", "burst-100", "messages-100", "responses-100", "body-20k", "body-200k", "body-5m"];
/// Calls of the shorter run. After them, no buffer and no table grows any more.
const FEW: usize = 50;
const MANY: usize = 150;
/// The same for bodies of megabytes, each of which costs as much as many calls.
const FEW_LARGE: usize = 5;
const MANY_LARGE: usize = 15;

/// Counts of one contender in one mode, per call.
#[derive(Debug, Serialize)]
pub(crate) struct InstructionCount {
    pub(crate) mode: &'static str,
    pub(crate) contender: &'static str,
    /// Instructions in user space, of all its processes, without SHA-256.
    pub(crate) instructions: f64,
    /// Instructions that hash for the audit chain. On valgrind's processor, they are many more than on a real one,
    /// which has instructions for it.
    pub(crate) sha256: f64,
    pub(crate) allocations: f64,
}

/// Measures one contender after the other. Under valgrind, each is many times slower.
pub(crate) async fn measure(contenders: &[Contender], field: &BenchSite<'_>) -> Outcome<Vec<InstructionCount>> {
    let mut costs = Vec::new();
    for mode in MODES.iter().filter_map(|name| modes::named(name)) {
        let mode = Mode { connections: Connections::Kept(1), ..mode };
        let (few, many) = if mode.calls < MANY { (FEW_LARGE, MANY_LARGE) } else { (FEW, MANY) };
        for contender in contenders {
            eprintln!("{NAME}: {}, {}", mode.name, contender.name());
            let beyond =
                profile(*contender, &mode, many, field).await? - profile(*contender, &mode, few, field).await?;
            let per_call = |count: u64| count as f64 / (many - few) as f64;
            costs.push(InstructionCount {
                mode: mode.name,
                contender: contender.name(),
                instructions: per_call(beyond.instructions),
                sha256: per_call(beyond.sha256),
                allocations: per_call(beyond.allocations),
            });
        }
    }
    Ok(costs)
}

async fn profile(contender: Contender, mode: &Mode, calls: usize, field: &BenchSite<'_>) -> Outcome<Profile> {
    let started = contender.start_on(Processor::Callgrind, field)?;
    let load = Load::new(mode, &started.socket);
    let clients = load.open().await?;
    let round = load.round(clients, calls).await;
    if let Some(fault) = round.faults.first() {
        return Err(format!("{} under callgrind: {fault}", contender.name()).into());
    }
    started.profile()
}
