//! The table of login codes and sessions: their lifetimes and their principals.
//!
//! Pure: the caller passes the time and the new secrets.

use std::time::{Duration, Instant};

use sluice_contract::Hash;

use crate::principal::{Principal, Role, Way};

/// Time in which a code can be used.
pub(crate) const CODE_LIFE: Duration = Duration::from_secs(60);
/// Maximum time of a session.
pub(crate) const LIFE: Duration = Duration::from_secs(12 * 3600);
/// Time after the last request at which a session ends.
pub(crate) const IDLE: Duration = Duration::from_secs(3600);
/// Maximum number of sessions of one principal, and of its codes that are not older than [`CODE_LIFE`].
const PER_PRINCIPAL: usize = 5;
/// Maximum number of ended sessions that wait for their line in the control log.
const ENDED_MAX: usize = 1000;

/// Channel to which a session is bound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Binding {
    /// Connections with TLS.
    Tls,
    /// Connections of processes of this user, over loopback without TLS.
    Uid(u32),
}

/// Principal that is logged in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Login {
    /// Owner.
    pub(crate) owner: String,
    /// Role.
    pub(crate) role: Role,
    /// Accounts.
    pub(crate) accounts: Vec<String>,
}

/// A login, with the principal that has made its code.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoginView {
    /// Principal that is logged in.
    pub(crate) login: Login,
    /// `token:ID` or `uid:N`.
    pub(crate) maker: String,
}

/// State of a code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CodeState {
    /// The code can be used.
    Waiting,
    /// The code was used.
    Used,
}

/// A session that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndedSession {
    /// Id.
    pub(crate) id: String,
    /// Owner.
    pub(crate) owner: String,
    /// Reason of the end, as one word.
    pub(crate) reason: &'static str,
}

/// Login codes and sessions.
#[derive(Debug, Default)]
pub(crate) struct SessionTable {
    codes: Vec<Code>,
    sessions: Vec<Session>,
    ended: Vec<EndedSession>,
}

#[derive(Debug)]
struct Code {
    hash: Hash,
    id: String,
    view: LoginView,
    made: Instant,
    is_used: bool,
}

#[derive(Debug)]
struct Session {
    hash: Hash,
    id: String,
    view: LoginView,
    binding: Binding,
    began: Instant,
    used: Instant,
}

impl Login {
    /// Returns the login of a principal in a role. An admin has all accounts; in the role of an owner, it has only the
    /// account that pays its runs.
    pub(crate) fn of(principal: &Principal, role: Role, payer: Option<&str>) -> Self {
        let accounts = match payer {
            Some(payer) if role == Role::Owner && principal.accounts.is_empty() => vec![payer.to_owned()],
            _ => principal.accounts.clone(),
        };
        Self { owner: principal.owner.clone(), role, accounts }
    }
}

impl Code {
    fn is_valid(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.made) < CODE_LIFE
    }
}

impl Session {
    /// Returns the word for the end of an expired session.
    fn over(&self, now: Instant) -> Option<&'static str> {
        if now.saturating_duration_since(self.began) >= LIFE {
            return Some("expired");
        }
        (now.saturating_duration_since(self.used) >= IDLE).then_some("idle")
    }

    fn principal(&self) -> Principal {
        let Login { owner, role, accounts } = self.view.login.clone();
        Principal { id: format!("session:{}", self.id), owner, role, accounts, way: Way::Session, source: None }
    }
}

impl SessionTable {
    /// Adds a code. If a principal has too many codes, its oldest one is removed.
    pub(crate) fn add_code(&mut self, hash: Hash, id: String, maker: &str, login: Login, now: Instant) {
        self.codes.retain(|code| code.is_valid(now));
        let of_maker = |code: &Code| code.view.maker == maker;
        if self.codes.iter().filter(|code| of_maker(code)).count() >= PER_PRINCIPAL
            && let Some(oldest) = self.codes.iter().position(of_maker)
        {
            self.codes.remove(oldest);
        }
        let view = LoginView { login, maker: maker.to_owned() };
        self.codes.push(Code { hash, id, view, made: now, is_used: false });
    }

