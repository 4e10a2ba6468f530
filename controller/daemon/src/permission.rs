//! Which role may do what: one table.
//!
//! Pure.

use crate::principal::{Principal, Role};

/// An operation of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Lists, details, events, streams, receipts, usage, budgets.
    Read,
    /// Logs, files, differences, transcripts, artifacts, audit files.
    ReadContent,
    /// Creation of a sandbox, retry, dry run.
    Create,
    /// Pause, resume, interrupt, cancel.
    Control,
    /// Decisions about approvals, and answers to questions.
    Decide,
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
}

/// Objects on which a role may do an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// None.
    Denied,
    /// Those of its own owner and accounts.
    Own,
    /// All.
    All,
}

/// Returns the objects on which a role may do an operation.
#[must_use]
pub fn permission(role: Role, operation: Operation) -> Permission {
    use Operation::{
        ChangeBudget, Control, Create, Decide, Diagnose, Execute, GrantAgent, Monitor, Read, ReadContent,
        RegisterAgent, SuspendAgent,
    };
    use Permission::{All, Denied, Own};
    match (role, operation) {
        (Role::Admin, _) | (Role::Metrics, Monitor) => All,
        (Role::Owner, Read | ReadContent | Create | Control | Decide | Execute | RegisterAgent | SuspendAgent)
        | (Role::Viewer, Read | ReadContent) => Own,
        (Role::Owner, GrantAgent | ChangeBudget | Monitor | Diagnose)
        | (
            Role::Viewer,
            Create | Control | Decide | Execute | RegisterAgent | SuspendAgent | GrantAgent | ChangeBudget | Monitor | Diagnose,
        )
        // Its own runs are those of its end users, by the chat routes alone.
        | (Role::Chat | Role::Metrics, _) => Denied,
    }
}

impl Principal {
    /// Returns the objects on which this principal may do an operation; `None` for none.
    #[must_use]
    pub fn may(&self, operation: Operation) -> Option<Scope<'_>> {
        match permission(self.role, operation) {
            Permission::Denied => None,
            Permission::Own => Some(Scope { own: Some(self) }),
            Permission::All => Some(Scope { own: None }),
        }
    }
}

/// Objects that a request may see: all, or those of one principal.
#[derive(Debug, Clone, Copy)]
pub struct Scope<'a> {
    own: Option<&'a Principal>,
}

impl<'a> Scope<'a> {
    /// Returns the owner whose objects it has; `None` for those of all owners.
    #[must_use]
    pub fn owner(self) -> Option<&'a str> {
        self.own.map(|principal| principal.owner.as_str())
    }

    /// Returns the accounts that it has; `None` for all.
    #[must_use]
    pub fn accounts(self) -> Option<&'a [String]> {
        self.own.map(|principal| principal.accounts.as_slice())
    }

    /// Returns whether it has the objects of this owner.
    #[must_use]
    pub fn has_owner(self, owner: &str) -> bool {
        self.owner().is_none_or(|own| own == owner)
    }

    /// Returns whether it has this account.
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
            (Operation::Control, [All, Own, Denied, Denied, Denied]),
            (Operation::Decide, [All, Own, Denied, Denied, Denied]),
            (Operation::Execute, [All, Own, Denied, Denied, Denied]),
            (Operation::RegisterAgent, [All, Own, Denied, Denied, Denied]),
            (Operation::SuspendAgent, [All, Own, Denied, Denied, Denied]),
            (Operation::GrantAgent, [All, Denied, Denied, Denied, Denied]),
            (Operation::ChangeBudget, [All, Denied, Denied, Denied, Denied]),
            (Operation::Monitor, [All, Denied, Denied, Denied, All]),
            (Operation::Diagnose, [All, Denied, Denied, Denied, Denied]),
        ];
        for (operation, expected) in rows {
            let roles = [Role::Admin, Role::Owner, Role::Viewer, Role::Chat, Role::Metrics];
            let found = roles.map(|role| permission(role, operation));
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
