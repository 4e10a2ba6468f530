//! The request for a run: its members, their rules, and the part that is stored.
//!
//! Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use http::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};
use sluice_contract::{RunId, RunKey};
use sluice_runs::blueprint::reserved_variable;
use sluice_state::chats::NewChat;
use utoipa::ToSchema;
use zeroize::Zeroizing;

use super::chat_turn::ChatTurnRequest;
use super::requested_limits::{Profile, RequestedLimits, limits, max_cost};
use super::requested_repository::RequestedRepository;
use crate::api::names::is_run_name;
use crate::api::quantity::Quantity;
use crate::api::state_errors::unknown_dependency;
use crate::api_error::ApiError;
use crate::identity::{RequestOrigin, RunMetadata};
use crate::mount_table::MountTable;
use crate::on_cap::CapTreatment;
use crate::run_policy::{Graph, RunPolicy};
use crate::stored_request::{StoredLimits, StoredRequest};
use crate::variable_values::Variables;

/// A request for a run. One of `task`, `messages` and `argv` is needed.
// No Debug: values of variables are secrets.
#[derive(Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SandboxRequest {
    /// A registered agent; one of its own for the run otherwise.
    pub(super) agent_id: Option<String>,
    /// Owner of the run. Admins alone.
    pub(super) owner_id: Option<String>,
    /// Name, unique among the live runs of the owner.
    name: Option<String>,
    /// One message of the user.
    task: Option<String>,
    /// OpenAI messages, in place of a task.
    #[schema(value_type = Option<Vec<Object>>)]
    messages: Option<Vec<Value>>,
    /// Program and arguments, in place of those of the graph.
    argv: Option<Vec<String>>,
    /// `sandbox:NAME`; `sandbox:agent` by default.
    graph_id: Option<String>,
    /// Model of calls that name none.
    model: Option<String>,
    /// Further models that calls may name.
    #[serde(default)]
    models: Vec<String>,
    /// Image, one of those that the host allows.
    image: Option<String>,
    /// A project of the host that the owner may use.
    pub(super) project: Option<String>,
    /// Work on the repository of the project, which is needed then.
    pub(super) repository: Option<RequestedRepository>,
    /// Environment variables, at most 64 KiB together. Their values are kept in memory alone.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Limits.
    #[serde(default)]
    limits: RequestedLimits,
    /// Sizes for what `limits` leaves out.
    #[serde(default)]
    profile: Profile,
    /// Minutes without work after which the run ends, even if its worker reports that it works; the times of the host
    /// otherwise.
    #[schema(minimum = 1, maximum = 1440)]
    ttl_minutes: Option<u32>,
    /// Cap of all attempts in dollars.
    max_cost_usd: Option<Quantity>,
    /// Treatment of a call that would exceed a cap: it is refused, or it waits for an approval.
    on_cap: Option<CapTreatment>,
    /// Runs of a higher priority begin first.
    #[schema(minimum = -100, maximum = 100)]
    #[serde(default)]
    priority: i64,
    /// Own runs that must succeed first.
    #[serde(default)]
    depends_on: Vec<String>,
    /// An own run that has ended: this one begins with its transcript, and with its workspace if that was kept.
    pub(super) resume_from: Option<String>,
    /// Keeps the workspace after the end, for `…/files` and for `resume_from` of another run.
    #[serde(default)]
    keep_workspace: bool,
    /// Labels.
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Metadata of its calls.
    metadata: Option<RunMetadata>,
    /// Failure codes that are retried besides those that always are.
    #[serde(default)]
    retry_on: Vec<String>,
    /// The chat of which it is a turn. The chat routes alone set it.
    #[serde(skip)]
    pub(super) chat: Option<NewChat>,
    /// The attempt of the chat's session whose workspace it begins with. The chat routes alone set it.
    #[serde(skip)]
    workspace_from: Option<RunKey>,
    /// Time for which the worker of the chat waits for the next turn. The chat routes alone set it.
    #[serde(skip)]
    chat_stay: Option<Duration>,
}

