//! Keys: the replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn keys_are_deleted_and_counted() {
    Door::new().expect(&[
        ("mset a 1 b 2 c 3", "+OK|"),
        ("exists a b none a", ":3|"),
        ("touch a none", ":1|"),
        ("type a", "+string|"),
        ("type none", "+none|"),
        ("del a none a", ":1|"),
        ("unlink b b", ":1|"),
        ("dbsize", ":1|"),
        ("del", "-ERR wrong number of arguments for 'del' command|"),
        ("exists a", ":0|"),
        ("randomkey", "$1|c|"),
        ("del c", ":1|"),
        ("randomkey", "$-1|"),
    ]);
}

#[test]
fn keys_are_renamed_copied_and_moved() {
    Door::new().expect(&[
        ("rename none a", "-ERR no such key|"),
        ("renamenx none a", "-ERR no such key|"),
        ("setex a 100 1", "+OK|"),
        ("rename a b", "+OK|"),
        ("ttl b", ":100|"),
        ("rename b b", "+OK|"),
        ("renamenx b b", ":0|"),
        ("set c 2", "+OK|"),
        ("renamenx b c", ":0|"),
        ("renamenx b d", ":1|"),
        ("copy d d", "-ERR source and destination objects are the same|"),
        ("copy d c", ":0|"),
        ("copy d c replace", ":1|"),
        ("copy d c db x", "-ERR value is not an integer or out of range|"),
        ("copy d c db 99", "-ERR DB index is out of range|"),
        ("copy d c foo", "-ERR syntax error|"),
        ("copy d e db 3", ":1|"),
        ("copy d e db 3", ":0|"),
        ("copy none e db 3 replace", ":0|"),
        ("move d 0", "-ERR source and destination objects are the same|"),
        ("move d 99", "-ERR DB index is out of range|"),
        ("move d x", "-ERR value is not an integer or out of range|"),
        ("move none 1", ":0|"),
        ("move d 3", ":1|"),
        ("exists d", ":0|"),
        ("select 3", "+OK|"),
        ("dbsize", ":2|"),
        ("get e", "$1|1|"),
        ("ttl d", ":100|"),
        ("select 0", "+OK|"),
        ("swapdb 0 99", "-ERR DB index is out of range|"),
        ("swapdb x 1", "-ERR invalid first DB index|"),
        ("swapdb 1 x", "-ERR invalid second DB index|"),
        ("swapdb 0 3", "+OK|"),
        ("dbsize", ":2|"),
        ("get e", "$1|1|"),
        ("swapdb 0 0", "+OK|"),
    ]);
}

#[test]
fn keys_match_patterns() {
    Door::new().expect(&[
        ("mset \"\" v k1 1 k2 2 \"k\\\\\" 3", "+OK|"),
        ("keys k[", "*0|"),
        ("keys k[1-", "*1|$2|k1|"),
        ("keys k[^1\\\\]", "*1|$2|k2|"),
        ("keys k\\", "*1|$2|k\\|"),
        ("keys k\\\\", "*1|$2|k\\|"),
        ("keys \"\"", "*1|$0||"),
        ("keys none*", "*0|"),
        ("keys", "-ERR wrong number of arguments for 'keys' command|"),
    ]);
}

#[test]
fn keys_are_visited() {
    Door::new().expect(&[
        ("set a 1", "+OK|"),
        ("scan 0", "*2|$1|0|*1|$1|a|"),
        ("scan 0 match b* count 100", "*2|$1|0|*0|"),
        ("scan 0 match a type string", "*2|$1|0|*1|$1|a|"),
        ("scan 0 type hash count 100", "*2|$1|0|*0|"),
        ("scan +0", "*2|$1|0|*1|$1|a|"),
        ("scan -0", "*2|$1|0|*1|$1|a|"),
        ("scan \" 0\"", "*2|$1|0|*1|$1|a|"),
        ("scan +", "-ERR invalid cursor|"),
        ("swapdb 16 a", "-ERR invalid second DB index|"),
        ("swapdb 99999999999 0", "-ERR invalid first DB index|"),
        ("swapdb -1 0", "-ERR DB index is out of range|"),
        ("scan x", "-ERR invalid cursor|"),
        ("scan -1", "-ERR invalid cursor|"),
        ("scan \"\"", "-ERR invalid cursor|"),
        ("scan 18446744073709551616", "-ERR invalid cursor|"),
        ("scan 0 count 0", "-ERR syntax error|"),
        ("scan 0 count x", "-ERR value is not an integer or out of range|"),
        ("scan 0 match", "-ERR syntax error|"),
        ("scan 0 foo bar", "-ERR syntax error|"),
    ]);
}

