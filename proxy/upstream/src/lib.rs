//! Addresses of upstreams, and connections to them, for both programs.
//!
//! The sidecar and the controller read the same address by the same grammar, trust the same roots and
//! resolve names in the same way. Nothing here speaks HTTP.

mod address;
mod connect;
mod reach;
mod stream;
mod tls;
mod upstream;

pub use address::{Address, AddressError, Scheme, is_local_host, redact};
pub use connect::{ConnectError, Connector, SetupError};
pub use reach::{Reach, is_public};
pub use stream::Stream;
pub use tls::TlsError;
pub use upstream::Upstream;
