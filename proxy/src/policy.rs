//! The routes: which method and path is allowed, and in which API format.
//!
//! Pure. Paths are compared byte for byte: a path that is not listed does not exist, so there is nothing to normalise
//! and nothing to trick. LiteLLM has 148 paths under `/v1`, many of them administrative.

mod path;
mod relay;
mod route;

use http::{HeaderMap, HeaderName, Method, Uri};

pub use path::{ID_MAX, is_id, model_id, stored_path};
pub use relay::{RelayQuery, RelayTarget};
pub use route::{ApiFormat, Route};

use crate::refusal::{Dialect, Methods, Reason, Refusal};
use path::{ID, same_route, stored_id};

/// Destination of an admitted request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmittedRequest<'a> {
    /// `GET /health` and similar paths, answered by the sidecar.
    Health,
    /// To the upstream.
    Call(&'a Route),
    /// One model of the list that this route returns. [`model_id`] returns its id.
    Model(&'a Route),
    /// A stored object, at the path that follows the route's pattern, by its id.
    Stored(&'a Route, &'a str),
    /// To the controller, with `--relay`.
    Relay(RelayTarget<'a>),
}

/// The routes of one run.
#[derive(Debug, Clone)]
pub struct Policy {
    routes: Vec<Route>,
    /// Id of the own run, if there is a controller to relay to.
    relay: Option<String>,
}

const DEFAULT: [(&str, &str, ApiFormat); 9] = [
    ("POST", "/v1/chat/completions", ApiFormat::Chat),
    ("POST", "/v1/messages", ApiFormat::Messages),
    ("POST", "/v1/responses", ApiFormat::Responses),
    ("POST", "/v1/embeddings", ApiFormat::Embeddings),
    ("POST", "/v1/completions", ApiFormat::Completions),
    ("POST", "/v1/messages/count_tokens", ApiFormat::CountTokens),
    ("POST", "/v1/responses/compact", ApiFormat::Compact),
    ("POST", "/v1/responses/input_tokens", ApiFormat::InputTokens),
    ("GET", "/v1/models", ApiFormat::Models),
];

/// Paths that the sidecar itself answers. Claude Code asks for `/`, or for `/api/hello`, before its first call.
const LOCAL: [&str; 3] = ["/health", "/", "/api/hello"];

static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

const RELAY_ROOT: &str = "/api/v1/sandboxes/";
/// Beginning of the paths of repositories.
const GIT_ROOT: &str = "/git/";

/// Error for an `--allow` value that is not a route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "want a method and an absolute path, such as 'POST /v1/rerank' or 'GET /v1/responses/{{id}}'; GET and POST only, no '..', '//', '%' or '?'; with one segment {{id}}: GET, DELETE, or POST of a path that ends with /cancel"
)]
pub struct NotARoute;

impl Policy {
    /// Creates the policy of the default routes, and of those that the operator added.
    #[must_use]
    pub fn new(allowed: &[Route], relay_for: Option<&str>) -> Self {
        let defaults = DEFAULT.iter().map(|(method, path, format)| Route {
            method: if *method == "GET" { Method::GET } else { Method::POST },
            path,
            format: *format,
        });
        Self { routes: defaults.chain(allowed.iter().cloned()).collect(), relay: relay_for.map(str::to_owned) }
    }

    /// Reads `METHOD /path`.
    ///
    /// # Errors
    /// [`NotARoute`]
    pub fn parse_route(text: &str) -> Result<Route, NotARoute> {
        let (method, path) = text.split_once(' ').ok_or(NotARoute)?;
        let by_id = path.split('/').any(|segment| segment == ID);
        let method = match method {
            "GET" => Method::GET,
            // A POST by an id has no body that the sidecar reads: the only known one cancels.
            "POST" if !by_id || path.ends_with("/cancel") => Method::POST,
            "DELETE" if by_id => Method::DELETE,
            _ => return Err(NotARoute),
        };
        let fixed = if by_id { path.replacen(ID, "id", 1) } else { path.to_owned() };
        let plain = fixed.bytes().all(|b| b.is_ascii_alphanumeric() || b"/_-.".contains(&b));
        if !path.starts_with('/') || !plain || path.contains("..") || path.contains("//") {
            return Err(NotARoute);
        }
        if DEFAULT.iter().any(|(_, known, _)| *known == path) {
            return Err(NotARoute);
        }
        // Routes live as long as the process, and there are only a few.
        let format = if by_id { ApiFormat::Stored } else { ApiFormat::Other };
        Ok(Route { method, path: Box::leak(path.to_owned().into_boxed_str()), format })
    }

