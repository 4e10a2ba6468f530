//! The relay of a sandbox, without the sidecar: pushes go straight to the repository of the run.

use hyper::body::Incoming;
use hyper::{Method, Request, Response};
use sluice_git::{ADVERTISEMENT_TYPE, GitHome, REQUEST_TYPE, RESULT_TYPE};

use super::http::{BodyReader, Server, Whole, serve};
use super::run_id;

/// Serves pushes of all runs of a home.
pub(crate) async fn relay(home: &GitHome) -> Server {
    let home = home.clone();
    serve(move |request| answer(home.clone(), request)).await
}

async fn answer(home: GitHome, request: Request<Incoming>) -> Response<Whole> {
    let path = request.uri().path().to_owned();
    let status = |status| Response::builder().status(status).body(Whole::new(Vec::new())).expect("a response");
    let Some((run, rest)) = path.strip_prefix("/git/").and_then(|path| path.split_once(".git/")) else {
        return status(404);
    };
    let Ok(Some(repository)) = home.run_repository(&run_id(run)) else { return status(404) };
    let typed = |kind, body| {
        let response = Response::builder().header("content-type", kind).header("cache-control", "no-cache");
        response.body(Whole::new(body)).expect("a response")
    };
    match (request.method(), rest, request.uri().query()) {
        (&Method::GET, "info/refs", Some("service=git-receive-pack")) => {
            typed(ADVERTISEMENT_TYPE, repository.advertise().await.expect("an advertisement"))
        }
        (&Method::POST, "git-receive-pack", None) => {
            assert_eq!(request.headers()["content-type"], REQUEST_TYPE);
            match repository.receive(BodyReader::new(request.into_body())).await {
                Ok(received) => typed(RESULT_TYPE, received.report),
                Err(error) => panic!("{error}"),
            }
        }
        _ => status(404),
    }
}
