use super::*;

fn ask(policy: &Policy, method: &str, target: &str) -> Result<String, Reason> {
    let uri: Uri = target.parse().map_err(|_| Reason::BadRequest)?;
    let method = Method::from_bytes(method.as_bytes()).expect("a method");
    match policy.admit(&method, &uri) {
        Ok(AdmittedRequest::Health) => Ok("health".to_owned()),
        Ok(AdmittedRequest::Call(route)) => Ok(route.path.to_owned()),
        Ok(AdmittedRequest::Model(route)) => {
            Ok(format!("{} of {}", model_id(uri.path()).expect("it was admitted"), route.path))
        }
        Ok(AdmittedRequest::Stored(route, id)) => Ok(format!("{id} of {}", route.path)),
        Ok(AdmittedRequest::Relay(target)) => Ok(policy.relay_path(target)),
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
fn a_model_path_follows_the_list_path() {
    let policy = Policy::new(&[], None);
    for (path, id) in [
        ("/v1/models/gpt-5.5", "gpt-5.5"),
        ("/models/gpt-5.5?x=1", "gpt-5.5"),
        ("/v1/models/openai/gpt-5.5", "openai/gpt-5.5"),
        ("/v1/models/openai%2Fgpt-5.5", "openai/gpt-5.5"),
        ("/models/a%2fb", "a/b"),
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
        "/v1/models/../../key/list", "/v1/models/.", "/v1/models/a%2F", "/v1/models/..%2Fkey", "/v1/models/a%252Fb",
        "/v1/models/%61", "/v1/models/a;b", "/v1/models/a,b", "/V1/models/a", "/v1/v1/models/a", &long,
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
        ("/git/r1.git/info/refs", Dialect::Git, Dialect::Git),
        ("/git", Dialect::OpenAi, Dialect::OpenAi),
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
        "POST /v1/messages", "DELETE /v1/x", "POST /v1/x/{id}", "GET /v1/{id}/{id}", "GET /v1/{ID}", "GET /v1/x{id}",
        "GET /{", "PUT /v1/x/{id}", "GET /v1/{id}/..",
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
        ("GET", "/api/v1/sandboxes/r1/questions/q-1", Ok("/api/v1/sandboxes/r1/questions/q-1".to_owned())),
        ("POST", "/api/v1/sandboxes/r1/messages/ack", Ok("/api/v1/sandboxes/r1/messages/ack".to_owned())),
        ("GET", "/api/v1/sandboxes/r1/events", Err(Reason::MethodNotAllowed)),
        ("POST", "/api/v1/sandboxes/r1/messages", Err(Reason::MethodNotAllowed)),
        ("POST", "/api/v1/sandboxes/r1/interventions", Err(Reason::MethodNotAllowed)),
        ("GET", "/api/v1/sandboxes/r1/questions", Err(Reason::MethodNotAllowed)),
        ("GET", "/api/v1/sandboxes/r1/questions/", Err(Reason::RouteNotAllowed)),
        ("GET", "/api/v1/sandboxes/r1/questions/a/b", Err(Reason::RouteNotAllowed)),
        ("POST", "/api/v1/sandboxes/r1/questions/q-1/answer", Err(Reason::RouteNotAllowed)),
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

#[test]
fn only_a_push_to_the_own_repository_is_relayed() {
    let policy = Policy::new(&[], Some("r1"));
    let refs = "/git/r1.git/info/refs?service=git-receive-pack";
    for (method, target, want) in [
        ("GET", refs, Ok(refs.to_owned())),
        ("POST", "/git/r1.git/git-receive-pack", Ok("/git/r1.git/git-receive-pack".to_owned())),
        ("POST", "/git/r1.git/git-receive-pack?x=1", Ok("/git/r1.git/git-receive-pack".to_owned())),
        ("POST", refs, Err(Reason::MethodNotAllowed)),
        ("GET", "/git/r1.git/git-receive-pack", Err(Reason::MethodNotAllowed)),
        ("GET", "/git/r1.git/info/refs?service=git-upload-pack", Err(Reason::PushOnly)),
        ("GET", "/git/r1.git/info/refs?service=git-receive-pack&x", Err(Reason::PushOnly)),
        ("GET", "/git/r1.git/info/refs", Err(Reason::PushOnly)),
        ("POST", "/git/r1.git/git-upload-pack", Err(Reason::PushOnly)),
        ("GET", "/git/r1.git/git-upload-archive", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1.git/HEAD", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1.git/objects/info/packs", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1.git/", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1.git/../r2.git/info/refs?service=git-receive-pack", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1.git//info/refs?service=git-receive-pack", Err(Reason::RouteNotAllowed)),
        ("GET", "/git/r1/info/refs?service=git-receive-pack", Err(Reason::NotOwnRun)),
        ("GET", "/git/r1.git", Err(Reason::NotOwnRun)),
        ("GET", "/git/r2.git/info/refs?service=git-receive-pack", Err(Reason::NotOwnRun)),
        ("POST", "/git/r10.git/git-receive-pack", Err(Reason::NotOwnRun)),
        ("POST", "/git/R1.git/git-receive-pack", Err(Reason::NotOwnRun)),
        ("GET", "/git/", Err(Reason::NotOwnRun)),
        ("GET", "/git", Err(Reason::RouteNotAllowed)),
    ] {
        assert_eq!(ask(&policy, method, target), want, "{method} {target}");
        let refused = ask(&Policy::new(&[], None), method, target);
        assert_eq!(refused, Err(Reason::RouteNotAllowed), "without a controller: {method} {target}");
    }
}
