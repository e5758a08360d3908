//! More commands on streams than the group `streams` has: rare options, many entries, and clients
//! that wait.

use super::commands::{Group, Style};

/// Rare options, and streams of several pages.
///
/// An approximate trim is left out if it would remove a part of a stream: its promise is weak. Idle
/// times are 0, or as good as endless.
pub(super) const OPTIONS: Group = Group {
    name: "streams-options",
    keys: &["x1", "x2"],
    style: Style::Plain,
    is_default: true,
    rows: &[
        "XADD key id { field value }",
        "XADD key id field long",
        "XGROUP CREATE key group ( 0 / $ / id ) MKSTREAM",
        "XREADGROUP GROUP group consumer [ COUNT small ] STREAMS key >",
        "XREADGROUP GROUP group consumer [ COUNT count ] [ NOACK ] STREAMS key key ( > / id ) ( > / 0 )",
        "XREADGROUP COUNT count NOACK GROUP group consumer STREAMS key ( $ / + / > )",
        "XREADGROUP [ GROUP group consumer ] [ BLOCK wrongtime ] [ COUNT odd ] STREAMS key [ > ]",
        "XREAD [ COUNT odd ] [ NOACK ] [ GROUP group consumer ] STREAMS key ( > / $ / + / id ) [ id ]",
        "XREAD [ BLOCK wrongtime ] STREAMS key id",
        "XADD key [ ( KEEPREF / DELREF / ACKED ) ] [ NOMKSTREAM ] [ ( MAXLEN / MINID ) [ = ] ( count / id ) ] [ LIMIT count ] id { field value }",
        "XADD key MAXLEN ~ ( 0 / 1000 ) [ LIMIT ( 0 / 1000 ) ] id field value",
        "XTRIM key [ ( KEEPREF / DELREF / ACKED ) ] ( MAXLEN / MINID ) [ = ] ( count / id ) [ LIMIT count ] [ ( KEEPREF / DELREF / ACKED ) ]",
        "XTRIM key ( MAXLEN = small / MINID id ) ( DELREF / ACKED )",
        "XTRIM key ( MAXLEN ~ 0 / MINID ~ 0-0 ) [ LIMIT count ]",
        "XDELEX key [ ( KEEPREF / DELREF / ACKED ) ] IDS small id [ id ] [ id ]",
        "XDELEX key IDS 2 id id ( KEEPREF / DELREF / ACKED )",
        "XACKDEL key group [ ( KEEPREF / DELREF / ACKED ) ] IDS small id [ id ] [ id ]",
        "XACKDEL key group IDS 2 id id ( KEEPREF / DELREF / ACKED )",
        "XACK key group { id }",
        "XDEL key { id }",
        "XPENDING key group [ IDLE ( 0 / 100000000 / odd ) ] xbound xbound [ small ] [ consumer ] [ odd ]",
        "XPENDING key group IDLE 0 - + 10 consumer",
        "XCLAIM key group consumer ( 0 / 100000000 / odd ) { id } [ IDLE ( 0 / odd ) ] [ RETRYCOUNT ( small / odd ) ] [ FORCE ] [ JUSTID ]",
        "XCLAIM key group consumer 0 { id } [ TIME ( 1000 / -1 / odd ) ] [ LASTID id ] FORCE [ JUSTID ] [ odd ]",
        "XAUTOCLAIM key group consumer ( 0 / 100000000 / odd ) xbound [ COUNT ( small / odd ) ] [ JUSTID ] [ odd ]",
        "XGROUP CREATE key group id [ MKSTREAM ] [ ENTRIESREAD ( count / odd ) ] [ odd ]",
        "XGROUP SETID key group ( $ / id ) [ ENTRIESREAD ( count / odd ) ]",
        "XGROUP ( DESTROY key group / CREATECONSUMER key group consumer / DELCONSUMER key group consumer )",
        "XSETID key id [ ENTRIESADDED ( count / odd ) ] [ MAXDELETEDID id ] [ odd ]",
        "XINFO STREAM key [ odd ]",
        "XINFO GROUPS key",
        "XINFO CONSUMERS key group",
        "XLEN key",
        "COPY key key [ REPLACE ]",
        "RENAME key key",
        "SORT key",
        "OBJECT ENCODING key",
        "TYPE key",
        "!DEL kA ; XADD kA 1-1 f long ; XADD kA 2-1 f long ; XADD kA 3-1 f long ; XGROUP CREATE kA gr1 0 ; XREADGROUP GROUP gr1 co1 COUNT 2 STREAMS kA > ; XINFO GROUPS kA ; XDEL kA ( 1-1 / 2-1 / 3-1 ) ; XINFO GROUPS kA ; XREADGROUP GROUP gr1 co2 STREAMS kA > ; XINFO GROUPS kA ; XREADGROUP GROUP gr1 co1 STREAMS kA 0",
    ],
};

