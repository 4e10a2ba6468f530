//! State that handlers share.

use std::borrow::Cow;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Instant;

use axum::response::Response;
use sluice_contract::RunId;
use sluice_contract::text::error_chain;
use sluice_git::GitHome;
use sluice_state::budget::{BudgetError, BudgetLog};
use sluice_state::control_log::{ControlEntry, ControlLog};
use sluice_state::keys::Keys;
use sluice_state::layout::Layout;
use sluice_state::store::Store;
use tokio::sync::Notify;
use tokio::task::spawn_blocking;

use crate::access::Access;
use crate::api_error::{ApiError, InternalCause};
use crate::chat_followers::ChatFollowers;
use crate::chat_settings::ChatSettings;
use crate::conversations::Conversations;
use crate::event_intake::EventIntake;
use crate::execs::Execs;
use crate::heartbeats::Heartbeats;
use crate::limits::HttpLimits;
use crate::loops::Loops;
use crate::monitor::Monitor;
use crate::principal::{Principal, Role};
use crate::readiness::Readiness;
use crate::request_rate::RequestRate;
use crate::run_policy::RunPolicy;
use crate::stop_signal::StopSignal;
use crate::stored_request::StoredRequest;
use crate::stream_count::StreamCount;
use crate::variable_values::VariableValues;

/// State that handlers share.
#[derive(Debug)]
pub struct ApiContext {
    /// The state directory.
    pub layout: Layout,
    /// Database of the daemon.
    pub store: Store,
    /// Keys of the daemon.
    pub keys: Keys,
    /// Finds the principal of a request by its token or session.
    pub access: Access,
    /// The control log: records the actions of people and tokens.
    pub control: Arc<ControlLog>,
    /// Limits of requests.
    pub limits: HttpLimits,
    /// Reasons why the daemon is not ready.
    pub readiness: Readiness,
    /// State of the daemon's periodic loops.
    pub loops: Arc<Loops>,
    /// Accepts the events that runs report.
    pub events: EventIntake,
    /// Heartbeats of agents that are not in the database yet.
    pub heartbeats: Heartbeats,
    /// Conversations with agents.
    pub(crate) conversations: Conversations,
    /// Limits of runs; none if no sandboxes may be created.
    pub policy: Option<Arc<RunPolicy>>,
    /// Mirrors of repositories, and the repositories of runs.
    pub git: GitHome,
    /// Values of the environment variables of runs.
    pub variables: VariableValues,
    /// Wakes the orchestrator after a change that no event reports, such as another desired state.
    pub work: Notify,
    /// Open streams: events, output, downloads and programs.
    pub(crate) streams: Arc<StreamCount>,
    /// Requests that wait for the state of a run.
    pub(crate) waits: Arc<StreamCount>,
    /// Requests that list or write files of sandboxes.
    pub(crate) file_work: Arc<StreamCount>,
    /// Programs that clients have started in sandboxes.
    pub(crate) execs: Arc<Execs>,
    /// Runs that each owner has created lately.
    pub(crate) creations: Mutex<RequestRate<String>>,
    /// Chats that each owner has begun lately.
    pub(crate) chat_creations: Mutex<RequestRate<String>>,
    /// Open streams of chat clients.
    pub(crate) chat_streams: Arc<StreamCount>,
    /// Clients of each chat.
    pub(crate) followers: Arc<ChatFollowers>,
    /// The settings of chats.
    pub(crate) chat: ChatSettings,
    /// Operations of each owner that were recorded lately.
    pub(crate) changes: Mutex<RequestRate<String>>,
    /// Measurements of the daemon about itself.
    pub(crate) monitor: Arc<Monitor>,
    /// Signal at the stop of the daemon; streams and waits end then.
    pub stop: StopSignal,
    /// True if viewers may list and read the files of workspaces. Events and diffs are not limited.
    pub(crate) viewer_files: bool,
    /// Origins of the pages, once the daemon listens.
    pub(crate) origins: OnceLock<Vec<String>>,
    /// The operator's log.
    pub log: fn(&str),
}

/// Name of the control log in the readiness.
const CONTROL_LOG: &str = "control log";
/// Result word of a line that is written before its effect.
pub(crate) const ACCEPTED: &str = "accepted";

impl ApiContext {
    /// Records an operation before it takes effect. Returns the number of its line.
    ///
    /// # Errors
    /// 503 `audit_unavailable`; 429 for an owner that would fill the log. The operation must not be done.
    pub async fn record(&self, by: &Principal, entry: ControlEntry) -> Result<u64, ApiError> {
        if by.role != Role::Admin {
            let mut changes = self.changes.lock().unwrap_or_else(PoisonError::into_inner);
            changes.take(by.owner.clone(), Instant::now()).map_err(|wait| {
                let message = "this owner changes more than the daemon takes; wait as Retry-After says";
                ApiError::too_many("rate_limited", message, wait.as_secs() + 1)
            })?;
        }
        let entry = ControlEntry { result: ACCEPTED.to_owned(), ..by.signs(entry) };
        self.append(entry).await
    }

