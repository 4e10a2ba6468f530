//! The Sluice sidecar.
pub mod body;
pub mod json;
pub mod policy;
pub mod refusal;
