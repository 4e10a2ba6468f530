//! Files as the sidecar writes them, record by record.

use sluice_contract::chain::{Chain, close_line, line};
use sluice_contract::record::{
    CallResult, Certificate, Close, Control, ControlCount, ControlValues, CostSource, End, Epoch, Held, Intent,
    MessageDigest, MessageDigests, NullReason, Open, OptionalText, OptionalTexts, Outcome, Peer, Recovered, Refused,
    RelayCounts, ReleaseDecision, Released, RunLimits, SCHEMA, Timing, TokenCount, Usage,
};
use sluice_contract::{AuditLog, Hash, PrivateKey, PublicKey, Totals, Usd};

/// A file that grows line by line.
#[derive(Debug, Clone, Default)]
pub(crate) struct File {
    pub(crate) bytes: Vec<u8>,
    chain: Chain,
    totals: Totals,
    open: Vec<(u64, String)>,
    abandoned: u64,
    /// True if outcomes and refusals name the account, and outcomes the model.
    is_named: bool,
    /// Cost of each answered call, if it is not the usual one.
    price: Option<&'static str>,
    relay: Option<RelayCounts>,
}

/// The key that golden files are signed with.
pub(crate) fn key() -> PrivateKey {
    PrivateKey::from_seed(&[42; 32])
}

/// Public half of the key.
pub(crate) fn public() -> PublicKey {
    key().public()
}

/// The key of one run.
pub(crate) fn run_key() -> PrivateKey {
    PrivateKey::from_seed(&[43; 32])
}

fn ts(seq: u64) -> String {
    format!("2026-01-01T00:00:{seq:02}.000{seq:03}Z")
}

/// Builds a record, with the members that every record has, from the end of the file.
macro_rules! record {
    ($file:ident, $kind:ident { $($member:ident $(: $value:expr)?),* $(,)? }) => {{
        let (seq, prev) = ($file.chain.seq, $file.chain.prev.to_string());
        $kind { attempt: 0, kind: $kind::KIND.into(), prev: prev.into(), run_id: "run-1".into(), seq, ts: ts(seq).into(), v: SCHEMA,
            $($member $(: $value)?),* }
    }};
}

impl File {
    pub(crate) fn opened() -> Self {
        let mut file = Self::default();
        let record = record!(
            file,
            Open {
                billing_account_id: "acct-1".into(),
                boot_id: "4a3c2b10-0000-4000-8000-000000000001".into(),
                build: "0123456789ab".into(),
                graph_id: "sandbox:agent".into(),
                limits: RunLimits {
                    max_body: 1 << 25,
                    max_concurrency: 64,
                    max_cost_usd: Some("0.5".to_owned()),
                    ..RunLimits::default()
                },
                pid: 4321,
                policy: format!("sha256:{}", Hash::of(b"policy")).into(),
                proxy_version: "0.1.0".into(),
                sync: "call".into(),
                upstream: "http://127.0.0.1:4000".into(),
            }
        );
        file.push(&line(&record));
        file
    }

    /// From here on, outcomes and refusals name the account, and outcomes also name the model.
    pub(crate) fn named(self) -> Self {
        Self { is_named: true, ..self }
    }

    /// From here on, each answered call costs this many dollars.
    pub(crate) fn priced(self, price: &'static str) -> Self {
        Self { price: Some(price), ..self }
    }

