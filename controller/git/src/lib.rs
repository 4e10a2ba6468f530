//! Repositories of runs: their clones, their pushes, and branches and pull requests at a forge.
//!
//! No git process of the host ever works in a directory that a sandbox could write. Objects of a run arrive in a pack, and
//! go into a repository of that run alone.

mod advance;
mod branch;
pub mod branch_name;
mod bundle;
mod bundle_header;
mod checkout_size;
mod clone;
mod clone_config;
mod confine;
mod confine_request;
mod credentials;
mod directory;
mod error;
mod file_reader;
pub mod forge;
pub mod guarded_paths;
mod home;
mod identity;
mod ingest;
mod ingest_refusal;
mod leftovers;
mod limits;
mod local_git;
mod local_repository;
mod look;
mod look_parse;
mod mirror;
mod object_check;
mod object_graph;
mod object_id;
mod output;
mod path_text;
mod program;
mod publish;
pub mod pull_request_text;
mod push_output;
mod receive;
mod repository_url;
mod run_repository;
mod secret;
mod secret_file;
mod transfer;
mod version;

pub use branch::{Branch, BranchError};
pub use bundle::Imported;
pub use confine::{ConfineError, confine};
pub use credentials::{Credentials, CredentialsError};
pub use error::GitError;
pub use home::GitHome;
pub use identity::{CommitterIdentity, IdentityError};
pub use look::BranchSummary;
pub use look_parse::{ChangeStatus, ChangedFile, CommitLine};
pub use mirror::{Mirror, MirrorOptions};
pub use object_id::{NotAnObjectId, ObjectId};
pub use path_text::visible_path;
pub use program::{ChildUser, GitProgram};
pub use publish::Published;
pub use receive::{ADVERTISEMENT_TYPE, Push, PushOutcome, REQUEST_TYPE, RESULT_TYPE};
pub use repository_url::{RepositoryUrl, UrlError, UrlKind, split_branch};
pub use run_repository::RunRepository;
pub use secret::SecretText;
