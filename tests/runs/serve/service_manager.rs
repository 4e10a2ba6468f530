//! The daemon as a service of systemd: its unit, and what it tells the service manager.

use std::fs;
use std::path::Path;
use std::process::Command;

use nix::sys::signal::Signal;
use sluice_testkit::{PATIENCE, RawClient, TempDir};
use tokio::net::UnixDatagram;
use tokio::time::timeout;

use super::*;

/// Highest exposure of the unit by `systemd-analyze security`, in tenths.
const EXPOSURE_MAX: &str = "36";

/// Copies the units, with a program that is there, and returns the path of each.
fn units(directory: &TempDir) -> Vec<String> {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    let files = fs::read_dir(&deploy).expect("it is in the repository").flatten().map(|entry| entry.path());
    let is_unit = |path: &Path| path.extension().is_some_and(|ending| ending == "service" || ending == "timer");
    let copy = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("it is text").replace("/usr/local/bin/sluice", "/bin/true");
        let copy = directory.join(&path.file_name().expect("it is a file").to_string_lossy());
        fs::write(&copy, text).expect("a fresh directory takes files");
        copy.display().to_string()
    };
    files.filter(|path| is_unit(path)).map(copy).collect()
}

fn analyze(words: &[&str], units: &[String]) -> String {
    let ran = Command::new("systemd-analyze").args(words).args(units).output();
    let ran = ran.expect("tests/setup/packages.sh installs it");
    let said = String::from_utf8_lossy(&ran.stderr).into_owned();
    assert!(ran.status.success(), "{words:?}: {said}{}", String::from_utf8_lossy(&ran.stdout));
    said
}

#[test]
fn systemd_accepts_the_units_without_a_warning() {
    let directory = TempDir::new();
    let units = units(&directory);
    assert_eq!(units.len(), 3, "{units:?}");
    assert_eq!(analyze(&["verify", "--man=no"], &units), "");
    let serve: Vec<_> = units.into_iter().filter(|unit| unit.ends_with("serve.service")).collect();
    analyze(&["security", "--offline=true", &format!("--threshold={EXPOSURE_MAX}")], &serve);
}

#[test]
fn systemd_accepts_the_addition_for_git() {
    let directory = TempDir::new();
    let mut units = units(&directory);
    units.retain(|unit| unit.ends_with("serve.service"));
    let addition = directory.join("sluice-serve.service.d");
    fs::create_dir(&addition).expect("a fresh directory takes directories");
    let from = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/git.conf");
    fs::copy(from, addition.join("git.conf")).expect("it is in the repository");

    assert_eq!(analyze(&["verify", "--man=no"], &units), "");
}

#[tokio::test]
async fn the_service_manager_hears_each_state() {
    let upstream = Upstream::never().start().await;
    let sluice = Sluice::to(&upstream);
    let path = sluice.dir().join("notify").display().to_string();
    let manager = UnixDatagram::bind(&path).expect("a fresh directory takes sockets");
    let hear = async || {
        let mut bytes = [0; 256];
        let heard = timeout(PATIENCE, manager.recv(&mut bytes)).await.expect("it comes in time").expect("it is bound");
        String::from_utf8_lossy(&bytes[..heard]).trim().to_owned()
    };
    let sockets = sluice.dir().join("sockets").display().to_string();
    let serve = sluice.command(["serve", "--listen", "127.0.0.1:0", "--run-dir", &sockets]);
    let process = serve.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").spawn();

    let mut heard = Vec::new();
    while !heard.iter().any(|word| word == "READY=1") || heard.iter().filter(|word| *word == "WATCHDOG=1").count() < 3 {
        heard.push(hear().await);
    }
    assert!(RawClient::try_connect(format!("{sockets}/admin.sock")).await.is_ok(), "it is ready");
    process.signal(Signal::SIGTERM);
    while heard.last().is_none_or(|word| word != "STOPPING=1") {
        heard.push(hear().await);
    }
    let words = ["READY=1", "WATCHDOG=1", "STOPPING=1"];
    assert!(heard.iter().all(|word| words.contains(&word.as_str())), "{heard:?}");
    process.finish().await.expect(0);
}
