//! Coordinators in the simulator, over a simulated store, among servers that obey commands.

mod bounds;
mod control_plane;
mod model;
mod recoveries;
mod scenarios;
mod settings;
mod stopped;
mod tables;
mod taking_back;
mod verdicts;
