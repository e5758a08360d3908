//! Commands about the groups of a stream.

use super::ServerOptions;
use super::testing::{BEGIN_MS, Door};

const INVALID: &str = "-ERR Invalid stream ID specified as stream command argument|";
const NOT_AN_INTEGER: &str = "-ERR value is not an integer or out of range|";
const SYNTAX: &str = "-ERR syntax error|";
const WRONG_TYPE: &str = "-WRONGTYPE Operation against a key holding the wrong kind of value|";
const NO_STREAM: &str = "-ERR The XGROUP subcommand requires the key to exist. Note that for CREATE \
                         you may want to use the MKSTREAM option to create an empty stream \
                         automatically.|";

/// Returns a door with a stream `s` of six entries, which the groups `g` and `h` have not read.
fn door() -> Door {
    let mut door = Door::new();
    for number in 1..=6 {
        door.said(&format!("xadd s {number}-1 f v{number}"));
    }
    door.said("xgroup create s g 0\nxgroup create s h 0\nset x 1");
    door
}

/// Returns an entry of that stream.
fn entry(number: u64) -> String {
    format!("*2|$3|{number}-1|*2|$1|f|$2|v{number}|")
}

/// Returns the reply to a read of some entries.
fn read(numbers: &[u64]) -> String {
    let entries: String = numbers.iter().map(|number| entry(*number)).collect();
    format!("*1|*2|$1|s|*{}|{entries}", numbers.len())
}

/// Returns the reply to `XPENDING` of some entries: number, consumer, idle time, deliveries.
fn pending(entries: &[(u64, &str, u64, u64)]) -> String {
    let shown = |(number, consumer, idle, count): &(u64, &str, u64, u64)| {
        format!("*4|$3|{number}-1|${}|{consumer}|:{idle}|:{count}|", consumer.len())
    };
    format!("*{}|{}", entries.len(), entries.iter().map(shown).collect::<String>())
}

fn no_group(key: &str, group: &str) -> String {
    format!("-NOGROUP No such key '{key}' or consumer group '{group}'|")
}

#[test]
fn groups_are_made_and_destroyed() {
    let unknown = |name: &str| {
        format!(
            "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try XGROUP HELP.|"
        )
    };
    let not_positive = "-ERR value for ENTRIESREAD must be positive or -1|";
    let no_group = "-NOGROUP No such consumer group 'no' for key name 's'|";
    Door::new().expect(&[
        ("xgroup create s g $", NO_STREAM),
        ("xgroup create s g x mkstream", INVALID),
        ("xgroup create s g - mkstream", INVALID),
        ("xgroup create s g 0 foo", &unknown("create")),
        ("xgroup CREATE s g $ entriesread", &unknown("CREATE")),
        ("xgroup create s g $ entriesread -2", not_positive),
        ("xgroup create s g $ entriesread x", NOT_AN_INTEGER),
        ("exists s", ":0|"),
        ("xgroup create s g 5 mkstream", "+OK|"),
        ("xgroup create s g 5 mkstream", "-BUSYGROUP Consumer Group name already exists|"),
        ("xgroup create s h $ mkstream entriesread 1 mkstream", &unknown("create")),
        ("xgroup create s h $ entriesread -1", "+OK|"),
        ("set x 1", "+OK|"),
        ("xgroup create x g $ mkstream", WRONG_TYPE),
        ("xgroup setid s g 5", "+OK|"),
        ("xgroup setid s g $ entriesread 3", "+OK|"),
        ("xgroup setid s no 5", no_group),
        ("xgroup setid s g 5 mkstream", &unknown("setid")),
        ("xgroup setid s g 5 entriesread -5", not_positive),
        ("xgroup setid s g 5 entriesread 1 entriesread 1", &unknown("setid")),
        ("xgroup setid none g x", NO_STREAM),
        ("xgroup setid s g x", INVALID),
        ("xgroup createconsumer s g c", ":1|"),
        ("xgroup createconsumer s g c", ":0|"),
        ("xgroup createconsumer s no c", no_group),
        ("xgroup createconsumer none g c", NO_STREAM),
        ("xgroup createconsumer x g c", WRONG_TYPE),
        ("xgroup delconsumer s g c", ":0|"),
        ("xgroup delconsumer s g c", ":0|"),
        ("xgroup delconsumer s no c", no_group),
        ("xgroup destroy s g", ":1|"),
        ("xgroup destroy s g", ":0|"),
        ("xgroup destroy none g", NO_STREAM),
        ("xgroup foo", "-ERR unknown subcommand 'foo'. Try XGROUP HELP.|"),
        ("xgroup create s g", "-ERR wrong number of arguments for 'xgroup|create' command|"),
    ]);
}

