//! Sources of log output: a recorded stream, or a file that grows.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;

use sluice_runs::terminal::SanitizedWriter;
use sluice_state::records::{StreamPart, StreamReader};

use super::super::output::DataStream;

/// Size of one read.
const CHUNK: u64 = 64 << 10;

type Sink = Box<dyn FnMut(&[u8]) -> io::Result<()>>;

/// One source, with the stream that shows it.
pub(super) struct LogSource {
    kind: SourceKind,
    sink: Sink,
}

enum SourceKind {
    Stream(StreamReader),
    /// The first of these files that exists, from this offset.
    Files {
        paths: Vec<PathBuf>,
        offset: u64,
    },
}

impl LogSource {
    /// Returns a source that shows a recorded stream on stdout.
    pub(super) fn stream(reader: StreamReader) -> Self {
        Self { kind: SourceKind::Stream(reader), sink: sink(DataStream::sanitized()) }
    }

    /// Returns a source that shows the first of these files that exists.
    pub(super) fn files<W: Write + 'static>(paths: Vec<PathBuf>, writer: SanitizedWriter<W>) -> Self {
        Self { kind: SourceKind::Files { paths, offset: 0 }, sink: sink(writer) }
    }

    /// Shows the source on stderr.
    pub(super) fn on_stderr(self) -> Self {
        Self { sink: sink(SanitizedWriter::new(io::stderr())), ..self }
    }

    /// Shows everything that is new.
    pub(super) fn show_new(&mut self) -> io::Result<()> {
        match &mut self.kind {
            SourceKind::Stream(reader) => {
                while let Some(part) = reader.next_part()? {
                    match part {
                        StreamPart::Bytes(bytes) => (self.sink)(&bytes)?,
                        StreamPart::Missing(count) => {
                            (self.sink)(format!("\n[{count} bytes left out]\n").as_bytes())?;
                        }
                    }
                }
                Ok(())
            }
            SourceKind::Files { paths, offset } => {
                let Some(mut file) = paths.iter().find_map(|path| File::open(path).ok()) else { return Ok(()) };
                file.seek(SeekFrom::Start(*offset))?;
                loop {
                    let mut bytes = Vec::new();
                    let len = Read::take(&mut file, CHUNK).read_to_end(&mut bytes)?;
                    if len == 0 {
                        return Ok(());
                    }
                    *offset += len as u64;
                    (self.sink)(&bytes)?;
                }
            }
        }
    }
}

fn sink<W: Write + 'static>(mut writer: SanitizedWriter<W>) -> Sink {
    Box::new(move |bytes| writer.put(bytes))
}
