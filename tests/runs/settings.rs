//! Settings that a run refuses: each message names the wrong word and the fix.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::json;
use sluice_testkit::{Sluice, Upstream};

/// Checks that a run is refused before anything exists, with an error that has all these words.
async fn refused(sluice: &Sluice, args: &[&str], words: &[&str]) {
    let ran = sluice.run(args).finish().await;
    assert_eq!((ran.code, ran.stdout.as_str()), (125, ""), "{args:?}: {}", ran.stderr);
    for word in words {
        assert!(ran.stderr.contains(word), "{args:?}: no {word:?} in {}", ran.stderr);
    }
    assert!(!sluice.state().join("runs").exists() || sluice.runs().is_empty(), "{args:?} has begun");
}

#[tokio::test]
async fn reserved_or_invalid_variables_are_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (value, words) in [
        ("LANG", &["--env LANG", "there is no such variable"][..]),
        ("=x", &["--env =…: it is not a name"]),
        ("A B=x", &["--env A B"]),
        ("OPENAI_BASE_URL=http://elsewhere", &["--env OPENAI_BASE_URL"]),
        ("OPENAI_API_KEY=sk-mine", &["--env OPENAI_API_KEY"]),
        ("RUN_ID=r2", &["--env RUN_ID"]),
        ("LLM_PROXY_SOCKET=/x", &["--env LLM_PROXY_SOCKET"]),
    ] {
        refused(&sluice, &["--env", value, "--", "true"], words).await;
    }
}

#[tokio::test]
async fn directories_that_a_sandbox_must_not_see_are_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let (state, dir) = (sluice.state().display().to_string(), sluice.dir().display().to_string());
    sluice.command(["sweep"]).finish().await.expect(0);
    let file = sluice.file("a-file", "");
    let link = sluice.dir().join("link");
    std::os::unix::fs::symlink("/var/run", &link).expect("a test's directory takes links");
    let link = link.display().to_string();
    let etc = sluice.dir().join("etc");
    std::os::unix::fs::symlink("/etc", &etc).expect("a test's directory takes links");
    let etc = etc.display().to_string();
    fs::create_dir_all("/run/containerd").expect("we are root");
    for (volume, words) in [
        ("/tmp".to_owned(), &["DIR:PATH"][..]),
        ("/tmp:relative".to_owned(), &["relative", "absolute"]),
        ("/tmp:/data:RW".to_owned(), &["--volume '/tmp:/data:RW': the mode is ro or rw"]),
        ("/nope:/data".to_owned(), &["/nope"]),
        ("/dev/null:/data".to_owned(), &["neither a directory nor a regular file"]),
        (format!("{}:/data", sluice.key_file().display()), &["holds a key of yours"]),
        ("/etc/passwd:/data".to_owned(), &["overlaps /etc"]),
        ("/tmp:/workspace".to_owned(), &["/workspace"]),
        ("/tmp:/workspace/.sluice".to_owned(), &["/workspace/.sluice"]),
        ("/tmp:/llm-sock".to_owned(), &["/llm-sock"]),
        ("/tmp:/etc/x".to_owned(), &["/etc/x"]),
        ("/tmp:/data/../etc".to_owned(), &["/data/../etc"]),
        ("/:/data".to_owned(), &["engine's socket"]),
        ("/var/run:/data".to_owned(), &["engine's socket"]),
        (format!("{link}:/data"), &["engine's socket"]),
        ("/proc:/data".to_owned(), &["kernel"]),
        ("/sys/fs:/data:rw".to_owned(), &["kernel"]),
        (format!("{state}:/data"), &["state of sluice"]),
        (format!("{state}/audit:/data"), &["state of sluice"]),
        (format!("{dir}:/data"), &["state of sluice"]),
        ("/etc:/data".to_owned(), &["configuration of the host"]),
        ("/etc/ssl:/data".to_owned(), &["overlaps /etc"]),
        ("/run/containerd:/data".to_owned(), &["overlaps /run"]),
        (format!("{etc}:/data"), &["configuration of the host"]),
    ] {
        refused(&sluice, &["--volume", &volume, "--", "true"], words).await;
    }
    // A key that lies in a directory of its own, by its name and by a link to it.
    let (keys, by_link) = (sluice.dir().join("keys"), sluice.dir().join("by-link"));
    fs::create_dir(&keys).expect("a test's directory takes others");
    fs::copy(sluice.key_file(), keys.join("key")).expect("the key can be copied");
    std::os::unix::fs::symlink(&keys, &by_link).expect("a test's directory takes links");
    let key = by_link.join("key").display().to_string();
    for source in [&keys, &by_link] {
        let volume = format!("{}:/data", source.display());
        refused(&sluice, &["--key-file", &key, "--volume", &volume, "--", "true"], &["holds a key of yours"]).await;
    }
    // A file of a secret that only a table of the configuration file names.
    let secrets = sluice.dir().join("secrets");
    fs::create_dir(&secrets).expect("a test's directory takes others");
    let (secrets, table) = (secrets.display(), "[[webhooks]]\nname = 'a'\nurl = 'https://h/x'\n");
    let config = sluice.file("sluice.toml", &format!("{table}secret_files = ['{secrets}/hook']\n"));
    let (volume, named) = (format!("{secrets}:/data"), format!("{secrets}/hook"));
    refused(&sluice, &["--config", &config, "--volume", &volume, "--", "true"], &["holds a key of yours", &named])
        .await;
    refused(&sluice, &["-v", "/usr:/data", "-v", "/opt:/data", "--", "true"], &["/data", "inside each other"]).await;
    refused(&sluice, &["--repo", "/nope", "--", "true"], &["--repo '/nope'"]).await;
    refused(&sluice, &["--repo", &file, "--", "true"], &["--repo", "not a directory"]).await;
    refused(&sluice, &["--repo", "/usr", "-v", "/opt:/workspace/repo", "--", "true"], &["inside each other"]).await;
}

