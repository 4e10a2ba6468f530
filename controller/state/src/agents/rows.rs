//! Agents in the database.

use rusqlite::{Connection, OptionalExtension, Row, Transaction, TransactionBehavior, params};

use super::{Agent, AgentError, AgentState, AgentTransition, NewAgent, TransitionRequest, decide};
use crate::store::{Parameters, Store, all_of, now_us};

/// Result of a registration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Registered {
    /// The agent is new.
    Created(Agent),
    /// The owner had an agent of this id. It is unchanged.
    Existing(Agent),
}

/// A heartbeat of an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Heartbeat {
    /// Owner of the agent.
    pub owner: String,
    /// The agent.
    pub agent_id: String,
    /// Time in microseconds since 1970.
    pub time_us: i64,
}

const COLUMNS: &str = "owner, agent_id, name, zone_id, billing_account_id, allow_sandbox, grants, state, generation, \
                       suspended_by_admin, last_heartbeat_us, metadata, ephemeral, created_us, updated_us";
/// The first state and generation of an agent, as columns.
const NEW: AgentTransition = AgentTransition { state: AgentState::Unknown, generation: 0, suspended_by_admin: false };
const LIVE_RUN: &str = "SELECT run_id FROM sandboxes WHERE owner = ?1 AND agent_id = ?2 AND ended_us IS NULL";

impl Store {
    /// Registers an agent, or returns the owner's existing one.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn register_agent(&self, agent: NewAgent) -> Result<Registered, AgentError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            if let Some(known) = find(&transaction, &agent.owner, &agent.agent_id)? {
                return Ok(Registered::Existing(known));
            }
            insert(&transaction, &agent, NEW, false)?;
            let created = found(&transaction, &agent.owner, &agent.agent_id)?;
            transaction.commit()?;
            Ok(Registered::Created(created))
        })
        .await
    }

    /// Returns an agent of an owner.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn find_agent(&self, owner: &str, agent_id: &str) -> Result<Option<Agent>, AgentError> {
        let (owner, agent_id) = (owner.to_owned(), agent_id.to_owned());
        self.query(move |connection| Ok(find(connection, &owner, &agent_id)?)).await
    }

    /// Returns agents in the order of their owners and ids: of one owner or of all, after a cursor, at most `limit`.
    /// Agents of single runs are left out.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn list_agents(
        &self,
        owner: Option<&str>,
        after: Option<(String, String)>,
        limit: u32,
    ) -> Result<Vec<Agent>, AgentError> {
        let owner = owner.map(str::to_owned);
        self.query(move |connection| {
            let mut parameters = Parameters::default();
            let mut conditions = vec!["ephemeral = 0".to_owned()];
            if let Some(owner) = owner {
                conditions.push(format!("owner = {}", parameters.bind(owner)));
            }
            if let Some((owner, agent_id)) = after {
                let (owner, agent_id) = (parameters.bind(owner), parameters.bind(agent_id));
                conditions.push(format!("(owner, agent_id) > ({owner}, {agent_id})"));
            }
            let conditions = all_of(&conditions);
            let query =
                format!("SELECT {COLUMNS} FROM agents WHERE {conditions} ORDER BY owner, agent_id LIMIT {limit}");
            Ok(parameters.rows(connection, &query, agent)?)
        })
        .await
    }

    /// Moves an agent to another state. Of several callers that have seen the same state and generation, one succeeds.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::Transition`], and [`AgentError::HasLiveRun`] for a move to IDLE while the
    /// agent has a run.
    pub async fn transition_agent(
        &self,
        owner: &str,
        agent_id: &str,
        request: TransitionRequest,
    ) -> Result<Agent, AgentError> {
        let (owner, agent_id) = (owner.to_owned(), agent_id.to_owned());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let agent = found(&transaction, &owner, &agent_id)?;
            let next = decide(agent.moves(), request)?;
            if next.state == AgentState::Idle {
                check_no_live_run(&transaction, &agent)?;
            }
            let moved = swap(&transaction, &agent, next)?;
            transaction.commit()?;
            Ok(moved)
        })
        .await
    }

    /// Deletes an agent.
    ///
    /// # Errors
    /// [`AgentError::NotFound`], [`AgentError::Connected`], [`AgentError::HasLiveRun`].
    pub async fn delete_agent(&self, owner: &str, agent_id: &str) -> Result<(), AgentError> {
        let (owner, agent_id) = (owner.to_owned(), agent_id.to_owned());
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let agent = found(&transaction, &owner, &agent_id)?;
            if agent.state == AgentState::Connected {
                return Err(AgentError::Connected(agent_id));
            }
            check_no_live_run(&transaction, &agent)?;
            transaction.execute("DELETE FROM agents WHERE owner = ?1 AND agent_id = ?2", params![owner, agent_id])?;
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Records heartbeats in one transaction. A heartbeat older than the recorded one, or whose agent no longer exists,
    /// changes nothing.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn record_heartbeats(&self, heartbeats: Vec<Heartbeat>) -> Result<(), AgentError> {
        self.write(move |connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            for Heartbeat { owner, agent_id, time_us } in heartbeats {
                transaction
                    .prepare_cached(
                        "UPDATE agents SET last_heartbeat_us = ?3
                         WHERE owner = ?1 AND agent_id = ?2 AND coalesce(last_heartbeat_us, 0) < ?3",
                    )?
                    .execute(params![owner, agent_id, time_us])?;
            }
            Ok(transaction.commit()?)
        })
        .await
    }

    /// Moves agents that are CONNECTED and have no live run to IDLE, and returns them.
    ///
    /// # Errors
    /// Errors of SQLite.
    pub async fn idle_agents_without_runs(&self) -> Result<Vec<Agent>, AgentError> {
        self.write(|connection| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let left: Vec<Agent> = transaction
                .prepare_cached(&format!(
                    "SELECT {COLUMNS} FROM agents WHERE state = 'CONNECTED' AND NOT EXISTS (
                         SELECT 1 FROM sandboxes
                         WHERE sandboxes.owner = agents.owner AND sandboxes.agent_id = agents.agent_id AND ended_us IS NULL)"
                ))?
                .query_map([], agent)?
                .collect::<Result<_, _>>()?;
            let mut moved = Vec::with_capacity(left.len());
            for agent in &left {
                moved.push(swap(&transaction, agent, decide(agent.moves(), implicit(AgentState::Idle))?)?);
            }
            transaction.commit()?;
            Ok(moved)
        })
        .await
    }
}

