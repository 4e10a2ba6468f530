//! The task of one target: from the event log to its queue, and from there to the target.
//!
//! The position in the log is kept in memory: events that a killed daemon had not sent are never sent, except
//! events that the new daemon adds for the time between.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, StatusCode, header};
use sluice_contract::text::error_chain;
use sluice_state::events::{EventFilter, EventSource, LoggedEvent};
use sluice_state::store::{StoreError, now_us};
use sluice_upstream::Reach;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::attributes::{call_span, run_span};
use super::meters::Meters;
use super::otlp::{Span, metrics, traces};
use super::queue::SpanQueue;
use super::run_facts::RunFacts;
use super::spans::{EndedRun, OpenCalls, STOPPED, TYPES};
use super::target::OtelTarget;
use crate::context::ApiContext;
use crate::loops::LoopFault;
use crate::outbound::{DeliveryFault, Destination, post};
use crate::stop_signal::StopSignal;
use crate::stored_request::StoredRequest;

/// Maximum time between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Time in which events are collected.
const PAUSE: Duration = Duration::from_millis(500);
/// Shortest time between two requests with metrics.
const METRICS_EVERY: Duration = Duration::from_secs(10);
/// Maximum time of one request.
const WITHIN: Duration = Duration::from_secs(10);
/// Maximum time of the last requests, at the end of the daemon.
const LAST_WITHIN: Duration = Duration::from_secs(5);
/// Maximum number of events in one read.
const EVENTS: u32 = 200;
/// Maximum number of runs whose facts are kept in memory.
const RUNS_MAX: usize = 512;

/// The task of one target.
pub(crate) struct Exporter {
    context: Arc<ApiContext>,
    target: OtelTarget,
    /// Position in the event log.
    read: i64,
    calls: OpenCalls,
    runs: HashMap<String, Arc<RunFacts>>,
    queue: SpanQueue,
    meters: Meters,
    next_try: Instant,
    next_metrics: Instant,
    /// Fault of the last request with spans, until the next try succeeds.
    spans_fault: Option<LoopFault>,
    /// Fault of the last request with metrics, until the next try succeeds.
    metrics_fault: Option<LoopFault>,
}

/// A request that the target did not take.
enum ExportFault {
    /// The target may accept the same request later.
    Later(DeliveryFault),
    /// The target never takes this request.
    Never(DeliveryFault),
}

impl Exporter {
    /// Starts with the events after a position.
    pub(crate) fn new(context: Arc<ApiContext>, target: OtelTarget, read: i64) -> Self {
        let meters = Meters::new(target.semconv, now_us());
        let (calls, runs, queue, now) = (OpenCalls::default(), HashMap::new(), SpanQueue::default(), Instant::now());
        Self {
            context,
            target,
            read,
            calls,
            runs,
            queue,
            meters,
            next_try: now,
            next_metrics: now,
            spans_fault: None,
            metrics_fault: None,
        }
    }

    /// Works until the signal, and sends once more after it.
    pub(crate) async fn run(mut self, mut stop: StopSignal) {
        let name = format!("otel {}", self.target.name);
        let (loops, log) = (Arc::clone(&self.context.loops), self.context.log);
        self.context.monitor.count_spans(&self.target.name, "sent", 0);
        self.context.monitor.count_spans(&self.target.name, "dropped", 0);
        loops.register(&name, LOOK_EVERY);
        let mut committed = self.context.store.events_committed();
        loop {
            loops.begin(&name, now_us());
            let turn = tokio::select! {
                () = stop.stopped() => return self.finish().await,
                turn = self.turn() => turn,
            };
            if let Some(line) = loops.end(&name, turn, now_us()) {
                log(&line);
            }
            let next = (Instant::now() + LOOK_EVERY).min(self.next_try.max(Instant::now() + PAUSE));
            let is_waiting = self.queue.len() > 0;
            tokio::select! {
                () = stop.stopped() => return self.finish().await,
                () = sleep_until(next), if is_waiting => {}
                () = sleep(LOOK_EVERY) => {}
                // An error means that the store is gone; the next turn reports it.
                _ = committed.changed() => sleep(PAUSE).await,
            }
        }
    }

    async fn finish(mut self) {
        self.next_try = Instant::now();
        self.next_metrics = Instant::now();
        // Data that the target does not take now is lost, because the daemon ends.
        let _ = timeout(LAST_WITHIN, self.turn()).await;
    }

