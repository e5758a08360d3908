//! Clients of whole clusters, in the simulator and on this machine. The coordinator is scripted: it
//! follows the protocol, and can be made to forget, to fall silent and to lose its leadership. The
//! shards are real.

mod control;
mod leases;
mod machine;
mod maps;
mod migration;
mod minding;
mod user;
mod walk;
