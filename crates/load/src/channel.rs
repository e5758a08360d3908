//! The channel of clients: sockets or shared memory.

/// How clients connect to the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Channel {
    /// Sockets.
    Tcp,
    /// Shared memory.
    Shm,
}
