//! Creations, claims, steps and retries in any order, against a model.

use std::cmp::Reverse;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Create { agent: usize, name: Option<usize>, priority: i64, after: Option<usize> },
    Claim,
    Step(usize, SandboxStep),
    Retry(usize),
    Reopen(usize),
    Agent(usize, AgentState),
    SweepAgents,
}

fn op() -> impl Strategy<Value = Op> {
    let verdict =
        proptest::sample::select(vec![SandboxVerdict::Success, SandboxVerdict::Cancelled, failed("internal")]);
    let step = prop_oneof![
        2 => Just(SandboxStep::Start),
        1 => Just(SandboxStep::Complete),
        1 => Just(SandboxStep::Resume),
        4 => verdict.clone().prop_map(SandboxStep::Decide),
        3 => Just(SandboxStep::Finish),
        1 => verdict.prop_map(SandboxStep::Drop),
    ];
    let option = |range| proptest::option::weighted(0.4, range);
    prop_oneof![
        5 => (0..3usize, option(0..2usize), 0..2i64, option(0..9usize))
            .prop_map(|(agent, name, priority, after)| Op::Create { agent, name, priority, after }),
        4 => Just(Op::Claim),
        9 => (0..9usize, step).prop_map(|(run, step)| Op::Step(run, step)),
        2 => (0..9usize).prop_map(Op::Retry),
        2 => (0..9usize).prop_map(Op::Reopen),
        1 => (0..3usize, proptest::sample::select(AgentState::ALL.to_vec())).prop_map(|(agent, to)| Op::Agent(agent, to)),
        1 => Just(Op::SweepAgents),
    ]
}

/// A run of the model.
#[derive(Debug, Clone)]
struct ModelRun {
    agent: usize,
    name: Option<usize>,
    priority: i64,
    after: Option<usize>,
    state: SandboxState,
    verdict: Option<SandboxVerdict>,
    attempt: u32,
}

#[derive(Debug)]
struct Model {
    agents: [AgentState; 3],
    runs: Vec<ModelRun>,
}

const AGENTS: [&str; 3] = ["a", "b", "c"];
const RETRIES: u32 = 2;
const HOST: usize = 2;

impl Model {
    fn is_free(&self, agent: usize) -> bool {
        self.agents[agent] != AgentState::Suspended && !self.has_live_run(agent)
    }

    fn has_live_run(&self, agent: usize) -> bool {
        self.runs.iter().any(|run| run.agent == agent && !run.state.is_ended())
    }

    fn is_name_free(&self, name: Option<usize>) -> bool {
        name.is_none() || !self.runs.iter().any(|run| run.name == name && !run.state.is_ended())
    }

    fn release(&mut self, agent: usize) {
        if self.agents[agent] == AgentState::Connected {
            self.agents[agent] = AgentState::Idle;
        }
    }

    fn take(&mut self, run: usize, step: &SandboxStep) -> bool {
        let Some(before) = self.runs.get(run).cloned() else { return false };
        let Ok((state, verdict)) = after_step(before.state, before.verdict.as_ref(), step) else { return false };
        (self.runs[run].state, self.runs[run].verdict) = (state, verdict);
        if state.is_ended() {
            self.release(before.agent);
        }
        true
    }

    /// Returns the run that must be claimed.
    fn claim(&mut self) -> Option<usize> {
        let has = |run: &ModelRun, other: fn(&SandboxVerdict) -> bool, runs: &[ModelRun]| {
            run.after
                .is_some_and(|after| runs[after].state.is_ended() && runs[after].verdict.as_ref().is_some_and(other))
        };
        loop {
            let failed = |run: &ModelRun| {
                run.state == SandboxState::Pending
                    && has(run, |verdict| *verdict != SandboxVerdict::Success, &self.runs)
            };
            let Some(run) = self.runs.iter().position(failed) else { break };
            let message =
                self.runs[run].after.map(|after| format!("run r{after}, on which it depends, did not succeed"));
            let verdict = SandboxVerdict::Failed { code: "dependency_failed".to_owned(), message };
            assert!(self.take(run, &SandboxStep::Drop(verdict)));
        }
        if self.runs.iter().filter(|run| run.state.is_active()).count() >= HOST {
            return None;
        }
        let is_ready = |run: &ModelRun| {
            run.state == SandboxState::Pending
                && (run.after.is_none() || has(run, |verdict| *verdict == SandboxVerdict::Success, &self.runs))
        };
        let ready = (0..self.runs.len()).filter(|run| is_ready(&self.runs[*run]));
        let next = ready.min_by_key(|run| (Reverse(self.runs[*run].priority), *run))?;
        assert!(self.take(next, &SandboxStep::Claim));
        Some(next)
    }

