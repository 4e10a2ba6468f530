//! The filter of a response, piece by piece: it scrubs the key, reads the usage, takes out usage that only the
//! sidecar asked for, and holds the end back.
//!
//! Pure. A piece passes as the same memory that came, unless something in it has to change.

use bytes::{Bytes, BytesMut};
use memchr::memchr2_iter;

use crate::scrub::Scrub;
use crate::usage::{ObservedResponse, ResponseObserver, SseEvent, UsageLocation};

/// Maximum size of an event that waits until it is complete, while usage is hidden; a larger one passes unchanged.
const EVENT_MAX: usize = 64 * 1024;

/// State of the filter for one response.
#[derive(Debug)]
pub struct ResponseFilter {
    scrub: Scrub,
    observer: ResponseObserver,
    hide_usage: bool,
    /// True from the beginning to the end of an event that is too large to wait.
    passes_large: bool,
    /// Beginning of an event, while usage is hidden.
    partial: BytesMut,
    cut_line: CutLineEnd,
    events: Vec<SseEvent>,
}

/// State after an event that ended in a CR at the end of a piece: its LF may come with the next piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum CutLineEnd {
    #[default]
    None,
    OfKept,
    OfHidden,
}

/// Result of filtering a piece.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filtered {
    /// Bytes that may go to the client.
    pub ready: Vec<Bytes>,
    /// Bytes from the event that ends the stream on: they wait for the outcome.
    pub held: Vec<Bytes>,
    /// True once the stream has ended for the client.
    pub terminal: bool,
    /// True if some of the bytes were output.
    pub output: bool,
}

impl Filtered {
    /// Moves all bytes to the end of a body.
    pub fn take_into(&mut self, body: &mut BytesMut) {
        self.ready.drain(..).chain(self.held.drain(..)).for_each(|piece| body.extend_from_slice(&piece));
    }
}

impl ResponseFilter {
    /// Creates the filter of a response that this observer reads.
    #[must_use]
    pub fn new(observer: ResponseObserver, hide_usage: bool) -> Self {
        Self {
            scrub: Scrub::default(),
            observer,
            hide_usage,
            passes_large: false,
            partial: BytesMut::new(),
            cut_line: CutLineEnd::None,
            events: Vec::new(),
        }
    }

    /// Filters a piece.
    pub fn pass(&mut self, key: &[u8], piece: Bytes, filtered: &mut Filtered) {
        let piece = self.scrub.pass(key, piece);
        if filtered.terminal {
            return push(&mut filtered.held, piece);
        }
        self.events.clear();
        self.observer.feed(&piece, &mut self.events);
        filtered.output |= self.events.iter().any(|event| event.output);
        if self.hide_usage { self.pass_hiding(&piece, filtered) } else { self.pass_unchanged(piece, filtered) }
    }

    /// Ends the response: returns the bytes that were held until more came.
    pub fn finish(&mut self, filtered: &mut Filtered) {
        self.observer.finish();
        let into = if filtered.terminal { &mut filtered.held } else { &mut filtered.ready };
        push(into, self.partial.split().freeze());
        push(into, self.scrub.finish());
    }

    /// Moves out the observed facts of the response, for the record of a call that is over.
    pub fn take_observed(&mut self) -> ObservedResponse {
        self.observer.take_observed()
    }

    /// Returns the observed facts of the response.
    #[must_use]
    pub fn observed(&self) -> &ObservedResponse {
        self.observer.observed()
    }

    fn pass_unchanged(&mut self, mut piece: Bytes, filtered: &mut Filtered) {
        if let Some(ends) = self.events.iter().position(|event| event.terminal) {
            let from = ends.checked_sub(1).map_or(0, |before| self.events[before].end);
            push(&mut filtered.held, piece.split_off(from));
            filtered.terminal = true;
        }
        push(&mut filtered.ready, piece);
    }

