//! The lines of an audit file.
//!
//! Each record is one JSON object on one line. The members of every struct stand in the order of their
//! names, so that what serde writes is canonical (RFC 8785): keys sorted, no floats, integers below 2^53,
//! money as decimal strings. A test holds every record to that. `prev` is the SHA-256 of the line before, with
//! its newline, as 64 hex digits; zeros in the first. No prompt, completion, header value or
//! key has a place here.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::line::{Member, write_members};

/// The largest integer that every reader of JSON takes exactly.
pub const INTEGER_MAX: u64 = (1 << 53) - 1;

/// The schema that this build writes.
pub const SCHEMA: u32 = 1;

/// What every line carries, whatever its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamp<'a> {
    /// Which start of the run this file belongs to.
    pub attempt: u32,
    /// The SHA-256 of the line before.
    pub prev: String,
    /// The run.
    pub run_id: &'a str,
    /// Position in the file, from 0, without a gap.
    pub seq: u64,
    /// UTC, RFC 3339, microseconds.
    pub ts: String,
}

/// A number of tokens that stands in a line only where there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Tokens(pub u64);

impl Member for Tokens {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        self.0.min(INTEGER_MAX).write(line);
    }
}

/// A name that stands in a line only where there is one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Name<'a>(pub Cow<'a, str>);

impl Member for Name<'_> {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}