/// A request that was checked against the rules.
pub(super) struct CheckedRequest {
    pub(super) name: Option<String>,
    pub(super) stored: StoredRequest,
    pub(super) cap: Option<i64>,
    pub(super) priority: i64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) depends_on: BTreeSet<RunId>,
    pub(super) retry_on: Vec<String>,
    pub(super) variables: Variables,
}

const GRAPH: &str = "sandbox:agent";
const LABELS_MAX: usize = 32;
const LABEL_LENGTH: usize = 63;
const DEPENDENCIES_MAX: usize = 16;
const MODELS_MAX: usize = 32;
const ARGV_BYTES: usize = 64 << 10;
/// Maximum number of bytes of all variables of a run: their values are in memory until it ends.
const ENV_BYTES: usize = 64 << 10;
const PRIORITY_MAX: i64 = 100;
const TTL_MAX: u32 = 1440;
/// Minutes that the run of a worker may be without work beyond the time for which the worker waits.
const IDLE_MARGIN: u64 = 5;
const TEXT_MAX: usize = 255;

impl SandboxRequest {
    /// Returns the request of a turn of a chat.
    ///
    /// # Errors
    /// 422: the metadata are not valid.
    pub(super) fn of_chat(turn: ChatTurnRequest) -> Result<Self, ApiError> {
        let ChatTurnRequest { agent_id, graph_id, model, messages, metadata, chat, workspace_from, stay, .. } = turn;
        let metadata = (!metadata.is_empty()).then(|| serde_json::from_value(Value::Object(metadata))).transpose();
        let metadata = metadata.map_err(|error| ApiError::invalid("metadata", format!("metadata: {error}")))?;
        Ok(Self {
            agent_id,
            graph_id: Some(graph_id),
            model,
            messages: Some(messages),
            metadata,
            keep_workspace: chat.turn.is_some(),
            chat: Some(chat),
            workspace_from,
            chat_stay: stay,
            // The worker ends after its own idle time, and not after the idle time of a run without work.
            ttl_minutes: stay
                .map(|stay| u32::try_from(stay.as_secs() / 60 + IDLE_MARGIN).unwrap_or(TTL_MAX).min(TTL_MAX)),
            ..Self::default()
        })
    }

    /// Checks all members against their rules and the policy, and fills in defaults for missing ones.
    ///
    /// # Errors
    /// 422, with the name of the member.
    pub(super) fn check(self, policy: &RunPolicy, origin: &RequestOrigin) -> Result<CheckedRequest, ApiError> {
        if let Some(name) = &self.name
            && !is_run_name(name)
        {
            let message = "a name is 1 to 63 characters of a-z, 0-9 and . _ -, begins with a letter or a digit and not \
                           with r_, and is none of health, new, stream, wait, events";
            return Err(ApiError::invalid("name", message));
        }
        check_labels(&self.labels)?;
        if self.ttl_minutes.is_some_and(|minutes| !(1..=TTL_MAX).contains(&minutes)) {
            return Err(ApiError::invalid("ttl_minutes", "ttl_minutes is a number from 1 to 1440"));
        }
        if self.ttl_minutes.is_some() && self.limits.has_idle() {
            let message = "ttl_minutes and limits.idle are the same time; leave one of them out";
            return Err(ApiError::invalid("limits.idle", message));
        }
        if !(-PRIORITY_MAX..=PRIORITY_MAX).contains(&self.priority) {
            return Err(ApiError::invalid("priority", "priority is a number from -100 to 100"));
        }
        let (graph, image) = program(self.graph_id.as_deref(), self.image.as_deref(), self.argv.as_deref(), policy)?;
        let defaults = Defaults::of(graph, policy);
        let models = models(self.model, self.models, defaults.models)?;
        let is_single = self.argv.is_none() && graph.is_some_and(|graph| graph.takes_one_message);
        let messages = messages(self.task, self.messages, self.argv.is_some(), is_single)?;
        let stored = StoredRequest {
            graph_id: graph.map_or(GRAPH, |graph| graph.graph_id.as_str()).to_owned(),
            argv: self.argv,
            messages,
            models,
            image,
            variables: self.env.keys().cloned().collect(),
            limits: limits(&self.limits, self.profile, defaults.limits, &policy.limits_max)?,
            ttl_minutes: self.ttl_minutes,
            mounts: MountTable::default(),
            resume_from: self.workspace_from.as_ref().map(ToString::to_string),
            resumes_workspace: self.workspace_from.is_some(),
            keep_workspace: self.keep_workspace,
            repository: None,
            on_cap: self.on_cap.unwrap_or(policy.on_cap),
            is_chat: self.chat.is_some(),
            chat_stay_s: self.chat_stay.map(|stay| stay.as_secs()),
            metadata: metadata(self.metadata, origin)?,
            traceparent: origin.traceparent.clone(),
            creator: None,
        };
        Ok(CheckedRequest {
            name: self.name,
            stored,
            cap: max_cost(self.max_cost_usd.as_ref(), defaults.max_cost, policy.max_cost_max)?,
            priority: self.priority,
            labels: self.labels,
            depends_on: dependencies(&self.depends_on)?,
            retry_on: failure_codes(self.retry_on)?,
            variables: variables(self.env)?,
        })
    }
}