    /// Takes new events, and sends the spans and metrics that are due. A fault stays while data waits for the next try.
    async fn turn(&mut self) -> Result<(), LoopFault> {
        self.take().await?;
        let sent = self.send_spans().await;
        let measured = self.send_metrics().await;
        sent.and(measured)
    }

    /// Takes events into the queue, to the end of the log. Cancel-safe.
    async fn take(&mut self) -> Result<(), LoopFault> {
        let filter = EventFilter { types: TYPES.map(str::to_owned).to_vec(), ..EventFilter::default() };
        loop {
            let batch = self.context.store.events_after(self.read, filter.clone(), EVENTS).await?;
            for event in batch.events.iter().filter(|event| event.source == EventSource::System) {
                let run = self.facts(event).await?;
                // Nothing is awaited from here on, so that a cancelled turn takes each event once.
                if let Some(span) = self.span(event, run) {
                    let dropped = self.queue.add(span);
                    self.count("dropped", dropped);
                }
                self.read = event.seq;
            }
            self.read = batch.next;
            if batch.is_newest {
                return Ok(());
            }
        }
    }

    /// Returns the span that an event ends; none for a run that is removed.
    fn span(&mut self, event: &LoggedEvent, run: Option<Arc<RunFacts>>) -> Option<Span> {
        if event.event_type == STOPPED {
            self.calls.forget(event.sandbox_id.as_ref());
            let ended: EndedRun = serde_json::from_str(&event.event_data).ok()?;
            let run = run?;
            self.runs.remove(&run.run_id);
            return Some(run_span(&self.target, &run, &ended, event.created_us));
        }
        let call = self.calls.take(event)?;
        self.meters.count(&call);
        let run = run?;
        Some(call_span(&self.target, &run, &call))
    }

    /// Returns the facts of an event's run; none for a run that is removed.
    async fn facts(&mut self, event: &LoggedEvent) -> Result<Option<Arc<RunFacts>>, LoopFault> {
        let Some(id) = event.sandbox_id.as_ref() else { return Ok(None) };
        if let Some(facts) = self.runs.get(id) {
            return Ok(Some(Arc::clone(facts)));
        }
        let Ok(run_id) = id.parse() else { return Ok(None) };
        let found = self.context.store.find_sandbox(None, &run_id).await;
        let Some(run) = found.map_err(|error| LoopFault::new(error_chain(&error)))? else { return Ok(None) };
        let Some(request) = request_of(self.context.store.sandbox_request(&run_id).await)? else { return Ok(None) };
        let facts = Arc::new(RunFacts::new(&run, request));
        if self.runs.len() >= RUNS_MAX {
            self.runs.clear();
        }
        self.runs.insert(id.clone(), Arc::clone(&facts));
        Ok(Some(facts))
    }

    /// Sends the spans that wait, until a request fails. Before the next try, the last fault is returned again.
    async fn send_spans(&mut self) -> Result<(), LoopFault> {
        while self.queue.len() > 0 {
            if Instant::now() < self.next_try {
                return self.spans_fault.clone().map_or(Ok(()), Err);
            }
            let body = traces(self.queue.next());
            match self.post(self.target.traces_path(), body).await {
                Ok(()) => {
                    self.spans_fault = None;
                    let sent = self.queue.done();
                    self.count("sent", sent);
                }
                Err(ExportFault::Never(fault)) => {
                    let refused = self.queue.done();
                    self.count("refused", refused);
                    return Err(fault.into());
                }
                Err(ExportFault::Later(fault)) => {
                    self.next_try = Instant::now() + self.queue.failed();
                    let fault = LoopFault::from(fault);
                    self.spans_fault = Some(fault.clone());
                    return Err(fault);
                }
            }
        }
        Ok(())
    }

    /// Sends the metrics, if they have changed. They are sums since the start, so a lost request loses no data. Before
    /// the next try, the last fault is returned again.
    async fn send_metrics(&mut self) -> Result<(), LoopFault> {
        let Some(path) = self.target.metrics_path() else { return Ok(()) };
        if !self.meters.is_changed() {
            return Ok(());
        }
        if Instant::now() < self.next_metrics {
            return self.metrics_fault.clone().map_or(Ok(()), Err);
        }
        self.next_metrics = Instant::now() + METRICS_EVERY;
        match self.post(path, metrics(&self.meters.to_json(now_us()))).await {
            Ok(()) => {
                self.metrics_fault = None;
                self.meters.sent();
                Ok(())
            }
            Err(ExportFault::Later(fault) | ExportFault::Never(fault)) => {
                let fault = LoopFault::from(fault);
                self.metrics_fault = Some(fault.clone());
                Err(fault)
            }
        }
    }

