//! Connections and the server: the replies are the ones of Redis 8.2.

use super::testing::{Door, text_of};
use crate::resp::ServerOptions;

#[test]
fn a_wrong_command_gets_the_error_of_redis() {
    Door::new().expect(&[
        ("foo a b", "-ERR unknown command 'foo', with args beginning with: 'a' 'b' |"),
        ("foo", "-ERR unknown command 'foo', with args beginning with: |"),
        ("FOO aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb b c", "-ERR unknown command 'FOO', with args beginning with: 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa' 'bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb' |"),
        ("\"fo\\x00o\" \"a\\x00b\"", "-ERR unknown command 'fo', with args beginning with: 'a' |"),
        ("\"fo\\r\\no\" a", "-ERR unknown command 'fo  o', with args beginning with: 'a' |"),
        ("get", "-ERR wrong number of arguments for 'get' command|"),
        ("client", "-ERR wrong number of arguments for 'client' command|"),
        ("client foo", "-ERR unknown subcommand 'foo'. Try CLIENT HELP.|"),
        ("client setname", "-ERR wrong number of arguments for 'client|setname' command|"),
        ("config get", "-ERR wrong number of arguments for 'config|get' command|"),
        ("sentinel masters", "-ERR unknown command 'sentinel', with args beginning with: 'masters' |"),
        ("PING", "+PONG|"),
        ("ping a", "$1|a|"),
        ("ping a b", "-ERR wrong number of arguments for 'ping' command|"),
        ("echo x", "$1|x|"),
        ("echo", "-ERR wrong number of arguments for 'echo' command|"),
    ]);
}

#[test]
fn the_connection_is_described_by_its_client() {
    Door::new().expect(&[
        ("client getname", "$-1|"),
        ("client setname \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters.|"),
        ("client setname x", "+OK|"),
        ("client getname", "$1|x|"),
        ("client setname \"\"", "+OK|"),
        ("client getname", "$-1|"),
        ("client setinfo lib-name foo", "+OK|"),
        ("client setinfo lib-ver \"1 2\"", "-ERR lib-ver cannot contain spaces, newlines or special characters.|"),
        ("client setinfo foo bar", "-ERR Unrecognized option 'foo'|"),
        ("client no-evict on", "+OK|"),
        ("client no-evict foo", "-ERR syntax error|"),
        ("client no-touch on", "+OK|"),
        ("client tracking off", "+OK|"),
        ("client tracking foo", "-ERR syntax error|"),
        ("client trackinginfo", "*6|$5|flags|*1|$3|off|$8|redirect|:-1|$8|prefixes|*0|"),
        ("client getredir", ":-1|"),
        ("client caching yes", "-ERR CLIENT CACHING can be called only when the client is in tracking mode with OPTIN or OPTOUT mode enabled|"),
        ("client maint_notifications on", "-ERR unknown subcommand 'maint_notifications'. Try CLIENT HELP.|"),
        ("client list type foo", "-ERR Unknown client type 'foo'|"),
        ("client list id x", "-ERR Invalid client ID|"),
        ("client list id 0", "$0||"),
        ("client list id -1 0", "$0||"),
        ("client list id", "-ERR syntax error|"),
        ("client list foo", "-ERR syntax error|"),
        ("client kill 1.2.3.4:5", "-ERR No such client|"),
        ("client kill id x", "-ERR client-id should be greater than 0|"),
        ("client kill type foo", "-ERR Unknown client type 'foo'|"),
        ("client kill foo bar", "-ERR syntax error|"),
        ("client kill addr 1.2.3.4:5 skipme foo", "-ERR syntax error|"),
        ("client kill addr 1.2.3.4:5 skipme yes", ":0|"),
        ("client kill user nouser", "-ERR No such user 'nouser'|"),
        ("client kill maxage 0", "-ERR maxage should be greater than 0|"),
        ("client unblock x", "-ERR value is not an integer or out of range|"),
        ("client unblock 10000", ":0|"),
        ("client unblock 10000 foo", "-ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR|"),
        ("client pause x", "-ERR timeout is not an integer or out of range|"),
        ("client pause 10 foo", "-ERR CLIENT PAUSE mode must be WRITE or ALL|"),
        ("client pause x foo", "-ERR CLIENT PAUSE mode must be WRITE or ALL|"),
        ("client pause 9223372036854775807", "-ERR timeout is out of range|"),
        (
            "client pause x foo x",
            "-ERR unknown subcommand or wrong number of arguments for 'pause'. Try CLIENT HELP.|",
        ),
        (
            "client unblock x foo x",
            "-ERR unknown subcommand or wrong number of arguments for 'unblock'. Try CLIENT HELP.|",
        ),
        ("client pause -1", "-ERR timeout is negative|"),
        ("auth foo", "-ERR AUTH <password> called without any password configured for the default user. Are you sure your configuration is correct?|"),
        ("auth a b", "-WRONGPASS invalid username-password pair or user is disabled.|"),
        ("auth default x", "+OK|"),
        ("auth a b c", "-ERR syntax error|"),
        ("hello 4", "-NOPROTO unsupported protocol version|"),
        ("hello x", "-ERR Protocol version is not an integer or out of range|"),
        ("hello 3 setname \"a b\"", "-ERR Client names cannot contain spaces, newlines or special characters.|"),
        ("hello 3 setname", "-ERR Syntax error in HELLO option 'setname'|"),
        ("hello 3 foo", "-ERR Syntax error in HELLO option 'foo'|"),
    ]);
}

