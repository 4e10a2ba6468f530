//! The two requests of a push, as git sends them.

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode};
use hyper::body::Body;
use sluice_contract::Hash;
use sluice_git::{GitError, Push, RunRepository};
use sluice_state::store::now_us;

use super::message::WholeBody;
use super::push_limit::{PushLimit, PushLimitError};

/// The response to a request of a push, and the effect of the request.
#[derive(Debug)]
pub struct PushAnswer {
    /// Answer for the sandbox. It names nothing of this host.
    pub response: Response<WholeBody>,
    /// Push that was accepted.
    pub pushed: Option<Push>,
    /// Fault of this host, for the operator's log.
    pub fault: Option<GitError>,
}

impl PushAnswer {
    fn of(response: Response<WholeBody>) -> Self {
        Self { response, pushed: None, fault: None }
    }

    fn refused(error: PushLimitError) -> Self {
        match error {
            PushLimitError::TooMany(error) => Self::of(text(StatusCode::TOO_MANY_REQUESTS, &error.to_string())),
            PushLimitError::Git(GitError::Refused(refusal)) => {
                Self::of(text(StatusCode::PAYLOAD_TOO_LARGE, &refusal.to_string()))
            }
            PushLimitError::Git(fault) => Self::failed(fault),
        }
    }

    fn failed(error: GitError) -> Self {
        let message =
            "the push was not taken: this host has a fault, and its operator's log says which; push again later";
        Self { fault: Some(error), ..Self::of(text(StatusCode::INTERNAL_SERVER_ERROR, message)) }
    }
}

/// Answers a request of a push to the repository of a run. The caller has authenticated the request. `limit` has the pushes
/// that are being received; one value serves all requests of the run.
pub async fn answer_push<B>(repository: &RunRepository, limit: &PushLimit, request: Request<B>) -> PushAnswer
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let prefix = format!("/git/{}.git/", repository.run());
    let path = request.uri().path().strip_prefix(&prefix).unwrap_or_default().to_owned();
    let query = request.uri().query();
    if request.headers().contains_key(CONTENT_ENCODING) {
        let message = "send the push without Content-Encoding";
        return PushAnswer::of(text(StatusCode::UNSUPPORTED_MEDIA_TYPE, message));
    }
    match (request.method(), path.as_str(), query) {
        (&Method::GET, "info/refs", Some("service=git-receive-pack")) => advertise(repository, limit).await,
        (&Method::POST, "git-receive-pack", _) => receive(repository, limit, request.into_body()).await,
        _ => PushAnswer::of(text(StatusCode::NOT_FOUND, "this repository takes a push, and nothing else")),
    }
}

/// Answers the request with which each push begins. Git shows the text of a refusal here, but not of a refusal of the
/// later request.
async fn advertise(repository: &RunRepository, limit: &PushLimit) -> PushAnswer {
    if let Err(error) = limit.check(repository, now_us()) {
        return PushAnswer::refused(error);
    }
    match repository.advertise().await {
        Ok(refs) => PushAnswer::of(git(sluice_git::ADVERTISEMENT_TYPE, refs)),
        Err(error) => PushAnswer::failed(error),
    }
}

/// Receives a push, and records it with its bytes. A refusal here reads nothing of the body.
async fn receive<B>(repository: &RunRepository, limit: &PushLimit, body: B) -> PushAnswer
where
    B: Body<Data = Bytes> + Send + Unpin,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let mut push = match limit.begin(repository, body, now_us()) {
        Ok(push) => push,
        Err(error) => return PushAnswer::refused(error),
    };
    let received = repository.receive(&mut push.body).await;
    let ended = push.end();
    match received {
        Ok(received) => {
            let response = git(sluice_git::RESULT_TYPE, received.report);
            PushAnswer { response, pushed: received.pushed, fault: ended.err() }
        }
        Err(error) => PushAnswer::failed(error),
    }
}

/// Returns true if a request has the token with this hash.
pub(super) fn has_token(headers: &HeaderMap, token: Hash) -> bool {
    let given = headers.get(AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
    given.is_some_and(|given| Hash::of(given) == token)
}

pub(super) fn unauthorized() -> Response<WholeBody> {
    text(StatusCode::UNAUTHORIZED, "this socket takes the token of its run alone")
}

fn git(content_type: &'static str, body: Vec<u8>) -> Response<WholeBody> {
    let mut response = Response::new(WholeBody(Bytes::from(body)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

fn text(status: StatusCode, message: &str) -> Response<WholeBody> {
    let mut response = Response::new(WholeBody(Bytes::from(format!("{message}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    response
}
