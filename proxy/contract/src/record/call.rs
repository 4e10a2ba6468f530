//! Records of a call: `intent` and `outcome`.
//!
//! Pure.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use super::{CallResult, CostSource, End, NullReason, OptionalText, OptionalTexts, TokenCount, Usage};
use crate::encode::{WriteJson, write_members};

records! {
    /// A call is about to go upstream.
    Intent<'a> = "intent" {
        attempt: u32,
        /// Output tokens to which the sidecar held each answer, where it wrote or lowered the call's own bound.
        #[serde(skip_serializing_if = "Option::is_none")]
        bound: Option<TokenCount>,
        /// Number of the call in the run, from 1.
        call: u64,
        /// Id of the call, which LiteLLM's spend row has as well.
        call_id: Cow<'a, str>,
        /// Ids of the messages of the operator that the sidecar added to the body, those that it added to earlier calls
        /// of the conversation included. Long lists are cut, and the last entry is then `+N`. Left out without any.
        #[serde(skip_serializing_if = "Option::is_none")]
        injected_message_ids: Option<OptionalTexts<'a>>,
        kind: Cow<'a, str>,
        /// Method of the request.
        method: Cow<'a, str>,
        /// Model that the request names.
        model: Option<Cow<'a, str>>,
        /// Path of the request, without the query.
        path: Cow<'a, str>,
        /// Process that made the request.
        peer: Peer,
        prev: Cow<'a, str>,
        /// Bytes of the request body as it came, and of the messages that the sidecar added to it.
        req_bytes: u64,
        /// True if the reservation is an upper bound of the call's use; absent without caps.
        #[serde(skip_serializing_if = "Option::is_none")]
        reserved_strict: Option<bool>,
        /// Tokens reserved; absent without caps.
        #[serde(skip_serializing_if = "Option::is_none")]
        reserved_tokens: Option<TokenCount>,
        /// Dollars reserved, as a decimal; null without prices.
        reserved_usd: Option<Cow<'a, str>>,
        run_id: Cow<'a, str>,
        seq: u64,
        /// True if the answer was to be streamed.
        stream: bool,
        /// Names of headers and body members that were removed or overwritten, never values.
        stripped: Vec<Cow<'a, str>>,
        ts: Cow<'a, str>,
        v: u32,
    }

    /// A call ended.
    Outcome<'a> = "outcome" {
        /// Account that pays for the run, as in `open`. Left out in the files of older sidecars, like `model`.
        #[serde(skip_serializing_if = "Option::is_none")]
        account: Option<OptionalText<'a>>,
        attempt: u32,
        /// The limit of the budget that LiteLLM refused the call for. This member and the next two are left out where
        /// no budget refused the call, and in the files of older sidecars; the amounts also where LiteLLM does not give
        /// them.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_limit_usd: Option<OptionalText<'a>>,
        /// Owner of the budget: a word of [`crate::budget`], such as `key`, `team` or `customer`.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_of: Option<OptionalText<'a>>,
        /// Amount that LiteLLM counts as spent of it, with reservations of open calls.
        #[serde(skip_serializing_if = "Option::is_none")]
        budget_spent_usd: Option<OptionalText<'a>>,
        /// LiteLLM answered from its own cache: the call cost nothing, and `usage` is that of the answer in the cache.
        /// Left out where it is not known to be so, and in the files of older sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        cache_hit: Option<bool>,
        /// Number of the call in the run, from 1.
        call: u64,
        /// Id of the call, which LiteLLM's spend row has as well.
        call_id: Cow<'a, str>,
        /// Reason in the words of the system why there was no connection to the upstream: for the operator, and cut at
        /// 200 bytes. This member and the next one are left out where the call was sent, and in the files of older
        /// sidecars.
        #[serde(skip_serializing_if = "Option::is_none")]
        connect_detail: Option<OptionalText<'a>>,
        /// Reason why there was no connection to the upstream: `dns`, `refused`, `timeout`, `tls` or `other`.
        #[serde(skip_serializing_if = "Option::is_none")]
        connect_error: Option<OptionalText<'a>>,
        /// Source of `cost_usd`.
        cost_source: CostSource,
        /// Cost in the text of its source; null where it is not known.
        cost_usd: Option<Cow<'a, str>>,
        /// For `client_abort` only: whether the answer was read on to its end, which a stream with an error does not
        /// have.
        #[serde(skip_serializing_if = "Option::is_none")]
        drained: Option<bool>,
        /// End of the call.
        end: End,
        kind: Cow<'a, str>,
        /// LiteLLM's id of the call.
        litellm_call_id: Option<Cow<'a, str>>,
        /// Model that the request names, as in `intent`; left out where it names none.
        #[serde(skip_serializing_if = "Option::is_none")]
        model: Option<OptionalText<'a>>,
        /// Model that answered.
        model_served: Option<Cow<'a, str>>,
        /// Reason why `usage` or `cost_usd` is null.
        null_reason: Option<NullReason>,
        prev: Cow<'a, str>,
        /// Bytes of the answer's body.
        resp_bytes: u64,
        /// Provider's id of the answer.
        response_id: Option<Cow<'a, str>>,
        /// Result of the call.
        result: CallResult,
        run_id: Cow<'a, str>,
        seq: u64,
        /// HTTP status of the upstream's answer; null without an answer.
        status: Option<u16>,
        /// Times of the call.
        timing_us: Timing,
        ts: Cow<'a, str>,
        /// Tokens as the provider counted them.
        usage: Option<Usage>,
        v: u32,
    }
}

/// The process at the other end of the socket, as the kernel names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(missing_docs, reason = "named like the fields of SO_PEERCRED")]
pub struct Peer {
    /// Process id; null where the kernel gave none.
    pub pid: Option<i32>,
    /// User id.
    pub uid: u32,
}

impl WriteJson for Peer {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { pid, uid });
    }
}

/// Durations within a call, in microseconds; null for a step that was not reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Timing {
    /// Time to connect to the upstream; null when a connection was reused.
    pub connect: Option<u64>,
    /// Time to the first event with output.
    pub first_token: Option<u64>,
    /// The longest silence inside the answer, from its head on.
    pub longest_gap: Option<u64>,
    /// Time that the sidecar itself added before sending.
    pub own: u64,
    /// Reading the request and waiting for the audit log.
    pub queue: u64,
    /// From the request head to the end of the answer.
    pub total: u64,
    /// From sending to the head of the answer.
    pub ttfb: Option<u64>,
}

impl WriteJson for Timing {
    #[inline]
    fn write(&self, line: &mut Vec<u8>) {
        write_members!(self, line, { connect, first_token, longest_gap, own, queue, total, ttfb });
    }
}
