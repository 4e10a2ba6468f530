//! A large ledger: writes audit files as sidecars do, then measures the commands that read all of it.

use std::borrow::Cow;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::poll;
use serde::Serialize;
use sluice_contract::chain::{Chain, close_line, line};
use sluice_contract::record::{Close, Intent, Open, Outcome as Ended, Usage};
use sluice_contract::{PrivateKey, Usd};

use crate::options::Options;
use crate::{Outcome, programs};

/// The name in `--only`.
pub(crate) const NAME: &str = "ledger";

/// The seed of the key that signs the files.
const SEED: [u8; 32] = [7; 32];
/// Cost of each call, in nano-USD.
const NANOS: u64 = 10_500;

/// The figures of one ledger.
#[derive(Debug, Serialize)]
pub(crate) struct LedgerFigures {
    pub(crate) runs: u64,
    pub(crate) receipts: u64,
    /// Bytes of the database.
    pub(crate) database: u64,
    pub(crate) commands: Vec<CommandFigures>,
}

/// Figures of one command on the ledger.
#[derive(Debug, Serialize)]
pub(crate) struct CommandFigures {
    pub(crate) command: String,
    pub(crate) seconds: f64,
    /// Most bytes of memory that the process had (`VmHWM`).
    pub(crate) peak: u64,
}

/// Numbers of runs, and of calls of each run.
const SIZES: [(u64, u64); 4] = [(100, 100), (1_000, 100), (10_000, 100), (1, 400_000)];
const QUICK: [(u64, u64); 2] = [(20, 100), (100, 100)];

pub(crate) fn measure(scratch: &Path, options: &Options) -> Outcome<Vec<LedgerFigures>> {
    let sizes: &[_] = if options.quick { &QUICK } else { &SIZES };
    sizes.iter().map(|(runs, calls)| one(scratch, *runs, *calls)).collect()
}

fn one(scratch: &Path, runs: u64, calls: u64) -> Outcome<LedgerFigures> {
    eprintln!("{NAME}: {runs} runs of {calls} calls");
    let state = scratch.join(format!("ledger-{runs}-{calls}"));
    let keys = state.join("keys");
    fs::DirBuilder::new().recursive(true).mode(0o700).create(&keys)?;
    let seed: String = SEED.iter().map(|byte| format!("{byte:02x}")).collect();
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(keys.join("signing"))?;
    file.write_all(seed.as_bytes())?;
    let sluice = LedgerCommands { program: programs::controller()?, state };
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
    // Some rows may not be in the database itself yet, but in the write-ahead log beside it.
    let copy = sluice.state.join("copy.db");
    sluice.measured(&["ledger", "backup", copy.to_str().ok_or("a path that is not text")?])?;
    let database = fs::metadata(copy)?.len();
    fs::remove_dir_all(&sluice.state)?;
    Ok(LedgerFigures { runs, receipts: runs * calls, database, commands })
}

struct LedgerCommands {
    program: PathBuf,
    state: PathBuf,
}

impl LedgerCommands {
    fn measured(&self, words: &[&str]) -> Outcome<CommandFigures> {
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
        Ok(CommandFigures { command: words.join(" "), seconds, peak })
    }
}

fn high_water(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix(" kB")?.parse::<u64>().ok()? << 10)
}

/// The records of a run; the members that differ between them are filled in.
const OPEN: &str = r#"{"attempt":0,"billing_account_id":"","boot_id":"6b3b1d4c-3c43-4f43-9f0d-7a4f9d6c1f7e",
    "build":"0123456789abcdef","graph_id":"sandbox:agent","kind":"open","limits":{"max_body":33554432,"max_concurrency":32},"pid":1,
    "policy":"sha256:0123456789abcdef","prev":"","proxy_version":"0.1.0","run_id":"","seq":0,"sync":"call","ts":"",
    "upstream":"http://127.0.0.1:4000","v":1}"#;
