//! Tests of the cluster port.

use super::testing::Door;
use super::{Node, Nodes, Port, slot_of};

fn node(part: u32, is_up: bool) -> Option<Node> {
    let (host, port) = ("10.0.0.1".to_owned(), 7000 + part as u16);
    Some(Node { id: format!("{part:040x}"), host, port, is_up })
}

/// A server with part 1 of three, and client 1 at a port of it.
fn door(port: Port) -> Door {
    let mut door = Door::new();
    let nodes = vec![node(0, true), node(1, true), node(2, false)];
    door.server.set_nodes(Nodes::new(1, nodes).unwrap());
    assert_eq!(door.said("ping"), "+PONG|");
    door.server.set_port(1, port);
    door
}

// Part 0 ends with slot 5460, and part 1 with slot 10921.
const FIRST: &str = "bar";
const OWN: &str = "{1}";
const LAST: &str = "foo";

#[test]
fn the_keys_of_these_tests_are_in_three_parts() {
    let slots = [FIRST, OWN, LAST].map(|key| slot_of(key.as_bytes()));
    assert_eq!(slots, [5061, 9842, 12182]);
}

#[test]
fn a_key_of_another_part_leads_to_its_node() {
    let mut door = door(Port::Cluster);
    door.expect(&[
        ("set {1} 1", "+OK|"),
        ("get {1}", "$1|1|"),
        ("get bar", "-MOVED 5061 10.0.0.1:7000|"),
        ("set bar 1", "-MOVED 5061 10.0.0.1:7000|"),
        ("get foo", "-CLUSTERDOWN Hash slot not served|"),
        ("mget {1} bar", "-CROSSSLOT Keys in request don't hash to the same slot|"),
        ("mset {1}a 1 {1}b 2", "+OK|"),
        ("mget {1}b {1}a", "*2|$1|2|$1|1|"),
        ("eval \"return redis.call('get',KEYS[1])\" 1 {1}", "$1|1|"),
        ("eval return(1) 1 bar", "-MOVED 5061 10.0.0.1:7000|"),
        ("xread streams bar 0", "-MOVED 5061 10.0.0.1:7000|"),
        ("sort {1}l store bar", "-CROSSSLOT Keys in request don't hash to the same slot|"),
        ("georadius {1} 1 1 1 m store bar", {
            "-CROSSSLOT Keys in request don't hash to the same slot|"
        }),
        // A key and a consumer may have the name of an option.
        ("georadius bar 1 1 1 m STORE STOREDIST", {
            "-CROSSSLOT Keys in request don't hash to the same slot|"
        }),
        ("xreadgroup group g STREAMS STREAMS bar >", "-MOVED 5061 10.0.0.1:7000|"),
        // Without known keys there is no slot.
        ("zunion x bar", "-ERR Invalid arguments specified for command|"),
        ("dbsize", ":3|"),
        // The command's own error, as it has no keys.
        ("eval x", "-ERR wrong number of arguments for 'eval' command|"),
    ]);
}

#[test]
fn runs_end_before_a_key_of_another_part() {
    let mut door = door(Port::Cluster);
    let all = |command: &str, keys: &[&str]| -> String {
        let value = if command == "SET" { "$1\r\nv\r\n" } else { "" };
        let count = if command == "SET" { 3 } else { 2 };
        let one = |key: &&str| {
            format!("*{count}\r\n$3\r\n{command}\r\n${}\r\n{key}\r\n{value}", key.len())
        };
        keys.iter().map(one).collect()
    };
    let mut said = |bytes: String| super::testing::text_of(&door.replies(1, bytes.as_bytes()));
    let moved = "-MOVED 5061 10.0.0.1:7000|";
    assert_eq!(said(all("SET", &[OWN, FIRST, OWN])), format!("+OK|{moved}+OK|"));
    assert_eq!(said(all("GET", &[OWN, OWN, FIRST])), format!("$1|v|$1|v|{moved}"));
}

#[test]
fn a_transaction_has_keys_of_one_slot() {
    let mut door = door(Port::Cluster);
    let cross_slot = "-CROSSSLOT Keys in request don't hash to the same slot|";
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    // A key that is wrong by itself breaks the transaction when it is queued.
    assert_eq!(
        door.said("multi\nget bar\nexec"),
        format!("+OK|-MOVED 5061 10.0.0.1:7000|{aborted}")
    );
    assert_eq!(door.said("multi\nmget {1} bar\nexec"), format!("+OK|{cross_slot}{aborted}"));
    // Two slots of this node: only EXEC knows.
    let other = (0..).map(|number| format!("{{{number}}}")).find(|key| {
        let slot = slot_of(key.as_bytes());
        (5461..=10921).contains(&slot) && slot != slot_of(b"{1}")
    });
    let lines = format!("multi\nset {{1}} 1\nset {} 1\nexec", other.unwrap());
    assert_eq!(door.said(&lines), format!("+OK|+QUEUED|+QUEUED|{cross_slot}"));
    assert_eq!(door.said("exec\ndbsize"), "-ERR EXEC without MULTI|:0|");
    assert_eq!(door.said("multi\nset {1}a 1\nset {1}b 1\nexec"), "+OK|+QUEUED|+QUEUED|*2|+OK|+OK|");
}

#[test]
fn a_script_uses_only_keys_of_its_node() {
    for port in [Port::Plain, Port::Cluster] {
        let mut door = door(port);
        let said = door.said("eval \"redis.call('set','bar',1)\" 0");
        assert!(
            said.contains("Script attempted to access a non local key in a cluster node"),
            "{said}"
        );
        assert_eq!(door.said("eval \"return redis.call('set','{1}',1)\" 0\ndbsize"), "+OK|:1|");
    }
}

