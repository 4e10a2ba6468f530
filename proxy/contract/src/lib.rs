//! What the Sluice sidecar promises to others.
//!
//! Pure vocabulary, shared by the sidecar that writes audit files and by everybody who reads them:
//! run ids, money, audit records, and how to read them. No clock, no I/O, no async.

pub mod money;
pub mod reader;
pub mod record;
pub mod run_id;
pub mod story;

pub use money::Usd;
pub use reader::{Fault, Record};
pub use run_id::{Account, RunId};
pub use story::{Call, Story, Totals};
