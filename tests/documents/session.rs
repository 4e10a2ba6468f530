//! A shell in a fresh directory that replaces an operator's host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sluice_testkit::controller::unique_run_id;
use sluice_testkit::{TempDir, write_private};

use crate::checkout;
use crate::commands::ShellCommand;
use crate::special::Treatment;

/// Run that the pages name in their examples.
const EXAMPLE_RUN: &str = "r20261120-163914-1df9af22";
/// Script that makes the files that the pages name, in a Git repository.
const FILES: &str = r#"set -e
echo 'print("done")' >task.py
echo a,b >report.csv; echo {} >schema.json; echo WORD=one >vars.env; echo 'Say hello.' >task.txt
git init --quiet .; git add task.py
echo '# fixed' >>task.py; git diff >fix.diff; git checkout --quiet task.py"#;
/// Seconds within which a program that goes on must have begun to listen.
const READY: u32 = 60;

/// An operator's host: directories in place of `/etc`, `/var/lib` and others, and a LiteLLM.
pub(crate) struct Session {
    /// Working directory, which the commands take for a checkout.
    project: TempDir,
    /// Holds what belongs in `/etc`, `/var` and `/run`.
    host: TempDir,
    /// Names in the pages, each with its replacement on this host.
    names: Vec<(String, String)>,
    key: String,
}

impl Session {
    /// Prepares the files that the pages name, and the run of their examples.
    pub(crate) fn new(upstream: &str, key: &str) -> Self {
        let (project, host) = (TempDir::new(), TempDir::new());
        for dir in ["etc", "backup", "units", "bin", "log", "backups"].map(|name| host.join(name)) {
            fs::create_dir(dir).expect("a fresh directory takes directories");
        }
        fs::create_dir(project.join("dist")).expect("a fresh directory takes directories");
        for name in ["deploy", "runtime-image"] {
            symlink(checkout().join(name), project.join(name)).expect("a fresh directory takes links");
        }
        for (name, variable) in [("sluice", "SLUICE_BIN"), ("sluice-proxy", "SLUICE_PROXY_BIN")] {
            let program = std::env::var_os(variable).map_or_else(|| built(name), PathBuf::from);
            fs::copy(&program, project.join("dist").join(name))
                .unwrap_or_else(|error| panic!("{}: {error}", program.display()));
        }
        run_in(&project, FILES);
        let path = |name: &str| host.join(name).display().to_string();
        let run = unique_run_id("documents");
        let names = [
            ("http://127.0.0.1:4000", upstream.to_owned()),
            ("/etc/sluice", path("etc/sluice")),
            ("/var/lib/sluice", path("state")),
            ("/var/log/sluice", path("log")),
            ("/var/backups", path("backups")),
            ("/run/r1", path("r1")),
            ("/run/r2", path("r2")),
            ("/run/sluice", path("sockets")),
            ("/usr/local/bin", path("bin")),
            ("/etc/systemd/system", path("units")),
            ("/backup/", path("backup/")),
            (EXAMPLE_RUN, run.clone()),
            (" RUN ", format!(" {run} ")),
        ];
        let names = names.map(|(from, to)| (from.to_owned(), to)).to_vec();
        let session = Self { project, host, names, key: key.to_owned() };
        let example = format!("sluice run --quiet --run-id {EXAMPLE_RUN} --account acct-1 --model gpt-4o-mini hello");
        let example = ShellCommand { page: "the example's run".to_owned(), line: 0, text: example };
        let failures = session.run(&[(&example, Treatment::Exit(0))]);
        assert!(failures.is_empty(), "{failures:?}");
        session
    }

    /// Runs commands in one shell, and returns a text for each that did not end as it should.
    pub(crate) fn run(&self, commands: &[(&ShellCommand, Treatment)]) -> Vec<String> {
        let log = TempDir::new();
        // Job control gives each program that listens its own process group, so the trap ends all processes of its
        // pipeline.
        let mut script =
            String::from("set -m\ntrap 'for job in $(jobs -p); do kill -- -$job; done; wait 2>/dev/null' EXIT\n");
        for (index, (command, treatment)) in commands.iter().enumerate() {
            let (text, out) = (log.join(&format!("{index}.sh")), log.join(&format!("{index}.out")));
            fs::write(&text, self.localized(&command.text)).expect("a fresh directory takes files");
            let (text, out) = (text.display(), out.display());
            let eval = format!("eval \"$(cat {text})\" </dev/null >{out} 2>&1");
            script += &match treatment {
                Treatment::Listens => format!(
                    "{eval} &\nfor _ in $(seq {}); do grep -q '\"ready\"' {out} && break; sleep 0.1; done\n\
                     grep -q '\"ready\"' {out}; code=$?; echo $code >{out}.code\n",
                    READY * 10
                ),
                _ => format!("{eval}; code=$?; echo $code >{out}.code\n"),
            };
            // A later command may need the result of this one, and would wait for it forever.
            script += &format!("[ $code = {} ] || exit\n", treatment.exit_code());
        }
        let status = self.shell(&script).stdin(Stdio::null()).status().expect("there is bash");
        assert!(status.code().is_some(), "the shell was killed: {status}");
        let outcomes = commands.iter().enumerate().map(|(index, (command, treatment))| {
            let read = |name: String| fs::read_to_string(log.join(&name)).unwrap_or_default();
            let wanted = treatment.exit_code();
            let code = read(format!("{index}.out.code"));
            let said = read(format!("{index}.out"));
            (code.trim() != wanted.to_string()).then(|| {
                format!(
                    "{}:{}: exit {} in place of {wanted}: {}\n{said}",
                    command.page,
                    command.line,
                    code.trim(),
                    command.text
                )
            })
        });
        outcomes.flatten().collect()
    }

    /// Returns the text with the names of the pages replaced by the names of this host.
    fn localized(&self, text: &str) -> String {
        self.names.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))
    }

    fn shell(&self, script: &str) -> Command {
        let mut command = Command::new("bash");
        command.args(["-c", script]).current_dir(self.project.path()).env_clear();
        let dist = self.project.join("dist");
        let path = format!("{}:{}", dist.display(), std::env::var("PATH").unwrap_or_default());
        let key_file = self.host.join("key");
        write_private(&key_file, &self.key);
        command.env("PATH", path).env("HOME", self.host.path()).env("LITELLM_KEY", &self.key);
        command.env("LITELLM_MASTER_KEY", &self.key).env("SLUICE_UPSTREAM", &self.names[0].1);
        command.env("SLUICE_RUN_DIR", self.host.join("sockets")).env("SLUICE_LISTEN", "127.0.0.1:0");
        command.env("SLUICE_EVENT_DISK_FREE", "0");
        command.env("SLUICE_KEY_FILE", key_file).env("SLUICE_STATE_DIR", self.host.join("state"));
        command
    }
}

/// Returns the path of a program in the build profile of this test.
fn built(name: &str) -> PathBuf {
    let tests = std::env::current_exe().expect("a test is a program");
    let profile = tests.parent().and_then(Path::parent).expect("tests are in target/PROFILE/deps");
    profile.join(name)
}

fn run_in(dir: &TempDir, script: &str) {
    let status = Command::new("bash").args(["-c", script]).current_dir(dir.path()).status().expect("there is bash");
    assert!(status.success(), "{script}");
}