    async fn post(&self, path: &'static str, body: String) -> Result<(), ExportFault> {
        let address = &self.target.address;
        let mut request = Request::new(body);
        *request.method_mut() = Method::POST;
        *request.uri_mut() = address.target(path);
        let headers = request.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(authorization) = &self.target.authorization {
            headers.insert(header::AUTHORIZATION, authorization.clone());
        }
        // Selects the ingestion of Langfuse that reads the attributes of a trace from each span. Other targets ignore
        // it.
        headers.insert("x-langfuse-ingestion-version", HeaderValue::from_static("4"));
        let to = Destination { address, ca: self.target.ca.as_deref(), reach: Reach::Any };
        let status = post(to, request, WITHIN).await.map_err(ExportFault::Later)?;
        let fault = DeliveryFault::Status(status.as_u16());
        match status {
            status if status.is_success() => Ok(()),
            StatusCode::UNAUTHORIZED
            | StatusCode::FORBIDDEN
            | StatusCode::NOT_FOUND
            | StatusCode::REQUEST_TIMEOUT
            | StatusCode::TOO_MANY_REQUESTS => Err(ExportFault::Later(fault)),
            status if status.is_server_error() => Err(ExportFault::Later(fault)),
            _ => Err(ExportFault::Never(fault)),
        }
    }

    fn count(&self, result: &'static str, number: u64) {
        if number > 0 {
            self.context.monitor.count_spans(&self.target.name, result, number);
        }
    }
}

/// Returns the request of a run; none for a run that is removed, or whose request is unreadable. A fault of the
/// database is temporary: the event is taken again.
fn request_of(read: Result<Option<String>, StoreError>) -> Result<Option<StoredRequest>, LoopFault> {
    Ok(read?.and_then(|text| serde_json::from_str(&text).ok()))
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::*;
    use crate::otel::OtelKind;
    use crate::otel::otlp::SpanKind;
    use crate::otel::spans::EndedCall;
    use crate::test_daemon::TestDaemon;

    async fn listener() -> (TcpListener, OtelTarget) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let endpoint = format!("http://{}", listener.local_addr().expect("it is bound"));
        (listener, OtelTarget::new("t", &endpoint, OtelKind::Otlp, None).expect("it is right"))
    }

    /// Accepts each request.
    async fn serve(listener: TcpListener) {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read_exact(&mut [0_u8]).await;
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }

    /// Bug: every turn without a request counted as a success, so a dead target was reported, and then reported as
    /// working, again and again.
    #[tokio::test]
    async fn a_fault_stays_until_its_data_is_sent() {
        let daemon = TestDaemon::start().await;
        let (closed, target) = listener().await;
        drop(closed);
        let mut exporter = Exporter::new(Arc::clone(&daemon.running.context), target, 0);
        exporter.queue.add(Span {
            trace_id: "1".repeat(32),
            span_id: "1".repeat(16),
            parent_id: None,
            name: "chat".to_owned(),
            kind: SpanKind::Client,
            start_us: 1,
            end_us: 2,
            error: None,
            attributes: Vec::new(),
        });
        exporter.meters.count(&EndedCall::default());

        let fault = exporter.turn().await.expect_err("nothing listens there");
        assert_eq!(exporter.turn().await, Err(fault), "spans wait");
        let (open, target) = listener().await;
        tokio::spawn(serve(open));
        exporter.target = target;
        (exporter.next_try, exporter.next_metrics) = (Instant::now(), Instant::now() + METRICS_EVERY);
        let turn = exporter.turn().await;
        assert!(turn.is_err() && exporter.queue.len() == 0, "metrics wait: {turn:?}");
        exporter.next_metrics = Instant::now();
        assert_eq!(exporter.turn().await, Ok(()));
        assert_eq!(exporter.turn().await, Ok(()));
    }

    /// Bug: a span was lost when the database could not be read, as if its run were removed.
    #[test]
    fn a_fault_of_the_database_loses_no_span() {
        assert!(request_of(Err(StoreError::Closed)).is_err());
        assert_eq!(request_of(Ok(None)), Ok(None), "the run is removed");
        assert_eq!(request_of(Ok(Some("{".to_owned()))), Ok(None), "no later read returns another request");
    }
}
