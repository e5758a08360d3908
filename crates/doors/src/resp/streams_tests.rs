//! Commands about the entries of a stream.

use super::ServerOptions;
use super::store::{PAGES, Store};
use super::testing::{BEGIN_MS, Door};
use std::collections::BTreeSet;

const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument|";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range|";
const SYNTAX: &str = "-ERR syntax error|";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
const SMALLER: &str =
    "-ERR The ID specified in XADD is equal or smaller than the target stream top item|";

/// Returns the number of pages, with the owner records and the counter of ids.
fn pages(door: &mut Door) -> usize {
    door.store.objects(PAGES).unwrap() as usize
}

#[test]
fn entries_are_added_with_rising_ids() {
    let mut door = Door::new();
    let zero = "-ERR The ID specified in XADD must be greater than 0-0|";
    let exhausted = "-ERR The stream has exhausted the last possible ID, unable to add more items|";
    let max = "18446744073709551615";
    door.expect(&[
        ("xadd s * a", "-ERR wrong number of arguments for 'xadd' command|"),
        ("xadd s 1-1 a b c", "-ERR wrong number of arguments for 'xadd' command|"),
        ("xadd s 0-0 a b", zero),
        ("xadd s 0 a b", zero),
        ("xadd s abc a b", INVALID),
        ("xadd s - a b", INVALID),
        ("xadd s + a b", INVALID),
        ("xadd s $ a b", INVALID),
        ("xadd s 18446744073709551616 a b", INVALID),
        ("xadd s 1-18446744073709551616 a b", INVALID),
        ("exists s", ":0|"),
        ("xadd s 1-1 a b", "$3|1-1|"),
        ("xadd s 1-1 a b", SMALLER),
        ("xadd s 0-5 a b", SMALLER),
        ("xadd s 01-1 a b", SMALLER),
        ("xadd s 1-* a b", "$3|1-2|"),
        ("xadd s 0-* a b", SMALLER),
        ("xadd s 5 a b", "$3|5-0|"),
        ("xadd new 0-* a b", "$3|0-1|"),
        ("xlen s", ":3|"),
        ("xlen none", ":0|"),
        (&format!("xadd m {max}-{max} a b"), &format!("$41|{max}-{max}|")),
        ("xadd m * a b", exhausted),
        ("xadd m 1-1 a b", exhausted),
        ("xadd n 5-18446744073709551615 a b", "$22|5-18446744073709551615|"),
        ("xadd n 5-* a b", SMALLER),
        ("set x 1", "+OK|"),
        ("xadd x 1-1 a b", WRONG_TYPE),
        ("xadd x no a b", INVALID),
        ("xlen x", WRONG_TYPE),
        ("type s", "+stream|"),
        ("object encoding s", "$6|stream|"),
        ("scan 0 type stream", "*2|$1|0|*4|$1|m|$1|n|$3|new|$1|s|"),
        ("sort s", WRONG_TYPE),
    ]);
}

#[test]
fn an_automatic_id_is_the_time_and_never_goes_back() {
    let mut door = Door::new();
    let id = |ms: u64, number: u64| format!("$15|{ms}-{number}|");
    assert_eq!(door.said("xadd s * a b"), id(BEGIN_MS, 0));
    assert_eq!(door.said("xadd s * a b"), id(BEGIN_MS, 1));
    door.pass(1);
    assert_eq!(door.said("xadd s * a b"), id(BEGIN_MS + 1, 0));
    let next = format!("{}-18446744073709551615", BEGIN_MS + 9);
    door.said(&format!("xadd s {next} a b"));
    assert_eq!(door.said("xadd s * a b"), id(BEGIN_MS + 10, 0));
}

