//! A scripted upstream: raw sockets, so that it can send any bytes and show every byte it got.
//!
//! It parses requests strictly and fails the test when the sidecar sends a malformed one. Each
//! connection keeps alive and answers its requests in order, each by a [`Script`].

use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinHandle;

use crate::board::SharedState;
use crate::scratch::TempDir;

pub mod answers;
mod connection;
mod dead;
mod gate;
mod received;
mod script;
mod shape;

use connection::{Listener, Serving, State};
pub use dead::{ClosedPort, FullAcceptQueue};
pub use gate::Gate;
pub use received::ReceivedRequest;
pub use script::Script;
pub use shape::Step;

type Choose = Arc<dyn Fn(&ReceivedRequest) -> Script + Send + Sync>;
type Hook = Arc<dyn Fn(usize) + Send + Sync>;

/// The description of an upstream; [`UpstreamPlan::start`] opens its socket.
#[must_use = "an upstream plan does nothing until it is started"]
pub struct UpstreamPlan {
    choose: Choose,
    gate: Gate,
    on_accept: Hook,
    on_request: Hook,
}

impl fmt::Debug for UpstreamPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Plan")
    }
}

impl UpstreamPlan {
    fn new(choose: impl Fn(&ReceivedRequest) -> Script + Send + Sync + 'static) -> Self {
        Self { choose: Arc::new(choose), gate: Gate::new(), on_accept: Arc::new(|_| ()), on_request: Arc::new(|_| ()) }
    }

    /// Changes every answer.
    pub fn edit(mut self, edit: impl Fn(Script) -> Script + Send + Sync + 'static) -> Self {
        let choose = self.choose;
        self.choose = Arc::new(move |request| edit(choose(request)));
        self
    }

    /// Every answer waits after `count` writes of its body (see [`Script`]) for [`Upstream::release`].
    pub fn hold_after(self, count: usize) -> Self {
        let gate = self.gate.clone();
        self.edit(move |script| script.hold_after(count, &gate))
    }

    /// Every answer waits before its head for [`Upstream::release`].
    pub fn hold_head(self) -> Self {
        let gate = self.gate.clone();
        self.edit(move |script| script.hold_head(&gate))
    }

    /// Every answer waits before each write of its body for [`Upstream::step`].
    pub fn hold_each(self) -> Self {
        let gate = self.gate.clone();
        self.edit(move |script| script.hold_each(&gate))
    }

    /// Every answer ends in FIN after `count` writes of its body.
    pub fn cut_after(self, count: usize) -> Self {
        self.edit(move |script| script.cut_after(count))
    }

    /// Every answer ends in RST after `count` writes of its body.
    pub fn reset_after(self, count: usize) -> Self {
        self.edit(move |script| script.reset_after(count))
    }

    /// Every answer falls silent after `count` writes of its body.
    pub fn silent_after(self, count: usize) -> Self {
        self.edit(move |script| script.silent_after(count))
    }

    /// Runs with the connection's number when a connection is accepted, before anything is read.
    pub fn on_accept(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_accept = Arc::new(hook);
        self
    }

    /// Runs with the connection's number when the first byte of a request has arrived, before
    /// any more is read. A panic in it fails the test.
    pub fn on_request(mut self, hook: impl Fn(usize) + Send + Sync + 'static) -> Self {
        self.on_request = Arc::new(hook);
        self
    }

    /// Listens on a free port of 127.0.0.1.
    pub async fn start(self) -> Upstream {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.expect("loopback has a free port");
        self.start_tcp(listener)
    }

    /// Listens on a unix socket.
    pub async fn start_unix(self) -> Upstream {
        let dir = TempDir::new();
        let path = dir.join("up.sock");
        let listener = UnixListener::bind(&path).expect("a fresh directory takes a socket");
        // For a sidecar that is not root any more.
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o666)).expect("it is ours");
        let url = format!("unix:{}", path.display());
        self.serve(Listener::Unix(listener), url, Some((dir, path)))
    }

    /// Listens on a port that refused connections until now.
    pub async fn start_at(self, nowhere: ClosedPort) -> Upstream {
        self.start_tcp(nowhere.listen())
    }

    fn start_tcp(self, listener: TcpListener) -> Upstream {
        let url = format!("http://{}", listener.local_addr().expect("a bound listener has an address"));
        self.serve(Listener::Tcp(listener), url, None)
    }

    fn serve(self, listener: Listener, url: String, unix: Option<(TempDir, PathBuf)>) -> Upstream {
        let board = Arc::new(SharedState::new(State::default()));
        let serving = Serving {
            choose: self.choose,
            on_accept: self.on_accept,
            on_request: self.on_request,
            board: board.clone(),
        };
        let accepting = tokio::spawn(connection::accept(listener, Arc::new(serving)));
        Upstream { url, unix, board, gate: self.gate, accepting }
    }
}

/// A running upstream; its sockets close when it is dropped.
#[derive(Debug)]
pub struct Upstream {
    url: String,
    unix: Option<(TempDir, PathBuf)>,
    board: Arc<SharedState<State>>,
    gate: Gate,
    accepting: JoinHandle<()>,
}

impl Upstream {
    /// The same script for every request.
    pub fn answering(script: Script) -> UpstreamPlan {
        UpstreamPlan::new(move |_| script.clone())
    }