    fn pass_hiding(&mut self, piece: &Bytes, filtered: &mut Filtered) {
        if piece.is_empty() {
            return;
        }
        if self.passes_large
            && let Some(event) = self.events.first_mut()
        {
            // The client has the beginning of this event, so its end passes too, with its usage.
            event.usage = UsageLocation::None;
            self.passes_large = false;
        }
        // The LF of a line end that was cut goes with its event.
        let lf = usize::from(self.cut_line != CutLineEnd::None && piece[0] == b'\n');
        if std::mem::take(&mut self.cut_line) == CutLineEnd::OfKept {
            push(&mut filtered.ready, piece.slice(..lf));
        }
        let (mut run, mut at) = (lf, lf);
        for event in &self.events {
            if event.terminal || event.usage != UsageLocation::None {
                push(&mut filtered.ready, piece.slice(run..at));
                run = event.end;
            }
            if event.terminal {
                push(&mut filtered.held, self.partial.split().freeze());
                push(&mut filtered.held, piece.slice(at..));
                filtered.terminal = true;
                return;
            }
            match event.usage {
                UsageLocation::None => push(&mut filtered.ready, self.partial.split().freeze()),
                UsageLocation::Alone => self.partial.clear(),
                UsageLocation::Beside(from, to) => {
                    self.partial.extend_from_slice(&piece[at..event.end]);
                    push(&mut filtered.ready, cut(&self.partial.split().freeze(), from, to));
                }
            }
            at = event.end;
            if at == piece.len() && piece.ends_with(b"\r") {
                self.cut_line =
                    if event.usage == UsageLocation::Alone { CutLineEnd::OfHidden } else { CutLineEnd::OfKept };
            }
        }
        push(&mut filtered.ready, piece.slice(run..at));
        self.partial.extend_from_slice(&piece[at..]);
        if self.passes_large || self.partial.len() > EVENT_MAX {
            self.passes_large = true;
            push(&mut filtered.ready, self.partial.split().freeze());
        }
    }
}

fn push(into: &mut Vec<Bytes>, piece: Bytes) {
    if !piece.is_empty() {
        into.push(piece);
    }
}

/// Returns the event without some bytes of its one data line.
fn cut(event: &Bytes, from: u64, to: u64) -> Bytes {
    let line_starts = std::iter::once(0).chain(memchr2_iter(b'\n', b'\r', event).map(|at| at + 1));
    let data = line_starts.into_iter().find(|at| event[*at..].starts_with(b"data:")).map(|at| at + 5);
    let Some(data) = data.map(|at| at + usize::from(event.get(at) == Some(&b' '))) else {
        return event.clone();
    };
    let (from, to) = (data + from as usize, data + to as usize);
    let mut out = BytesMut::with_capacity(event.len());
    out.extend_from_slice(&event[..from]);
    out.extend_from_slice(&event[to..]);
    out.freeze()
}

