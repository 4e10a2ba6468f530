//! Limits of the daemon's runs, and the values that a request leaves out.
//!
//! Pure.

use std::borrow::Cow;
use std::time::Duration;

use sluice_runs::project_repository::ProjectRepository;
use sluice_runs::verdict::Contract;

use crate::grants::GrantPolicy;
use crate::on_cap::CapTreatment;
use crate::stored_request::StoredLimits;

/// A program that a request names by its graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    /// `sandbox:NAME`.
    pub graph_id: String,
    /// Name for people.
    pub name: String,
    /// Description for people.
    pub description: String,
    /// Image; none for the default one.
    pub image: Option<String>,
    /// True if it takes exactly one message of the user.
    pub takes_one_message: bool,
    /// Meaning of its stdout.
    pub output: Contract,
    /// Models of a run that names none.
    pub models: Vec<String>,
    /// Limits of a run that names none.
    pub limits: StoredLimits,
    /// Cap of a run that names none, in nano-USD.
    pub max_cost: Option<i64>,
}

/// Values of runs that one account pays for, instead of the host's values.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in `RunPolicy`")]
pub struct AccountPolicy {
    pub account: String,
    pub graphs: Vec<Graph>,
    pub models: Vec<String>,
    pub limits: StoredLimits,
    pub max_cost: Option<i64>,
}

/// A project that requests may name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Project {
    /// Name.
    pub name: String,
    /// Owners that may create runs of it.
    pub owners: Vec<String>,
    /// Repository that its runs may work on.
    pub repository: Option<ProjectRepository>,
}

/// Maximum time for a person's decision.
pub const ASK_TIMEOUT: Duration = Duration::from_secs(24 * 3600);

/// Limits of runs: settings of the admin, which no request exceeds.
#[derive(Debug, Clone)]
pub struct RunPolicy {
    /// Programs.
    pub graphs: Vec<Graph>,
    /// Image of a run that names none.
    pub default_image: String,
    /// Images that a request may name in addition to the images of programs, each with its digest.
    pub images: Vec<String>,
    /// Projects that a request may name.
    pub projects: Vec<Project>,
    /// Host directories that admins may grant.
    pub grants: GrantPolicy,
    /// Models of a run that names none and has no program of the host.
    pub models: Vec<String>,
    /// Values of accounts that differ from the values of the host.
    pub accounts: Vec<AccountPolicy>,
    /// Account of a principal without accounts.
    pub account: String,
    /// Limits of a run that names none and has no program of the host.
    pub limits: StoredLimits,
    /// Highest limits.
    pub limits_max: StoredLimits,
    /// Maximum time from the first claim to the end of a run, retries included, unless its timeout is longer.
    pub run_time: Duration,
    /// Cap of a run that names none and has no program of the host, in nano-USD.
    pub max_cost: Option<i64>,
    /// Highest cap, in nano-USD.
    pub max_cost_max: Option<i64>,
    /// Nano-USD that a run without a cap holds of a budget.
    pub hold: i64,
    /// Maximum number of running runs on this host.
    pub running_max: u32,
    /// Maximum number of running runs of one owner.
    pub owner_running_max: u32,
    /// Maximum number of running runs of one project.
    pub project_running_max: u32,
    /// Maximum number of runs of one owner that wait in the queue.
    pub queued_max: u32,
    /// Behaviour of calls at a cap, for a run whose request does not set it.
    pub on_cap: CapTreatment,
    /// Time for which approvals and questions are open.
    pub ask_timeout: Duration,
    /// Cost in nano-USD above which another person than the run's owner and its creator has to approve a raise.
    pub second_person: Option<i64>,
    /// Cost in nano-USD up to which a browser session may raise a cap; without it, no session may raise a cap.
    pub session_approval_max: Option<i64>,
}

impl RunPolicy {
    /// Returns the policy of runs that this account pays for.
    #[must_use]
    pub fn of_account(&self, account: Option<&str>) -> Cow<'_, Self> {
        match self.accounts.iter().find(|own| Some(own.account.as_str()) == account) {
            Some(AccountPolicy { graphs, models, limits, max_cost, .. }) => Cow::Owned(Self {
                graphs: graphs.clone(),
                models: models.clone(),
                limits: limits.clone(),
                max_cost: *max_cost,
                ..self.clone()
            }),
            None => Cow::Borrowed(self),
        }
    }

    /// Returns the graph of an id, or of the NAME of `sandbox:NAME`.
    #[must_use]
    pub fn graph(&self, id: &str) -> Option<&Graph> {
        self.graphs.iter().find(|graph| graph.graph_id == id || graph.graph_id.strip_prefix("sandbox:") == Some(id))
    }

    /// Returns the image that a request names, if it is allowed: an image of a program or the default image by its
    /// exact text, or an image of the list by its exact text or by a name that only one image has. The result includes
    /// the digest.
    #[must_use]
    pub fn image(&self, asked: &str) -> Option<&str> {
        let of_graphs = self.graphs.iter().filter_map(|graph| graph.image.as_deref());
        let exact = of_graphs.chain([self.default_image.as_str()]).chain(self.images.iter().map(String::as_str));
        if let Some(image) = { exact }.find(|image| *image == asked) {
            return Some(image);
        }
        let has_name = |image: &&String| image.split_once('@').is_some_and(|(name, _)| name == asked);
        let mut named = self.images.iter().filter(has_name);
        named.next().filter(|_| named.next().is_none()).map(String::as_str)
    }

    /// Returns the project of a name, if this owner may use it.
    #[must_use]
    pub fn project(&self, name: &str, owner: &str) -> Option<&Project> {
        self.projects.iter().find(|project| project.name == name && project.owners.iter().any(|own| own == owner))
    }

    /// Returns the maximum time from the first claim to the end of a run: a run with a longer timeout gets that.
    #[must_use]
    pub fn deadline(&self, limits: &StoredLimits) -> Duration {
        self.run_time.max(Duration::from_secs(limits.timeout_s))
    }
}