/// Connects an agent for a new run, in the transaction of the run's creation. An agent that a person has connected accepts
/// a run too, as long as it has none.
pub(crate) fn connect(transaction: &Transaction<'_>, owner: &str, agent_id: &str) -> Result<Agent, AgentError> {
    let agent = found(transaction, owner, agent_id)?;
    if !agent.allow_sandbox {
        return Err(AgentError::NotAllowed(agent.agent_id));
    }
    if agent.state == AgentState::Suspended {
        return Err(AgentError::Suspended(agent.agent_id));
    }
    check_no_live_run(transaction, &agent)?;
    let next = decide(agent.moves(), implicit(AgentState::Connected))?;
    Ok(swap(transaction, &agent, next)?)
}

/// Adds the agent of a single run, which is CONNECTED from the beginning.
pub(crate) fn create_ephemeral(transaction: &Transaction<'_>, agent: &NewAgent) -> Result<Agent, AgentError> {
    let connected = decide(NEW, implicit(AgentState::Connected))?;
    insert(transaction, agent, connected, true)?;
    found(transaction, &agent.owner, &agent.agent_id)
}

/// Releases the agent of a run that has ended: it becomes IDLE, or is removed with its run. A suspension stays.
pub(crate) fn release(transaction: &Transaction<'_>, owner: &str, agent_id: &str) -> Result<(), AgentError> {
    let Some(agent) = find(transaction, owner, agent_id)? else { return Ok(()) };
    if agent.ephemeral {
        transaction.execute("DELETE FROM agents WHERE owner = ?1 AND agent_id = ?2", params![owner, agent_id])?;
    } else if agent.state == AgentState::Connected {
        swap(transaction, &agent, decide(agent.moves(), implicit(AgentState::Idle))?)?;
    }
    Ok(())
}