    /// Returns the principal that a code logs in.
    pub(crate) fn preview(&self, hash: &Hash, now: Instant) -> Option<LoginView> {
        let found = self.codes.iter().find(|code| code.hash == *hash && !code.is_used && code.is_valid(now));
        found.map(|code| code.view.clone())
    }

    /// Uses a code up, and returns the principal that it logs in.
    pub(crate) fn take_code(&mut self, hash: &Hash, now: Instant) -> Option<LoginView> {
        let found = self.codes.iter_mut().find(|code| code.hash == *hash && !code.is_used && code.is_valid(now))?;
        found.is_used = true;
        Some(found.view.clone())
    }

    /// Returns the state of a code of this maker; `None` when its time is over.
    pub(crate) fn code_state(&self, maker: &str, id: &str, now: Instant) -> Option<CodeState> {
        let found = self.codes.iter().find(|code| code.id == id && code.view.maker == maker && code.is_valid(now))?;
        Some(if found.is_used { CodeState::Used } else { CodeState::Waiting })
    }

    /// Begins a session. If a principal has too many sessions, the one that was unused for the longest time is ended.
    pub(crate) fn begin(&mut self, hash: Hash, id: String, view: LoginView, binding: Binding, now: Instant) {
        self.sweep(now);
        let own: Vec<_> = self.sessions.iter().filter(|session| session.view.maker == view.maker).collect();
        if own.len() >= PER_PRINCIPAL
            && let Some(id) = own.iter().min_by_key(|session| session.used).map(|session| session.id.clone())
        {
            self.end(&id, "too_many");
        }
        self.sessions.push(Session { hash, id, view, binding, began: now, used: now });
    }

    /// Returns the principal of a session, and the maker of its code. A request on another channel finds none.
    pub(crate) fn find(&mut self, hash: &Hash, binding: Binding, now: Instant) -> Option<(Principal, String)> {
        let is_valid = |session: &&mut Session| session.hash == *hash && session.over(now).is_none();
        let found = self.sessions.iter_mut().find(is_valid).filter(|session| session.binding == binding)?;
        found.used = now;
        Some((found.principal(), found.view.maker.clone()))
    }

    /// Returns the principal that made the code of an open session.
    pub(crate) fn maker(&self, id: &str, now: Instant) -> Option<String> {
        let found = self.sessions.iter().find(|session| session.id == id && session.over(now).is_none());
        found.map(|session| session.view.maker.clone())
    }

    /// Returns the time until the maximum lifetime of a session.
    pub(crate) fn left(&self, id: &str, now: Instant) -> Option<Duration> {
        let found = self.sessions.iter().find(|session| session.id == id)?;
        Some(LIFE.saturating_sub(now.saturating_duration_since(found.began)))
    }

    /// Ends a session.
    pub(crate) fn end(&mut self, id: &str, reason: &'static str) {
        if let Some(at) = self.sessions.iter().position(|session| session.id == id) {
            let Session { id, view, .. } = self.sessions.remove(at);
            if self.ended.len() < ENDED_MAX {
                self.ended.push(EndedSession { id, owner: view.login.owner, reason });
            }
        }
    }

    /// Ends expired sessions.
    pub(crate) fn sweep(&mut self, now: Instant) {
        let over: Vec<_> =
            self.sessions.iter().filter_map(|session| Some((session.id.clone(), session.over(now)?))).collect();
        for (id, reason) in over {
            self.end(&id, reason);
        }
    }

    /// Takes back ended sessions, so that the next call of `take_ended` returns them again.
    pub(crate) fn put_back(&mut self, ended: Vec<EndedSession>) {
        self.ended.splice(0..0, ended);
    }

