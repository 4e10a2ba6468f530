//! Where tokens are looked up.

use sluice_state::store::StoreError;

use crate::principal::Principal;

/// Source of tokens.
#[derive(Debug, Clone)]
pub(crate) enum TokenSource {
    /// There is no token: only root on `admin.sock` has access.
    Empty,
    /// These tokens, each with its principal.
    #[cfg(test)]
    Fixed(std::sync::Arc<std::sync::Mutex<std::collections::BTreeMap<String, Principal>>>),
}

impl TokenSource {
    /// Returns the principal of a token that is valid now.
    pub(crate) async fn find(&self, token: &str) -> Result<Option<Principal>, StoreError> {
        match self {
            Self::Empty => Ok(None),
            #[cfg(test)]
            Self::Fixed(tokens) => Ok(tokens.lock().expect("no test panics").get(token).cloned()),
        }
    }

    /// Returns whether the token of a principal is still valid.
    pub(crate) async fn is_current(&self, principal: &Principal) -> Result<bool, StoreError> {
        match self {
            Self::Empty => Ok(true),
            #[cfg(test)]
            Self::Fixed(tokens) => {
                Ok(tokens.lock().expect("no test panics").values().any(|known| known.id == principal.id))
            }
        }
    }

    /// Returns whether any token is valid now.
    pub(crate) async fn has_any(&self) -> Result<bool, StoreError> {
        match self {
            Self::Empty => Ok(false),
            #[cfg(test)]
            Self::Fixed(tokens) => Ok(!tokens.lock().expect("no test panics").is_empty()),
        }
    }
}