    /// One script after the other; the last one repeats.
    pub fn queue(scripts: impl IntoIterator<Item = Script>) -> UpstreamPlan {
        let queue: Mutex<VecDeque<Script>> = Mutex::new(scripts.into_iter().collect());
        UpstreamPlan::new(move |_| {
            let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
            let next = if queue.len() > 1 { queue.pop_front() } else { queue.front().cloned() };
            next.expect("a queue of scripts is not empty")
        })
    }

    /// A script that depends on the request.
    pub fn with(choose: impl Fn(&ReceivedRequest) -> Script + Send + Sync + 'static) -> UpstreamPlan {
        UpstreamPlan::new(choose)
    }

    /// Answers like a provider behind LiteLLM: by route, as a stream if the request asks for one.
    pub fn provider(text: &str) -> UpstreamPlan {
        Self::answering(Script::provider(text))
    }

    /// A chat completion.
    pub fn chat(text: &str) -> UpstreamPlan {
        Self::answering(Script::chat(text))
    }

    /// A chat completion stream.
    pub fn chat_stream<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> UpstreamPlan {
        Self::answering(Script::chat_stream(texts))
    }

    /// A stream of these events (see [`Script::sse`]).
    pub fn sse<E: AsRef<str>>(events: impl IntoIterator<Item = E>) -> UpstreamPlan {
        Self::answering(Script::sse(events))
    }

    /// A JSON answer.
    pub fn json(status: u16, value: serde_json::Value) -> UpstreamPlan {
        Self::answering(Script::json(status, value))
    }

    /// Never answers.
    pub fn never() -> UpstreamPlan {
        Self::answering(Script::never())
    }

    /// The value of `--upstream`: `http://127.0.0.1:PORT` or `unix:PATH`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The socket of the unix variant.
    pub fn socket(&self) -> &Path {
        &self.unix.as_ref().expect("only an upstream started by start_unix has a socket path").1
    }

    /// Opens the gate of the plan's `hold_…` permanently.
    pub fn release(&self) {
        self.gate.open();
    }

    /// Lets one write pass the gate of the plan's `hold_…`.
    pub fn step(&self) {
        self.gate.step();
    }

    /// Waits until answers have arrived at the plan's gate `count` times in total.
    pub async fn held(&self, count: usize) {
        self.gate.reached(count).await;
    }

    /// Waits for the next complete request that no earlier call has returned.
    pub async fn received(&self) -> ReceivedRequest {
        let next = |state: &mut State| {
            let request = state.requests.get(state.returned).cloned()?;
            state.returned += 1;
            Some(request)
        };
        self.until("the upstream to receive a request", next).await
    }

    /// All complete requests so far, in the order of their last bytes.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        self.look(|state| state.requests.clone())
    }

    /// The only request.
    pub fn only_request(&self) -> ReceivedRequest {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests that reached the upstream");
        requests.remove(0)
    }

    /// Number of requests of which at least one byte has arrived.
    pub fn begun(&self) -> usize {
        self.look(|state| state.begun)
    }

    /// Number of accepted connections.
    pub fn connections(&self) -> usize {
        self.look(|state| state.closed.len())
    }

    /// Number of open connections.
    pub fn open_connections(&self) -> usize {
        self.look(|state| state.closed.iter().filter(|closed| !**closed).count())
    }

    /// Waits until `count` connections have been accepted in total.
    pub async fn accepted(&self, count: usize) {
        self.until("the upstream to be connected to", |state| (state.closed.len() >= count).then_some(())).await;
    }

    /// Waits until that connection has ended: normally, until the sidecar has closed its side.
    pub async fn closed(&self, connection: usize) {
        let over = |state: &mut State| state.closed.get(connection).copied().unwrap_or(false).then_some(());
        self.until("the sidecar to close its upstream connection", over).await;
    }

    /// Bytes written to all connections.
    pub fn bytes_sent(&self) -> u64 {
        self.look(|state| state.sent)
    }

    /// Waits until this many bytes have been written in total.
    pub async fn sent(&self, bytes: u64) {
        self.until("the upstream to send more", |state| (state.sent >= bytes).then_some(())).await;
    }

    /// Waits until nothing has been written for 300 ms, and returns the number of bytes written so far.
    ///
    /// The only measured silence of the test kit: no event tells that a peer has stopped reading.
    pub async fn stalled(&self) -> u64 {
        self.stalled_for(Duration::from_millis(300)).await
    }

    /// The same, for a silence of this length.
    pub async fn stalled_for(&self, silence: Duration) -> u64 {
        self.board.quiet("the upstream to stall", silence).await;
        self.bytes_sent()
    }

    async fn until<T>(&self, what: &str, mut seek: impl FnMut(&mut State) -> Option<T>) -> T {
        let answer = self.board.until(what, |state| match &state.fault {
            Some(fault) => Some(Err(fault.clone())),
            None => seek(state).map(Ok),
        });
        answer.await.unwrap_or_else(|fault| panic!("{fault}"))
    }

    fn look<T>(&self, read: impl FnOnce(&State) -> T) -> T {
        self.board.look(|state| match &state.fault {
            Some(fault) => panic!("{fault}"),
            None => read(state),
        })
    }
}

impl Drop for Upstream {
    fn drop(&mut self) {
        self.accepting.abort();
        if let Some(fault) = self.board.look(|state| state.fault.clone())
            && !std::thread::panicking()
        {
            panic!("{fault}");
        }
    }
}

#[cfg(test)]
mod tests;