fn implicit(target: AgentState) -> TransitionRequest {
    TransitionRequest { target, observed: None, expected_generation: None, is_explicit: false, by_admin: false }
}

/// Writes a move of an agent that was read in this transaction.
fn swap(transaction: &Transaction<'_>, agent: &Agent, next: AgentTransition) -> rusqlite::Result<Agent> {
    let updated_us = now_us();
    transaction.execute(
        "UPDATE agents SET state = ?3, generation = ?4, suspended_by_admin = ?5, updated_us = ?6
         WHERE owner = ?1 AND agent_id = ?2",
        params![
            agent.owner,
            agent.agent_id,
            next.state.as_str(),
            next.generation.cast_signed(),
            next.suspended_by_admin,
            updated_us,
        ],
    )?;
    let AgentTransition { state, generation, suspended_by_admin } = next;
    Ok(Agent { state, generation, suspended_by_admin, updated_us, ..agent.clone() })
}

fn insert(
    transaction: &Transaction<'_>,
    agent: &NewAgent,
    first: AgentTransition,
    ephemeral: bool,
) -> rusqlite::Result<()> {
    transaction.execute(
        "INSERT INTO agents (owner, agent_id, name, zone_id, billing_account_id, allow_sandbox, grants, state, generation,
                             metadata, ephemeral, created_us, updated_us)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12)",
        params![
            agent.owner,
            agent.agent_id,
            agent.name,
            agent.zone_id,
            agent.billing_account_id,
            agent.allow_sandbox,
            agent.grants,
            first.state.as_str(),
            first.generation.cast_signed(),
            agent.metadata,
            ephemeral,
            now_us(),
        ],
    )?;
    Ok(())
}

/// Refuses an agent that has a live run, with the id of the run.
fn check_no_live_run(connection: &Connection, agent: &Agent) -> Result<(), AgentError> {
    let mut query = connection.prepare_cached(LIVE_RUN)?;
    let run: Option<String> = query.query_row(params![agent.owner, agent.agent_id], |row| row.get(0)).optional()?;
    match run {
        Some(run) => Err(AgentError::HasLiveRun { agent: agent.agent_id.clone(), run }),
        None => Ok(()),
    }
}

fn found(connection: &Connection, owner: &str, agent_id: &str) -> Result<Agent, AgentError> {
    find(connection, owner, agent_id)?.ok_or_else(|| AgentError::NotFound(agent_id.to_owned()))
}

fn find(connection: &Connection, owner: &str, agent_id: &str) -> rusqlite::Result<Option<Agent>> {
    let query = format!("SELECT {COLUMNS} FROM agents WHERE owner = ?1 AND agent_id = ?2");
    connection.prepare_cached(&query)?.query_row(params![owner, agent_id], agent).optional()
}

fn agent(row: &Row<'_>) -> rusqlite::Result<Agent> {
    let state: String = row.get(7)?;
    Ok(Agent {
        owner: row.get(0)?,
        agent_id: row.get(1)?,
        name: row.get(2)?,
        zone_id: row.get(3)?,
        billing_account_id: row.get(4)?,
        allow_sandbox: row.get(5)?,
        grants: row.get(6)?,
        state: AgentState::of(&state).expect("the column has no other word"),
        generation: row.get::<_, i64>(8)?.unsigned_abs(),
        suspended_by_admin: row.get(9)?,
        last_heartbeat_us: row.get(10)?,
        metadata: row.get(11)?,
        ephemeral: row.get(12)?,
        created_us: row.get(13)?,
        updated_us: row.get(14)?,
    })
}

impl Agent {
    fn moves(&self) -> AgentTransition {
        let Self { state, generation, suspended_by_admin, .. } = *self;
        AgentTransition { state, generation, suspended_by_admin }
    }
}
