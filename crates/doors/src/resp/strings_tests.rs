//! Strings: the replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn set_takes_all_its_options() {
    Door::new().expect(&[
        ("set a 1", "+OK|"),
        ("set a", "-ERR wrong number of arguments for 'set' command|"),
        ("set a b ex", "-ERR syntax error|"),
        ("set a b ex 0", "-ERR invalid expire time in 'set' command|"),
        ("set a b ex x", "-ERR value is not an integer or out of range|"),
        ("set a b ex 9223372036854775807", "-ERR invalid expire time in 'set' command|"),
        ("set a b nx xx", "-ERR syntax error|"),
        ("set a b nx get", "$1|1|"),
        ("set a b nx", "$-1|"),
        ("set a b keepttl ex 1", "-ERR syntax error|"),
        ("set a b ex 1 px 2", "-ERR syntax error|"),
        ("set new b nx get", "$-1|"),
        ("set new c xx get", "$1|b|"),
        ("set none b xx get", "$-1|"),
        ("set none b xx", "$-1|"),
        ("set a 1 exat 1", "+OK|"),
        ("get a", "$-1|"),
        ("set a 1 EX 100", "+OK|"),
        ("ttl a", ":100|"),
        ("set a 2 KeepTtl", "+OK|"),
        ("ttl a", ":100|"),
        ("set a 2 keepttl ex 3", "-ERR syntax error|"),
        ("set a 2 ex 100 ex 200", "+OK|"),
        ("ttl a", ":200|"),
        ("set a 3", "+OK|"),
        ("ttl a", ":-1|"),
        ("setex a 0 b", "-ERR invalid expire time in 'setex' command|"),
        ("setex a x b", "-ERR value is not an integer or out of range|"),
        ("psetex a 0 b", "-ERR invalid expire time in 'psetex' command|"),
        ("setex a 10 b", "+OK|"),
        ("ttl a", ":10|"),
        ("setnx a 1", ":0|"),
        ("setnx b 1", ":1|"),
        ("getset a 2", "$1|b|"),
        ("getset c 2", "$-1|"),
        ("get c", "$1|2|"),
    ]);
}

#[test]
fn getex_changes_only_the_time() {
    Door::new().expect(&[
        ("set a 1", "+OK|"),
        ("getex a ex 0", "-ERR invalid expire time in 'getex' command|"),
        ("getex a persist ex 1", "-ERR syntax error|"),
        ("getex a ex 100", "$1|1|"),
        ("ttl a", ":100|"),
        ("getex a", "$1|1|"),
        ("ttl a", ":100|"),
        ("getex a persist", "$1|1|"),
        ("ttl a", ":-1|"),
        ("getex a pxat 1", "$1|1|"),
        ("get a", "$-1|"),
        ("getex a ex x", "$-1|"),
        ("getdel a", "$-1|"),
        ("set a 1", "+OK|"),
        ("getdel a", "$1|1|"),
        ("getdel a", "$-1|"),
    ]);
}

#[test]
fn parts_are_read_and_written() {
    Door::new().expect(&[
        ("set a foo", "+OK|"),
        ("append a bar", ":6|"),
        ("append b x", ":1|"),
        ("strlen a", ":6|"),
        ("strlen none", ":0|"),
        ("setrange a -1 x", "-ERR offset is out of range|"),
        (
            "setrange a 536870912 x",
            "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|",
        ),
        ("setrange a x y", "-ERR value is not an integer or out of range|"),
        ("setrange none 0 \"\"", ":0|"),
        ("exists none", ":0|"),
        ("setrange a 8 hi", ":10|"),
        ("setrange a 0 F", ":10|"),
        ("get a", "$10|Foobar\u{0}\u{0}hi|"),
        ("getrange a 0 2", "$3|Foo|"),
        ("getrange a -3 -2", "$2|\u{0}h|"),
        ("getrange a -1 -3", "$0||"),
        ("getrange a -100 3", "$4|Foob|"),
        ("getrange a 3 100", "$7|bar\u{0}\u{0}hi|"),
        ("getrange a 5 3", "$0||"),
        ("getrange a x 1", "-ERR value is not an integer or out of range|"),
        ("substr a 1 2", "$2|oo|"),
        ("getrange none 0 -1", "$0||"),
    ]);
}

#[test]
fn several_strings_are_written_at_once() {
    Door::new().expect(&[
        ("mset a", "-ERR wrong number of arguments for 'mset' command|"),
        ("mset a 1 b", "-ERR wrong number of arguments for 'mset' command|"),
        ("mset a 1 b 2 a 3", "+OK|"),
        ("mget a none b", "*3|$1|3|$-1|$1|2|"),
        ("msetnx a 1 b", "-ERR wrong number of arguments for 'msetnx' command|"),
        ("msetnx new 1 a 2", ":0|"),
        ("exists new", ":0|"),
        ("msetnx new 1 other 2", ":1|"),
        ("mget new other", "*2|$1|1|$1|2|"),
    ]);
}

