//! Tests of keyspace events. The tables have the events that Redis 8.2 sends.

use super::testing::Door;
use super::{Facts, Output};

/// Commands of client 1 with the events that a subscriber hears.
type Rows = &'static [(&'static str, &'static str)];

const RESTORE_IN_THE_PAST: &str = "RESTORE f 1000 \"\\x04\\x02\\x01a\\xc0\\x01\\x01b\\x01x\
                                   \\x0a\\x00\\xba6\\x0cu\\xae\\x9bkG\" ABSTTL REPLACE";

const STRINGS: Rows = &[
    ("SET a 1", "new a, set a"),
    ("SET a 2", "overwritten a, set a"),
    ("SET a 3 EX 100", "overwritten a, set a, expire a"),
    ("SET a 3 KEEPTTL", "overwritten a, set a"),
    ("SET a x NX", ""),
    ("SET a x XX GET", "overwritten a, set a"),
    ("SET a 3 PXAT 1", "overwritten a, set a, expire a, expired a"),
    ("SETNX a 5", "new a, set a"),
    ("SETNX a 5", ""),
    ("SETEX a 100 5", "overwritten a, set a, expire a"),
    ("PSETEX a 10000 5", "overwritten a, set a, expire a"),
    ("GETSET a 6", "overwritten a, set a"),
    ("GET nope", "keymiss nope"),
    ("GETDEL a", "del a"),
    ("GETDEL a", "keymiss a"),
    ("SET a 5", "new a, set a"),
    ("GETEX a EX 100", "expire a"),
    ("GETEX a PERSIST", "persist a"),
    ("GETEX a PERSIST", ""),
    ("GETEX a PXAT 1", "del a"),
    ("APPEND a x", "new a, append a"),
    ("APPEND a y", "append a"),
    ("APPEND a \"\"", "append a"),
    ("SETRANGE a 0 zz", "setrange a"),
    ("SETRANGE a 0 \"\"", ""),
    ("INCR b", "new b, incrby b"),
    ("DECR b", "incrby b"),
    ("INCRBY b 5", "incrby b"),
    ("INCRBYFLOAT b 1.5", "incrbyfloat b"),
    ("MSET a 1 c 2", "overwritten a, set a, new c, set c"),
    ("MSETNX a 1 d 2", ""),
    ("MSETNX e 1 d 2", "new e, set e, new d, set d"),
    ("MGET a nope nope2", "keymiss nope, keymiss nope2"),
    ("SETBIT f 3 1", "new f, setbit f"),
    ("BITOP OR g f", "new g, set g"),
    ("BITOP OR g none", "keymiss none, del g"),
    ("BITFIELD f SET u8 0 5", "setbit f"),
    ("BITFIELD f GET u8 0", ""),
    ("BITFIELD nofield GET u8 0", "keymiss nofield"),
    ("BITFIELD f INCRBY u8 0 5 OVERFLOW FAIL INCRBY u8 0 255", "setbit f"),
    ("BITFIELD f OVERFLOW FAIL INCRBY u8 0 255", ""),
    ("BITFIELD f SET u8 0 10", ""),
    ("BITFIELD f SET u8 24 0", "setbit f"),
    ("BITFIELD f SET u8 0 1034 INCRBY u32 0 4294967296", ""),
    (RESTORE_IN_THE_PAST, "del f"),
    (RESTORE_IN_THE_PAST, ""),
];

const HYPERLOGLOGS_AND_KEYS: Rows = &[
    ("MSET a 1 b 1 c 1", "new a, set a, new b, set b, new c, set c"),
    ("PFADD p a b", "new p, pfadd p"),
    ("PFADD p a b", ""),
    ("PFCOUNT p", ""),
    ("PFMERGE q p", "keymiss q, new q, pfadd q"),
    ("PFADD q2", "new q2, pfadd q2"),
    ("DEL a nope", "del a"),
    ("UNLINK c", "del c"),
    ("EXISTS nope", "keymiss nope"),
    ("TOUCH nope", "keymiss nope"),
    ("TYPE nope", "keymiss nope"),
    ("TTL nope", "keymiss nope"),
    ("OBJECT ENCODING nope", ""),
    ("SET a 1", "new a, set a"),
    ("RENAME a b", "new b, rename_from a, rename_to b, overwritten b"),
    ("RENAMENX b c", "new c, rename_from b, rename_to c"),
    ("SET a 1", "new a, set a"),
    ("RENAMENX a c", ""),
    ("RENAME c c", ""),
    ("COPY a c", ""),
    ("COPY a c REPLACE", "new c, copy_to c, overwritten c"),
    ("COPY a c DB 1", "1/new c, 1/copy_to c"),
    ("MOVE a 2", "2/new a, move_from a, 2/move_to a"),
    ("SET a 1", "new a, set a"),
    ("EXPIRE a 100", "expire a"),
    ("EXPIRE a 100 NX", ""),
    ("PEXPIRE a 1000000", "expire a"),
    ("PERSIST a", "persist a"),
    ("PERSIST a", ""),
    ("EXPIRE a -1", "del a"),
    ("EXPIRE nope 10", ""),
    ("EXPIREAT c 1", "del c"),
];

