//! Hashes and sets, small and large ones: the replies of Redis 8.2.

use super::store::{Change, Kind, PAGES, Store};
use super::testing::Door;
use std::collections::{BTreeMap, BTreeSet};

/// Returns the strings of a reply.
fn strings(reply: &str) -> Vec<String> {
    let mut parts = reply.split('|');
    let mut strings = Vec::new();
    while let Some(part) = parts.next() {
        if part.starts_with('$') {
            strings.extend(parts.next().map(str::to_owned));
        }
    }
    strings
}

fn set_of(reply: &str) -> BTreeSet<String> {
    strings(reply).into_iter().collect()
}

/// Sends a command with many arguments, some at a time.
fn many(door: &mut Door, command: &str, arguments: impl Iterator<Item = String>) {
    let arguments: Vec<String> = arguments.collect();
    for part in arguments.chunks(60) {
        door.said(&format!("{command} {}", part.join(" ")));
    }
}

#[test]
fn hashes_have_fields() {
    let mut door = Door::new();
    door.expect(&[
        ("HSET h a 1 b 2 a 3", ":2|"),
        ("HSET h a 4", ":0|"),
        ("HGETALL h", "*4|$1|a|$1|4|$1|b|$1|2|"),
        ("HKEYS h", "*2|$1|a|$1|b|"),
        ("HVALS h", "*2|$1|4|$1|2|"),
        ("HGET h a", "$1|4|"),
        ("HGET h x", "$-1|"),
        ("HGET x x", "$-1|"),
        ("HMGET h a x b", "*3|$1|4|$-1|$1|2|"),
        ("HMGET x a b", "*2|$-1|$-1|"),
        ("HMSET h c 5", "+OK|"),
        ("HSETNX h c 6", ":0|"),
        ("HSETNX h d 6", ":1|"),
        ("HLEN h", ":4|"),
        ("HLEN x", ":0|"),
        ("HSTRLEN h a", ":1|"),
        ("HSTRLEN h x", ":0|"),
        ("HEXISTS h a", ":1|"),
        ("HEXISTS h x", ":0|"),
        ("HDEL h a x b", ":2|"),
        ("HDEL h c d", ":2|"),
        ("EXISTS h", ":0|"),
        ("HGETALL h", "*0|"),
        ("HKEYS h", "*0|"),
        ("HSET h \"\" \"\"", ":1|"),
        ("HGETALL h", "*2|$0||$0||"),
        ("HSET h a", "-ERR wrong number of arguments for 'hset' command|"),
        ("HSET h a 1 b", "-ERR wrong number of arguments for 'hset' command|"),
        ("HMSET h a 1 b", "-ERR wrong number of arguments for 'hmset' command|"),
    ]);
}

#[test]
fn fields_may_be_numbers() {
    let mut door = Door::new();
    door.expect(&[
        ("HINCRBY h a 5", ":5|"),
        ("HINCRBY h a -7", ":-2|"),
        ("HINCRBY h a x", "-ERR value is not an integer or out of range|"),
        ("HSET h s text m 9223372036854775807", ":2|"),
        ("HINCRBY h s 1", "-ERR hash value is not an integer|"),
        ("HINCRBY h m 1", "-ERR increment or decrement would overflow|"),
        ("HINCRBYFLOAT h f 1.5", "$3|1.5|"),
        ("HINCRBYFLOAT h f 1e1", "$4|11.5|"),
        ("HINCRBYFLOAT h f -11.5", "$1|0|"),
        ("HINCRBYFLOAT h s 1", "-ERR hash value is not a float|"),
        ("HINCRBYFLOAT h f x", "-ERR value is not a valid float|"),
        ("HINCRBYFLOAT h f inf", "-ERR value is NaN or Infinity|"),
        ("HGET h f", "$1|0|"),
        ("HLEN h", ":4|"),
    ]);
}

