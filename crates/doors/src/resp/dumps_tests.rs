//! `DUMP` and `RESTORE`: the replies are the ones of Redis 8.2.

use super::ServerOptions;
use super::models::execute;
use super::testing::{BEGIN_MS, Door, text_of};
use crate::rdb::{Field, Value, wrap};

/// Restores the type and the bytes of a value, with some more words.
fn restore(door: &mut Door, key: &str, time: &str, value: &[u8], options: &str) -> String {
    let payload = wrap(value.to_vec(), true);
    let mut words: Vec<&[u8]> = vec![b"restore", key.as_bytes(), time.as_bytes(), &payload];
    words.extend(options.split_whitespace().map(str::as_bytes));
    text_of(&execute(door, &words))
}

/// Returns the payload of a key.
fn dump(door: &mut Door, key: &str) -> Vec<u8> {
    let reply = execute(door, &[b"dump", key.as_bytes()]);
    let begin = reply.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    reply[begin..reply.len() - 2].to_vec()
}

const HELLO: &[u8] = b"\0\x05hello";

#[test]
fn a_value_is_restored_with_its_time() {
    let door = &mut Door::new();
    assert_eq!(restore(door, "k", "0", HELLO, ""), "+OK|");
    assert_eq!(door.said("get k"), "$5|hello|");
    assert_eq!(door.said("ttl k"), ":-1|");
    let busy = "-BUSYKEY Target key name already exists.|";
    assert_eq!(restore(door, "k", "0", HELLO, ""), busy);
    assert_eq!(restore(door, "k", "x", b"bad", ""), busy);
    let far = i64::MAX.to_string();
    assert_eq!(restore(door, "k", &far, HELLO, "replace"), "+OK|");
    assert_eq!(door.said("exists k"), ":0|");
    assert_eq!(restore(door, "k", "100000", HELLO, "replace"), "+OK|");
    assert_eq!(door.said("pttl k"), ":100000|");
    assert_eq!(restore(door, "k", "1", HELLO, "REPLACE ABSTTL"), "+OK|");
    assert_eq!(door.said("exists k"), ":0|");
    let time = (BEGIN_MS + 5).to_string();
    assert_eq!(restore(door, "k", &time, HELLO, "absttl"), "+OK|");
    assert_eq!(door.said("pttl k"), ":5|");
    door.pass(5);
    assert_eq!(door.said("exists k"), ":0|");
    for (kind, value) in [
        ("list", &b"\x01\x01\x01a"[..]),
        ("set", b"\x02\x01\x01a"),
        ("hash", b"\x04\x01\x01a\x01b"),
        ("zset", b"\x05\x01\x01a\0\0\0\0\0\0\0\0"),
    ] {
        assert_eq!(restore(door, "c", "7", value, "replace"), "+OK|");
        assert_eq!(door.said("type c"), format!("+{kind}|"));
        assert_eq!(door.said("pttl c"), ":7|");
    }
}

#[test]
fn arguments_are_checked() {
    let door = &mut Door::new();
    let negative = "-ERR Invalid TTL value, must be >= 0|";
    assert_eq!(restore(door, "k", "-1", HELLO, ""), negative);
    let not_integer = "-ERR value is not an integer or out of range|";
    assert_eq!(restore(door, "k", "x", HELLO, ""), not_integer);
    for (options, reply) in [
        ("idletime -1", "-ERR Invalid IDLETIME value, must be >= 0|"),
        ("idletime x", not_integer),
        ("idletime", "-ERR syntax error|"),
        ("freq 256", "-ERR Invalid FREQ value, must be >= 0 and <= 255|"),
        ("freq -1", "-ERR Invalid FREQ value, must be >= 0 and <= 255|"),
        ("freq x", not_integer),
        ("freq", "-ERR syntax error|"),
        ("freq 1 idletime 1", "-ERR syntax error|"),
        ("idletime 1 freq 1", "-ERR syntax error|"),
        ("nonsense", "-ERR syntax error|"),
        ("idletime 5 replace", "+OK|"),
        ("freq 255 replace", "+OK|"),
    ] {
        assert_eq!(restore(door, "k", "0", HELLO, options), reply, "{options}");
    }
    door.expect(&[
        ("dump", "-ERR wrong number of arguments for 'dump' command|"),
        ("dump none", "$-1|"),
        ("restore k 0", "-ERR wrong number of arguments for 'restore' command|"),
        ("restore j 0 abc", "-ERR DUMP payload version or checksum are wrong|"),
        ("restore j 0 \"\"", "-ERR DUMP payload version or checksum are wrong|"),
        ("exists j", ":0|"),
    ]);
}

