//! The real LiteLLM of the tests, and its provider.
//!
//! [`LiteLlm::shared`] starts one per test process, on a port that the kernel picks, with the models of
//! `tests/python/litellm.yaml`: mocks that answer by themselves, and `provider-*` models that call
//! `tests/python/provider.py`, which writes down what reached it. Both end with the test process, however it ends:
//! each runs on a leash (`tests/python/leash.py`).

use std::fs;
use std::io;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;

use crate::leash::{Leash, START_LIMIT, python, python_file};
use crate::otlp::packages;
use crate::spenddb::SpendDb;
use crate::wait::poll;

const CONFIG: &str = "litellm.yaml";
const RECORD_LIMIT: Duration = Duration::from_secs(60);

/// A running LiteLLM: its URL, its master key, and the records of it and its provider.
#[derive(Debug)]
pub struct LiteLlm {
    url: String,
    key: String,
    provider_url: String,
    server: Leash,
    provider: Option<Leash>,
    spend: Option<SpendDb>,
}

impl LiteLlm {
    /// Returns the instance that this test process shares; the first caller starts it.
    ///
    /// # Panics
    /// With LiteLLM's log when it did not start, and with the command to run when its environment is missing.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Result<LiteLlm, String>> = OnceCell::const_new();
        // A failure is kept, too: the next test must not wait for the same failure again.
        match SHARED.get_or_init(Self::with_own_provider).await {
            Ok(litellm) => litellm,
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts another one, whose `provider-*` models call `base` (`http://host:port`, without `/v1`). It takes seconds
    /// to start: only for a test that must script the provider.
    ///
    /// # Panics
    /// As [`LiteLlm::shared`].
    pub async fn with_provider(base: &str) -> Self {
        match Self::start(CONFIG, base, None, Vec::new()).await {
            Ok(litellm) => litellm,
            Err(why) => panic!("{why}"),
        }
    }

    /// Returns the instance of this test process that has a database, and so a spend log. Its provider is of the same
    /// kind as in [`LiteLlm::shared`].
    ///
    /// # Panics
    /// As [`LiteLlm::shared`].
    pub async fn with_spend_log() -> &'static Self {
        static SHARED: OnceCell<Result<LiteLlm, String>> = OnceCell::const_new();
        match SHARED.get_or_init(|| Self::start_with_spend_log(CONFIG)).await {
            Ok(litellm) => litellm,
            Err(why) => panic!("{why}"),
        }
    }

