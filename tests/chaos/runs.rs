//! Kills controllers of real runs and sweeps their leftovers: nothing may be left, and nothing may be lost.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::sync::Arc;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use sluice_contract::PublicKey;
use tokio::process::Command;

use crate::check::FileContents;
use crate::fault::ChaosFault;
use crate::figures::{ChaosFigures, Target};
use crate::process::{ChaosProcess, PATIENCE, clean, output};
use crate::random::moment;
use crate::record::calls_of;
use crate::upstream::UpstreamAddress;
use crate::{Shared, cast, opinions, remains};
use fastrand::Rng;

/// The program in the sandbox.
const AGENT: &str = include_str!("agent.sh");
/// On an idle machine, a run makes its first call after half a second.
const START: Duration = Duration::from_millis(700);
/// Longest time of load between the first call and the kill.
const LOAD: Duration = Duration::from_millis(400);
/// A sweep that is killed is killed within this time.
const SWEEP: Duration = Duration::from_millis(300);

/// One state directory for all runs, as on a real host.
#[derive(Debug, Clone)]
struct StateDir {
    dir: PathBuf,
    controller: PathBuf,
    sidecar: PathBuf,
}

impl StateDir {
    fn of(shared: &Shared) -> Self {
        let programs = &shared.programs;
        Self {
            dir: shared.scratch.join("runs"),
            controller: programs.controller.clone(),
            sidecar: programs.sidecar.clone(),
        }
    }

    fn state(&self) -> PathBuf {
        self.dir.join("st")
    }

    fn seen(&self) -> PathBuf {
        self.dir.join("seen")
    }

    fn out(&self, run: &str) -> PathBuf {
        self.dir.join(format!("out-{run}"))
    }

    fn log(&self, run: &str) -> PathBuf {
        self.dir.join(format!("{run}.log"))
    }

    /// `sluice`, for this state directory.
    fn sluice(&self, words: &[&str]) -> Command {
        let mut command = clean(&self.controller);
        command.env("SLUICE_CONFIG", self.dir.join("sluice.toml")).env("SLUICE_STATE_DIR", self.state());
        // The upstream counts its requests, and each must be a call of a run.
        command.env("SLUICE_RECONCILE", "off");
        command.args(words);
        command
    }

    async fn said(&self, words: &[&str]) -> Result<String, ChaosFault> {
        let said = output(&mut self.sluice(words)).await?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        if said.status.success() {
            return Ok(text(&said.stdout));
        }
        let (stdout, stderr) = (text(&said.stdout), text(&said.stderr));
        Err(ChaosFault::new(format!("sluice {} ends with {}: {stdout} {stderr}", words.join(" "), said.status)))
    }

    /// Id and state of its containers; empty before the state directory has its name.
    async fn containers(&self) -> Result<Vec<String>, ChaosFault> {
        let Ok(instance) = fs::read_to_string(self.state().join("instance")) else { return Ok(Vec::new()) };
        let filter = format!("label=sluice.instance={instance}");
        let mut docker = clean("docker");
        docker.args(["ps", "--all", "--no-trunc", "--format", "{{.ID}} {{.State}}", "--filter", &filter]);
        let said = output(&mut docker).await?;
        if !said.status.success() {
            return Err(ChaosFault::new(format!("docker ps: {}", String::from_utf8_lossy(&said.stderr).trim())));
        }
        Ok(String::from_utf8_lossy(&said.stdout).lines().map(str::to_owned).collect())
    }
}

/// Kills controllers until their share is used up, or something is wrong.
pub(crate) async fn lane(shared: Arc<Shared>, host_address: String, mut random: Rng) {
    let host = StateDir::of(&shared);
    if let Err(fault) = runs(&shared, &host, &host_address, &mut random).await {
        shared.report(&fault, Some(&host.dir));
    }
}