/// Default values for members that a request leaves out.
struct Defaults<'a> {
    models: &'a [String],
    limits: &'a StoredLimits,
    max_cost: Option<i64>,
}

impl<'a> Defaults<'a> {
    /// Returns the defaults of the program, otherwise the defaults of the host.
    fn of(graph: Option<&'a Graph>, policy: &'a RunPolicy) -> Self {
        match graph {
            Some(Graph { models, limits, max_cost, .. }) => Self { models, limits, max_cost: *max_cost },
            None => Self { models: &policy.models, limits: &policy.limits, max_cost: policy.max_cost },
        }
    }
}

fn check_labels(labels: &BTreeMap<String, String>) -> Result<(), ApiError> {
    let is_word = |text: &str| text.chars().count() <= LABEL_LENGTH && !text.contains(char::is_control);
    let is_label = |(name, value): (&String, &String)| !name.is_empty() && is_word(name) && is_word(value);
    if labels.len() <= LABELS_MAX && labels.iter().all(is_label) {
        return Ok(());
    }
    Err(ApiError::invalid("labels", "labels are at most 32 names of 1 to 63 characters, with values of at most 63"))
}

/// Returns the models, the default first.
fn models(model: Option<String>, further: Vec<String>, default: &[String]) -> Result<Vec<String>, ApiError> {
    let mut models: Vec<String> = Vec::new();
    for model in model.into_iter().chain(further) {
        let is_name = (1..=TEXT_MAX).contains(&model.len()) && model.bytes().all(|byte| byte.is_ascii_graphic());
        if !is_name {
            return Err(ApiError::invalid("model", "a model is 1 to 255 characters of visible ASCII"));
        }
        if !models.contains(&model) {
            models.push(model);
        }
    }
    if models.len() > MODELS_MAX {
        return Err(ApiError::invalid("models", "a run has at most 32 models"));
    }
    if models.is_empty() {
        models = default.to_vec();
    }
    let needed = || ApiError::invalid("model", "name a model: this host has no default one");
    if models.is_empty() { Err(needed()) } else { Ok(models) }
}

