//! What runs of the daemon may be, and the values that a request leaves out.
//!
//! Pure.

use std::time::Duration;

use crate::stored_request::RunLimits;

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
}

/// What runs may be. An admin's settings; no request exceeds them.
#[derive(Debug, Clone)]
pub struct RunPolicy {
    /// Programs.
    pub graphs: Vec<Graph>,
    /// Image of a run that names none.
    pub default_image: String,
    /// Images that a request may name.
    pub images: Vec<String>,
    /// Models of a run that names none.
    pub models: Vec<String>,
    /// Account of a principal without accounts.
    pub account: String,
    /// Limits of a run that names none.
    pub limits: RunLimits,
    /// Highest limits.
    pub limits_max: RunLimits,
    /// Idle time of a run that names none.
    pub idle: Duration,
    /// Longest time from the first claim to the end of a run, retries included.
    pub run_time: Duration,
    /// Cap of a run that names none, in nano-USD.
    pub max_cost: Option<i64>,
    /// Nano-USD that a run without a cap holds of a budget.
    pub hold: i64,
    /// Runs that may be at work on this host.
    pub running_max: u32,
    /// Runs of one owner that may be at work.
    pub owner_running_max: u32,
    /// Runs of one project that may be at work.
    pub project_running_max: u32,
    /// Runs of one owner that may wait in the queue.
    pub queued_max: u32,
}

impl RunPolicy {
    /// Returns the graph of an id, or of the NAME of `sandbox:NAME`.
    #[must_use]
    pub fn graph(&self, id: &str) -> Option<&Graph> {
        self.graphs.iter().find(|graph| graph.graph_id == id || graph.graph_id.strip_prefix("sandbox:") == Some(id))
    }

    /// Returns whether a request may name this image.
    #[must_use]
    pub fn allows_image(&self, image: &str) -> bool {
        image == self.default_image
            || self.images.iter().any(|known| known == image)
            || self.graphs.iter().any(|graph| graph.image.as_deref() == Some(image))
    }
}