/// Removes all leftovers, however the lane ended.
pub(crate) async fn clean_up(shared: &Shared) -> Result<(), ChaosFault> {
    let host = StateDir::of(shared);
    if !host.state().exists() {
        return Ok(());
    }
    let swept = host.said(&["sweep"]).await;
    let left = host.containers().await?;
    if !left.is_empty() {
        let ids = left.iter().filter_map(|container| container.split(' ').next());
        output(clean("docker").args(["rm", "--force", "--volumes"]).args(ids)).await?;
    }
    for (pid, _) in remains::pids_naming(&host.dir) {
        let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
    }
    swept.map(drop)
}

async fn runs(shared: &Shared, host: &StateDir, address: &str, random: &mut Rng) -> Result<(), ChaosFault> {
    fs::create_dir(&host.dir)?;
    fs::write(host.dir.join("sluice.toml"), "")?;
    cast::key_file(&host.dir.join("key"))?;
    let any = UpstreamAddress::Tcp(format!("{address}:0"));
    let (upstream, address) = cast::upstream(&shared.programs, &any, &host.seen(), random.u64(..)).await?;
    let mut number = 0;
    while shared.takes_controller() {
        number += 1;
        let run = format!("chaos-{}-{number}", std::process::id());
        let mut figures = ChaosFigures { files: 1, ..ChaosFigures::default() };
        let one = Run { shared, host, run: &run, upstream: address.url() };
        let done = one.play(random, &mut figures).await;
        shared.add(&figures);
        done.map_err(|fault| fault.during(&run))?;
        fs::remove_dir_all(host.out(&run))?;
        fs::remove_file(host.log(&run))?;
    }
    upstream.die().await?;
    Ok(())
}

struct Run<'a> {
    shared: &'a Shared,
    host: &'a StateDir,
    run: &'a str,
    upstream: String,
}

