use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use sluice_daemon::run_policy::Project;

use super::*;
use crate::agent_catalogue;

struct ScratchFile(PathBuf);

impl ScratchFile {
    fn new(name: &str, content: &str) -> Self {
        let path = std::env::temp_dir().join(format!("sluice-settings-{name}-{}.toml", std::process::id()));
        fs::write(&path, content).expect("there is room");
        Self(path)
    }

    fn mode(self, mode: u32) -> Self {
        fs::set_permissions(&self.0, fs::Permissions::from_mode(mode)).expect("it is ours");
        self
    }
}

impl Drop for ScratchFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

fn layers(
    flags: &[(&'static str, &str)],
    variables: &[(&str, &str)],
    file: Option<&ScratchFile>,
) -> Result<SettingLayers, SettingError> {
    let flags = flags.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let variable = |name: &str| variables.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
    SettingLayers::collect(&flags, variable, Some(file.map_or(Path::new("/dev/null"), |file| &file.0)))
}

#[test]
fn the_highest_layer_that_sets_a_value_wins() {
    let file = ScratchFile::new("order", "timeout = 30\nmemory = \"1g\"\npids = 100\n");
    let layers = layers(&[("timeout", "10s")], &[("SLUICE_TIMEOUT", "20s"), ("SLUICE_MEMORY", "2g")], Some(&file))
        .expect("all is right");
    let from_file = |line| SettingSource::File(file.0.clone(), line);
    assert_eq!(layers.get("timeout"), Some(("10s", &SettingSource::Flag)));
    assert_eq!(layers.get("memory"), Some(("2g", &SettingSource::Variable("SLUICE_MEMORY"))));
    assert_eq!(layers.get("pids"), Some(("100", &from_file(3))));
    assert_eq!(layers.get("cpus"), Some(("1", &SettingSource::Default)));
    assert_eq!(layers.get("model"), None);
}

#[test]
fn every_default_is_valid() {
    let settings = layers(&[], &[], None).and_then(|layers| layers.settings()).expect("the defaults are right");
    assert_eq!(settings.run.timeout, Duration::from_secs(120));
    assert_eq!(settings.run.limits, SandboxLimits { memory: 512 << 20, cpu_millis: 1000, pids: 256 });
    assert_eq!(settings.run.sidecar_flags, ["--audit-sync", "call"]);
}

#[test]
fn file_and_flags_together_allow_what_calls_contain() {
    let file =
        ScratchFile::new("policy", "model = ['a', 'b']\nallow = ['GET /x', 'GET /y']\nallow_remote_media = true\n");
    let flags = [("allow", "POST /z"), ("model", "c"), ("max_body", "-1"), ("dialect", "vllm")];
    let settings = layers(&flags, &[("SLUICE_ALLOW_TOOL", "t u")], Some(&file)).and_then(|layers| layers.settings());
    let settings = settings.expect("all is right");

    assert_eq!(settings.run.models, ["c"]);
    assert_eq!(
        settings.run.sidecar_flags,
        [
            "--audit-sync", "call", "--allow=GET /x", "--allow=GET /y", "--allow=POST /z", "--allow-tool=t",
            "--allow-tool=u", "--max-body=-1", "--dialect=vllm", "--allow-remote-media",
        ]
    );
    for text in ["model = []", "model = ''", "model = [1]", "allow = ['a;b']", "allow_remote_media = 'x'"] {
        let file = ScratchFile::new("no-policy", text);
        layers(&[], &[], Some(&file)).and_then(|layers| layers.settings()).expect_err(text);
    }
}

#[test]
fn configured_models_name_their_settings() {
    let text = "model = ['a', 'b']\n[[profiles]]\nagent = 'codex'\nmodel = 'c'\n";
    let file = ScratchFile::new("models", text);
    let named = |variables: &[(&str, &str)]| {
        let settings = layers(&[], variables, Some(&file)).and_then(|layers| layers.settings()).expect("all is right");
        settings.configured_models.into_iter().map(|model| (model.name, model.setting)).collect::<Vec<_>>()
    };
    let at = |name: &str, line: usize| (name.to_owned(), format!("model in {}:{line}", file.0.display()));

    assert_eq!(named(&[]), [at("a", 1), at("b", 1), at("c", 4)]);
    assert_eq!(named(&[("SLUICE_MODEL", "d")]), [("d".to_owned(), "SLUICE_MODEL".to_owned())]);
}

#[test]
fn addresses_of_the_daemon_replace_each_other() {
    let file = ScratchFile::new("serve", "listen = ['127.0.0.1:1', '[::1]:1']\nsandbox_enabled = true\n");
    let serve = |flags: &[(&'static str, &str)], file| layers(flags, &[], file).and_then(|layers| layers.serve());
    let default = serve(&[], None).expect("it is right");
    assert_eq!((default.listen, default.sandbox_enabled), (vec!["127.0.0.1:8787".to_owned()], false));
    let of_file = serve(&[], Some(&file)).expect("it is right");
    assert_eq!((of_file.listen.len(), of_file.sandbox_enabled), (2, true));
    let of_flag = serve(&[("listen", "127.0.0.1:2")], Some(&file)).expect("it is right");
    assert_eq!(of_flag.listen, ["127.0.0.1:2"]);
    let wrong = ScratchFile::new("serve-profile", "[[profiles]]\naccount = 'a'\nlisten = '127.0.0.1:1'\n");
    let error = serve(&[], Some(&wrong)).expect_err("it is no setting of a run").to_string();
    assert!(error.contains("listen is a setting of the host"), "{error}");
}

#[test]
fn limits_of_the_daemons_runs_are_tables_or_words() {
    let file = ScratchFile::new(
        "daemon",
        "images = ['a@sha256:DIGEST', 'sha256:DIGEST']\ngrant_roots = ['/srv/a', '/srv/b']\nmax_running = 3\n\
         limits_max = { memory = '4g', cpus = 2, max-calls = 100, max_cost_usd = 0.5 }\n\
         [[projects]]\nname = 'site'\nowners = ['alice', 'bob']\n"
            .replace("DIGEST", &"0f".repeat(32))
            .as_str(),
    );
    let of = |variables: &[(&str, &str)]| layers(&[], variables, Some(&file)).and_then(|layers| layers.daemon_runs());
    let runs = of(&[]).expect("it is right");
    assert_eq!((runs.images.len(), runs.grant_roots), (2, vec!["/srv/a".into(), "/srv/b".into()]));
    assert_eq!(runs.max_running, RunningMax { host: 3, owner: 20, project: 5 });
    let HighestLimits { memory, cpu_millis, max_calls, max_cost, timeout, .. } = runs.limits_max;
    assert_eq!((memory, cpu_millis, max_calls), (Some(4 << 30), Some(2000), Some(100)));
    assert_eq!((max_cost, timeout), (Some(500_000_000), None));
    assert_eq!(
        runs.projects,
        [Project { name: "site".to_owned(), owners: vec!["alice".to_owned(), "bob".to_owned()], repository: None }]
    );
    let replaced = of(&[("SLUICE_LIMITS_MAX", "timeout=3h"), ("SLUICE_GRANT_ROOTS", "/mnt")]).expect("it is right");
    assert_eq!((replaced.limits_max.memory, replaced.grant_roots), (None, vec!["/mnt".into()]));
    assert_eq!(replaced.limits_max.timeout, Some(Duration::from_secs(3 * 3600)));
}

#[test]
fn defaults_of_the_daemons_runs_are_those_of_the_design() {
    let layers = layers(&[], &[], None).expect("the defaults are right");
    let runs = layers.daemon_runs().expect("the defaults are right");
    let minutes = |minutes: u64| Duration::from_secs(minutes * 60);
    assert_eq!((runs.run_deadline, runs.idle), (minutes(120), minutes(10)));
    assert_eq!((runs.stuck, runs.stale_start, runs.heartbeat), (minutes(15), minutes(3), minutes(2)));
    assert_eq!((runs.max_running, runs.max_queued), (RunningMax { host: 20, owner: 20, project: 5 }, 1000));
    assert_eq!((runs.users.to_string().as_str(), runs.limits_max), ("users 2000000-2009999", HighestLimits::default()));
    assert!(runs.images.is_empty() && runs.grant_roots.is_empty() && runs.projects.is_empty());
}

#[test]
fn faults_of_the_daemons_runs_name_their_place() {
    let of_file = |text: &str| {
        let file = ScratchFile::new("daemon-fault", text);
        let error = layers(&[], &[], Some(&file)).and_then(|layers| layers.daemon_runs()).expect_err(text).to_string();
        error.replace(&file.0.display().to_string(), "FILE")
    };
    for (text, expected) in [
        ("run_deadline = '25h'", "run_deadline in FILE:1: '25h' is too long"),
        ("images = ['python:3']", "images in FILE:1: 'python:3' names no digest"),
        ("grant_roots = ['srv']", "grant_roots in FILE:1: 'srv' is not an absolute path"),
        ("uid_range = '0-9'", "uid_range in FILE:1: '0-9' is not a range of user ids"),
        ("\n[limits_max]\ndisk = '1g'\n", "limits_max in FILE:2: disk: there is no such limit"),
        ("limits_max = { timeout = '1 h' }", "FILE:1:14: limits_max.timeout is a value without blanks"),
        ("memory = { a = 1 }", "FILE:1:10: memory is table"),
        ("[[projects]]\nname = 'a'\n", "FILE:1:1: projects: each one needs a name and its owners; owners is missing"),
        ("[[projects]]\nname = 'A b'\nowners = []\n", "FILE:2:8: projects: a name is 1 to 63 characters"),
        (
            "[[projects]]\nname = 'a'\nowner = ['b']\n",
            "FILE:3:1: projects: a project has no owner; did you mean owners?",
        ),
        (
            "[[projects]]\nname = 'a'\nowners = []\n[[projects]]\nname = 'a'\nowners = []\n",
            "FILE:4:1: projects: there are two named a",
        ),
        ("[[profiles]]\naccount = 'a'\nmax_running = 3\n", "FILE:3:1: profiles: max_running is a setting of the host"),
    ] {
        let error = of_file(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn the_memory_of_the_sidecar_becomes_its_flag() {
    for (value, flag) in [("1g", "1073741824"), ("none", "none")] {
        let settings = layers(&[], &[("SLUICE_SIDECAR_MEMORY", value)], None).and_then(|layers| layers.settings());
        let flags = settings.expect("it is right").run.sidecar_flags;
        assert_eq!(flags, ["--audit-sync", "call", "--max-memory", flag]);
    }
}

#[test]
fn an_error_names_the_value_and_its_source() {
    let rows = [
        ("timeout", "soon", "--timeout: 'soon' is not a time"),
        ("timeout", "0", "--timeout: '0' is too short"),
        ("memory", "1m", "--memory: '1m' is 1048576 bytes, which is too little"),
        ("pids", "3", "--pids: '3'"),
        ("pids", "1000001", "--pids: '1000001' is not a number of processes; give 16 to 1000000"),
        ("account", "a b", "--account: 'a b'"),
        ("max_calls", "x", "--max-calls: 'x'"),
        ("sidecar_uid", "0", "--sidecar-uid: '0' is not a range of user ids"),
        ("sidecar_gid", "docker", "--sidecar-gid: 'docker' is not a group id"),
        ("max_cost_usd", "-1", "--max-cost-usd: '-1'"),
        ("hold_usd", "-1", "--hold-usd: '-1'"),
        ("key_mode", "some", "--key-mode: 'some' is none of"),
        ("audit_sync", "never", "--audit-sync: 'never'"),
        ("sidecar_memory", "1m", "--sidecar-memory: '1m' is 1048576 bytes, which is too little"),
        ("output_max", "2g", "--output-max: '2g'"),
        ("record_keep", "2y", "--record-keep: '2y'"),
        ("record_output", "2g", "--record-output: '2g'"),
        ("log_format", "xml", "--log-format: 'xml'"),
    ];
    for (name, value, expected) in rows {
        let error =
            layers(&[(name, value)], &[], None).and_then(|layers| layers.settings()).expect_err(value).to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    let of_variable = layers(&[], &[("SLUICE_TIMEOUT", "soon")], None).and_then(|layers| layers.settings());
    let error = of_variable.expect_err("it is not a time").to_string();
    assert!(error.starts_with("SLUICE_TIMEOUT: 'soon' is not a time"), "{error}");
}

#[test]
fn an_invalid_file_is_refused() {
    for (text, expected) in [
        ("timeot = 3", "there is no setting named timeot"),
        ("timeout = [3]", "timeout is array"),
        ("timeout =", ""),
        ("[[agents]]\nname = \"x\"", "agents: "),
        ("[[agents]]\nagentId = \"x\"\nargv = []", "agents: x: each one needs"),
    ] {
        let file = ScratchFile::new("wrong", text);
        let error = layers(&[], &[], Some(&file)).expect_err(text).to_string();
        assert!(error.contains(expected) && error.contains("sluice-settings-wrong"), "{error}");
    }
}

#[test]
fn a_key_needs_a_private_file_and_is_redacted() {
    let open = ScratchFile::new("open", "key = \"sk-canary\"").mode(0o644);
    let error = layers(&[], &[], Some(&open)).expect_err("others can read it").to_string();
    assert!(error.contains("chmod 600") && !error.contains("canary"), "{error}");

    let private = ScratchFile::new("private", "key = \"sk-canary\"\nupstream = \"http://me:pw@host\"").mode(0o600);
    let layers = layers(&[], &[], Some(&private)).expect("it is private");
    assert_eq!(layers.redacted("key").expect("it is set").0, "(redacted)");
    assert_eq!(layers.redacted("upstream").expect("it is set").0, "http://(redacted)@host");
    assert!(!format!("{:?}", layers.settings().expect("it is right")).contains("canary"));
}

#[test]
fn agents_of_the_file_are_added_to_the_catalogue() {
    let file = ScratchFile::new("agents", "[[agents]]\nagentId = \"sandbox:coder\"\nargv = [\"coder\"]");
    let settings = layers(&[], &[], Some(&file)).and_then(|layers| layers.settings()).expect("it is right");
    let ids: Vec<_> = settings.agents.into_iter().map(|agent| (agent.agent_id, agent.graph_id)).collect();
    let pair = |id: &str| (id.to_owned(), id.to_owned());
    let shipped = agent_catalogue::catalogue().into_iter().map(|agent| pair(&agent.agent_id));
    assert_eq!(ids, shipped.chain([pair("sandbox:coder")]).collect::<Vec<_>>());
}

#[test]
fn an_agent_replaces_only_built_in_defaults() {
    let set = |flags: &[(&'static str, &str)], variables: &[(&str, &str)], text: &str| {
        let file = ScratchFile::new("needs", text);
        let layers = layers(flags, variables, Some(&file)).expect("it is right");
        ["memory", "timeout"]
            .map(|name| layers.get(name).map(|(value, from)| (value.to_owned(), from.clone())).expect(name))
    };
    let agent = || SettingSource::Agent("sandbox:claude".to_owned());
    assert_eq!(set(&[("agent", "claude")], &[], ""), [("2g".to_owned(), agent()), ("30m".to_owned(), agent())]);
    let [memory, timeout] = set(&[("agent", "claude"), ("memory", "1g")], &[("SLUICE_TIMEOUT", "5m")], "");
    assert_eq!((memory, timeout.0.as_str()), (("1g".to_owned(), SettingSource::Flag), "5m"));
    let [memory, timeout] = set(&[], &[], "agent = \"codex\"\ntimeout = \"9m\"");
    assert_eq!((memory.0.as_str(), timeout.0.as_str()), ("2g", "9m"));
    assert_eq!(
        set(&[], &[], ""),
        [("512m".to_owned(), SettingSource::Default), ("120s".to_owned(), SettingSource::Default)]
    );
}

/// The error of a file with this text, without the file's path.
fn file_error(text: &str) -> String {
    let file = ScratchFile::new("position", text);
    let error = layers(&[], &[], Some(&file)).and_then(|layers| layers.settings()).expect_err(text).to_string();
    error.replace(&file.0.display().to_string(), "FILE")
}

#[test]
fn an_error_of_a_file_names_line_and_key() {
    for (text, expected) in [
        ("# one\nupstream = http://x\n", "FILE:2:12: upstream: "),
        ("memory = '1g'\nmemory = '2g'\n", "FILE:2:1: memory: duplicate key"),
        ("\n\nupsteam = 'x'\n", "FILE:3:1: there is no setting named upsteam; did you mean upstream?"),
        ("timeout = '1s'\n  pids = [3]\n", "FILE:2:10: pids is array; write a text or a number"),
        ("[job]\ntimeout = '1s'\n", "FILE:1:2: there is no setting named job; there are upstream, "),
        ("\ntimeout = 'soon'\n", "timeout in FILE:2: 'soon' is not a time"),
        ("[[agents]]\nagentId = 'a'\nargv = ['x']\n[[agents]]\nagentId = 'b'\n", "FILE:4:1: agents: "),
        ("[[profiles]]\npids = 100\n", "FILE:1:1: profiles: each one needs an agent"),
        ("[[profiles]]\nagent = 'claude'\nkey-file = '/x'\n", "FILE:3:1: profiles: key_file is a setting of the host"),
        (
            "[[profiles]]\nagent = 'claude'\nmemry = '1g'\n",
            "FILE:3:1: there is no setting named memry; did you mean memory?",
        ),
        (
            "[[profiles]]\nagent = 'cluade'\npids = 100\n",
            "FILE:2:9: profiles: there is no agent named cluade; did you mean claude?",
        ),
        ("[[profiles]]\nagent = 'x'\n", "FILE:2:9: profiles: there is no agent named x; there are sandbox:agent, "),
        ("[[profiles]]\naccount = 'a b'\n", "FILE:2:11: profiles: account 'a b': "),
        (
            "[[profiles]]\naccount = 'a'\nrecord_keep = '0s'\n",
            "FILE:3:1: profiles: record_keep is a setting of the host",
        ),
        (
            "[[profiles]]\naccount = 'a'\nlog_format = 'json'\n",
            "FILE:3:1: profiles: log_format is a setting of the host",
        ),
        ("[[profiles]]\naccount = 3\n", "FILE:2:11: profiles: account is the name of one account"),
        ("webhooks = 'x'\n", "FILE:1:12: webhooks: write each webhook as a table, [[webhooks]]"),
        ("[[webhooks]]\nname = 'a'\n", "FILE:1:1: webhooks: a: missing field `url`"),
    ] {
        let error = file_error(text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
    // The value of a line that cannot be read may be a key.
    assert!(!file_error("key = sk-secret\n").contains("secret"));
}

#[test]
fn faults_in_tables_are_at_their_values() {
    let webhook = "[[webhooks]]\nname = 'a'\nsecret_files = ['/s']\n";
    for (text, expected) in [
        (format!("{webhook}url = 'http://h'\n"), "FILE:4:7: webhooks: a: url is "),
        (format!("{webhook}url = 3\n"), "FILE:4:7: webhooks: a: invalid type: integer"),
        (
            "[[otel]]\nname = 'a'\nendpoint = 'https://h'\nkind = 'x'\n".to_owned(),
            "FILE:4:8: otel: a: kind is otlp or langfuse",
        ),
        ("[[otel]]\nname = 'a'\nendpint = 'x'\n".to_owned(), "FILE:3:1: otel: a: unknown field `endpint`"),
        ("[[agents]]\nagentId = 'a'\nargv = 'x'\n".to_owned(), "FILE:3:8: agents: a: invalid type: string \"…\""),
        (
            "[[agents]]\nagentId = 'a'\nargv = ['x']\n[agents.env]\nOPENAI_API_KEY = 'k'\n".to_owned(),
            "FILE:5:18: agents: env of a: OPENAI_API_KEY ",
        ),
        ("[guardian]\nsilence = { action = 'kill' }\n".to_owned(), "FILE:2:22: guardian: unknown variant `kill`"),
        (
            "[guardian.silence]\naction = 'nudge'\nafter = '1s'\n".to_owned(),
            "FILE:3:9: guardian: silence: '1s' is not a time of a rule",
        ),
        ("[guardian]\n[guardian.agents.x]\n".to_owned(), "FILE:2:1: guardian: there is no agent x"),
    ] {
        let error = file_error(&text);
        assert!(error.starts_with(expected), "{text:?}: {error}");
    }
}

#[test]
fn dashes_in_names_are_underscores() {
    let file = ScratchFile::new("dashes", "max-calls = 7\nallow_tool = ['t']\n");
    let layers = layers(&[], &[], Some(&file)).expect("all is right");
    assert_eq!(layers.get("max_calls").map(|(value, _)| value), Some("7"));
}

#[test]
fn a_profile_applies_to_its_agent_and_account() {
    let text = "timeout = '9m'\nmax_calls = 9\nallow_tool = ['t']\n\
        [[profiles]]\nagent = 'claude'\nmax_calls = 1\nallow_tool = ['u']\nmodel = ['big', 'small']\n\
        [[profiles]]\naccount = 'acct-1'\nmax_calls = 2\n\
        [[profiles]]\nagent = 'sandbox:claude'\naccount = 'acct-2'\nmemory = '3g'\n";
    let file = ScratchFile::new("profiles", text);
    let of = |flags: &[(&'static str, &str)], variables: &[(&str, &str)], name: &str| {
        let layers = layers(flags, variables, Some(&file)).expect("all is right");
        layers.get(name).map(|(value, from)| (value.to_owned(), from.clone())).expect(name)
    };
    let value = |flags: &[(&'static str, &str)], variables: &[(&str, &str)], name: &str| of(flags, variables, name).0;

    assert_eq!(value(&[], &[], "max_calls"), "9");
    let (calls, from) = of(&[("agent", "claude")], &[], "max_calls");
    assert_eq!(calls, "1");
    assert_eq!(from, SettingSource::Profile(file.0.clone(), 6, "agent claude".to_owned()));
    assert_eq!(value(&[("agent", "sandbox:claude")], &[], "model"), "big small");
    assert_eq!(value(&[("agent", "claude")], &[], "allow_tool"), "t u");
    assert_eq!(value(&[("agent", "claude")], &[("SLUICE_ACCOUNT", "acct-1")], "max_calls"), "2", "the later profile");
    assert_eq!(value(&[("agent", "claude"), ("account", "acct-2")], &[], "memory"), "3g");
    assert_eq!(value(&[("account", "acct-2")], &[], "memory"), "512m");
    // Variables and flags replace a profile's values, and a profile replaces values of the file and of the agent.
    assert_eq!(value(&[("agent", "claude")], &[("SLUICE_MAX_CALLS", "5")], "max_calls"), "5");
    assert_eq!(value(&[("agent", "claude"), ("max_calls", "6")], &[], "max_calls"), "6");
    assert_eq!(value(&[("agent", "claude")], &[], "timeout"), "9m");
}

#[test]
fn all_settings_that_are_missing_are_named() {
    assert!(all_missing(&[]).is_none());
    let error = all_missing(&["model", "upstream", "key_file"]).expect("three are missing").to_string();
    for word in ["model is not set", "--upstream", "SLUICE_KEY_FILE"] {
        assert!(error.contains(word), "{error}");
    }
}

#[test]
fn faults_of_webhooks_are_placed_and_keep_secrets() {
    let good = "[[webhooks]]\nname = 'a'\nurl = 'https://h/x'\nsecret_files = ['/s']\n";
    for (change, expected) in [
        (("https://h/x", "http://h/canary"), "webhooks: a: url is https://"),
        (("https://h/x", "https://u:canary@h/"), "webhooks: a: url has no user"),
        (("['/s']", "[]"), "webhooks: a: secret_files has one file, or two"),
        (("['/s']", "['/a', '/b', '/c']"), "webhooks: a: secret_files has one file, or two"),
        (("['/s']", "['whsec_canary']"), "webhooks: a: secret_files has the paths of files"),
        (("['/s']", "'whsec_canary'"), "webhooks: a: invalid type: string \"…\", expected a sequence"),
        (("name = 'a'", "name = 'A b'"), "webhooks: a name has 1 to 63"),
        (("name = 'a'", "name = 'a'\ntypes = ['agent*']"), "webhooks: a: types are event types"),
        (("name = 'a'", "name = 'a'\nsecret = 'x'"), "webhooks: a: unknown field `secret`"),
        (
            ("[[webhooks]]", "[[webhooks]]\nname = 'a'\nurl = 'https://h'\nsecret_files = ['/s']\n[[webhooks]]"),
            "webhooks: a: two have",
        ),
    ] {
        let error = file_error(&good.replacen(change.0, change.1, 1));
        assert!(error.contains(expected) && !error.contains("canary"), "{change:?}: {error}");
    }
}

#[test]
fn faults_of_otel_targets_keep_secrets() {
    let good = "[[otel]]\nname = 'a'\nendpoint = 'https://h:4318'\nsecret_file = '/s'\n";
    for (change, expected) in [
        (("https://h:4318", "grpc://canary"), "otel: a: endpoint is http://"),
        (("https://h:4318", "https://u:canary@h"), "otel: a: endpoint is http://"),
        (("'/s'", "'Bearer canary'"), "otel: a: secret_file is the path of a file"),
        (("name = 'a'", "name = 'A b'"), "otel: a name has 1 to 63"),
        (("name = 'a'", "name = 'a'\nkind = 'zipkin'"), "otel: a: kind is otlp or langfuse"),
        (("name = 'a'", "name = 'a'\nsemconv = '1.30'"), "otel: a: semconv is current or 1.41"),
        (("name = 'a'", "name = 'a'\nheaders = 'canary'"), "otel: a: unknown field `headers`"),
        (("[[otel]]", "[[otel]]\nname = 'a'\nendpoint = 'https://h'\n[[otel]]"), "otel: a: two have the same name"),
    ] {
        let error = file_error(&good.replacen(change.0, change.1, 1));
        assert!(error.contains(expected) && !error.contains("canary"), "{change:?}: {error}");
    }
}

#[test]
fn webhooks_are_read_with_their_secrets() {
    let secret = ScratchFile::new("hook-secret", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw\n").mode(0o600);
    let text = format!(
        "[[webhooks]]\nname = 'ops'\nurl = 'https://h:8443/x'\nsecret_files = ['{}']\ntypes = ['agent.*', 'llm.call']\n",
        secret.0.display()
    );
    let file = ScratchFile::new("hooks", &text);
    let read = || layers(&[], &[], Some(&file)).expect("it is right").webhooks();

    let webhooks = read().expect("the secret is there");

    let [webhook] = &webhooks[..] else { panic!("{webhooks:?}") };
    assert_eq!((webhook.name.as_str(), webhook.target.to_string().as_str()), ("ops", "https://h:8443"));
    assert_eq!(
        (&webhook.types[..], webhook.allow_private),
        (&["agent.*".to_owned(), "llm.call".to_owned()][..], false)
    );
    fs::set_permissions(&secret.0, fs::Permissions::from_mode(0o640)).expect("it is ours");
    let refused = read().expect_err("others can read it").to_string();
    assert!(refused.starts_with("webhook ops: ") && refused.contains("chmod 600"), "{refused}");
}

#[test]
fn files_of_all_secrets_are_known() {
    let text = "key = 'sk-1'\ntls_key = '/k/tls'\n\
        [[webhooks]]\nname = 'a'\nurl = 'https://h/x'\nsecret_files = ['/k/new', '/k/old']\n\
        [[otel]]\nname = 'a'\nendpoint = 'https://h'\nsecret_file = '/k/otel'\n\
        [[otel]]\nname = 'b'\nendpoint = 'https://h'\n\
        [[projects]]\nname = 'a'\nowners = ['o']\nrepository = 'https://h/o/a'\ncredentials = '/k/token'\n\
        [[projects]]\nname = 'b'\nowners = ['o']\nrepository = 'https://h/o/b'\nforge = 'github'\n\
        app_id = 7\ninstallation_id = 70\napp_key = '/k/app'\n\
        [[projects]]\nname = 'c'\nowners = ['o']\n";
    let file = ScratchFile::new("secrets", text).mode(0o600);
    let layers =
        layers(&[("key_file", "/k/litellm"), ("spend_key_file", "/k/spend")], &[], Some(&file)).expect("all is right");

    let mut known = layers.secret_files();

    known.sort();
    let mut expected: Vec<PathBuf> = ["app", "litellm", "new", "old", "otel", "spend", "tls", "token"]
        .map(|name| format!("/k/{name}").into())
        .into();
    expected.push(file.0.clone());
    expected.sort();
    assert_eq!(known, expected);
}