#[test]
fn xadd_trims() {
    let compatible = "-ERR syntax error, MAXLEN and MINID options at the same time are not \
                      compatible|";
    let special = "-ERR syntax error, LIMIT cannot be used without the special ~ option|";
    let strategy =
        "-ERR syntax error, LIMIT cannot be used without specifying a trimming strategy|";
    Door::new().expect(&[
        ("xadd s NOMKSTREAM 1-1 a b", "$-1|"),
        ("xadd s NOMKSTREAM MAXLEN -1 1-1 a b", "-ERR The MAXLEN argument must be >= 0.|"),
        ("xadd s MAXLEN x 1-1 a b", NOT_AN_INTEGER),
        ("xadd s MAXLEN = 5 LIMIT 5 1-1 a b", special),
        ("xadd s MAXLEN 5 LIMIT 0 1-1 a b", special),
        ("xadd s MAXLEN ~ 5 LIMIT -5 1-1 a b", "-ERR The LIMIT argument must be >= 0.|"),
        ("xadd s MAXLEN ~ 5 LIMIT x 1-1 a b", NOT_AN_INTEGER),
        ("xadd s MAXLEN ~ 5 MINID ~ 5 1-1 a b", compatible),
        ("xadd s MAXLEN 5 MAXLEN 6 1-1 a b", compatible),
        ("xadd s LIMIT 6 1-1 a b", strategy),
        ("xadd s MINID x 1-1 a b", INVALID),
        ("xadd s MINID 5-* 1-1 a b", INVALID),
        ("xadd s KEEPREF DELREF 1-2 a b", INVALID),
        ("xadd s MAXLEN 5 a b", INVALID),
        ("exists s", ":0|"),
        ("xadd s nomkstream keepref maxlen 5 1-1 a b", "$-1|"),
        ("xadd s KEEPREF 1-1 a b", "$3|1-1|"),
        ("xadd s NOMKSTREAM 2-1 a b", "$3|2-1|"),
        ("xadd s MAXLEN = 2 3-1 a b", "$3|3-1|"),
        ("xadd s MAXLEN ~ 1 4-1 a b", "$3|4-1|"),
        ("xlen s", ":3|"),
        ("xadd s MINID 4 5-1 a b", "$3|5-1|"),
        ("xlen s", ":2|"),
        ("xadd s MAXLEN 0 6-1 a b", "$3|6-1|"),
        ("xlen s", ":0|"),
        ("exists s", ":1|"),
        ("xadd s 6-1 a b", SMALLER),
    ]);
}

#[test]
fn xtrim_removes_the_oldest_entries() {
    let mut door = Door::new();
    for number in 1..=250 {
        door.said(&format!("xadd s {number}-1 f v"));
    }
    door.expect(&[
        ("xtrim s NOMKSTREAM MAXLEN 5", SYNTAX),
        ("xtrim s KEEPREF DELREF", SYNTAX),
        ("xtrim s MAXLEN 5 LIMIT", SYNTAX),
        ("xtrim s MAXLEN 5 x", SYNTAX),
        ("xtrim s a b", SYNTAX),
        ("xtrim s MAXLEN ~", NOT_AN_INTEGER),
        (
            "xtrim s KEEPREF LIMIT 0",
            "-ERR syntax error, XTRIM must be called with a trimming strategy|",
        ),
        ("xtrim none MAXLEN 5", ":0|"),
        ("xtrim none MAXLEN -5", "-ERR The MAXLEN argument must be >= 0.|"),
        ("set x 1", "+OK|"),
        ("xtrim x MAXLEN 5", WRONG_TYPE),
        // Approximate trims remove a hundred entries at a time.
        ("xtrim s MAXLEN ~ 20 LIMIT 50", ":0|"),
        ("xtrim s MAXLEN ~ 20 LIMIT 150", ":100|"),
        ("xtrim s MAXLEN ~ 60", ":0|"),
        ("xtrim s MINID ~ 150", ":0|"),
        ("xtrim s MINID ~ 220", ":100|"),
        ("xtrim s MINID = 220", ":19|"),
        ("xlen s", ":31|"),
        ("xtrim s MAXLEN 30", ":1|"),
        ("xtrim s MAXLEN 30", ":0|"),
        ("xrange s - + COUNT 1", "*1|*2|$5|221-1|*2|$1|f|$1|v|"),
        ("xtrim s MAXLEN ~ 0", ":30|"),
        ("xlen s", ":0|"),
    ]);
}

