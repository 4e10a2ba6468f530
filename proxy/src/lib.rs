//! The Sluice sidecar: one process, one run, one unix socket, one upstream, one audit file.
//!
//! # The life of a call
//!
//! accept (the socket is the identity: [`server`], [`connection`]) → route ([`policy`]) → body ([`intake`],
//! [`injection`], [`body`]) → reserve ([`share`], [`caps`]) → headers ([`headers`]) → intent, durable ([`audit`]) →
//! send ([`upstream`]) → screen ([`screen`], [`headers`]) → tap ([`tap`], [`filter`], [`usage`]) → close, once
//! ([`active_call`], [`call`]) → settle ([`caps`]) → outcome, durable before the client sees the end ([`audit`]).
//! [`exchange`] holds that order, and nothing else.
//!
//! `body`, `caps`, `conversation`, `estimate`, `filter`, `framing`, `headers`, `json`, `known_ids`, `models`, `policy`,
//! `prices`, `refusal`, `screen`, `scrub`, `sse`, `stripped`, `text` and `usage` are pure: they know no clock, no
//! socket and no file.

pub mod abort;
pub mod active_call;
pub mod audit;
pub mod body;
pub mod body_budget;
pub mod bridge;
pub mod call;
pub mod caps;
pub mod connection;
pub mod control;
pub mod conversation;
pub mod deadline;
pub mod estimate;
pub mod exchange;
pub mod filter;
pub mod framing;
pub mod harden;
pub mod headers;
pub mod hold;
pub mod idle_timeout;
pub mod ids;
pub mod injection;
pub mod intake;
pub mod interrupts;
pub mod json;
pub mod key_refusals;
pub mod known_ids;
pub mod litellm_budget;
pub mod media;
pub mod memory;
pub mod models;
pub mod policy;
pub mod prices;
pub mod refusal;
pub mod relay;
pub mod response;
pub mod run;
pub mod screen;
pub mod scrub;
pub mod secret;
pub mod server;
pub mod settings;
pub mod share;
pub mod slots;
pub mod socket;
pub mod sse;
pub mod start;
pub mod start_error;
pub mod stored;
pub mod stripped;
pub mod tap;
pub mod text;
pub mod tokens;
pub mod upstream;
pub mod upstream_failure;
pub mod usage;
