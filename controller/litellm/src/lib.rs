//! The parts of LiteLLM's API that the controller uses: models and prices, virtual keys, the spend log.

pub mod client;
pub mod prices;
pub mod secret;
pub mod spend_log;
pub mod virtual_key;

pub use client::{Litellm, LitellmError};
pub use secret::ApiKey;
