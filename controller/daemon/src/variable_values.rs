//! Values of the environment variables of runs that have not ended. They are secrets, so they are kept in memory only:
//! if the daemon ends before the container of an attempt is created, the values are lost.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Mutex;

use sluice_contract::RunId;
use zeroize::Zeroizing;

/// Variables of one run.
pub type Variables = BTreeMap<String, Zeroizing<String>>;

/// Values of all runs that have not ended.
#[derive(Default)]
pub struct VariableValues(Mutex<HashMap<RunId, Variables>>);

impl VariableValues {
    /// Keeps the variables of a run.
    pub fn keep(&self, run: RunId, variables: Variables) {
        self.lock().insert(run, variables);
    }

    /// Returns the variables of a run. They stay: a further attempt needs them too.
    #[must_use]
    pub fn get(&self, run: &RunId) -> Option<Variables> {
        self.lock().get(run).cloned()
    }

    /// Forgets the variables of a run that has ended, or was not created.
    pub fn forget(&self, run: &RunId) {
        self.lock().remove(run);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Variables>> {
        self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl fmt::Debug for VariableValues {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VariableValues({} runs)", self.lock().len())
    }
}
