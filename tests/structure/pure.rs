//! Files that decide and have no effects.
//!
//! Pure. A file is held to this rule when its module doc says "Pure".

use crate::paths::{NamedPath, paths_of};
use crate::source::Source;
use crate::violation::Violation;

const RULE: &str = "pure files";

/// A file that must say that it is pure: the folder that holds its crate, its path there, and the reason.
pub(crate) struct MustBePure {
    /// A folder of the workspace; the file is in it or in a crate below it.
    pub(crate) folder: &'static str,
    /// The end of the file's path.
    pub(crate) file: &'static str,
    /// The reason for the rule.
    pub(crate) reason: &'static str,
}

const fn must(folder: &'static str, file: &'static str, reason: &'static str) -> MustBePure {
    MustBePure { folder, file, reason }
}

/// Files that cannot drop the word from their module doc.
pub(crate) const MUST_BE_PURE: [MustBePure; 16] = [
    must("proxy", "src/policy.rs", "the table of routes is tested row by row"),
    must("proxy", "src/headers.rs", "the filter of headers is tested and fuzzed without a connection"),
    must("proxy", "src/body.rs", "the reader of bodies is fuzzed"),
    must("proxy", "src/conversation.rs", "the places of messages are fuzzed"),
    must("proxy", "src/caps.rs", "the model test of caps gives the time"),
    must("proxy", "src/sse.rs", "the reader of streams is fuzzed at each split"),
    must("proxy", "src/usage.rs", "the reader of usage is fuzzed"),
    must("proxy/contract", "src/chain.rs", "an auditor checks hashes offline"),
    must("proxy/contract", "src/verdict.rs", "an auditor judges an audit file offline"),
    must("controller", "src/plan.rs", "the planner is tested by stopping it between any two steps"),
    must("controller", "src/blueprint.rs", "the container is compared with a snapshot"),
    must("controller/daemon", "src/permission.rs", "the table of roles is tested row by row"),
    must("controller/daemon", "src/runs/watchdog.rs", "its tests give the time"),
    must("controller/state", "src/sandboxes/lifecycle.rs", "each edge is tested"),
    must("controller/state", "src/agents/transition.rs", "each edge is tested"),
    must("controller", "src/run.rs", "the record of a run changes by its events alone"),
];

/// Crates and modules that a pure file must not name.
const BANNED: [&str; 14] = [
    "tokio", "tokio_rustls", "hyper::client", "hyper::server", "hyper_util", "bollard", "rusqlite", "std::env",
    "std::fs", "std::process", "std::thread", "std::os::unix::net", "std::net::TcpStream", "getrandom",
];

/// Functions that a pure file must not name, by their last two names.
const BANNED_FUNCTIONS: [&str; 4] = ["Instant::now", "SystemTime::now", "File::open", "File::create"];

/// Returns the effects that pure files name, and the files of the list that do not say "Pure".
pub(crate) fn violations<'a>(
    files: impl Iterator<Item = (&'a str, &'a Source)>,
    required: &[MustBePure],
) -> Vec<Violation> {
    let files: Vec<_> = files.collect();
    let mut found = Vec::new();
    for (file, source) in files.iter().filter(|(_, source)| source.says_pure()) {
        found.extend(effects(source).into_iter().map(|(line, effect)| {
            let what = format!("the module doc says \"Pure\", but the file names {effect}");
            Violation::new(RULE, file, line, what)
        }));
    }
    for must in required {
        let matches = |file: &str| file.starts_with(&format!("{}/", must.folder)) && is_end_of_path(file, must.file);
        let mut matching = files.iter().filter(|(file, _)| matches(file)).peekable();
        let place = format!("{}/**/{}", must.folder, must.file);
        if matching.peek().is_none() {
            let what = format!("no such file; if it has moved, change the list in pure.rs ({})", must.reason);
            found.push(Violation::new(RULE, &place, 1, what));
        }
        for (file, _) in matching.filter(|(_, source)| !source.says_pure()) {
            let what = format!("the module doc must say \"Pure\": {}", must.reason);
            found.push(Violation::new(RULE, file, 1, what));
        }
    }
    found
}

