//! A headless Chromium, driven by its WebDriver program.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream as BlockingStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::wait::{PATIENCE, poll};

/// Name of an element in answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";
const INSTALL: &str = "tests/setup/browser.sh installs it";

/// A browser with one tab; it ends when it is dropped.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
}

impl Browser {
    /// Starts a browser with a fresh profile.
    pub async fn start() -> Self {
        let mut driver = Command::new("chromedriver")
            .arg("--port=0")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap_or_else(|error| panic!("chromedriver: {error}; {INSTALL}"));
        let mut said = BufReader::new(driver.stdout.take().expect("a pipe")).lines();
        let port = said
            .find_map(|line| line.ok()?.split_once("successfully on port ")?.1.trim_end_matches('.').parse().ok())
            .expect("chromedriver says its port");
        // The pipe is read to its end, so that the program can write into it.
        std::thread::spawn(move || said.for_each(drop));
        let mut browser = Self { driver, port, session: String::new() };
        let arguments =
            ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"];
        let options = json!({ "args": arguments });
        let wanted = json!({"goog:loggingPrefs": {"browser": "ALL"}, "goog:chromeOptions": options});
        let begun = browser.send("POST", "/session", &json!({"capabilities": {"alwaysMatch": wanted}})).await;
        browser.session =
            format!("/session/{}", begun["sessionId"].as_str().unwrap_or_else(|| panic!("{begun}; {INSTALL}")));
        browser
    }

    /// Opens an address.
    pub async fn open(&self, url: &str) {
        self.command("POST", "/url", &json!({ "url": url })).await;
    }

    /// Runs a script in the page, and returns its value.
    pub async fn script(&self, script: &str) -> Value {
        self.command("POST", "/execute/sync", &json!({"script": script, "args": []})).await
    }

    /// Returns the text of the page.
    pub async fn text(&self) -> String {
        self.script("return document.body.innerText").await.as_str().unwrap_or_default().to_owned()
    }

    /// Waits until the page has a text.
    pub async fn shows(&self, text: &str) {
        let mut seen = String::new();
        let shown = poll(PATIENCE, async || {
            seen = self.text().await;
            seen.contains(text)
        });
        assert!(shown.await, "the page does not show {text:?}: {seen}");
    }

    /// Waits until a script returns true.
    pub async fn becomes(&self, script: &str) {
        let reached = poll(PATIENCE, async || self.script(script).await == true);
        assert!(reached.await, "never true: {script}\n{}", self.text().await);
    }

    /// Writes keys into the first element of a selector.
    pub async fn write(&self, selector: &str, keys: &str) {
        let path = format!("/element/{}/value", self.element(selector).await);
        self.command("POST", &path, &json!({ "text": keys })).await;
    }

    /// Clicks on the first element of a selector.
    pub async fn click(&self, selector: &str) {
        let path = format!("/element/{}/click", self.element(selector).await);
        self.command("POST", &path, &json!({})).await;
    }

    /// Agrees with the question that the page asks.
    pub async fn agree(&self) {
        self.command("POST", "/alert/accept", &json!({})).await;
    }

    /// Opens a tab and goes on in it.
    pub async fn new_tab(&self) -> String {
        let made = self.command("POST", "/window/new", &json!({"type": "tab"})).await;
        let handle = made["handle"].as_str().expect("a tab").to_owned();
        self.tab(&handle).await;
        handle
    }

    /// Goes on in a tab.
    pub async fn tab(&self, handle: &str) {
        self.command("POST", "/window", &json!({ "handle": handle })).await;
    }

    /// Returns the bytes of memory that the scripts of the page hold, after a collection.
    pub async fn heap(&self) -> u64 {
        self.devtools("HeapProfiler.collectGarbage", &json!({})).await;
        let measured = self.devtools("Runtime.getHeapUsage", &json!({})).await;
        measured["usedSize"].as_f64().map_or(0, |bytes| bytes as u64)
    }