#[test]
fn sets_have_members() {
    let mut door = Door::new();
    door.expect(&[
        ("SADD s c a b a", ":3|"),
        ("SADD s a", ":0|"),
        ("SMEMBERS s", "*3|$1|c|$1|a|$1|b|"),
        ("SISMEMBER s a", ":1|"),
        ("SISMEMBER s x", ":0|"),
        ("SMISMEMBER s a x", "*2|:1|:0|"),
        ("SMISMEMBER x a x", "*2|:0|:0|"),
        ("SCARD s", ":3|"),
        ("SREM s a x", ":1|"),
        ("SMOVE s t c", ":1|"),
        ("SMOVE s t x", ":0|"),
        ("SMOVE x t x", ":0|"),
        ("SMOVE s s b", ":1|"),
        ("SMOVE s t b", ":1|"),
        ("EXISTS s", ":0|"),
        ("SMEMBERS t", "*2|$1|c|$1|b|"),
        ("SMEMBERS s", "*0|"),
        ("SPOP t 0", "*0|"),
        ("SPOP t -1", "-ERR value is out of range, must be positive|"),
        ("SPOP t 1 2", "-ERR syntax error|"),
        ("SPOP t 5", "*2|$1|c|$1|b|"),
        ("EXISTS t", ":0|"),
        ("SPOP t", "$-1|"),
        ("SRANDMEMBER t", "$-1|"),
        ("SRANDMEMBER t 5", "*0|"),
        ("SADD t x", ":1|"),
        ("SRANDMEMBER t", "$1|x|"),
        ("SRANDMEMBER t -3", "*3|$1|x|$1|x|$1|x|"),
        ("SRANDMEMBER t 9223372036854775807", "*1|$1|x|"),
        ("SPOP t", "$1|x|"),
        ("EXISTS t", ":0|"),
    ]);
}

