//! The rows: commands, connections and requests in flight on each.

use super::work::{Word, Work};

/// A row.
#[derive(Clone, Copy, Debug)]
pub(super) struct Row {
    /// Its name for people.
    pub(super) name: &'static str,
    /// Connections.
    pub(super) connections: usize,
    /// Requests in flight on each.
    pub(super) depth: usize,
    /// The command.
    pub(super) work: Work,
    /// The preparation of each turn.
    pub(super) before: Before,
    /// Thunderhead's rate, over the best of the other servers, that we require.
    pub(super) required: f64,
}

/// The preparation of each turn of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Before {
    /// None.
    Nothing,
    /// The list gets as many elements as the turn may take.
    Push,
}

const GET: Work = &[Word::Text("GET"), Word::Keys(1)];
pub(super) const SET: Work = &[Word::Text("SET"), Word::Keys(1), Word::Value];
const MGET: Work = &[Word::Text("MGET"), Word::Keys(70)];
pub(super) const HSET: Work =
    &[Word::Text("HSET"), Word::Text("hash"), Word::Numbered("field:"), Word::Value];
const HGET: Work = &[Word::Text("HGET"), Word::Text("hash"), Word::Numbered("field:")];
const LPUSH: Work = &[Word::Text("LPUSH"), Word::Text("list"), Word::Value];
const RPOP: Work = &[Word::Text("RPOP"), Word::Text("stack")];
pub(super) const ZADD: Work =
    &[Word::Text("ZADD"), Word::Text("sorted"), Word::Number, Word::Numbered("member:")];
const ZRANGE: Work =
    &[Word::Text("ZRANGE"), Word::Text("sorted"), Word::Text("0"), Word::Text("9")];

/// The command that fills the list of the row `RPOP`, a hundred elements at a time.
pub(super) const PUSH_MANY: Work =
    &[Word::Text("LPUSH"), Word::Text("stack"), Word::Values(PUSHED)];
pub(super) const PUSHED: usize = 100;

/// The command that begins a list anew.
pub(super) const DROP_LIST: Work = &[Word::Text("DEL"), Word::Text("list")];

const fn row(
    name: &'static str,
    connections: usize,
    depth: usize,
    work: Work,
    required: f64,
) -> Row {
    Row { name, connections, depth, work, before: Before::Nothing, required }
}

/// The rows of servers that keep everything in memory.
pub(super) const ROWS: [Row; 17] = [
    row("GET, 1 connection", 1, 1, GET, 1.2),
    row("GET, 32 connections", 32, 1, GET, 1.2),
    row("GET, 128 connections", 128, 1, GET, 1.2),
    row("GET, 32 connections, pipelines of 16", 32, 16, GET, 2.0),
    row("GET, 32 connections, pipelines of 64", 32, 64, GET, 2.0),
    row("SET, 1 connection", 1, 1, SET, 1.2),
    row("SET, 32 connections", 32, 1, SET, 1.2),
    row("SET, 128 connections", 128, 1, SET, 1.2),
    row("SET, 32 connections, pipelines of 16", 32, 16, SET, 2.0),
    row("SET, 32 connections, pipelines of 64", 32, 64, SET, 2.0),
    row("MGET of 70, 32 connections", 32, 1, MGET, 1.2),
    row("HSET, 32 connections", 32, 1, HSET, 1.0),
    row("HGET, 32 connections", 32, 1, HGET, 1.0),
    row("LPUSH, 32 connections", 32, 1, LPUSH, 1.0),
    Row { before: Before::Push, ..row("RPOP, 32 connections", 32, 1, RPOP, 1.0) },
    row("ZADD, 32 connections", 32, 1, ZADD, 1.0),
    row("ZRANGE of 10, 32 connections", 32, 1, ZRANGE, 1.0),
];

/// The rows of servers that keep each acknowledged write over a crash.
pub(super) const DURABLE_ROWS: [Row; 4] = [
    row("SET, 1 connection", 1, 1, SET, 3.0),
    row("SET, 32 connections", 32, 1, SET, 3.0),
    row("SET, 128 connections", 128, 1, SET, 3.0),
    row("SET, 32 connections, pipelines of 16", 32, 16, SET, 3.0),
];
