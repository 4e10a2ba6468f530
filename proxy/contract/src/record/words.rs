//! Words of the audit log: results, ends, sources of costs, decisions on held requests, and reasons for nulls.
//!
//! Pure.

use serde::{Deserialize, Serialize};

use crate::encode::WriteJson;

macro_rules! words {
    ($($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $word:literal),* $(,)? })*) => {
        $(
            $(#[$doc])*
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
            pub enum $name { $($(#[$vdoc])* #[serde(rename = $word)] $variant),* }

            impl $name {
                /// Returns the word in the log.
                #[must_use]
                pub fn as_str(self) -> &'static str {
                    match self { $(Self::$variant => $word),* }
                }
            }

            impl WriteJson for $name {
                #[inline]
                fn write(&self, line: &mut Vec<u8>) {
                    self.as_str().write(line);
                }
            }
        )*
    };
}

words! {
    /// Result of a call.
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
        /// The operator ended the call.
        Interrupted = "interrupted",
        /// The request was sent and no answer came: the call may have cost money.
        Unknown = "unknown",
    }

    /// Reason why there was no connection to the upstream.
    ConnectFailure {
        /// The name of the upstream has no address, or the name server did not answer.
        Dns = "dns",
        /// The host of the upstream refused the connection.
        Refused = "refused",
        /// There was no connection within the time limit.
        Timeout = "timeout",
        /// The TLS handshake failed: the port does not speak TLS, or the certificate is not trusted.
        Tls = "tls",
        /// Another failure, such as a network without a route, or a socket that does not exist.
        Other = "other",
    }

    /// End of a call.
    End {
        /// The call ran to its end.
        Complete = "complete",
        /// The client left.
        CutByClient = "cut_by_client",
        /// The upstream broke off, never answered, or ended a stream before its last event.
        CutByUpstream = "cut_by_upstream",
        /// A limit of the sidecar.
        CutByLimit = "cut_by_limit",
    }

    /// Source of `cost_usd`.
    CostSource {
        /// `x-litellm-response-cost` of a unary answer, or `x-litellm-cache-key` of one that a cache gave.
        Header = "header",
        /// `usage.cost` in the last event of a stream.
        Chunk = "chunk",
        /// No source: the cost is null.
        None = "none",
    }

    /// End of the wait of a held request.
    ReleaseDecision {
        /// A cap has room for it: it goes on.
        Approve = "approve",
        /// The call was refused for good.
        Deny = "deny",
        /// The run ends.
        Draining = "draining",
        /// The operator ended the calls of the run.
        Interrupted = "interrupted",
        /// A person told its client to try again.
        Later = "later",
        /// The client left.
        Left = "left",
        /// The pause has ended: it goes on.
        Resume = "resume",
        /// The longest time of the wait is over, and its client was told to try again.
        Timeout = "timeout",
    }

    /// Reason why `usage` or `cost_usd` is null.
    NullReason {
        /// Nothing went upstream, so nothing can have been spent.
        NotSent = "not_sent",
        /// The provider gave no usage.
        NoUsage = "no_usage",
        /// The provider gave usage and no cost.
        NoCost = "no_cost",
        /// The cost given was 0, which LiteLLM also gives when it has no price.
        ZeroCost = "zero_cost",
        /// The upstream answered with an error.
        UpstreamError = "upstream_error",
        /// The answer ended before its usage came.
        Cut = "cut",
        /// The answer was encoded, or not JSON or SSE that the sidecar could read.
        Unreadable = "unreadable",
        /// The call is never billed (a model list, a token count).
        NotBilled = "not_billed",
    }
}