#[test]
fn entries_are_delivered_once_to_a_group() {
    let mut door = door();
    let meaningless = |sign: &str| {
        format!(
            "-ERR The {sign} ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The {sign} ID would just return an empty result set.|"
        )
    };
    let no_group = |key: &str, group: &str| {
        format!(
            "-NOGROUP No such key '{key}' or consumer group '{group}' in XREADGROUP with GROUP \
             option|"
        )
    };
    door.expect(&[
        ("xreadgroup group g c streams none >", &no_group("none", "g")),
        ("xreadgroup group no c streams s >", &no_group("s", "no")),
        ("xreadgroup group g c streams s none > >", &no_group("none", "g")),
        ("xreadgroup group g c streams x >", WRONG_TYPE),
        ("xreadgroup group g c streams s $", &meaningless("$")),
        ("xreadgroup group g c streams s +", &meaningless("+")),
        ("xreadgroup group g c streams s x", INVALID),
        ("xreadgroup group g c streams s -", INVALID),
        ("xreadgroup block 5 count 1 streams s >", "-ERR Missing GROUP option for XREADGROUP|"),
        (
            "xreadgroup group g c streams a b >",
            "-ERR Unbalanced 'xreadgroup' list of streams: for each stream key an ID or '>' must \
             be specified.|",
        ),
        ("xreadgroup group g c block 5 count 1 foo", SYNTAX),
        ("xreadgroup foo g c streams s >", SYNTAX),
        ("xinfo consumers s g", "*0|"),
        ("xreadgroup group g c count 1 noack streams s >", &read(&[1])),
        ("xpending s g", "*4|:0|$-1|$-1|*-1|"),
        ("xreadgroup group g c count 2 streams s >", &read(&[2, 3])),
        ("xreadgroup group g d count 1 streams s >", &read(&[4])),
        ("xreadgroup group h d streams s >", &read(&[1, 2, 3, 4, 5, 6])),
        ("xreadgroup group h d streams s >", "*-1|"),
        ("xreadgroup group g d streams s >", &read(&[5, 6])),
        ("xreadgroup group g c streams s 0", &read(&[2, 3])),
        ("xreadgroup group g c streams s 2-1", &read(&[3])),
        ("xreadgroup group g c count 1 streams s 0", &read(&[2])),
        ("xreadgroup group g new streams s 0", "*1|*2|$1|s|*0|"),
        ("xdel s 2-1", ":1|"),
        ("xreadgroup group g c streams s 0", &format!("*1|*2|$1|s|*2|*2|$3|2-1|*-1|{}", entry(3))),
        ("xpending s g - + 2", &pending(&[(2, "c", 0, 3), (3, "c", 0, 4)])),
    ]);
    door.said("hello 3");
    door.expect(&[
        ("xreadgroup group g c count 1 streams s 2-1", &format!("%1|$1|s|*1|{}", entry(3))),
        ("xreadgroup group g c count 1 streams s 0", "%1|$1|s|*1|*2|$3|2-1|_|"),
        ("xreadgroup group h d streams s >", "_|"),
    ]);
}