    /// Returns the instance of this test process with a database and with every setting that changes the cost of calls:
    /// `tests/python/litellm_billing.yaml`.
    ///
    /// # Panics
    /// As [`LiteLlm::shared`].
    pub async fn with_billing() -> &'static Self {
        static SHARED: OnceCell<Result<LiteLlm, String>> = OnceCell::const_new();
        match SHARED.get_or_init(|| Self::start_with_spend_log("litellm_billing.yaml")).await {
            Ok(litellm) => litellm,
            Err(why) => panic!("{why}"),
        }
    }

    /// Starts one with both callbacks for Langfuse, which send to this address. It takes seconds to start.
    ///
    /// # Panics
    /// As [`LiteLlm::shared`], and without the packages of `tests/setup/langfuse.sh`.
    pub async fn with_langfuse(langfuse: &str) -> Self {
        match Self::with_own_provider_and("litellm_langfuse.yaml", langfuse_environment(langfuse)).await {
            Ok(litellm) => litellm,
            Err(why) => panic!("{why}"),
        }
    }

    async fn start_with_spend_log(config: &str) -> Result<Self, String> {
        let spend = SpendDb::start().await?;
        let mut litellm = Self::with_own_provider_and(config, spend.environment()).await?;
        litellm.spend = Some(spend);
        Ok(litellm)
    }

    /// Makes a key with these rights: the body of LiteLLM's `POST /key/generate`.
    ///
    /// # Panics
    /// When LiteLLM gives no key: it needs a database for that.
    pub async fn mint(&self, rights: Value) -> String {
        let answer = self.post("/key/generate", rights).await;
        answer["key"].as_str().unwrap_or_else(|| panic!("LiteLLM gave no key: {answer}")).to_owned()
    }

    /// Sends a `POST` with the master key, and returns the answer.
    ///
    /// # Panics
    /// When it is not JSON with status 200.
    pub async fn post(&self, path: &str, body: Value) -> Value {
        let address = self.url.trim_start_matches("http://");
        let body = body.to_string();
        let head = format!(
            "POST {path} HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n\r\n",
            self.key,
            body.len()
        );
        let ask = async {
            let mut stream = TcpStream::connect(address).await?;
            stream.write_all((head + &body).as_bytes()).await?;
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await?;
            io::Result::Ok(answer)
        };
        let answer = ask.await.expect("LiteLLM is there");
        let body = answer.strip_prefix("HTTP/1.1 200").and_then(|rest| rest.split_once("\r\n\r\n"));
        let body = body.and_then(|(_, body)| serde_json::from_str(body).ok());
        body.unwrap_or_else(|| panic!("POST {path}: {answer}"))
    }

    /// The database of its spend log.
    ///
    /// # Panics
    /// When it has none.
    pub fn spend(&self) -> &SpendDb {
        self.spend.as_ref().expect("spend() needs LiteLlm::with_spend_log()")
    }

    async fn with_own_provider() -> Result<Self, String> {
        Self::with_own_provider_and(CONFIG, Vec::new()).await
    }

    async fn with_own_provider_and(config: &str, environment: Vec<(&'static str, String)>) -> Result<Self, String> {
        let (provider, port) = Leash::start_listening(
            |directory| {
                let mut command = Command::new(python());
                command.arg(python_file("provider.py")).arg(directory.join("requests.jsonl"));
                command
            },
            "listening on 127.0.0.1:",
        )
        .await?;
        Self::start(config, &format!("http://127.0.0.1:{port}"), Some(provider), environment).await
    }

    async fn start(
        config: &str,
        provider_url: &str,
        provider: Option<Leash>,
        environment: Vec<(&'static str, String)>,
    ) -> Result<Self, String> {
        let key = random_key();
        let (server, port) = Leash::start_listening(
            |directory| {
                let mut command = Command::new(python());
                command
                    // Not `python -m`: that imports the proxy twice. Not bin/litellm: its first line is a path.
                    .args(["-c", "import sys; from litellm import run_server; sys.exit(run_server())"])
                    .arg("--config")
                    .arg(python_file(config))
                    .args(["--host", "127.0.0.1", "--port", "0", "--telemetry", "False"])
                    .env("HOME", directory)
                    .env("LITELLM_LOCAL_MODEL_COST_MAP", "True")
                    .env("DO_NOT_TRACK", "1")
                    .env("SLUICE_MASTER_KEY", &key)
                    .env("SLUICE_RECORD", directory.join("records.jsonl"))
                    .env("SLUICE_PROVIDER", provider_url)
                    .env("SLUICE_PROVIDER_OPENAI", format!("{provider_url}/v1"))
                    .envs(environment);
                command
            },
            "Uvicorn running on http://127.0.0.1:",
        )
        .await?;
        // Its list of routes takes seconds to make for the first time; `sluice preflight` does not wait so long under load.
        for path in ["/health/liveliness", "/openapi.json"] {
            if !poll(START_LIMIT, || answers(port, path)).await {
                return Err(format!(
                    "LiteLLM listens on {port} and does not answer {path}; its log:\n{}",
                    server.log()
                ));
            }
        }
        let provider_url = provider_url.to_owned();
        Ok(Self { url: format!("http://127.0.0.1:{port}"), key, provider_url, server, provider, spend: None })
    }

    /// Calls the provider of this LiteLLM by its library, in a process of its own with both callbacks for Langfuse. `calls` are
    /// those of `tests/python/langfuse_call.py`.
    pub async fn call_in_process(&self, langfuse: &str, account: &str, calls: &Value) -> Output {
        let mut command = tokio::process::Command::new(python());
        command.arg(python_file("langfuse_call.py")).args([&self.provider_url, account, &calls.to_string()]);
        command.env_clear().env("LANG", "C.UTF-8");
        command.envs(langfuse_environment(langfuse)).kill_on_drop(true);
        command.output().await.unwrap_or_else(|error| panic!("cannot run langfuse_call.py: {error}"))
    }

    /// The value of `--upstream`: `http://127.0.0.1:PORT`.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The master key, fresh for each start, so that a leak of it can be searched for.
    pub fn key(&self) -> &str {
        &self.key
    }

    /// LiteLLM's output so far.
    pub fn log(&self) -> String {
        self.server.log()
    }

    /// The billing record of every call so far, oldest first; the fields are those of `tests/python/recorder.py`.
    /// LiteLLM writes one shortly **after** it has answered: see [`LiteLlm::record_for`].
    pub fn records(&self) -> Vec<Value> {
        json_lines(&self.server.directory().join("records.jsonl"))
    }

    /// The record whose `litellm_call_id` is `call_id`, waited for.
    ///
    /// # Panics
    /// When there is none after 60 seconds.
    pub async fn record_for(&self, call_id: &str) -> Value {
        self.record_where(|record| record["litellm_call_id"] == call_id, call_id).await
    }

    /// The first record with that `spend_logs_metadata.run_id`, waited for.
    ///
    /// # Panics
    /// When there is none after 60 seconds.
    pub async fn record_of_run(&self, run_id: &str) -> Value {
        self.record_where(|record| record["spend_logs_metadata"]["run_id"] == run_id, run_id).await
    }

    async fn record_where(&self, wanted: impl Fn(&Value) -> bool, name: &str) -> Value {
        let mut found = None;
        poll(RECORD_LIMIT, async || {
            found = self.records().into_iter().find(&wanted);
            found.is_some()
        })
        .await;
        found.unwrap_or_else(|| {
            let ids: Vec<_> = self.records().iter().map(|record| record["litellm_call_id"].clone()).collect();
            panic!("LiteLLM has no record of {name}; it has {ids:?}; its log:\n{}", self.log())
        })
    }

    /// Every request that reached the provider so far: `method`, `path`, `headers` (lower-case names), `body`.
    /// Strings of more than 4,096 characters are `{"length": N, "sha256": HEX}`.
    ///
    /// # Panics
    /// When the provider is not ours ([`LiteLlm::with_provider`]).
    pub fn provider_requests(&self) -> Vec<Value> {
        let provider = self.provider.as_ref().expect("provider_requests() needs LiteLlm::shared()");
        json_lines(&provider.directory().join("requests.jsonl"))
    }

    /// Runs a program of `tests/python` that sends its calls to `through` and to this LiteLLM, and looks up what
    /// reached the provider: `PROGRAM THROUGH DIRECT KEY RECORD`.
    ///
    /// # Panics
    /// When it cannot be started, or the provider is not ours.
    pub async fn compare(&self, program: &str, through: &str) -> Output {
        let provider = self.provider.as_ref().expect("compare() needs LiteLlm::shared()");
        let mut command = tokio::process::Command::new(python());
        command.arg(python_file(program)).args([through, self.url(), self.key()]);
        command.arg(provider.directory().join("requests.jsonl")).env_clear().env("LANG", "C.UTF-8").kill_on_drop(true);
        command.output().await.unwrap_or_else(|error| panic!("cannot run {program}: {error}"))
    }

    /// Returns the requests whose body contains `marker`, which a test puts into its prompt to find its own requests.
    /// The provider writes them down before it answers: there is nothing to wait for.
    pub fn provider_requests_with(&self, marker: &str) -> Vec<Value> {
        let mut requests = self.provider_requests();
        requests.retain(|request| request["body"].to_string().contains(marker));
        requests
    }
}

/// The values of a file that others append to; a last line that is not complete yet is left out.
pub(crate) fn json_lines(file: &Path) -> Vec<Value> {
    let text = fs::read_to_string(file).unwrap_or_default();
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| serde_json::from_str(line).expect("our own writers write one JSON value a line"))
        .collect()
}

