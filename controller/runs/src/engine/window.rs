//! The window size of a container's terminal.

use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::ResizeContainerTTYOptionsBuilder;
use tokio::signal::unix::Signal;
use tokio::time::timeout;

use crate::tty;

/// Time within which the engine changes the size of a window.
const RESIZE: Duration = Duration::from_secs(2);

/// Gives a container's terminal the size of our window.
pub(super) async fn resize(docker: &Docker, name: &str) {
    let Some(size) = tty::size() else { return };
    let options = ResizeContainerTTYOptionsBuilder::new().h(size.rows.into()).w(size.columns.into()).build();
    // A container that has ended has no terminal; another part notices its end.
    let _ = timeout(RESIZE, docker.resize_container_tty(name, options)).await;
}

/// Resizes the container's terminal each time that our window changes.
pub(super) async fn follow_size(docker: Docker, name: String, mut changes: Signal) {
    while changes.recv().await.is_some() {
        resize(&docker, &name).await;
    }
}
