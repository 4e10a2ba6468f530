//! What the Sluice sidecar promises to others.
//!
//! Pure vocabulary, shared by the sidecar that writes audit files and by everybody who reads them:
//! run ids, money, audit records. No clock, no I/O, no async.

pub mod money;
pub mod record;
pub mod run_id;

pub use money::Usd;
pub use run_id::{Account, RunId};
