//! The limits of HTTP requests and connections.
//!
//! Pure.

use std::time::Duration;

/// Limits of connections and requests, with the defaults of the daemon.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HttpLimits {
    /// Connections of all TCP listeners, and of each socket.
    pub connections: usize,
    /// Connections of one address.
    pub connections_per_address: usize,
    /// Bytes of a request line and its headers.
    pub head_bytes: usize,
    /// Time for a head, from its first byte, or from the start of a connection.
    pub head_time: Duration,
    /// Time that a connection may be idle between two requests.
    pub idle_time: Duration,
    /// Time for a TLS handshake.
    pub handshake_time: Duration,
    /// Maximum number of bytes of a body, if a route has no limit of its own.
    pub body_bytes: usize,
    /// Time for a body.
    pub body_time: Duration,
    /// Depth of JSON.
    pub json_depth: usize,
    /// Maximum number of members of one JSON object, or elements of one array.
    pub json_members: usize,
    /// Bytes of the name of a JSON member.
    pub json_name_bytes: usize,
    /// Maximum number of requests of one token per second.
    pub requests_per_second: u32,
    /// Maximum number of requests of one token at once, after a pause.
    pub request_burst: u32,
    /// Number of failed logins of one address in a minute, after which each later one is delayed.
    pub failed_logins: u32,
    /// Delay of a failed login above this number.
    pub failed_login_delay: Duration,
    /// Maximum number of streams of one token.
    pub streams_per_token: usize,
    /// Streams of all tokens.
    pub streams: usize,
    /// Time between two frames of a quiet stream.
    pub stream_quiet: Duration,
    /// Maximum time after which a stream or a wait of a revoked token ends.
    pub stream_check: Duration,
    /// Maximum number of requests of one token that wait for the state of a run.
    pub waits_per_token: usize,
    /// Requests of all tokens that wait for the state of a run.
    pub waits: usize,
    /// Maximum number of requests of one token that list or write files of sandboxes.
    pub file_work_per_token: usize,
    /// Maximum number of requests of all tokens that list or write files of sandboxes.
    pub file_work: usize,
    /// Maximum time for writing a file, and for each piece of it.
    pub upload_time: (Duration, Duration),
    /// Runs that one owner may create in a minute.
    pub creations: u32,
    /// Chats that one owner may begin in a minute.
    pub chat_creations: u32,
    /// Clients of chats of one token.
    pub chats_per_token: usize,
    /// Clients of chats of all tokens.
    pub chats: usize,
    /// Maximum number of operations of one owner in a minute that the control log records.
    pub changes: u32,
    /// Heartbeats that a run may report in a minute.
    pub heartbeats: u32,
    /// Messages that may be sent to a run in a minute.
    pub messages: u32,
    /// Requests for messages that a run may make in a minute.
    pub polls: u32,
    /// Time in which a client must take some bytes of its answer.
    pub write_time: Duration,
    /// Time for a graceful stop.
    pub stop_time: Duration,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_address: 64,
            head_bytes: 32 << 10,
            head_time: Duration::from_secs(10),
            idle_time: Duration::from_secs(60),
            handshake_time: Duration::from_secs(10),
            body_bytes: 1 << 20,
            body_time: Duration::from_secs(60),
            json_depth: 32,
            json_members: 1000,
            json_name_bytes: 255,
            requests_per_second: 50,
            request_burst: 100,
            failed_logins: 10,
            failed_login_delay: Duration::from_secs(1),
            streams_per_token: 20,
            streams: 500,
            stream_quiet: Duration::from_secs(15),
            stream_check: Duration::from_secs(5),
            waits_per_token: 20,
            waits: 100,
            file_work_per_token: 4,
            file_work: 32,
            upload_time: (Duration::from_secs(600), Duration::from_secs(30)),
            creations: 60,
            chat_creations: 240,
            chats_per_token: 250,
            chats: 500,
            changes: 300,
            heartbeats: 10,
            messages: 30,
            polls: 240,
            write_time: Duration::from_secs(30),
            stop_time: Duration::from_secs(10),
        }
    }
}