const LISTS: Rows = &[
    ("LPUSH l a b", "new l, lpush l"),
    ("RPUSH l c", "rpush l"),
    ("LPUSHX l d", "lpush l"),
    ("RPUSHX nol d", ""),
    ("LPOP l", "lpop l"),
    ("RPOP l 2", "rpop l"),
    ("LPOP l 5", "lpop l, del l"),
    ("LPOP l 5", ""),
    ("RPUSH l a b c d a b", "new l, rpush l"),
    ("LSET l 0 x", "lset l"),
    ("LINSERT l BEFORE b z", "linsert l"),
    ("LINSERT l BEFORE nono z", ""),
    ("LREM l 0 nono", ""),
    ("LREM l 1 b", "lrem l"),
    ("LTRIM l 1 2", "ltrim l"),
    ("LTRIM l 0 -1", "ltrim l"),
    ("LTRIM l 5 3", "ltrim l, del l"),
    ("RPUSH l a b c d", "new l, rpush l"),
    ("LMOVE l m LEFT RIGHT", "new m, rpush m, lpop l"),
    ("LMOVE l l LEFT RIGHT", "rpush l, lpop l"),
    ("LMOVE l l LEFT LEFT", "lpush l, lpop l"),
    ("RPOPLPUSH l m", "lpush m, rpop l"),
    ("RPOPLPUSH l m", "lpush m, rpop l"),
    ("RPOPLPUSH l m", "lpush m, rpop l, del l"),
    ("LMPOP 2 l m LEFT", "lpop m"),
    ("LMPOP 2 l m RIGHT COUNT 10", "rpop m, del m"),
    ("RPUSH l a b c d", "new l, rpush l"),
    ("BLPOP l 0", "lpop l"),
    ("BRPOP l 0", "rpop l"),
    ("BLMOVE l m LEFT LEFT 0", "new m, lpush m, lpop l"),
    ("BLMPOP 0 1 l LEFT", "lpop l, del l"),
    ("BRPOPLPUSH m l 0", "new l, lpush l, rpop m, del m"),
    ("LPOP l 0", ""),
];

const SETS: Rows = &[
    ("SADD s a b c", "new s, sadd s"),
    ("SADD s a", ""),
    ("SREM s a", "srem s"),
    ("SREM s zz", ""),
    ("SREM s b c", "srem s, del s"),
    ("SADD s a b c d e", "new s, sadd s"),
    ("SPOP s", "spop s"),
    ("SPOP s 1", "spop s"),
    ("SPOP s 0", ""),
    ("SPOP s 10", "spop s, del s"),
    ("SADD s a b c d e", "new s, sadd s"),
    ("SMOVE s t a", "srem s, new t, sadd t"),
    ("SMOVE s t zz", ""),
    ("SADD t b", "sadd t"),
    ("SMOVE s t b", "srem s"),
    ("SMOVE s s c", ""),
    ("SADD u e", "new u, sadd u"),
    ("SMOVE u t e", "srem u, del u, sadd t"),
    ("SINTERSTORE w s t", "new w, sinterstore w"),
    ("SUNIONSTORE w s t", "overwritten w, sunionstore w"),
    ("SDIFFSTORE w s s", "del w"),
    ("SDIFFSTORE w s s", ""),
    ("SET w 1", "new w, set w"),
    ("SUNIONSTORE w s t", "overwritten w, type_changed w, sunionstore w"),
];

