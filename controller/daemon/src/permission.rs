//! Permissions of the roles: one table.
//!
//! Pure.

use crate::principal::{Principal, Role, Way};

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Lists, details, events, streams, receipts, usage, budgets.
    Read,
    /// Logs, files, differences, transcripts, artifacts, audit files.
    ReadContent,
    /// Creation of a sandbox, retry, dry run.
    Create,
    /// Chats with agents: the catalogue, requests, and the rest of an answer.
    Chat,
    /// Pause, resume, interrupt, cancel.
    Control,
    /// Messages in the name of the operator, and interventions.
    Steer,
    /// Decisions about approvals, and answers to questions.
    Decide,
    /// Publication of a run's branch, its pull request, and the merge.
    Publish,
    /// Programs in a sandbox, and files into it.
    Execute,
    /// Registration and removal of an agent.
    RegisterAgent,
    /// Suspension of an agent, and its end.
    SuspendAgent,
    /// Grants, accounts and owners of agents.
    GrantAgent,
    /// Budgets of accounts.
    ChangeBudget,
    /// Metrics, and the state of the daemon in figures.
    Monitor,
    /// Reasons that the daemon is not ready.
    Diagnose,
    /// Codes that log a browser in.
    OpenSession,
}

/// Objects on which a role may do an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// No objects.
    Denied,
    /// Only objects of its own owner and accounts.
    Own,
    /// All objects.
    All,
}

/// Returns the objects on which a role may do an operation.
#[must_use]
pub fn permission(role: Role, operation: Operation) -> Permission {
    use Operation::{
        ChangeBudget, Chat, Control, Create, Decide, Diagnose, Execute, GrantAgent, Monitor, OpenSession, Publish,
        Read, ReadContent, RegisterAgent, Steer, SuspendAgent,
    };
    use Permission::{All, Denied, Own};
    match (role, operation) {
        (Role::Admin, _) | (Role::Metrics, Monitor) => All,
        (
            Role::Owner,
            Read | ReadContent | Create | Chat | Control | Decide | Publish | Execute | RegisterAgent | SuspendAgent | OpenSession,
        )
        | (Role::Viewer, Read | ReadContent | OpenSession)
        | (Role::Chat, Chat) => Own,
        (Role::Owner, Steer | GrantAgent | ChangeBudget | Monitor | Diagnose)
        | (
            Role::Viewer,
            Create | Chat | Control | Decide | Publish | Steer | Execute | RegisterAgent | SuspendAgent | GrantAgent | ChangeBudget | Monitor | Diagnose,
        )
        // A chat token reaches its runs, which are the runs of its end users, through the chat routes only.
        | (Role::Chat | Role::Metrics, _) => Denied,
    }
}

/// Returns the objects on which a browser session of a role may do an operation. Other objects need a token: an
/// attacker who controls a page must not get more rights than its session has.
#[must_use]
pub fn session_permission(role: Role, operation: Operation) -> Permission {
    use Operation::{
        ChangeBudget, Chat, Control, Create, Decide, Diagnose, Execute, GrantAgent, Monitor, OpenSession, Publish,
        Read, ReadContent, RegisterAgent, Steer, SuspendAgent,
    };
    match (operation, permission(role, operation)) {
        (Read | ReadContent | Control | Decide | Monitor, permission) => permission,
        // An admin's session creates objects of its own owner and suspends only its own agents: an attacked page must
        // not stop the agents of other owners.
        (Create | Chat | SuspendAgent, Permission::All) => Permission::Own,
        (Create | Chat | SuspendAgent, permission) => permission,
        (Publish | Steer | Execute | RegisterAgent | GrantAgent | ChangeBudget | Diagnose | OpenSession, _) => {
            Permission::Denied
        }
    }
}

impl Principal {
    /// Returns the objects on which this principal may do an operation; `None` for none.
    #[must_use]
    pub fn may(&self, operation: Operation) -> Option<Scope<'_>> {
        let permission = match self.way {
            Way::Session => session_permission(self.role, operation),
            Way::AdminSocket | Way::Bearer => permission(self.role, operation),
        };
        match permission {
            Permission::Denied => None,
            Permission::Own => Some(Scope { own: Some(self) }),
            Permission::All => Some(Scope { own: None }),
        }
    }
}

