//! The contract between the Sluice sidecar and every other program.
//!
//! Pure vocabulary, shared by the sidecar that writes audit files and by all programs that read them: run ids, money,
//! audit records and their verification, exit codes, reason words, the ready line, units. No clock, no async, and no
//! I/O except through a reader that is given.

pub mod audit_line;
pub mod audit_log;
pub mod billing;
pub mod budget;
pub mod canon;
pub mod certificate;
pub mod chain;
pub mod control;
pub mod encode;
pub mod exhausted;
pub mod exit;
pub mod fault;
pub mod hash;
pub mod hex;
pub mod money;
pub mod name;
pub mod reader;
pub mod ready;
pub mod reason;
pub mod record;
pub mod recovery;
pub mod run_id;
pub mod run_key;
pub mod seal;
pub mod sequence;
pub mod text;
pub mod time;
pub mod units;
pub mod upstream_key;
pub mod verdict;

pub use audit_log::{AuditLog, LoggedCall};
pub use billing::could_be_billed;
pub use certificate::AuditSigner;
pub use chain::{Chain, ChainReader};
pub use exit::SidecarExit;
pub use hash::{Hash, Hasher};
pub use money::Usd;
pub use name::is_name;
pub use reader::{Fault, Record};
pub use ready::{Health, ReadyLine};
pub use run_id::{Account, RunId};
pub use run_key::RunKey;
pub use seal::{PrivateKey, PublicKey};
pub use sequence::{SequenceChecker, Totals};
pub use verdict::{TrustAnchors, Verdict, Witness, verify, verify_each, verify_from};