    fn expect(&mut self, op: &Op) -> bool {
        match op {
            Op::Create { agent, name, priority, after } => {
                if !self.is_free(*agent) || !self.is_name_free(*name) {
                    return false;
                }
                self.agents[*agent] = AgentState::Connected;
                let after = after.filter(|after| *after < self.runs.len());
                let (state, verdict) = (SandboxState::Pending, None);
                let (agent, name, priority) = (*agent, *name, *priority);
                self.runs.push(ModelRun { agent, name, priority, after, state, verdict, attempt: 0 });
                true
            }
            Op::Claim => unreachable!("it is compared by its result"),
            Op::Step(run, step) => self.take(*run, step),
            Op::Retry(run) => {
                if self.runs.get(*run).is_some_and(|run| run.attempt >= RETRIES)
                    || !self.take(*run, &SandboxStep::Retry)
                {
                    return false;
                }
                self.runs[*run].attempt += 1;
                true
            }
            Op::Reopen(run) => {
                let Some(before) = self.runs.get(*run).cloned() else { return false };
                if !self.is_free(before.agent)
                    || !self.is_name_free(before.name)
                    || !self.take(*run, &SandboxStep::Reopen)
                {
                    return false;
                }
                self.runs[*run].attempt += 1;
                self.agents[before.agent] = AgentState::Connected;
                true
            }
            Op::Agent(agent, to) => {
                use AgentState::{Connected, Idle, Suspended, Unknown};
                let is_possible = match (self.agents[*agent], *to) {
                    (Unknown | Idle | Suspended, Connected) | (Unknown | Connected | Idle, Suspended) => true,
                    (Connected, Idle) => !self.has_live_run(*agent),
                    _ => false,
                };
                if is_possible {
                    self.agents[*agent] = *to;
                }
                is_possible
            }
            Op::SweepAgents => {
                for agent in 0..AGENTS.len() {
                    if !self.has_live_run(agent) {
                        self.release(agent);
                    }
                }
                true
            }
        }
    }
}

async fn perform(daemon: &Daemon, op: &Op, runs: usize, now_us: i64) -> bool {
    let generation = async |run: usize| -> Option<u64> {
        let found = daemon.store.find_sandbox(None, &id(&format!("r{run}"))).await.expect("it is readable");
        found.map(|sandbox| sandbox.generation)
    };
    let next = || NextAttempt { daemon: daemon.process.clone(), next_try_us: 0, reason: "test".to_owned() };
    match op {
        Op::Create { agent, name, priority, after } => {
            let new = NewSandbox {
                name: name.map(|name| format!("n{name}")),
                priority: *priority,
                depends_on: after
                    .filter(|after| *after < runs)
                    .map(|after| id(&format!("r{after}")))
                    .into_iter()
                    .collect(),
                max_retries: RETRIES,
                ..daemon.sandbox(&format!("r{runs}"), AGENTS[*agent])
            };
            daemon.store.create_sandbox(new, now_us).await.is_ok()
        }
        Op::Claim => unreachable!("it is compared by its result"),
        Op::Step(run, step) => {
            let Some(seen) = generation(*run).await else { return false };
            daemon.store.step_sandbox(&id(&format!("r{run}")), seen, step.clone(), "test", now_us).await.is_ok()
        }
        Op::Retry(run) => {
            let Some(seen) = generation(*run).await else { return false };
            daemon.store.retry_sandbox(&id(&format!("r{run}")), seen, next(), now_us).await.is_ok()
        }
        Op::Reopen(run) => {
            let Some(seen) = generation(*run).await else { return false };
            daemon.store.reopen_sandbox(&id(&format!("r{run}")), seen, reopening(next()), now_us).await.is_ok()
        }
        Op::Agent(agent, to) => daemon.store.transition_agent("o", AGENTS[*agent], moved(*to)).await.is_ok(),
        Op::SweepAgents => daemon.store.idle_agents_without_runs().await.is_ok(),
    }
}

async fn check(ops: Vec<Op>) {
    let daemon = Daemon::new(&AGENTS).await;
    let mut model = Model { agents: [AgentState::Unknown; 3], runs: Vec::new() };
    for (op, now_us) in ops.iter().zip(1..) {
        if let Op::Claim = op {
            let limits = ClaimLimits { host: HOST as u32, ..LIMITS };
            let claim = daemon.store.claim_next(&daemon.process, limits, now_us).await.expect("it is writable");
            let claimed = claim.claimed.map(|claimed| claimed.sandbox.key.run_id.as_str().to_owned());
            assert_eq!(claimed, model.claim().map(|run| format!("r{run}")), "{model:?}");
        } else {
            let done = perform(&daemon, op, model.runs.len(), now_us).await;
            assert_eq!(done, model.expect(op), "{op:?} {model:?}");
        }
        let mut live = BTreeSet::new();
        for (number, run) in model.runs.iter().enumerate() {
            let found = daemon.find(&format!("r{number}")).await;
            let found = (found.state, found.verdict, found.key.attempt, found.ended_us.is_some());
            assert_eq!(found, (run.state, run.verdict.clone(), run.attempt, run.state.is_ended()), "{op:?}");
            assert!(run.state.is_ended() || live.insert(run.agent), "an agent has two live runs");
        }
        for (agent, state) in AGENTS.iter().zip(model.agents) {
            assert_eq!(daemon.agent_state(agent).await, state, "{op:?}");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 24, max_shrink_iters: 300, ..Config::default() })]

    /// Runs and agents follow the model in any order of requests, and no agent ever has two live runs.
    #[test]
    fn runs_and_agents_follow_their_model(ops in proptest::collection::vec(op(), 0..60)) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("it can be built");
        runtime.block_on(check(ops));
    }
}
