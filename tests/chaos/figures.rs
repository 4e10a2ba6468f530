//! The figures of the last line.

use std::fmt;

/// The kinds of processes that are killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Target {
    Sidecar,
    Client,
    Upstream,
    Controller,
}

/// Sums over all files.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ChaosFigures {
    pub(crate) sidecars: u64,
    pub(crate) clients: u64,
    pub(crate) upstreams: u64,
    pub(crate) controllers: u64,
    /// Audit files.
    pub(crate) files: u64,
    /// Number of sidecars that continued the file of a killed one.
    pub(crate) restarts: u64,
    /// Lines that a kill has torn.
    pub(crate) torn: u64,
    /// Calls that the upstream saw.
    pub(crate) calls: u64,
    /// Answers that a client saw whole.
    pub(crate) answers: u64,
    pub(crate) intents: u64,
    pub(crate) outcomes: u64,
    /// Calls that the upstream saw and no intent names, and whole answers without an outcome.
    pub(crate) lost: u64,
}

impl ChaosFigures {
    pub(crate) fn killed(&mut self, target: Target) {
        *match target {
            Target::Sidecar => &mut self.sidecars,
            Target::Client => &mut self.clients,
            Target::Upstream => &mut self.upstreams,
            Target::Controller => &mut self.controllers,
        } += 1;
    }

    pub(crate) fn add(&mut self, other: &Self) {
        let mut sum = |into: fn(&mut Self) -> &mut u64| {
            let mut other = *other;
            *into(self) += *into(&mut other);
        };
        sum(|f| &mut f.sidecars);
        sum(|f| &mut f.clients);
        sum(|f| &mut f.upstreams);
        sum(|f| &mut f.controllers);
        sum(|f| &mut f.files);
        sum(|f| &mut f.restarts);
        sum(|f| &mut f.torn);
        sum(|f| &mut f.calls);
        sum(|f| &mut f.answers);
        sum(|f| &mut f.intents);
        sum(|f| &mut f.outcomes);
        sum(|f| &mut f.lost);
    }

    pub(crate) fn kills(&self) -> u64 {
        self.sidecars + self.clients + self.upstreams + self.controllers
    }
}

impl fmt::Display for ChaosFigures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sidecars, clients, upstreams, controllers, files, restarts, torn, calls, .. } = self;
        let Self { answers, intents, outcomes, lost, .. } = self;
        write!(
            f,
            "{} kills ({sidecars} sidecars, {clients} clients, {upstreams} upstreams, {controllers} controllers), \
             {files} files ({restarts} restarts, {torn} torn lines); {calls} calls seen, {answers} whole answers; \
             {intents} intents, {outcomes} outcomes, {} unknown, {lost} lost",
            self.kills(),
            intents.saturating_sub(*outcomes),
        )
    }
}
