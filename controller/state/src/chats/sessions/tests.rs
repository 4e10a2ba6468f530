use super::*;
use crate::chats::tests::Tokens;
use crate::creation::CreationError;

const LIMITS: SessionLimits = SessionLimits { count: 10, bytes: 100 };

fn session(principal: &str, user: Option<&str>, id: &str, agent: &str) -> ChatSession {
    ChatSession {
        principal: principal.to_owned(),
        end_user: user.map(str::to_owned),
        session_id: id.to_owned(),
        agent: agent.to_owned(),
    }
}

fn one(id: &str) -> ChatSession {
    session("uid:0", None, id, "a")
}

fn key(run_id: &str) -> RunKey {
    format!("{run_id}.0").parse().expect("a key")
}

fn names(keys: &[RunKey]) -> Vec<&str> {
    keys.iter().map(|key| key.run_id.as_str()).collect()
}

impl Tokens {
    async fn turn(&self, run: &str, of: &ChatSession, previous: Option<&str>, now: i64) -> Result<(), CreationError> {
        let previous = previous.map(|id| id.parse().expect("an id"));
        let chat = NewChat {
            principal: of.principal.clone(),
            end_user: of.end_user.clone(),
            session_id: Some(of.session_id.clone()),
            is_resumable: true,
            turn: Some(SessionTurn { agent: of.agent.clone(), previous, has_worker: false }),
        };
        self.begin(run, chat, now).await
    }

    async fn keep(&self, run: &str, bytes: u64) -> Vec<RunKey> {
        let kept = self.store.keep_chat_workspace(key(run), bytes, LIMITS).await.expect("it is writable");
        kept.expect("it is a turn of a session")
    }

    /// Adds a complete session with one turn, which ends at a time.
    async fn session(&self, run: &str, of: &ChatSession, bytes: u64, ended: i64) -> Vec<RunKey> {
        self.turn(run, of, None, ended - 1).await.expect("the first turn");
        let removed = self.keep(run, bytes).await;
        self.end(run, ended).await;
        removed
    }

    async fn state(&self, of: &ChatSession) -> SessionState {
        self.store.chat_session(of.clone()).await.expect("it is readable")
    }
}

#[tokio::test]
async fn a_turn_follows_the_one_before() {
    let tokens = Tokens::new();
    let own = one("s");
    let busy = |begun: Result<(), CreationError>| matches!(begun, Err(CreationError::Session(SessionBusy)));

    tokens.turn("r1", &own, None, 1).await.expect("the first");
    let live = SessionState { newest: Some(run_id("r1")), is_live: true, workspace: None };
    assert_eq!(tokens.state(&own).await, live);
    assert!(busy(tokens.turn("r2", &own, Some("r1"), 2).await), "one turn at a time");
    assert_eq!(tokens.keep("r1", 5).await, []);
    tokens.end("r1", 3).await;
    assert!(busy(tokens.turn("r2", &own, None, 4).await), "its client has not seen the first one");
    tokens.turn("r2", &own, Some("r1"), 4).await.expect("the second");

    let found = tokens.store.find_chat(&run_id("r2")).await.expect("it is readable").expect("it is there");
    assert_eq!(
        found.new.turn,
        Some(SessionTurn { agent: "a".to_owned(), previous: Some(run_id("r1")), has_worker: false })
    );
    tokens.end("r2", 5).await;
    let state = tokens.state(&own).await;
    assert_eq!(
        (state.newest, state.workspace),
        (Some(run_id("r2")), Some(key("r1"))),
        "the second one has kept nothing"
    );
    tokens.turn("r3", &own, Some("r2"), 6).await.expect("the third");
    assert_eq!(tokens.keep("r3", 5).await, [key("r1")], "a session has one workspace");
    assert_eq!(tokens.store.chat_workspace(&run_id("r1")).await.expect("readable"), Some(None));
    assert_eq!(tokens.store.chat_workspace(&run_id("r3")).await.expect("readable"), Some(Some(0)));
}