const INTENT: &str = r#"{"attempt":0,"call":0,"call_id":"","kind":"intent","method":"POST","path":"/v1/chat/completions",
    "peer":{"uid":0},"prev":"","req_bytes":4321,"reserved_usd":"0.000321","run_id":"","seq":0,"stream":false,"stripped":[],
    "ts":"","v":1}"#;
const OUTCOME: &str = r#"{"attempt":0,"call":0,"call_id":"","cost_source":"header","cost_usd":"1.05e-05",
    "end":"complete","kind":"outcome","prev":"","resp_bytes":987,"result":"ok","run_id":"","seq":0,"status":200,
    "timing_us":{"own":0,"queue":0,"total":0},"ts":"","usage":{"input":1234,"output":56,"total":1290},"v":1}"#;
const CLOSE: &str = r#"{"attempt":0,"calls":0,"cost_usd":"","head":"","kind":"close","prev":"","reason":"sigterm",
    "refused":0,"run_id":"","seq":0,"ts":"","unknown":0,"usage":{},"v":1}"#;

/// Writes the audit file of a complete run, as its sidecar would.
fn write_run(audit: &Path, number: u64, calls: u64) -> Outcome<()> {
    let run_id = format!("run-{number}");
    let mut file = std::io::BufWriter::new(fs::File::create(audit.join(format!("{run_id}.0.jsonl")))?);
    let mut chain = Chain::default();
    let begun = SystemTime::now() - Duration::from_hours(1);
    let ts = |step: u64| humantime::format_rfc3339_micros(begun + Duration::from_millis(step)).to_string();
    let mut put = |chain: &mut Chain, line: &[u8]| {
        chain.push(line);
        file.write_all(line)
    };
    let run = || -> Cow<'_, str> { run_id.as_str().into() };
    let open: Open<'_> = serde_json::from_str(OPEN)?;
    let account = format!("acct-{}", number % 20).into();
    let prev = chain.prev.to_string().into();
    put(&mut chain, &line(&Open { billing_account_id: account, prev, run_id: run(), ts: ts(0).into(), ..open }))?;
    let model: Cow<'_, str> = ["gpt-4o-mini", "claude-sonnet-4-5", "gpt-5"][usize::try_from(number % 3)?].into();
    let intent = Intent { model: Some(model.clone()), run_id: run(), ..serde_json::from_str(INTENT)? };
    let outcome = Ended { model_served: Some(model), run_id: run(), ..serde_json::from_str(OUTCOME)? };
    for call in 1..=calls {
        let call_id = format!("{number:012x}-{call:012x}-0000");
        let (prev, seq, ts_of_intent) = (chain.prev.to_string().into(), chain.seq, ts(2 * call).into());
        let call_id = || -> Cow<'_, str> { call_id.as_str().into() };
        put(&mut chain, &line(&Intent { call, call_id: call_id(), prev, seq, ts: ts_of_intent, ..intent.clone() }))?;
        let ended = Ended {
            call,
            call_id: call_id(),
            litellm_call_id: Some(call_id()),
            prev: chain.prev.to_string().into(),
            response_id: Some(format!("chatcmpl-{number:012x}{call:012x}").into()),
            seq: chain.seq,
            ts: ts(2 * call + 1).into(),
            ..outcome.clone()
        };
        put(&mut chain, &line(&ended))?;
    }
    let usage = outcome.usage.unwrap_or_default();
    let all = |tokens: Option<u64>| tokens.map(|tokens| tokens * calls);
    let close = Close {
        calls,
        cost_usd: Usd::from_nanos(i64::try_from(NANOS * calls)?).to_string().into(),
        prev: chain.prev.to_string().into(),
        run_id: run(),
        seq: chain.seq,
        ts: ts(2 * calls + 2).into(),
        usage: Usage { input: all(usage.input), output: all(usage.output), total: all(usage.total), ..usage },
        ..serde_json::from_str(CLOSE)?
    };
    put(&mut chain, &close_line(close, Some(&PrivateKey::from_seed(&SEED))))?;
    file.flush()?;
    Ok(())
}
