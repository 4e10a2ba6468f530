//! The promises of the sidecar, against the real program.

mod calls;