#[tokio::test]
async fn a_retried_old_turn_leaves_the_sessions_workspace() {
    let tokens = Tokens::new();
    let own = one("s");
    tokens.turn("r1", &own, None, 1).await.expect("the first");
    tokens.end("r1", 2).await;
    tokens.turn("r2", &own, Some("r1"), 3).await.expect("the second");
    assert_eq!(tokens.keep("r2", 5).await, []);
    tokens.end("r2", 4).await;

    let retried: RunKey = "r1.1".parse().expect("a key");
    let removed = tokens.store.keep_chat_workspace(retried.clone(), 5, LIMITS).await.expect("it is writable");

    assert_eq!(removed, Some(vec![retried]), "its own is not needed");
    assert_eq!(tokens.state(&own).await.workspace, Some(key("r2")));
    assert_eq!(tokens.store.chat_workspace(&run_id("r1")).await.expect("readable"), Some(None));
}

#[tokio::test]
async fn sessions_of_others_are_never_found() {
    let tokens = Tokens::new();
    tokens.session("r1", &session("uid:0", Some("ann"), "s", "a"), 5, 2).await;
    for other in [
        session("uid:1", Some("ann"), "s", "a"),
        session("uid:0", Some("bob"), "s", "a"),
        session("uid:0", None, "s", "a"),
        session("uid:0", Some("ann"), "t", "a"),
        session("uid:0", Some("ann"), "s", "b"),
    ] {
        assert_eq!(tokens.state(&other).await, SessionState::default(), "{other:?}");
    }
    tokens.turn("r2", &session("uid:0", None, "s", "a"), None, 3).await.expect("a session of its own");
}

#[tokio::test]
async fn the_longest_unused_workspaces_are_given_up() {
    let tokens = Tokens::new();
    tokens.session("r1", &one("1"), 40, 10).await;
    tokens.session("r2", &one("2"), 40, 20).await;
    tokens.session("r3", &session("uid:1", None, "3", "a"), 90, 5).await;
    // The first session is used again, by a turn that keeps nothing.
    tokens.turn("r4", &one("1"), Some("r1"), 30).await.expect("the second turn");
    tokens.end("r4", 31).await;

    assert_eq!(names(&tokens.session("r5", &one("5"), 40, 40).await), ["r2"], "120 bytes are too many");
    tokens.turn("r6", &one("1"), Some("r4"), 50).await.expect("the third turn");
    assert_eq!(names(&tokens.session("r7", &one("7"), 90, 60).await), ["r5"], "what a live turn needs stays");
    assert_eq!(tokens.state(&one("1")).await.workspace, Some(key("r1")));
    assert_eq!(tokens.state(&session("uid:1", None, "3", "a")).await.workspace, Some(key("r3")), "of another one");

    let few = SessionLimits { count: 1, bytes: 1000 };
    tokens.end("r6", 70).await;
    tokens.turn("r8", &one("8"), None, 80).await.expect("the first turn");
    let removed = tokens.store.keep_chat_workspace(key("r8"), 1, few).await.expect("it is writable");
    assert_eq!(names(&removed.expect("it is a turn")), ["r1", "r7"]);
}

#[tokio::test]
async fn sessions_out_of_use_expire() {
    let tokens = Tokens::new();
    tokens.session("r1", &one("1"), 1, 10).await;
    tokens.session("r2", &one("2"), 1, 20).await;
    tokens.session("r3", &one("3"), 1, 5).await;
    tokens.turn("r4", &one("3"), Some("r3"), 30).await.expect("a turn that lives");
    let expire = async |before| tokens.store.expire_chat_workspaces(before).await.expect("it is writable");

    assert_eq!(names(&expire(15).await), ["r1"]);
    assert_eq!(expire(15).await, []);
    assert_eq!(names(&expire(i64::MAX).await), ["r2"]);
    assert_eq!(tokens.state(&one("3")).await.workspace, Some(key("r3")));
    let unknown = tokens.store.keep_chat_workspace(key("r9"), 1, LIMITS).await.expect("it is readable");
    assert_eq!(unknown, None);
}