#[test]
fn a_group_that_is_set_back_takes_entries_from_their_consumers() {
    let mut door = door();
    door.expect(&[
        ("xreadgroup group g c count 2 streams s >", &read(&[1, 2])),
        ("xreadgroup group g c streams s 0", &read(&[1, 2])),
        ("xgroup setid s g 1-1", "+OK|"),
        ("xreadgroup group g d count 1 streams s >", &read(&[2])),
        ("xpending s g - + 9", &pending(&[(1, "c", 0, 2), (2, "d", 0, 1)])),
        ("xpending s g - + 9 c", &pending(&[(1, "c", 0, 2)])),
        ("xgroup delconsumer s g d", ":1|"),
        ("xpending s g - + 9", &pending(&[(1, "c", 0, 2)])),
    ]);
}

#[test]
fn entries_are_acknowledged() {
    let mut door = door();
    door.expect(&[
        ("xreadgroup group g c count 3 streams s >", &read(&[1, 2, 3])),
        ("xack s g 1-1 1-1 9-9", ":1|"),
        ("xack s g 2-1 x", INVALID),
        ("xack s no x", ":0|"),
        ("xack none g x", ":0|"),
        ("xack x g 1-1", WRONG_TYPE),
        ("xpending s g - + 9", &pending(&[(2, "c", 0, 1), (3, "c", 0, 1)])),
        ("xack s g 2 2-1 3-1", ":2|"),
        ("xpending s g - + 9", "*0|"),
        ("xlen s", ":6|"),
    ]);
}

#[test]
fn pending_entries_are_shown() {
    let mut door = door();
    door.said("xreadgroup group g c count 2 streams s >");
    door.pass(10);
    door.said("xreadgroup group g d count 2 streams s >");
    door.pass(5);
    let all = [(1, "c", 15, 1), (2, "c", 15, 1), (3, "d", 5, 1), (4, "d", 5, 1)];
    door.expect(&[
        ("xpending s g", "*4|:4|$3|1-1|$3|4-1|*2|*2|$1|c|$1|2|*2|$1|d|$1|2|"),
        ("xpending s g - + 9", &pending(&all)),
        ("xpending s g - + 3", &pending(&all[..3])),
        ("xpending s g (1-1 3 9", &pending(&all[1..3])),
        ("xpending s g - + 9 d", &pending(&all[2..])),
        ("xpending s g - + 1 d", &pending(&all[2..3])),
        ("xpending s g - (4-1 9 d", &pending(&all[2..3])),
        ("xpending s g - + 9 none", "*0|"),
        ("xpending s g idle 10 - + 9", &pending(&all[..2])),
        ("xpending s g idle 10 - + 1 c", &pending(&all[..1])),
        ("xpending s g idle 10 - + 9 d", "*0|"),
        ("xpending s g - + 0", "*0|"),
        ("xpending s g - + -5", "*0|"),
        ("xpending s g - +", SYNTAX),
        ("xpending s g idle 0 - +", SYNTAX),
        ("xpending s g idle x - + 9", NOT_AN_INTEGER),
        ("xpending s g - + x", NOT_AN_INTEGER),
        ("xpending s g x + 9", INVALID),
        ("xpending s no", &no_group("s", "no")),
        ("xpending none g - + 9", &no_group("none", "g")),
        ("xpending x g", WRONG_TYPE),
    ]);
}