/// Joins pieces, so that a burst is one write.
#[must_use]
pub fn join(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 {
        return pieces.swap_remove(0);
    }
    let mut joined = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
    for piece in &pieces {
        joined.extend_from_slice(piece);
    }
    joined.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::ApiFormat;

    const KEY: &[u8] = b"sk-secret";

    /// Returns what passes at once and what waits, the same for every size of piece.
    fn filtered(format: ApiFormat, hide: bool, answer: &str) -> (String, String) {
        let text = |pieces: &[Bytes]| {
            pieces.iter().map(|piece| String::from_utf8_lossy(piece).into_owned()).collect::<String>()
        };
        let run = |size: usize| {
            let mut filter = ResponseFilter::new(ResponseObserver::new(format, true), hide);
            let mut out = Filtered::default();
            for piece in answer.as_bytes().chunks(size) {
                filter.pass(KEY, Bytes::copy_from_slice(piece), &mut out);
            }
            filter.finish(&mut out);
            (text(&out.ready), text(&out.held))
        };
        let whole = run(answer.len());
        for size in 1..answer.len() {
            let (on, held) = run(size);
            assert_eq!(format!("{on}{held}"), format!("{}{}", whole.0, whole.1), "pieces of {size}");
            assert_eq!(held.is_empty(), whole.1.is_empty(), "pieces of {size}");
        }
        whole
    }

    const CHAT: &str = "data: {\"id\":\"c\",\"choices\":[{\"delta\":{\"content\":\"hi\"}}]}\n\n";
    const USAGE: &str =
        "data: {\"choices\":[{\"index\":0,\"delta\":{}}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\n\n";
    const DONE: &str = "data: [DONE]\n\n";

    #[test]
    fn unrequested_usage_is_removed_completely() {
        assert_eq!(
            filtered(ApiFormat::Chat, true, &format!("{CHAT}{USAGE}{DONE}")),
            (CHAT.to_owned(), DONE.to_owned())
        );
        assert_eq!(
            filtered(ApiFormat::Chat, false, &format!("{CHAT}{USAGE}{DONE}")),
            (format!("{CHAT}{USAGE}"), DONE.to_owned())
        );
        assert_eq!(
            filtered(ApiFormat::Chat, true, &format!("{CHAT}{CHAT}{USAGE}{CHAT}{DONE}")),
            (format!("{CHAT}{CHAT}{CHAT}"), DONE.to_owned())
        );
    }

    #[test]
    fn a_hidden_event_is_removed_with_its_line_end() {
        let crlf = USAGE.replace('\n', "\r\n");
        assert_eq!(filtered(ApiFormat::Chat, true, &format!("{crlf}{CHAT}{DONE}")), (CHAT.to_owned(), DONE.to_owned()));
        let kept = CHAT.replace('\n', "\r\n");
        assert_eq!(
            filtered(ApiFormat::Chat, true, &format!("{kept}{crlf}{kept}{DONE}")),
            (format!("{kept}{kept}"), DONE.to_owned())
        );
    }

    #[test]
    fn usage_beside_output_is_cut_out_of_its_event() {
        let both =
            "data: {\"choices\":[{\"text\":\"x\"}],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":1}}\r\n\r\n";
        let left = "data: {\"choices\":[{\"text\":\"x\"}]}\r\n\r\n";
        assert_eq!(
            filtered(ApiFormat::Completions, true, &format!("{both}{DONE}")),
            (left.to_owned(), DONE.to_owned())
        );
    }

    #[test]
    fn the_end_of_every_stream_is_held() {
        let stop = "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n";
        assert_eq!(filtered(ApiFormat::Messages, false, &format!("data: {{\"type\":\"ping\"}}\n\n{stop}")).1, stop);
        let completed = "data: {\"type\":\"response.completed\",\"response\":{}}\n\n";
        let (_, held) =
            filtered(ApiFormat::Responses, false, &format!("data: {{\"type\":\"x\"}}\n\n{completed}{DONE}"));
        assert_eq!(held, format!("{completed}{DONE}"));
    }

    #[test]
    fn the_last_line_is_held_before_its_blank_line() {
        for (format, line) in [
            (ApiFormat::Chat, "data: [DONE]\n"),
            (ApiFormat::Messages, "data: {\"type\":\"message_stop\"}\n"),
            (ApiFormat::Responses, "data: {\"type\":\"response.completed\",\"response\":{}}\r\n"),
        ] {
            for hide in [true, false] {
                let mut out = Filtered::default();
                ResponseFilter::new(ResponseObserver::new(format, true), hide).pass(
                    KEY,
                    Bytes::from_static(line.as_bytes()),
                    &mut out,
                );
                assert_eq!((out.terminal, out.ready.len()), (true, 0), "{line}");
            }
        }
    }

    #[test]
    fn comments_and_a_missing_end_pass() {
        assert_eq!(
            filtered(ApiFormat::Chat, true, ": ping\n\ndata: {\"a\":1}"),
            (": ping\n\ndata: {\"a\":1}".to_owned(), String::new())
        );
    }

    #[test]
    fn an_event_too_large_to_wait_for_goes_on() {
        let mut filter = ResponseFilter::new(ResponseObserver::new(ApiFormat::Chat, true), true);
        let mut out = Filtered::default();
        filter.pass(KEY, Bytes::from(format!("data: {{\"x\":\"{}", "y".repeat(EVENT_MAX))), &mut out);
        assert_eq!(out.ready.len(), 1);
    }

    #[test]
    fn usage_is_hidden_again_after_a_large_event() {
        let large = CHAT.replace("hi", &"y".repeat(2 * EVENT_MAX));
        // The beginning of such an event has passed before its usage comes.
        let beside = USAGE.replace("{}", &format!("{{\"content\":\"{}\"}}", "y".repeat(2 * EVENT_MAX)));
        let alone = USAGE.replace("{}", &format!("{{}}{}", " ".repeat(2 * EVENT_MAX)));
        for event in [large, beside, alone] {
            let answer = format!("{event}{USAGE}{event}{CHAT}{USAGE}{DONE}");
            for size in [1000, 40_000] {
                let mut filter = ResponseFilter::new(ResponseObserver::new(ApiFormat::Chat, true), true);
                let mut out = Filtered::default();
                for piece in answer.as_bytes().chunks(size) {
                    filter.pass(KEY, Bytes::copy_from_slice(piece), &mut out);
                }
                filter.finish(&mut out);
                assert_eq!(join(out.ready), format!("{event}{event}{CHAT}"), "pieces of {size}");
                assert_eq!(join(out.held), DONE, "pieces of {size}");
            }
        }
    }
}