/// Returns graph and image; no graph if `argv` is given without a graph and the host has no default one.
fn program<'a>(
    graph_id: Option<&str>,
    image: Option<&str>,
    argv: Option<&[String]>,
    policy: &'a RunPolicy,
) -> Result<(Option<&'a Graph>, String), ApiError> {
    if let Some(argv) = argv {
        let bytes: usize = argv.iter().map(|argument| argument.len() + 1).sum();
        if argv.first().is_none_or(String::is_empty) || bytes > ARGV_BYTES {
            return Err(ApiError::invalid("argv", "argv is a program and its arguments, at most 64 KiB together"));
        }
    }
    let known = policy.graph(graph_id.unwrap_or(GRAPH));
    if known.is_none() && (argv.is_none() || graph_id.is_some()) {
        let message = "this host has no such program; GET /ai/agents lists those that it has, or send argv";
        let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "unknown_graph", message);
        return Err(error.with_details(json!({ "field": "graph_id" })));
    }
    let allowed = match image {
        Some(asked) => Some(policy.image(asked).ok_or_else(|| {
            let message = "this image is not in the list of this host; leave it out, or ask an admin to add it";
            let error = ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "image_not_allowed", message);
            error.with_details(json!({ "field": "image" }))
        })?),
        None => known.and_then(|graph| graph.image.as_deref()),
    };
    Ok((known, allowed.unwrap_or(&policy.default_image).to_owned()))
}

/// Returns the messages of the request.
fn messages(
    task: Option<String>,
    messages: Option<Vec<Value>>,
    has_argv: bool,
    is_single: bool,
) -> Result<Option<Vec<Value>>, ApiError> {
    let messages = match (task, messages) {
        (Some(_), Some(_)) => {
            return Err(ApiError::invalid("task", "send either task or messages; a task is one message of the user"));
        }
        (Some(task), None) if task.trim().is_empty() => {
            return Err(ApiError::invalid("task", "the task is empty; say what the agent is to do"));
        }
        (Some(task), None) => vec![json!({ "role": "user", "content": task })],
        (None, Some(messages)) => messages,
        (None, None) if has_argv => return Ok(None),
        (None, None) => {
            return Err(ApiError::invalid("task", "one of task, messages and argv is needed"));
        }
    };
    let is_message = |message: &Value| message.is_object() && message["role"].is_string();
    if messages.is_empty() || !messages.iter().all(is_message) {
        return Err(ApiError::invalid("messages", "messages is a list of objects, each with a role, and not empty"));
    }
    if is_single && (messages.len() != 1 || messages[0]["role"] != "user" || !messages[0]["content"].is_string()) {
        return Err(ApiError::invalid("messages", "this program takes exactly one message of the user; send a task"));
    }
    Ok(Some(messages))
}

fn dependencies(depends_on: &[String]) -> Result<BTreeSet<RunId>, ApiError> {
    if depends_on.len() > DEPENDENCIES_MAX {
        return Err(ApiError::invalid("depends_on", "a run depends on at most 16 others"));
    }
    depends_on.iter().map(|id| id.parse().map_err(|_| unknown_dependency())).collect()
}

fn failure_codes(codes: Vec<String>) -> Result<Vec<String>, ApiError> {
    let is_code = |code: &String| {
        (1..=LABEL_LENGTH).contains(&code.len()) && code.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
    };
    if codes.len() <= LABELS_MAX && codes.iter().all(is_code) {
        return Ok(codes);
    }
    Err(ApiError::invalid("retry_on", "retry_on is a list of at most 32 failure codes, such as container_failed"))
}

fn variables(env: BTreeMap<String, String>) -> Result<Variables, ApiError> {
    if env.iter().map(|(name, value)| name.len() + value.len() + 2).sum::<usize>() > ENV_BYTES {
        return Err(ApiError::invalid("env", "env has at most 64 KiB of names and values together"));
    }
    for name in env.keys() {
        if let Some(reason) = reserved_variable(name) {
            return Err(ApiError::invalid("env", format!("a variable of env {reason}; leave it out")));
        }
    }
    Ok(env.into_iter().map(|(name, value)| (name, Zeroizing::new(value))).collect())
}

/// Returns the metadata, with the id of the request.
fn metadata(given: Option<RunMetadata>, origin: &RequestOrigin) -> Result<RunMetadata, ApiError> {
    let given = given.unwrap_or_default().in_ascii();
    given.check().map_err(|fault| ApiError::invalid(fault.field, fault.to_string()))?;
    Ok(given.of_request(origin))
}
