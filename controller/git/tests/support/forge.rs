//! A forge: `git http-backend` over a bare repository, with a user and a token.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};

use hyper::body::Incoming;
use hyper::{Request, Response};
use tokio::io::AsyncWriteExt;

use super::http::{BodyReader, Server, Whole, serve};
use super::{ENVIRONMENT, git};

/// Target of a request, and its authorization.
pub(crate) type SeenRequest = (String, Option<String>);

/// Requests that a forge has seen.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenRequests {
    pub(crate) requests: Arc<Mutex<Vec<SeenRequest>>>,
}

/// Value of the `authorization` header for `me:s3cret/+`.
pub(crate) const AUTHORIZATION: &str = "Basic bWU6czNjcmV0Lys=";
pub(crate) const USER: &str = "me";
pub(crate) const TOKEN: &str = "s3cret/+";

impl SeenRequests {
    fn add(&self, request: &Request<Incoming>) -> Option<String> {
        let authorization = request.headers().get("authorization");
        let given = authorization.map(|value| value.to_str().expect("text").to_owned());
        self.requests.lock().expect("no panic").push((request.uri().to_string(), given.clone()));
        given
    }

    /// Returns the paths and credentials so far.
    pub(crate) fn all(&self) -> Vec<(String, Option<String>)> {
        self.requests.lock().expect("no panic").clone()
    }
}

/// Serves the bare repositories below `root`; with `is_private` only to the token.
pub(crate) async fn forge(root: &Path, is_private: bool) -> (Server, SeenRequests) {
    let seen = SeenRequests::default();
    let (root, known) = (root.to_owned(), seen.clone());
    let server = serve(move |request| {
        let given = known.add(&request);
        let is_allowed = !is_private || given.as_deref() == Some(AUTHORIZATION);
        backend(root.clone(), request, is_allowed)
    });
    (server.await, seen)
}

/// Serves redirections to the same path of another address.
pub(crate) async fn redirection(target: String) -> (Server, SeenRequests) {
    let seen = SeenRequests::default();
    let known = seen.clone();
    let server = serve(move |request: Request<Incoming>| {
        known.add(&request);
        let place = format!("{target}{}", request.uri());
        let response = Response::builder().status(302).header("location", place);
        async move { response.body(Whole::new(Vec::new())).expect("a response") }
    });
    (server.await, seen)
}

/// Lets a bare repository take pushes over HTTP.
pub(crate) fn allow_pushes(bare: &Path) {
    git(bare, ["config", "http.receivepack", "true"]);
}

async fn backend(root: PathBuf, request: Request<Incoming>, is_allowed: bool) -> Response<Whole> {
    if !is_allowed {
        let response = Response::builder().status(401).header("www-authenticate", "Basic realm=\"forge\"");
        return response.body(Whole::new(Vec::new())).expect("a response");
    }
    let header =
        |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or("").to_owned();
    let mut command = tokio::process::Command::new("git");
    command.arg("http-backend").env_clear().env("PATH", "/usr/bin:/bin").envs(ENVIRONMENT);
    command.envs([
        ("GIT_PROJECT_ROOT", root.to_str().expect("plain")),
        ("GIT_HTTP_EXPORT_ALL", "1"),
        ("REQUEST_METHOD", request.method().as_str()),
        ("PATH_INFO", request.uri().path()),
        ("QUERY_STRING", request.uri().query().unwrap_or("")),
        ("CONTENT_TYPE", &header("content-type")),
        ("HTTP_CONTENT_ENCODING", &header("content-encoding")),
        ("GIT_PROTOCOL", &header("git-protocol")),
        ("REMOTE_USER", "someone"),
        ("REMOTE_ADDR", "127.0.0.1"),
    ]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("git starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    let mut body = BodyReader::new(request.into_body());
    let feed = async move {
        let _ = tokio::io::copy(&mut body, &mut stdin).await;
        let _ = stdin.shutdown().await;
    };
    let ((), output) = tokio::join!(feed, child.wait_with_output());
    cgi_response(&output.expect("git ends").stdout)
}

fn cgi_response(output: &[u8]) -> Response<Whole> {
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").expect("a header");
    let mut response = Response::builder();
    for line in String::from_utf8_lossy(&output[..end]).lines() {
        let (name, value) = line.split_once(": ").expect("a header");
        if name == "Status" {
            response = response.status(value.split(' ').next().expect("a number"));
        } else {
            response = response.header(name, value);
        }
    }
    response.body(Whole::new(output[end + 4..].to_vec())).expect("a response")
}

/// Serves the bare repositories below `root`, but answers the first requests with this status.
pub(crate) async fn failing_forge(root: &Path, status: u16, requests: usize) -> (Server, SeenRequests) {
    let seen = SeenRequests::default();
    let (root, known) = (root.to_owned(), seen.clone());
    let server = serve(move |request| {
        known.add(&request);
        let fails = known.all().len() <= requests;
        let served = (!fails).then(|| backend(root.clone(), request, true));
        async move {
            match served {
                Some(served) => served.await,
                None => Response::builder().status(status).body(Whole::new(Vec::new())).expect("a response"),
            }
        }
    });
    (server.await, seen)
}