#[test]
fn replies_can_be_switched_off() {
    Door::new().expect(&[
        ("client reply foo", "-ERR syntax error|"),
        ("client reply off", ""),
        ("ping", ""),
        ("client reply on", "+OK|"),
        ("client reply skip", ""),
        ("ping", ""),
        ("ping", "+PONG|"),
        ("client reply off", ""),
        ("client reply skip", ""),
        ("ping", ""),
        ("client reply on", "+OK|"),
        ("multi", "+OK|"),
        ("client reply skip", "+QUEUED|"),
        ("ping", "+QUEUED|"),
        ("exec", "*2|+PONG|"),
        ("ping", ""),
        ("ping", "+PONG|"),
        // Messages about channels are no replies.
        ("client reply off", ""),
        ("subscribe", ""),
        ("subscribe a", "*3|$9|subscribe|$1|a|:1|"),
        ("unsubscribe", "*3|$11|unsubscribe|$1|a|:0|"),
        ("ping", ""),
        ("client reply on", "+OK|"),
        ("client reply skip", ""),
        ("psubscribe a*", "*3|$10|psubscribe|$2|a*|:1|"),
        ("punsubscribe", "*3|$12|punsubscribe|$2|a*|:0|"),
        ("ping", "+PONG|"),
    ]);
}

#[test]
fn a_fixed_password_is_not_changed_by_clients() {
    let password = Some(b"secret".to_vec());
    let options = ServerOptions { may_set_password: false, password, ..ServerOptions::default() };
    let mut door = Door::with(options);
    door.expect(&[
        ("auth secret", "+OK|"),
        ("config set requirepass \"\"", "-ERR CONFIG SET failed (possibly related to argument 'requirepass') - it is an option of the servers: set server.redis_password alike for all|"),
        ("config get requirepass", "*2|$11|requirepass|$6|secret|"),
    ]);
    assert!(door.said("acl setuser default nopass").contains("server.redis_password"));
}

