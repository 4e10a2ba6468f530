//! A scripted spend log of LiteLLM: rows of the calls that a scripted upstream has answered, which a test can alter,
//! and `GET /spend/logs/v2` over them.
//!
//! [`ScriptedSpendLog::upstream`] is both the upstream of a sidecar and the spend log, as LiteLLM is.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use crate::Upstream;
use crate::upstream::answers::COST;
use crate::upstream::{ReceivedRequest, Script, UpstreamPlan};

/// A spend log that a test can alter; clones are the same one.
#[derive(Debug, Clone, Default)]
pub struct ScriptedSpendLog(Arc<Mutex<State>>);

#[derive(Debug, Default)]
struct State {
    rows: Vec<Value>,
    asked: Vec<SpendQuery>,
    /// Answers to the next queries, in place of the rows.
    next: VecDeque<Script>,
    /// Rows that are added with each query.
    arriving: Vec<Value>,
    hidden: bool,
    everybody: bool,
    cap: Option<usize>,
}

/// One query.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like the parameters")]
pub struct SpendQuery {
    pub start_date: String,
    pub end_date: String,
    pub end_user: String,
    pub page: usize,
    pub page_size: usize,
    pub authorization: String,
}

impl ScriptedSpendLog {
    /// Makes an empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// An upstream that answers every call like a provider behind LiteLLM, and bills it.
    pub fn upstream(&self) -> UpstreamPlan {
        self.upstream_with(Script::provider("hello"))
    }

    /// Like [`Self::upstream`], with another answer to calls.
    pub fn upstream_with(&self, script: Script) -> UpstreamPlan {
        let log = self.clone();
        Upstream::with(move |request| {
            if request.target.starts_with("/spend/logs/v2?") {
                return log.answer(request);
            }
            log.bill(request);
            script.clone()
        })
    }

    /// The rows, in the order of their calls.
    pub fn rows(&self) -> Vec<Value> {
        self.lock().rows.clone()
    }

    /// Alters the rows.
    pub fn edit(&self, edit: impl FnOnce(&mut Vec<Value>)) {
        edit(&mut self.lock().rows);
    }

    /// Answers the next queries by these scripts.
    pub fn next(&self, scripts: impl IntoIterator<Item = Script>) {
        self.lock().next.extend(scripts);
    }

    /// Hides all rows or shows them again, like LiteLLM's late writes.
    pub fn hide(&self, hidden: bool) {
        self.lock().hidden = hidden;
    }

    /// Ignores the account in queries.
    pub fn show_everybody(&self) {
        self.lock().everybody = true;
    }

    /// Limits the reported total to this number.
    pub fn cap(&self, rows: usize) {
        self.lock().cap = Some(rows);
    }

    /// Adds one of these rows with each further query.
    pub fn arrive(&self, rows: Vec<Value>) {
        self.lock().arriving = rows;
    }

    /// All queries so far.
    pub fn asked(&self) -> Vec<SpendQuery> {
        self.lock().asked.clone()
    }

    /// Waits until there were `times` queries.
    pub async fn asked_times(&self, times: usize) {
        let there = crate::poll(crate::PATIENCE, async || self.lock().asked.len() >= times).await;
        assert!(there, "asked {} times, not {times}", self.lock().asked.len());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds the row of a call in the format of LiteLLM 1.106, except for a call that LiteLLM does not bill.
    fn bill(&self, request: &ReceivedRequest) {
        let target = request.target.as_str();
        if request.method != "POST" || target.ends_with("count_tokens") {
            return;
        }
        let ours = request.header_json("x-litellm-spend-logs-metadata");
        let account = request.header("x-litellm-end-user-id").unwrap_or_default();
        let output = if target.ends_with("embeddings") { 0 } else { 5 };
        let call_id = request.header("x-litellm-call-id").unwrap_or_default();
        let mut state = self.lock();
        let id = format!("row-{}", state.rows.len());
        state.rows.push(row(&id, account, call_id, &ours, output));
    }

    fn answer(&self, request: &ReceivedRequest) -> Script {
        let question = SpendQuery::of(request);
        let mut state = self.lock();
        state.asked.push(question.clone());
        let arrived = state.arriving.pop();
        state.rows.extend(arrived);
        if let Some(script) = state.next.pop_front() {
            return script;
        }
        let wanted = |row: &&Value| {
            let time = row["startTime"].as_str().unwrap_or_default().replace('T', " ");
            let second = time.get(..19).unwrap_or_default();
            let is_before_end = second < question.end_date.as_str()
                || (second == question.end_date && time.get(19..26) == Some(".000000"));
            (state.everybody || row["end_user"] == question.end_user.as_str())
                && second >= question.start_date.as_str()
                && is_before_end
        };
        let mut rows: Vec<&Value> = if state.hidden { Vec::new() } else { state.rows.iter().filter(wanted).collect() };
        rows.sort_by_key(|row| std::cmp::Reverse(row["startTime"].as_str().map(str::to_owned)));
        let total = rows.len().min(state.cap.unwrap_or(10_000));
        let page: Vec<_> =
            rows.iter().skip((question.page - 1) * question.page_size).take(question.page_size).collect();
        Script::json(
            200,
            json!({"data": page, "total": total, "page": question.page, "page_size": question.page_size,
                "total_pages": total.div_ceil(question.page_size), "total_is_capped": total < rows.len()}),
        )
    }
}

impl SpendQuery {
    fn of(request: &ReceivedRequest) -> Self {
        let (_, query) = request.target.split_once('?').expect("a question has a query");
        let value = |name: &str| {
            let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
            let mut values = pairs.filter(|(given, _)| *given == name).map(|(_, value)| unescaped(value));
            values.next().unwrap_or_else(|| panic!("no {name} in {query}"))
        };
        Self {
            start_date: value("start_date"),
            end_date: value("end_date"),
            end_user: value("end_user"),
            page: value("page").parse().expect("a number"),
            page_size: value("page_size").parse().expect("a number"),
            authorization: request.header("authorization").unwrap_or_default().to_owned(),
        }
    }
}

/// A row of a call that has just ended.
pub fn row(id: &str, account: &str, call_id: &str, ours: &Value, output: u64) -> Value {
    let spend: Value = serde_json::from_str(COST).expect("a number");
    let now = time(SystemTime::now());
    json!({
        "request_id": id, "call_type": "acompletion", "api_key": "litellm_proxy_master_key", "spend": spend,
        "total_tokens": 10 + output, "prompt_tokens": 10, "completion_tokens": output, "startTime": now, "endTime": now,
        "completionStartTime": now, "model": "served", "user": "default_user_id", "end_user": account,
        "metadata": {"spend_logs_metadata": ours, "litellm_call_id": call_id}, "cache_hit": "None", "status": "success",
        "litellm_call_id": call_id, "session_id": "s", "request_tags": [], "team_id": null,
    })
}

/// A row without a call of ours, `ago` in the past.
pub fn unmatched_row(id: &str, account: &str, ago: Duration) -> Value {
    let mut row = row(id, account, id, &Value::Null, 5);
    row["startTime"] = json!(time(SystemTime::now() - ago));
    row["endTime"] = row["startTime"].clone();
    row
}

/// Formats a time as LiteLLM does.
pub fn time(time: SystemTime) -> String {
    humantime::format_rfc3339_micros(time).to_string().replace('Z', "+00:00")
}

fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|byte| char::from(byte).to_digit(16)).expect("two digits");
        bytes.push(u8::try_from(digit() * 16 + digit()).expect("a byte"));
    }
    String::from_utf8(bytes).expect("UTF-8")
}