/// Objects that a request may see: all, or the objects of one principal.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    own: Option<&'a Principal>,
}

impl<'a> Scope<'a> {
    /// Returns the owner of the visible objects; `None` if the objects of all owners are visible.
    #[must_use]
    pub fn owner(self) -> Option<&'a str> {
        self.own.map(|principal| principal.owner.as_str())
    }

    /// Returns the accounts that it has; `None` for all.
    #[must_use]
    pub fn accounts(self) -> Option<&'a [String]> {
        self.own.map(|principal| principal.accounts.as_slice())
    }

    /// Returns whether the scope includes the objects of this owner.
    #[must_use]
    pub fn has_owner(self, owner: &str) -> bool {
        self.owner().is_none_or(|own| own == owner)
    }

    /// Returns whether the scope includes this account.
    #[must_use]
    pub fn has_account(self, account: &str) -> bool {
        self.accounts().is_none_or(|own| own.iter().any(|known| known == account))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_that_of_the_threat_model() {
        use Permission::{All, Denied, Own};
        let rows = [
            (Operation::Read, [All, Own, Own, Denied, Denied]),
            (Operation::ReadContent, [All, Own, Own, Denied, Denied]),
            (Operation::Create, [All, Own, Denied, Denied, Denied]),
            (Operation::Chat, [All, Own, Denied, Own, Denied]),
            (Operation::Control, [All, Own, Denied, Denied, Denied]),
            (Operation::Steer, [All, Denied, Denied, Denied, Denied]),
            (Operation::Decide, [All, Own, Denied, Denied, Denied]),
            (Operation::Execute, [All, Own, Denied, Denied, Denied]),
            (Operation::RegisterAgent, [All, Own, Denied, Denied, Denied]),
            (Operation::SuspendAgent, [All, Own, Denied, Denied, Denied]),
            (Operation::GrantAgent, [All, Denied, Denied, Denied, Denied]),
            (Operation::ChangeBudget, [All, Denied, Denied, Denied, Denied]),
            (Operation::Monitor, [All, Denied, Denied, Denied, All]),
            (Operation::Diagnose, [All, Denied, Denied, Denied, Denied]),
            (Operation::OpenSession, [All, Own, Own, Denied, Denied]),
        ];
        for (operation, expected) in rows {
            let roles = [Role::Admin, Role::Owner, Role::Viewer, Role::Chat, Role::Metrics];
            let found = roles.map(|role| permission(role, operation));
            assert_eq!(found, expected, "{operation:?}");
        }
    }

    #[test]
    fn a_session_has_the_marked_operations_alone() {
        use Permission::{All, Denied, Own};
        let rows = [
            (Operation::Read, [All, Own, Own]),
            (Operation::ReadContent, [All, Own, Own]),
            (Operation::Create, [Own, Own, Denied]),
            (Operation::Chat, [Own, Own, Denied]),
            (Operation::Control, [All, Own, Denied]),
            (Operation::Execute, [Denied; 3]),
            (Operation::RegisterAgent, [Denied; 3]),
            (Operation::SuspendAgent, [Own, Own, Denied]),
            (Operation::GrantAgent, [Denied; 3]),
            (Operation::ChangeBudget, [Denied; 3]),
            (Operation::Monitor, [All, Denied, Denied]),
            (Operation::Diagnose, [Denied; 3]),
            (Operation::OpenSession, [Denied; 3]),
        ];
        for (operation, expected) in rows {
            let found = [Role::Admin, Role::Owner, Role::Viewer].map(|role| session_permission(role, operation));
            assert_eq!(found, expected, "{operation:?}");
        }
    }

    #[test]
    fn an_owner_sees_its_own_objects_alone() {
        let owner = Principal::for_tests(Role::Owner, "alice", &["acct-1"]);
        let scope = owner.may(Operation::Read).expect("its own");
        assert!(scope.has_owner("alice") && !scope.has_owner("bob") && !scope.has_owner("ALICE"));
        assert!(scope.has_account("acct-1") && !scope.has_account("acct-10") && !scope.has_account(""));
        let admin = Principal::for_tests(Role::Admin, "root", &[]);
        let scope = admin.may(Operation::Read).expect("all");
        assert!(scope.has_owner("bob") && scope.has_account("acct-10") && scope.accounts().is_none());
    }
}
