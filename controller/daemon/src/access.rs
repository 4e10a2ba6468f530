//! Authentication: finds the principal for the credential of a request.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sluice_state::tokens::TokenError;

use crate::credential::RequestCredential;
use crate::limits::HttpLimits;
use crate::principal::Principal;
use crate::request_rate::RequestRate;
use crate::sessions::{Binding, Sessions};
use crate::tokens::TokenPrincipals;

/// A listener, as far as access depends on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Entrance {
    /// `admin.sock`: root is an admin without a token.
    Admin,
    /// `api.sock` and TCP: each request needs a token or a session.
    Api,
}

/// The other end of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RemotePeer {
    /// User of the process, on a unix socket.
    pub uid: Option<u32>,
    /// Address, on TCP, or as the trusted proxy states it.
    pub address: Option<IpAddr>,
    /// The other end of the TCP connection itself.
    pub end: Option<SocketAddr>,
}

/// Reason that a request has no principal.
#[derive(Debug)]
pub enum AccessRefusal {
    /// The request carries no credential, and needs one.
    NoCredential,
    /// The credential is invalid. The answer is delayed for this time.
    BadCredential(Duration),
    /// The session is invalid, or not valid on this channel. The answer is delayed for this time.
    BadSession(Duration),
    /// Tokens cannot be looked up.
    Unavailable(TokenError),
    /// The token sends too many requests. It may send the next one after this time.
    TooMany(Duration),
}

/// Determines the principal of a request.
#[derive(Debug)]
pub struct Access {
    /// Browser sessions.
    pub(crate) sessions: Sessions,
    tokens: TokenPrincipals,
    requests: Mutex<RequestRate<String>>,
    failures: Mutex<FailedLogins>,
    delay: Duration,
}

#[derive(Debug)]
struct FailedLogins {
    rate: RequestRate<Option<IpAddr>>,
    unreported: u64,
}

impl Access {
    /// Returns access control by these tokens and limits.
    #[must_use]
    pub(crate) fn new(tokens: TokenPrincipals, limits: &HttpLimits) -> Self {
        let requests = RequestRate::new(limits.requests_per_second.into(), limits.request_burst);
        let logins = RequestRate::new(f64::from(limits.failed_logins) / 60.0, limits.failed_logins);
        Self {
            sessions: Sessions::default(),
            tokens,
            requests: Mutex::new(requests),
            failures: Mutex::new(FailedLogins { rate: logins, unreported: 0 }),
            delay: limits.failed_login_delay,
        }
    }

    /// Returns the principal of a request. `binding` describes its channel, for a request with a session cookie.
    ///
    /// # Errors
    /// [`AccessRefusal`]
    pub(crate) async fn authenticate(
        &self,
        entrance: Entrance,
        peer: &RemotePeer,
        credential: RequestCredential,
        binding: Option<Binding>,
    ) -> Result<Principal, AccessRefusal> {
        match (credential, entrance, peer.uid) {
            (RequestCredential::None, Entrance::Admin, Some(0)) => Ok(Principal::root(0)),
            (RequestCredential::None, ..) => Err(AccessRefusal::NoCredential),
            (RequestCredential::Invalid, ..) => Err(AccessRefusal::BadCredential(self.failed_login(peer))),
            (RequestCredential::InvalidSession, ..) => Err(AccessRefusal::BadSession(self.failed_login(peer))),
            (RequestCredential::Bearer(token), ..) => {
                let found = self.tokens.find(&token).await.map_err(AccessRefusal::Unavailable)?;
                let principal = found.ok_or_else(|| AccessRefusal::BadCredential(self.failed_login(peer)))?;
                self.counted(Principal { source: peer.address, ..principal })
            }
            (RequestCredential::Session(value), ..) => {
                let found = self.find_session(&value, binding).await.map_err(AccessRefusal::Unavailable)?;
                let principal = found.ok_or_else(|| AccessRefusal::BadSession(self.failed_login(peer)))?;
                self.counted(Principal { source: peer.address, ..principal })
            }
        }
    }

    /// Returns the principal of a session, if the token that has opened it is valid.
    async fn find_session(&self, value: &str, binding: Option<Binding>) -> Result<Option<Principal>, TokenError> {
        let Some((principal, maker)) = self.sessions.find(value, binding) else { return Ok(None) };
        if self.tokens.is_valid(&maker).await? {
            return Ok(Some(principal));
        }
        principal.session_id().into_iter().for_each(|id| self.sessions.end(id, "token_ended"));
        Ok(None)
    }

    /// Counts a request of a principal.
    fn counted(&self, principal: Principal) -> Result<Principal, AccessRefusal> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.take(principal.id.clone(), Instant::now()).map_err(AccessRefusal::TooMany)?;
        Ok(principal)
    }

    /// Returns whether a principal still has its role: its session is open, and its token is neither revoked nor expired.
    ///
    /// # Errors
    /// Tokens cannot be looked up.
    pub async fn is_current(&self, principal: &Principal) -> Result<bool, TokenError> {
        let Some(id) = principal.session_id() else { return self.tokens.is_valid(&principal.id).await };
        match self.sessions.maker(id) {
            Some(maker) => self.tokens.is_valid(&maker).await,
            None => Ok(false),
        }
    }

    /// Returns the number of failed logins since the last call.
    pub(crate) fn take_failures(&self) -> u64 {
        std::mem::take(&mut self.failures.lock().unwrap_or_else(PoisonError::into_inner).unreported)
    }

    /// Takes back failed logins that could not be reported.
    pub(crate) fn put_back_failures(&self, number: u64) {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner).unreported += number;
    }

    /// Counts a failed login, and returns the time that its answer waits.
    pub(crate) fn failed_login(&self, peer: &RemotePeer) -> Duration {
        let mut failures = self.failures.lock().unwrap_or_else(PoisonError::into_inner);
        failures.unreported += 1;
        let is_slow = failures.rate.take(peer.address, Instant::now()).is_err();
        if is_slow { self.delay } else { Duration::ZERO }
    }
}