#[test]
fn a_range_of_entries_is_read_in_both_directions() {
    let mut door = Door::new();
    door.said("xadd s 1-1 a b\nxadd s 1-2 c d e f\nxadd s 2-1 g h");
    let (one, two, three) =
        ("*2|$3|1-1|*2|$1|a|$1|b|", "*2|$3|1-2|*4|$1|c|$1|d|$1|e|$1|f|", "*2|$3|2-1|*2|$1|g|$1|h|");
    let max = "(18446744073709551615-18446744073709551615";
    door.expect(&[
        ("xrange s - +", &format!("*3|{one}{two}{three}")),
        ("xrevrange s + -", &format!("*3|{three}{two}{one}")),
        ("xrange s 1 1", &format!("*2|{one}{two}")),
        ("xrange s (1-1 +", &format!("*2|{two}{three}")),
        ("xrange s - (1-2", &format!("*1|{one}")),
        ("xrange s (1 (2", &format!("*3|{one}{two}{three}")),
        ("xrange s - + COUNT 2", &format!("*2|{one}{two}")),
        ("xrevrange s + - COUNT 2", &format!("*2|{three}{two}")),
        ("xrange s - + COUNT 1 COUNT 9", &format!("*3|{one}{two}{three}")),
        ("xrange s - + COUNT 0", "*-1|"),
        ("xrange s - + COUNT -5", "*-1|"),
        ("xrange s + -", "*0|"),
        ("xrevrange s (1-2 (1-1", "*0|"),
        ("xrange s (- +", INVALID),
        ("xrange s $ +", INVALID),
        ("xrange s 1-* +", INVALID),
        ("xrange s - (0-0", "-ERR invalid end ID for the interval|"),
        (&format!("xrange s {max} +"), "-ERR invalid start ID for the interval|"),
        ("xrange s - + COUNT", SYNTAX),
        ("xrange s - + COUNT x", NOT_AN_INTEGER),
        ("xrange s - + FOO 1", SYNTAX),
        ("xrange none - x", INVALID),
        ("xrange none - + COUNT 0", "*0|"),
        ("set x 1", "+OK|"),
        ("xrange x - +", WRONG_TYPE),
    ]);
}

#[test]
fn xdel_deletes_and_a_stream_stays_without_entries() {
    let mut door = Door::new();
    door.said("xadd s 1-1 a b\nxadd s 2-1 a b\nxadd s 3-1 a b");
    door.expect(&[
        ("xdel s 1-1 x", INVALID),
        ("xlen s", ":3|"),
        ("xdel none x", ":0|"),
        ("xdel s 2-1 2-1 9-9", ":1|"),
        ("xdel s 1 3-1 1-1", ":2|"),
        ("xlen s", ":0|"),
        ("exists s", ":1|"),
        ("xrange s - +", "*0|"),
        ("set x 1", "+OK|"),
        ("xdel x 1", WRONG_TYPE),
        ("del s", ":1|"),
        ("xadd s 1-1 a b", "$3|1-1|"),
    ]);
}

