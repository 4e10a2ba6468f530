//! Output of commands: data on stdout, messages on stderr.
//!
//! A failed write is remembered, as by the streams of C: commands print without a check each time, and [`exit_code`] reports
//! the failure at the end. A command that prints without end stops when [`put`] fails.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::sync::OnceLock;

use serde::Serialize;
use sluice_contract::exit;
use sluice_contract::text::truncate;
use sluice_contract::time::from_unix_micros;
use sluice_runs::terminal::{SanitizedWriter, sanitize_lines};

use super::error::CommandError;
use super::object::CommandObject;
use super::stderr_log;
use super::style::{Style, Styles};

/// Format of a command's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OutputFormat {
    /// Text for people.
    Text,
    /// One JSON object.
    Json,
}

impl From<bool> for OutputFormat {
    /// Returns the format for the flag `--json`.
    fn from(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }
}

/// The first write to stdout that failed.
static FAILURE: OnceLock<io::Error> = OnceLock::new();

/// Prints the message of an error, and returns its exit code.
pub(super) fn fail(error: &CommandError) -> ExitCode {
    say(&error.message);
    ExitCode::from(error.code)
}

/// Prints a message to stderr, sanitized and truncated since it may contain foreign text.
pub(super) fn say(message: &str) {
    if !stderr_log::warn(message) {
        let name = Styles::of(&io::stderr()).paint(Style::Bold, "sluice:");
        let _ = writeln!(io::stderr(), "{name} {}", truncate(message));
    }
}

/// Prints lines of ours to stderr, such as a receipt; their first words are labels.
pub(super) fn say_lines(lines: &str) {
    let _ = io::stderr().write_all(Styles::of(&io::stderr()).labels(&sanitize_lines(lines)).as_bytes());
}

/// Prints text of a sandbox to stderr. A mark before each line distinguishes it from ours.
pub(super) fn quote(text: &str) {
    let mut stderr = SanitizedWriter::new(io::stderr());
    let _ = text.lines().try_for_each(|line| stderr.put(format!("| {line}\n").as_bytes()));
}

/// Prints a word of ours to stdout.
pub(super) fn print_word(style: Style, word: &'static str) {
    let styles = Styles::of(&io::stdout());
    if FAILURE.get().is_none()
        && let Err(error) = io::stdout().write_all(styles.paint(style, word).as_bytes())
    {
        FAILURE.get_or_init(|| error);
    }
}

/// Returns the width of the terminal that stdout is.
pub(super) fn terminal_width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok())??;
    // A terminal of unknown size reports 0 columns.
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// Writes data to stdout, sanitized since it may contain foreign text.
///
/// # Errors
/// The write failed, now or before. [`exit_code`] reports it.
pub(super) fn put(bytes: &[u8]) -> Result<(), &'static io::Error> {
    if let Some(error) = FAILURE.get() {
        return Err(error);
    }
    SanitizedWriter::new(io::stdout().lock()).put(bytes).map_err(|error| FAILURE.get_or_init(|| error))
}

/// Stdout for the bytes of a sandbox. A failed write is remembered.
pub(super) struct DataStream;

impl Write for DataStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        io::stdout().write(bytes).map_err(remembered)
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stdout().flush().map_err(remembered)
    }
}

impl DataStream {
    /// Returns a writer that passes every byte: the program in the sandbox controls the terminal.
    pub(super) fn raw() -> SanitizedWriter<Self> {
        SanitizedWriter::for_pipe(Self)
    }

    /// Returns a writer that sanitises its input, if stdout is a terminal.
    pub(super) fn sanitized() -> SanitizedWriter<Self> {
        if io::stdout().is_terminal() { SanitizedWriter::for_terminal(Self) } else { SanitizedWriter::for_pipe(Self) }
    }
}

fn remembered(error: io::Error) -> io::Error {
    let kind = error.kind();
    // An interrupted write is repeated.
    if kind != io::ErrorKind::Interrupted {
        FAILURE.get_or_init(|| error);
    }
    kind.into()
}

/// Returns the error of the first write to stdout that failed. A command without end then stops.
pub(super) fn failure() -> Option<&'static io::Error> {
    FAILURE.get()
}

/// Prints data to stdout.
pub(super) fn print(text: &str) {
    // The failure is remembered.
    let _ = put(text.as_bytes());
}

/// Prints the JSON object of a successful command: the members of all objects, and the members of `data`.
pub(super) fn print_json(data: &impl Serialize) {
    print_object(&CommandObject::done(data));
}

/// Prints an object that has all its members: indented on a terminal, else on one line.
pub(super) fn print_object(object: &impl Serialize) {
    print(&(json_text(object, 0) + "\n"));
}

/// Returns a part of a JSON text: indented for this depth on a terminal, else without blanks.
pub(super) fn json_text(value: &impl Serialize, depth: usize) -> String {
    if !is_indented() {
        return serde_json::to_string(value).expect("plain data");
    }
    // Strings in it contain no line breaks: JSON escapes them.
    let text = serde_json::to_string_pretty(value).expect("plain data");
    text.replace('\n', &format!("\n{}", "  ".repeat(depth)))
}

/// Returns whether JSON is indented, which it is on a terminal.
pub(super) fn is_indented() -> bool {
    io::stdout().is_terminal()
}

/// Returns the exit code of the process, and reports a failed write, which replaces a success.
///
/// If the reader of a pipe is gone, nothing is printed, and the code is the one for SIGPIPE, as with other programs.
pub(super) fn exit_code(code: ExitCode) -> ExitCode {
    let Some(error) = FAILURE.get() else { return code };
    let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
    if !is_closed {
        say(&format!("cannot write to stdout: {error}"));
    }
    match code == ExitCode::SUCCESS {
        true if is_closed => ExitCode::from(exit::READER_GONE),
        true => ExitCode::from(exit::OUTPUT_FAILED),
        false => code,
    }
}

/// Returns a timestamp of RFC 3339 for people: date and time, to the second.
pub(super) fn date_time(timestamp: &str) -> String {
    timestamp.get(..19).unwrap_or(timestamp).replace('T', " ")
}

/// Returns a time, in microseconds since 1970, as a timestamp of RFC 3339 in whole seconds.
pub(super) fn timestamp_to_second(us: i64) -> String {
    humantime::format_rfc3339_seconds(from_unix_micros(us)).to_string()
}

/// Returns a value for a table, or a dash.
pub(super) fn dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
