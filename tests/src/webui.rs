//! The real Open WebUI, unmodified, with a server of OpenAI's form that a test names.

use std::path::Path;
use std::process::Command;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::leash::{Leash, START_LIMIT, python_file};
use crate::wait::poll;

/// A running Open WebUI without a login. It ends with the test process, however that ends.
#[derive(Debug)]
pub struct WebUi {
    port: u16,
    server: Leash,
}

impl WebUi {
    /// Starts one whose models are those of `base` (`http://host:port/v1`).
    ///
    /// # Panics
    /// With its log when it did not start, and with the command to run when it is not installed.
    pub async fn start(base: &str, key: &str) -> Self {
        let venv = Path::new(env!("CARGO_MANIFEST_DIR")).join("../.cache/webui");
        assert!(venv.join(".stamp").exists(), "Open WebUI is missing: run tests/setup/webui.sh");
        let serve = |directory: &Path| {
            let mut command = Command::new(venv.join("bin/python"));
            command.arg(python_file("webui.py")).arg(directory);
            command.env("OPENAI_API_BASE_URLS", base).env("OPENAI_API_KEYS", key);
            command
        };
        let started = Leash::start_listening(serve, "listening on port ").await;
        let (server, port) = started.unwrap_or_else(|why| panic!("{why}"));
        let webui = Self { port, server };
        assert!(poll(START_LIMIT, async || webui.is_ready().await).await, "it does not answer: {}", webui.log());
        webui
    }

    /// Returns its address.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Returns its log so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.server.log()
    }

    async fn is_ready(&self) -> bool {
        let asked = async {
            let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await?;
            stream.write_all(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.map(|_| answer)
        };
        asked.await.is_ok_and(|answer: Vec<u8>| answer.starts_with(b"HTTP/1.1 200"))
    }
}