    /// Reads each page anew, as a browser does that has never been here.
    pub async fn without_cache(&self) {
        self.devtools("Network.enable", &json!({})).await;
        self.devtools("Network.setCacheDisabled", &json!({"cacheDisabled": true})).await;
    }

    /// Runs a script in each page that is opened from now on, before those of the page.
    pub async fn before_each_page(&self, script: &str) {
        self.devtools("Page.enable", &json!({})).await;
        self.devtools("Page.addScriptToEvaluateOnNewDocument", &json!({ "source": script })).await;
    }

    /// Sets whether the reader wants no motion.
    pub async fn without_motion(&self) {
        let features = json!({"features": [{"name": "prefers-reduced-motion", "value": "reduce"}]});
        self.devtools("Emulation.setEmulatedMedia", &features).await;
    }

    /// Sets the size of the page and its colours, `light` or `dark`.
    pub async fn looks(&self, (width, height): (u32, u32), colours: &str) {
        let size = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.devtools("Emulation.setDeviceMetricsOverride", &size).await;
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": colours}]});
        self.devtools("Emulation.setEmulatedMedia", &features).await;
    }

    /// Writes a picture of the page.
    pub async fn picture(&self, path: &Path) {
        let script = "return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))";
        self.script(script).await;
        let picture = self.command("GET", "/screenshot", &Value::Null).await;
        let bytes = BASE64_STANDARD.decode(picture.as_str().expect("a picture")).expect("base64");
        std::fs::write(path, bytes).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }

    /// Returns what the console of the browser has had since the last look: errors of scripts and of policies.
    pub async fn faults(&self) -> Vec<String> {
        let log = self.command("POST", "/se/log", &json!({"type": "browser"})).await;
        let entries = log.as_array().cloned().unwrap_or_default();
        entries.iter().map(|entry| format!("{} {}", entry["level"], entry["message"])).collect()
    }

    async fn devtools(&self, command: &str, params: &Value) -> Value {
        self.command("POST", "/goog/cdp/execute", &json!({"cmd": command, "params": params})).await
    }

    async fn element(&self, selector: &str) -> String {
        let mut found = Value::Null;
        let wanted = json!({"using": "css selector", "value": selector});
        let is_there = poll(PATIENCE, async || {
            found = self.send("POST", &format!("{}/element", self.session), &wanted).await;
            found[ELEMENT].is_string()
        });
        assert!(is_there.await, "there is no {selector}: {}", self.text().await);
        found[ELEMENT].as_str().expect("it was there").to_owned()
    }

    async fn command(&self, method: &str, path: &str, body: &Value) -> Value {
        let value = self.send(method, &format!("{}{path}", self.session), body).await;
        assert!(value["error"].is_null(), "{method} {path}: {value}");
        value
    }

    async fn send(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.expect("chromedriver listens");
        stream.write_all(request(method, path, body).as_bytes()).await.expect("it reads");
        // The program keeps the connection open, whatever a request says.
        let mut answer = Vec::new();
        while !is_complete(&answer) {
            let read = timeout(PATIENCE, stream.read_buf(&mut answer)).await.expect("it answers in time");
            assert_ne!(read.expect("it answers"), 0, "{method} {path}: the answer has no end");
        }
        let text = String::from_utf8_lossy(&answer);
        let (_, json) = text.split_once("\r\n\r\n").expect("it is complete");
        let mut value: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
        value["value"].take()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // The end of the session ends the browser, which has a process group of its own.
        if let Ok(mut stream) = BlockingStream::connect(("127.0.0.1", self.port)) {
            let _ = stream.write_all(request("DELETE", &self.session, &Value::Null).as_bytes());
            let _ = stream.read_exact(&mut [0; 1]);
        }
        let _ = self.driver.kill();
        let _ = self.driver.wait();
    }
}

/// Returns whether an answer has its whole body.
fn is_complete(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer);
    let Some((head, _)) = text.split_once("\r\n\r\n") else { return false };
    let length =
        head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
    answer.len() >= head.len() + 4 + length.unwrap_or(0_usize)
}

fn request(method: &str, path: &str, body: &Value) -> String {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
