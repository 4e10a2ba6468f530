//! Which method and path is which route, and in which wire format it speaks.
//!
//! Pure. Paths are compared byte for byte: what is not written here does not exist, so there is nothing
//! to normalise and nothing to trick. LiteLLM has 148 paths under `/v1`, many of them administrative.

use http::{HeaderMap, HeaderName, Method, Uri};

use crate::refusal::{Dialect, Methods, Reason, Refusal};

/// How requests and answers of a route are shaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum ApiFormat {
    /// `POST /v1/chat/completions`
    Chat,
    /// `POST /v1/completions`
    Completions,
    /// `POST /v1/embeddings`
    Embeddings,
    /// `POST /v1/responses`
    Responses,
    /// `POST /v1/messages`
    Messages,
    /// `POST /v1/messages/count_tokens`
    CountTokens,
    /// `POST /v1/responses/compact`: a model writes a long conversation anew, shorter.
    Compact,
    /// `POST /v1/responses/input_tokens`
    InputTokens,
    /// `GET /v1/models`
    Models,
    /// A stored object that the run has made, by its id; the operator added the route with `--allow`.
    Stored,
    /// A route that the operator added with `--allow`.
    Other,
}

impl ApiFormat {
    /// The error shape of its callers.
    #[must_use]
    pub fn dialect(self) -> Dialect {
        match self {
            Self::Messages | Self::CountTokens => Dialect::Anthropic,
            Self::Chat
            | Self::Completions
            | Self::Embeddings
            | Self::Responses
            | Self::Compact
            | Self::InputTokens
            | Self::Models
            | Self::Stored
            | Self::Other => Dialect::OpenAi,
        }
    }

    /// Whether the provider charges for it.
    #[must_use]
    pub fn is_billed(self) -> bool {
        !matches!(self, Self::CountTokens | Self::InputTokens | Self::Models | Self::Stored)
    }
}

/// One thing that may be asked of the upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Route {
    /// The method that it takes.
    pub method: Method,
    /// The path that goes upstream, always with `/v1`.
    pub path: &'static str,
    /// The shape of what goes through.
    pub format: ApiFormat,
}

impl Route {
    /// Whether its answers are objects that the provider stores, with ids that the agent cannot choose. A route that the
    /// operator added may repeat an id from the request, so only the one that makes conversations counts.
    #[must_use]
    pub fn makes_stored(&self) -> bool {
        matches!(self.format, ApiFormat::Responses | ApiFormat::Compact)
            || self.format == ApiFormat::Other && self.method == Method::POST && self.path == "/v1/conversations"
    }
}

/// Where a request goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Admitted<'a> {
    /// `GET /health` and its like, answered here.
    Health,
    /// To the upstream.
    Call(&'a Route),
    /// One model of the list that this route gives, by its id.
    Model(&'a Route, &'a str),
    /// A stored object, at the path that follows the route's pattern, by its id.
    Stored(&'a Route, &'a str),
    /// To the controller, with `--relay`.
    Relay(&'static str),
}

/// The routes of one run.
#[derive(Debug, Clone)]
pub struct Policy {
    routes: Vec<Route>,
    /// `/api/v1/sandboxes/{own run}/`, when there is a controller to relay to.
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

/// The one pattern that a path of `--allow` may have: a segment that is the id of an object that the run has made.
const ID: &str = "{id}";
/// Maximum length of such an id, in bytes. LiteLLM puts provider, deployment, user and team into it.
pub const ID_MAX: usize = 768;

/// Answered by the sidecar itself. Claude Code asks for `/`, or for `/api/hello`, before its first call.
const LOCAL: [&str; 3] = ["/health", "/", "/api/hello"];

static ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

const RELAY_ROOT: &str = "/api/v1/sandboxes/";
const RELAYED: [&str; 4] = ["events", "messages", "interventions", "task"];

/// An `--allow` value that is no route.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "want a method and an absolute path, such as 'POST /v1/rerank' or 'GET /v1/responses/{{id}}'; GET and POST only, no '..', '//', '%' or '?'; with one segment {{id}}: GET, DELETE, or POST of a path that ends with /cancel"
)]
pub struct NotARoute;