const HASHES: Rows = &[
    ("HSET h a 1 b 2", "new h, hset h"),
    ("HSET h a 1", "hset h"),
    ("HMSET h c 3", "hset h"),
    ("HSETNX h d 4", "hset h"),
    ("HSETNX h d 4", ""),
    ("HINCRBY h a 1", "hincrby h"),
    ("HINCRBYFLOAT h a 1.5", "hincrbyfloat h"),
    ("HDEL h a zz", "hdel h"),
    ("HDEL h zz", ""),
    ("HDEL h b c d", "hdel h, del h"),
    ("HSET h a 1 b 2 c 3 d 4", "new h, hset h"),
    ("HEXPIRE h 100 FIELDS 1 a", "hexpire h"),
    ("HEXPIRE h 100 NX FIELDS 1 a", ""),
    ("HEXPIRE h 100 FIELDS 1 zz", ""),
    ("HPERSIST h FIELDS 1 a", "hpersist h"),
    ("HPERSIST h FIELDS 1 a", ""),
    ("HEXPIRE h 0 FIELDS 1 a", "hdel h"),
    ("HPEXPIREAT h 1 FIELDS 2 b zz", "hdel h"),
    ("HEXPIRE h 0 FIELDS 2 c d", "hdel h, del h"),
    ("HSET h a 1 b 2 c 3 d 4", "new h, hset h"),
    ("HGETDEL h FIELDS 1 a", "hdel h"),
    ("HGETDEL h FIELDS 1 zz", ""),
    ("HGETEX h EX 100 FIELDS 1 b", "hexpire h"),
    ("HGETEX h PERSIST FIELDS 1 b", "hpersist h"),
    ("HGETEX h PERSIST FIELDS 1 b", ""),
    ("HGETEX h PXAT 1 FIELDS 1 b", "hdel h"),
    ("HGETDEL h FIELDS 2 c d", "hdel h, del h"),
    ("HSETEX h EX 100 FIELDS 1 a 1", "new h, hset h, hexpire h"),
    ("HSETEX h FIELDS 1 a 1", "hset h"),
    ("HSETEX h FNX FIELDS 1 a 1", ""),
    ("HSETEX h PXAT 1 FIELDS 1 a 1", "hset h, hdel h, del h"),
    ("HSETEX h2 PXAT 1 FIELDS 2 a 1 b 2", "new h2, hset h2, hdel h2, del h2"),
    ("HSETEX h2 KEEPTTL FIELDS 2 a 1 b 2", "new h2, hset h2"),
];

const SORTED_SETS: Rows = &[
    ("ZADD z 1 a 2 b", "new z, zadd z"),
    ("ZADD z 1 a", ""),
    ("ZADD z 2 a", "zadd z"),
    ("ZADD z XX CH 3 a", "zadd z"),
    ("ZADD z INCR 1 a", "zincr z"),
    ("ZINCRBY z 1 a", "zincr z"),
    ("ZINCRBY z 0 a", ""),
    ("ZADD z XX INCR 1 nono", ""),
    ("ZREM z a", "zrem z"),
    ("ZREM z a", ""),
    ("ZREM z b", "zrem z, del z"),
    ("ZADD z 1 a 2 b 3 c 4 d 5 e 6 f 7 g 8 h", "new z, zadd z"),
    ("ZREMRANGEBYRANK z 0 0", "zremrangebyrank z"),
    ("ZREMRANGEBYSCORE z 2 2", "zremrangebyscore z"),
    ("ZREMRANGEBYLEX z [c [c", "zremrangebylex z"),
    ("ZREMRANGEBYLEX z [c [c", ""),
    ("ZPOPMIN z", "zpopmin z"),
    ("ZPOPMAX z 2", "zpopmax z"),
    ("ZPOPMAX z 0", ""),
    ("ZMPOP 1 z MIN", "zpopmin z"),
    ("BZPOPMIN z 0", "zpopmin z, del z"),
    ("ZADD z 1 a 2 b", "new z, zadd z"),
    ("BZMPOP 0 1 z MAX", "zpopmax z"),
    ("ZREMRANGEBYRANK z 0 -1", "zremrangebyrank z, del z"),
    ("ZADD z 1 a 2 b 3 c", "new z, zadd z"),
    ("ZUNIONSTORE y 1 z", "new y, zunionstore y"),
    ("ZINTERSTORE y 2 z nono", "keymiss nono, del y"),
    ("ZINTERSTORE y 2 z nono", "keymiss nono"),
    ("ZDIFFSTORE y 2 z nono", "keymiss nono, new y, zdiffstore y"),
    ("ZRANGESTORE y z 0 1", "overwritten y, zrangestore y"),
    ("ZRANGESTORE y z 5 6", "del y"),
    ("ZRANGESTORE y z 5 6", ""),
    ("ZREMRANGEBYSCORE z 0 100", "zremrangebyscore z, del z"),
    ("GEOADD g2 1 1 a 2 2 b", "new g2, zadd g2"),
    ("GEOSEARCHSTORE g3 g2 FROMLONLAT 1 1 BYRADIUS 1000 KM", "new g3, geosearchstore g3"),
    ("GEORADIUS g2 1 1 1000 KM STORE g4", "new g4, georadiusstore g4"),
    ("GEORADIUS g2 50 50 1 KM STORE g4", "del g4"),
    ("GEOSEARCHSTORE g4 g2 FROMLONLAT 50 50 BYRADIUS 1 KM", ""),
];

