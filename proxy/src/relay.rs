//! The requests to the controller: events, messages, interventions and the task of this run, and no others.
//!
//! The sandbox has no network, so its worker reports through its own socket. The controller knows the run by a token
//! that only the sidecar holds.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{self, HeaderMap, HeaderValue};
use http::{Method, Request, StatusCode, Uri};
use hyper::body::Incoming;
use sluice_upstream::Address;

use crate::filter;
use crate::headers;
use crate::intake::{self, BodyLimits};
use crate::refusal::{Reason, Refusal};
use crate::scrub::Scrub;
use crate::secret::Secret;
use crate::upstream::{Outgoing, Upstream};

/// Maximum length of a request; an event has at most 100,000 bytes of JSON, escaped.
const REQUEST_MAX: u64 = 1024 * 1024;
const ANSWER_MAX: usize = 4 * 1024 * 1024;

/// Connection of this run to the controller.
#[derive(Debug)]
pub struct Relay {
    /// Address of the controller.
    pub address: Address,
    /// Connections to the controller.
    pub upstream: Arc<Upstream>,
    /// Token of the run.
    pub token: Secret,
}

impl Relay {
    /// Carries one request to the controller, and its whole response back.
    ///
    /// # Errors
    /// The refusal that the client gets instead.
    pub async fn forward(
        &self,
        method: &Method,
        path: String,
        body: &mut Incoming,
        bounds: &BodyLimits,
        key: &[u8],
    ) -> Result<(StatusCode, HeaderMap, Bytes), Refusal> {
        let bounds = BodyLimits { max: REQUEST_MAX, ..bounds.clone() };
        let text = intake::collect(body, &bounds, |_| Ok(())).await?;
        let mut request = Request::new(if text.is_empty() { Outgoing::empty() } else { text.whole() });
        *request.method_mut() = method.clone();
        *request.uri_mut() = Uri::try_from(path).map_err(|_| gone("the controller's path is not valid"))?;
        let host =
            HeaderValue::from_str(&self.address.authority).map_err(|_| gone("the controller's name is not valid"))?;
        let json = HeaderValue::from_static("application/json");
        *request.headers_mut() = HeaderMap::from_iter([
            (header::HOST, host),
            (header::AUTHORIZATION, self.token.bearer()),
            (header::CONTENT_TYPE, json),
        ]);

        let mut flight = self.upstream.send(request).await.map_err(|_| gone("the controller cannot be reached"))?;
        let head = poll_fn(|cx| flight.poll_head(cx)).await.map_err(|_| gone("the controller did not answer"))?;
        let token = self.token.expose();
        let (mut pieces, mut len, mut scrub, mut scrub_token) = (Vec::new(), 0, Scrub::default(), Scrub::default());
        while let Some(piece) = poll_fn(|cx| flight.poll_piece(cx)).await {
            let piece = piece.map_err(|_| gone("the controller broke off"))?;
            len += piece.len();
            if len > ANSWER_MAX {
                return Err(gone("the controller's answer is too long"));
            }
            pieces.push(scrub_token.pass(token, scrub.pass(key, piece)));
        }
        pieces.push(scrub_token.pass(token, scrub.finish()));
        pieces.push(scrub_token.finish());
        let mut screened = headers::screen(&headers::screen(&head.headers, &[], key), &[], token);
        screened.remove(header::CONTENT_LENGTH);
        Ok((head.status, screened, filter::join(pieces)))
    }
}

fn gone(what: &'static str) -> Refusal {
    Refusal::new(Reason::UpstreamUnreachable, what).retry_after(1)
}