macro_rules! records {
    ($($(#[$doc:meta])* $name:ident<$life:lifetime> = $kind:literal { $($(#[$fdoc:meta])* $field:ident : $ty:ty),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
            #[allow(missing_docs, reason = "the members are their names; the ones that need words have them")]
            pub struct $name<$life> { $($(#[$fdoc])* pub $field: $ty),* }

            impl $name<'_> {
                /// The word in `kind`.
                pub const KIND: &'static str = $kind;
            }

            impl Member for $name<'_> {
                fn write(&self, line: &mut Vec<u8>) {
                    write_members!(self, line, { $($field),* });
                }
            }
        )*
    };
}

records! {
    /// The sidecar started.
    Open<'a> = "open" {
        attempt: u32,
        billing_account_id: Cow<'a, str>,
        boot_id: Cow<'a, str>,
        build: Cow<'a, str>,
        graph_id: Cow<'a, str>,
        kind: Cow<'a, str>,
        limits: Limits,
        pid: u32,
        /// Digest of the policy in force, `sha256:` and 64 hex digits.
        policy: Cow<'a, str>,
        prev: Cow<'a, str>,
        proxy_version: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// `call` or `off`: whether a line is on disk, or only in the kernel, when its call goes on.
        sync: Cow<'a, str>,
        ts: Cow<'a, str>,
        /// Origin only: scheme, host and port.
        upstream: Cow<'a, str>,
        v: u32,
    }

    /// A call is about to go upstream.
    Intent<'a> = "intent" {
        attempt: u32,
        /// Output tokens to which the sidecar held each answer, where it wrote or lowered the call's own bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        bound: Option<Tokens>,
        call: u64,
        call_id: Cow<'a, str>,
        kind: Cow<'a, str>,
        method: Cow<'a, str>,
        model: Option<Cow<'a, str>>,
        path: Cow<'a, str>,
        peer: Peer,
        prev: Cow<'a, str>,
        req_bytes: u64,
        /// Whether what was reserved is an upper bound of what the call can use; absent without caps.
        #[serde(skip_serializing_if = "Option::is_none")]
        reserved_strict: Option<bool>,
        /// Tokens reserved; absent without caps.
        #[serde(skip_serializing_if = "Option::is_none")]
        reserved_tokens: Option<Tokens>,
        reserved_usd: Option<Cow<'a, str>>,
        run_id: Cow<'a, str>,
        seq: u64,
        stream: bool,
        /// Names of headers and body members that were removed or overwritten, never values.
        stripped: Vec<Cow<'a, str>>,
        ts: Cow<'a, str>,
        v: u32,
    }

    /// A call came to its end.
    Outcome<'a> = "outcome" {
        attempt: u32,
        /// The limit of the budget that LiteLLM refused the call for. This member and the next two are left out where no
        /// budget refused the call, and in the files of older sidecars; the amounts also where LiteLLM does not give them.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_limit_usd: Option<Name<'a>>,
        /// Whose budget it is: a word of [`crate::budget`], such as `key`, `team` or `customer`.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_of: Option<Name<'a>>,
        /// What LiteLLM counts as spent of it, reservations of open calls included.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_spent_usd: Option<Name<'a>>,
        /// LiteLLM answered from its own cache: the call cost nothing, and `usage` is that of the answer in the cache.
        /// Left out where it is not known to be so, and in the files of older sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_hit: Option<bool>,
        call: u64,
        call_id: Cow<'a, str>,
        cost_source: CostSource,
        cost_usd: Option<Cow<'a, str>>,
        /// For `client_abort` only: whether the upstream was read on to its end.
        #[serde(skip_serializing_if = "Option::is_none")]
        drained: Option<bool>,
        end: End,
        kind: Cow<'a, str>,
        litellm_call_id: Option<Cow<'a, str>>,
        model_served: Option<Cow<'a, str>>,
        /// Why `usage` or `cost_usd` is null.
        null_reason: Option<NullReason>,
        prev: Cow<'a, str>,
        resp_bytes: u64,
        response_id: Option<Cow<'a, str>>,
        result: CallResult,
        run_id: Cow<'a, str>,
        seq: u64,
        /// What the upstream answered; null when it did not.
        status: Option<u16>,
        timing_us: Timing,
        ts: Cow<'a, str>,
        usage: Option<Usage>,
        v: u32,
    }

    /// A request that was not forwarded.
    Refused<'a> = "refused" {
        attempt: u32,
        kind: Cow<'a, str>,
        method: Cow<'a, str>,
        /// The model asked for, if the request named one before it was refused. This name, like `param` and `tool`, is
        /// left out where there is none, and in the files of older sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<Name<'a>>,
        /// The member of the body that the request was refused for.
        #[serde(skip_serializing_if = "Option::is_none")]
        param: Option<Name<'a>>,
        path: Cow<'a, str>,
        prev: Cow<'a, str>,
        reason: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        status: u16,
        /// The tool that the request was refused for, by its type or by its name.
        #[serde(skip_serializing_if = "Option::is_none")]
        tool: Option<Name<'a>>,
        ts: Cow<'a, str>,
        v: u32,
    }

    /// A restart found that the end of the file was torn, or calls that were open when its writer died.
    Recovered<'a> = "recovered" {
        attempt: u32,
        /// How many bytes of a torn last line were cut off, and kept aside.
        bytes: u64,
        kind: Cow<'a, str>,
        /// Where the file was cut: where its last whole line ends.
        offset: u64,
        /// The ids of the calls without an outcome, in the order of their intents: none will follow.
        open_calls: Vec<Cow<'a, str>>,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// Of what was cut off, 64 hex digits.
        sha256: Cow<'a, str>,
        ts: Cow<'a, str>,
        v: u32,
    }

    /// The sidecar was started again for the same attempt.
    Epoch<'a> = "epoch" {
        attempt: u32,
        boot_id: Cow<'a, str>,
        build: Cow<'a, str>,
        kind: Cow<'a, str>,
        pid: u32,
        /// As in `open`: what is in force from here on, as are `sync` and `upstream`.
        policy: Cow<'a, str>,
        prev: Cow<'a, str>,
        run_id: Cow<'a, str>,
        seq: u64,
        sync: Cow<'a, str>,
        ts: Cow<'a, str>,
        upstream: Cow<'a, str>,
        v: u32,
    }

    /// The orderly end of a file.
    Close<'a> = "close" {
        attempt: u32,
        calls: u64,
        /// The certificate of the key that signs, if verifiers do not trust that key directly.
        #[serde(skip_serializing_if = "Option::is_none")]
        certificate: Option<Certificate<'a>>,
        /// The sum of what is known, each call rounded to nano-USD.
        cost_usd: Cow<'a, str>,
        /// SHA-256 of this line without its members `head` and `signature`, and without its newline: with `prev`
        /// in it, it stands for the whole file.
        head: Cow<'a, str>,
        /// Whose signature it is; null when the sidecar had no key.
        key_id: Option<Cow<'a, str>>,
        kind: Cow<'a, str>,
        prev: Cow<'a, str>,
        reason: Cow<'a, str>,
        /// Requests that were not forwarded: those of the lines, and those that came when no more were written.
        refused: u64,
        run_id: Cow<'a, str>,
        seq: u64,
        /// Ed25519 over the head, 128 hex digits; null when the sidecar had no key.
        signature: Option<Cow<'a, str>>,
        ts: Cow<'a, str>,
        /// Calls whose money is not known: no cost, and not certainly none; or no outcome.
        unknown: u64,
        usage: Usage,
        v: u32,
    }
}