#[tokio::test]
async fn invalid_sidecar_values_are_refused_before_any_hold() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    sluice.command(["budget", "set", "acct", "5"]).finish().await.expect(0);
    let prices = sluice.file("prices.json", "{\"data\": 1}");
    for (flags, words) in [
        (["--allow", "POST"], &["--allow: ", "such as 'POST /v1/rerank'"][..]),
        (["--allow-param", "api_base"], &["--allow-param: 'api_base'"]),
        (["--pass-response-header", "set-cookie"], &["--pass-response-header: 'set-cookie'"]),
        (["--max-body", "much"], &["--max-body", "much"]),
        (["--max-concurrency", "0"], &["--max-concurrency: 0"]),
        (["--rate", "fast"], &["--rate", "fast"]),
        (["--idle-timeout", "soon"], &["--idle-timeout", "soon"]),
        (["--model", "a,b"], &["--model: "]),
        (["--prices", &prices], &["--prices: "]),
        (["--prices", "/nope.json"], &["--prices: ", "/nope.json"]),
    ] {
        refused(&sluice, &["--account", "acct", flags[0], flags[1], "--", "true"], words).await;
    }
    assert_eq!(sluice.sql("SELECT count(*) FROM runs").await, "[[0]]");
    // Correct values of such flags are accepted.
    let good = ["--allow", "POST /v1/rerank", "--rate", "5/s", "--max-body", "1m", "--", "true"];
    sluice.run(["-q"]).args(good).finish().await.expect(0);
}

