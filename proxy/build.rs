//! Names the build: the commit that it was made from, as the audit log and `--version` of both programs state it.

use std::process::Command;

fn git(args: &[&str]) -> Option<String> {
    let out = Command::new("git").args(args).output().ok()?;
    out.status.success().then(|| String::from_utf8_lossy(&out.stdout).trim().to_owned())
}

fn main() {
    println!("cargo::rerun-if-env-changed=SLUICE_BUILD");
    for name in ["HEAD", "refs/heads"] {
        if let Some(path) = git(&["rev-parse", "--git-path", name]) {
            println!("cargo::rerun-if-changed={path}");
        }
    }
    // A source archive has no commit; a packager names the build by the variable.
    let build = std::env::var("SLUICE_BUILD").ok().or_else(|| git(&["rev-parse", "--short=12", "HEAD"]));
    println!("cargo::rustc-env=SLUICE_BUILD={}", build.as_deref().unwrap_or("unknown"));
}