#[test]
fn entries_are_claimed() {
    let mut door = door();
    door.said("xreadgroup group g c count 3 streams s >");
    door.pass(100);
    let one = |number: u64| format!("*1|{}", entry(number));
    door.expect(&[
        ("xclaim s g d 101 1-1", "*0|"),
        ("xclaim s g d 100 1-1", &one(1)),
        ("xclaim s g d 100 1-1", "*0|"),
        ("xclaim s g d 0 2-1 justid", "*1|$3|2-1|"),
        ("xclaim s g d 0 9-9", "*0|"),
        ("xclaim s g d 0 9-9 force", "*0|"),
        ("xclaim s g d 0 5-1", "*0|"),
        ("xclaim s g d 0 5-1 force justid", "*1|$3|5-1|"),
        ("xclaim s g d 0 6-1 force", &one(6)),
        ("xclaim s g d 0 5-1 retrycount 7 idle 30", &one(5)),
        (
            "xpending s g - + 9",
            &pending(&[
                (1, "d", 0, 2),
                (2, "d", 0, 1),
                (3, "c", 100, 1),
                (5, "d", 30, 7),
                (6, "d", 0, 2),
            ]),
        ),
        ("xclaim s g d 0 5-1 retrycount -1 time 0", &one(5)),
        ("xpending s g 5-1 5-1 9", &format!("*1|*4|$3|5-1|$1|d|:{}|:8|", BEGIN_MS + 100)),
        // Times that make no sense are now.
        ("xclaim s g d 0 5-1 idle -5 justid", "*1|$3|5-1|"),
        ("xpending s g 5-1 5-1 9", &pending(&[(5, "d", 0, 8)])),
        ("xclaim s g d 0 5-1 time -5 justid", "*1|$3|5-1|"),
        ("xdel s 3-1", ":1|"),
        ("xclaim s g d 0 3-1", "*0|"),
        ("xpending s g 3-1 3-1 9", "*0|"),
        ("xclaim s g d 0 5-1 lastid 6-1 justid", "*1|$3|5-1|"),
        ("xreadgroup group g c streams s >", "*-1|"),
        ("xclaim s g d x 5-1", "-ERR Invalid min-idle-time argument for XCLAIM|"),
        ("xclaim s g d -5 5-1 justid", "*1|$3|5-1|"),
        ("xclaim s g d 0 5-1 idle x", "-ERR Invalid IDLE option argument for XCLAIM|"),
        ("xclaim s g d 0 5-1 time x", "-ERR Invalid TIME option argument for XCLAIM|"),
        ("xclaim s g d 0 5-1 retrycount x", "-ERR Invalid RETRYCOUNT option argument for XCLAIM|"),
        ("xclaim s g d 0 5-1 lastid x", INVALID),
        ("xclaim s g d 0 5-1 idle", "-ERR Unrecognized XCLAIM option 'idle'|"),
        ("xclaim s g d 0 x", "-ERR Unrecognized XCLAIM option 'x'|"),
        ("xclaim s g d 0 justid", "*0|"),
        ("xclaim s no d 0 x", &no_group("s", "no")),
        ("xclaim none g d 0 x", &no_group("none", "g")),
        ("xclaim x g d 0 x", WRONG_TYPE),
    ]);
}

#[test]
fn idle_entries_are_claimed_in_order() {
    let mut door = door();
    door.said("xreadgroup group g c count 3 streams s >");
    door.pass(50);
    door.said("xreadgroup group g d count 3 streams s >\nxdel s 2-1");
    let positive = "-ERR COUNT must be > 0|";
    door.expect(&[
        ("xautoclaim s g z 51 - count 2", "*3|$3|0-0|*0|*1|$3|2-1|"),
        ("xautoclaim s g z 50 -", &format!("*3|$3|0-0|*2|{}{}*0|", entry(1), entry(3))),
        ("xautoclaim s g z 0 (1-1 count 1", &format!("*3|$3|4-1|*1|{}*0|", entry(3))),
        ("xautoclaim s g z 0 4 count 2 justid", "*3|$3|6-1|*2|$3|4-1|$3|5-1|*0|"),
        (
            "xpending s g - + 9",
            &pending(&[
                (1, "z", 0, 2),
                (3, "z", 0, 3),
                (4, "z", 0, 1),
                (5, "z", 0, 1),
                (6, "d", 0, 1),
            ]),
        ),
        ("xautoclaim s g z x 0", "-ERR Invalid min-idle-time argument for XAUTOCLAIM|"),
        ("xautoclaim s g z 0 x", INVALID),
        ("xautoclaim s g z 0 0 count 0", positive),
        ("xautoclaim s g z 0 0 count x", positive),
        ("xautoclaim s g z 0 0 count 9223372036854775807", positive),
        ("xautoclaim s g z 0 0 count", SYNTAX),
        ("xautoclaim s g z 0 0 foo", SYNTAX),
        ("xautoclaim s no z 0 0", &no_group("s", "no")),
        ("xautoclaim none g z 0 0", &no_group("none", "g")),
        ("xautoclaim x g z 0 0", WRONG_TYPE),
    ]);
}