#[tokio::test]
async fn invalid_messages_are_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (text, word) in [
        ("hello", "JSON"),
        ("", "JSON"),
        ("[]", "no messages"),
        ("{}", "no messages"),
        (r#"{"messages": []}"#, "no messages"),
        (r#"[{"content": "x"}]"#, "no messages"),
        (r#"[{"role": 1}]"#, "no messages"),
        (r#"["hello"]"#, "no messages"),
        (r#"[{"role": "user"}] x"#, "JSON"),
    ] {
        let file = sluice.file("messages.json", text);
        refused(&sluice, &["--model", "m", "--messages", &file], &["--messages", &file, word]).await;
    }
    refused(&sluice, &["--model", "m", "--messages", "/nope"], &["--messages /nope"]).await;
    refused(&sluice, &["--model", "m", "--messages", "-"], &["--messages -"]).await;
}

#[tokio::test]
async fn a_run_without_program_or_upstream_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    refused(&sluice, &["--model", "m"], &["MESSAGE", "--messages", "--"]).await;
    refused(&sluice, &["hello"], &["model", "--model", "SLUICE_MODEL"]).await;
    refused(&sluice, &["--model", "m", "--agent", "sandbox:nobody", "hello"], &["sandbox:nobody", "sluice agents"])
        .await;
    for (variable, words) in
        [("SLUICE_UPSTREAM", ["--upstream", "SLUICE_UPSTREAM"]), ("SLUICE_KEY_FILE", ["--key-file", "SLUICE_KEY_FILE"])]
    {
        let ran = sluice.run(["--", "true"]).without(variable).finish().await.expect(125);
        assert!(words.iter().all(|word| ran.stderr.contains(word)), "{variable}: {}", ran.stderr);
    }
}

#[tokio::test]
async fn invalid_values_are_refused_with_their_source() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (flag, value, word) in [
        ("--timeout", "soon", "10m"),
        ("--timeout", "0", "too short"),
        ("--stop-grace", "x", "10m"),
        ("--memory", "1m", "6m"),
        ("--memory", "much", "512m"),
        ("--cpus", "0", "0.5"),
        ("--pids", "3", "16"),
        ("--output-max", "2g", "1g"),
        ("--max-calls", "-1", "number"),
        ("--max-tokens", "x", "number"),
        ("--max-cost-usd", "much", "0.25"),
        ("--max-cost-usd", "1e-12", "nano-dollar"),
        ("--audit-sync", "sometimes", "call"),
        ("--account", "", "account"),
        ("--run-id", "No Capitals", "--run-id"),
        ("--run-id", "../up", "--run-id"),
        ("--seccomp", "/nope", "/nope"),
        ("--proxy", "/nope", "--proxy"),
        ("--docker-host", "tcp://127.0.0.1:2375", "unix socket"),
        ("--config", "/nope", "/nope"),
    ] {
        refused(&sluice, &[&format!("{flag}={value}"), "--", "true"], &[word]).await;
    }
    let by_variable = sluice.run(["--", "true"]).env("SLUICE_TIMEOUT", "soon").finish().await.expect(125);
    assert!(by_variable.stderr.contains("SLUICE_TIMEOUT: 'soon'"), "{}", by_variable.stderr);
    let file = sluice.file("sluice.toml", "timeout = 'soon'");
    let by_file = sluice.run(["--", "true"]).finish().await.expect(125);
    assert!(by_file.stderr.contains(&file), "{}", by_file.stderr);
    let by_flag = sluice.run(["--timeout", "soon", "--", "true"]).finish().await.expect(125);
    assert!(by_flag.stderr.contains("--timeout: 'soon'"), "{}", by_flag.stderr);
}

#[tokio::test]
async fn an_invalid_seccomp_profile_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (text, word) in [("{}", "defaultAction"), ("[]", "defaultAction"), ("x", "JSON")] {
        let file = sluice.file("profile.json", text);
        refused(&sluice, &["--seccomp", &file, "--", "true"], &["--seccomp", &file, word]).await;
    }
}

#[tokio::test]
async fn a_readable_or_invalid_key_file_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let key = |mode, text: &str| {
        let path = sluice.file("a.key", text);
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
        path
    };
    for mode in [0o644, 0o640, 0o604, 0o660] {
        refused(&sluice, &["--key-file", &key(mode, "sk-some-key"), "--", "true"], &["a.key", "chmod 600"]).await;
    }
    refused(&sluice, &["--key-file", &key(0o600, " \n"), "--", "true"], &["a.key", "empty"]).await;
    refused(&sluice, &["--key-file", "/nope", "--", "true"], &["/nope"]).await;
    let config = sluice.file("keyed.toml", "key = 'sk-some-key'");
    refused(&sluice, &["--config", &config, "--", "true"], &["keyed.toml", "chmod 600"]).await;
}