#[test]
fn xsetid_keeps_the_history_possible() {
    let mut door = Door::new();
    door.said("xadd s 10-1 a b\nxadd s 10-2 a b\nxadd s 10-3 a b\nxdel s 10-2");
    door.expect(&[
        (
            "xsetid s 5-5",
            "-ERR The ID specified in XSETID is smaller than current max_deleted_entry_id|",
        ),
        (
            "xsetid s 10-2",
            "-ERR The ID specified in XSETID is smaller than the target stream top item|",
        ),
        ("xsetid s 20-2 ENTRIESADDED -1", "-ERR entries_added must be positive|"),
        ("xsetid s 20-2 ENTRIESADDED x", NOT_AN_INTEGER),
        (
            "xsetid s 20-2 ENTRIESADDED 1",
            "-ERR The entries_added specified in XSETID is smaller than the target stream length|",
        ),
        (
            "xsetid s 20-2 ENTRIESADDED 9 MAXDELETEDID 30-1",
            "-ERR The ID specified in XSETID is smaller than the provided max_deleted_entry_id|",
        ),
        ("xsetid s 20-2 MAXDELETEDID", SYNTAX),
        ("xsetid s 20-2 FOO 1", SYNTAX),
        ("xsetid none 20-2", "-ERR no such key|"),
        ("xsetid none x", INVALID),
        ("set x 1", "+OK|"),
        ("xsetid x 1", WRONG_TYPE),
        ("xsetid s 25-5 ENTRIESADDED 90 MAXDELETEDID 10-1", "+OK|"),
        ("xadd s 25-5 a b", SMALLER),
    ]);
    assert_eq!(
        door.said("xinfo stream s"),
        "*20|$6|length|:2|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|$17|last-generated-id|\
         $4|25-5|$20|max-deleted-entry-id|$4|10-1|$13|entries-added|:90|\
         $23|recorded-first-entry-id|$4|10-1|$6|groups|:0|$11|first-entry|\
         *2|$4|10-1|*2|$1|a|$1|b|$10|last-entry|*2|$4|10-3|*2|$1|a|$1|b|"
    );
}

#[test]
fn xread_returns_the_entries_behind_ids() {
    let mut door = Door::new();
    door.said("xadd s 1-1 a b\nxadd s 2-1 a b\nxadd t 1-1 a b\nset x 1");
    let entry = |id: &str| format!("*2|$3|{id}|*2|$1|a|$1|b|");
    let (one, two) = (entry("1-1"), entry("2-1"));
    let only = |option: &str| {
        format!(
            "-ERR The {option} option is only supported by XREADGROUP. You called XREAD instead.|"
        )
    };
    door.expect(&[
        ("xread streams s 0", &format!("*1|*2|$1|s|*2|{one}{two}")),
        ("xread count 1 streams s none t 0 0 0", &format!("*2|*2|$1|s|*1|{one}*2|$1|t|*1|{one}")),
        ("xread count -1 streams s 1-1", &format!("*1|*2|$1|s|*1|{two}")),
        ("xread streams s +", &format!("*1|*2|$1|s|*1|{two}")),
        ("xread streams none +", "*-1|"),
        ("xread streams s $", "*-1|"),
        ("xread streams s 9", "*-1|"),
        ("xread streams s 18446744073709551615-18446744073709551615", "*-1|"),
        (
            "xread streams s t 0",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must \
             be specified.|",
        ),
        (
            "xread streams s >",
            "-ERR The > ID can be specified only when calling XREADGROUP using the GROUP <group> \
             <consumer> option.|",
        ),
        ("xread count x streams s 0", NOT_AN_INTEGER),
        ("xread block x streams s 0", "-ERR timeout is not an integer or out of range|"),
        ("xread block 1.5 streams s 0", "-ERR timeout is not an integer or out of range|"),
        ("xread block -1 streams s 0", "-ERR timeout is negative|"),
        ("xread block 9223372036854775807 streams s 0", "-ERR timeout is out of range|"),
        ("xread noack streams s 0", &only("NOACK")),
        ("xread group g c streams s 0", &only("GROUP")),
        ("xread streams x 0", WRONG_TYPE),
        ("xread streams s x", INVALID),
        ("xread streams s 1-*", INVALID),
        ("xread foo s 0", SYNTAX),
        ("xread s 0 0", SYNTAX),
        ("xread count 1 block 0", SYNTAX),
        ("xread count 1 streams", SYNTAX),
    ]);
    door.said("hello 3");
    door.expect(&[
        ("xread streams s t 1-1 0", &format!("%2|$1|s|*1|{two}$1|t|*1|{one}")),
        ("xread streams s 2-1", "_|"),
        ("xrange s - + COUNT 0", "_|"),
    ]);
}