    fn account(&self) -> Option<OptionalText<'static>> {
        self.is_named.then(|| OptionalText("acct-1".into()))
    }

    pub(crate) fn torn_in_open() -> Self {
        Self { bytes: b"{\"attempt\":0,\"bill".to_vec(), ..Self::default() }
    }

    pub(crate) fn push(&mut self, line: &[u8]) {
        self.chain.push(line);
        self.bytes.extend_from_slice(line);
    }

    pub(crate) fn intent(self, stream: bool) -> Self {
        self.intent_with(stream, None, None)
    }

    /// An intent of a run with caps, whose bound the sidecar has lowered.
    pub(crate) fn bounded(self) -> Self {
        self.intent_with(false, Some(2048), None)
    }

    /// An intent of a call to which the sidecar has added messages.
    pub(crate) fn injected(self, ids: &[&'static str]) -> Self {
        self.intent_with(true, None, Some(OptionalTexts(ids.iter().map(|id| (*id).into()).collect())))
    }

    fn intent_with(
        mut self,
        stream: bool,
        bound: Option<u64>,
        injected_message_ids: Option<OptionalTexts<'static>>,
    ) -> Self {
        self.totals.calls += 1;
        let call = self.totals.calls;
        let call_id = format!("00000000-0000-4000-8000-{call:012}");
        let record = record!(
            self,
            Intent {
                bound: bound.map(TokenCount),
                call,
                call_id: call_id.clone().into(),
                injected_message_ids,
                method: "POST".into(),
                model: Some("gpt-4o-mini".into()),
                path: "/v1/chat/completions".into(),
                peer: Peer { pid: Some(77), uid: 1001 },
                req_bytes: 120,
                reserved_strict: bound.map(|_| true),
                reserved_tokens: bound.map(|bound| TokenCount(bound + 120)),
                reserved_usd: Some("0.001".into()),
                stream,
                stripped: vec!["authorization".into(), "user".into(), "w\u{e9}ird \"n\u{1}me\"".into()],
            }
        );
        self.open.push((call, call_id));
        self.push(&line(&record));
        self
    }

    /// The outcome of the oldest open call.
    pub(crate) fn outcome(self, result: CallResult) -> Self {
        self.outcome_with(result, None)
    }

    /// The outcome of a call that found no connection.
    pub(crate) fn unconnected(self) -> Self {
        self.outcome_with(
            CallResult::UpstreamError,
            Some(("tls", "received corrupt message of type InvalidContentType")),
        )
    }

    fn outcome_with(mut self, result: CallResult, connect_error: Option<(&'static str, &'static str)>) -> Self {
        let (call, call_id) = self.open.remove(0);
        let (is_ok, is_sent) = (result == CallResult::Ok, connect_error.is_none());
        let usage = is_ok.then_some(Usage { input: Some(11), output: Some(7), total: Some(18), ..Usage::default() });
        let cost = is_ok.then(|| Usd::parse(self.price.unwrap_or("0.00000585")).expect("an amount"));
        let unsent = connect_error.map(|_| NullReason::NotSent);
        let null_reason = unsent.or((!is_ok).then_some(NullReason::Cut));
        self.totals.add(cost.as_ref().map(Usd::to_nanos), null_reason, usage.as_ref());
        let record = record!(
            self,
            Outcome {
                account: self.account(),
                budget_limit_usd: None,
                budget_of: None,
                budget_spent_usd: None,
                call,
                cache_hit: None,
                call_id: call_id.clone().into(),
                connect_detail: connect_error.map(|(_, detail)| OptionalText(detail.into())),
                connect_error: connect_error.map(|(word, _)| OptionalText(word.into())),
                cost_source: if is_ok { CostSource::Header } else { CostSource::None },
                cost_usd: cost.map(|cost| cost.to_string().into()),
                drained: (result == CallResult::ClientAbort).then_some(true),
                end: match (is_ok, is_sent) {
                    _ if result == CallResult::Interrupted => End::CutByLimit,
                    (true, _) => End::Complete,
                    (false, true) => End::CutByClient,
                    (false, false) => End::CutByUpstream,
                },
                litellm_call_id: is_sent.then(|| call_id.into()),
                model: self.is_named.then(|| OptionalText("gpt-4o-mini".into())),
                model_served: is_sent.then(|| "gpt-4o-mini-2024-07-18".into()),
                null_reason,
                resp_bytes: if is_sent { 512 } else { 0 },
                response_id: is_sent.then(|| "chatcmpl-1".into()),
                result,
                status: is_sent.then_some(200),
                timing_us: Timing {
                    connect: None,
                    first_token: Some(9000),
                    longest_gap: Some(400),
                    own: 90,
                    queue: 310,
                    total: 9100,
                    ttfb: Some(8000)
                },
                usage,
            }
        );
        self.push(&line(&record));
        self
    }

    pub(crate) fn refused(mut self) -> Self {
        self.totals.refused += 1;
        let record = record!(
            self,
            Refused {
                account: self.account(),
                method: "GET".into(),
                model: None,
                param: None,
                path: "/v1/files".into(),
                reason: "route_not_allowed".into(),
                status: 404,
                tool: None,
            }
        );
        self.push(&line(&record));
        self
    }

    /// A refusal that names the requested model, parameter and tool.
    pub(crate) fn refused_for(mut self, reason: &str, model: &str, param: &str, tool: Option<&str>) -> Self {
        self.totals.refused += 1;
        let record = record!(
            self,
            Refused {
                account: self.account(),
                method: "POST".into(),
                model: Some(OptionalText(model.to_owned().into())),
                param: Some(OptionalText(param.to_owned().into())),
                path: "/v1/responses".into(),
                reason: reason.to_owned().into(),
                status: 400,
                tool: tool.map(|tool| OptionalText(tool.to_owned().into())),
            }
        );
        self.push(&line(&record));
        self
    }

    /// The operator raises caps, and stops and restarts the clock of the deadline.
    pub(crate) fn controlled(self) -> Self {
        let count = |count| Some(ControlCount(count));
        let from = ControlValues { deadline_s: count(600), max_calls: count(10), ..ControlValues::default() };
        let to = ControlValues { deadline_s: count(900), max_calls: count(20), ..ControlValues::default() };
        let stopped = |stopped| ControlValues { stopped: Some(stopped), ..ControlValues::default() };
        self.control("caps", Some("alice"), Some("a w\u{e9}ird \"long\" test"), from, to)
            .control("clock", None, None, stopped(false), stopped(true))
            .control("clock", Some("bob"), Some(""), stopped(true), stopped(false))
    }

    /// The operator gives the agent two messages, withdraws one, and ends two calls.
    pub(crate) fn conversed(self) -> Self {
        let messages = |ids: &[&'static str]| ControlValues {
            messages: Some(MessageDigests(
                ids.iter()
                    .map(|id| MessageDigest {
                        message_id: (*id).into(),
                        sha256: Hash::of(id.as_bytes()).to_hex().into(),
                    })
                    .collect(),
            )),
            ..ControlValues::default()
        };
        let open = |count| ControlValues { open_calls: Some(ControlCount(count)), ..ControlValues::default() };
        self.control("inject", Some("alice"), None, ControlValues::default(), messages(&["msg-1", "msg-2"]))
            .control("inject", None, None, messages(&["msg-2"]), ControlValues::default())
            .control("interrupt", Some("alice"), Some("wrong file"), open(2), open(0))
    }

    fn control(
        mut self,
        what: &'static str,
        by: Option<&'static str>,
        reason: Option<&'static str>,
        from: ControlValues<'static>,
        to: ControlValues<'static>,
    ) -> Self {
        let text = |text: &'static str| OptionalText(text.into());
        let record = record!(self, Control { by: by.map(text), from, reason: reason.map(text), to, what: what.into() });
        self.push(&line(&record));
        self
    }

    /// A request waits at a cap, or for the end of a pause.
    pub(crate) fn held(mut self, hold_id: &'static str, cap: &'static str, asked: Option<&'static str>) -> Self {
        let asked = asked.map(|asked| OptionalText(asked.into()));
        let record = record!(self, Held { asked, cap: cap.into(), hold_id: hold_id.into(), max_wait_s: 240 });
        self.push(&line(&record));
        self
    }

    /// The request no longer waits.
    pub(crate) fn released(mut self, hold_id: &'static str, decision: ReleaseDecision, by: &'static str) -> Self {
        let record = record!(self, Released { by: by.into(), decision, hold_id: hold_id.into(), waited_ms: 61_250 });
        self.push(&line(&record));
        self
    }

    /// The operator decides on a held call, and pauses the run.
    pub(crate) fn decided(self, hold_id: &'static str, decision: &'static str) -> Self {
        let text = |text: &'static str| Some(OptionalText(text.into()));
        let to = ControlValues { decision: text(decision), hold_id: text(hold_id), ..ControlValues::default() };
        let paused = |paused| ControlValues { paused: Some(paused), ..ControlValues::default() };
        self.control("hold", Some("alice"), Some("too dear"), ControlValues::default(), to).control(
            "pause",
            Some("alice"),
            Some("a look"),
            paused(false),
            paused(true),
        )
    }

    /// The sandbox has asked the controller for something.
    pub(crate) fn relayed(self) -> Self {
        Self { relay: Some(RelayCounts { refused: 3, requests: 41 }), ..self }
    }

    /// Part of a line, as a dying writer leaves it.
    pub(crate) fn torn(mut self) -> Self {
        let whole = self.bytes.len();
        let next = self.clone().intent(false);
        self.bytes.extend_from_slice(&next.bytes[whole..whole + 100]);
        self
    }

    /// Effects of a restart.
    pub(crate) fn restarted(mut self) -> Self {
        let keep = self.bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        let tail = self.bytes.split_off(keep);
        if keep == 0 {
            self = Self::opened();
        }
        // Open calls never get an outcome.
        self.abandoned += self.open.len() as u64;
        self.open.clear();
        let open: Vec<_> = AuditLog::read(&self.bytes).expect("whole lines").0.open_ids().map(str::to_owned).collect();
        if !tail.is_empty() || !open.is_empty() {
            let record = record!(
                self,
                Recovered {
                    bytes: tail.len() as u64,
                    offset: keep as u64,
                    open_calls: open.into_iter().map(Into::into).collect(),
                    sha256: Hash::of(&tail).to_string().into(),
                }
            );
            self.push(&line(&record));
        }
        if keep > 0 {
            let record = record!(
                self,
                Epoch {
                    boot_id: "4a3c2b10-0000-4000-8000-000000000002".into(),
                    build: "0123456789ab".into(),
                    pid: 4400,
                    policy: format!("sha256:{}", Hash::of(b"policy")).into(),
                    sync: "call".into(),
                    upstream: "http://127.0.0.1:4000".into(),
                }
            );
            self.push(&line(&record));
        }
        self
    }

    /// A kind and a member that this build does not know.
    pub(crate) fn news(mut self) -> Self {
        let Chain { seq, prev } = self.chain;
        let ts = ts(seq);
        let text = format!(
            "{{\"attempt\":0,\"kind\":\"news\",\"later\":[1,{{\"a\":null}}],\"prev\":\"{prev}\",\"run_id\":\"run-1\",\"seq\":{seq},\"ts\":\"{ts}\",\"v\":1}}\n"
        );
        self.push(text.as_bytes());
        self
    }

    pub(crate) fn closed(self, key: Option<&PrivateKey>) -> Self {
        self.closed_with(key, None)
    }

    /// Closes the file with a signature by the key of this run, which the golden key has certified.
    pub(crate) fn certified(self) -> Self {
        let run_key = run_key();
        let certificate = key().certify("run-1", 0, &run_key.public());
        self.closed_with(Some(&run_key), Some(certificate))
    }

    pub(crate) fn closed_with(mut self, key: Option<&PrivateKey>, certificate: Option<Certificate<'static>>) -> Self {
        let record = record!(
            self,
            Close {
                calls: self.totals.calls,
                certificate,
                cost_usd: self.totals.cost().to_string().into(),
                head: "".into(),
                key_id: None,
                reason: "sigterm".into(),
                refused: self.totals.refused,
                relay: self.relay,
                signature: None,
                unknown: self.totals.unknown + self.abandoned + self.open.len() as u64,
                usage: self.totals.usage,
            }
        );
        self.push(&close_line(record, key));
        self
    }

    pub(crate) fn has_open(&self) -> bool {
        !self.open.is_empty()
    }

    pub(crate) fn lines(&self) -> Vec<&[u8]> {
        self.bytes.split_inclusive(|byte| *byte == b'\n').collect()
    }
}
