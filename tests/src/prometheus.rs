//! A real Prometheus with the example configuration and the alerts of `deploy/prometheus`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::leash::Leash;
use crate::scratch::write_private;
use crate::wait::{PATIENCE, poll};

/// A running Prometheus on a port of its own.
#[derive(Debug)]
pub struct Prometheus {
    server: Leash,
    port: u16,
}

/// The directory of the example configuration and of the alerts.
pub fn deployed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/prometheus")
}

impl Prometheus {
    /// Starts one that reads the metrics at `HOST:PORT` each second, with this token.
    pub async fn of(address: &str, token: &str) -> Self {
        let command = |directory: &Path| {
            write_private(&directory.join("token"), token);
            let rules = deployed().join("sluice.rules.yml");
            fs::copy(rules, directory.join("sluice.rules.yml")).expect("the directory takes files");
            let example = fs::read_to_string(deployed().join("prometheus.yml")).expect("it is in the repository");
            let config = changed(&example, "127.0.0.1:8787", address);
            let config =
                changed(&config, "/etc/prometheus/sluice.token", &directory.join("token").display().to_string());
            let config = changed(&config, "interval: 15s", "interval: 1s");
            let file = directory.join("prometheus.yml");
            fs::write(&file, config).expect("the directory takes files");
            let mut command = Command::new("prometheus");
            command.arg(format!("--config.file={}", file.display()));
            command.arg(format!("--storage.tsdb.path={}", directory.join("data").display()));
            command.arg("--web.listen-address=127.0.0.1:0");
            command
        };
        let started = Leash::start_listening(command, "msg=\"Listening on\" address=127.0.0.1:").await;
        let (server, port) = started.unwrap_or_else(|error| panic!("tests/setup/packages.sh installs it: {error}"));
        Self { server, port }
    }

    /// Returns the answer to a query of a dashboard: `success`, or a reason.
    pub async fn verdict(&self, query: &str) -> String {
        let answer = self.get("query", &[("query", query)]).await;
        answer["error"].as_str().or(answer["status"].as_str()).unwrap_or_default().to_owned()
    }

    /// Waits until the only series of a query has this value.
    pub async fn reaches(&self, query: &str, expected: &str) {
        let mut found = Value::Null;
        let reached = poll(PATIENCE, async || {
            found = self.get("query", &[("query", query)]).await;
            let series = found["data"]["result"].as_array().map_or(&[][..], Vec::as_slice);
            series.len() == 1 && series[0]["value"][1] == expected
        });
        assert!(reached.await, "{query} is not {expected}: {found}\n{}", self.server.log());
    }

    /// Waits until all alerts were evaluated, and returns the health of each by its name.
    pub async fn alerts(&self) -> Vec<(String, String)> {
        let mut alerts = Vec::new();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let evaluated = poll(PATIENCE, async || {
            let found = self.get("rules", &[]).await;
            let rules = found["data"]["groups"][0]["rules"].as_array().cloned().unwrap_or_default();
            alerts = rules.iter().map(|rule| (text(&rule["name"]), text(&rule["health"]))).collect();
            !alerts.is_empty() && alerts.iter().all(|(_, health)| health != "unknown")
        });
        assert!(evaluated.await, "{alerts:?}\n{}", self.server.log());
        alerts
    }

    /// Asks the API of Prometheus.
    async fn get(&self, path: &str, parameters: &[(&str, &str)]) -> Value {
        let mut command = tokio::process::Command::new("curl");
        command.args(["--silent", "--get"]);
        for (name, value) in parameters {
            command.args(["--data-urlencode", &format!("{name}={value}")]);
        }
        let answer = command.arg(format!("http://127.0.0.1:{}/api/v1/{path}", self.port)).output().await;
        serde_json::from_slice(&answer.expect("the tests need curl").stdout).unwrap_or_default()
    }
}

/// Replaces a text that must be there.
fn changed(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "the example has no {from}");
    text.replace(from, to)
}
