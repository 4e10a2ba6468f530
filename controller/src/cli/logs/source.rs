//! Sources of log output: a recorded stream, the output of both, or a file that grows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use sluice_runs::terminal::SanitizedWriter;
use sluice_state::records::{OutputContent, OutputPiece, OutputReader, RecordedStream, StreamPart, StreamReader};

use super::super::output::{DataStream, OutputFormat};
use super::line_selection::{LineSelection, SelectedLine};

/// Maximum size of one read.
const CHUNK: u64 = 64 << 10;

type Sink = Box<dyn FnMut(&[u8]) -> io::Result<()>>;

/// One source, with the streams that show it.
pub(super) struct LogSource {
    kind: SourceKind,
    shown: Shown,
}

/// Stream on which a source is shown, and its lines.
struct Shown {
    /// Stdout and stderr of a run.
    sinks: [Sink; 2],
    lines: Option<LineSelection>,
    format: OutputFormat,
}

enum SourceKind {
    /// One stream, and its place in `sinks`.
    Stream(StreamReader, usize),
    /// Both streams, or one of them, with the times of their pieces.
    Output(OutputReader, Option<RecordedStream>),
    /// The first of these files that exists, from this offset.
    Files { paths: Vec<PathBuf>, offset: u64 },
}

impl LogSource {
    /// Returns a source that shows a recorded stream: stdout on stdout, and stderr on stderr.
    pub(super) fn stream(reader: StreamReader, stream: RecordedStream) -> Self {
        Self::of(SourceKind::Stream(reader, place(stream)), sink(DataStream::sanitized()))
    }

    /// Returns a source that shows the output of a run: a single stream on stdout, or both streams on stdout and stderr.
    pub(super) fn output(reader: OutputReader, only: Option<RecordedStream>) -> Self {
        let source = Self::of(SourceKind::Output(reader, only), sink(DataStream::sanitized()));
        if only.is_some() { source.on_stdout() } else { source }
    }

    /// Returns a source that shows the first of these files that exists.
    pub(super) fn files<W: Write + 'static>(paths: Vec<PathBuf>, writer: SanitizedWriter<W>) -> Self {
        Self::of(SourceKind::Files { paths, offset: 0 }, sink(writer))
    }

    fn of(kind: SourceKind, stdout: Sink) -> Self {
        let sinks = [stdout, sink(SanitizedWriter::new(io::stderr()))];
        Self { kind, shown: Shown { sinks, lines: None, format: OutputFormat::Text } }
    }

    /// Shows stderr on stdout, too.
    pub(super) fn on_stdout(mut self) -> Self {
        self.shown.sinks[1] = sink(DataStream::sanitized());
        self
    }

    /// Shows only these lines of the source, in this format.
    pub(super) fn selecting(mut self, lines: LineSelection, format: OutputFormat) -> Self {
        (self.shown.lines, self.shown.format) = (Some(lines), format);
        self
    }

    /// Shows everything that is new.
    pub(super) fn show_new(&mut self) -> io::Result<()> {
        let Self { kind, shown } = self;
        match kind {
            SourceKind::Stream(reader, stream) => {
                while let Some(part) = reader.next_part()? {
                    match part {
                        StreamPart::Bytes(bytes) => shown.put(*stream, 0, &bytes)?,
                        StreamPart::Missing(count) => shown.put(*stream, 0, &left_out(count))?,
                    }
                }
            }
            SourceKind::Output(reader, only) => {
                while let Some(OutputPiece { stream, time_us, content, .. }) = reader.next_piece()? {
                    if only.is_some_and(|only| only != stream) {
                        continue;
                    }
                    let bytes = match content {
                        OutputContent::Bytes(bytes) => bytes,
                        OutputContent::Missing(count) => left_out(count),
                    };
                    shown.put(place(stream), time_us, &bytes)?;
                }
            }
            SourceKind::Files { paths, offset } => {
                let Some(mut file) = paths.iter().find_map(|path| File::open(path).ok()) else { return Ok(()) };
                file.seek(SeekFrom::Start(*offset))?;
                loop {
                    let mut bytes = Vec::new();
                    let len = Read::take(&mut file, CHUNK).read_to_end(&mut bytes)?;
                    if len == 0 {
                        break;
                    }
                    *offset += len as u64;
                    shown.put(0, 0, &bytes)?;
                }
            }
        }
        Ok(())
    }

    /// Shows the last lines of the output that existed at first.
    pub(super) fn caught_up(&mut self) -> io::Result<()> {
        let last = self.shown.lines.as_mut().map(LineSelection::caught_up);
        self.shown.put_lines(last.unwrap_or_default())
    }

    /// Shows the rest at the end of the output.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        let rest = self.shown.lines.as_mut().map(LineSelection::finish);
        self.shown.put_lines(rest.unwrap_or_default())
    }
}

impl Shown {
    fn put(&mut self, stream: usize, time_us: i64, bytes: &[u8]) -> io::Result<()> {
        let Some(lines) = &mut self.lines else { return (self.sinks[stream])(bytes) };
        let selected = lines.push(stream, time_us, bytes);
        self.put_lines(selected)
    }

    fn put_lines(&mut self, lines: Vec<SelectedLine>) -> io::Result<()> {
        lines.into_iter().try_for_each(|line| match self.format {
            OutputFormat::Text => (self.sinks[line.stream])(&line.bytes),
            OutputFormat::Json => (self.sinks[0])(&line.json()),
        })
    }
}

/// Returns the place of a stream in `sinks`.
fn place(stream: RecordedStream) -> usize {
    usize::from(stream == RecordedStream::Stderr)
}

/// Returns the text that replaces bytes that were not kept.
pub(in crate::cli) fn left_out(count: u64) -> Vec<u8> {
    format!("\n[{count} bytes left out]\n").into_bytes()
}

fn sink<W: Write + 'static>(mut writer: SanitizedWriter<W>) -> Sink {
    Box::new(move |bytes| writer.put(bytes))
}