impl Policy {
    /// The default routes, and those that the operator added.
    #[must_use]
    pub fn new(allowed: &[Route], relay_for: Option<&str>) -> Self {
        let defaults = DEFAULT.iter().map(|(method, path, format)| Route {
            method: if *method == "GET" { Method::GET } else { Method::POST },
            path,
            format: *format,
        });
        Self {
            routes: defaults.chain(allowed.iter().cloned()).collect(),
            relay: relay_for.map(|run| format!("{RELAY_ROOT}{run}/")),
        }
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
            // A POST by an id has no body that anything here reads: the one known is that which cancels.
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
        // Routes live as long as the process; there are a handful.
        let format = if by_id { ApiFormat::Stored } else { ApiFormat::Other };
        Ok(Route { method, path: Box::leak(path.to_owned().into_boxed_str()), format })
    }

    /// What the request line asks for. The query is not looked at and goes nowhere.
    ///
    /// # Errors
    /// `route_not_allowed`, `method_not_allowed`, `not_own_run`.
    pub fn admit<'a>(&'a self, method: &Method, uri: &'a Uri) -> Result<Admitted<'a>, Refusal> {
        // Absolute-form names a host, and nobody but us says which host is called.
        if uri.scheme().is_some() || uri.authority().is_some() {
            return Err(Refusal::new(Reason::RouteNotAllowed, "send a plain path, not a whole URL"));
        }
        let path = uri.path();
        if LOCAL.contains(&path) {
            let reads = method == Method::GET || method == Method::HEAD;
            return if reads { Ok(Admitted::Health) } else { Err(wrong_method(&["GET", "HEAD"])) };
        }
        let mut allowed = Methods::default();
        for route in &self.routes {
            let id = stored_id(route, path);
            if id.is_none() && (route.format == ApiFormat::Stored || !same_route(route, path)) {
                continue;
            }
            if route.method == method {
                return Ok(id.map_or(Admitted::Call(route), |id| Admitted::Stored(route, id)));
            }
            allowed = allowed.with(route.method.as_str());
        }
        if !allowed.is_empty() {
            return Err(other_method(allowed));
        }
        let of_list = self.routes.iter().find(|route| route.format == ApiFormat::Models);
        if let (Some(route), Some(id)) = (of_list, model_id(path)) {
            return if route.method == method { Ok(Admitted::Model(route, id)) } else { Err(wrong_method(&["GET"])) };
        }
        self.admit_relay(method, path).unwrap_or_else(|| {
            Err(Refusal::new(
                Reason::RouteNotAllowed,
                "this path is not open to the sandbox; the operator can open one with --allow",
            ))
        })
    }

    fn admit_relay(&self, method: &Method, path: &str) -> Option<Result<Admitted<'_>, Refusal>> {
        let own = self.relay.as_deref()?;
        let Some(rest) = path.strip_prefix(own) else {
            return path
                .starts_with(RELAY_ROOT)
                .then(|| Err(Refusal::new(Reason::NotOwnRun, "a sandbox reaches only its own run")));
        };
        let resource = RELAYED.into_iter().find(|resource| *resource == rest)?;
        let allowed =
            if resource == "task" { method == Method::GET } else { method == Method::GET || method == Method::POST };
        Some(if allowed {
            Ok(Admitted::Relay(resource))
        } else {
            Err(wrong_method(if resource == "task" { &["GET"] } else { &["GET", "POST"] }))
        })
    }

    /// The relayed path as the controller knows it.
    #[must_use]
    pub fn relay_path(&self, resource: &str) -> String {
        format!("{}{resource}", self.relay.as_deref().unwrap_or(RELAY_ROOT))
    }

    /// Whose error shape this path's callers expect, also when it is refused. Both SDKs list models at one path, and
    /// only Anthropic's names a version.
    #[must_use]
    pub fn dialect(path: &str, headers: &HeaderMap) -> Dialect {
        let path = path.strip_prefix("/v1").unwrap_or(path);
        if path.starts_with("/messages") || path.starts_with("/models") && headers.contains_key(&ANTHROPIC_VERSION) {
            Dialect::Anthropic
        } else {
            Dialect::OpenAi
        }
    }

    /// The routes, for `check` and the policy digest.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        self.routes.iter().map(|route| format!("{} {}", route.method, route.path))
    }
}

