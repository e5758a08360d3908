//! Bits: the replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn single_bits_are_written_and_read() {
    Door::new().expect(&[
        ("setbit a 1 2", "-ERR bit is not an integer or out of range|"),
        ("setbit a 1 x", "-ERR bit is not an integer or out of range|"),
        ("setbit a 4294967296 1", "-ERR bit offset is not an integer or out of range|"),
        ("setbit a x 1", "-ERR bit offset is not an integer or out of range|"),
        ("setbit a 7 1", ":0|"),
        ("setbit a 7 0", ":1|"),
        ("get a", "$1|\u{0}|"),
        ("setbit a 1 1", ":0|"),
        ("get a", "$1|@|"),
        ("setbit b 100 0", ":0|"),
        ("strlen b", ":13|"),
        ("getbit a x", "-ERR bit offset is not an integer or out of range|"),
        ("getbit a 1", ":1|"),
        ("getbit a 1000", ":0|"),
        ("getbit none 1", ":0|"),
    ]);
}

#[test]
fn bits_are_counted() {
    Door::new().expect(&[
        ("set a foobar", "+OK|"),
        ("bitcount a", ":26|"),
        ("bitcount a 0 0", ":4|"),
        ("bitcount a 1 1 byte", ":6|"),
        ("bitcount a 5 30 bit", ":17|"),
        ("bitcount a -5 -3 bit", ":1|"),
        ("bitcount a -100 100 bit", ":26|"),
        ("bitcount a 5 2", ":0|"),
        ("bitcount a 0", "-ERR syntax error|"),
        ("bitcount a x 1", "-ERR value is not an integer or out of range|"),
        ("bitcount a 0 1 foo", "-ERR syntax error|"),
        ("bitcount a 0 1 foo bar", "-ERR syntax error|"),
        ("bitcount none", ":0|"),
        ("bitcount none 0 foo", "-ERR value is not an integer or out of range|"),
    ]);
}

#[test]
fn the_first_bit_is_found() {
    Door::new().expect(&[
        ("set a foobar", "+OK|"),
        ("bitpos a 2", "-ERR The bit argument must be 1 or 0.|"),
        ("bitpos a z", "-ERR value is not an integer or out of range|"),
        ("bitpos a 1 x", "-ERR value is not an integer or out of range|"),
        ("bitpos a 0 1 2 foo", "-ERR syntax error|"),
        ("bitpos a 0 1 2 bit 5", "-ERR syntax error|"),
        ("bitpos none 0", ":0|"),
        ("bitpos none 1", ":-1|"),
        ("bitpos a 0 100", ":-1|"),
        ("bitpos a 1 100", ":-1|"),
        ("bitpos a 0 0 -1 BIT", ":0|"),
        ("bitpos a 1 3", ":25|"),
        ("bitpos a 1 3 5", ":25|"),
        ("bitpos a 1 3 50 bit", ":5|"),
        ("setrange ff 0 \"\\xff\\xff\"", ":2|"),
        ("bitpos ff 0", ":16|"),
        ("bitpos ff 0 0", ":16|"),
        ("bitpos ff 0 1", ":16|"),
        ("bitpos ff 0 2", ":-1|"),
        ("bitpos ff 0 0 -1", ":-1|"),
        ("bitpos ff 0 8 15 bit", ":-1|"),
        ("bitpos ff 1 8 15 bit", ":8|"),
        ("bitpos ff 1 2 1", ":-1|"),
    ]);
}

#[test]
fn strings_are_combined() {
    Door::new().expect(&[
        ("set a foobar", "+OK|"),
        ("set b abc", "+OK|"),
        ("bitop foo d a", "-ERR syntax error|"),
        ("bitop not d a b", "-ERR BITOP NOT must be called with a single source key.|"),
        ("bitop diff d a", "-ERR BITOP DIFF must be called with at least two source keys.|"),
        ("bitop or d", "-ERR wrong number of arguments for 'bitop' command|"),
        ("bitop and d a b", ":6|"),
        ("get d", "$6|`bc\u{0}\u{0}\u{0}|"),
        ("bitop and d a b none", ":6|"),
        ("get d", "$6|\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}|"),
        ("bitop or d a b", ":6|"),
        ("get d", "$6|goobar|"),
        ("bitop xor d a b b a a", ":6|"),
        ("get d", "$6|foobar|"),
        ("bitop not d b", ":3|"),
        ("get d", "$3|\u{9e}\u{9d}\u{9c}|"),
        ("bitop diff d a b", ":6|"),
        ("get d", "$6|\u{6}\r\u{c}bar|"),
        ("bitop diff1 d a b", ":6|"),
        ("get d", "$6|\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}|"),
        ("bitop andor d a b", ":6|"),
        ("get d", "$6|`bc\u{0}\u{0}\u{0}|"),
        ("bitop one d a b a", ":6|"),
        ("get d", "$6|\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}|"),
        ("bitop one d a", ":6|"),
        ("bitop and d none none", ":0|"),
        ("exists d", ":0|"),
    ]);
}

#[test]
fn integers_of_any_width_are_read_and_written() {
    Door::new().expect(&[
        ("bitfield a get u64 0", "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|"),
        ("bitfield a get i65 0", "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|"),
        ("bitfield a get u0 1", "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|"),
        ("bitfield a get x8 1", "-ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but i64 is.|"),
        ("bitfield a get u8 x", "-ERR bit offset is not an integer or out of range|"),
        ("bitfield a get u8 -1", "-ERR bit offset is not an integer or out of range|"),
        ("bitfield a set u8 0", "-ERR syntax error|"),
        ("bitfield a incrby u8 0 x", "-ERR value is not an integer or out of range|"),
        ("bitfield a foo u8 0", "-ERR syntax error|"),
        ("bitfield a overflow foo", "-ERR Invalid OVERFLOW type specified|"),
        ("bitfield a overflow", "-ERR syntax error|"),
        ("bitfield_ro a set u8 0 1", "-ERR BITFIELD_RO only supports the GET subcommand|"),
        ("bitfield_ro a get u8 0 overflow sat", "*1|:0|"),
        ("bitfield none get u8 0", "*1|:0|"),
        ("exists none", ":0|"),
        ("bitfield a", "*0|"),
        ("bitfield a set u8 0 255 get u8 0 incrby u8 0 10 overflow sat incrby u8 0 250 overflow fail incrby u8 0 250", "*5|:0|:255|:9|:255|$-1|"),
        ("bitfield a set i64 #1 -5 get i64 64 incrby i64 64 -9223372036854775807", "*3|:0|:-5|:9223372036854775804|"),
        ("bitfield a overflow sat incrby i64 64 9223372036854775807", "*1|:9223372036854775807|"),
        ("bitfield a overflow sat incrby i8 0 -300", "*1|:-128|"),
        ("bitfield a overflow fail set i8 0 -300", "*1|$-1|"),
        ("bitfield a overflow sat set i8 0 300 set u8 0 300 set u8 0 -3", "*3|:-128|:127|:255|"),
        ("bitfield a set u8 0 -3 get u8 0 set i5 3 17 get i5 3", "*4|:255|:253|:-3|:-15|"),
        ("bitfield a overflow fail set u8 0 -3", "*1|$-1|"),
        ("bitfield a incrby u63 0 9223372036854775807", "*1|:8682940081570316287|"),
        ("bitfield a incrby u63 0 -9223372036854775807", "*1|:8682940081570316288|"),
        ("bitfield_ro a get u4 0 get u4 4", "*2|:15|:1|"),
    ]);
}
