//! Login codes and browser sessions.
//!
//! They are only in memory, as SHA-256 of their values: a restart of the daemon ends them all.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use ring::rand::{SecureRandom, SystemRandom};
use sluice_contract::{Hash, hex};
use zeroize::Zeroizing;

mod table;

pub(crate) use table::{Binding, CODE_LIFE, CodeState, EndedSession, LIFE, Login, LoginView, SessionTable};

use crate::principal::Principal;

/// Beginning of every login code.
const CODE_PREFIX: &str = "slc_";
/// Beginning of the value of every session.
const SESSION_PREFIX: &str = "sls_";

/// The login codes and sessions of a daemon.
#[derive(Debug, Default)]
pub(crate) struct Sessions(Mutex<SessionTable>);

/// The kernel gave no random bytes.
#[derive(Debug, thiserror::Error)]
#[error("the kernel gave no random bytes")]
pub(crate) struct NoRandomBytes;

/// A new secret, and the public id of the code or session that it opens.
pub(crate) struct NewSecret {
    /// The value, which only its client gets.
    pub(crate) value: Zeroizing<String>,
    /// The id.
    pub(crate) id: String,
}

impl Sessions {
    /// Makes a login code. `maker` is the principal that asks for it.
    pub(crate) fn create_code(&self, maker: &Principal, login: Login) -> Result<NewSecret, NoRandomBytes> {
        let secret = new_secret(CODE_PREFIX)?;
        self.lock().add_code(Hash::of(secret.value.as_bytes()), secret.id.clone(), &maker.id, login, Instant::now());
        Ok(secret)
    }

    /// Returns the principal that a code would log in. The code stays valid.
    pub(crate) fn preview(&self, code: &str) -> Option<LoginView> {
        self.lock().preview(&Hash::of(code.as_bytes()), Instant::now())
    }

    /// Uses a code up, and returns the principal that it logs in.
    pub(crate) fn take_code(&self, code: &str) -> Option<LoginView> {
        self.lock().take_code(&Hash::of(code.as_bytes()), Instant::now())
    }

    /// Returns the state of a code that this principal has made.
    pub(crate) fn code_state(&self, maker: &Principal, id: &str) -> Option<CodeState> {
        self.lock().code_state(&maker.id, id, Instant::now())
    }

    /// Begins a session under the value of a secret. `replaced` is the id of the session that it replaces.
    pub(crate) fn begin(&self, secret: &NewSecret, view: LoginView, binding: Binding, replaced: Option<&str>) {
        let hash = Hash::of(secret.value.as_bytes());
        let mut table = self.lock();
        if let Some(replaced) = replaced {
            table.end(replaced, "replaced");
        }
        table.begin(hash, secret.id.clone(), view, binding, Instant::now());
    }

    /// Returns the principal of a session that is valid for a request on this channel, and the maker of its code.
    pub(crate) fn find(&self, value: &str, binding: Option<Binding>) -> Option<(Principal, String)> {
        self.lock().find(&Hash::of(value.as_bytes()), binding?, Instant::now())
    }

    /// Returns the principal that made the login code of an open session.
    pub(crate) fn maker(&self, id: &str) -> Option<String> {
        self.lock().maker(id, Instant::now())
    }

    /// Returns the time until the maximum lifetime of a session. An idle session ends earlier.
    pub(crate) fn left(&self, id: &str) -> Option<std::time::Duration> {
        self.lock().left(id, Instant::now())
    }

    /// Ends a session.
    pub(crate) fn end(&self, id: &str, reason: &'static str) {
        self.lock().end(id, reason);
    }

    /// Returns the sessions that have ended since the last call.
    pub(crate) fn take_ended(&self) -> Vec<EndedSession> {
        let mut table = self.lock();
        table.sweep(Instant::now());
        table.take_ended()
    }

    /// Takes back ended sessions that could not be recorded.
    pub(crate) fn put_back(&self, ended: Vec<EndedSession>) {
        self.lock().put_back(ended);
    }

    fn lock(&self) -> MutexGuard<'_, SessionTable> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes the value of a session, and its id.
pub(crate) fn new_session() -> Result<NewSecret, NoRandomBytes> {
    new_secret(SESSION_PREFIX)
}

fn new_secret(prefix: &str) -> Result<NewSecret, NoRandomBytes> {
    let mut bytes = Zeroizing::new([0; 32]);
    SystemRandom::new().fill(&mut *bytes).map_err(|_| NoRandomBytes)?;
    let mut value = Zeroizing::new(String::with_capacity(prefix.len() + 2 * bytes.len()));
    value.push_str(prefix);
    hex::push(&mut value, &*bytes);
    Ok(NewSecret { value, id: uuid::Uuid::new_v4().simple().to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::principal::Role;

    #[test]
    fn codes_have_256_bits_and_are_never_the_same() {
        let (sessions, maker) = (Sessions::default(), Principal::for_tests(Role::Owner, "alice", &[]));
        let make = || sessions.create_code(&maker, Login::of(&maker, Role::Owner, None)).expect("random bytes");
        let (first, second) = (make(), make());
        assert_eq!((first.value.len(), first.value.starts_with("slc_")), (4 + 64, true));
        assert_ne!(*first.value, *second.value);
        assert!(!format!("{sessions:?}").contains(&first.value[4..]), "only hashes are kept");
    }
}