    /// Records that the operation of line `seq` did not take effect. Returns the error for the client: `error`, or 503
    /// `audit_unavailable` if the failure cannot be recorded.
    pub async fn record_failure(&self, by: &Principal, operation: &str, seq: u64, error: ApiError) -> ApiError {
        self.append(by.signs(failure(operation, seq, &error))).await.err().unwrap_or(error)
    }

    /// Returns the policy of a caller's runs, which depends on its account. `None` if sandboxes are switched off.
    pub(crate) fn policy_of(&self, principal: &Principal) -> Option<Cow<'_, RunPolicy>> {
        let account = principal.accounts.first().map(String::as_str);
        self.policy.as_ref().map(|policy| policy.of_account(account))
    }

    /// Records the result of a long operation: `result` is a stable word.
    ///
    /// # Errors
    /// 503 `audit_unavailable`
    pub async fn record_end(&self, by: &Principal, entry: ControlEntry, result: &str) -> Result<u64, ApiError> {
        self.append(ControlEntry { result: result.to_owned(), ..by.signs(entry) }).await
    }

    /// Records an action of the daemon itself.
    ///
    /// # Errors
    /// 503 `audit_unavailable`
    pub async fn record_own(&self, entry: ControlEntry) -> Result<u64, ApiError> {
        self.append(ControlEntry { result: ACCEPTED.to_owned(), ..own(entry) }).await
    }

    /// Records that an action of the daemon itself did not take effect, as [`Self::record_failure`] does for a person.
    pub async fn record_own_failure(&self, operation: &str, seq: u64, error: ApiError) -> ApiError {
        self.append(own(failure(operation, seq, &error))).await.err().unwrap_or(error)
    }

    /// Returns the request of a run.
    ///
    /// # Errors
    /// 404: the run does not exist.
    pub async fn stored_request(&self, run: &RunId) -> Result<StoredRequest, ApiError> {
        let text = self.store.sandbox_request(run).await?.ok_or_else(ApiError::not_found)?;
        serde_json::from_str(&text).map_err(|error| ApiError::internal(&error))
    }

    /// Checks that the budgets in the database match the budget log, as `sluice run` does: an account whose budget was
    /// lost must not spend without a limit.
    pub(crate) async fn check_budget_log(&self, account: &str) -> Result<(), ApiError> {
        let log = BudgetLog { layout: &self.layout, keys: &self.keys, store: &self.store };
        let note = log.check_admission(account).await.map_err(BudgetError::from)?;
        note.iter().for_each(|error| (self.log)(&error_chain(error)));
        Ok(())
    }

    /// Logs the cause of an internal error; the answer does not contain it.
    pub(crate) fn log_internal_cause(&self, response: &mut Response) {
        if let Some(InternalCause { id, cause }) = response.extensions_mut().remove() {
            (self.log)(&format!("internal error {id}: {cause}"));
        }
    }

    async fn append(&self, entry: ControlEntry) -> Result<u64, ApiError> {
        let control = Arc::clone(&self.control);
        // The append waits for the disk.
        let written = match spawn_blocking(move || control.append(entry)).await {
            Ok(written) => written.map_err(|error| ApiError::audit_unavailable(&error)),
            Err(error) => Err(ApiError::audit_unavailable(&error)),
        };
        if written.is_ok() {
            self.readiness.pass(CONTROL_LOG);
        } else {
            self.readiness.fail(CONTROL_LOG, "it cannot be written");
            self.monitor.count_audit_error();
        }
        written
    }
}

/// Returns the line that says that the operation of another line did not take effect.
fn failure(operation: &str, seq: u64, error: &ApiError) -> ControlEntry {
    ControlEntry {
        operation: operation.to_owned(),
        object: Some(seq.to_string()),
        result: error.code().to_owned(),
        ..ControlEntry::default()
    }
}

/// Returns a line in the name of the daemon.
fn own(entry: ControlEntry) -> ControlEntry {
    let own = || "daemon".to_owned();
    ControlEntry { principal: own(), role: own(), way: own(), ..entry }
}

impl Principal {
    fn signs(&self, entry: ControlEntry) -> ControlEntry {
        ControlEntry {
            principal: self.id.clone(),
            role: self.role.as_str().to_owned(),
            way: self.way.as_str().to_owned(),
            source: self.source.map(|address| address.to_string()),
            ..entry
        }
    }
}