#[test]
fn entries_are_deleted_with_their_references() {
    let mut door = door();
    let count = "-ERR Number of IDs must be a positive integer|";
    let match_ = "-ERR The `numids` parameter must match the number of arguments|";
    door.expect(&[
        // Unread entries are in use.
        ("xdelex s acked ids 1 1-1", "*1|:2|"),
        ("xreadgroup group g c count 3 streams s >", &read(&[1, 2, 3])),
        ("xreadgroup group h c count 2 streams s >", &read(&[1, 2])),
        ("xack s g 1-1", ":1|"),
        ("xdelex s acked ids 2 1-1 2-1", "*2|:2|:2|"),
        ("xack s h 1-1", ":1|"),
        ("xdelex s acked ids 2 1-1 9-9", "*2|:1|:2|"),
        ("xackdel s g acked ids 1 2-1", "*1|:2|"),
        ("xackdel s h acked ids 2 2-1 2-1", "*2|:1|:-1|"),
        ("xdel s 3-1", ":1|"),
        ("xackdel s g ids 1 3-1", "*1|:1|"),
        ("xackdel s g keepref ids 1 3-1", "*1|:-1|"),
        ("xlen s", ":3|"),
    ]);
    door.said("xreadgroup group g c streams s >\nxreadgroup group h c streams s >");
    door.expect(&[
        ("xdelex s delref ids 1 4-1", "*1|:1|"),
        ("xdelex s keepref ids 2 5-1 5-1", "*2|:1|:-1|"),
        ("xpending s g - + 9", &pending(&[(5, "c", 0, 1), (6, "c", 0, 1)])),
        ("xackdel s g delref ids 1 6-1", "*1|:1|"),
        ("xpending s h - + 9", &pending(&[(5, "c", 0, 1)])),
        ("xdelex s ids 1 5-1 keepref", "*1|:-1|"),
        ("xdelex s acked ids 1 5-1", "*1|:2|"),
        ("xdelex s delref ids 1 5-1", "*1|:-1|"),
        ("xpending s h - + 9", "*0|"),
        ("xdelex s acked ids 1 5-1", "*1|:-1|"),
        ("xdelex s ids 2 5-1", match_),
        ("xdelex s ids 0 5-1", count),
        ("xdelex s ids x 5-1", count),
        ("xdelex s ids 1 5-1 6-1", SYNTAX),
        ("xdelex s ids 1 x", INVALID),
        ("xdelex s keepref delref ids 1 5-1", SYNTAX),
        ("xdelex s foo ids 1 5-1", SYNTAX),
        ("xdelex s keepref acked 1 5-1", SYNTAX),
        ("xdelex none ids 2 x x", "*2|:-1|:-1|"),
        ("xdelex x ids 1 x", WRONG_TYPE),
        ("xackdel s no ids 1 x", "*1|:-1|"),
        ("xackdel none g ids 1 x", "*1|:-1|"),
        ("xackdel x g ids 1 1-1", WRONG_TYPE),
        ("xackdel s g foo ids 1 1-1", SYNTAX),
        ("xackdel s g ids 2 x", match_),
    ]);
}