#[test]
fn a_payload_of_no_value_is_refused() {
    let options = ServerOptions { string_bytes_max: 1 << 20, ..ServerOptions::default() };
    let door = &mut Door::with(options);
    door.said("set k before");
    for value in [
        &b""[..],
        b"\0",
        b"\0\x06hello",
        b"\0\x05hello!",
        b"\x63\x05hello",
        b"\x02\0",
        b"\x02\x02\x01a\x01a",
        b"\x0f\x01x",
        b"\x07\x01x",
        b"\x01\x81\xff\xff\xff\xff\xff\xff\xff\xff",
    ] {
        let reply = restore(door, "k", "0", value, "replace");
        assert_eq!(reply, "-ERR Bad data format|", "{value:x?}");
    }
    let long = [&b"\0\x80\0\x10\0\x01"[..], &[b'x'; (1 << 20) + 1]].concat();
    let too_long = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    assert_eq!(restore(door, "k", "0", &long, "replace"), too_long);
    // Forty bytes that would become a string of a gigabyte.
    let packed = [&b"\0\xc3\x03\x80\x40\0\0\0"[..], b"\0ab"].concat();
    assert_eq!(restore(door, "k", "0", &packed, "replace"), too_long);
    assert_eq!(door.said("get k"), "$6|before|");
}

#[test]
fn values_come_back_from_their_payloads() {
    let door = &mut Door::new();
    for line in [
        "set string text",
        "set number -129",
        "rpush list a 5 a long-element-of-some-bytes",
        "sadd set a 5 b",
        "sadd numbers 7 -3 70000",
        "zadd sorted 1.5 a -inf b inf c 0 d",
        "hset hash a 1 b 2",
        "hset expiring a 1 b 2 c 3",
        "hpexpire expiring 50 fields 1 a",
        "hpexpire expiring 70 fields 1 b",
        "pfadd sketch a b c",
    ] {
        door.said(line);
    }
    let items = |text: &str| (0..3000).map(|it| format!(" {text}{it}")).collect::<String>();
    door.said(&format!("rpush long-list{}", items("e")));
    door.said(&format!("sadd long-set{}", items("m")));
    door.said(&format!("hset long-hash{}", items("f")));
    let scored: String = (0..3000).map(|it| format!(" {} m{it}", it % 7)).collect();
    door.said(&format!("zadd long-sorted{scored}"));
    for (key, show) in [
        ("string", "get"),
        ("number", "get"),
        ("sketch", "get"),
        ("list", "lrange 0 -1"),
        ("long-list", "lrange 0 -1"),
        ("set", "smembers"),
        ("numbers", "smembers"),
        ("long-set", "smembers"),
        ("sorted", "zrange 0 -1 withscores"),
        ("long-sorted", "zrange 0 -1 withscores"),
        ("hash", "hgetall"),
        ("long-hash", "hgetall"),
        ("expiring", "hgetall"),
        ("expiring", "hpttl fields 3 a b c"),
        ("list", "object encoding"),
        ("long-set", "object encoding"),
        ("numbers", "object encoding"),
    ] {
        let payload = dump(door, key);
        assert_eq!(execute(door, &[b"restore", b"copy", b"0", &payload, b"replace"]), b"+OK\r\n");
        let shown = |door: &mut Door, key: &str| match show.split_once(' ') {
            Some(("object", word)) => door.said(&format!("object {word} {key}")),
            Some((command, words)) => door.said(&format!("{command} {key} {words}")),
            None => door.said(&format!("{show} {key}")),
        };
        assert_eq!(shown(door, "copy"), shown(door, key), "{key} {show}");
    }
    let before = dump(door, "expiring");
    door.pass(50);
    assert_eq!(execute(door, &[b"restore", b"copy", b"0", &before, b"replace"]), b"+OK\r\n");
    assert_eq!(door.said("hgetall copy"), "*4|$1|b|$1|2|$1|c|$1|3|");
    let field = Field { name: b"a".to_vec(), value: b"1".to_vec(), expires: Some(1) };
    let payload = Value::Hash(vec![field]).payload();
    assert_eq!(execute(door, &[b"restore", b"copy", b"0", &payload, b"replace"]), b"+OK\r\n");
    assert_eq!(door.said("exists copy"), ":0|");
}

#[test]
fn a_client_that_waits_gets_an_element_that_is_restored() {
    let mut door = Door::new();
    assert_eq!(door.said_to(2, "blpop l 0"), "");
    assert_eq!(restore(&mut door, "l", "0", b"\x01\x02\x01a\x01b", ""), "+OK|");
    assert_eq!(door.heard(2), "*2|$1|l|$1|a|");
    assert_eq!(door.said("lrange l 0 -1"), "*1|$1|b|");
}