const STREAMS: Rows = &[
    ("XADD x 1-1 a 1", "new x, xadd x"),
    ("XADD x MAXLEN 1 2-1 a 1", "xadd x, xtrim x"),
    ("XADD x NOMKSTREAM MAXLEN 5 3-1 a 1", "xadd x"),
    ("XADD nox NOMKSTREAM 3-1 a 1", ""),
    ("XTRIM x MAXLEN 1", "xtrim x"),
    ("XTRIM x MAXLEN 1", ""),
    ("XDEL x 3-1", "xdel x"),
    ("XDEL x 3-1", ""),
    ("XSETID x 5-1", "xsetid x"),
    ("XGROUP CREATE x g $", "xgroup-create x"),
    ("XGROUP CREATE x3 g $ MKSTREAM", "new x3, xgroup-create x3"),
    ("XGROUP SETID x g 0", "xgroup-setid x"),
    ("XGROUP CREATECONSUMER x g c", "xgroup-createconsumer x"),
    ("XGROUP CREATECONSUMER x g c", ""),
    ("XGROUP DELCONSUMER x g c", "xgroup-delconsumer x"),
    ("XGROUP DELCONSUMER x g c", ""),
    ("XADD x 6-1 a 1", "xadd x"),
    ("XREADGROUP GROUP g c2 STREAMS x >", "xgroup-createconsumer x"),
    ("XREADGROUP GROUP g c2 STREAMS x 0", ""),
    ("XREADGROUP GROUP g c3 STREAMS x >", "xgroup-createconsumer x"),
    ("XACK x g 6-1", ""),
    ("XADD x 7-1 a 1", "xadd x"),
    ("XREADGROUP GROUP g c2 NOACK STREAMS x >", ""),
    ("XADD x 8-1 a 1", "xadd x"),
    ("XREADGROUP GROUP g c2 STREAMS x >", ""),
    ("XCLAIM x g c4 0 8-1", "xgroup-createconsumer x"),
    ("XAUTOCLAIM x g c5 0 0", "xgroup-createconsumer x"),
    ("XDELEX x IDS 1 7-1", "xdel x"),
    ("XDELEX x IDS 1 7-1", ""),
    ("XACKDEL x g IDS 1 8-1", "xdel x"),
    ("XACKDEL x g IDS 1 8-1", ""),
    ("XGROUP DESTROY x g", "xgroup-destroy x"),
    ("XGROUP DESTROY x g", ""),
];