    /// Returns the sessions that have ended since the last call.
    pub(crate) fn take_ended(&mut self) -> Vec<EndedSession> {
        std::mem::take(&mut self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn hash(text: &str) -> Hash {
        Hash::of(text.as_bytes())
    }

    fn view(maker: &str) -> LoginView {
        let login = Login { owner: "alice".to_owned(), role: Role::Owner, accounts: Vec::new() };
        LoginView { login, maker: maker.to_owned() }
    }

    #[test]
    fn a_code_is_used_once_within_a_minute() {
        let (mut table, start) = (SessionTable::default(), Instant::now());
        let last = start + CODE_LIFE - SECOND;
        table.add_code(hash("a"), "1".to_owned(), "uid:0", view("uid:0").login, start);
        table.add_code(hash("b"), "2".to_owned(), "uid:0", view("uid:0").login, start);
        for _ in 0..2 {
            assert_eq!(table.preview(&hash("a"), last), Some(view("uid:0")), "a look uses nothing up");
        }
        assert_eq!(table.code_state("uid:0", "1", last), Some(CodeState::Waiting));
        assert_eq!(table.take_code(&hash("a"), last), Some(view("uid:0")));
        assert_eq!((table.take_code(&hash("a"), last), table.preview(&hash("a"), last)), (None, None));
        assert_eq!(table.code_state("uid:0", "1", last), Some(CodeState::Used));
        assert_eq!(table.code_state("token:x", "1", last), None, "it is its maker's alone");
        let late = start + CODE_LIFE;
        assert_eq!((table.take_code(&hash("b"), late), table.code_state("uid:0", "2", late)), (None, None));
        assert_eq!(table.take_code(&hash("c"), start), None);
    }

    #[test]
    fn a_principal_has_five_codes_and_five_sessions() {
        let (mut table, start) = (SessionTable::default(), Instant::now());
        for number in 0..6 {
            let name = number.to_string();
            table.add_code(hash(&name), name.clone(), "uid:0", view("uid:0").login, start);
            table.begin(hash(&name), name.clone(), view("uid:0"), Binding::Tls, start + number * SECOND);
        }
        table.begin(hash("other"), "other".to_owned(), view("token:b"), Binding::Tls, start);
        assert_eq!((table.preview(&hash("0"), start), table.preview(&hash("1"), start)), (None, Some(view("uid:0"))));
        assert_eq!((table.sessions.len(), table.maker("0", start)), (6, None));
        let ended = EndedSession { id: "0".to_owned(), owner: "alice".to_owned(), reason: "too_many" };
        assert_eq!(table.take_ended(), [ended]);
    }

    #[test]
    fn a_session_ends_idle_or_after_twelve_hours() {
        let (mut table, start) = (SessionTable::default(), Instant::now());
        table.begin(hash("a"), "a".to_owned(), view("uid:0"), Binding::Tls, start);
        let mut now = start;
        // Used every 59 minutes, it lasts for 12 hours.
        for _ in 0..12 {
            now += IDLE - 60 * SECOND;
            assert!(table.find(&hash("a"), Binding::Tls, now).is_some());
        }
        assert!(table.find(&hash("a"), Binding::Tls, start + LIFE).is_none());
        table.begin(hash("b"), "b".to_owned(), view("uid:0"), Binding::Tls, start);
        assert!(table.find(&hash("b"), Binding::Tls, start + IDLE).is_none());
        table.sweep(start + LIFE);
        let reasons: Vec<_> = table.take_ended().iter().map(|ended| ended.reason).collect();
        assert_eq!(reasons, ["expired", "expired"]);
    }

    #[test]
    fn a_session_is_valid_on_its_own_channel_alone() {
        let (mut table, now) = (SessionTable::default(), Instant::now());
        let channels = [Binding::Uid(1000), Binding::Uid(0), Binding::Tls];
        for own in channels {
            let name = format!("{own:?}");
            table.begin(hash(&name), name.clone(), view("uid:0"), own, now);
            for other in channels {
                assert_eq!(table.find(&hash(&name), other, now).is_some(), own == other, "{own:?} {other:?}");
            }
        }
        let (principal, maker) = table.find(&hash("Tls"), Binding::Tls, now).expect("it is valid");
        assert_eq!((principal.id.as_str(), principal.way, maker.as_str()), ("session:Tls", Way::Session, "uid:0"));
    }
}
