//! Git on the host after the start of a container: strace shows that no git process works where a sandbox could write.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use sluice_testkit::controller::FinishedCommand;
use sluice_testkit::{PATIENCE, Sluice, poll};

use crate::agents::without_calls;
use crate::clone::{COMMIT, branches, forge};
use crate::repo::in_repository;

/// Plants programs that git starts for `status`, `diff`, `add`, `fetch` or `push`: in the clone, in a nested repository
/// that is added as a link, and in the workspace around it.
pub(crate) const PLANT: &str = r#"
printf '#!/bin/sh\ncat\n' >/workspace/planted.sh && chmod 755 /workspace/planted.sh
plant() {
  for c in core.fsmonitor core.sshCommand core.pager core.editor filter.z.clean filter.z.smudge diff.z.textconv \
    diff.z.command diff.external uploadpack.packObjectsHook gpg.program credential.helper; do
    git -C "$1" config $c /workspace/planted.sh
  done
  for h in pre-commit post-commit post-checkout post-index-change pre-push pre-receive update post-update reference-transaction; do
    cp /workspace/planted.sh "$(git -C "$1" rev-parse --absolute-git-dir)/hooks/$h"
  done
  git -C "$1" config core.hooksPath "$(git -C "$1" rev-parse --absolute-git-dir)/hooks"
}
export GIT_CONFIG_COUNT=3 GIT_CONFIG_KEY_0=core.hooksPath GIT_CONFIG_VALUE_0=/dev/null GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
export GIT_CONFIG_KEY_2=init.templateDir GIT_CONFIG_VALUE_2=/workspace/template
mkdir -p /workspace/template/hooks .git/hooks .git/objects/info
git init -q nested && echo x >nested/x && git -C nested add x && git -C nested -c user.name=a -c user.email=a@a commit -qm x
git init -q /workspace/beside && git init -q --bare /workspace/bare.git
echo '* filter=z diff=z' >.gitattributes && cp .gitattributes nested/
for repository in . nested /workspace/beside /workspace/bare.git; do plant $repository; done
echo /workspace/bare.git/objects >.git/objects/info/alternates
"#;

/// Calls that show processes, their places, and requests to the engine.
pub(crate) const CALLS: &str = "trace=execve,chdir,clone,clone3,fork,vfork,write,writev,sendto,sendmsg";

/// A started program, and its directories.
pub(crate) struct Started {
    pub(crate) line: usize,
    pub(crate) program: String,
    /// Arguments and environment.
    words: Vec<String>,
    /// All directories that the process and its ancestors have entered by absolute paths.
    directories: Vec<String>,
}

impl Started {
    fn is_git(&self) -> bool {
        let name = self.program.rsplit('/').next().unwrap_or_default();
        name == "git" || name.starts_with("git-")
    }
}

/// Processes of a command, in order, and the number of the line with the request that starts its first container.
pub(crate) struct Trace {
    pub(crate) started: Vec<Started>,
    pub(crate) container: Option<usize>,
}

impl Trace {
    pub(crate) fn parse(text: &str) -> Self {
        let (mut parents, mut entered) = (BTreeMap::new(), BTreeMap::<&str, Vec<String>>::new());
        let (mut executed, mut container) = (Vec::new(), None);
        for (number, line) in text.lines().enumerate() {
            let (pid, call) = line.split_once(' ').map(|(pid, call)| (pid, call.trim_start())).expect("a pid");
            let result = call.rsplit_once(" = ").map(|(_, result)| result.trim());
            let forks = ["clone", "clone3", "fork", "vfork"];
            if forks.iter().any(|name| call.starts_with(name) || call.starts_with(&format!("<... {name} "))) {
                let child = result.filter(|child| child.parse::<i32>().is_ok_and(|child| child > 0));
                parents.extend(child.map(|child| (child, pid)));
            } else if call.starts_with("chdir(") {
                entered.entry(pid).or_default().extend(quoted(call).into_iter().next());
            } else if call.starts_with("execve(") {
                executed.push((number, pid, quoted(call)));
            } else if call.contains("POST /") && call.contains("/start HTTP/1.1") {
                container = container.or(Some(number));
            }
        }
        let started = executed.into_iter().map(|(line, pid, mut words)| {
            let mut directories = Vec::new();
            let mut next = Some(pid);
            while let Some(pid) = next {
                directories.extend(entered.get(pid).into_iter().flatten().cloned());
                next = parents.get(pid).copied();
            }
            let program = words.remove(0);
            Started { line, program, words, directories }
        });
        Self { started: started.collect(), container }
    }

