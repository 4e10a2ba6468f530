//! `--repo URL` with a large repository: a run that pushes, a run that leaves its commits to the bundle, and `sluice
//! push` of both, with the time of each command and the peak memory of each program.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use sluice_testkit::controller::FinishedCommand;
use sluice_testkit::{Forge, Sluice, poll};

use crate::agents::without_calls;
use crate::repo::in_repository;

const MIB: u64 = 1 << 20;
/// Longest time of one command.
const LIMIT: Duration = Duration::from_secs(900);
/// Time between two looks at the processes.
const INTERVAL: Duration = Duration::from_millis(50);
/// Most memory of one git process of the host. A git process that handles objects of a sandbox has 1 GiB of address
/// space.
const GIT_BYTES: u64 = 1536 * MIB;
/// Most memory of the controller and of the sidecar: packs go through pipes, never into their memory.
const SLUICE_BYTES: u64 = 256 * MIB;

/// Size of a repository: each commit adds `files` files, and changes a fifth as many. Half of a file is random.
struct Size {
    commits: u32,
    files: u32,
    file_bytes: usize,
    /// Random bytes that a run commits.
    work_bytes: u32,
    is_told: bool,
}

const LARGE: Size = Size { commits: 40, files: 200, file_bytes: 250_000, work_bytes: 20_000_000, is_told: true };
const SMALL: Size = Size { commits: 5, files: 20, file_bytes: 60_000, work_bytes: 500_000, is_told: false };

impl Size {
    /// Commits the files to `main` directly in the repository of the forge. Returns the bytes of the packs.
    fn fill(&self, forge: &Forge) -> u64 {
        let mut import = Command::new("git");
        import.args(["-c", "core.compression=1", "-c", "fastimport.unpackLimit=0", "-C"]).arg(forge.bare());
        import.args(["fast-import", "--quiet"]).env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null");
        let mut import = import.stdin(Stdio::piped()).spawn().expect("git is there");
        let mut to = BufWriter::new(import.stdin.take().expect("it is piped"));
        self.write(&mut to).expect("git reads it");
        drop(to);
        assert!(import.wait().expect("it is our child").success());
        file_bytes(&forge.bare().join("objects"))
    }

    fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let mut random = fastrand::Rng::with_seed(7);
        for commit in 0..self.commits {
            let time = 1_700_000_000 + commit;
            writeln!(to, "commit refs/heads/main\ncommitter t <t@t> {time} +0000\ndata 4\nwork")?;
            if commit == 0 {
                writeln!(to, "from refs/heads/main^0")?;
            }
            let changed = (0..self.files / 5).filter(|_| commit > 0).map(|file| (commit - 1, file));
            for (directory, file) in (0..self.files).map(|file| (commit, file)).chain(changed) {
                writeln!(to, "M 100644 inline d{directory}/f{file}\ndata {}", self.file_bytes)?;
                to.write_all(&self.content(&mut random))?;
                writeln!(to)?;
            }
        }
        Ok(())
    }

    fn content(&self, random: &mut fastrand::Rng) -> Vec<u8> {
        let mut content = vec![0; self.file_bytes];
        let (left, right) = content.split_at_mut(self.file_bytes / 2);
        random.fill(left);
        right.iter_mut().zip(b"some text of a line\n".iter().cycle()).for_each(|(to, from)| *to = *from);
        content
    }

    /// Script of a run that changes old files, and commits them with a new one.
    fn script(&self) -> String {
        let work_bytes = self.work_bytes;
        format!(
            "for f in d*/f0; do echo more >>$f; done; head -c {work_bytes} /dev/urandom >new && git add --all && \
             git commit --quiet --message 'Change some files'"
        )
    }
}

/// Measures the peak memory in bytes of a process and its descendants, by name, until `end` is called.
struct Meter {
    over: Sender<()>,
    thread: JoinHandle<BTreeMap<String, u64>>,
}

impl Meter {
    fn start(root: i32) -> Self {
        let (over, ended) = channel();
        let thread = std::thread::spawn(move || {
            let mut peaks = BTreeMap::new();
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                for pid in pids().filter(|pid| is_below(*pid, root)) {
                    if let Some((name, bytes)) = name_and_peak(pid) {
                        let peak: &mut u64 = peaks.entry(name).or_default();
                        *peak = bytes.max(*peak);
                    }
                }
            }
            peaks
        });
        Self { over, thread }
    }

    fn end(self) -> BTreeMap<String, u64> {
        drop(self.over);
        self.thread.join().expect("it has no fault")
    }
}

fn pids() -> impl Iterator<Item = i32> {
    let entries = fs::read_dir("/proc").expect("there are processes").flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        name.starts_with("git") || name.starts_with("sluice")
    })
}

fn field(pid: i32, name: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let value = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    value.split_whitespace().next()?.parse().ok()
}

fn is_below(pid: i32, root: i32) -> bool {
    let mut next = Some(pid);
    while let Some(pid) = next.filter(|pid| *pid > 1) {
        if pid == root {
            return true;
        }
        next = field(pid, "PPid").and_then(|parent| parent.try_into().ok());
    }
    false
}

/// Name of a program, with the command of git, and its largest resident memory so far.
fn name_and_peak(pid: i32) -> Option<(String, u64)> {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).ok()?;
    let mut words = line.split('\0');
    let program = words.next()?.rsplit('/').next()?;
    let name = match program {
        "git" => {
            let is_setting = |word: &str| word == "-c" || word.starts_with("--");
            let command = words.find(|word| !is_setting(word) && !word.contains('='));
            format!("git {}", command.unwrap_or_default())
        }
        // A child of the program before its exec of git.
        "exe" => return None,
        name => name.to_owned(),
    };
    Some((name, field(pid, "VmHWM")? * 1024))
}

