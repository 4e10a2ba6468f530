//! The image of runs: whether it can run, and which bridge it gets.

use std::path::Path;

use sluice_contract::text::error_chain;
use sluice_runs::bridge::ImageFacts;
use sluice_runs::bridge::program::BridgeProgram;
use sluice_runs::engine::Engine;

use super::{Check, ImageBridge, fail, pass, warn};

const NAME: &str = "image";

/// Inspects an image. `proxy` is the sidecar's program, if it was found.
pub(super) async fn image(engine: &Engine, name: &str, proxy: Option<&Path>) -> Check {
    match engine.image(name).await {
        Ok(facts) => judge(name, &facts, proxy.map(BridgeProgram::of)),
        Err(error) => fail(NAME, error_chain(&error)),
    }
}

fn judge<E: std::error::Error>(name: &str, facts: &ImageFacts, program: Option<Result<BridgeProgram, E>>) -> Check {
    if let Err(reason) = facts.check() {
        return fail(NAME, format!("nothing can run in {name}: {reason}"));
    }
    if facts.has_bridge() {
        return Check { bridge: Some(ImageBridge::Image), ..pass(NAME, format!("{name}, with its own bridge")) };
    }
    let way = format!("{name} has no bridge: sluice run mounts its own, for a program after --");
    let check = match program {
        None => fail(NAME, format!("{name} has no bridge, and there is no sidecar program to mount as one")),
        Some(Err(error)) => fail(NAME, error_chain(&error)),
        Some(Ok(program)) => match (program.limitation(), foreign_architecture(facts)) {
            (Some(limitation), _) => warn(NAME, format!("{way}; {limitation}")),
            (None, Some(other)) => warn(
                NAME,
                format!("{way}; it is an image for {other}: its programs start only if this kernel runs them"),
            ),
            (None, None) => pass(NAME, way),
        },
    };
    Check { bridge: Some(ImageBridge::Mounted), ..check }
}

/// Returns the image's architecture if it is not the one of this program.
fn foreign_architecture(facts: &ImageFacts) -> Option<&str> {
    let ours = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    Some(facts.architecture.as_str()).filter(|theirs| !theirs.is_empty() && *theirs != ours)
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::super::CheckStatus::{Fail, Pass, Warn};
    use super::*;

    #[test]
    fn the_way_of_an_image_is_named() {
        let any = ImageFacts { os: "linux".into(), has_files: true, ..ImageFacts::default() };
        let own = ImageFacts { entrypoint: vec!["/opt/sluice/entrypoint.sh".into()], ..any.clone() };
        let empty = ImageFacts { has_files: false, ..any.clone() };
        let foreign = ImageFacts { architecture: "s390x".into(), ..any.clone() };
        let program = |loader: Option<&str>| BridgeProgram { path: "/p".into(), loader: loader.map(str::to_owned) };
        let (image, mounted) = (Some(ImageBridge::Image), Some(ImageBridge::Mounted));
        for (facts, program, status, bridge, words) in [
            (&own, None, Pass, image, "with its own bridge"),
            (&any, Some(Ok(program(None))), Pass, mounted, "mounts its own"),
            (&any, Some(Ok(program(Some("/lib/ld.so")))), Warn, mounted, "make dist"),
            (&foreign, Some(Ok(program(None))), Warn, mounted, "s390x"),
            (&any, Some(Err(io::Error::other("mode 0700"))), Fail, mounted, "mode 0700"),
            (&any, None, Fail, mounted, "no sidecar program"),
            (&empty, Some(Ok(program(None))), Fail, None, "no files"),
        ] {
            let check = judge("x", facts, program);
            assert_eq!((check.status, check.bridge), (status, bridge), "{check:?}");
            assert!(check.detail.contains(words), "{check:?}");
        }
    }
}