#[test]
fn integers_are_added() {
    Door::new().expect(&[
        ("incr a", ":1|"),
        ("incrby a 41", ":42|"),
        ("decr a", ":41|"),
        ("decrby a 2", ":39|"),
        ("incrby a x", "-ERR value is not an integer or out of range|"),
        ("incr a b", "-ERR wrong number of arguments for 'incr' command|"),
        ("set a 9223372036854775807", "+OK|"),
        ("incr a", "-ERR increment or decrement would overflow|"),
        ("decrby a -9223372036854775808", "-ERR decrement would overflow|"),
        ("decrby a 9223372036854775807", ":0|"),
        ("incrby a -9223372036854775807", ":-9223372036854775807|"),
        ("incrby a -9223372036854775807", "-ERR increment or decrement would overflow|"),
        ("set a \" 1\"", "+OK|"),
        ("incr a", "-ERR value is not an integer or out of range|"),
        ("set a 01", "+OK|"),
        ("incr a", "-ERR value is not an integer or out of range|"),
        ("set a \"\"", "+OK|"),
        ("incr a", "-ERR value is not an integer or out of range|"),
        ("setex a 100 5", "+OK|"),
        ("incr a", ":6|"),
        ("ttl a", ":100|"),
    ]);
}

#[test]
fn numbers_with_a_point_have_the_digits_of_a_long_double() {
    Door::new().expect(&[
        ("incrbyfloat a 3.0e3", "$4|3000|"),
        ("incrbyfloat a 0.1", "$22|3000.10000000000000009|"),
        ("incrbyfloat a 1e-20", "$22|3000.10000000000000009|"),
        ("incrbyfloat a -1e-1", "$4|3000|"),
        ("incrbyfloat a +5", "$4|3005|"),
        ("incrbyfloat a .5", "$6|3005.5|"),
        ("incrbyfloat a 5.", "$6|3010.5|"),
        ("incrbyfloat a 0x1p3", "$6|3018.5|"),
        ("incrbyfloat a 0xa.8p-1", "$7|3023.75|"),
        ("incrbyfloat a .", "-ERR value is not a valid float|"),
        ("incrbyfloat a 1e", "-ERR value is not a valid float|"),
        ("incrbyfloat a x", "-ERR value is not a valid float|"),
        ("incrbyfloat a \"1 \"", "-ERR value is not a valid float|"),
        ("incrbyfloat a \" 1\"", "-ERR value is not a valid float|"),
        ("incrbyfloat a \"\"", "-ERR value is not a valid float|"),
        ("incrbyfloat a nan", "-ERR value is not a valid float|"),
        ("incrbyfloat a inf", "-ERR increment would produce NaN or Infinity|"),
        ("incrbyfloat a -inf", "-ERR increment would produce NaN or Infinity|"),
        ("incrbyfloat a 1e5000", "-ERR value is not a valid float|"),
        ("incrbyfloat b 1.1", "$3|1.1|"),
        ("incrbyfloat b 2.2", "$3|3.3|"),
        ("incrbyfloat b 1e17", "$25|100000000000000003.296875|"),
        ("incrbyfloat b 1e19", "$20|10100000000000000003|"),
        ("incrbyfloat b 123456789.123456789", "$20|10100000000123456792|"),
        ("incrbyfloat b -123456789.123456789", "$20|10100000000000000003|"),
        ("incrbyfloat c -0.000000000000000001", "$1|0|"),
        ("incrbyfloat c -0.00000000000000001", "$20|-0.00000000000000001|"),
        ("incrbyfloat c 0.00000000000000001", "$1|0|"),
        ("incrbyfloat d 5.0e-18", "$1|0|"),
        ("incrbyfloat d 1.5e-17", "$19|0.00000000000000002|"),
        ("incrbyfloat d 1e-4960", "-ERR value is not a valid float|"),
        ("incrbyfloat e 10.5", "$4|10.5|"),
        ("incrbyfloat e -5.2", "$3|5.3|"),
        ("incrbyfloat f 17179869184", "$11|17179869184|"),
        ("incrbyfloat f 1.23", "$29|17179869185.23000000044703484|"),
        ("incrbyfloat g -0", "$1|0|"),
        ("incrbyfloat h 1e300", "$301|1000000000000000000008997324079559193870523944273290747938260082321265646596180935755849152083750497190350372508614274835903592556184672983913096260520748646287327135641843653294084255107606016789726652932370030551382947620994540294772781889620606179267611627097410650567187386105690089424915104006144|"),
        ("incrbyfloat h -1e300", "$1|0|"),
    ]);
}

#[test]
fn common_bytes_are_found() {
    Door::new().expect(&[
        ("set a ohmytext", "+OK|"),
        ("set b mynewtext", "+OK|"),
        ("lcs a b", "$6|mytext|"),
        ("lcs a b len", ":6|"),
        ("lcs a b idx", "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|"),
        (
            "lcs a b idx withmatchlen",
            "*4|$7|matches|*2|*3|*2|:4|:7|*2|:5|:8|:4|*3|*2|:2|:3|*2|:0|:1|:2|$3|len|:6|",
        ),
        (
            "lcs a b idx minmatchlen 4 withmatchlen",
            "*4|$7|matches|*1|*3|*2|:4|:7|*2|:5|:8|:4|$3|len|:6|",
        ),
        (
            "lcs a b idx minmatchlen -5",
            "*4|$7|matches|*2|*2|*2|:4|:7|*2|:5|:8|*2|*2|:2|:3|*2|:0|:1|$3|len|:6|",
        ),
        ("lcs a none idx", "*4|$7|matches|*0|$3|len|:0|"),
        ("lcs none none", "$0||"),
        ("lcs a b len idx", "-ERR If you want both the length and indexes, please just use IDX.|"),
        ("lcs a b xx", "-ERR syntax error|"),
        ("lcs a b minmatchlen x", "-ERR value is not an integer or out of range|"),
        ("lcs a b minmatchlen", "-ERR syntax error|"),
    ]);
}