/// The model in `/v1/models/{id}`. An id is what is written there, byte for byte: nothing is decoded, and no segment of
/// it is empty or leads elsewhere.
#[must_use]
pub fn model_id(path: &str) -> Option<&str> {
    let id = path.strip_prefix("/v1").unwrap_or(path).strip_prefix("/models/")?;
    let is_plain = id.len() <= 256 && id.bytes().all(|b| b.is_ascii_alphanumeric() || b"._:/@+-".contains(&b));
    let leads_on = |segment| !matches!(segment, "" | "." | "..");
    (is_plain && id.split('/').all(leads_on)).then_some(id)
}

/// The id in the path of a stored object, byte for byte: nothing is decoded. A path that one of the fixed routes has is
/// found before, since those come first.
fn stored_id<'p>(route: &Route, path: &'p str) -> Option<&'p str> {
    if route.format != ApiFormat::Stored {
        return None;
    }
    let (before, behind) = route.path.split_once(ID)?;
    let rest = path.strip_prefix(before).or_else(|| path.strip_prefix(before.strip_prefix("/v1")?))?;
    rest.strip_suffix(behind).filter(|id| is_id(id))
}

/// The path that goes upstream for a stored object.
#[must_use]
pub fn stored_path(route: &Route, path: &str) -> Option<String> {
    stored_id(route, path).map(|id| route.path.replacen(ID, id, 1))
}

/// Whether it may be an id of a stored object: one segment of a path that no parser takes apart or decodes.
#[must_use]
pub fn is_id(text: &str) -> bool {
    let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.=+~:".contains(&b));
    is_plain && (1..=ID_MAX).contains(&text.len()) && text.bytes().any(|b| b.is_ascii_alphanumeric())
}

/// The route's path, or the same without `/v1`: SDKs differ in what they call a base URL.
fn same_route(route: &Route, path: &str) -> bool {
    route.path == path || (route.format != ApiFormat::Other && route.path.strip_prefix("/v1") == Some(path))
}

fn wrong_method(allowed: &[&str]) -> Refusal {
    other_method(allowed.iter().fold(Methods::default(), |all, method| all.with(method)))
}

