//! Two daemons that claim from one queue, against a model: dependencies, retries, limits and deadlines, with a clock that
//! also jumps back.

use std::cmp::Reverse;

use proptest::prelude::*;
use proptest::test_runner::Config;

use super::*;

#[derive(Debug, Clone)]
enum Op {
    Create {
        owner: usize,
        project: Option<usize>,
        priority: i64,
        after: BTreeSet<usize>,
    },
    /// The daemons that claim; two daemons claim at once.
    Claim(Vec<usize>),
    Decide(usize, SandboxVerdict),
    Finish(usize),
    Retry {
        run: usize,
        wait_us: i64,
    },
    Time(i64),
}

fn op() -> impl Strategy<Value = Op> {
    let verdict = proptest::sample::select(vec![
        SandboxVerdict::Success,
        SandboxVerdict::Success,
        SandboxVerdict::Cancelled,
        failed(),
    ]);
    let after = proptest::collection::btree_set(0..RUNS, 0..3);
    let project = proptest::option::weighted(0.5, 0..2usize);
    prop_oneof![
        6 => (0..2usize, project, 0..2i64, after)
            .prop_map(|(owner, project, priority, after)| Op::Create { owner, project, priority, after }),
        6 => proptest::sample::select(vec![vec![0], vec![1], vec![0, 1]]).prop_map(Op::Claim),
        5 => (0..RUNS, verdict).prop_map(|(run, verdict)| Op::Decide(run, verdict)),
        5 => (0..RUNS).prop_map(Op::Finish),
        3 => (0..RUNS, 0..20i64).prop_map(|(run, wait_us)| Op::Retry { run, wait_us }),
        3 => proptest::sample::select(vec![-3600, -5, 1, 7, 30]).prop_map(Op::Time),
    ]
}

fn failed() -> SandboxVerdict {
    super::failed("internal")
}

/// Runs of a history; their ids are in the order of their numbers.
const RUNS: usize = 10;
const RUN_TIME: i64 = 1000;
const OWNERS: [&str; 2] = ["o", "p"];
const CLAIMS: ClaimLimits = ClaimLimits { host: 3, project: 1, owner: 2 };

/// A run of the model.
#[derive(Debug, Clone)]
struct ModelRun {
    owner: usize,
    project: Option<usize>,
    priority: i64,
    after: BTreeSet<usize>,
    created_us: i64,
    state: SandboxState,
    verdict: Option<SandboxVerdict>,
    attempt: u32,
    next_try_us: i64,
    deadline_us: Option<i64>,
}

#[derive(Debug)]
struct Model {
    runs: Vec<ModelRun>,
    now_us: i64,
}

impl Model {
    fn take(&mut self, run: usize, step: &SandboxStep) -> bool {
        let Some(run) = self.runs.get_mut(run) else { return false };
        let Ok((state, verdict)) = after_step(run.state, run.verdict.as_ref(), step) else { return false };
        (run.state, run.verdict) = (state, verdict);
        true
    }

    fn has_ended(&self, run: usize, success: bool) -> bool {
        self.runs[run].state.is_ended() && (self.runs[run].verdict == Some(SandboxVerdict::Success)) == success
    }

    /// Returns the run that must be claimed next: one of the owner with the fewest working runs.
    fn claim(&mut self) -> Option<usize> {
        let is_doomed = |model: &Self, run: &ModelRun| {
            run.state == SandboxState::Pending && run.after.iter().any(|other| model.has_ended(*other, false))
        };
        while let Some(run) = self.runs.iter().position(|run| is_doomed(self, run)) {
            // The message names the first one.
            let other = self.runs[run].after.iter().copied().find(|other| self.has_ended(*other, false));
            let message = other.map(|other| format!("run r{other}, on which it depends, did not succeed"));
            let verdict = SandboxVerdict::Failed { code: "dependency_failed".to_owned(), message };
            assert!(self.take(run, &SandboxStep::Drop(verdict)));
        }
        let active: Vec<_> = self.runs.iter().filter(|run| run.state.is_active()).collect();
        let count = |is_counted: &dyn Fn(&ModelRun) -> bool| active.iter().filter(|run| is_counted(run)).count() as u32;
        if count(&|_| true) >= CLAIMS.host {
            return None;
        }
        let is_ready = |run: &ModelRun| {
            run.state == SandboxState::Pending
                && run.next_try_us <= self.now_us
                && count(&|other| other.owner == run.owner) < CLAIMS.owner
                && (run.project.is_none() || count(&|other| other.project == run.project) < CLAIMS.project)
                && run.after.iter().all(|other| self.has_ended(*other, true))
        };
        let ready = (0..self.runs.len()).filter(|run| is_ready(&self.runs[*run]));
        let next = ready.min_by_key(|number| {
            let run = &self.runs[*number];
            let at_work = count(&|other| other.owner == run.owner);
            (at_work, Reverse(run.priority), run.created_us, *number)
        })?;
        assert!(self.take(next, &SandboxStep::Claim));
        // Further attempts keep the deadline of the first one.
        self.runs[next].deadline_us.get_or_insert(self.now_us + RUN_TIME);
        Some(next)
    }