/// Clients that wait for entries.
pub(super) const WAITS: Group = Group {
    name: "streams-blocking",
    keys: &["x1", "x2"],
    style: Style::Marked,
    is_default: true,
    rows: &[
        "!DEL kA kB ; @1? XREAD BLOCK 0 STREAMS kA kB $ 0 ; XADD kA 1-1 { field value } ; @1<",
        "!DEL kA ; XADD kA 1-1 f v ; @1? XREAD BLOCK 0 STREAMS kA $ ; MULTI ; XADD kA 2-1 f v ; XADD kA 3-1 f v ; EXEC ; @1<",
        "!DEL kA ; @1? XREAD BLOCK 0 STREAMS kA ( + / $ / 0 ) ; @2? XREAD BLOCK 0 STREAMS kA 0 ; XADD kA 1-1 f v ; @1< ; @2<",
        "!DEL kA ; XGROUP CREATE kA gr1 0 MKSTREAM ; @1? XREADGROUP GROUP gr1 co1 COUNT 1 BLOCK 0 STREAMS kA > ; @2? XREADGROUP GROUP gr1 co2 BLOCK 0 [ NOACK ] STREAMS kA > ; XADD kA 1-1 f v ; @1< ; XADD kA 2-1 f v ; @2< ; XPENDING kA gr1",
        "!DEL kA ; XGROUP CREATE kA gr1 0 MKSTREAM ; @1? XREADGROUP GROUP gr1 co1 BLOCK 0 STREAMS kA > ; ( DEL kA / XGROUP DESTROY kA gr1 / RENAME kA kA2 / SET kA 1 ) ; @1< ; DEL kA kA2",
        "!DEL kA ; XGROUP CREATE kA gr1 0 MKSTREAM ; @1? XREADGROUP GROUP gr1 co1 BLOCK 0 STREAMS kA > ; XINFO CONSUMERS kA gr1 ; XGROUP DELCONSUMER kA gr1 co1 ; XADD kA 1-1 f v ; @1< ; XINFO CONSUMERS kA gr1",
        "!DEL kA ; XGROUP CREATE kA gr1 0 MKSTREAM ; @1? XREADGROUP GROUP gr1 co1 BLOCK 0 STREAMS kA > ; MULTI ; DEL kA ; XADD kA 1-1 f v ; EXEC ; @1<",
        "!DEL kA kB ; XADD kB 1-1 f v ; @1? XREAD BLOCK 0 STREAMS kA 0 ; ( RENAME kB kA / COPY kB kA ) ; @1<",
        "!DEL kA ; MULTI ; XREAD BLOCK 0 STREAMS kA $ ; XADD kA 1-1 f v ; XREAD BLOCK 0 STREAMS kA 0 ; EXEC",
        "!WATCH kA ; XADD kA 1-* f v ; MULTI ; XLEN kA ; EXEC ; DEL kA",
    ],
};