const MISSES: Rows = &[
    ("LCS a b", "keymiss a, keymiss b"),
    ("SUBSTR nope 0 1", "keymiss nope"),
    ("HGET nope a", "keymiss nope"),
    ("HSETNX nh a 1", "new nh, hset nh"),
    ("SINTER nope nope2", "keymiss nope, keymiss nope2"),
    ("ZUNION 2 nope nope2", "keymiss nope, keymiss nope2"),
    ("SUNIONSTORE d nope", "keymiss nope"),
    ("PFCOUNT nope", "keymiss nope"),
    ("GEOPOS nope a", "keymiss nope"),
    ("XREAD STREAMS nope 0", "keymiss nope, keymiss nope"),
    ("XLEN nope", "keymiss nope"),
    ("LRANGE nope 0 1", "keymiss nope"),
    ("SMEMBERS nope", "keymiss nope"),
    ("LPOP nope", ""),
    ("ZPOPMIN nope", ""),
    ("STRLEN nope", "keymiss nope"),
    ("BITCOUNT nope", "keymiss nope"),
    ("GETRANGE nope 0 1", "keymiss nope"),
    ("HRANDFIELD nope", "keymiss nope"),
    ("SRANDMEMBER nope", "keymiss nope"),
    ("ZRANDMEMBER nope", "keymiss nope"),
    ("HGETALL nope", "keymiss nope"),
    ("HTTL nope FIELDS 1 a", "keymiss nope"),
    ("HGETEX nope EX 100 FIELDS 1 b", ""),
    ("HEXPIRE nope 10 FIELDS 1 b", ""),
    ("SORT nope", "keymiss nope"),
    ("OBJECT FREQ nope", ""),
    ("DUMP nope", "keymiss nope"),
    ("SISMEMBER nope a", "keymiss nope"),
    ("ZSCORE nope a", "keymiss nope"),
    ("XRANGE nope - +", "keymiss nope"),
    ("XPENDING nope g", "keymiss nope"),
    ("XINFO STREAM nope", "keymiss nope"),
    ("EXPIRETIME nope", "keymiss nope"),
    ("COPY nope nope3", "keymiss nope"),
    ("RENAME nope nope3", ""),
    ("GETEX nope", "keymiss nope"),
    ("LMPOP 1 nope LEFT", ""),
    ("SMOVE nope nope2 a", ""),
    ("SETRANGE nope 5 \"\"", ""),
];

const ALL_KINDS: &str = "CONFIG SET notify-keyspace-events EAmnoc";

/// Returns a door whose client 2 listens to events.
fn listening(setting: &str) -> Door {
    let mut door = Door::new();
    assert_eq!(door.said(setting), "+OK|");
    door.said_to(2, "PSUBSCRIBE __key*__:*");
    door
}

/// Returns the events that client 2 has heard: `event key`, with the database if it is not 0.
fn heard(door: &mut Door) -> String {
    let text = door.heard(2);
    let messages = text.split("*4|").skip(1).map(|message| {
        let parts: Vec<&str> = message.split('|').skip(1).step_by(2).collect();
        let (channel, payload) = (parts[2], parts[3]);
        let (begin, end) = channel.split_once("__:").expect("it is a channel of events");
        match begin.strip_prefix("__keyevent@") {
            Some("0") => format!("{end} {payload}"),
            Some(database) => format!("{database}/{end} {payload}"),
            None => format!("{begin} {end}={payload}"),
        }
    });
    messages.collect::<Vec<_>>().join(", ")
}

#[track_caller]
fn check(door: &mut Door, rows: Rows) {
    for (line, events) in rows {
        let reply = door.said(line);
        assert_eq!(heard(door), *events, "{line} {reply}");
    }
}

/// Makes a test of the rows of a table.
macro_rules! tests_of_rows {
    ($($name:ident: $rows:expr;)*) => {
        $(
            #[test]
            fn $name() {
                check(&mut listening(ALL_KINDS), $rows);
            }
        )*
    };
}

tests_of_rows! {
    commands_of_strings_have_the_events_of_redis: STRINGS;
    commands_of_keys_have_the_events_of_redis: HYPERLOGLOGS_AND_KEYS;
    commands_of_lists_have_the_events_of_redis: LISTS;
    commands_of_sets_have_the_events_of_redis: SETS;
    commands_of_hashes_have_the_events_of_redis: HASHES;
    commands_of_sorted_sets_have_the_events_of_redis: SORTED_SETS;
    commands_of_streams_have_the_events_of_redis: STREAMS;
    absent_keys_have_the_events_of_redis: MISSES;
}

#[test]
fn the_setting_shows_the_letters_of_redis() {
    let mut door = Door::new();
    for (given, shown) in [
        ("K", "K"),
        ("KA", "AK"),
        ("An", "A"),
        ("KEgn", "gnKE"),
        ("nocKE", "nocKE"),
        ("g$lshzxetd", "A"),
        ("mKEA", "AKEm"),
        ("Knmoc", "nocKm"),
        ("\"\"", ""),
    ] {
        assert_eq!(door.said(&format!("CONFIG SET notify-keyspace-events {given}")), "+OK|");
        let reply = door.said("CONFIG GET notify-keyspace-events");
        assert!(reply.ends_with(&format!("${}|{shown}|", shown.len())), "{given} {reply}");
    }
    assert_eq!(
        door.said("CONFIG SET notify-keyspace-events q"),
        "-ERR CONFIG SET failed (possibly related to argument 'notify-keyspace-events') - Invalid \
         event class character. Use 'Ag$lshzxeKEtmdn'.|"
    );
}

