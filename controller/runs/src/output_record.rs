//! Records a program's output while it is forwarded to our own output.
//!
//! A separate thread writes, since a disk can be slow and the program must not wait for it. Between two writes, a bounded
//! amount waits in memory: the beginning of a stream and its newest bytes. Bytes between those are dropped, and counted by
//! the reader of the record.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use sluice_state::records::{RecordedStream, SegmentLimits, SegmentWriter};

use crate::forward::OutputChunk;

/// Time between two writes. Output that comes faster is written in larger pieces.
const WRITE_EVERY: Duration = Duration::from_millis(20);

/// Takes output for the record.
#[derive(Debug, Clone)]
pub struct OutputRecorder {
    shared: Arc<SharedQueue>,
}

/// Handle of the thread that writes.
#[derive(Debug)]
pub(crate) struct RecordingThread {
    shared: Arc<SharedQueue>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

#[derive(Debug)]
struct SharedQueue {
    queue: Mutex<RecordQueue>,
    changed: Condvar,
}

/// Output that is not written yet.
#[derive(Debug)]
struct RecordQueue {
    stdout: PendingStream,
    stderr: PendingStream,
    is_closed: bool,
}

/// Unwritten bytes of one stream: the end of its head, and its newest bytes.
#[derive(Debug)]
struct PendingStream {
    limits: SegmentLimits,
    /// Number of bytes that came.
    len: u64,
    head: Vec<u8>,
    tail: VecDeque<u8>,
}

/// Bytes of a stream, and the offset of the first one.
type StreamPiece = (u64, Vec<u8>);

impl OutputRecorder {
    /// Takes a chunk. The chunk is copied, and the call never waits for the disk.
    pub fn record(&self, chunk: &OutputChunk) {
        let mut queue = self.shared.lock();
        match chunk {
            OutputChunk::Stdout(bytes) => queue.stdout.push(bytes),
            OutputChunk::Stderr(bytes) => queue.stderr.push(bytes),
        }
        drop(queue);
        self.shared.changed.notify_one();
    }
}

impl RecordingThread {
    pub(crate) fn start(directory: &Path, limits: SegmentLimits) -> Self {
        let pending = || PendingStream { limits, len: 0, head: Vec::new(), tail: VecDeque::new() };
        let queue = RecordQueue { stdout: pending(), stderr: pending(), is_closed: false };
        let shared = Arc::new(SharedQueue { queue: Mutex::new(queue), changed: Condvar::new() });
        let writer = |stream: RecordedStream| SegmentWriter::new(directory, stream.as_str(), limits);
        let (stdout, stderr) = (writer(RecordedStream::Stdout), writer(RecordedStream::Stderr));
        let queue = Arc::clone(&shared);
        Self { shared, thread: Some(std::thread::spawn(move || queue.write_all(stdout, stderr))) }
    }

    pub(crate) fn recorder(&self) -> OutputRecorder {
        OutputRecorder { shared: Arc::clone(&self.shared) }
    }

    /// Writes the rest, and returns the first error.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        self.shared.close();
        self.thread.take().map_or(Ok(()), |thread| thread.join().unwrap_or(Ok(())))
    }
}

impl Drop for RecordingThread {
    fn drop(&mut self) {
        self.shared.close();
    }
}

impl SharedQueue {
    fn lock(&self) -> MutexGuard<'_, RecordQueue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn close(&self) {
        self.lock().is_closed = true;
        self.changed.notify_one();
    }

    /// Writes both streams until the queue is closed and empty. After an error, output is dropped.
    fn write_all(&self, mut stdout: SegmentWriter, mut stderr: SegmentWriter) -> io::Result<()> {
        let mut result = Ok(());
        loop {
            let (out, err, is_closed) = self.take();
            let pieces = out.into_iter().map(|piece| (true, piece)).chain(err.into_iter().map(|piece| (false, piece)));
            for (is_stdout, (offset, bytes)) in pieces {
                let writer = if is_stdout { &mut stdout } else { &mut stderr };
                if result.is_ok() {
                    result = writer.write(offset, &bytes);
                }
            }
            if is_closed {
                return result;
            }
            // A close ends the wait early; output does not.
            let pause = self.changed.wait_timeout_while(self.lock(), WRITE_EVERY, |queue| !queue.is_closed);
            drop(pause);
        }
    }

    /// Waits for output or for the close, and takes everything.
    fn take(&self) -> (Vec<StreamPiece>, Vec<StreamPiece>, bool) {
        let queue = self.lock();
        let is_idle = |queue: &mut RecordQueue| queue.stdout.is_empty() && queue.stderr.is_empty() && !queue.is_closed;
        let mut queue = self.changed.wait_while(queue, is_idle).unwrap_or_else(PoisonError::into_inner);
        (queue.stdout.take(), queue.stderr.take(), queue.is_closed)
    }
}

