//! Raw mode of our own terminal while a program uses it, and its restoration at every end.
//!
//! A process has one terminal, so its earlier modes are kept for the whole process: a panic restores them, too.

use std::io::{self, IsTerminal, Write};
use std::os::fd::AsFd;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use rustix::termios::{OptionalActions, QueueSelector, Termios, tcflush, tcgetattr, tcgetwinsize, tcsetattr};

use crate::input::Stdin;

/// Size of a terminal window, in characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named like their units")]
pub struct WindowSize {
    pub rows: u16,
    pub columns: u16,
}

/// Restores the terminal when it is dropped.
#[derive(Debug)]
pub struct TerminalGuard;

/// State to restore.
struct TerminalState {
    /// Modes of stdin before raw mode, while it is in raw mode.
    modes: Option<Termios>,
    /// True if a program may have written to the terminal since the last reset.
    is_written: bool,
}

static TERMINAL: Mutex<TerminalState> = Mutex::new(TerminalState { modes: None, is_written: false });

/// Resets the display after a program. Titles stay: no terminal reports the earlier one.
const RESET: &str = concat!(
    // Ends an unfinished sequence or string, which would swallow the following text.
    "\x18\x1b\\",
    // Ends synchronized output; leaves the alternate screen by each of its three names.
    "\x1b[?2026l\x1b[?1049l\x1b[?1047l\x1b[?47l",
    // The whole screen scrolls, without margins; the cursor keeps its position.
    "\x1b7\x1b[?69l\x1b[?6l\x1b[r\x1b8",
    // The soft reset, and the modes that it leaves: charsets, keys, reverse video, line wrap, a visible cursor.
    "\x1b[!p\x1b(B\x0f\x1b>\x1b[?1l\x1b[4l\x1b[?5l\x1b[?7h\x1b[?25h\x1b[0 q",
    // Switches off reports of the mouse, of focus and of pastes, and resets the keys: by kitty's protocol and by xterm's.
    "\x1b[?9l\x1b[?1000l\x1b[?1001l\x1b[?1002l\x1b[?1003l\x1b[?1004l\x1b[?1005l\x1b[?1006l\x1b[?1015l\x1b[?1016l\x1b[?2031l",
    "\x1b[?2004l\x1b[<99u\x1b[=0u\x1b[>4;0m",
    // Default colours; ends links and attributes.
    "\x1b]104\x1b\\\x1b]110\x1b\\\x1b]111\x1b\\\x1b]112\x1b\\\x1b]8;;\x1b\\\x1b[0m",
    "\n"
);
/// Maximum time that a blocked terminal delays the reset.
const RESET_WITHIN_MS: u16 = 500;

/// Returns the size of the window of stdin; `None` if stdin is not a terminal, or the terminal does not know.
#[must_use]
pub fn size() -> Option<WindowSize> {
    let size = tcgetwinsize(io::stdin()).ok()?;
    (size.ws_row > 0 && size.ws_col > 0).then_some(WindowSize { rows: size.ws_row, columns: size.ws_col })
}

/// Returns the value of our `TERM`, if it is a plain name.
#[must_use]
pub fn term() -> Option<String> {
    std::env::var("TERM").ok().filter(|name| is_plain(name))
}

fn is_plain(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.+".contains(&byte);
    (1..=64).contains(&name.len()) && name.bytes().all(is_plain)
}

/// Prepares the terminal for a program. With our stdin the program gets every key: the terminal changes to raw mode.
///
/// # Errors
/// When the modes of the terminal cannot be changed.
pub fn enter_raw_mode(stdin: Stdin) -> io::Result<()> {
    restore_in_a_panic();
    let mut terminal = terminal_state();
    terminal.is_written = true;
    if stdin == Stdin::Ours && terminal.modes.is_none() {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Now, &raw)?;
        terminal.modes = Some(before);
    }
    Ok(())
}

/// Ends raw mode: Ctrl-C is a signal for us again.
pub fn leave_raw_mode() {
    restore_modes(&mut terminal_state());
}

/// Restores modes and display. All output of the program must be on the terminal by now.
pub fn restore() {
    restore_all(&mut terminal_state());
}

fn terminal_state() -> MutexGuard<'static, TerminalState> {
    TERMINAL.lock().unwrap_or_else(PoisonError::into_inner)
}

fn restore_all(terminal: &mut TerminalState) {
    restore_modes(terminal);
    if std::mem::take(&mut terminal.is_written) {
        let _ = reset();
        // The terminal's answers to the program would be typed into the shell.
        let _ = tcflush(io::stdin(), QueueSelector::IFlush);
    }
}

fn restore_modes(terminal: &mut TerminalState) {
    if let Some(modes) = terminal.modes.take() {
        // If the terminal is gone, no modes need to be restored.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &modes);
    }
}

fn reset() -> io::Result<()> {
    if io::stdout().is_terminal() { put(&mut io::stdout()) } else { put(&mut io::stderr()) }
}

fn put(stream: &mut (impl Write + IsTerminal + AsFd)) -> io::Result<()> {
    if !stream.is_terminal() {
        return Ok(());
    }
    // A terminal that was stopped by Ctrl-S would block the write for ever.
    let is_ready = poll(&mut [PollFd::new(stream.as_fd(), PollFlags::POLLOUT)], PollTimeout::from(RESET_WITHIN_MS));
    if is_ready.is_ok_and(|count| count > 0) {
        stream.write_all(RESET.as_bytes())?;
    }
    stream.flush()
}

fn restore_in_a_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let before = std::panic::take_hook();
        // The shipped program aborts on a panic: nothing is dropped then.
        std::panic::set_hook(Box::new(move |panic| {
            // A panic in this module holds the lock itself.
            if let Ok(mut terminal) = TERMINAL.try_lock() {
                restore_all(&mut terminal);
            }
            before(panic);
        }));
    });
}

impl Drop for TerminalGuard {
    fn drop(&mut self) {
        restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_plain_name_is_passed_as_term() {
        for (name, expected) in [
            ("xterm-256color", true),
            ("screen.xterm-new", true),
            ("", false),
            ("../../etc/x", false),
            ("xterm\n", false),
            ("x y", false),
        ] {
            assert_eq!(is_plain(name), expected, "{name:?}");
        }
        assert!(!is_plain(&"x".repeat(65)));
    }
}