#[test]
fn kinds_and_channels_are_chosen_by_the_setting() {
    let mut door = listening("CONFIG SET notify-keyspace-events g$");
    check(&mut door, &[("SET a 1", ""), ("DEL a", "")]);
    door.said("CONFIG SET notify-keyspace-events KEg");
    check(&mut door, &[("SET a 1", ""), ("DEL a", "__keyspace@0 a=del, del a")]);
    door.said("CONFIG SET notify-keyspace-events K$");
    check(&mut door, &[("SET a 1", "__keyspace@0 a=set"), ("DEL a", "")]);
    door.said("SELECT 3");
    check(&mut door, &[("SET a 1", "__keyspace@3 a=set")]);
}

#[test]
fn transactions_and_scripts_have_the_events_of_their_commands_once_they_are_done() {
    let mut door = listening(ALL_KINDS);
    check(
        &mut door,
        &[
            ("MULTI", ""),
            ("SET a 1", ""),
            ("GET nope", ""),
            ("LPUSH a x", ""),
            ("INCR a", ""),
            ("EXEC", "new a, set a, keymiss nope, incrby a"),
            (
                "EVAL \"redis.call('set',KEYS[1],'1') redis.call('del',KEYS[1]) return \
                 redis.pcall('lpush','a','x')\" 1 s",
                "new s, set s, del s",
            ),
        ],
    );
    door.said("MULTI\nSET b 1");
    door.store.bytes_max = Some(0);
    assert!(door.said("EXEC").starts_with("-EXECABORT"));
    assert_eq!(heard(&mut door), "");
}

#[test]
fn a_command_that_is_executed_again_has_its_events_once() {
    let mut door = listening(ALL_KINDS);
    for refused in 0..4 {
        door.store.refuses_after = Some(refused);
        door.said("HSET h a 1\nDEL h");
        assert_eq!(heard(&mut door), "new h, hset h, del h");
    }
}

#[test]
fn a_failed_command_keeps_the_events_of_its_reads() {
    let mut door = listening(ALL_KINDS);
    door.said("RPUSH l a\nSET s 1");
    heard(&mut door);
    check(
        &mut door,
        &[
            ("XPENDING nope g", "keymiss nope"),
            ("XINFO STREAM nope", "keymiss nope"),
            ("LMOVE l s LEFT LEFT", ""),
            ("RENAME nope nope2", ""),
        ],
    );
}

#[test]
fn the_blocked_client_has_the_events_of_its_command() {
    let mut door = listening(ALL_KINDS);
    door.said_to(3, "BLMOVE l m LEFT RIGHT 0");
    assert_eq!(heard(&mut door), "");
    door.said("RPUSH l a");
    assert_eq!(heard(&mut door), "new l, rpush l, new m, rpush m, lpop l, del l");
}

#[test]
fn a_key_that_expires_has_one_event() {
    let mut door = listening("CONFIG SET notify-keyspace-events Ex");
    door.said("SET read 1 PX 10\nSET written 1 PX 10\nSET passed 1 PX 10\nSET kept 1 PX 10");
    door.said("PERSIST kept\nSET deleted 1 PX 10\nDEL deleted\nSET s 1 PX 10\nSET moved 1 PX 10");
    door.said("RENAME moved m");
    door.store.now_ms += 10;
    check(
        &mut door,
        &[
            ("MGET read read nope", "expired read"),
            ("SET written 2", "expired written"),
            ("EXISTS read", ""),
            ("MULTI", ""),
            ("TTL s", ""),
            ("INCR s", ""),
            ("EXEC", "expired s"),
        ],
    );
    door.pass(0);
    assert_eq!(heard(&mut door), "expired m, expired passed");
    door.pass(1000);
    assert_eq!(heard(&mut door), "");
}

