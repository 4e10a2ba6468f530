//! The version of git on this host, read by a git process that is confined like all others.

use crate::directory::{make_private, remove};
use crate::error::GitError;
use crate::home::GitHome;
use crate::limits::HOSTILE;
use crate::program::Input;

impl GitHome {
    /// Starts git without rights in an empty directory, and returns the version that it states, such as `2.50.1`.
    ///
    /// # Errors
    /// [`GitError`], also if the kernel refuses to confine git.
    pub async fn version(&self) -> Result<String, GitError> {
        self.prepare()?;
        let directory = self.root().join("version");
        remove(&directory)?;
        make_private(&directory, self.program().user())?;
        let asked = self.program().command(&directory, HOSTILE).read_only().args(["--version"]);
        let answer = asked.check(Input::Nothing).await;
        remove(&directory)?;
        let said = String::from_utf8_lossy(&answer?.stdout).trim().to_owned();
        Ok(said.strip_prefix("git version ").unwrap_or(&said).to_owned())
    }
}
