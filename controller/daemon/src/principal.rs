//! The sender of a request.
//!
//! Pure.

use std::net::IpAddr;

pub use sluice_state::tokens::TokenRole as Role;

/// Channel on which a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// Root on `admin.sock`, without a token.
    AdminSocket,
    /// A token.
    Bearer,
    /// A browser session.
    Session,
}

impl Way {
    /// Returns the word in the control log.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AdminSocket => "admin_socket",
            Self::Bearer => "bearer",
            Self::Session => "session",
        }
    }
}

/// Beginning of the id of a principal that has a browser session.
const SESSION_PREFIX: &str = "session:";

/// Sender of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// `token:ID`, `uid:N` or `session:ID`.
    pub id: String,
    /// Owner of the objects that it creates.
    pub owner: String,
    /// Role.
    pub role: Role,
    /// Accounts that it may use; the first is its default.
    pub accounts: Vec<String>,
    /// Channel on which the request came.
    pub way: Way,
    /// Address of the client; none on a unix socket.
    pub source: Option<IpAddr>,
}

impl Principal {
    /// Returns root on `admin.sock`.
    #[must_use]
    pub fn root(uid: u32) -> Self {
        Self {
            id: format!("uid:{uid}"),
            owner: "root".to_owned(),
            role: Role::Admin,
            accounts: Vec::new(),
            way: Way::AdminSocket,
            source: None,
        }
    }

    /// Returns the id of its browser session.
    #[must_use]
    pub fn session_id(&self) -> Option<&str> {
        self.id.strip_prefix(SESSION_PREFIX)
    }

    /// Returns the name under which its chats are kept and counted: all browser sessions of an owner share it.
    pub(crate) fn chat_holder(&self) -> String {
        match self.way {
            Way::Session => format!("sessions:{}", self.owner),
            Way::AdminSocket | Way::Bearer => self.id.clone(),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_tests(role: Role, owner: &str, accounts: &[&str]) -> Self {
        Self {
            id: format!("token:{owner}"),
            owner: owner.to_owned(),
            role,
            accounts: accounts.iter().map(ToString::to_string).collect(),
            way: Way::Bearer,
            source: None,
        }
    }
}
