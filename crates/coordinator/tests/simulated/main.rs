//! Coordinators in the simulator, over a simulated store, among servers that obey commands.

mod control_plane;
mod forgotten_servers;
mod former_masters;
mod generations;
mod groups;
mod idleness;
mod leaders;
mod leases;
mod metastore;
mod model;
mod older_copies;
mod recoveries;
mod remarks;
mod requests;
mod settings;
mod stopped;
mod tables;
mod taking_back;
mod verdicts;
