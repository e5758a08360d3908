//! How servers and coordinators find out whether a server is there.
//!
//! ```text
//!  server ──probe──► another server     every now and then, in a random order
//!         ◄─probed──                    here; or not; or nothing comes
//!  server ──suspect──► coordinator ──probe, a few times──► that server
//!                                       no answer, and others answer: its life is over
//! ```
//!
//! Bodies are JSON, as all that is said about the cluster (see [`crate::control`]). Both sides say
//! which list of servers they know: who has the older one asks the coordinator for the newer.

use crate::{ClusterId, ServerId};
use serde::{Deserialize, Serialize};

/// `probe`: is this server there, in this life?
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// The cluster.
    pub cluster: ClusterId,
    /// Who is asked for.
    pub server: ServerId,
    /// Which of its lives.
    pub generation: u64,
    /// Who asks, in which life; nobody where it is a coordinator.
    #[serde(default)]
    pub from: Option<(ServerId, u64)>,
    /// The list of servers that the asker knows.
    #[serde(default)]
    pub list_version: u64,
}

/// The answer to [`Probe`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probed {
    /// Who is there.
    pub presence: Presence,
    /// The list of servers that is known here.
    #[serde(default)]
    pub list_version: u64,
    /// The asker is not there, by that list, in the life that it says.
    #[serde(default)]
    pub you_are_gone: bool,
}

/// Who is where a server is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Presence {
    /// That server, in that life.
    Here,
    /// A process that has not enlisted yet, or does not know yet that it has; this is the nonce that
    /// it enlists with. Only the coordinator knows which life that is.
    Begins(u64),
    /// Another life of it, or somebody else: that life is over.
    Other,
    /// That server, in that life, was asked to end and stores nothing more: that life is over. It still takes to its
    /// disk what it has acknowledged.
    Leaves,
}

/// `suspect`: a server has had no answer, or one that says that the life is over. The answer, an
/// empty one, comes at once; the coordinator makes sure by itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspect {
    /// Who does not answer.
    pub server: ServerId,
    /// In which life.
    pub generation: u64,
    /// Who noticed, and in which life. If that one is over, the answer says so.
    pub by: (ServerId, u64),
    /// What happened, for people.
    #[serde(default)]
    pub why: String,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{of_body, to_body};

    #[test]
    fn what_is_said_stays_the_same() {
        let probe = Probe {
            cluster: ClusterId(9),
            server: ServerId(2),
            generation: 3,
            from: Some((ServerId(1), 7)),
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