impl PendingStream {
    fn is_empty(&self) -> bool {
        self.head.is_empty() && self.tail.is_empty()
    }

    fn push(&mut self, bytes: &[u8]) {
        let head_left = (self.limits.each as u64).saturating_sub(self.len);
        let (head, rest) = bytes.split_at(bytes.len().min(usize::try_from(head_left).unwrap_or(usize::MAX)));
        self.head.extend_from_slice(head);
        self.len += bytes.len() as u64;
        let max = self.limits.tail();
        let rest = &rest[rest.len() - rest.len().min(max)..];
        let surplus = (self.tail.len() + rest.len()).saturating_sub(max);
        self.tail.drain(..surplus);
        self.tail.extend(rest);
    }

    fn take(&mut self) -> Vec<StreamPiece> {
        let (head, tail) = (std::mem::take(&mut self.head), Vec::from(std::mem::take(&mut self.tail)));
        let tail_start = self.len - tail.len() as u64;
        // While there is a head, the tail begins at its end, or after dropped bytes.
        let head_start = (self.len - tail.len() as u64).min(self.limits.each as u64) - head.len() as u64;
        [(head_start, head), (tail_start, tail)].into_iter().filter(|(_, bytes)| !bytes.is_empty()).collect()
    }
}

#[cfg(test)]
mod tests {
    use sluice_contract::RunKey;
    use sluice_state::records::{Records, StreamPart};

    use super::*;

    fn pending(each: usize) -> PendingStream {
        PendingStream { limits: SegmentLimits { each }, len: 0, head: Vec::new(), tail: VecDeque::new() }
    }

    #[test]
    fn waiting_output_is_bounded_and_keeps_its_ends() {
        let mut stream = pending(4);
        stream.push(b"abcdefghijklmnopqrstuvwxyz");
        assert_eq!(stream.take(), [(0, b"abcd".to_vec()), (18, b"stuvwxyz".to_vec())]);
        assert!(stream.is_empty() && stream.take().is_empty());
        stream.push(b"012");
        stream.push(b"3456789");
        assert_eq!(stream.take(), [(28, b"23456789".to_vec())]);
        let mut stream = pending(4);
        stream.push(b"ab");
        assert_eq!(stream.take(), [(0, b"ab".to_vec())]);
        stream.push(b"cdef");
        assert_eq!(stream.take(), [(2, b"cd".to_vec()), (4, b"ef".to_vec())]);
    }

    #[test]
    fn all_output_is_written_before_the_end() {
        let directory = tempfile::tempdir().expect("there is room");
        let key: RunKey = "r.0".parse().expect("it is a key");
        let record = Records::at(directory.path().join("records")).create(&key).expect("there is room");
        let thread = RecordingThread::start(record.directory(), SegmentLimits::within(3 << 10));
        let recorder = thread.recorder();
        recorder.record(&OutputChunk::Stdout(b"out ".to_vec().into()));
        recorder.record(&OutputChunk::Stderr(b"err".to_vec().into()));
        recorder.record(&OutputChunk::Stdout(b"put".to_vec().into()));

        thread.finish().expect("there is room");

        for (stream, expected) in [(RecordedStream::Stdout, &b"out put"[..]), (RecordedStream::Stderr, b"err")] {
            let part = record.stream(stream).next_part().expect("it is ours");
            assert_eq!(part, Some(StreamPart::Bytes(expected.to_vec())));
        }
    }
}
