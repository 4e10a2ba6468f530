use std::collections::{BTreeMap, BTreeSet};

use sluice_contract::{Account, RunId};
use tempfile::TempDir;

use super::*;
use crate::agents::{Agent, AgentState, NewAgent, TransitionRequest};
use crate::creation::{CreationError, NewSandbox, RunAgent};
use crate::events::{EventFilter, LoggedEvent};
use crate::process::Process;
use crate::store::Store;
use crate::test_sandbox::{new_agent, new_sandbox};

mod attempts;
mod claims;
mod creation;
mod histories;
mod queries;
mod queue;

struct Daemon {
    directory: TempDir,
    store: Store,
    process: Process,
}

const LIMITS: ClaimLimits = ClaimLimits { host: 100, project: 100, owner: 100 };

impl Daemon {
    async fn new(agents: &[&str]) -> Self {
        let directory = tempfile::tempdir().expect("there is room");
        let store = Store::open(&directory.path().join("sluice.db")).expect("it is new");
        let daemon = Self { directory, store, process: Process::current().expect("there is /proc") };
        for agent_id in agents {
            daemon.store.register_agent(new_agent(agent_id)).await.expect("it is writable");
        }
        daemon
    }

    fn sandbox(&self, run_id: &str, agent_id: &str) -> NewSandbox {
        let agent = RunAgent::Registered(agent_id.to_owned());
        NewSandbox { agent, daemon: self.process.clone(), ..new_sandbox(run_id) }
    }

    fn ephemeral(&self, run_id: &str) -> NewSandbox {
        NewSandbox { agent: RunAgent::Ephemeral(new_agent(run_id)), ..self.sandbox(run_id, run_id) }
    }

    async fn create(&self, new: NewSandbox, now_us: i64) -> Sandbox {
        self.store.create_sandbox(new, now_us).await.expect("it can be created").sandbox
    }

    async fn claim(&self, now_us: i64) -> Option<String> {
        let claim = self.store.claim_next(&self.process, LIMITS, now_us).await.expect("it is writable");
        claim.claimed.map(|claimed| claimed.sandbox.key.run_id.as_str().to_owned())
    }

    async fn find(&self, run_id: &str) -> Sandbox {
        self.store.find_sandbox(None, &id(run_id)).await.expect("it is readable").expect("it is known")
    }

    async fn try_step(&self, run_id: &str, step: SandboxStep) -> Result<Sandbox, SandboxError> {
        let generation = self.find(run_id).await.generation;
        self.store.step_sandbox(&id(run_id), generation, step, "test", 50).await
    }

    async fn step(&self, run_id: &str, step: SandboxStep) -> Sandbox {
        self.try_step(run_id, step).await.expect("it is legal")
    }

    /// Brings a run that is in the queue to its end.
    async fn end(&self, run_id: &str, verdict: SandboxVerdict) {
        assert_eq!(self.claim(9).await.as_deref(), Some(run_id));
        self.step(run_id, SandboxStep::Decide(verdict)).await;
        self.step(run_id, SandboxStep::Finish).await;
    }

    async fn agent(&self, agent_id: &str) -> Option<Agent> {
        self.store.find_agent("o", agent_id).await.expect("it is readable")
    }

    async fn agent_state(&self, agent_id: &str) -> AgentState {
        self.agent(agent_id).await.expect("it is registered").state
    }

    async fn events(&self) -> Vec<LoggedEvent> {
        self.store.events_after(0, EventFilter::default(), 1000).await.expect("it is readable").events
    }

    async fn budget(&self, nanos: i64) {
        self.store.set_budget(&account(), nanos).await.expect("it is writable");
    }

    async fn held(&self) -> i128 {
        let budgets = self.store.budgets(Some(&account())).await.expect("it is readable");
        budgets[0].1.held
    }

    fn sql(&self, statement: &str) {
        let connection = rusqlite::Connection::open(self.directory.path().join("sluice.db")).expect("it is there");
        connection.execute_batch(statement).expect(statement);
    }
}

fn account() -> Account {
    "acct".parse().expect("a name")
}

fn id(text: &str) -> RunId {
    text.parse().expect("an id")
}

fn reopening(next: NextAttempt) -> Reopening {
    Reopening { next, queued_max: 1000, idempotency: None }
}

fn failed(code: &str) -> SandboxVerdict {
    SandboxVerdict::Failed { code: code.to_owned(), message: None }
}

fn moved(target: AgentState) -> TransitionRequest {
    TransitionRequest { target, observed: None, expected_generation: None, is_explicit: true, by_admin: false }
}
