//! The control socket: a second socket, by which the controller sees the state of a running sidecar, raises its caps,
//! pauses it, and decides on calls that wait.
//!
//! Only the user that started the sidecar may connect. No request of the call socket leads here: the listener of a
//! connection decides which of the two answers it. Each change is a record of the audit log before it takes effect.

mod change;
mod conversation;
mod error;
mod request;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, StatusCode};
use http_body::Body;
use hyper::body::Incoming;
use sluice_contract::Usd;
use sluice_contract::control::{BODY_MAX, CapsInForce, DeadlineState, INJECT_BODY_MAX, SidecarState, UsedAmounts};
use tokio::sync::oneshot;

use crate::response::PendingResponse;
use crate::run::RunContext;
use change::{Effect, decide, seconds};
use conversation::MessageList;
use error::ControlRefusal;
use request::{AskedChange, ControlRoute, route};

/// Time within which the body of a request must have come.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// A change that is made whether or not its client waits for it.
type PendingChange = Pin<Box<dyn Future<Output = Result<(), ControlRefusal>> + Send>>;

/// Answers one request.
pub async fn answer(run: Arc<RunContext>, request: Request<Incoming>) -> PendingResponse {
    match respond(&run, request).await {
        Ok(state) => json(StatusCode::OK, state),
        // A body that was not read to its end would be read as the next request.
        Err(refusal) => json(refusal.status, refusal.body()).close_connection(),
    }
}

/// Makes the change that is asked for, if any, and returns the body of the answer.
async fn respond(run: &Arc<RunContext>, request: Request<Incoming>) -> Result<Vec<u8>, ControlRefusal> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let asked = match route(&head.method, target)? {
        ControlRoute::State => None,
        ControlRoute::Caps => Some(AskedChange::caps(&read(body, BODY_MAX).await?)?),
        ControlRoute::Clock => Some(AskedChange::clock(&read(body, BODY_MAX).await?)?),
        ControlRoute::Injected(after) => return Ok(encode(&run.injections.lock().entries_after(after))),
        ControlRoute::Inject => {
            let list = MessageList::parse(&read(body, INJECT_BODY_MAX).await?)?;
            apart(run, Box::pin(conversation::inject(Arc::clone(run), list))).await?;
            None
        }
        ControlRoute::Interrupt => {
            let asked = conversation::interruption(&read(body, BODY_MAX).await?)?;
            apart(run, Box::pin(conversation::interrupt(Arc::clone(run), asked))).await?;
            None
        }
        ControlRoute::Pause => Some(AskedChange::pause(&read(body, BODY_MAX).await?)?),
        ControlRoute::Held => return Ok(encode(&run.holds.list(&run.caps, Instant::now()))),
        ControlRoute::Decide => Some(AskedChange::decide(&read(body, BODY_MAX).await?, target)?),
    };
    if let Some(asked) = asked {
        apart(run, Box::pin(change(Arc::clone(run), asked))).await?;
    }
    Ok(encode(&state(run)))
}

/// Makes a change on a task of its own: a client that leaves must not prevent the effect of a recorded change.
async fn apart(run: &RunContext, change: PendingChange) -> Result<(), ControlRefusal> {
    let (done, changed) = oneshot::channel();
    run.shutdown.spawn_drain(Box::pin(async move {
        let _ = done.send(change.await);
    }));
    changed.await.unwrap_or_else(|_| Err(ControlRefusal::draining()))
}

fn encode(answer: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(answer).expect("numbers and texts are JSON")
}

/// Decides on a change, records it, and lets it take effect.
async fn change(run: Arc<RunContext>, asked: AskedChange) -> Result<(), ControlRefusal> {
    let _changing = run.changing.lock().await;
    // There is no await from here to the record: the audit log is closed only after the drain began.
    if run.shutdown.is_draining() {
        return Err(ControlRefusal::draining());
    }
    let clock = run.deadline.clock();
    let limits = run.caps.in_force().0.raisable(clock.length());
    let Some(change) = decide(&asked, &limits, &clock, &run.holds, Instant::now())? else {
        return Ok(());
    };
    let (by, reason) = asked.names();
    let recorded = run.journal.control(change.what, change.from, change.to, by, reason);
    recorded.await.map_err(|_| ControlRefusal::audit_unavailable())?;
    match change.effect {
        Effect::Raise(to) => {
            run.caps.raise(&to);
            to.deadline.into_iter().for_each(|length| run.deadline.extend(length));
            // Held calls pass before a new call can use the raised caps.
            run.holds.pass_fitting(&run.caps, by);
        }
        Effect::SetStopped(stopped) => run.deadline.set_stopped(stopped),
        Effect::SetPaused(paused) => run.holds.set_paused(paused, &run.caps, by.unwrap_or_default()),
        Effect::Decide(decision) => {
            if let AskedChange::Decide(_, hold_id) = &asked {
                run.holds.decide(hold_id, decision, by.unwrap_or_default(), &run.caps);
            }
        }
    }
    tracing::info!(what = change.what, by = by.unwrap_or_default(), "changed by the control socket");
    Ok(())
}

fn state(run: &RunContext) -> SidecarState {
    let (caps, used) = run.caps.in_force();
    let (clock, now) = (run.deadline.clock(), Instant::now());
    let usd = |nanos| Usd::from_nanos(nanos).to_string();
    let deadline = clock.length().zip(clock.left(now)).map(|(length, left)| DeadlineState {
        deadline_s: seconds(length),
        left_s: seconds(left),
        stopped: clock.is_stopped(now),
        stopped_s: clock.stopped_for(now).as_secs(),
    });
    SidecarState {
        caps: CapsInForce { max_calls: caps.calls, max_cost_usd: caps.nanos.map(usd), max_tokens: caps.tokens },
        used: UsedAmounts {
            calls: used.calls,
            cost_usd: usd(used.nanos),
            reserved_cost_usd: usd(used.reserved_nanos),
            reserved_tokens: used.reserved_tokens,
            tokens: used.tokens,
        },
        open_calls: used.open,
        held_calls: run.holds.waiting(),
        paused: run.holds.is_paused(),
        deadline,
        draining: run.shutdown.is_draining(),
    }
}

/// Reads a body of at most `max` bytes to its end.
async fn read(mut body: Incoming, max: usize) -> Result<Vec<u8>, ControlRefusal> {
    let mut bytes = Vec::new();
    let all = async {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            let cut = |_| ControlRefusal::new(StatusCode::BAD_REQUEST, "bad_request", "the body ended too early");
            let Ok(piece) = frame.map_err(cut)?.into_data() else { continue };
            if bytes.len() + piece.len() > max {
                let message = format!("a body has at most {} KiB here", max >> 10);
                return Err(ControlRefusal::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", message));
            }
            bytes.extend_from_slice(&piece);
        }
        Ok(())
    };
    let slow =
        |_| ControlRefusal::new(StatusCode::REQUEST_TIMEOUT, "request_timeout", "the body did not come within 10 s");
    tokio::time::timeout(BODY_WITHIN, all).await.map_err(slow)??;
    Ok(bytes)
}

fn json(status: StatusCode, body: Vec<u8>) -> PendingResponse {
    let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static("application/json"))]);
    PendingResponse::buffered(status, headers, Bytes::from(body))
}
