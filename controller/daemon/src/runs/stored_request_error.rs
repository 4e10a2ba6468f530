//! Reasons that an attempt does not get the request of its run.
//!
//! Pure.

use sluice_contract::text::error_chain;
use sluice_state::store::StoreError;

use super::retries::Retry;
use crate::run_refusal::RunRefusal;

/// Reason that an attempt does not get the request of its run.
#[derive(Debug, thiserror::Error)]
pub(super) enum StoredRequestError {
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("its request is gone")]
    Missing,
    #[error("its request cannot be read")]
    Unreadable(#[from] serde_json::Error),
}

impl StoredRequestError {
    /// Returns whether another attempt may get the request: the store may be readable by then, but a missing or
    /// unreadable request stays as it is.
    pub(super) fn retry(&self) -> Retry {
        match self {
            Self::Store(_) => Retry::ByCode,
            Self::Missing | Self::Unreadable(_) => Retry::Never,
        }
    }
}

impl From<StoredRequestError> for RunRefusal {
    fn from(error: StoredRequestError) -> Self {
        let text = error_chain(&error);
        match error.retry() {
            Retry::ByCode => Self::Host(text),
            Retry::Never => Self::Final(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stored_request::StoredRequest;

    #[test]
    fn only_a_fault_of_the_store_is_tried_again() {
        let unreadable = serde_json::from_str::<StoredRequest>("{").expect_err("it is cut off");
        let text = format!("its request cannot be read: {unreadable}");
        let refusal = RunRefusal::from(StoredRequestError::from(unreadable));
        assert!(matches!(&refusal, RunRefusal::Final(found) if *found == text), "{refusal:?}");
        assert!(matches!(StoredRequestError::Missing.into(), RunRefusal::Final(_)));
        let store = StoredRequestError::Store(StoreError::Closed);
        assert!(matches!(store.into(), RunRefusal::Host(_)));
    }
}