impl Run<'_> {
    async fn play(&self, random: &mut Rng, figures: &mut ChaosFigures) -> Result<(), ChaosFault> {
        let mut controller = self.start()?;
        if random.u64(..4) == 0 {
            tokio::time::sleep(moment(random, START)).await;
        } else {
            self.first_call(&mut controller).await?;
            tokio::time::sleep(moment(random, LOAD)).await;
        }
        controller.strike()?;
        let sidecar_died = random.u64(..3) == 0 && self.kill_sidecar(figures);
        controller.die().await.map_err(|fault| fault.during(&self.last_words()))?;
        figures.killed(Target::Controller);
        self.shared.killed();
        if random.u64(..4) == 0 && self.shared.takes_controller() {
            self.kill_a_sweep(random, figures).await?;
        }
        self.sweep().await?;
        self.nothing_is_left().await?;
        self.nothing_is_lost(sidecar_died, figures).await
    }

    fn start(&self) -> Result<ChaosProcess, ChaosFault> {
        let out = self.host.out(self.run);
        fs::create_dir(&out)?;
        // The program in the sandbox has another user.
        fs::set_permissions(&out, Permissions::from_mode(0o777))?;
        let log = File::create(self.host.log(self.run))?;
        let mut command = self.host.sluice(&["run"]);
        command.args(["--upstream", &self.upstream, "--model", "m", "--timeout", "120s", "--run-id", self.run]);
        command.arg("--key-file").arg(self.host.dir.join("key")).arg("--proxy").arg(&self.host.sidecar);
        command.arg("--volume").arg(format!("{}:/out:rw", out.display()));
        command.args(["--", "bash", "-c", AGENT, "bash", self.run]);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        ChaosProcess::spawn("the controller", &mut command)
    }

    /// Waits for the first call of the run. No signal reports it, so this looks every 5 ms.
    async fn first_call(&self, controller: &mut ChaosProcess) -> Result<(), ChaosFault> {
        let begun = Instant::now();
        while calls_of(&self.host.seen(), self.run)?.is_empty() {
            if controller.has_ended()? || begun.elapsed() > PATIENCE {
                return Err(ChaosFault::new(format!("no call of the run has come: {}", self.last_words())));
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        Ok(())
    }

    fn last_words(&self) -> String {
        let log = fs::read_to_string(self.host.log(self.run)).unwrap_or_default();
        log.lines().next_back().unwrap_or("the controller has said nothing").to_owned()
    }

    /// Kills the sidecar; returns true if there was one.
    fn kill_sidecar(&self, figures: &mut ChaosFigures) -> bool {
        let socket = self.host.state().join("runs").join(format!("{}.0", self.run)).join("sock");
        let mut died = false;
        for (pid, _) in remains::pids_naming(&socket) {
            if self.shared.takes(1) && kill(Pid::from_raw(pid), Signal::SIGKILL).is_ok() {
                died = true;
                figures.killed(Target::Sidecar);
                self.shared.killed();
            }
        }
        died
    }

    /// Starts a sweep and kills it: a sweep is a controller, too.
    async fn kill_a_sweep(&self, random: &mut Rng, figures: &mut ChaosFigures) -> Result<(), ChaosFault> {
        let mut command = self.host.sluice(&["sweep"]);
        let mut sweep = ChaosProcess::spawn("a sweep", command.stdin(Stdio::null()).stdout(Stdio::null()))?;
        tokio::time::sleep(moment(random, SWEEP)).await;
        if sweep.kill().await?.is_none() {
            figures.killed(Target::Controller);
            self.shared.killed();
        } else {
            self.shared.gives_back_controller();
        }
        Ok(())
    }

    /// Removes all leftovers in one sweep, and checks that another one would find nothing.
    async fn sweep(&self) -> Result<(), ChaosFault> {
        self.host.said(&["sweep"]).await?;
        let found: serde_json::Value = serde_json::from_str(&self.host.said(&["sweep", "--dry-run", "--json"]).await?)?;
        match found["leftovers"].as_array() {
            Some(left) if left.is_empty() => Ok(()),
            _ => Err(ChaosFault::new(format!("swept, and a sweep still finds {found}"))),
        }
    }

    async fn nothing_is_left(&self) -> Result<(), ChaosFault> {
        let containers = self.host.containers().await?;
        if !containers.is_empty() {
            return Err(ChaosFault::new(format!("containers are left: {}", containers.join(", "))));
        }
        if let Some(run) = fs::read_dir(self.host.state().join("runs"))?.next() {
            return Err(ChaosFault::new(format!("a directory is left: {}", run?.path().display())));
        }
        remains::nothing_of(&self.host.state(), None)
    }

    async fn nothing_is_lost(&self, sidecar_died: bool, figures: &mut ChaosFigures) -> Result<(), ChaosFault> {
        let whole_answers = calls_of(&self.host.out(self.run).join("whole"), self.run)?;
        let seen = calls_of(&self.host.seen(), self.run)?;
        figures.calls = seen.len() as u64;
        figures.answers = whole_answers.len() as u64;
        let name = format!("{}.0", self.run);
        let file = self.host.state().join("audit").join(format!("{name}.jsonl"));
        if !file.exists() && seen.is_empty() {
            // It was killed before it had a sidecar.
            figures.files = 0;
            return Ok(());
        }
        let bytes = fs::read(&file)?;
        let keys = self.host.said(&["audit", "keys"]).await?;
        let key: PublicKey = keys.parse()?;
        let account = FileContents::of(&bytes, &key)?;
        figures.intents = account.intents.len() as u64;
        figures.outcomes = account.outcomes.len() as u64;
        figures.torn = u64::from(account.whole < bytes.len());
        account.answers_for(&seen, &whole_answers)?;
        if !sidecar_died && !account.intents.is_empty() {
            // The sidecar has noticed the end of its controller, and has ended in order.
            account.is_settled()?;
        }
        // For the name of a run, the keys and the witnesses of the state directory are checked, too.
        opinions::same(&mut self.host.sluice(&["audit", "verify", &name]), &account.verdict).await?;
        opinions::agree(&self.shared.programs, &file, &key, &account.verdict).await
    }
}
