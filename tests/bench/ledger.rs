//! The ledger at size: audit files as sidecars write them, then the commands that read all of it.

use std::fs;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::poll;
use serde::Serialize;
use sluice_contract::chain::{Chain, close_line, line};
use sluice_contract::record::{
    CallResult, Close, CostSource, End, Intent, Open, Outcome as Ended, Peer, RunLimits, SCHEMA, Timing, Usage,
};
use sluice_contract::{PrivateKey, Usd};

use crate::options::Options;
use crate::{Outcome, programs};

/// The name in `--only`.
pub(crate) const NAME: &str = "ledger";

/// The seed of the key that signs the files.
const SEED: [u8; 32] = [7; 32];
/// What each call cost, in nano-USD.
const NANOS: u64 = 10_500;

/// The figures of one ledger.
#[derive(Debug, Serialize)]
pub(crate) struct Ledger {
    pub(crate) runs: u64,
    pub(crate) receipts: u64,
    /// Bytes of the database.
    pub(crate) database: u64,
    pub(crate) commands: Vec<Measured>,
}

/// One command on it.
#[derive(Debug, Serialize)]
pub(crate) struct Measured {
    pub(crate) command: String,
    pub(crate) seconds: f64,
    /// Most bytes of memory that the process had (`VmHWM`).
    pub(crate) peak: u64,
}

/// Runs, and calls of each.
const SIZES: [(u64, u64); 4] = [(100, 100), (1_000, 100), (10_000, 100), (1, 400_000)];
const QUICK: [(u64, u64); 2] = [(20, 100), (100, 100)];

pub(crate) fn measure(scratch: &Path, options: &Options) -> Outcome<Vec<Ledger>> {
    let sizes: &[_] = if options.quick { &QUICK } else { &SIZES };
    sizes.iter().map(|(runs, calls)| one(scratch, *runs, *calls)).collect()
}

fn one(scratch: &Path, runs: u64, calls: u64) -> Outcome<Ledger> {
    eprintln!("{NAME}: {runs} runs of {calls} calls");
    let state = scratch.join(format!("ledger-{runs}-{calls}"));
    let keys = state.join("keys");
    fs::create_dir_all(&keys)?;
    let seed: String = SEED.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(keys.join("signing"))?;
    file.write_all(seed.as_bytes())?;
    let sluice = Sluice { program: programs::controller()?, state };
    // Makes the directories and an empty database.
    sluice.measured(&["budget", "set", "bench", "1"])?;
    for run in 0..runs {
        write_run(&sluice.state.join("audit"), run, calls)?;
    }
    let commands = [
        &["ledger", "rebuild"][..],
        &["ledger", "rebuild", "--check"],
        &["usage"],
        &["receipts"],
        &["receipts", "--json"],
        &["receipts", "--csv"],
        &["receipts", "--since", "1h", "--csv"],
        &["receipts", "--run", "run-0"],
        &["budget", "show"],
    ];
    let commands = commands.into_iter().map(|words| sluice.measured(words)).collect::<Outcome<Vec<_>>>()?;
    // The database itself may still have rows in the file beside it.
    let copy = sluice.state.join("copy.db");
    sluice.measured(&["ledger", "backup", copy.to_str().ok_or("a path that is not text")?])?;
    let database = fs::metadata(copy)?.len();
    fs::remove_dir_all(&sluice.state)?;
    Ok(Ledger { runs, receipts: runs * calls, database, commands })
}

struct Sluice {
    program: PathBuf,
    state: PathBuf,
}

impl Sluice {
    fn measured(&self, words: &[&str]) -> Outcome<Measured> {
        let mut command = Command::new(&self.program);
        command.args(words).arg("--state-dir").arg(&self.state);
        let begun = Instant::now();
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::inherit()).spawn()?;
        let status = format!("/proc/{}/status", child.id());
        let mut peak = 0;
        let ended = loop {
            if let Some(ended) = child.try_wait()? {
                break ended;
            }
            let now = fs::read_to_string(&status).ok();
            peak = now.as_deref().and_then(high_water).unwrap_or(0).max(peak);
            poll(&mut [], 2u8)?;
        };
        let seconds = begun.elapsed().as_secs_f64();
        if !ended.success() {
            return Err(format!("sluice {} failed: {ended}", words.join(" ")).into());
        }
        Ok(Measured { command: words.join(" "), seconds, peak })
    }
}

fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// Writes the audit file of a whole run: what its sidecar would have written.
fn write_run(audit: &Path, run: u64, calls: u64) -> Outcome<()> {
    let run_id = format!("run-{run}");
    let account = format!("acct-{}", run % 20);
    let mut file = std::io::BufWriter::new(fs::File::create(audit.join(format!("{run_id}.0.jsonl")))?);
    let mut chain = Chain::default();
    let begun = SystemTime::now() - Duration::from_hours(1);
    let ts = |step: u64| humantime::format_rfc3339_micros(begun + Duration::from_millis(step)).to_string();
    let mut put = |chain: &mut Chain, line: &[u8]| {
        chain.push(line);
        file.write_all(line)
    };
    let open = line(&Open {
        attempt: 0,
        billing_account_id: account.into(),
        boot_id: "6b3b1d4c-3c43-4f43-9f0d-7a4f9d6c1f7e".into(),
        build: "0123456789abcdef".into(),
        graph_id: "sandbox:agent".into(),
        kind: Open::KIND.into(),
        limits: RunLimits::default(),
        pid: 1,
        policy: "sha256:0123456789abcdef".into(),
        prev: chain.prev.to_string().into(),
        proxy_version: "0.1.0".into(),
        run_id: run_id.as_str().into(),
        seq: 0,
        sync: "call".into(),
        ts: ts(0).into(),
        upstream: "http://127.0.0.1:4000".into(),
        v: SCHEMA,
    });
    put(&mut chain, &open)?;
    let model = ["gpt-4o-mini", "claude-sonnet-4-5", "gpt-5"][usize::try_from(run % 3)?];
    let usage = Usage { input: Some(1234), output: Some(56), total: Some(1290), ..Usage::default() };
    for call in 1..=calls {
        let call_id = format!("{run:012x}-{call:012x}-0000");
        let intent = line(&Intent {
            attempt: 0,
            bound: None,
            call,
            call_id: call_id.as_str().into(),
            kind: Intent::KIND.into(),
            method: "POST".into(),
            model: Some(model.into()),
            path: "/v1/chat/completions".into(),
            peer: Peer::default(),
            prev: chain.prev.to_string().into(),
            req_bytes: 4321,
            reserved_strict: None,
            reserved_tokens: None,
            reserved_usd: Some("0.000321".into()),
            run_id: run_id.as_str().into(),
            seq: chain.seq,
            stream: false,
            stripped: Vec::new(),
            ts: ts(2 * call).into(),
            v: SCHEMA,
        });
        put(&mut chain, &intent)?;
        let outcome = line(&Ended {
            attempt: 0,
            budget_limit_usd: None,
            budget_of: None,
            budget_spent_usd: None,
            cache_hit: None,
            call,
            call_id: call_id.as_str().into(),
            cost_source: CostSource::Header,
            cost_usd: Some("1.05e-05".into()),
            drained: None,
            end: End::Complete,
            kind: Ended::KIND.into(),
            litellm_call_id: Some(call_id.as_str().into()),
            model_served: Some(model.into()),
            null_reason: None,
            prev: chain.prev.to_string().into(),
            resp_bytes: 987,
            response_id: Some(format!("chatcmpl-{run:012x}{call:012x}").into()),
            result: CallResult::Ok,
            run_id: run_id.as_str().into(),
            seq: chain.seq,
            status: Some(200),
            timing_us: Timing::default(),
            ts: ts(2 * call + 1).into(),
            usage: Some(usage),
            v: SCHEMA,
        });
        put(&mut chain, &outcome)?;
    }
    let all = |tokens: Option<u64>| tokens.map(|tokens| tokens * calls);
    let close = Close {
        attempt: 0,
        calls,
        certificate: None,
        cost_usd: Usd::from_nanos(i64::try_from(NANOS * calls)?).to_string().into(),
        head: "".into(),
        key_id: None,
        kind: Close::KIND.into(),
        prev: chain.prev.to_string().into(),
        reason: "sigterm".into(),
        refused: 0,
        run_id: run_id.as_str().into(),
        seq: chain.seq,
        signature: None,
        ts: ts(2 * calls + 2).into(),
        unknown: 0,
        usage: Usage {
            input: all(usage.input),
            output: all(usage.output),
            total: all(usage.total),
            ..Usage::default()
        },
        v: SCHEMA,
    };
    put(&mut chain, &close_line(close, Some(&PrivateKey::from_seed(&SEED))))?;
    file.flush()?;
    Ok(())
}