#[test]
fn trimming_respects_references() {
    let mut door = door();
    door.expect(&[
        ("xtrim s maxlen 2 acked", ":0|"),
        ("xreadgroup group g c count 3 streams s >", &read(&[1, 2, 3])),
        ("xreadgroup group h c count 3 streams s >", &read(&[1, 2, 3])),
        ("xack s g 1-1 2-1", ":2|"),
        ("xack s h 2-1 3-1", ":2|"),
        ("xtrim s maxlen 2 acked", ":1|"),
        ("xrange s - + count 2", &format!("*2|{}{}", entry(1), entry(3))),
        ("xtrim s maxlen = 0 acked", ":0|"),
        ("xtrim s minid 3-1 delref", ":1|"),
        ("xpending s h", "*4|:0|$-1|$-1|*-1|"),
        ("xpending s g - + 9", &pending(&[(3, "c", 0, 1)])),
        ("xadd s delref maxlen 2 7-1 a b", "$3|7-1|"),
        ("xpending s g - + 9", "*0|"),
        ("xlen s", ":2|"),
    ]);
}

#[test]
fn groups_are_described() {
    let mut door = door();
    let group = |name: &str, consumers: u64, pending: u64, last: &str, read: &str, lag: &str| {
        format!(
            "*12|$4|name|$1|{name}|$9|consumers|:{consumers}|$7|pending|:{pending}|\
             $17|last-delivered-id|$3|{last}|$12|entries-read|{read}|$3|lag|{lag}|"
        )
    };
    let unread = group("h", 0, 0, "0-0", "$-1", ":6");
    let with = |g: &str| format!("*2|{g}{unread}");
    door.expect(&[
        ("xinfo groups none", "-ERR no such key|"),
        ("xinfo groups x", WRONG_TYPE),
        ("xinfo groups s", &with(&group("g", 0, 0, "0-0", "$-1", ":6"))),
        ("xreadgroup group g c count 2 streams s >", &read(&[1, 2])),
        ("xinfo groups s", &with(&group("g", 1, 2, "2-1", ":2", ":4"))),
        ("xgroup setid s g 3-1", "+OK|"),
        ("xinfo groups s", &with(&group("g", 1, 2, "3-1", "$-1", "$-1"))),
        ("xgroup setid s g $", "+OK|"),
        ("xinfo groups s", &with(&group("g", 1, 2, "6-1", "$-1", ":0"))),
        ("xgroup setid s g 0 entriesread 2", "+OK|"),
        ("xinfo groups s", &with(&group("g", 1, 2, "0-0", ":2", ":6"))),
        ("xgroup setid s g $ entriesread 9", "+OK|"),
        ("xinfo groups s", &with(&group("g", 1, 2, "6-1", ":6", ":0"))),
        ("xgroup setid s g 2-1", "+OK|"),
        ("xinfo consumers none g", "-ERR no such key|"),
        ("xinfo consumers s no", "-NOGROUP No such consumer group 'no' for key name 's'|"),
        ("xinfo foo", "-ERR unknown subcommand 'foo'. Try XINFO HELP.|"),
    ]);
    door.pass(9);
    door.expect(&[
        ("xreadgroup group g c streams s 0", &read(&[1, 2])),
        ("xinfo consumers s g", "*1|*8|$4|name|$1|c|$7|pending|:2|$4|idle|:0|$8|inactive|:9|"),
    ]);
}