    fn expect(&mut self, op: &Op) -> bool {
        match op {
            Op::Create { owner, project, priority, after } => {
                let after = after.iter().copied().filter(|other| self.is_own(*owner, *other)).collect();
                self.runs.push(ModelRun {
                    owner: *owner,
                    project: *project,
                    priority: *priority,
                    after,
                    created_us: self.now_us,
                    state: SandboxState::Pending,
                    verdict: None,
                    attempt: 0,
                    next_try_us: 0,
                    deadline_us: None,
                });
                true
            }
            Op::Claim(_) => unreachable!("it is compared by its result"),
            Op::Decide(run, verdict) => self.take(*run, &SandboxStep::Decide(verdict.clone())),
            Op::Finish(run) => self.take(*run, &SandboxStep::Finish),
            Op::Retry { run, wait_us } => {
                let now_us = self.now_us;
                if self.runs.get(*run).is_none_or(|run| run.attempt >= 3) || !self.take(*run, &SandboxStep::Retry) {
                    return false;
                }
                self.runs[*run].attempt += 1;
                self.runs[*run].next_try_us = now_us + wait_us;
                true
            }
            Op::Time(by) => {
                self.now_us += by;
                true
            }
        }
    }

    fn is_own(&self, owner: usize, run: usize) -> bool {
        self.runs.get(run).is_some_and(|run| run.owner == owner)
    }
}

async fn perform(daemon: &Daemon, op: &Op, model: &Model) -> bool {
    let seen = async |run: usize| -> Option<u64> {
        let found = daemon.store.find_sandbox(None, &id(&format!("r{run}"))).await.expect("it is readable");
        found.map(|sandbox| sandbox.generation)
    };
    let step = async |run: usize, step: SandboxStep| {
        let Some(generation) = seen(run).await else { return false };
        daemon.store.step_sandbox(&id(&format!("r{run}")), generation, step, "test", model.now_us).await.is_ok()
    };
    match op {
        Op::Create { owner, project, priority, after } => {
            let name = format!("r{}", model.runs.len());
            let agent = NewAgent { owner: OWNERS[*owner].to_owned(), ..new_agent(&name) };
            let new = NewSandbox {
                owner: OWNERS[*owner].to_owned(),
                agent: RunAgent::Ephemeral(agent),
                project: project.map(|project| format!("project-{project}")),
                priority: *priority,
                depends_on: after
                    .iter()
                    .filter(|other| model.is_own(*owner, **other))
                    .map(|other| id(&format!("r{other}")))
                    .collect(),
                run_time_us: RUN_TIME,
                ..daemon.sandbox(&name, &name)
            };
            daemon.store.create_sandbox(new, model.now_us).await.is_ok()
        }
        Op::Claim(_) => unreachable!("it is compared by its result"),
        Op::Decide(run, verdict) => step(*run, SandboxStep::Decide(verdict.clone())).await,
        Op::Finish(run) => step(*run, SandboxStep::Finish).await,
        Op::Retry { run, wait_us } => {
            let Some(generation) = seen(*run).await else { return false };
            let next_try_us = model.now_us + wait_us;
            let next = NextAttempt { daemon: daemon.process.clone(), next_try_us, reason: "test".to_owned() };
            daemon.store.retry_sandbox(&id(&format!("r{run}")), generation, next, model.now_us).await.is_ok()
        }
        Op::Time(_) => true,
    }
}

/// Claims once with each of these daemons, all at once, and returns their results.
async fn claim(stores: &[Store; 2], process: &Process, daemons: &[usize], now_us: i64) -> BTreeSet<String> {
    let claims = daemons.iter().map(|number| {
        let store = stores[*number].clone();
        // Each daemon has its own process.
        let process = Process { pid: process.pid + i32::try_from(*number).expect("it is small"), ..process.clone() };
        tokio::spawn(async move { store.claim_next(&process, CLAIMS, now_us).await.expect("it is writable") })
    });
    let mut claimed = BTreeSet::new();
    for claim in claims.collect::<Vec<_>>() {
        if let Some(run) = claim.await.expect("it does not panic").claimed {
            assert!(claimed.insert(run.sandbox.key.run_id.as_str().to_owned()), "two daemons have the same run");
        }
    }
    claimed
}

async fn check(ops: Vec<Op>) {
    let daemon = Daemon::new(&[]).await;
    let other = Store::open(&daemon.directory.path().join("sluice.db")).expect("it is there");
    let stores = [daemon.store.clone(), other];
    let mut model = Model { runs: Vec::new(), now_us: 100_000 };
    for op in ops {
        match &op {
            Op::Create { .. } if model.runs.len() == RUNS => continue,
            Op::Claim(daemons) => {
                let expected: BTreeSet<_> =
                    daemons.iter().filter_map(|_| model.claim()).map(|run| format!("r{run}")).collect();
                let claimed = claim(&stores, &daemon.process, daemons, model.now_us).await;
                assert_eq!(claimed, expected, "{model:?}");
            }
            op => {
                let done = perform(&daemon, op, &model).await;
                assert_eq!(done, model.expect(op), "{op:?} {model:?}");
            }
        }
        for (number, run) in model.runs.iter().enumerate() {
            let found = daemon.find(&format!("r{number}")).await;
            let found = (found.state, found.verdict, found.key.attempt, found.deadline_us);
            assert_eq!(found, (run.state, run.verdict.clone(), run.attempt, run.deadline_us), "{op:?} {model:?}");
        }
    }
}

proptest! {
    #![proptest_config(Config { cases: 24, max_shrink_iters: 300, ..Config::default() })]

    /// Each run is claimed once for each attempt, in its turn and within the limits, by any daemon.
    #[test]
    fn two_daemons_share_one_queue(ops in proptest::collection::vec(op(), 0..80)) {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().expect("it can be built");
        runtime.block_on(check(ops));
    }
}