#[test]
fn sort_refuses_patterns_that_may_name_keys_elsewhere() {
    let mut door = door(Port::Cluster);
    let text = "option of SORT denied in cluster mode when keys formed by the pattern may be in different slots.|";
    door.expect(&[
        ("rpush {1} 2 1", ":2|"),
        ("sort {1} by w_*", &format!("-ERR BY {text}")),
        ("sort {1} get w_*", &format!("-ERR GET {text}")),
        ("sort {1} by {1}w_* get # get {1}v_*", "*4|$1|1|$-1|$1|2|$-1|"),
        ("sort {1} by nosort", "*2|$1|2|$1|1|"),
    ]);
}

#[test]
fn the_cluster_port_has_one_database() {
    let mut door = door(Port::Cluster);
    door.expect(&[
        ("select 0", "+OK|"),
        ("select 1", "-ERR SELECT is not allowed in cluster mode|"),
        ("move {1} 1", "-ERR MOVE is not allowed in cluster mode|"),
        ("swapdb 0 1", "-ERR SWAPDB is not allowed in cluster mode|"),
        ("set {1} 1", "+OK|"),
        ("copy {1} {1}b db 1", "-ERR DB index is out of range|"),
        ("config get cluster-enabled", "*2|$15|cluster-enabled|$3|yes|"),
        ("readonly\nreadwrite\nasking", "+OK|+OK|+OK|"),
    ]);
    let info = door.said("info server cluster");
    assert!(info.contains("redis_mode:cluster|") && info.contains("cluster_enabled:1|"), "{info}");
    assert!(door.said("hello").contains("|mode|$7|cluster|"));
    // It stays a client of that port.
    assert_eq!(door.said("reset\nselect 1"), "+RESET|-ERR SELECT is not allowed in cluster mode|");
}

#[test]
fn the_nodes_are_told_with_their_slots() {
    let mut door = door(Port::Cluster);
    let id = |part: u32| format!("$40|{part:040x}|");
    let slots = |part: u32, first: u16, last: u16| {
        format!("*3|:{first}|:{last}|*4|$8|10.0.0.1|:{}|{}*0|", 7000 + part, id(part))
    };
    let all = [slots(0, 0, 5460), slots(1, 5461, 10921), slots(2, 10922, 16383)].concat();
    assert_eq!(door.said("cluster slots"), format!("*3|{all}"));
    let shards = door.said("cluster shards");
    assert!(shards.starts_with("*3|*4|$5|slots|*2|:0|:5460|$5|nodes|*1|*14|$2|id|"), "{shards}");
    assert!(shards.contains("$6|health|$4|fail|"), "{shards}");
    let nodes = door.said("cluster nodes");
    let line =
        format!("{:040x} 10.0.0.1:7001@0 myself,master - 0 0 5461 connected 5461-10921\n", 1);
    assert!(nodes.contains(&line), "{nodes}");
    assert!(nodes.contains(":7002@0 master,fail - "), "{nodes}");
    let info = door.said("cluster info");
    assert!(
        info.contains("cluster_state:fail|") && info.contains("cluster_slots_ok:10922|"),
        "{info}"
    );
    door.expect(&[
        ("cluster myid", &id(1)),
        ("cluster keyslot foo", ":12182|"),
        ("cluster links", "*0|"),
        ("cluster replicas x", "-ERR Unknown node x|"),
        ("cluster meet 10.0.0.2 7000", "-ERR Thunderhead manages the slots and nodes by itself|"),
        ("cluster foo", "-ERR unknown subcommand 'foo'. Try CLUSTER HELP.|"),
        ("mset {1}a 1 {1}b 2", "+OK|"),
        ("cluster countkeysinslot 9842", ":2|"),
        ("cluster countkeysinslot 5061", ":0|"),
        ("cluster countkeysinslot 16384", "-ERR Invalid slot|"),
        ("cluster getkeysinslot 9842 0", "*0|"),
    ]);
    assert!(door.said("cluster getkeysinslot 9842 1").starts_with("*1|$4|{1}"));
}

#[test]
fn a_forwarded_client_is_led_to_the_nodes_own_port() {
    let mut door = door(Port::Forwarded);
    door.expect(&[
        ("get {1}", "-MOVED 9842 10.0.0.1:7001|"),
        ("get bar", "-MOVED 5061 10.0.0.1:7000|"),
        ("ping", "+PONG|"),
        ("dbsize", ":0|"),
    ]);
    let get = b"*2\r\n$3\r\nGET\r\n$3\r\n{1}\r\n";
    let said = super::testing::text_of(&door.replies(1, get));
    assert_eq!(said, "-MOVED 9842 10.0.0.1:7001|");
}

#[test]
fn a_client_of_the_plain_port_uses_the_keys_of_the_part() {
    let mut door = door(Port::Plain);
    door.expect(&[
        ("set {1} 1", "+OK|"),
        ("select 1", "+OK|"),
        ("swapdb 0 1", "+OK|"),
        ("get {1}", "$1|1|"),
        ("cluster slots", "-ERR This instance has cluster support disabled|"),
    ]);
    for line in ["get bar", "mget {1} bar", "multi\nget foo\ndiscard"] {
        let said = door.said(line);
        assert!(
            said.contains("-CROSSSLOT ") && said.contains("in another part of the keys"),
            "{said}"
        );
    }
}