/// The statement of a trusted key that another key may sign the audit file of this run and attempt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate<'a> {
    /// Id of the trusted key.
    pub key_id: Cow<'a, str>,
    /// The certified key, 64 hex digits; the `key_id` of `close` is its id.
    pub public_key: Cow<'a, str>,
    /// Ed25519 signature of the trusted key over the statement, 128 hex digits.
    pub signature: Cow<'a, str>,
}

impl Member for Certificate<'_> {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { key_id, public_key, signature });
    }
}

/// The limits that the run was started with; null is unlimited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the flags")]
pub struct Limits {
    pub deadline_s: Option<u64>,
    pub max_body: u64,
    pub max_calls: Option<u64>,
    pub max_concurrency: u64,
    pub max_cost_usd: Option<String>,
    /// Left out if there is no limit, and in the files of older sidecars.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<Bytes>,
    pub max_tokens: Option<u64>,
    pub rate_per_s: Option<u64>,
}

impl Member for Limits {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, {
            deadline_s, max_body, max_calls, max_concurrency, max_cost_usd, max_memory, max_tokens, rate_per_s,
        });
    }
}

/// Bytes of memory, in a member that is left out where there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Bytes(pub u64);

impl Member for Bytes {
    const LEFT_OUT: bool = true;

    fn write(&self, line: &mut Vec<u8>) {
        self.0.write(line);
    }
}

/// The process at the other end of the socket, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the fields of SO_PEERCRED")]
pub struct Peer {
    pub pid: Option<i32>,
    pub uid: u32,
}

impl Member for Peer {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { pid, uid });
    }
}

/// Tokens as the provider counted them; what it did not say is null.
///
/// `input` is all input: fresh tokens, tokens read from a prompt cache (`cached_input`) and tokens written to one
/// (`cache_write`); `output` has the tokens of `reasoning`. Earlier sidecars wrote the Messages API's own counts: in their
/// files `total` is null on that route, and `input` leaves out both cached classes. So a null `total` beside other counts
/// tells the two apart, and [`Usage::inclusive`] reads both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the provider's fields")]
pub struct Usage {
    pub cache_write: Option<u64>,
    pub cached_input: Option<u64>,
    pub input: Option<u64>,
    pub output: Option<u64>,
    pub reasoning: Option<u64>,
    pub total: Option<u64>,
}

impl Usage {
    /// Whether the provider counted anything at all: a usage of zeros is a placeholder.
    #[must_use]
    pub fn any(&self) -> bool {
        let classes = [self.input, self.output, self.total, self.cached_input, self.cache_write, self.reasoning];
        classes.into_iter().flatten().any(|tokens| tokens > 0)
    }

    /// Returns these tokens with `input` as all input, and with a total.
    ///
    /// Counts that have a total are returned as they are. Counts without one are those of the Messages API, whose input
    /// leaves out the cached classes.
    #[must_use]
    pub fn inclusive(self) -> Self {
        let sum = |classes: &[Option<u64>]| {
            let known = classes.iter().copied().flatten();
            known.reduce(u64::saturating_add).map(|sum| sum.min(INTEGER_MAX))
        };
        if self.total.is_some() {
            return self;
        }
        let input = sum(&[self.input, self.cached_input, self.cache_write]);
        Self { input, total: sum(&[input, self.output]), ..self }
    }