#[test]
fn times_to_live_are_set_under_conditions() {
    Door::new().expect(&[
        ("set a 1", "+OK|"),
        ("expire a x", "-ERR value is not an integer or out of range|"),
        ("expire a 9223372036854775807", "-ERR invalid expire time in 'expire' command|"),
        ("pexpire a 9223372036854775807", "-ERR invalid expire time in 'pexpire' command|"),
        ("expire a 10 foo", "-ERR Unsupported option foo|"),
        (
            "expire a 10 nx xx",
            "-ERR NX and XX, GT or LT options at the same time are not compatible|",
        ),
        ("expire a 10 gt lt", "-ERR GT and LT options at the same time are not compatible|"),
        (
            "expire a 10 gt lt nx",
            "-ERR NX and XX, GT or LT options at the same time are not compatible|",
        ),
        ("expire none 10", ":0|"),
        ("expire a 10 gt", ":0|"),
        ("expire a 10 xx", ":0|"),
        ("expire a 10 nx", ":1|"),
        ("expire a 10 nx", ":0|"),
        ("expire a 5 gt", ":0|"),
        ("expire a 20 gt", ":1|"),
        ("ttl a", ":20|"),
        ("expire a 5 lt", ":1|"),
        ("ttl a", ":5|"),
        ("expire a 9 lt", ":0|"),
        ("persist a", ":1|"),
        ("persist a", ":0|"),
        ("persist none", ":0|"),
        ("ttl a", ":-1|"),
        ("expire a 5 lt", ":1|"),
        ("pexpireat a 9223372036854775807", ":1|"),
        ("pexpiretime a", ":9223372036854775807|"),
        ("expireat a 33177117420", ":1|"),
        ("expiretime a", ":33177117420|"),
        ("pexpiretime a", ":33177117420000|"),
        ("expire a -1", ":1|"),
        ("exists a", ":0|"),
        ("ttl a", ":-2|"),
        ("pttl a", ":-2|"),
        ("expiretime a", ":-2|"),
        ("set a 1", "+OK|"),
        ("ttl a", ":-1|"),
        ("pexpiretime a", ":-1|"),
        ("expire a -9223372036854775808", "-ERR invalid expire time in 'expire' command|"),
        ("expireat a 1", ":1|"),
        ("get a", "$-1|"),
    ]);
}

#[test]
fn values_have_forms() {
    Door::new().expect(&[
        ("set a 12345", "+OK|"),
        ("object encoding a", "$3|int|"),
        ("object refcount a", ":1|"),
        ("object freq a", "-ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.|"),
        ("object encoding none", "$-1|"),
        ("object freq none", "$-1|"),
        ("object idletime none", "$-1|"),
        ("object foo", "-ERR unknown subcommand 'foo'. Try OBJECT HELP.|"),
        ("object encoding", "-ERR wrong number of arguments for 'object|encoding' command|"),
        ("set b hello", "+OK|"),
        ("object encoding b", "$6|embstr|"),
        ("config set maxmemory-policy allkeys-lfu", "+OK|"),
        ("object freq a", ":0|"),
        ("object idletime a", "-ERR An LFU maxmemory policy is selected, idle time not tracked. Please note that when switching between policies at runtime LRU and LFU data will take some time to adjust.|"),
        ("config set maxmemory-policy noeviction", "+OK|"),
    ]);
}

#[test]
fn databases_are_emptied() {
    Door::new().expect(&[
        ("set a 1", "+OK|"),
        ("select 2", "+OK|"),
        ("set a 2", "+OK|"),
        ("flushdb foo", "-ERR syntax error|"),
        ("flushall async sync", "-ERR syntax error|"),
        ("flushdb async", "+OK|"),
        ("dbsize", ":0|"),
        ("select 0", "+OK|"),
        ("dbsize", ":1|"),
        ("flushall sync", "+OK|"),
        ("dbsize", ":0|"),
        ("select 99", "-ERR DB index is out of range|"),
        ("select -1", "-ERR DB index is out of range|"),
        ("select x", "-ERR value is not an integer or out of range|"),
    ]);
}

#[test]
fn nothing_has_to_be_waited_for() {
    Door::new().expect(&[
        ("wait x 1", "-ERR value is not an integer or out of range|"),
        ("wait 1 x", "-ERR timeout is not an integer or out of range|"),
        ("wait 1 -1", "-ERR timeout is negative|"),
        ("wait 0 1", ":0|"),
        (
            "waitaof 1 1 1",
            "-ERR WAITAOF cannot be used when numlocal is set but appendonly is disabled.|",
        ),
        ("waitaof 2 1 1", "-ERR value is out of range, value must between 0 and 1|"),
        ("waitaof x 1 1", "-ERR value is not an integer or out of range|"),
        ("waitaof 0 0 0", "*2|:0|:0|"),
        ("waitaof 0 0 9223372036854775807", "-ERR timeout is out of range|"),
        ("wait 0 9223372036854775807", "-ERR timeout is out of range|"),
    ]);
}
