//! A shard in its cluster, in the simulator: with scripted coordinators and backups, and a network
//! that loses, duplicates and delays messages. Tablets are given and taken, and leases end. The
//! tablets of a crashed master are rebuilt from the replicas of a recorder: after any prefix of its
//! events, with copies that are damaged, missing or cut short, and with backups that do not answer.

mod coming;
mod fixture;
mod leases;
mod options;
mod parts;
mod past;
mod recovery;
mod tablets;
mod taking_back;
