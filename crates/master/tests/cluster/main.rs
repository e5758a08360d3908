//! A shard in its cluster, in the simulator: coordinators and backups that are made up here, and a
//! network that loses, repeats and delays. Tablets are given and taken, leases end, and the tablets
//! of a master that is gone are rebuilt from replicas as a recorder has them: after any prefix of what
//! it was told, with copies damaged, missing, cut short, and backups that do not answer.

mod cast;
mod coming;
mod leases;
mod parts;
mod past;
mod recovery;
mod tablets;
mod taking_back;
mod world;