    /// Admits a request line. The query is not read, and goes nowhere.
    ///
    /// # Errors
    /// `route_not_allowed`, `method_not_allowed`, `not_own_run`.
    pub fn admit<'a>(&'a self, method: &Method, uri: &'a Uri) -> Result<AdmittedRequest<'a>, Refusal> {
        // The absolute form names a host, and only the sidecar decides which host is called.
        if uri.scheme().is_some() || uri.authority().is_some() {
            return Err(Refusal::new(Reason::RouteNotAllowed, "send a plain path, not a whole URL"));
        }
        let path = uri.path();
        if LOCAL.contains(&path) {
            let reads = method == Method::GET || method == Method::HEAD;
            return if reads { Ok(AdmittedRequest::Health) } else { Err(wrong_method(&["GET", "HEAD"])) };
        }
        let mut allowed = Methods::default();
        for route in &self.routes {
            let id = stored_id(route, path);
            if id.is_none() && (route.format == ApiFormat::Stored || !same_route(route, path)) {
                continue;
            }
            if route.method == method {
                return Ok(id.map_or(AdmittedRequest::Call(route), |id| AdmittedRequest::Stored(route, id)));
            }
            allowed = allowed.with(route.method.as_str());
        }
        if !allowed.is_empty() {
            return Err(other_method(allowed));
        }
        let of_list = self.routes.iter().find(|route| route.format == ApiFormat::Models);
        if let Some(route) = of_list.filter(|_| model_id(path).is_some()) {
            return if route.method == method {
                Ok(AdmittedRequest::Model(route))
            } else {
                Err(wrong_method(&["GET"]))
            };
        }
        self.admit_relay(method, uri).unwrap_or_else(|| {
            Err(Refusal::new(
                Reason::RouteNotAllowed,
                "this path is not open to the sandbox; the operator can open one with --allow",
            ))
        })
    }

    #[cold]
    #[inline(never)]
    fn admit_relay<'a>(&self, method: &Method, uri: &'a Uri) -> Option<Result<AdmittedRequest<'a>, Refusal>> {
        let own = self.relay.as_deref()?;
        let path = uri.path();
        let in_git = path.strip_prefix(GIT_ROOT);
        let in_run = in_git.or_else(|| path.strip_prefix(RELAY_ROOT))?.strip_prefix(own);
        let resource = in_run.and_then(|rest| rest.strip_prefix(if in_git.is_some() { ".git/" } else { "/" }));
        let Some(resource) = resource else {
            return Some(Err(Refusal::new(Reason::NotOwnRun, "a sandbox reaches only its own run")));
        };
        let admitted = match in_git {
            Some(_) => relay::admit_git(method, resource, uri.query()),
            None => relay::admit(method, resource),
        };
        admitted.map(|target| target.map(AdmittedRequest::Relay))
    }

    /// Returns the relayed path as the controller knows it.
    #[must_use]
    pub fn relay_path(&self, target: RelayTarget<'_>) -> String {
        let own = self.relay.as_deref().unwrap_or_default();
        match target {
            RelayTarget::Resource(resource) => format!("{RELAY_ROOT}{own}/{resource}"),
            RelayTarget::PushedRefs => format!("{GIT_ROOT}{own}.git/info/refs?service=git-receive-pack"),
            RelayTarget::Push => format!("{GIT_ROOT}{own}.git/git-receive-pack"),
        }
    }

    /// Returns the error format that this path's callers expect, also for a refused path. Both SDKs list models at
    /// the same path, and only Anthropic's names a version.
    #[must_use]
    pub fn dialect(path: &str, headers: &HeaderMap) -> Dialect {
        if path.starts_with(GIT_ROOT) {
            return Dialect::Git;
        }
        let path = path.strip_prefix("/v1").unwrap_or(path);
        if path.starts_with("/messages") || path.starts_with("/models") && headers.contains_key(&ANTHROPIC_VERSION) {
            Dialect::Anthropic
        } else {
            Dialect::OpenAi
        }
    }

    /// Returns the routes, for `check` and the policy digest.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        self.routes.iter().map(|route| format!("{} {}", route.method, route.path))
    }
}

fn wrong_method(allowed: &[&str]) -> Refusal {
    other_method(allowed.iter().fold(Methods::default(), |all, method| all.with(method)))
}

fn other_method(allowed: Methods) -> Refusal {
    Refusal::new(Reason::MethodNotAllowed, format!("this path takes {allowed}")).allow(allowed)
}

#[cfg(test)]
mod tests;