#[test]
fn a_stream_is_restored_with_its_groups_and_times() {
    let door = &mut Door::new();
    door.said("xadd x 1-1 a 1 b two");
    door.said("xadd x 2-0 a 3 b 4");
    door.said("xadd x 5-7 c 5");
    door.said("xdel x 2-0");
    door.said("xgroup create x g 0");
    door.said("xreadgroup group g alice count 1 streams x >");
    door.pass(10);
    door.said("xreadgroup group g bob streams x >");
    door.said("xgroup createconsumer x g carol");
    door.said("xgroup create x other $ entriesread 2");
    let payload = dump(door, "x");
    door.pass(1000);
    let expiring: [&[u8]; 4] = [b"restore", b"copy", b"5000", &payload];
    assert_eq!(execute(door, &expiring), b"+OK\r\n");
    for line in [
        "xrange NAME - +",
        "xinfo stream NAME full",
        "xpending NAME g - + 10",
        "xpending NAME g",
        "xinfo groups NAME",
        "xinfo consumers NAME g",
    ] {
        let shown = |door: &mut Door, key| door.said(&line.replace("NAME", key));
        assert_eq!(shown(door, "copy"), shown(door, "x"), "{line}");
    }
    assert_eq!(door.said("pttl copy"), ":5000|");
    // The copy is a stream like any other: numbers of groups are not used twice.
    door.said("xgroup create copy third 0");
    assert!(door.said("xreadgroup group third dave count 1 streams copy >").contains("1-1"));
    assert_eq!(door.said("xack copy g 1-1 5-7"), ":2|");
    assert_eq!(door.said("xpending copy third").chars().take(6).collect::<String>(), "*4|:1|");
    assert_eq!(
        door.said("xadd copy 5-7 a b"),
        "-ERR The ID specified in XADD is equal or smaller \
         than the target stream top item|"
    );
    // A stream without entries stays one.
    door.said("xtrim x maxlen 0");
    let payload = dump(door, "x");
    assert_eq!(execute(door, &[b"restore", b"empty", b"0", &payload]), b"+OK\r\n");
    assert_eq!(door.said("type empty"), "+stream|");
    assert_eq!(door.said("xinfo stream empty full"), door.said("xinfo stream x full"));
}

#[test]
fn clients_that_wait_for_entries_get_those_of_a_restored_stream() {
    let mut door = Door::new();
    door.said("xadd y 1-1 a 1");
    let payload = dump(&mut door, "y");
    assert_eq!(door.said_to(2, "xread block 0 streams x 0"), "");
    assert_eq!(execute(&mut door, &[b"restore", b"x", b"0", &payload]), b"+OK\r\n");
    assert!(door.heard(2).contains("1-1"));
}

#[test]
fn a_dump_takes_little_memory_also_for_short_strings() {
    let small = || {
        let options = ServerOptions { reply_bytes_max: 10_000, ..ServerOptions::default() };
        Door::with(options)
    };
    let words = |count: usize, text: &dyn Fn(usize) -> String| -> String {
        (0..count).map(|it| format!(" {}", text(it))).collect()
    };
    let empty = |count| words(count, &|_| "\"\"".to_owned());
    let numbers = |count| words(count, &|it| it.to_string());
    let scored = |count| words(count, &|it| format!("1 {it}"));
    let refused = "-ERR The reply is too long. Ask for less at a time.|";
    for (line, is_too_long) in [
        (format!("rpush k{}", empty(500)), false),
        (format!("rpush k{}", empty(2000)), true),
        (format!("sadd k{}", numbers(500)), false),
        (format!("sadd k{}", numbers(2000)), true),
        (format!("zadd k{}", scored(500)), false),
        (format!("zadd k{}", scored(2000)), true),
        (format!("hset k{}", numbers(500)), false),
        (format!("hset k{}", numbers(2000)), true),
        (format!("xadd k *{}", empty(500)), false),
        (format!("xadd k *{}", empty(2000)), true),
    ] {
        let mut door = small();
        assert!(!door.said(&line).starts_with('-'), "{line}");
        assert_eq!(door.said("dump k") == refused, is_too_long, "{line:.20}");
    }
    // Groups, consumers and pending entries take memory, too.
    let tables: [(usize, &dyn Fn(usize) -> String); 3] = [
        (400, &|it| format!("xgroup create k {it} 0")),
        (400, &|it| format!("xgroup createconsumer k g {it}")),
        (400, &|_| "xadd k * a b\nxreadgroup group g c streams k >\nxtrim k maxlen 0".to_owned()),
    ];
    for (count, line) in tables {
        let mut door = small();
        door.said("xgroup create k g 0 mkstream");
        for it in 0..count {
            if it == 100 {
                assert!(door.said("dump k").starts_with('$'), "{}", line(0));
            }
            door.said(&line(it));
        }
        assert_eq!(door.said("dump k"), refused, "{}", line(0));
    }
}
