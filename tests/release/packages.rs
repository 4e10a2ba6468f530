//! Archive and Debian package: whole, installable, the same bytes each time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use sluice_testkit::{TempDir, write_private};

use crate::{checkout, command_in, released, run};

/// Checks that an archive or an installed package has these paths below its root.
fn assert_has(root: &Path, paths: &[&str]) {
    let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{} lacks {missing:?}", root.display());
}

/// Checks that both programs in a directory start without any other file, and name one version and one commit.
fn assert_programs_run(bin: &Path) {
    let version = |name: &str| {
        let said = run(Command::new(bin.join(name)).arg("--version").env_clear());
        said.trim().trim_start_matches(name).trim().to_owned()
    };
    let [controller, sidecar] = ["sluice", "sluice-proxy"].map(version);
    assert!(controller.starts_with(env!("CARGO_PKG_VERSION")), "{controller}");
    assert_eq!(controller, sidecar);
}

/// Unpacks the archive, and returns the directory that it makes.
fn unpacked(dir: &TempDir) -> std::path::PathBuf {
    let archive = released(&format!("linux-{}.tar.gz", std::env::consts::ARCH));
    run(Command::new("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(dir.path()));
    let name = archive.file_name().expect("a file").to_string_lossy().replace(".tar.gz", "");
    dir.join(&name)
}

#[test]
fn checksums_fit_all_files() {
    let dir = checkout().join("dist/release");
    let said = run(&mut command_in(&dir, &["sha256sum", "--check", "--strict", "SHA256SUMS"]));
    let files = fs::read_dir(&dir).expect("there is a release").count();

    assert_eq!((said.lines().count(), files), (3, 4), "{said}");
}

#[test]
fn the_archive_has_programs_pages_and_files() {
    let dir = TempDir::new();
    let root = unpacked(&dir);

    assert_programs_run(&root.join("bin"));
    assert_has(
        &root,
        &[
            "README.md", "LICENSE", "CHANGELOG.md", "docs/guide/first-run.md", "man/man1/sluice.1.gz",
            "man/man1/sluice-run.1.gz", "completions/bash/sluice", "completions/zsh/_sluice",
            "completions/fish/sluice.fish", "deploy/sluice.toml", "deploy/compose.sidecar.yaml",
            "deploy/sluice-sweep.service", "deploy/git.conf", "runtime-image/build.sh", "runtime-image/Dockerfile",
        ],
    );
    write_private(&dir.join("key"), "sk-of-the-operator\n");
    let mut show = Command::new(root.join("bin/sluice"));
    show.args(["config", "show", "--config"]).arg(root.join("deploy/sluice.toml"));
    let settings = run(show.arg("--key-file").arg(dir.join("key")));
    assert!(settings.contains("state_dir"), "{settings}");
}

#[test]
fn the_package_installs_and_its_units_name_its_programs() {
    let dir = TempDir::new();
    let database = dir.join("var/lib/dpkg");
    for name in ["info", "updates"] {
        fs::create_dir_all(database.join(name)).expect("a fresh directory takes directories");
    }
    fs::write(database.join("status"), "").expect("a fresh directory takes files");
    let root = format!("--root={}", dir.path().display());

    run(Command::new("dpkg").args([&root, "--force-not-root", "--log=/dev/null", "--install"]).arg(released(".deb")));

    assert_programs_run(&dir.join("usr/bin"));
    assert_has(
        dir.path(),
        &[
            "etc/sluice/sluice.toml",
            "usr/share/man/man1/sluice.1.gz",
            "usr/share/bash-completion/completions/sluice",
            "usr/share/sluice/runtime-image/build.sh",
            "usr/share/sluice/git.conf",
            "usr/share/doc/sluice/copyright",
        ],
    );
    let unit = fs::read_to_string(dir.join("lib/systemd/system/sluice-sweep.service")).expect("a unit");
    assert!(unit.contains("ExecStart=/usr/bin/sluice sweep"), "{unit}");
    let mode = |path: &str| fs::metadata(dir.join(path)).expect("an installed file").permissions().mode() & 0o7777;
    assert_eq!([mode("usr/bin/sluice"), mode("etc/sluice/sluice.toml")], [0o755, 0o644]);
}

#[test]
fn packing_again_makes_the_same_bytes() {
    let dir = TempDir::new();
    let again = dir.join("release");

    run(Command::new(checkout().join("deploy/release.sh")).arg(&again));

    for ending in [format!("linux-{}.tar.gz", std::env::consts::ARCH), ".deb".to_owned()] {
        let first = released(&ending);
        let second = again.join(first.file_name().expect("a file"));
        assert!(fs::read(&first).expect("a file") == fs::read(&second).expect("a file"), "{second:?} differs");
    }
}