fn is_end_of_path(path: &str, end: &str) -> bool {
    path.strip_suffix(end).is_some_and(|start| start.is_empty() || start.ends_with('/'))
}

/// Returns each effect that the file names, with its line.
fn effects(source: &Source) -> Vec<(usize, String)> {
    let named = paths_of(source).into_iter().filter_map(|path| Some((path.line, effect_in(&path)?)));
    // A span of time since an instant is a look at the clock too.
    let elapsed = source.code.match_indices(".elapsed()");
    named.chain(elapsed.map(|(at, _)| (source.line_of(at), "elapsed()".to_owned()))).collect()
}

fn effect_in(path: &NamedPath) -> Option<String> {
    let text = path.text();
    let is_below =
        |name: &&&str| text.strip_prefix(**name).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"));
    let ends_with = |name: &&&str| is_end_of_name(&text, name);
    let name = BANNED.iter().find(is_below).or_else(|| BANNED_FUNCTIONS.iter().find(ends_with))?;
    Some((*name).to_owned())
}

fn is_end_of_name(path: &str, name: &str) -> bool {
    path.strip_suffix(name).is_some_and(|start| start.is_empty() || start.ends_with("::"))
}

#[cfg(test)]
mod tests {
    use super::{must, violations};
    use crate::source::Source;

    fn found(file: &str, text: &str) -> Vec<String> {
        let source = Source::parse(text);
        let required = [must("proxy", "src/policy.rs", "it is tested row by row")];
        let files = [(file, &source), ("proxy/src/policy.rs", &Source::parse("//! Pure."))];
        violations(files.into_iter(), &required).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn each_effect_of_a_pure_file_is_found() {
        for effect in [
            "use tokio::time::Instant;",
            "use hyper::client::conn::http1;",
            "use hyper::server;",
            "use hyper_util::rt::TokioIo;",
            "use bollard::Docker;",
            "fn f() { rusqlite::params![]; }",
            "fn f() -> Instant { Instant::now() }",
            "fn f() { std::time::SystemTime::now(); }",
            "fn f(start: Instant) -> Duration { start.elapsed() }",
            "use std::{env, fmt};",
            "fn f() { std::env::var(name); }",
            "use std::fs::File;",
            "fn f() { File::open(path); }",
        ] {
            let messages = found("proxy/src/a.rs", &format!("//! Rules.\n//!\n//! Pure.\n\n{effect}"));
            let [message] = messages.as_slice() else { panic!("{effect}: {messages:?}") };
            assert!(message.starts_with("proxy/src/a.rs:5: pure files: "), "{message}");
        }
    }

    #[test]
    fn other_files_may_have_effects() {
        assert!(found("proxy/src/a.rs", "//! Effects.\nuse tokio::net::TcpStream;").is_empty());
    }

    #[test]
    fn a_pure_file_may_name_data() {
        let text = "//! Pure.\nuse hyper::{Method, header};\nuse std::time::{Duration, Instant};\n\
                    use std::environment;\n// std::fs\nfn f(at: Instant) { Source::File; }";
        assert!(found("proxy/src/a.rs", text).is_empty());
    }

    #[test]
    fn a_file_of_the_list_must_say_pure() {
        let source = Source::parse("//! The table of routes.");
        let required = [must("proxy", "src/policy.rs", "it is tested row by row")];
        let messages = violations([("proxy/src/policy.rs", &source)].into_iter(), &required);
        assert_eq!(
            messages.iter().map(ToString::to_string).collect::<Vec<_>>(),
            ["proxy/src/policy.rs:1: pure files: the module doc must say \"Pure\": it is tested row by row"]
        );
    }

    #[test]
    fn a_file_of_the_list_must_exist() {
        let source = Source::parse("//! Pure.");
        let required = [must("proxy", "src/policy.rs", "it is tested row by row")];
        let messages = violations([("proxy/src/my_policy.rs", &source)].into_iter(), &required);
        assert_eq!(messages.len(), 1);
        assert!(messages[0].to_string().contains("no such file"));
    }
}
