//! The modes: kinds of calls, numbers of connections and calls.

use crate::options::Options;
use crate::wire::{self, Api, CallKind, Pace};

/// The connections of a mode: each carries one call, or many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Connections {
    /// Keep-alive: opened and used once before the clock starts.
    Kept(usize),
    /// A new one for each call, this many at a time.
    Fresh(usize),
}

impl Connections {
    /// Number of open connections.
    pub(crate) fn count(self) -> usize {
        match self {
            Self::Kept(count) | Self::Fresh(count) => count,
        }
    }
}

/// One mode of the bench.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    pub(crate) title: &'static str,
    pub(crate) ask: CallKind,
    pub(crate) connections: Connections,
    /// Calls per round.
    pub(crate) calls: usize,
    /// Calls per round with `--quick`, and of the warm-up.
    pub(crate) quick_calls: usize,
}

impl Mode {
    /// Chunks in each answer; 1 if the answer is not a stream.
    pub(crate) fn chunks(&self) -> usize {
        match self.ask {
            CallKind::Burst(_) => wire::BURST_CHUNKS,
            CallKind::Paced(pace) => pace.chunks(),
            CallKind::Chat | CallKind::Body(_) => 1,
        }
    }
}

const KIB: usize = 1024;

const ALL: [Mode; 12] = [
    Mode {
        name: "chat-1",
        title: "small chat, 1 keep-alive connection",
        ask: CallKind::Chat,
        connections: Connections::Kept(1),
        calls: 10_000,
        quick_calls: 2500,
    },
    Mode {
        name: "chat-8",
        title: "small chat, 8 keep-alive connections",
        ask: CallKind::Chat,
        connections: Connections::Kept(8),
        calls: 15_000,
        quick_calls: 5000,
    },
    Mode {
        name: "chat-64",
        title: "small chat, 64 keep-alive connections",
        ask: CallKind::Chat,
        connections: Connections::Kept(64),
        calls: 15_000,
        quick_calls: 5000,
    },
    Mode {
        name: "new-connection",
        title: "small chat, a new connection for each call, 8 at a time",
        ask: CallKind::Chat,
        connections: Connections::Fresh(8),
        calls: 8000,
        quick_calls: 2500,
    },
    Mode {
        name: "burst-100",
        title: "stream of 100 chunks sent in a burst, 8 connections",
        ask: CallKind::Burst(Api::Chat),
        connections: Connections::Kept(8),
        calls: 6000,
        quick_calls: 1500,
    },
    Mode {
        name: "messages-100",
        title: "the same with the events of /v1/messages",
        ask: CallKind::Burst(Api::Messages),
        connections: Connections::Kept(8),
        calls: 6000,
        quick_calls: 1500,
    },
    Mode {
        name: "responses-100",
        title: "the same with the events of /v1/responses",
        ask: CallKind::Burst(Api::Responses),
        connections: Connections::Kept(8),
        calls: 6000,
        quick_calls: 1500,
    },
    Mode {
        name: "paced-64",
        title: "64 streams of 200 chunks, one every 2 ms",
        ask: CallKind::Paced(Pace::Fast),
        connections: Connections::Kept(64),
        calls: 64,
        quick_calls: 64,
    },
    Mode {
        name: "paced-512",
        title: "512 streams of 50 chunks, one every 40 ms",
        ask: CallKind::Paced(Pace::Slow),
        connections: Connections::Kept(512),
        calls: 512,
        quick_calls: 512,
    },
    Mode {
        name: "body-20k",
        title: "20 KB request body, 8 connections",
        ask: CallKind::Body(20 * KIB),
        connections: Connections::Kept(8),
        calls: 6000,
        quick_calls: 1500,
    },
    Mode {
        name: "body-200k",
        title: "200 KB request body, 8 connections",
        ask: CallKind::Body(200 * KIB),
        connections: Connections::Kept(8),
        calls: 2000,
        quick_calls: 400,
    },
    Mode {
        name: "body-5m",
        title: "5 MB request body (an image as a data URL), 4 connections",
        ask: CallKind::Body(5 * KIB * KIB),
        connections: Connections::Kept(4),
        calls: 100,
        quick_calls: 20,
    },
];

/// Returns the names of all modes.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    ALL.iter().map(|mode| mode.name)
}

/// Returns the mode of this name.
pub(crate) fn named(name: &str) -> Option<Mode> {
    ALL.into_iter().find(|mode| mode.name == name)
}

/// Returns the modes that the options select, in the order of the bench.
pub(crate) fn chosen(options: &Options) -> impl Iterator<Item = Mode> {
    ALL.into_iter()
        .filter(|mode| options.wants(mode.name))
        .map(|mode| Mode { calls: if options.quick { mode.quick_calls } else { mode.calls }, ..mode })
}