#[test]
fn an_expired_key_has_its_event_at_its_time_also_if_another_command_moved_its_database() {
    let mut door = listening("CONFIG SET notify-keyspace-events Ex");
    door.said("SET a 1 PX 50\nSELECT 1\nSET b 1 PX 60\nSET c 1 PX 70\nSWAPDB 0 1");
    let first = door.store.now_ms + 50;
    assert_eq!(door.server.deadline(), Some(first));
    door.pass(60);
    assert_eq!(heard(&mut door), "1/expired a, expired b");
    door.said("FLUSHALL");
    door.pass(60);
    assert_eq!((heard(&mut door), door.server.deadline()), (String::new(), None));
}

#[test]
fn keys_that_were_written_before_the_setting_have_their_events() {
    let mut door = Door::new();
    for key in 0..50 {
        door.said(&format!("SELECT {}\nSET key{key} 1 PX 100", key % 3));
    }
    door.said("CONFIG SET notify-keyspace-events Ex\nPING");
    door.said_to(2, "PSUBSCRIBE __key*__:*");
    assert!(door.server.looks_for_expiries());
    let mut output = Output::default();
    while door.server.sweep(&mut door.store, 7, &mut output).has_more {}
    assert!(!door.server.looks_for_expiries());
    door.pass(100);
    assert_eq!(heard(&mut door).split(", ").count(), 50);
    door.said("CONFIG SET notify-keyspace-events \"\"\nSET a 1 PX 10");
    assert_eq!(door.server.deadline(), None);
}

#[test]
fn an_evicted_key_has_an_event_and_does_not_expire_later() {
    let mut door = listening("CONFIG SET notify-keyspace-events Exe");
    door.said("SET a 1 PX 10");
    assert!(door.server.tells_evicted());
    let mut output = Output::default();
    door.server.tell_evicted(vec![(0, b"a".to_vec())], &mut output);
    let (to, bytes) = &output.messages[0];
    let text = super::testing::text_of(bytes);
    assert!(*to == 2 && text.ends_with("|$22|__keyevent@0__:evicted|$1|a|"), "{text}");
    assert_eq!(door.server.deadline(), None);
}

#[test]
fn fields_that_expire_have_events_when_their_memory_is_freed() {
    let mut door = listening("CONFIG SET notify-keyspace-events Egh");
    door.said("HSET h a 1 b 2 c 3\nHPEXPIRE h 10 FIELDS 1 a\nHSET all a 1\nHSET new a 1");
    door.said("HPEXPIRE all 10 FIELDS 1 a\nHPEXPIRE new 10 FIELDS 1 a");
    heard(&mut door);
    door.store.now_ms += 10;
    check(&mut door, &[("HSET new b 1", "hexpired new, del new, hset new")]);
    let (mut output, facts) = (Output::default(), Facts::default());
    door.server.sweep(&mut door.store, 100, &mut output);
    door.server.on_time(&mut door.store, &facts, &mut output);
    let sent: Vec<u8> = output.messages.into_iter().flat_map(|(_, bytes)| bytes).collect();
    let sent = super::testing::text_of(&sent);
    let names = ["hexpired|$3|all", "del|$3|all", "hexpired|$1|h"];
    let places: Vec<_> = names.iter().map(|name| sent.find(name)).collect();
    assert!(places.iter().all(Option::is_some) && places[0] < places[1], "{sent}");
    assert_eq!(sent.matches("__keyevent").count(), 3, "{sent}");
}

#[test]
fn a_missing_key_has_an_event_also_if_the_command_fails_later() {
    let mut door = Door::new();
    door.said_to(2, "PSUBSCRIBE __key*__:*");
    door.said("SADD t 1\nCONFIG SET notify-keyspace-events Em");
    for (line, events) in [
        ("GETSET a 1", "keymiss a"),
        ("SET b 1 GET", "keymiss b"),
        ("LCS t c", "keymiss c"),
        ("XAUTOCLAIM d g c 0 2 wrong", "keymiss d"),
    ] {
        door.said(line);
        assert_eq!(heard(&mut door), events, "{line}");
    }
}

#[test]
fn events_come_behind_the_reply_in_version_3() {
    let mut door = Door::new();
    door.said("HELLO 3\nCONFIG SET notify-keyspace-events KEg$");
    door.said("SUBSCRIBE __keyevent@0__:del __keyspace@0__:a");
    assert_eq!(
        door.said("SET a 1\nDEL a"),
        "+OK|>3|$7|message|$16|__keyspace@0__:a|$3|set|\
         :1|>3|$7|message|$16|__keyspace@0__:a|$3|del|>3|$7|message|$18|__keyevent@0__:del|$1|a|"
    );
}