#[test]
fn sets_are_combined() {
    let mut door = Door::new();
    door.expect(&[
        ("SADD a 1 2 3 4", ":4|"),
        ("SADD b 4 3 9", ":3|"),
        ("SINTER a b", "*2|$1|3|$1|4|"),
        ("SINTER a x", "*0|"),
        ("SUNION a b x", "*5|$1|1|$1|2|$1|3|$1|4|$1|9|"),
        ("SDIFF a b x", "*2|$1|1|$1|2|"),
        ("SDIFF x a", "*0|"),
        ("SINTERCARD 2 a b", ":2|"),
        ("SINTERCARD 2 a b LIMIT 1", ":1|"),
        ("SINTERCARD 2 a b LIMIT 0", ":2|"),
        ("SINTERCARD 2 a b LIMIT -1", "-ERR LIMIT can't be negative|"),
        ("SINTERCARD 0 a", "-ERR numkeys should be greater than 0|"),
        ("SINTERCARD 2 a", "-ERR Number of keys can't be greater than number of args|"),
        ("SINTERCARD 1 a b", "-ERR syntax error|"),
        ("SINTERSTORE c a b", ":2|"),
        ("SMEMBERS c", "*2|$1|3|$1|4|"),
        ("SUNIONSTORE a a b", ":5|"),
        ("SDIFFSTORE b a b", ":2|"),
        ("SMEMBERS b", "*2|$1|1|$1|2|"),
        ("SET c x", "+OK|"),
        ("SINTERSTORE c a x", ":0|"),
        ("EXISTS c", ":0|"),
        ("SET c x", "+OK|"),
        ("SUNION a c", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("SUNIONSTORE c a", ":5|"),
        ("TYPE c", "+set|"),
    ]);
}

#[test]
fn other_types_are_refused() {
    let mut door = Door::new();
    door.said("SET k x\nHSET h a 1\nSADD s a");
    let error = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
    for command in [
        "HSET k a 1",
        "HGET s a",
        "HMGET k a",
        "HGETALL s",
        "HDEL k a",
        "HLEN k",
        "HINCRBY s a 1",
        "HSCAN k 0",
        "HRANDFIELD k",
        "SADD h a",
        "SREM k a",
        "SMEMBERS h",
        "SISMEMBER h a",
        "SCARD k",
        "SPOP h",
        "SRANDMEMBER h 1",
        "SMOVE h s a",
        "SMOVE s h a",
        "SSCAN h 0",
        "SINTER s h",
        "SINTERSTORE x s k",
        "GET h",
        "APPEND s x",
    ] {
        assert_eq!(door.said(command), error, "{command}");
    }
    door.expect(&[("SMOVE x h a", ":0|"), ("SMEMBERS s", "*1|$1|a|")]);
}

#[test]
fn replies_of_version_3_have_types() {
    let mut door = Door::new();
    door.said("HELLO 3\nHSET h a 1\nSADD s a");
    door.expect(&[
        ("HGETALL h", "%1|$1|a|$1|1|"),
        ("HGETALL x", "%0|"),
        ("HKEYS h", "*1|$1|a|"),
        ("SMEMBERS s", "~1|$1|a|"),
        ("SUNION s x", "~1|$1|a|"),
        ("SINTER s x", "~0|"),
        ("SPOP x 1", "~0|"),
        ("SRANDMEMBER s 1", "*1|$1|a|"),
        ("HRANDFIELD h 1 WITHVALUES", "*1|*2|$1|a|$1|1|"),
        ("HRANDFIELD h", "$1|a|"),
        ("HRANDFIELD x", "_|"),
        ("HINCRBYFLOAT h a 0.5", "$3|1.5|"),
        ("SPOP s 1", "~1|$1|a|"),
    ]);
}

#[test]
fn the_time_of_expiry_stays() {
    let mut door = Door::new();
    door.expect(&[
        ("HSET h a 1", ":1|"),
        ("PEXPIRE h 1000", ":1|"),
        ("HSET h b 2", ":1|"),
        ("HDEL h a", ":1|"),
        ("PTTL h", ":1000|"),
        ("SADD s a b", ":2|"),
        ("PEXPIRE s 1000", ":1|"),
        ("SREM s a", ":1|"),
        ("PTTL s", ":1000|"),
        ("SUNIONSTORE s s", ":1|"),
        ("PTTL s", ":-1|"),
    ]);
}

#[test]
fn encodings_are_those_of_redis() {
    let mut door = Door::new();
    let long = "x".repeat(65);
    let encoding = |door: &mut Door| strings(&door.said("OBJECT ENCODING k")).concat();
    let mut check = |commands: &[&str], expected: &str| {
        door.said("DEL k");
        for command in commands {
            door.said(command);
        }
        assert_eq!(encoding(&mut door), expected, "{commands:?}");
    };
    let numbers = |count: u32| (0..count).map(|it| it.to_string()).collect::<Vec<_>>().join(" ");
    let pairs = |count: u32| (0..count).map(|it| format!("{it} v")).collect::<Vec<_>>().join(" ");
    check(&["HSET k a 1"], "listpack");
    check(&[&format!("HSET k a {long}")], "hashtable");
    check(&[&format!("HSET k a {long}"), "HDEL k x", "HSET k a 1"], "hashtable");
    check(&[&format!("HSET k {}", pairs(512))], "listpack");
    check(&[&format!("HSET k {}", pairs(513))], "hashtable");
    check(&[&format!("HSET k {}", pairs(512)), "HSET k new 1", "HDEL k new"], "hashtable");
    check(&["SADD k 1 2"], "intset");
    check(&["SADD k 1 a"], "listpack");
    check(&["SADD k 1 a", "SREM k a"], "listpack");
    check(&[&format!("SADD k {long}")], "hashtable");
    check(&[&format!("SADD k a {long}")], "hashtable");
    check(&[&format!("SADD k {}", numbers(512))], "intset");
    check(&[&format!("SADD k {}", numbers(512)), "SADD k 513"], "hashtable");
    check(&[&format!("SADD k {}", numbers(128)), "SADD k a"], "hashtable");
    check(&[&format!("SADD k {}", numbers(127)), "SADD k a"], "listpack");
}

#[test]
fn a_small_set_is_shown_in_the_order_of_redis() {
    let mut door = Door::new();
    door.expect(&[
        ("SADD s 3 1 2", ":3|"),
        ("SMEMBERS s", "*3|$1|1|$1|2|$1|3|"),
        ("SSCAN s 0", "*2|$1|0|*3|$1|1|$1|2|$1|3|"),
        ("SADD s x", ":1|"),
        ("SADD s 0", ":1|"),
        ("SMEMBERS s", "*5|$1|1|$1|2|$1|3|$1|x|$1|0|"),
    ]);
}

#[test]
fn large_hashes_are_hashes() {
    let mut door = Door::new();
    let mut model = BTreeMap::new();
    many(&mut door, "HSET h", (0..3000).map(|it| format!("field-{it} value-{it}")));
    model.extend((0..3000).map(|it| (format!("field-{it}"), format!("value-{it}"))));
    many(&mut door, "HSET h", (0..3000).step_by(7).map(|it| format!("field-{it} other-{it}")));
    model.extend((0..3000).step_by(7).map(|it| (format!("field-{it}"), format!("other-{it}"))));
    many(&mut door, "HDEL h", (0..3000).filter(|it| it % 3 != 0).map(|it| format!("field-{it}")));
    model.retain(|field, _| field[6..].parse::<u32>().is_ok_and(|it| it % 3 == 0));
    door.expect(&[
        ("HLEN h", ":1000|"),
        ("HGET h field-21", "$8|other-21|"),
        ("HGET h field-20", "$-1|"),
        ("HMGET h field-24 field-20", "*2|$8|value-24|$-1|"),
        ("HSTRLEN h field-24", ":8|"),
        ("HEXISTS h field-20", ":0|"),
        ("HINCRBY h counter 1", ":1|"),
        ("HDEL h counter", ":1|"),
        ("OBJECT ENCODING h", "$9|hashtable|"),
    ]);
    let all = strings(&door.said("HGETALL h"));
    let all: BTreeMap<_, _> =
        all.chunks(2).map(|pair| (pair[0].clone(), pair[1].clone())).collect();
    assert_eq!(all, model);
    let fields = set_of(&door.said("HRANDFIELD h 500"));
    assert_eq!(fields.len(), 500);
    assert!(fields.iter().all(|field| model.contains_key(field)));
    let pairs = strings(&door.said("HRANDFIELD h -50 WITHVALUES"));
    assert!(pairs.chunks(2).all(|pair| model.get(&pair[0]) == Some(&pair[1])));
    many(&mut door, "HDEL h", model.keys().cloned());
    door.expect(&[("EXISTS h", ":0|")]);
}

#[test]
fn large_sets_are_sets() {
    let mut door = Door::new();
    many(&mut door, "SADD a", (0..2000).map(|it| format!("m{it}")));
    many(&mut door, "SADD b", (1000..3000).map(|it| format!("m{it}")));
    let range = |range: std::ops::Range<u32>| -> BTreeSet<String> {
        range.map(|it| format!("m{it}")).collect()
    };
    assert_eq!(set_of(&door.said("SINTER a b")), range(1000..2000));
    assert_eq!(set_of(&door.said("SUNION a b")), range(0..3000));
    assert_eq!(set_of(&door.said("SDIFF a b")), range(0..1000));
    door.expect(&[
        ("SINTERCARD 2 a b LIMIT 10", ":10|"),
        ("SINTERSTORE i a b", ":1000|"),
        ("SUNIONSTORE u a b", ":3000|"),
        ("SDIFFSTORE a a b", ":1000|"),
        ("SCARD a", ":1000|"),
        ("SISMEMBER i m1500", ":1|"),
        ("SISMEMBER i m500", ":0|"),
        ("SMOVE i a m1500", ":1|"),
        ("SMOVE i a m1500", ":0|"),
    ]);
    assert_eq!(set_of(&door.said("SMEMBERS u")), range(0..3000));
    let popped = set_of(&door.said("SPOP u 100"));
    assert_eq!(popped.len(), 100);
    door.expect(&[("SCARD u", ":2900|")]);
    let left = set_of(&door.said("SMEMBERS u"));
    assert_eq!(&range(0..3000) - &popped, left);
    let one = strings(&door.said("SPOP u"));
    assert!(left.contains(&one[0]));
    door.expect(&[("SCARD u", ":2899|")]);
    let different = set_of(&door.said("SRANDMEMBER u 2000"));
    assert_eq!(different.len(), 2000);
    door.expect(&[(
        "SRANDMEMBER u -9223372036854775807",
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|",
    )]);
}

/// Scans a collection while it changes; returns the items that were seen.
fn scan(
    door: &mut Door,
    command: &str,
    mut between: impl FnMut(&mut Door, u64),
) -> BTreeSet<String> {
    let (mut seen, mut cursor, mut calls) = (BTreeSet::new(), "0".to_owned(), 0);
    loop {
        let reply = door.said(&command.replace("CURSOR", &cursor));
        let mut parts = strings(&reply).into_iter();
        cursor = parts.next().unwrap();
        assert!(cursor.parse::<u64>().unwrap() < 1 << 63);
        seen.extend(parts);
        if cursor == "0" {
            return seen;
        }
        calls += 1;
        between(door, calls);
    }
}

#[test]
fn a_scan_visits_all_that_stays() {
    for grows in [true, false] {
        let mut door = Door::new();
        many(&mut door, "HSET h", (0..1000).map(|it| format!("stays-{it} v")));
        many(&mut door, "HSET h", (0..3000).map(|it| format!("goes-{it} v")));
        let seen =
            scan(&mut door, "HSCAN h CURSOR COUNT 25 MATCH stays-* NOVALUES", |door, call| {
                let range = (call * 40)..(call * 40 + 40);
                match grows {
                    true => many(door, "HSET h", range.map(|it| format!("new-{it} v"))),
                    false => many(door, "HDEL h", range.map(|it| format!("goes-{it}"))),
                }
            });
        assert_eq!(seen.len(), 1000);
    }
}

#[test]
fn a_scan_ends_when_the_collection_becomes_small() {
    let mut door = Door::new();
    many(&mut door, "SADD s", (0..1000).map(|it| format!("m{it}")));
    let seen = scan(&mut door, "SSCAN s CURSOR", |door, _| {
        many(door, "SREM s", (3..1000).map(|it| format!("m{it}")));
    });
    assert!(["m0", "m1", "m2"].iter().all(|member| seen.contains(*member)));
}

#[test]
fn scans_have_the_errors_of_redis() {
    let mut door = Door::new();
    door.said("HSET h a 1\nSADD s a");
    door.expect(&[
        ("HSCAN h 0", "*2|$1|0|*2|$1|a|$1|1|"),
        ("HSCAN h 0 NOVALUES", "*2|$1|0|*1|$1|a|"),
        ("HSCAN h 7 COUNT 1", "*2|$1|0|*2|$1|a|$1|1|"),
        ("HSCAN x 0 COUNT 0", "*2|$1|0|*0|"),
        ("HSCAN h x", "-ERR invalid cursor|"),
        ("HSCAN h 0 COUNT 0", "-ERR syntax error|"),
        ("HSCAN h 0 COUNT x", "-ERR value is not an integer or out of range|"),
        ("HSCAN h 0 TYPE hash", "-ERR syntax error|"),
        ("SSCAN s 0 NOVALUES", "-ERR NOVALUES option can only be used in HSCAN|"),
        ("SSCAN s 0 MATCH b*", "*2|$1|0|*0|"),
    ]);
}

#[test]
fn a_watched_hash_changes_with_its_fields() {
    let mut door = Door::new();
    many(&mut door, "HSET h", (0..500).map(|it| format!("field-{it} value")));
    door.said("WATCH h");
    door.said_to(2, "HSET h field-7 other");
    door.expect(&[("MULTI", "+OK|"), ("HGET h field-7", "+QUEUED|"), ("EXEC", "*-1|")]);
    door.said("WATCH h");
    door.said_to(2, "HGET h field-7");
    door.expect(&[("MULTI", "+OK|"), ("HGET h field-7", "+QUEUED|"), ("EXEC", "*1|$5|other|")]);
}

#[test]
fn a_value_that_is_too_long_changes_nothing() {
    let mut door = Door::new();
    let long = "x".repeat((1 << 20) - 10);
    let command = |value: &str| {
        format!(
            "*6\r\n$4\r\nHSET\r\n$1\r\nh\r\n$1\r\na\r\n$1\r\n1\r\n$1\r\nb\r\n${}\r\n{value}\r\n",
            value.len()
        )
    };
    let reply = door.replies(1, command(&long).as_bytes());
    assert_eq!(reply, b"-ERR string exceeds maximum allowed size (proto-max-bulk-len)\r\n");
    door.expect(&[("EXISTS h", ":0|")]);
    let reply = door.replies(1, command(&long[..long.len() - 100]).as_bytes());
    assert_eq!(reply, b":2\r\n");
    door.expect(&[("HLEN h", ":2|"), ("HGET h a", "$1|1|")]);
}

/// Writes other bytes into the leaves of all collections.
fn damage(door: &mut Door, change: impl Fn(&mut Vec<u8>)) {
    let (mut pages, mut cursor) = (Vec::new(), 0);
    loop {
        let next = door.store.walk(PAGES, cursor, &mut |key, found| {
            // The first byte of a leaf is 0. A page's key has its number behind the collection's.
            if found.value.first() == Some(&0) && key.last() != Some(&0) {
                pages.push((key.to_vec(), found.value.to_vec()));
            }
        });
        cursor = next.unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(pages.len() > 2, "{}", pages.len());
    for (key, mut value) in pages {
        change(&mut value);
        let (key, value) = (&*key, &*value);
        let (kind, expires) = (Kind::String, None);
        let put = Change::Put { database: PAGES, key, value, kind, expires };
        door.store.apply(&[put]).unwrap();
    }
}

#[test]
fn a_page_with_another_number_of_items_than_its_parent_counts_is_damage() {
    let tables: [(&str, &[u8], &[&str]); 4] = [
        (
            "RPUSH",
            &[1, b'x'],
            &["LINDEX k 99", "LRANGE k 200 300", "LSET k 99 y", "LTRIM k 99 -100", "LPOS k z"],
        ),
        ("SADD", &[1, b'x'], &["SMEMBERS k", "SADD k new", "SREM k m100", "SSCAN k 0"]),
        (
            "HSET",
            &[1, b'x', 1, b'y'],
            &["HGETALL k", "HSET k new 1", "HDEL k m100", "HRANDFIELD k 500"],
        ),
        (
            "ZADD",
            &[9, b'x', b'x', b'x', b'x', b'x', b'x', b'x', b'x', b'x'],
            &["ZRANGE k 0 -1", "ZRANK k m100", "ZCOUNT k 100 200", "ZPOPMAX k", "ZADD k 5 new"],
        ),
    ];
    for (command, more, commands) in tables {
        let mut door = Door::new();
        let words = (0..600).map(|at| match command {
            "HSET" => format!("m{at} v"),
            "ZADD" => format!("{at} m{at}"),
            _ => format!("m{at}"),
        });
        many(&mut door, &format!("{command} k"), words);
        damage(&mut door, |leaf| leaf.extend_from_slice(more));
        for line in commands {
            let reply = door.said(line);
            assert_eq!(reply, "-ERR The value of this key is damaged|", "{line}");
        }
        // The key can still be deleted.
        door.expect(&[("DEL k", ":1|"), ("EXISTS k", ":0|")]);
    }
}