fn other_method(allowed: Methods) -> Refusal {
    Refusal::new(Reason::MethodNotAllowed, format!("this path takes {allowed}")).allow(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(policy: &Policy, method: &str, target: &str) -> Result<String, Reason> {
        let uri: Uri = target.parse().map_err(|_| Reason::BadRequest)?;
        let method = Method::from_bytes(method.as_bytes()).expect("a method");
        match policy.admit(&method, &uri) {
            Ok(Admitted::Health) => Ok("health".to_owned()),
            Ok(Admitted::Call(route)) => Ok(route.path.to_owned()),
            Ok(Admitted::Model(route, id) | Admitted::Stored(route, id)) => Ok(format!("{} of {}", id, route.path)),
            Ok(Admitted::Relay(resource)) => Ok(policy.relay_path(resource)),
            Err(refusal) => Err(refusal.reason),
        }
    }

    #[test]
    fn the_default_routes_answer_with_and_without_v1() {
        let policy = Policy::new(&[], None);
        for (method, path, _) in DEFAULT {
            assert_eq!(ask(&policy, method, path), Ok(path.to_owned()));
            assert_eq!(ask(&policy, method, &path[3..]), Ok(path.to_owned()));
            assert_eq!(ask(&policy, method, &format!("{path}?user=x")), Ok(path.to_owned()));
            assert_eq!(ask(&policy, "DELETE", path), Err(Reason::MethodNotAllowed));
        }
        for path in LOCAL {
            assert_eq!(ask(&policy, "GET", path), Ok("health".to_owned()));
            assert_eq!(ask(&policy, "HEAD", path), Ok("health".to_owned()));
            assert_eq!(ask(&policy, "POST", path), Err(Reason::MethodNotAllowed));
        }
    }

    #[test]
    fn everything_else_does_not_exist() {
        let policy = Policy::new(&[], None);
        for path in [
            "/v1", "/v1/", "/api", "/api/", "/api/hello/", "/v1/api/hello", "/v1/health", "/v1/model/info",
            "/v1/mcp/server", "/v1/access_group", "/v1/files", "/v1/batches", "/v1/realtime",
            "/v1/realtime/client_secrets", "/key/generate", "/v1/chat/completions/", "/v1//chat/completions",
            "/v1/./chat/completions", "/v1/x/../chat/completions", "/v1/chat%2fcompletions", "/v1/chat/%63ompletions",
            "/V1/chat/completions", "/v1/chat/completions%00", "/v1/chat/completions;x", "//v1/models", "/v1\\models",
            "/health/", "/%68ealth", "/messages/batches", "/api/v1/sandboxes/r1/events", "http://evil/v1/models",
            "http://evil/health",
        ] {
            let refused = ask(&policy, "GET", path).expect_err(path);
            assert!(matches!(refused, Reason::RouteNotAllowed | Reason::BadRequest), "{path}: {refused:?}");
        }
    }

    #[test]
    fn a_model_is_known_by_what_stands_behind_the_list() {
        let policy = Policy::new(&[], None);
        for (path, id) in [
            ("/v1/models/gpt-5.5", "gpt-5.5"),
            ("/models/gpt-5.5?x=1", "gpt-5.5"),
            ("/v1/models/openai/gpt-5.5", "openai/gpt-5.5"),
            ("/v1/models/a:b@c+d", "a:b@c+d"),
        ] {
            assert_eq!(ask(&policy, "GET", path), Ok(format!("{id} of /v1/models")), "{path}");
            for method in ["POST", "DELETE", "HEAD"] {
                assert_eq!(ask(&policy, method, path), Err(Reason::MethodNotAllowed), "{method} {path}");
            }
        }
        let long = format!("/v1/models/{}", "x".repeat(257));
        for path in [
            "/v1/models/", "/v1/models//a", "/v1/models/a/", "/v1/models/a//b", "/v1/models/..", "/v1/models/a/../b",
            "/v1/models/../../key/list", "/v1/models/.", "/v1/models/a%2Fb", "/v1/models/%61", "/v1/models/a;b",
            "/v1/models/a,b", "/V1/models/a", "/v1/v1/models/a", &long,
        ] {
            assert_eq!(ask(&policy, "GET", path), Err(Reason::RouteNotAllowed), "{path}");
        }
    }

    #[test]
    fn the_dialect_is_that_of_the_callers_sdk() {
        let (plain, mut anthropic) = (HeaderMap::new(), HeaderMap::new());
        anthropic.insert(&ANTHROPIC_VERSION, http::HeaderValue::from_static("2023-06-01"));
        for (path, without, with) in [
            ("/v1/messages", Dialect::Anthropic, Dialect::Anthropic),
            ("/messages/batches", Dialect::Anthropic, Dialect::Anthropic),
            ("/v1/models/m", Dialect::OpenAi, Dialect::Anthropic),
            ("/models", Dialect::OpenAi, Dialect::Anthropic),
            ("/v1/responses", Dialect::OpenAi, Dialect::OpenAi),
        ] {
            assert_eq!((Policy::dialect(path, &plain), Policy::dialect(path, &anthropic)), (without, with), "{path}");
        }
    }

    #[test]
    fn an_added_route_is_exact() {
        let route = Policy::parse_route("POST /v1/rerank").expect("a route");
        let policy = Policy::new(&[route], None);
        assert_eq!(ask(&policy, "POST", "/v1/rerank"), Ok("/v1/rerank".to_owned()));
        assert_eq!(ask(&policy, "POST", "/rerank"), Err(Reason::RouteNotAllowed));
        for bad in [
            "", "POST", "POST v1", "PUT /v1/x", "POST /a/../b", "POST /a//b", "POST /a%2fb", "POST /a?b", "post /a",
            "POST /v1/messages", "DELETE /v1/x", "POST /v1/x/{id}", "GET /v1/{id}/{id}", "GET /v1/{ID}",
            "GET /v1/x{id}", "GET /{", "PUT /v1/x/{id}", "GET /v1/{id}/..",
        ] {
            assert_eq!(Policy::parse_route(bad), Err(NotARoute), "{bad:?}");
        }
    }

    #[test]
    fn a_pattern_takes_one_plain_segment() {
        let routes = [
            "GET /v1/responses/{id}", "DELETE /v1/responses/{id}", "GET /v1/responses/{id}/input_items",
            "POST /v1/responses/{id}/cancel",
        ];
        let routes: Vec<_> = routes.iter().map(|text| Policy::parse_route(text).expect("a route")).collect();
        let policy = Policy::new(&routes, None);
        for (method, path, want) in [
            ("GET", "/v1/responses/resp_aGk=", "resp_aGk= of /v1/responses/{id}"),
            ("DELETE", "/responses/resp_1", "resp_1 of /v1/responses/{id}"),
            ("GET", "/v1/responses/resp_1/input_items?limit=5", "resp_1 of /v1/responses/{id}/input_items"),
            ("POST", "/v1/responses/resp_1/cancel", "resp_1 of /v1/responses/{id}/cancel"),
            // The fixed routes come first.
            ("POST", "/v1/responses/compact", "/v1/responses/compact"),
            ("GET", "/v1/responses/compact", "compact of /v1/responses/{id}"),
        ] {
            assert_eq!(ask(&policy, method, path), Ok(want.to_owned()), "{method} {path}");
        }
        for method in ["POST", "PUT", "HEAD"] {
            assert_eq!(ask(&policy, method, "/v1/responses/resp_1"), Err(Reason::MethodNotAllowed), "{method}");
        }
        let long = format!("/v1/responses/{}", "x".repeat(ID_MAX + 1));
        for path in [
            "/v1/responses/", "/v1/responses/a/b", "/v1/responses/..", "/v1/responses/.", "/v1/responses/a%2Fb",
            "/v1/responses/%61", "/v1/responses/a;b", "/v1/responses/a,b", "/v1/responses//input_items",
            "/v1/responses/a/input_items/", "/v1/responses/../input_items", "/v1/responses/{id}", "/v1/v1/responses/a",
            "/V1/responses/a", "/v1/responses/a/b/input_items", "/v1/responses/a\\b", &long,
        ] {
            let refused = ask(&policy, "GET", path).expect_err(path);
            assert!(matches!(refused, Reason::RouteNotAllowed | Reason::BadRequest), "{path}: {refused:?}");
        }
        let uri: Uri = "/v1/responses/resp_1".parse().expect("a path");
        let refusal = policy.admit(&Method::PUT, &uri).expect_err("no such method");
        assert_eq!(refusal.allow.to_string(), "GET, DELETE");
    }

    #[test]
    fn only_the_own_run_is_relayed() {
        let policy = Policy::new(&[], Some("r1"));
        for (method, path, want) in [
            ("POST", "/api/v1/sandboxes/r1/events", Ok("/api/v1/sandboxes/r1/events".to_owned())),
            ("GET", "/api/v1/sandboxes/r1/task?peek=true", Ok("/api/v1/sandboxes/r1/task".to_owned())),
            ("POST", "/api/v1/sandboxes/r1/task", Err(Reason::MethodNotAllowed)),
            ("GET", "/api/v1/sandboxes/r2/events", Err(Reason::NotOwnRun)),
            ("GET", "/api/v1/sandboxes/r1", Err(Reason::NotOwnRun)),
            ("GET", "/api/v1/sandboxes/r1/", Err(Reason::RouteNotAllowed)),
            ("GET", "/api/v1/sandboxes/r1/receipts", Err(Reason::RouteNotAllowed)),
            ("GET", "/api/v1/sandboxes/r1/events/1", Err(Reason::RouteNotAllowed)),
            ("GET", "/api/v1/agents", Err(Reason::RouteNotAllowed)),
        ] {
            assert_eq!(ask(&policy, method, path), want, "{method} {path}");
        }
    }
}
