//! How servers and coordinators find out whether a server is alive.
//!
//! ```text
//!  server ──probe──► another server     every now and then, in a random order
//!         ◄─probed──                    here; or not; or no answer
//!  server ──suspect──► coordinator ──probe, a few times──► that server
//!                                       no answer, and others answer: declared crashed
//! ```
//!
//! Bodies are JSON, as all messages about the cluster (see [`crate::control`]). Both sides send the
//! version of their list of servers: the side with the older list asks the coordinator for the
//! newer.

use crate::{ClusterId, Generation, ServerId};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// `probe`: is this server alive, in this generation?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The cluster.
    pub cluster: ClusterId,
    /// The server that is probed.
    pub server: ServerId,
    /// Its generation.
    pub generation: Generation,
    /// The sender and its generation; `None` for a coordinator.
    #[serde(default)]
    pub from: Option<(ServerId, Generation)>,
    /// The version of the sender's list of servers.
    #[serde(default)]
    pub list_version: u64,
}

/// The answer to [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// The process that answers.
    pub presence: Presence,
    /// The version of the list of servers at the answering side.
    #[serde(default)]
    pub list_version: u64,
    /// By that list, the sender is not up in the generation that it gave.
    #[serde(default)]
    pub you_are_gone: bool,
}

/// The answer to `find door`: the door of a shard, for the doors of other servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundDoor {
    /// The address at which it takes their connections; `None` if the shard has no such door.
    pub address: Option<SocketAddr>,
    /// The cluster ports of this shard, one for each part of the keys. There are none if the server
    /// has no cluster port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<ClusterPort>,
}

/// A port for clients that know the slots of keys.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterPort {
    /// The host under which clients reach it.
    pub host: String,
    /// Its number.
    pub port: u16,
}

/// The process at the address of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// That server, in that generation.
    Here,
    /// A process that has not enlisted yet, or does not know yet that it has; this is the nonce
    /// with which it enlists. Only the coordinator knows its generation.
    Begins(u64),
    /// Another generation of the server, or another server: the probed generation has ended.
    Other,
    /// That server, in that generation, was asked to end: the generation has ended, and stores
    /// nothing more. The process still writes the data that it has acknowledged to its disk.
    Leaves,
}

/// `suspect`: a server got no answer, or learned that the generation has ended. The coordinator
/// answers at once, with an empty body, and then probes the suspect itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// The server that does not answer.
    pub server: ServerId,
    /// Its generation.
    pub generation: Generation,
    /// The server that noticed, and its generation. If that generation has ended, the answer says
    /// so.
    pub by: (ServerId, Generation),
    /// The reason, for people.
    #[serde(default)]
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{of_body, to_body};

    #[test]
    fn messages_keep_their_bytes() {
        let probe = Probe {
            cluster: ClusterId(9),
            server: ServerId(2),
            generation: Generation(3),
            from: Some((ServerId(1), Generation(7))),
            list_version: 5,
        };
        let golden = r#"{"cluster":9,"server":2,"generation":3,"from":[1,7],"list_version":5}"#;
        assert_eq!(String::from_utf8_lossy(&to_body(&probe)), golden);
        let short = br#"{"cluster":9,"server":2,"generation":3}"#;
        let asked_by_nobody = Probe { from: None, list_version: 0, ..probe };
        assert_eq!(of_body::<Probe>(short), Some(asked_by_nobody));
        for (presence, golden) in [
            (Presence::Here, r#"{"presence":"here"}"#),
            (Presence::Begins(4), r#"{"presence":{"begins":4}}"#),
            (Presence::Other, r#"{"presence":"other"}"#),
            (Presence::Leaves, r#"{"presence":"leaves"}"#),
        ] {
            let probed = Probed { presence, list_version: 0, you_are_gone: false };
            assert_eq!(of_body::<Probed>(golden.as_bytes()), Some(probed));
            assert_eq!(of_body::<Probed>(&to_body(&probed)), Some(probed));
        }
        assert_eq!(of_body::<Probed>(br#"{"presence":"asleep"}"#), None);
    }
}