#[tokio::test]
async fn wrong_flags_are_a_failure_before_the_start() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for args in [
        &["--no-such-flag", "hello"][..],
        &["--timeout"],
        &["--model", "m", "--messages", "f.json", "hello"],
        &["--model", "m", "two", "messages"],
        &["--key", "sk-on-the-command-line", "hello"],
    ] {
        refused(&sluice, args, &["error:", "--help"]).await;
    }
    for (command, code) in [
        (&["sweep", "--no-such-flag"][..], 2),
        (&["preflight", "run"], 2),
        (&["agents", "--model", "m"], 2),
        (&["config"], 2),
        (&["no-such-command"], 2),
        (&[], 2),
        (&["--help"], 0),
        (&["run", "--help"], 0),
        (&["--version"], 0),
    ] {
        let ran = sluice.command(command).finish().await.expect(code);
        let (said, silent) = if code == 0 { (ran.stdout, ran.stderr) } else { (ran.stderr, ran.stdout) };
        assert!(!said.is_empty() && silent.is_empty(), "{command:?}: {silent}");
    }
    assert!(!sluice.state().exists());
}

#[tokio::test]
async fn a_state_directory_that_cannot_be_used_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let file = sluice.file("a-file", "");
    let deep = sluice.dir().join("d".repeat(90)).display().to_string();

    for (state, word) in [(file.as_str(), "a-file"), ("/proc/nope", "/proc/nope")] {
        let ran = sluice.run(["--state-dir", state, "--", "true"]).finish().await.expect(125);
        assert!(ran.stderr.contains(word), "{}", ran.stderr);
    }
    let ran = sluice.run(["--state-dir", &deep, "--json", "--", "true"]).finish().await.expect(125);
    assert!(ran.stderr.contains("107") && ran.stderr.contains("shorter --state-dir"), "{}", ran.stderr);
}

#[tokio::test]
async fn a_user_without_root_is_refused() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    // The user `nobody` in its own namespace, which may still read our files.
    let nobody = ["unshare", "--user"];

    let run = sluice.run(["--", "true"]).wrapper(nobody).finish().await.expect(125);
    let preflight = sluice.command(["preflight", "--json"]).wrapper(nobody).finish().await.expect(1);

    assert!(run.stderr.contains("run sluice as root"), "{}", run.stderr);
    assert_eq!(preflight.value()["checks"][0]["status"], "fail", "{}", preflight.stdout);
}

#[tokio::test]
async fn json_is_printed_even_without_a_start() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);

    for (words, begins) in [
        (&["--timeout", "soon", "--", "true"][..], "--timeout: 'soon' is not a time"),
        // A command line that cannot be read.
        (&["--no-such-flag", "hello"], "unexpected argument '--no-such-flag' found"),
        (&["--model"], "a value is required for '--model <NAME>' but none was supplied"),
    ] {
        let ran = sluice.run(["--json"]).args(words).finish().await.expect(125);
        let told = ran.value()["error_message"].as_str().expect("words").to_owned();
        assert!(told.starts_with(begins) && ran.stderr.contains(&told), "{told}: {}", ran.stderr);
        let object = ran.value();
        assert_eq!((&object["ok"], &object["error_code"]), (&json!(false), &json!("creation_failed")));
        assert_eq!((&object["exit_code"], &object["run_id"]), (&json!(125), &json!(null)));
    }
    // After `--`, the flag belongs to the program.
    assert_eq!(sluice.run(["--timeout", "soon", "--", "true", "--json"]).finish().await.expect(125).stdout, "");
}

#[tokio::test]
async fn every_json_command_prints_failures_as_one_object() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    for (words, code, word, begins) in [
        (&["receipts", "--json", "--no-such-flag"][..], 2, "usage", "unexpected argument"),
        (&["budget", "show", "--json", "a", "b"], 2, "usage", "unexpected argument 'b' found"),
        (&["audit", "verify", "--json"], 2, "usage", "the following required arguments were not provided: <FILE|RUN>"),
        (&["receipts", "--json", "--since", "soon"], 2, "usage", "--since soon"),
        (&["usage", "--json"], 2, "usage", "there is no database"),
        (&["reconcile", "--json"], 2, "usage", "there is no database"),
        (&["sweep", "--json", "--docker-host", "unix:///nope.sock"], 1, "failed", "no Docker Engine answers"),
    ] {
        let ran = sluice.command(words).finish().await.expect(code);
        let told = ran.value()["error_message"].as_str().expect("words").to_owned();
        assert!(told.starts_with(begins), "{words:?}: {told}");
        let object = json!({"ok": false, "error_code": word, "error_message": told, "exit_code": code});
        assert_eq!(ran.value(), object);
        assert!(!ran.stderr.is_empty(), "{words:?}");
    }
    // A command with something to show still prints one object.
    let ran = sluice.command(["config", "show", "--json"]).env("SLUICE_TIMEOUT", "soon").finish().await.expect(2);
    assert_eq!((&ran.value()["timeout"]["value"], &ran.value()["ok"]), (&json!("soon"), &json!(false)));
    // And a followed file has its own lines only.
    let ran = sluice.command(["audit", "tail", "--json", "/nope"]).finish().await.expect(4);
    assert_eq!(ran.stdout, "");
}