    /// All tokens: the provider's total, or input and output together, where that is more.
    #[must_use]
    pub fn all(&self) -> u64 {
        let usage = self.inclusive();
        let both = usage.input.unwrap_or(0).saturating_add(usage.output.unwrap_or(0));
        usage.total.unwrap_or(0).max(both)
    }

    /// Adds another call's tokens, class by class. A sum that no line can hold stays at the largest that one can: an
    /// upstream that counts absurdly must not take the end off a log.
    pub fn add(&mut self, other: &Self) {
        let add = |sum: &mut Option<u64>, more: Option<u64>| {
            if let Some(more) = more {
                *sum = Some(sum.unwrap_or(0).saturating_add(more).min(INTEGER_MAX));
            }
        };
        add(&mut self.cache_write, other.cache_write);
        add(&mut self.cached_input, other.cached_input);
        add(&mut self.input, other.input);
        add(&mut self.output, other.output);
        add(&mut self.reasoning, other.reasoning);
        add(&mut self.total, other.total);
    }
}

impl Member for Usage {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { cache_write, cached_input, input, output, reasoning, total });
    }
}

/// Where the time of a call went, in microseconds; null where it never came to that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Until a new upstream connection stood; null when one was reused.
    pub connect: Option<u64>,
    /// Until the first event with output.
    pub first_token: Option<u64>,
    /// The longest silence inside the answer, from its head on.
    pub longest_gap: Option<u64>,
    /// What the sidecar itself added before sending.
    pub own: u64,
    /// Reading the request and waiting for the audit log.
    pub queue: u64,
    /// From the request head to the end of the answer.
    pub total: u64,
    /// From sending to the head of the answer.
    pub ttfb: Option<u64>,
}

impl Member for Timing {
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { connect, first_token, longest_gap, own, queue, total, ttfb });
    }
}

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
            pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

            impl $name {
                /// The word in the log.
                #[must_use]
                pub fn as_str(self) -> &'static str {
                    match self { $(Self::$variant => $word),* }
                }
            }

            impl Member for $name {
                fn write(&self, line: &mut Vec<u8>) {
                    self.as_str().write(line);
                }
            }
        )*
    };
}

words! {
    /// How a call went.
    CallResult {
        /// A complete answer with a status below 400.
        Ok = "ok",
        /// A status of 400 or more, a broken stream, or no connection.
        UpstreamError = "upstream_error",
        /// The upstream was silent for too long.
        Timeout = "timeout",
        /// The client left first.
        ClientAbort = "client_abort",
        /// The run's deadline, or its stop, cut the call.
        Deadline = "deadline",
        /// Bytes went out and nothing came back: money may have been spent.
        Unknown = "unknown",
    }

    /// Who ended a call.
    End {
        /// Nobody: it ran to its end.
        Complete = "complete",
        /// The client left.
        CutByClient = "cut_by_client",
        /// The upstream broke off, or never answered.
        CutByUpstream = "cut_by_upstream",
        /// A limit of ours.
        CutByLimit = "cut_by_limit",
    }

    /// Where `cost_usd` comes from.
    CostSource {
        /// `x-litellm-response-cost` of a unary answer, or `x-litellm-cache-key` of one that a cache gave.
        Header = "header",
        /// `usage.cost` in the last event of a stream.
        Chunk = "chunk",
        /// Nowhere: it is null.
        None = "none",
    }

    /// Why `usage` or `cost_usd` is null.
    NullReason {
        /// Nothing went upstream, so nothing can have been spent.
        NotSent = "not_sent",
        /// The provider gave no usage.
        NoUsage = "no_usage",
        /// The provider gave usage and no cost.
        NoCost = "no_cost",
        /// The cost given was 0, which is what LiteLLM also says when it has no price.
        ZeroCost = "zero_cost",
        /// The upstream answered with an error.
        UpstreamError = "upstream_error",
        /// The answer ended before its usage came.
        Cut = "cut",
        /// The answer was encoded, or no JSON or SSE that the tap could read.
        Unreadable = "unreadable",
        /// The call is never billed (a model list, a token count).
        NotBilled = "not_billed",
    }
}

#[cfg(test)]
mod tests;
