//! HyperLogLogs: the replies are the ones of Redis 8.2.

use super::testing::Door;

#[test]
fn sketches_have_the_bytes_and_the_estimates_of_redis() {
    Door::new().expect(&[
        ("pfcount none", ":0|"),
        ("pfadd p", ":1|"),
        ("pfadd p", ":0|"),
        ("get p", "$18|HYLL\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{80}\u{7f}\u{ff}|"),
        ("pfcount p", ":0|"),
        ("get p", "$18|HYLL\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{7f}\u{ff}|"),
        ("pfadd p a b c d e f g", ":1|"),
        ("pfadd p a b", ":0|"),
        ("get p", "$38|HYLL\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{80}Fm\u{80}V\u{c}\u{80}D<\u{84}8\u{80}P\u{b1}\u{84}I\u{8c}\u{80}Bm\u{80}BZ|"),
        ("pfcount p", ":7|"),
        ("get p", "$38|HYLL\u{1}\u{0}\u{0}\u{0}\u{7}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}Fm\u{80}V\u{c}\u{80}D<\u{84}8\u{80}P\u{b1}\u{84}I\u{8c}\u{80}Bm\u{80}BZ|"),
        ("expire p 100", ":1|"),
        ("pfadd p h", ":1|"),
        ("ttl p", ":100|"),
        ("pfadd q a x y z", ":1|"),
        ("pfcount p q none", ":11|"),
        ("pfcount none none", ":0|"),
        ("pfmerge m p q none", "+OK|"),
        ("pfcount m", ":11|"),
        ("get m", "$49|HYLL\u{1}\u{0}\u{0}\u{0}\u{b}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}Fm\u{80}V\u{c}\u{80}D<\u{84}8\u{80}@\u{8f}\u{80}M1\u{80}B\u{ed}\u{84}H\u{ab}\u{88}@\u{df}\u{80}Bm\u{80}BP\u{84}\u{8}|"),
        ("pfmerge m", "+OK|"),
        ("pfmerge new", "+OK|"),
        ("get new", "$18|HYLL\u{1}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{0}\u{80}\u{7f}\u{ff}|"),
        ("ttl p", ":100|"),
    ]);
}

#[test]
fn a_string_that_is_no_sketch_is_refused() {
    Door::new().expect(&[
        ("pfadd p a", ":1|"),
        ("set s text", "+OK|"),
        ("pfadd s a", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("pfcount s", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("pfmerge s p", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("pfcount p s", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("pfmerge p s", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("set s 1234567890123456789", "+OK|"),
        ("pfcount s", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("rpush l a", ":1|"),
        ("pfadd l a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("pfcount l", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("pfmerge l p", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("pfmerge p l", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("pfadd", "-ERR wrong number of arguments for 'pfadd' command|"),
        ("pfcount", "-ERR wrong number of arguments for 'pfcount' command|"),
        ("pfmerge", "-ERR wrong number of arguments for 'pfmerge' command|"),
        ("pfselftest", "+OK|"),
        ("pfselftest x", "-ERR wrong number of arguments for 'pfselftest' command|"),
    ]);
}

#[test]
fn a_damaged_sketch_is_refused() {
    Door::new().expect(&[
        ("pfadd p a", ":1|"),
        ("set bad \"HYLL\\x01\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\x00\"", "+OK|"),
        ("pfadd bad a", ":1|"),
        ("pfadd bad", ":0|"),
        ("pfcount bad", "-INVALIDOBJ Corrupted HLL object detected|"),
        ("pfcount bad p", "-INVALIDOBJ Corrupted HLL object detected|"),
        ("pfmerge bad p", "-INVALIDOBJ Corrupted HLL object detected|"),
        ("set bad \"HYLL\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff\"", "+OK|"),
        ("pfcount bad", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("set bad \"HYLL\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x80\\x7f\\xff\"", "+OK|"),
        ("pfcount bad", "-WRONGTYPE Key is not a valid HyperLogLog string value.|"),
        ("set bad \"HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x7f\"", "+OK|"),
        ("pfcount bad", ":5|"),
        ("set bad \"HYLL\\x01\\x00\\x00\\x00\\x05\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\"", "+OK|"),
        ("pfcount bad", ":5|"),
        ("pfadd bad", ":0|"),
        ("pfadd bad a", "-INVALIDOBJ Corrupted HLL object detected|"),
    ]);
}

#[test]
fn a_long_sketch_becomes_dense() {
    Door::new().expect(&[
        ("pfadd p a b c d e f g h", ":1|"),
        ("config set hll-sparse-max-bytes 24", "+OK|"),
        ("pfadd t a", ":1|"),
        ("pfadd t b", ":1|"),
        ("strlen t", ":24|"),
        ("pfadd t c", ":1|"),
        ("strlen t", ":12304|"),
        ("pfcount t", ":3|"),
        ("pfmerge t2 p", "+OK|"),
        ("strlen t2", ":12304|"),
        ("config set hll-sparse-max-bytes 3000", "+OK|"),
        ("pfmerge t3 t p", "+OK|"),
        ("strlen t3", ":12304|"),
        ("pfcount t3", ":8|"),
    ]);
}

#[test]
fn an_element_is_added_to_a_sketch_that_lacks_its_last_byte_as_in_redis() {
    let mut door = Door::new();
    let sketch =
        [b"HYLL\x01\0\0\0\0\0\0\0\0\0\0\x80".as_slice(), b"\x56\x88\x49\x57\x80\x52\x9b\x8c\x4d"]
            .concat();
    let set = [b"*3\r\n$3\r\nSET\r\n$1\r\np\r\n$25\r\n", &sketch[..], b"\r\n"].concat();
    assert_eq!(door.replies(1, &set), b"+OK\r\n");
    assert_eq!(door.said("PFADD p e1"), ":1|");
    let changed = [&sketch[..24], b"\x4b\xcd\x84\x41"].concat();
    let expected = [b"$28\r\n".as_slice(), &changed, b"\r\n"].concat();
    assert_eq!(door.replies(1, b"GET p\r\n"), expected);
    assert_eq!(door.said("PFCOUNT p"), "-INVALIDOBJ Corrupted HLL object detected|");
}