#[test]
fn a_stream_is_described_in_full() {
    let mut door = Door::new();
    door.said("xadd s 1-1 f v\nxgroup create s g 0\nxreadgroup group g c streams s >");
    door.said("xgroup createconsumer s g d");
    let wrong = |name: &str| {
        format!(
            "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try XINFO HELP.|"
        )
    };
    let now = BEGIN_MS;
    let head = "$6|length|:1|$15|radix-tree-keys|:1|$16|radix-tree-nodes|:2|\
                $17|last-generated-id|$3|1-1|$20|max-deleted-entry-id|$3|0-0|\
                $13|entries-added|:1|$23|recorded-first-entry-id|$3|1-1|\
                $7|entries|*1|*2|$3|1-1|*2|$1|f|$1|v|$6|groups|*1|";
    let group = format!(
        "$4|name|$1|g|$17|last-delivered-id|$3|1-1|$12|entries-read|:1|$3|lag|:0|\
         $9|pel-count|:1|$7|pending|*1|*4|$3|1-1|$1|c|:{now}|:1|$9|consumers|*2|"
    );
    let consumers = [
        format!(
            "$4|name|$1|c|$9|seen-time|:{now}|$11|active-time|:{now}|$9|pel-count|:1|\
             $7|pending|*1|*3|$3|1-1|:{now}|:1|"
        ),
        format!(
            "$4|name|$1|d|$9|seen-time|:{now}|$11|active-time|:-1|$9|pel-count|:0|$7|pending|*0|"
        ),
    ];
    let two = format!("*18|{head}*14|{group}*10|{}*10|{}", consumers[0], consumers[1]);
    let three = format!("%9|{head}%7|{group}%5|{}%5|{}", consumers[0], consumers[1]);
    door.expect(&[
        ("xinfo stream s full", &two),
        ("xinfo stream s FULL COUNT -1", &two),
        ("xinfo stream s full count 0", &two),
        ("xinfo stream s full count x", NOT_AN_INTEGER),
        ("xinfo STREAM s full count", &wrong("STREAM")),
        ("xinfo stream s foo", &wrong("stream")),
        ("xinfo stream none foo", "-ERR no such key|"),
        ("set x 1", "+OK|"),
        ("xinfo stream x foo", WRONG_TYPE),
    ]);
    door.said("hello 3");
    door.expect(&[("xinfo stream s full", &three)]);
}

#[test]
fn errors_show_names_up_to_a_byte_of_zero() {
    let mut door = door();
    door.expect(&[
        ("xpending s \"n\\x00o\"", &no_group("s", "n")),
        ("xclaim s g c 0 \"1\\x00o\" \"n\\x00o\"", "-ERR Unrecognized XCLAIM option 'n'|"),
        ("xgroup setid s \"n\\x00o\" 0", "-NOGROUP No such consumer group 'n' for key name 's'|"),
    ]);
}

#[test]
fn help_lists_the_subcommands() {
    let mut door = Door::new();
    assert!(door.said("xgroup help").starts_with("*13|+XGROUP <subcommand>"));
    assert!(door.said("xinfo help").starts_with("*9|+XINFO <subcommand>"));
}

#[test]
fn a_group_is_set_to_the_bounds_of_ranges() {
    let mut door = door();
    door.expect(&[
        ("xgroup setid s g +", "+OK|"),
        ("xreadgroup group g c streams s >", "*-1|"),
        ("xgroup setid s g -", "+OK|"),
        ("xreadgroup group g c count 1 streams s >", &read(&[1])),
    ]);
}

#[test]
fn a_reply_that_names_streams_again_and_again_is_bounded() {
    let options = ServerOptions { reply_bytes_max: 1000, ..ServerOptions::default() };
    let mut door = Door::with(options);
    door.said(&format!("xadd s 1-1 f {}\nxgroup create s g 0", "v".repeat(300)));
    let error = "-ERR The reply is too long. Ask for less at a time.|";
    let (names, ids) = ("s ".repeat(5), "0 ".repeat(5));
    assert_eq!(door.said(&format!("xread streams {names}{ids}")), error);
    door.said("xreadgroup group g c streams s >");
    assert_eq!(door.said(&format!("xreadgroup group g c streams {names}{ids}")), error);
    assert_eq!(door.said(&format!("xclaim s g c 0 {}", "1-1 ".repeat(5))), error);
}