#[tokio::test]
async fn file_and_flags_say_what_the_sidecar_allows() {
    let upstream = Upstream::chat("hello").start().await;
    let sluice = Sluice::to(&upstream);
    sluice.file("sluice.toml", "model = ['first', 'second']\nallow = ['POST /v1/rerank']\n");
    let script = r#"
        ask() { curl --silent --output /dev/null --write-out "%{http_code} " "$OPENAI_BASE_URL/$1" --json "$2"; }
        for model in first second third; do ask chat/completions "{\"model\": \"$model\", \"messages\": []}"; done
        for path in rerank score other; do ask $path "{\"model\": \"first\"}"; done
        echo "$SLUICE_MODEL""#;

    let file = sluice.run(["-q", "--", "sh", "-c", script]).finish().await.expect(0);
    let flags = ["-q", "--model", "third", "--model", "first", "--allow", "POST /v1/score"];
    let both = sluice.run(flags).args(["--", "sh", "-c", script]).finish().await.expect(0);

    assert_eq!(file.stdout, "200 200 400 200 404 404 first\n");
    assert_eq!(both.stdout, "200 400 200 200 200 404 third\n");
    for flag in
        ["--max-body", "--max-concurrency", "--first-byte-timeout", "--idle-timeout", "--allow", "--allow-param"]
    {
        let value = if flag == "--allow-param" { "api_base" } else { "soon" };
        refused(&sluice, &[flag, value, "--", "true"], &[flag]).await;
    }
    refused(&sluice, &["--model", "a b", "--", "true"], &["--model", "repeat the flag"]).await;
    sluice.assert_nothing_left().await;
}

#[tokio::test]
async fn a_key_that_the_sidecar_would_refuse_is_named() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let file = sluice.file("short.key", "abc\n");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("it is ours");
    let path = if file.contains('/') { file.clone() } else { sluice.dir().join(&file).display().to_string() };
    for (content, words) in [
        ("abc\n", &["key_file", "holds 3 bytes; give a key of 6 to 8192"][..]),
        ("sk-one\nsk-two\n", &["key_file", "holds a byte that is not visible ASCII, at position 6"]),
        ("\n", &["--key-file", "short.key is empty; write the key into it"]),
    ] {
        fs::write(&path, content).expect("it is ours");
        refused(&sluice, &["--key-file", &path, "--", "true"], words).await;
    }
}

#[tokio::test]
async fn all_missing_settings_are_named_at_once() {
    let sluice = Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it");
    let bare = sluice.run(["hello"]).without("SLUICE_UPSTREAM").without("SLUICE_KEY_FILE");

    let told = bare.finish().await.expect(125).stderr;

    for word in ["model is not set", "upstream is not set", "key_file is not set"] {
        assert!(told.contains(word), "{told}");
    }
}

#[tokio::test]
async fn an_invalid_value_is_named_as_it_was_given() {
    let sluice = Sluice::with("http://127.0.0.1:9", "sk-nobody-wants-it");
    let file = sluice.file("wrong.toml", "\n\nmax-calls = 'x'\n");

    let flag = sluice.run(["--timeout", "soon", "--", "true"]).finish().await.expect(125).stderr;
    let variable = sluice.run(["--", "true"]).env("SLUICE_MEMORY", "1k").finish().await.expect(125).stderr;
    let of_file = sluice.run(["--config", &file, "--", "true"]).finish().await.expect(125).stderr;

    assert!(flag.starts_with("sluice: --timeout: 'soon' is not a time"), "{flag}");
    assert!(variable.starts_with("sluice: SLUICE_MEMORY: '1k' is 1024 bytes, which is too little"), "{variable}");
    assert!(of_file.starts_with(&format!("sluice: max_calls in {file}:3: 'x' is not a number")), "{of_file}");
}
