//! The input of a program in a sandbox, and its terminal.

use std::io::{self, Read};
use std::time::Duration;

use bytes::Bytes;
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use serde_json::json;
use sluice_client::{ApiClient, ApiRequest, ClientError};
use tokio::sync::mpsc;

/// Maximum number of bytes of one request.
const CHUNK: usize = 64 << 10;
/// Time that the daemon may take to pass bytes on: as long as a program may run.
const PASS_WITHIN: Duration = Duration::from_secs(3600);
/// Time after which a request that came too fast is sent again.
const AGAIN: Duration = Duration::from_millis(250);

/// The terminal of this command in raw mode. Dropping it restores the earlier mode.
pub(super) struct RawTerminal(Termios);

impl RawTerminal {
    /// Sets the terminal on stdin to raw mode, so that all keys are passed on.
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Flush, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        let _ = tcsetattr(io::stdin(), OptionalActions::Flush, &self.0);
    }
}

/// A program that takes input.
#[derive(Clone)]
pub(super) struct ExecTarget {
    pub(super) api: ApiClient,
    pub(super) run: String,
    pub(super) exec_id: String,
}

impl ExecTarget {
    /// Passes stdin on until it ends, or the program takes no more.
    pub(super) async fn pass_stdin(self) {
        let (sender, mut chunks) = mpsc::channel::<Bytes>(1);
        // A read of stdin cannot be cancelled: the thread ends with the process.
        std::thread::spawn(move || {
            let mut buffer = vec![0; CHUNK];
            while let Ok(len) = io::stdin().read(&mut buffer) {
                if len == 0 || sender.blocking_send(Bytes::copy_from_slice(&buffer[..len])).is_err() {
                    break;
                }
            }
        });
        while let Some(chunk) = chunks.recv().await {
            if !self.send(chunk, false).await {
                return;
            }
        }
        self.send(Bytes::new(), true).await;
    }

    /// Ends the input of a program.
    pub(super) async fn close(self) {
        self.send(Bytes::new(), true).await;
    }

    /// Sends the program the size of the terminal on stdout.
    pub(super) async fn resize(&self) {
        let Ok(size) = tcgetwinsize(io::stdout()) else { return };
        if size.ws_row == 0 || size.ws_col == 0 {
            return;
        }
        let request = ApiRequest::post(&["sandboxes", &self.run, "exec", &self.exec_id, "resize"]);
        let size = json!({ "rows": size.ws_row.min(4096), "columns": size.ws_col.min(4096) });
        // A program that has just ended has no size.
        let _ = self.api.bytes(request.json(&size)).await;
    }

    /// Returns false if the program takes no more.
    async fn send(&self, bytes: Bytes, close: bool) -> bool {
        let request = ApiRequest::post_bytes(&["sandboxes", &self.run, "exec", &self.exec_id, "stdin"], bytes);
        let request = if close { request.query("close", "true") } else { request }.waiting(PASS_WITHIN);
        loop {
            match self.api.bytes(request.clone()).await {
                Ok(_) => return true,
                Err(error) if is_too_fast(&error) => tokio::time::sleep(AGAIN).await,
                // The program has ended, or has closed its input.
                Err(_) => return false,
            }
        }
    }
}

fn is_too_fast(error: &ClientError) -> bool {
    error.failure().is_some_and(|failure| failure.status == 429)
}