    pub(crate) fn git(&self) -> impl Iterator<Item = &Started> {
        self.started.iter().filter(|one| one.is_git())
    }
}

/// The strings of a line, as strace writes them.
fn quoted(line: &str) -> Vec<String> {
    let (mut found, mut is_open, mut is_escaped) = (Vec::new(), false, false);
    for letter in line.chars() {
        match letter {
            '"' if !is_escaped => {
                is_open = !is_open;
                if is_open {
                    found.push(String::new());
                }
            }
            letter if is_open => found.last_mut().expect("it was opened").push(letter),
            _ => {}
        }
        is_escaped = letter == '\\' && !is_escaped;
    }
    found
}

/// Runs a command under strace, and returns its result and its trace.
async fn traced(sluice: &Sluice, words: &[String]) -> (FinishedCommand, Trace) {
    let file = sluice.dir().join("trace");
    let strace =
        ["strace", "-f", "-v", "-s", "4096", "-e", CALLS, "-e", "signal=none", "-o", &file.display().to_string()];
    let live = sluice.command(words).wrapper(strace).spawn();
    assert!(poll(PATIENCE * 7, async || !live.is_running()).await, "it still runs: {}", live.stderr());
    let text = std::fs::read(&file).expect("strace is there");
    (live.finish().await, Trace::parse(&String::from_utf8_lossy(&text)))
}

/// Checks that a git process works in one of these directories, and that neither its arguments nor its variables name
/// another place.
#[track_caller]
pub(crate) fn assert_in_place(git: &Started, places: &[PathBuf]) {
    let told = format!("{} {:?} in {:?}", git.program, git.words, git.directories);
    // The last one is the same directory, in a file system of the process's own.
    let [real @ .., "/tmp/repository"] = &git.directories.iter().map(String::as_str).collect::<Vec<_>>()[..] else {
        panic!("it has no file system of its own: {told}");
    };
    assert!(!real.is_empty() && real.iter().all(|path| is_below(path, places)), "{told}");
    for word in &git.words {
        assert!(!["-C", "--git-dir", "--work-tree"].iter().any(|flag| word.starts_with(flag)), "{told}");
        assert!(!word.starts_with("GIT_WORK_TREE=") && !word.starts_with("GIT_INDEX_FILE="), "{told}");
        if let Some((name, value)) = word.split_once('=').filter(|(name, _)| name.starts_with("GIT_")) {
            let is_path = name.ends_with("_DIR") || name.ends_with("_DIRECTORY") || name.ends_with("_DIRECTORIES");
            let is_own = [".", "objects"].contains(&value)
                || value.starts_with("incoming-")
                || value.starts_with("/tmp/repository/");
            assert!(!is_path || (is_own && !value.contains("..")), "{word}: {told}");
        }
    }
}

fn is_below(path: &str, places: &[PathBuf]) -> bool {
    !path.contains("..") && places.iter().any(|place| Path::new(path).starts_with(place))
}