#[test]
fn keys_of_a_stream_can_be_copied_and_moved() {
    let mut door = Door::new();
    for number in 1..=200 {
        door.said(&format!("xadd s {number}-1 field value"));
    }
    door.said("xgroup create s g 0\nxreadgroup group g c count 150 streams s >");
    door.expect(&[
        ("copy s t", ":1|"),
        ("rename s u", "+OK|"),
        ("xack t g 1-1 2-1", ":2|"),
        ("xdel t 3-1", ":1|"),
        ("xlen u", ":200|"),
        ("xlen t", ":199|"),
        ("xpending u g - + 1", "*1|*4|$3|1-1|$1|c|:0|:1|"),
        ("xpending t g - + 1", "*1|*4|$3|3-1|$1|c|:0|:1|"),
        ("move t 1", ":1|"),
        ("select 1", "+OK|"),
        ("xlen t", ":199|"),
        ("xadd t 300 a b", "$5|300-0|"),
    ]);
}

#[test]
fn a_deleted_stream_leaves_no_pages() {
    let mut door = Door::new();
    for number in 1..=2000 {
        door.said(&format!("xadd s {number}-1 field value"));
    }
    door.said("xgroup create s g 0\nxreadgroup group g c streams s >");
    assert!(pages(&mut door) > 100);
    assert_eq!(door.said("del s"), ":1|");
    for _ in 0..1000 {
        door.server.sweep(&mut door.store, 100, &mut crate::resp::Output::default());
    }
    assert_eq!(pages(&mut door), 1, "only the counter of ids stays");
}

#[test]
fn appended_entries_fill_pages_and_cost_few_objects() {
    let mut door = Door::new();
    for number in 1..=10_000 {
        door.said(&format!("xadd s {number}-1 field value"));
    }
    // 17 bytes of key, 14 of entry, one length.
    let bytes = 10_000 * (17 + 14 + 1);
    let pages = pages(&mut door);
    assert!(pages * 1024 < bytes * 12 / 10, "{pages} pages for {bytes} bytes");
    let before: BTreeSet<String> = door.store.content().into_iter().collect();
    door.said("xadd s 20000-1 field value");
    let written = door.store.content().iter().filter(|line| !before.contains(*line)).count();
    assert!(written <= 4, "{written} objects");
}

#[test]
fn an_entry_that_is_too_long_is_refused() {
    let mut door = Door::with(ServerOptions { value_bytes_max: 4096, ..ServerOptions::default() });
    let long = "x".repeat(4090);
    assert_eq!(
        door.said(&format!("xadd s 1-1 a {long}")),
        "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|"
    );
    assert_eq!(door.said("exists s"), ":0|");
    let fits = "x".repeat(4000);
    assert_eq!(door.said(&format!("xadd s 1-1 a {fits}\nxlen s")), "$3|1-1|:1|");
    let group = "g".repeat(1100);
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    assert_eq!(door.said(&format!("xgroup create s {group} 0")), refused);
    assert_eq!(
        door.said(&format!("xgroup create s g 0\nxreadgroup group g {group} streams s >")),
        format!("+OK|{refused}")
    );
}

#[test]
fn xread_does_not_wait_in_a_transaction() {
    Door::new().expect(&[
        ("multi", "+OK|"),
        ("xread block 0 streams s $", "+QUEUED|"),
        ("xadd s 1-1 a b", "+QUEUED|"),
        ("xread block 0 streams s 0", "+QUEUED|"),
        ("exec", "*3|*-1|$3|1-1|*1|*2|$1|s|*1|*2|$3|1-1|*2|$1|a|$1|b|"),
    ]);
}

#[test]
fn a_watched_stream_stops_a_transaction() {
    let mut door = Door::new();
    door.said("xadd s 1-1 a b\nwatch s");
    door.said_to(2, "xadd s 2-1 a b");
    assert_eq!(door.said("multi\nxlen s\nexec"), "+OK|+QUEUED|*-1|");
}

#[test]
fn keys_of_reads_are_found() {
    Door::new().expect(&[
        ("command getkeys xread count 1 streams a b 0 0", "*2|$1|a|$1|b|"),
        ("command getkeys xreadgroup group g c streams a >", "*1|$1|a|"),
        ("command getkeys xadd a * f v", "*1|$1|a|"),
    ]);
}
