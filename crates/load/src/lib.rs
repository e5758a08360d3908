//! Clients that load a store and check every answer: the workloads of `thunderhead bench`, and the
//! crash of `thunderhead demo`.
//!
//! It is apart from `bench` because the product must not contain the experiments, their simulator
//! and the clients of other stores. `bench` uses these modules too:
//!
//! | modules | contents |
//! | --- | --- |
//! | [`machine`], [`children`] | cores, memory, processor time; processes that end with this one |
//! | [`output`], [`table`], [`plot`] | progress, results for people and programs, figures |
//! | [`content`], [`distribution`] | objects that name themselves, and the choice of objects |
//! | [`workload`], [`plan`], [`run`] | the work of clients, and the loop that runs any clients |
//! | [`options`], [`commands`], [`report`] | a workload on the command line, and its results |
//! | [`cluster`], [`through`], [`channel`] | workloads on a cluster, through the client library |
//! | [`crash`] | a cluster of processes that loses a server |
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "a load is put on the machine itself")]

pub mod channel;
pub mod children;
pub mod cluster;
pub mod commands;
pub mod content;
pub mod crash;
pub mod distribution;
pub mod machine;
pub mod options;
pub mod output;
pub mod plan;
pub mod plot;
pub mod report;
pub mod run;
pub mod table;
pub mod through;
pub mod workload;