async fn answers(port: u16, path: &str) -> bool {
    let ask = async {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await?;
        io::Result::Ok(answer)
    };
    ask.await.is_ok_and(|answer| answer.starts_with(b"HTTP/1.1 200"))
}

/// Returns a random key. It need not be secret: it is for a LiteLLM that lives for one test run on this machine.
fn random_key() -> String {
    format!("sk-litellm-{:032x}", fastrand::u128(..))
}

/// The environment of a process whose LiteLLM sends traces to this address of a Langfuse.
///
/// # Panics
/// Without the packages of `tests/setup/langfuse.sh`.
pub fn langfuse_environment(langfuse: &str) -> Vec<(&'static str, String)> {
    let path = format!("{}:{}", packages().display(), python_file("").display());
    let both =
        [("LANGFUSE_PUBLIC_KEY", "pk-lf-tests"), ("LANGFUSE_SECRET_KEY", "sk-lf-tests"), ("LANGFUSE_HOST", langfuse)];
    let sends_soon = [("OTEL_BSP_SCHEDULE_DELAY", "200"), ("LITELLM_LOCAL_MODEL_COST_MAP", "True")];
    let all = both.into_iter().chain(sends_soon).map(|(name, value)| (name, value.to_owned()));
    all.chain([("PYTHONPATH", path)]).collect()
}
