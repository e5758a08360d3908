//! Clients of whole clusters: in the simulator, and on this machine. The coordinator is a fake one that
//! does what the contract says, and can be made to forget, to fall silent, and to lose its office; the
//! shards are real.

mod control;
mod fake;
mod leases;
mod machine;
mod maps;
mod migration;
mod user;
mod walk;