#[tokio::test]
async fn git_works_nowhere_where_a_sandbox_writes() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let places = [sluice.state().join("git"), bare.clone()];
    let writable = [sluice.state().join("runs"), sluice.state().join("kept")].map(|path| path.display().to_string());
    let patch = sluice.dir().join("patch").display().to_string();
    let url = format!("file://{}#main", bare.display());
    let words = ["run", "--json", "--repo", &url, "--publish", "auto", "--timeout", "10m", "--patch", &patch]
        .map(str::to_owned);
    let script = format!(
        "{PLANT}{COMMIT} && git push -q && {COMMIT}; git add nested 2>/dev/null; echo five >>text; git status >/dev/null"
    );
    let words: Vec<_> = words.into_iter().chain(in_repository(&script)).collect();

    let (done, run) = traced(&sluice, &words).await;

    let report = done.expect(0).json();
    let out = report.git.as_ref().expect("it has a branch");
    assert_eq!((&out["ahead"], &out["pushes"]), (&2.into(), &1.into()), "{out}\n{}", report.stderr);
    assert!(out["uncommitted"].is_string() && out["published"].is_string(), "{out}\n{}", report.stderr);
    assert_eq!(branches(&bare).len(), 2);
    let container = run.container.expect("the request that starts the container");
    let in_the_clone = |git: &&Started| git.directories.iter().any(|path| path.starts_with(&writable[0]));
    let before: Vec<_> = run.git().filter(|git| git.line < container).collect();
    assert!(before.iter().any(in_the_clone), "the clone is made before, where strace shows it");
    let after: Vec<_> = run.git().filter(|git| git.line > container).collect();
    assert!(after.len() > 20, "push, bundles, patch and publication: {}", after.len());
    after.iter().for_each(|git| assert_in_place(git, &places));

    for command in ["diff", "pr"] {
        let (done, trace) = traced(&sluice, &[command.to_owned(), report.run_id.clone()]).await;
        done.expect(0);
        assert!(trace.git().count() > 0, "{command} looks");
        trace.git().for_each(|git| assert_in_place(git, &places));
    }
    for one in run.started.iter().filter(|one| one.line > container) {
        let is_of_the_sandbox =
            one.program.contains("planted.sh") || writable.iter().any(|path| one.program.starts_with(path));
        assert!(!is_of_the_sandbox, "{}", one.program);
    }
    let find = Command::new("find").arg(&places[0]).args(["-name", "alternates"]).output().expect("there is a find");
    assert_eq!(String::from_utf8_lossy(&find.stdout), "", "a repository that borrows objects");
}

/// The link leads to a repository of the sandbox, and to the mirror that the host has.
#[tokio::test]
async fn no_git_follows_a_linked_git_directory() {
    let (sluice, _upstream) = without_calls().await;
    let bare = forge(&sluice);
    let (state, writable) = (sluice.state(), sluice.state().join("runs").display().to_string());
    let places = [state.join("git"), bare.clone()];
    let url = format!("file://{}#main", bare.display());
    let own = format!("{PLANT}{COMMIT} && mv .git ../moved && ln -s ../moved .git && {COMMIT}; git status >/dev/null");
    let of_host = format!("{COMMIT}; rm -rf .git && ln -s {} .git", bare.display());
    for (script, commits) in [(own, 2), (of_host, 0)] {
        let words = ["run", "--json", "--repo", &url, "--publish", "auto", "--timeout", "10m"].map(str::to_owned);
        let words: Vec<_> = words.into_iter().chain(in_repository(&script)).collect();

        let (done, run) = traced(&sluice, &words).await;

        let report = done.expect(0).json();
        let out = report.git.as_ref().expect("it has a branch");
        assert_eq!(out["ahead"], commits, "{out}\n{}", report.stderr);
        let container = run.container.expect("the request that starts the container");
        let after: Vec<_> = run.git().filter(|git| git.line > container).collect();
        assert!(!after.is_empty(), "the host looks at the branch");
        after.iter().for_each(|git| assert_in_place(git, &places));
        let of_sandbox = |one: &&Started| one.program.contains("planted.sh") || one.program.starts_with(&writable);
        let ran: Vec<_> = run.started.iter().filter(|one| one.line > container).filter(of_sandbox).collect();
        assert!(ran.is_empty(), "{}", ran[0].program);
    }
    assert_eq!(branches(&bare).len(), 2, "one run had commits");
}
