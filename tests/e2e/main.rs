//! The promises of the sidecar, against the real program.

mod aborts;
mod audit;
mod bodies;
mod budgets;
mod calls;
mod caps;
mod control;
mod framing;
mod hardening;
mod headers;
mod lifecycle;
mod litellm;
mod memory;
mod relay;
mod routes;
mod sdks;
mod start;
mod streams;
mod timeouts;
mod upstreams;