/// Bytes of all files below a directory.
fn file_bytes(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).expect("it is a directory").flatten();
    let bytes = |entry: fs::DirEntry| {
        let metadata = entry.metadata().expect("it is there");
        if metadata.is_dir() { file_bytes(&entry.path()) } else { metadata.len() }
    };
    entries.map(bytes).sum()
}

/// Runs a command to its end, and prints its time and memory. Fails if a program used too much memory.
async fn measured(size: &Size, what: &str, sluice: &Sluice, words: &[String]) -> FinishedCommand {
    let live = sluice.command(words).spawn();
    let meter = Meter::start(live.pid());
    assert!(poll(LIMIT, async || !live.is_running()).await, "{what}: not done after {LIMIT:?}: {}", live.stderr());
    let (done, peaks) = (live.finish().await.expect(0), meter.end());
    let told: Vec<_> = peaks.iter().map(|(name, bytes)| format!("{name} {} MiB", bytes / MIB)).collect();
    let told = format!("{what}: {:.1} s; {}", done.took.as_secs_f64(), told.join(", "));
    if size.is_told {
        let _ = writeln!(std::io::stderr(), "{told}");
    }
    assert!(
        peaks.keys().any(|name| name.starts_with("git ")) && peaks.contains_key("sluice"),
        "they were seen: {told}"
    );
    for (name, bytes) in &peaks {
        let limit = if name.starts_with("git") { GIT_BYTES } else { SLUICE_BYTES };
        assert!(*bytes <= limit, "{name} has more than {} MiB: {told}", limit / MIB);
    }
    done
}

/// Runs a program on a clone, and publishes its branch. With `is_pushed` the program pushes; else the bundle at the end
/// has the commits.
async fn run_and_publish(size: &Size, sluice: &Sluice, forge: &Forge, ticket: &str, is_pushed: bool) {
    let (push, what) = if is_pushed {
        (" && git push --quiet", "a run that pushes")
    } else {
        ("; echo x >.env", "a run that does not push")
    };
    let words = ["run", "--json", "--timeout", "15m", "--repo", &forge.url(), "--ticket", ticket].map(str::to_owned);
    let words: Vec<_> = words.into_iter().chain(in_repository(&format!("{}{push}", size.script()))).collect();

    let done = measured(size, what, sluice, &words).await;

    let report = done.json();
    let out = report.git.as_ref().unwrap_or_else(|| panic!("it has a branch: {}", done.stderr));
    assert_eq!((&out["ahead"], &out["pushes"]), (&1.into(), &u32::from(is_pushed).into()), "{out}\n{}", report.stderr);
    assert_eq!((&out["files"], &out["published"]), (&(size.commits + 1).into(), &serde_json::Value::Null), "{out}");
    assert_eq!(out["uncommitted"].is_string(), !is_pushed, "{out}\n{}", done.stderr);
    let head = out["head"].as_str().expect("a commit");
    let words = ["push", &report.run_id, "--head", head].map(str::to_owned);
    measured(size, "sluice push", sluice, &words).await;
    let branch = format!("feature/{ticket}");
    assert_eq!(forge.git(["rev-parse", &branch]), head);
    let changed = forge.git(["diff", "--name-only", "main", &branch]);
    assert_eq!(changed.lines().count(), size.commits as usize + 1, "{changed}");
    assert_eq!(forge.git(["cat-file", "-s", &format!("{branch}:new")]), size.work_bytes.to_string());
}

/// Checks that only the mirror and one repository for each run are there, each as large as it has to be.
async fn assert_only_repositories(sluice: &Sluice, packs: u64, work: u64) {
    // If the removal of a workspace takes more than ten seconds, a run leaves it to the next one.
    sluice.command(["sweep"]).finish().await.expect(0);
    assert!(sluice.runs().is_empty() && sluice.processes().is_empty() && sluice.containers().await.is_empty());
    assert_eq!(sluice.leftovers().await, []);
    let home = sluice.state().join("git");
    let mut find = Command::new("find");
    find.arg(&home).args([
        "-regextype",
        "posix-extended",
        "-regex",
        r".*/(tmp_.*|incoming.*|secrets.*|.*\.new|.*\.git/.*\.lock)",
    ]);
    let found = find.output().expect("there is a find");
    assert_eq!((String::from_utf8_lossy(&found.stdout).as_ref(), found.status.success()), ("", true));
    let bytes = file_bytes(&home);
    assert!(bytes <= 3 * packs + 3 * work + 16 * MIB, "{bytes} bytes, with {packs} at the forge");
}

async fn goes_through(size: &Size) -> u64 {
    let (sluice, _upstream) = without_calls().await;
    let forge = Forge::start().await;
    sluice.file("sluice.toml", &forge.project(""));
    let packs = size.fill(&forge);

    run_and_publish(size, &sluice, &forge, "AB-1", true).await;
    run_and_publish(size, &sluice, &forge, "AB-2", false).await;

    assert_eq!(forge.branches(), ["feature/AB-1", "feature/AB-2", "main"]);
    assert_only_repositories(&sluice, packs, size.work_bytes.into()).await;
    let places = [sluice.dir().to_owned(), forge.bare()];
    drop((sluice, forge));
    assert!(places.iter().all(|place| !place.exists()), "the files of the test are gone");
    packs
}

#[tokio::test]
async fn a_repository_of_megabytes_goes_through() {
    goes_through(&SMALL).await;
}

#[tokio::test]
#[ignore = "long: make test-git"]
async fn a_repository_of_a_gigabyte_goes_through() {
    let packs = goes_through(&LARGE).await;

    assert!(packs >= 1024 * MIB, "{} MiB are not one GiB", packs / MIB);
}
