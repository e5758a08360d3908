//! Fields of hashes that expire: the replies are the ones of Redis 8.2.

use super::header::Header;
use super::store::{PAGES, Store};
use super::testing::{BEGIN_MS, Door};

#[test]
fn times_of_fields_are_set_and_shown() {
    Door::new().expect(&[
        ("hset h a 1 b 2 c 3", ":3|"),
        ("hexpire h 100", "-ERR wrong number of arguments for 'hexpire' command|"),
        ("hexpire h 100 fields", "-ERR wrong number of arguments for 'hexpire' command|"),
        ("hexpire h 100 fields 1", "-ERR wrong number of arguments for 'hexpire' command|"),
        ("hexpire h 100 fields 1 a", "*1|:1|"),
        (
            "hexpire h 100 fields 2 a",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hexpire h 100 fields 1 a b",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("hexpire h 100 fields 0 a", "-ERR Parameter `numFields` should be greater than 0|"),
        ("hexpire h 100 fields -1 a", "-ERR Parameter `numFields` should be greater than 0|"),
        ("hexpire h 100 fields x a", "-ERR Parameter `numFields` should be greater than 0|"),
        (
            "hexpire h 100 fields 9223372036854775807 a",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hexpire h 100 nofields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hexpire h x fields 1 a", "-ERR value is not an integer or out of range|"),
        ("hexpire h -1 fields 1 a", "-ERR invalid expire time, must be >= 0|"),
        (
            "hexpire h 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hexpire' command|",
        ),
        (
            "hpexpire h 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hpexpire' command|",
        ),
        (
            "hpexpireat h 281474976710655 fields 1 a",
            "-ERR invalid expire time in 'hpexpireat' command|",
        ),
        (
            "hpexpireat h 281474976710654 fields 1 a",
            "-ERR invalid expire time in 'hpexpireat' command|",
        ),
        ("hexpireat h 281474976711 fields 1 a", "-ERR invalid expire time in 'hexpireat' command|"),
        ("hexpireat h 281474976710 fields 1 a", "-ERR invalid expire time in 'hexpireat' command|"),
        ("hexpire h 281474976710 fields 1 a", "-ERR invalid expire time in 'hexpire' command|"),
        ("hexpire h 100 nx fields 1 a", "*1|:0|"),
        ("hexpire h 100 nx fields 2 a b", "*2|:0|:1|"),
        ("hexpire h 50 gt fields 3 a b c", "*3|:0|:0|:0|"),
        ("hexpire h 200 gt fields 3 a b c", "*3|:1|:1|:0|"),
        ("hexpire h 100 lt fields 3 a b c", "*3|:1|:1|:1|"),
        ("hexpire h 300 xx fields 4 a b c d", "*4|:1|:1|:1|:-2|"),
        (
            "hexpire h 300 nx xx fields 4 a b c d",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        (
            "hexpire h 300 gt lt fields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        (
            "hexpire h 300 yy fields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hexpire h 300 NX", "-ERR wrong number of arguments for 'hexpire' command|"),
        (
            "hexpire h 300 fields 1 a nx",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("hexpire none 300 fields 2 a b", "*2|:-2|:-2|"),
        ("hexpire none -300 fields 2 a b", "-ERR invalid expire time, must be >= 0|"),
        ("hexpire none x fields 2 a b", "-ERR value is not an integer or out of range|"),
        ("httl h fields 4 a b c d", "*4|:300|:300|:300|:-2|"),
        ("httl h fields 2 a", "-ERR The `numfields` parameter must match the number of arguments|"),
        (
            "httl h fields 1 a b",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("httl h fields 0", "-ERR wrong number of arguments for 'httl' command|"),
        ("httl h fields 0 a", "-ERR Number of fields must be a positive integer|"),
        ("httl h fields x a", "-ERR Number of fields must be a positive integer|"),
        (
            "httl h nofields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("httl none fields 2 a b", "*2|:-2|:-2|"),
        ("httl h", "-ERR wrong number of arguments for 'httl' command|"),
        ("hpersist h fields 3 a a d", "*3|:1|:-1|:-2|"),
        ("hpersist none fields 1 a", "*1|:-2|"),
        ("hpersist h fields 1", "-ERR wrong number of arguments for 'hpersist' command|"),
        ("hpersist h fields 0 a", "-ERR Number of fields must be a positive integer|"),
        (
            "hpersist h fields 2 a",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hpersist h f 2 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hexpiretime none fields 1 a", "*1|:-2|"),
        ("hpttl h fields 1 a", "*1|:-1|"),
        ("httl h fields 1 a", "*1|:-1|"),
        ("object encoding h", "$10|listpackex|"),
        ("hexpireat h 1 fields 1 a", "*1|:2|"),
        ("hmget h a b c", "*3|$-1|$1|2|$1|3|"),
        ("hexpire h 0 fields 2 b c", "*2|:2|:2|"),
        ("exists h", ":0|"),
        ("type h", "+none|"),
    ]);
}

#[test]
fn writes_clear_or_keep_the_time_of_a_field() {
    Door::new().expect(&[
        ("hset h a 1 b 2", ":2|"),
        ("hexpire h 100 fields 2 a b", "*2|:1|:1|"),
        ("hset h a 2", ":0|"),
        ("httl h fields 2 a b", "*2|:-1|:100|"),
        ("hincrby h b 1", ":3|"),
        ("httl h fields 2 a b", "*2|:-1|:100|"),
        ("hincrbyfloat h b 1.5", "$3|4.5|"),
        ("httl h fields 2 a b", "*2|:-1|:100|"),
        ("hsetnx h b 7", ":0|"),
        ("httl h fields 2 a b", "*2|:-1|:100|"),
        ("hgetex h fields 2 a b", "*2|$1|2|$3|4.5|"),
        ("hgetex h ex 50 fields 2 a b", "*2|$1|2|$3|4.5|"),
        ("httl h fields 2 a b", "*2|:50|:50|"),
        ("hgetex h persist fields 3 a b c", "*3|$1|2|$3|4.5|$-1|"),
        ("httl h fields 2 a b", "*2|:-1|:-1|"),
        ("hgetex h ex 0 fields 1 a", "*1|$1|2|"),
        ("hgetex h ex -1 fields 1 a", "-ERR invalid expire time, must be >= 0|"),
        ("hgetex h ex x fields 1 a", "-ERR value is not an integer or out of range|"),
        ("hgetex h pxat 1 fields 1 a", "*1|$-1|"),
        ("hgetall h", "*2|$1|b|$3|4.5|"),
        ("hgetex none ex 10 fields 2 a b", "*2|$-1|$-1|"),
        (
            "hgetex h ex 10 px 10 fields 1 b",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        (
            "hgetex h persist ex 10 fields 1 b",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        (
            "hgetex h keepttl fields 1 b",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hgetex h ex 10", "-ERR wrong number of arguments for 'hgetex' command|"),
        ("hgetex h ex", "-ERR wrong number of arguments for 'hgetex' command|"),
        ("hgetex h ex 10 fields", "-ERR wrong number of arguments for 'hgetex' command|"),
        (
            "hgetex h ex 10 fields 2 b",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hgetex h ex 10 fields 1 b c",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("hgetex h ex 10 fields 0 b", "-ERR Number of fields must be a positive integer|"),
        ("hgetex h ex 10 fields x b", "-ERR Number of fields must be a positive integer|"),
        (
            "hgetex h fields 1 b ex 10",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("httl h fields 1 b", "*1|:-1|"),
        (
            "hgetex h fields 1 b persist",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("hgetex h", "-ERR wrong number of arguments for 'hgetex' command|"),
        ("hgetdel h fields 2 b b", "*2|$3|4.5|$-1|"),
    ]);
}

#[test]
fn fields_are_returned_and_deleted() {
    Door::new().expect(&[
        ("hset h a 1 b 2", ":2|"),
        ("hgetdel h fields 1", "-ERR wrong number of arguments for 'hgetdel' command|"),
        (
            "hgetdel h fields 2 a",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hgetdel h fields 1 a b",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("hgetdel h fields 0 a", "-ERR Number of fields must be a positive integer|"),
        ("hgetdel h fields x a", "-ERR Number of fields must be a positive integer|"),
        (
            "hgetdel h nofields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hgetdel h fields 2 a c", "*2|$1|1|$-1|"),
        ("hgetdel none fields 2 a c", "*2|$-1|$-1|"),
        ("hgetdel h", "-ERR wrong number of arguments for 'hgetdel' command|"),
        ("hgetall h", "*2|$1|b|$1|2|"),
    ]);
}

#[test]
fn fields_are_written_with_a_time() {
    Door::new().expect(&[
        ("hset h b 2", ":1|"),
        ("hsetex h fields 1 a 1", ":1|"),
        ("hsetex h ex 100 fields 2 a 1 b 2", ":1|"),
        ("httl h fields 2 a b", "*2|:100|:100|"),
        ("hsetex h keepttl fields 1 a 2", ":1|"),
        ("httl h fields 2 a b", "*2|:100|:100|"),
        ("hsetex h fields 1 a 3", ":1|"),
        ("httl h fields 2 a b", "*2|:-1|:100|"),
        ("hsetex h fnx fields 2 a 1 z 2", ":0|"),
        ("hsetex h fnx fields 2 y 1 z 2", ":1|"),
        ("hsetex h fxx fields 2 y 1 z 3", ":1|"),
        ("hsetex h fxx fields 2 y 1 w 3", ":0|"),
        (
            "hsetex h fxx fnx fields 1 y 1",
            "-ERR Only one of FXX or FNX arguments can be specified|",
        ),
        (
            "hsetex h ex 10 px 10 fields 1 y 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|",
        ),
        (
            "hsetex h ex 10 keepttl fields 1 y 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|",
        ),
        ("hsetex h ex 0 fields 1 y 1", ":1|"),
        ("hsetex h ex -1 fields 1 y 1", "-ERR invalid expire time, must be >= 0|"),
        ("hsetex h ex x fields 1 y 1", "-ERR value is not an integer or out of range|"),
        ("hsetex h pxat 1 fields 1 y 1", ":1|"),
        ("hgetall h", "*6|$1|b|$1|2|$1|a|$1|3|$1|z|$1|3|"),
        ("hsetex h fields 1 y", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex h fields 1 y 1 z 2", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex h fields 2 y 1", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex h fields 0 y 1", "-ERR invalid number of fields|"),
        ("hsetex h fields x y 1", "-ERR invalid number of fields|"),
        ("hsetex h nofields 1 y 1", "-ERR unknown argument: nofields|"),
        ("hsetex h fields 1 y 1 ex 100", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("httl h fields 1 y", "*1|:-2|"),
        ("hsetex h persist fields 1 y 1", "-ERR unknown argument: persist|"),
        ("hsetex h ex 10", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex h", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex none fxx fields 1 y 1", ":0|"),
        ("exists none", ":0|"),
        ("hsetex none pxat 1 fields 1 y 1", ":1|"),
        ("exists none", ":0|"),
    ]);
}

#[test]
fn other_types_have_no_fields_that_expire() {
    Door::new().expect(&[
        ("set s x", "+OK|"),
        (
            "hexpire s 1 fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "httl s fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hpersist s fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hgetex s fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hgetdel s fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hsetex s fields 1 a 1",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hexpire s x fields 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
    ]);
}

#[test]
fn copies_keep_the_times_of_fields() {
    Door::new().expect(&[
        ("hset e a 1", ":1|"),
        ("object encoding e", "$8|listpack|"),
        ("hexpire e 100 fields 1 a", "*1|:1|"),
        ("object encoding e", "$10|listpackex|"),
        ("hpersist e fields 1 a", "*1|:1|"),
        ("object encoding e", "$10|listpackex|"),
        ("hexpire e 100 fields 1 a", "*1|:1|"),
        ("hdel e a", ":1|"),
        ("exists e", ":0|"),
        ("hset e a 1 b 2", ":2|"),
        ("hexpire e 100 fields 1 a", "*1|:1|"),
        ("copy e e2", ":1|"),
        ("httl e2 fields 2 a b", "*2|:100|:-1|"),
        ("rename e2 e3", "+OK|"),
        ("httl e3 fields 2 a b", "*2|:100|:-1|"),
        ("hlen e3", ":2|"),
        ("hstrlen e3 a", ":1|"),
        ("hexists e3 a", ":1|"),
        ("hexpire e3 100 fields 2 a a", "*2|:1|:1|"),
        ("hpexpireat e3 1 fields 2 a a", "*2|:2|:-2|"),
        ("hexpire e3 100 fields 2 a a", "*2|:-2|:-2|"),
        ("hgetdel e3 fields 2 b b", "*2|$1|2|$-1|"),
    ]);
}

#[test]
fn arguments_are_checked_in_the_order_of_redis() {
    Door::new().expect(&[
        ("hset h a 1", ":1|"),
        ("hgetex h ex x nofields 1 a", "-ERR value is not an integer or out of range|"),
        (
            "hgetex h ex 10 nofields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hgetex s ex x fields 1 a", "-ERR value is not an integer or out of range|"),
        ("hgetex h ex x fields 0 a", "-ERR value is not an integer or out of range|"),
        ("hgetex h ex x fields 2 a", "-ERR value is not an integer or out of range|"),
        ("hgetex h ex -1 fields 2 a", "-ERR invalid expire time, must be >= 0|"),
        (
            "hgetex h ex 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hgetex' command|",
        ),
        (
            "hgetex h px 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hgetex' command|",
        ),
        (
            "hgetex h exat 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hgetex' command|",
        ),
        (
            "hgetex h pxat 9223372036854775807 fields 1 a",
            "-ERR invalid expire time in 'hgetex' command|",
        ),
        ("hgetex h pxat 70368744177663 fields 1 a", "*1|$1|1|"),
        ("hpexpiretime h fields 1 a", "*1|:70368744177663|"),
        (
            "hgetex h pxat 70368744177664 fields 1 a",
            "-ERR invalid expire time in 'hgetex' command|",
        ),
        ("hpexpireat h 70368744177663 fields 1 a", "*1|:1|"),
        (
            "hpexpireat h 70368744177664 fields 1 a",
            "-ERR invalid expire time in 'hpexpireat' command|",
        ),
        ("hexpireat h 70368744177 fields 1 a", "*1|:1|"),
        ("hexpireat h 70368744178 fields 1 a", "-ERR invalid expire time in 'hexpireat' command|"),
        ("hexpire h 70368744177 fields 1 a", "-ERR invalid expire time in 'hexpire' command|"),
        ("hsetex h pxat 70368744177663 fields 1 a 1", ":1|"),
        (
            "hsetex h pxat 70368744177664 fields 1 a 1",
            "-ERR invalid expire time in 'hsetex' command|",
        ),
        (
            "hsetex h ex 9223372036854775807 fields 1 a 1",
            "-ERR invalid expire time in 'hsetex' command|",
        ),
        ("hsetex h ex x fields 0 a 1", "-ERR value is not an integer or out of range|"),
        ("hsetex h ex x fields 1 a", "-ERR value is not an integer or out of range|"),
        ("hsetex h fields 1 a 1 fnx", "-ERR wrong number of arguments for 'hsetex' command|"),
        (
            "hsetex h fields 1 b 1 fields 1 c 1",
            "-ERR wrong number of arguments for 'hsetex' command|",
        ),
        (
            "hsetex h fnx fnx fields 1 a 1",
            "-ERR Only one of FXX or FNX arguments can be specified|",
        ),
        (
            "hsetex h ex 10 ex 20 fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|",
        ),
        (
            "hsetex h keepttl keepttl fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|",
        ),
        ("hsetex h ex 10 fnx fields 1 a 1", ":0|"),
        ("hsetex h foo ex 10 fields 1 a 1", "-ERR unknown argument: foo|"),
        ("hsetex h fnx fields 1 a", "-ERR wrong number of arguments for 'hsetex' command|"),
        ("hsetex h fnx ex 10 foo", "-ERR unknown argument: foo|"),
        ("hsetex h fields 9999999999 a 1", "-ERR invalid number of fields|"),
        ("hsetex h fields -1 a 1", "-ERR invalid number of fields|"),
        ("hexpire h x nx foo 1 a", "-ERR value is not an integer or out of range|"),
        (
            "hexpire h 10 nx foo 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hexpire h -1 nx foo 1 a", "-ERR invalid expire time, must be >= 0|"),
        ("hexpire h 10 nx fields 0 a", "-ERR Parameter `numFields` should be greater than 0|"),
        ("hexpire none 10 nx fields 0 a", "-ERR Parameter `numFields` should be greater than 0|"),
        (
            "hexpire h 10 nx fields 1",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        (
            "hexpire h 10 nx nx fields 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hexpire h 0 fields 1 zz", "*1|:-2|"),
        ("hexpire h 0 nx fields 1 a", "*1|:0|"),
        ("hexpire h 0 gt fields 1 a", "*1|:0|"),
        ("hset k a 1", ":1|"),
        ("hexpire k 100 fields 1 a", "*1|:1|"),
        ("hexpire k 0 nx fields 1 a", "*1|:0|"),
        ("hexpire k 0 gt fields 1 a", "*1|:0|"),
        ("hexpire k 0 lt fields 1 a", "*1|:2|"),
        ("hset k a 1 b 2", ":2|"),
        ("hexpireat k 1 xx fields 2 a b", "*2|:0|:0|"),
        ("exists k", ":1|"),
        ("hset k a 1", ":0|"),
        ("hexpireat k 4102444800 fields 1 a", "*1|:1|"),
        ("hexpireat k 4102444800 gt fields 1 a", "*1|:0|"),
        ("hexpireat k 4102444800 lt fields 1 a", "*1|:0|"),
        ("hexpireat k 4102444800 xx fields 1 a", "*1|:1|"),
        ("hpersist k fields x a", "-ERR Number of fields must be a positive integer|"),
        (
            "hpersist none fields 3 a",
            "-ERR The `numfields` parameter must match the number of arguments|",
        ),
        ("httl none fields 0 a", "-ERR Number of fields must be a positive integer|"),
        (
            "httl none foo 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hgetdel none fields 0 a", "-ERR Number of fields must be a positive integer|"),
        (
            "hgetdel none foo 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        (
            "hgetex none foo 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("hgetex none fields 0 a", "-ERR Number of fields must be a positive integer|"),
        (
            "hgetex s foo 1 a",
            "-ERR Mandatory argument FIELDS is missing or not at the right position|",
        ),
        ("set s x", "+OK|"),
        ("httl s foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        (
            "hgetdel s foo 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        ("hgetex s foo 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("hsetex s foo 1 a 1", "-ERR unknown argument: foo|"),
        ("hsetex s fields 0 a 1", "-ERR invalid number of fields|"),
        (
            "hpersist s foo 1 a",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "hsetex h px 100000 keepttl fields 1 a 1",
            "-ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified|",
        ),
    ]);
}

/// Returns the fields of a large hash: `f0 0 f1 1` and so on.
fn fields(count: usize) -> String {
    (0..count).map(|it| format!(" f{it} {it}")).collect()
}

#[test]
fn a_field_that_has_expired_is_nowhere() {
    let mut door = Door::new();
    door.expect(&[
        ("hset h a 1 b 2 c 3 d 4", ":4|"),
        ("hpexpire h 10 fields 2 a b", "*2|:1|:1|"),
        ("hpexpire h 20 fields 1 c", "*1|:1|"),
        ("hlen h", ":4|"),
    ]);
    door.pass(9);
    assert_eq!(door.said("hmget h a b c"), "*3|$1|1|$1|2|$1|3|");
    door.pass(1);
    door.expect(&[
        ("hlen h", ":2|"),
        ("hget h a", "$-1|"),
        ("hmget h a b c d", "*4|$-1|$-1|$1|3|$1|4|"),
        ("hgetall h", "*4|$1|c|$1|3|$1|d|$1|4|"),
        ("hkeys h", "*2|$1|c|$1|d|"),
        ("hvals h", "*2|$1|3|$1|4|"),
        ("hstrlen h a", ":0|"),
        ("hexists h a", ":0|"),
        ("hscan h 0", "*2|$1|0|*4|$1|c|$1|3|$1|d|$1|4|"),
        ("hrandfield h 10", "*2|$1|c|$1|d|"),
        ("httl h fields 2 a c", "*2|:-2|:1|"),
        ("hpersist h fields 1 a", "*1|:-2|"),
        ("hexpire h 1 fields 1 a", "*1|:-2|"),
        ("hgetex h persist fields 1 a", "*1|$-1|"),
        ("hgetdel h fields 1 a", "*1|$-1|"),
        ("hdel h a", ":0|"),
        ("hsetnx h a 7", ":1|"),
        ("hincrby h b 1", ":1|"),
        ("httl h fields 2 a b", "*2|:-1|:-1|"),
        ("hset s ->x 1", ":1|"),
    ]);
    door.pass(10);
    assert_eq!(door.said("hgetall h"), "*6|$1|d|$1|4|$1|a|$1|7|$1|b|$1|1|");
}

#[test]
fn a_hash_vanishes_with_its_last_field() {
    let mut door = Door::new();
    door.expect(&[
        ("hset h a 1 b 2", ":2|"),
        ("hpexpire h 10 fields 1 a", "*1|:1|"),
        ("hpexpire h 20 fields 1 b", "*1|:1|"),
        ("ttl h", ":-1|"),
        ("watch h", "+OK|"),
    ]);
    door.pass(20);
    door.expect(&[
        ("exists h", ":0|"),
        ("type h", "+none|"),
        ("keys *", "*0|"),
        ("scan 0", "*2|$1|0|*0|"),
        ("hlen h", ":0|"),
        ("hgetall h", "*0|"),
        ("rename h g", "-ERR no such key|"),
        ("del h", ":0|"),
        ("multi", "+OK|"),
        ("ping", "+QUEUED|"),
        ("exec", "*-1|"),
        ("set h x", "+OK|"),
        ("get h", "$1|x|"),
    ]);
}

#[test]
fn the_sweeper_frees_the_memory_of_fields() {
    let mut door = Door::new();
    door.said(&format!("hset large{}", fields(1000)));
    door.said(&format!("hset gone{}", fields(1000)));
    door.said("hset small a 1 b 2");
    let names = |count: usize| (0..count).map(|it| format!(" f{it}")).collect::<String>();
    door.said(&format!("hpexpire large 10 fields 900{}", names(900)));
    door.said(&format!("hpexpire gone 10 fields 1000{}", names(1000)));
    door.said("hpexpire small 10 fields 1 a");
    let before: usize = door.store.content().iter().map(String::len).sum();
    assert_eq!(door.said("hlen large"), ":1000|");
    door.pass(10);
    assert_eq!(door.said("hlen large\nexists gone\nhlen small"), ":100|:0|:1|");
    for _ in 0..400 {
        door.server.sweep(&mut door.store, 100, &mut crate::resp::Output::default());
    }
    let after: usize = door.store.content().iter().map(String::len).sum();
    assert!(after < before / 5, "{after} bytes are left of {before}");
    let found = door.store.find(0, b"gone", false).unwrap();
    assert_eq!(found, None);
    assert_eq!(
        door.said_to(2, "hlen large\nhget large f950\nhgetall small"),
        ":100|$3|950|*2|$1|b|$1|2|"
    );
    let small = door.store.find(0, b"small", false).unwrap().unwrap();
    assert_eq!(Header::parse(small.value).unwrap().end, Some(0));
    let mut owners = 0;
    let mut cursor = 0;
    loop {
        cursor = door.store.walk(PAGES, cursor, &mut |_, _| owners += 1).unwrap();
        if cursor == 0 {
            break;
        }
    }
    assert!(owners > 2, "the hashes that are left have their pages");
}

#[test]
fn a_walk_finds_fields_that_expired_before_a_restart() {
    let mut door = Door::new();
    door.said("hset small a 1 b 2");
    door.said("hset gone a 1");
    door.said("hpexpire small 10 fields 1 a");
    door.said("hpexpire gone 10 fields 1 a");
    let mut store = std::mem::replace(&mut door.store, super::Memory::new(0));
    store.now_ms += 10;
    let mut server = super::Server::new(super::ServerOptions::default());
    for _ in 0..50 {
        server.sweep(&mut store, 100, &mut crate::resp::Output::default());
    }
    assert_eq!(store.find(0, b"gone", false).unwrap(), None);
    let small = store.find(0, b"small", false).unwrap().unwrap();
    assert!(!small.value.contains(&b'a'), "the field is gone");
}

#[test]
fn a_long_field_cannot_expire() {
    let mut door = Door::with(super::ServerOptions {
        value_bytes_max: 4096,
        ..super::ServerOptions::default()
    });
    let field = "x".repeat(2000);
    door.said(&format!("hset h {field} 1"));
    let refused = "-ERR string exceeds maximum allowed size (proto-max-bulk-len)|";
    assert_eq!(door.said(&format!("hexpire h 10 fields 1 {field}")), refused);
    assert_eq!(door.said("hlen h"), ":1|");
}

#[test]
fn hashes_of_before_are_read() {
    let mut door = Door::new();
    door.said("hset h a 1");
    let before = door.store.find(0, b"h", false).unwrap().unwrap().value.to_vec();
    // The encoding, the id 0, the root with its length.
    assert_eq!(before, [0, 0, 5, 0, 1, b'a', 1, b'1']);
    door.expect(&[
        ("hexpire h 10 fields 1 a", "*1|:1|"),
        ("hpersist h fields 1 a", "*1|:1|"),
        ("hgetall h", "*2|$1|a|$1|1|"),
    ]);
}

#[test]
fn random_fields_of_a_hash_leave_out_all_that_have_expired() {
    for (fields, gone) in [(6, 3), (2000, 900)] {
        let mut door = Door::new();
        for field in 0..fields {
            door.said(&format!("HSET h f{field} {field}"));
        }
        for field in 0..gone {
            let number = field * 2;
            door.said(&format!("HPEXPIRE h 10 FIELDS 1 f{number}"));
        }
        door.pass(10);
        let all = door.said(&format!("HRANDFIELD h {fields}"));
        assert!(all.starts_with(&format!("*{}|", fields - gone)), "{all}");
        let some = door.said("HRANDFIELD h 3");
        let many = door.said("HRANDFIELD h -500");
        for name in all.split('|').chain(some.split('|')).chain(many.split('|')) {
            let Some(number) = name.strip_prefix('f') else { continue };
            let number: u32 = number.parse().expect("it is a number");
            assert!(number % 2 == 1 || number >= 2 * gone, "f{number} has expired");
        }
        let distinct: std::collections::BTreeSet<&str> =
            all.split('|').filter(|name| name.starts_with('f')).collect();
        assert_eq!(distinct.len() as u32, fields - gone);
    }
}

#[test]
fn the_store_learns_of_each_expired_field_whose_absence_a_reply_shows() {
    let commands = [
        "hget h a",
        "hget over a",
        "hmget h a b",
        "hexists h a",
        "hlen h",
        "hgetall h",
        "hkeys h",
        "hvals over",
        "hscan h 0",
        "hrandfield h 5",
        "hstrlen h a",
        "httl h fields 1 a",
        "hset h a 2",
        "hdel h a",
        "hdel over a",
        "exists over",
        "type over",
        "keys over",
        "scan 0",
        "rename over b",
        "eval \"return redis.call('hget', 'h', 'a')\" 0",
        "eval \"return redis.pcall('rename', 'over', 'x')\" 0",
        "sort l by *->a get h->a",
        "multi\nhget h a\nexec",
    ];
    for command in commands {
        let mut door = Door::new();
        door.said("hset h a 1 b 2\nhset over a 1\nrpush l h");
        door.said("hpexpire h 10 fields 1 a\nhpexpire over 10 fields 1 a");
        door.pass(9);
        door.said(command);
        assert_eq!(door.store.gone_ms, 0, "{command}");
        let mut door = Door::new();
        door.said("hset h a 1 b 2\nhset over a 1\nrpush l h");
        door.said("hpexpire h 10 fields 1 a\nhpexpire over 10 fields 1 a");
        door.pass(20);
        door.said(command);
        assert_eq!(door.store.gone_ms, BEGIN_MS + 10, "{command}");
    }
}

#[test]
fn a_command_that_finds_a_field_gone_waits_for_a_store_that_cannot_note_it() {
    for command in ["hget h a", "hincrby h a 1", "rename over b"] {
        let mut calls = 0;
        loop {
            let mut door = Door::new();
            door.said("hset h a 1 b 2\nhset over a 1");
            door.said("hpexpire h 10 fields 1 a\nhpexpire over 10 fields 1 a");
            door.pass(20);
            door.store.refuses_after = Some(calls);
            let said = door.said(command);
            assert!(["$-1|", ":1|", "-ERR no such key|"].contains(&&*said), "{command}: {said}");
            assert_eq!(door.store.gone_ms, BEGIN_MS + 10, "{command}");
            if door.store.refuses_after.is_some() {
                break;
            }
            calls += 1;
        }
        assert!(calls >= 2, "{command}");
    }
}