#[test]
fn settings_are_read_and_written() {
    Door::new().expect(&[
        ("config get maxmemory-policy", "*2|$16|maxmemory-policy|$10|noeviction|"),
        ("config get MAXMEMORY-pol*", "*2|$16|maxmemory-policy|$10|noeviction|"),
        ("config get none", "*0|"),
        ("config get slaveof replicaof", "*4|$9|replicaof|$0||$7|slaveof|$0||"),
        ("config set maxmemory 1 maxmemory 2", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - duplicate parameter|"),
        ("config set foo bar", "-ERR Unknown option or number of arguments for CONFIG SET - 'foo'|"),
        ("config set maxmemory-policy foo", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-policy') - argument(s) must be one of the following: volatile-lru, volatile-lfu, volatile-random, volatile-ttl, allkeys-lru, allkeys-lfu, allkeys-random, noeviction|"),
        ("config set maxmemory-policy allkeys-lru", "+OK|"),
        ("config get maxmemory-policy", "*2|$16|maxmemory-policy|$11|allkeys-lru|"),
        ("config set maxmemory-policy noeviction", "+OK|"),
        ("config set maxmemory x", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory') - argument must be a memory value|"),
        ("config set maxmemory 1 databases", "-ERR syntax error|"),
        ("config set maxmemory", "-ERR wrong number of arguments for 'config|set' command|"),
        ("config set maxmemory-samples 5 maxmemory-samples 5", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-samples') - duplicate parameter|"),
        ("config set maxmemory-samples x", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-samples') - argument couldn't be parsed into an integer|"),
        ("config set maxmemory-samples 0", "-ERR CONFIG SET failed (possibly related to argument 'maxmemory-samples') - argument must be between 1 and 64 inclusive|"),
        ("config set databases 5", "-ERR CONFIG SET failed (possibly related to argument 'databases') - can't set immutable config|"),
        ("config set loglevel foo", "-ERR CONFIG SET failed (possibly related to argument 'loglevel') - argument(s) must be one of the following: debug, verbose, notice, warning, nothing|"),
        ("config set activerehashing foo", "-ERR CONFIG SET failed (possibly related to argument 'activerehashing') - argument must be 'yes' or 'no'|"),
        ("config set notify-keyspace-events ExK$lg", "+OK|"),
        ("config get notify-keyspace-events", "*2|$22|notify-keyspace-events|$6|g$lxKE|"),
        ("config set notify-keyspace-events KEA", "+OK|"),
        ("config get notify-keyspace-events", "*2|$22|notify-keyspace-events|$3|AKE|"),
        ("config set notify-keyspace-events \"\"", "+OK|"),
        ("config set stream-node-max-bytes 5kb", "+OK|"),
        ("config get stream-node-max-bytes", "*2|$21|stream-node-max-bytes|$4|5120|"),
        ("config set stream-node-max-bytes 4096", "+OK|"),
        ("config rewrite", "-ERR The server is running without a config file|"),
        ("config resetstat", "+OK|"),
    ]);
}

#[test]
fn commands_are_described() {
    Door::new().expect(&[
        ("command info foo get", "*2|$-1|*10|$3|get|:2|*2|+readonly|+fast|:1|:1|:1|*3|+@read|+@string|+@fast|*0|*1|*6|$5|flags|*2|+RO|+access|$12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|$9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:0|$7|keystep|:1|$5|limit|:0|*0|"),
        ("command info config|get", "*1|*10|$10|config|get|:-3|*4|+admin|+noscript|+loading|+stale|:0|:0|:0|*3|+@admin|+@slow|+@dangerous|*0|*0|*0|"),
        ("command info mset", "*1|*10|$4|mset|:-3|*2|+write|+denyoom|:1|:-1|:2|*3|+@write|+@string|+@slow|*2|$26|request_policy:multi_shard|$29|response_policy:all_succeeded|*1|*6|$5|flags|*2|+OW|+update|$12|begin_search|*4|$4|type|$5|index|$4|spec|*2|$5|index|:1|$9|find_keys|*4|$4|type|$5|range|$4|spec|*6|$7|lastkey|:-1|$7|keystep|:2|$5|limit|:0|*0|"),
        ("command foo", "-ERR unknown subcommand 'foo'. Try COMMAND HELP.|"),
        ("command getkeys get a", "*1|$1|a|"),
        ("command getkeys mset a 1 b 2", "*2|$1|a|$1|b|"),
        ("command getkeys bitop and a b c", "*3|$1|a|$1|b|$1|c|"),
        ("command getkeys xread streams a b 0", "*1|$1|a|"),
        ("command getkeys client nosuch", "-ERR Invalid command specified|"),
        ("config get MaxMemory-Policy", "*2|$16|MaxMemory-Policy|$10|noeviction|"),
        ("config get maxm*-policy MAXMEMORY-POLICY", "*2|$16|maxmemory-policy|$10|noeviction|"),
        ("command getkeysandflags bitfield k get u8 0", "*1|*2|$1|k|*2|+RO|+access|"),
        ("command getkeysandflags bitfield k get u8 0 x", "*1|*2|$1|k|*3|+RW|+access|+update|"),
        ("memory usage k samples x 1", "-ERR value is not an integer or out of range|"),
        ("command getkeys ping", "-ERR The command has no key arguments|"),
        ("command getkeys foo", "-ERR Invalid command specified|"),
        ("command getkeys get", "-ERR Invalid number of arguments specified for command|"),
        ("command getkeysandflags set a b", "*1|*2|$1|a|*2|+OW|+update|"),
        ("command getkeysandflags set a b get", "*1|*2|$1|a|*3|+RW|+access|+update|"),
        ("command getkeysandflags copy a b", "*2|*2|$1|a|*2|+RO|+access|*2|$1|b|*2|+OW|+update|"),
        ("command getkeys sort a limit store 1 get store by w_* store b desc store c", "*2|$1|a|$1|c|"),
        ("command getkeys sort a store", "*1|$1|a|"),
        ("command getkeysandflags sort a STORE b", "*2|*2|$1|a|*2|+RO|+access|*2|$1|b|*2|+OW|+update|"),
        ("command getkeys sort_ro a store b", "*1|$1|a|"),
        ("command list filterby module foo", "*0|"),
        ("command list filterby pattern getb*", "*1|$6|getbit|"),
        ("command list filterby pattern GETB*", "*1|$6|getbit|"),
        ("command getkeys migrate host 1 a 0 1 keys b", "*1|$1|a|"),
        ("command list filterby foo", "-ERR syntax error|"),
        ("command docs foo", "*0|"),
    ]);
    let names = Door::new().said("command list");
    assert!(names.contains("|$3|set|") && names.contains("|$11|client|list|"), "{names}");
}

#[test]
fn other_commands_of_administration_answer() {
    Door::new().expect(&[
        ("role", "*3|$6|master|:0|*0|"),
        ("bgsave foo", "-ERR syntax error|"),
        ("memory usage none", "$-1|"),
        ("memory usage none samples x", "-ERR value is not an integer or out of range|"),
        ("memory usage none samples -1", "-ERR syntax error|"),
        ("memory purge", "+OK|"),
        ("latency latest", "*0|"),
        ("latency history foo", "*0|"),
        ("latency graph foo", "-ERR No samples available for event 'foo'|"),
        ("slowlog reset", "+OK|"),
        ("slowlog get -2", "-ERR count should be greater than or equal to -1|"),
        ("slowlog get x", "-ERR count should be greater than or equal to -1|"),
        ("debug sleep 0", "+OK|"),
        ("debug error READONLY-x", "-READONLY-x|"),
        (
            "debug error a b",
            "-ERR unknown subcommand or wrong number of arguments for 'error'. Try DEBUG HELP.|",
        ),
        ("debug object none", "-ERR no such key|"),
        ("set text bar", "+OK|"),
        (
            "debug object text",
            "+Value at:0x0 refcount:1 encoding:embstr serializedlength:4 lru:0 lru_seconds_idle:0|",
        ),
        (
            "debug foo",
            "-ERR unknown subcommand or wrong number of arguments for 'foo'. Try DEBUG HELP.|",
        ),
        ("cluster info", "-ERR This instance has cluster support disabled|"),
        ("cluster help", "-ERR This instance has cluster support disabled|"),
        ("cluster meet", "-ERR wrong number of arguments for 'cluster|meet' command|"),
        ("readonly", "-ERR This instance has cluster support disabled|"),
        ("replicaof no one", "+OK|"),
        ("slaveof NO ONE", "+OK|"),
    ]);
}

#[test]
fn migrate_names_its_keys_behind_keys_if_the_first_is_empty() {
    let mut door = Door::new();
    let words = ["host", "1", "", "0", "1"];
    let mut said = |more: &[&str]| {
        let all = ["command", "getkeysandflags", "migrate"].iter().chain(&words).chain(more);
        let strings = all.clone().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        let bytes = format!("*{}\r\n{}", all.count(), strings.collect::<String>());
        text_of(&door.replies(1, bytes.as_bytes()))
    };
    let flags = "*3|+RW|+access|+delete|";
    assert_eq!(said(&["keys", "a", "b"]), format!("*2|*2|$1|a|{flags}*2|$1|b|{flags}"));
    assert_eq!(said(&[]), "-ERR Invalid arguments specified for command|");
}
