//! The connection from a sandbox's `localhost` to its sidecar: the image's own bridge, or one that is mounted into it.
//!
//! Pure.

use std::collections::BTreeMap;
use std::path::PathBuf;

pub mod program;

/// Path of the bridge's program in a sandbox. It is not in a file system in memory, from which nothing can be executed.
pub const BRIDGE_TARGET: &str = "/.sluice/bridge";
/// First word of the bridge's command line.
const BRIDGE_COMMAND: &str = "bridge";
/// Entrypoint of the runtime image.
const OWN_ENTRYPOINT: &str = "/opt/sluice/entrypoint.sh";
/// Label of images that start a bridge by other means.
const OWN_BRIDGE_LABEL: (&str, &str) = ("sluice.bridge", "image");

/// The parts of an image's configuration that matter for runs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ImageFacts {
    /// Operating system.
    pub os: String,
    /// Architecture, as the engine names it.
    pub architecture: String,
    /// True if it has any files.
    pub has_files: bool,
    /// Entrypoint.
    pub entrypoint: Vec<String>,
    /// Working directory.
    pub workdir: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// The bridge of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Bridge {
    /// The image starts its own bridge.
    OfImage,
    /// The sidecar's program is mounted, and starts the image's entrypoint.
    Mounted(MountedBridge),
}

/// A bridge that is mounted into a container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MountedBridge {
    /// Path of the program on the host.
    pub program: PathBuf,
    /// Entrypoint of the image, which may be empty.
    pub entrypoint: Vec<String>,
}

/// Reason why an image cannot run.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum UnusableImage {
    /// Another operating system.
    #[error("it is an image for {0}, and sandboxes run linux; name another with --image")]
    System(String),
    /// An image without files.
    #[error("it has no files, so it has no program to run; name another with --image")]
    Empty,
}

impl ImageFacts {
    /// Checks that a container can run in it.
    ///
    /// # Errors
    /// [`UnusableImage`].
    pub fn check(&self) -> Result<(), UnusableImage> {
        match () {
            () if !self.os.is_empty() && self.os != "linux" => Err(UnusableImage::System(self.os.clone())),
            () if !self.has_files => Err(UnusableImage::Empty),
            () => Ok(()),
        }
    }

    /// Returns true if the image starts a bridge of its own: its entrypoint is the runtime image's, or its label says so.
    ///
    /// A child image inherits the label even if its entrypoint is another one, so our image has no label.
    #[must_use]
    pub fn has_bridge(&self) -> bool {
        let (label, value) = OWN_BRIDGE_LABEL;
        self.entrypoint.iter().any(|word| word == OWN_ENTRYPOINT)
            || self.labels.get(label).is_some_and(|own| own == value)
    }

    /// Returns the working directory of the image; `None` if it is the root or not set.
    #[must_use]
    pub fn own_workdir(&self) -> Option<&str> {
        Some(self.workdir.as_str()).filter(|path| !path.trim_end_matches('/').is_empty())
    }
}

impl MountedBridge {
    /// Returns the container's entrypoint. The arguments of the run follow it.
    #[must_use]
    pub fn command(&self) -> Vec<String> {
        [BRIDGE_TARGET, BRIDGE_COMMAND, "--"].into_iter().map(str::to_owned).chain(self.entrypoint.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(entrypoint: &[&str]) -> ImageFacts {
        ImageFacts {
            os: "linux".into(),
            has_files: true,
            entrypoint: entrypoint.iter().map(|word| (*word).to_owned()).collect(),
            ..ImageFacts::default()
        }
    }

    #[test]
    fn entrypoint_or_label_show_a_bridge() {
        for (entrypoint, label, expected) in [
            (&[][..], None, false),
            (&["/opt/sluice/entrypoint.sh"], None, true),
            (&["tini", "--", "/opt/sluice/entrypoint.sh"], None, true),
            (&["/app/start.sh"], None, false),
            (&["/app/start.sh"], Some("image"), true),
            (&["/app/start.sh"], Some("none"), false),
        ] {
            let labels = label.map(|value: &str| ("sluice.bridge".to_owned(), value.to_owned())).into_iter().collect();
            let image = ImageFacts { labels, ..facts(entrypoint) };
            assert_eq!(image.has_bridge(), expected, "{entrypoint:?} {label:?}");
        }
    }

    #[test]
    fn an_image_that_cannot_run_is_refused() {
        assert_eq!(facts(&[]).check(), Ok(()));
        assert_eq!(ImageFacts { has_files: false, ..facts(&[]) }.check(), Err(UnusableImage::Empty));
        let windows = ImageFacts { os: "windows".into(), ..facts(&[]) };
        assert_eq!(windows.check(), Err(UnusableImage::System("windows".into())));
    }

    #[test]
    fn the_root_is_not_a_working_directory() {
        for (workdir, expected) in [("", None), ("/", None), ("//", None), ("/app", Some("/app"))] {
            assert_eq!(ImageFacts { workdir: workdir.into(), ..facts(&[]) }.own_workdir(), expected, "{workdir}");
        }
    }

    #[test]
    fn the_images_entrypoint_follows_the_bridge() {
        let bridge = MountedBridge { program: "/x".into(), entrypoint: vec!["/app/start.sh".into(), "-v".into()] };
        assert_eq!(bridge.command(), ["/.sluice/bridge", "bridge", "--", "/app/start.sh", "-v"]);
    }
}
