//! `sluice config show`: the settings and their sources.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};
use sluice_testkit::Sluice;

fn sluice() -> Sluice {
    Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it")
}

fn shown(value: &str, source: &str) -> Value {
    json!({ "value": value, "source": source })
}

#[tokio::test]
async fn flags_beat_variables_beat_files_beat_defaults() {
    let sluice = sluice();
    let file = sluice.file("sluice.toml", "upstream = 'http://file:1'\nimage = 'of-file'\nmemory = '1g'\ncpus = 2\n");
    let show = sluice.command(["config", "show", "--json", "--upstream", "http://flag:1"]);

    let all = show.env("SLUICE_IMAGE", "of-variable").env("DOCKER_HOST", "unix:///d").finish().await.expect(0).value();

    assert_eq!(all["upstream"], shown("http://flag:1", "the command line"));
    assert_eq!(all["image"], shown("of-variable", "SLUICE_IMAGE in the environment"));
    assert_eq!(all["docker_host"], shown("unix:///d", "DOCKER_HOST in the environment"));
    assert_eq!(all["memory"], shown("1g", &file));
    assert_eq!(all["cpus"], shown("2", &file));
    assert_eq!(all["pids"], shown("256", "the default"));
    assert_eq!(all["model"], json!({ "value": null, "source": null }));
}

#[tokio::test]
async fn our_own_variable_beats_that_of_docker() {
    let show = sluice();
    let show = show.command(["config", "show", "--json"]).env("DOCKER_HOST", "unix:///theirs");

    let all = show.env("SLUICE_DOCKER_HOST", "unix:///ours").finish().await.expect(0).value();

    assert_eq!(all["docker_host"], shown("unix:///ours", "SLUICE_DOCKER_HOST in the environment"));
}

#[tokio::test]
async fn an_empty_variable_is_unset() {
    let sluice = sluice();

    let all = sluice.command(["config", "show", "--json"]).env("SLUICE_IMAGE", "").finish().await.expect(0).value();

    assert_eq!(all["image"], shown("sluice-runtime:latest", "the default"));
}

#[tokio::test]
async fn secrets_are_not_shown() {
    let sluice = sluice();
    let file = sluice.file("keyed.toml", "key = 'sk-secret-of-the-file'\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("our own file");
    for words in [&["config", "show"][..], &["config", "show", "--json"]] {
        let by_variable = sluice.command(words).env("SLUICE_KEY", "sk-secret-of-the-variable");
        let by_variable = by_variable.env("SLUICE_UPSTREAM", "http://me:hunter2@host:1").finish().await.expect(0);
        let by_file = sluice.command(words).args(["--config", &file]).finish().await.expect(0);

        for ran in [&by_variable, &by_file] {
            assert!(!ran.stdout.contains("sk-secret") && !ran.stdout.contains("hunter2"), "{}", ran.stdout);
            assert!(ran.stdout.contains("(redacted)"), "{}", ran.stdout);
            assert_eq!(ran.stderr, "");
        }
        assert!(by_variable.stdout.contains("SLUICE_KEY in the environment"), "{}", by_variable.stdout);
        assert!(by_variable.stdout.contains("http://(redacted)@host:1"), "{}", by_variable.stdout);
        assert!(by_file.stdout.contains(&file), "{}", by_file.stdout);
    }
}

#[tokio::test]
async fn unset_settings_are_explained() {
    let sluice = sluice();

    let text = sluice.command(["config", "show"]).without("SLUICE_UPSTREAM").finish().await.expect(0).stdout;

    let line = |name: &str| text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
    assert!(line("upstream ").contains("not set: where calls go"), "{text}");
    assert!(line("timeout ").contains("120s") && line("timeout ").ends_with("the default"), "{text}");
    // The values begin in one column, also after the longest name.
    let column = line("timeout ").find("120s");
    for (name, value) in [("key_mode ", "master"), ("session_approval_max ", "- "), ("run_idle_timeout ", "10m")] {
        assert_eq!(line(name).find(value), column, "{text}");
    }
}

#[tokio::test]
async fn a_file_that_is_wrong_is_refused_by_name() {
    let sluice = sluice();
    for (text, words) in [
        ("upstrem = 'x'", &["upstrem", "upstream"][..]),
        ("timeout = ", &["sluice.toml"]),
        ("timeout = true", &["timeout", "boolean"]),
        ("timeout = 'soon'", &["timeout", "soon"]),
        ("[run]\ntimeout = '1s'", &["run"]),
    ] {
        let file = sluice.file("sluice.toml", text);
        let ran = sluice.command(["config", "show"]).finish().await.expect(2);
        assert!(ran.stderr.contains(&file), "{text}: {}", ran.stderr);
        assert!(words.iter().all(|word| ran.stderr.contains(word)), "{text}: {}", ran.stderr);
    }
    let missing = sluice.command(["config", "show"]).env("SLUICE_CONFIG", "/nope").finish().await.expect(2);
    assert!(missing.stderr.contains("/nope"), "{}", missing.stderr);
}

#[tokio::test]
async fn a_fault_of_the_daemon_is_shown() {
    let sluice = sluice();
    let webhook = "[[webhooks]]\nname = 'ops'\nurl = 'https://h/x'\nsecret_files = ['/nonexist']\n";
    sluice.file("sluice.toml", webhook);

    let shown = sluice.command(["config", "show"]).finish().await.expect(2);

    assert!(shown.stdout.contains("event_keep"), "{}", shown.stdout);
    assert!(shown.stderr.contains("webhook ops: /nonexist: cannot read it"), "{}", shown.stderr);
}
