//! Sorted sets: the replies of Redis 8.2, and a model.

use super::bounds;
use super::models::{execute, string_of};
use super::number::double_text;
use super::testing::Door;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

#[test]
fn members_have_scores() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a 2 b", ":2|"),
        ("zadd z 1 a 3 b 4 c", ":1|"),
        ("zscore z b", "$1|3|"),
        ("zscore z none", "$-1|"),
        ("zscore none a", "$-1|"),
        ("zcard z", ":3|"),
        ("zcard none", ":0|"),
        ("zmscore z a none c", "*3|$1|1|$-1|$1|4|"),
        ("zmscore none a", "*1|$-1|"),
        ("zadd z nx 9 a 5 d", ":1|"),
        ("zadd z xx 9 a 9 none", ":0|"),
        ("zadd z gt ch 8 a 10 b 11 new", ":2|"),
        ("zadd z lt ch 8 a 12 b", ":1|"),
        ("zadd z ch 8 a 1 c 2 e", ":2|"),
        ("zadd z incr 1.5 a", "$3|9.5|"),
        ("zadd z nx incr 1 a", "$-1|"),
        ("zadd none xx incr 1 a", "$-1|"),
        ("zadd none xx 1 a", ":0|"),
        ("zadd z gt incr -1 a", "$-1|"),
        ("zincrby z 0.1 a", "$3|9.6|"),
        ("zincrby z inf a", "$3|inf|"),
        ("zincrby z -inf a", "-ERR resulting score is not a number (NaN)|"),
        ("zincrby new -0 a", "$2|-0|"),
        ("zincrby new x a", "-ERR value is not a valid float|"),
        ("zincrby new nx a", "-ERR syntax error|"),
        ("zadd z nx xx 1 a", "-ERR XX and NX options at the same time are not compatible|"),
        ("zadd z gt lt 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible|"),
        ("zadd z nx gt 1 a", "-ERR GT, LT, and/or NX options at the same time are not compatible|"),
        ("zadd z incr 1 a 2 b", "-ERR INCR option supports a single increment-element pair|"),
        ("zadd z 1", "-ERR wrong number of arguments for 'zadd' command|"),
        ("zadd z 1 a 2", "-ERR syntax error|"),
        ("zadd z nan a", "-ERR value is not a valid float|"),
        ("zadd z x a", "-ERR value is not a valid float|"),
        ("zadd z 1 a x b", "-ERR value is not a valid float|"),
        ("zadd z 0x10 h 1e3 i .5 j +inf k -inf l", ":5|"),
        ("zrange z 0 -1 withscores", "*22|$1|l|$4|-inf|$1|j|$3|0.5|$1|c|$1|1|$1|e|$1|2|$1|d|$1|5|$1|b|$2|10|$3|new|$2|11|$1|h|$2|16|$1|i|$4|1000|$1|a|$3|inf|$1|k|$3|inf|"),
        ("zrem z a b none", ":2|"),
        ("zrem none a", ":0|"),
        ("zrem z c d e h i j k l new", ":9|"),
        ("exists z", ":0|"),
        ("set s v", "+OK|"),
        ("zadd s 1 a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("zscore s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("zrem s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
}

#[test]
fn members_have_ranks() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a 2 b 3 c", ":3|"),
        ("zrank z a", ":0|"),
        ("zrank z c", ":2|"),
        ("zrevrank z c", ":0|"),
        ("zrank z none", "$-1|"),
        ("zrank none a", "$-1|"),
        ("zrank z b withscore", "*2|:1|$1|2|"),
        ("zrevrank z b WITHSCORE", "*2|:1|$1|2|"),
        ("zrank z none withscore", "*-1|"),
        ("zrank none a withscore", "*-1|"),
        ("zrank z a foo", "-ERR syntax error|"),
        ("zrank z a withscore foo", "-ERR wrong number of arguments for 'zrank' command|"),
        ("zcount z 1 2", ":2|"),
        ("zcount z (1 (3", ":1|"),
        ("zcount z -inf +inf", ":3|"),
        ("zcount z (3 inf", ":0|"),
        ("zcount none 0 1", ":0|"),
        ("zcount z x 1", "-ERR min or max is not a float|"),
        ("zcount z 1 (x", "-ERR min or max is not a float|"),
        ("zadd l 0 a 0 b 0 c 0 d", ":4|"),
        ("zlexcount l - +", ":4|"),
        ("zlexcount l [b [c", ":2|"),
        ("zlexcount l (b (c", ":0|"),
        ("zlexcount l (b +", ":2|"),
        ("zlexcount l + -", ":0|"),
        ("zlexcount l b c", "-ERR min or max not valid string range item|"),
    ]);
}

#[test]
fn members_are_returned_by_ranges() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a 2 b 3 c 4 d 5 e", ":5|"),
        ("zrange z 0 -1", "*5|$1|a|$1|b|$1|c|$1|d|$1|e|"),
        ("zrange z 1 2 withscores", "*4|$1|b|$1|2|$1|c|$1|3|"),
        ("zrange z 0 1 rev withscores", "*4|$1|e|$1|5|$1|d|$1|4|"),
        ("zrange z 3 1", "*0|"),
        ("zrange z (1 4 byscore", "*3|$1|b|$1|c|$1|d|"),
        ("zrange z (1 4 byscore limit 1 1 withscores", "*2|$1|c|$1|3|"),
        ("zrange z 4 (1 byscore rev", "*3|$1|d|$1|c|$1|b|"),
        ("zrange z 4 (1 byscore rev limit 1 -1", "*2|$1|c|$1|b|"),
        ("zrange z 0 10 byscore limit -1 2", "*0|"),
        ("zrange z 0 10 byscore limit 2 0", "*0|"),
        ("zadd l 0 a 0 b 0 c 0 d 0 e", ":5|"),
        ("zrange l - (c bylex", "*2|$1|a|$1|b|"),
        ("zrange l (c - bylex rev limit 1 1", "*1|$1|a|"),
        ("zrange z 0 -1 limit 0 1", "-ERR syntax error, LIMIT is only supported in combination with either BYSCORE or BYLEX|"),
        ("zrange z 0 -1 limit 0 -1", "*5|$1|a|$1|b|$1|c|$1|d|$1|e|"),
        ("zadd several 1 a 2 b 2 c 3 d", ":4|"),
        ("zrange several [b [c bylex", "*2|$1|b|$1|c|"),
        ("zrangestore copy several (a + bylex", ":3|"),
        ("zlexcount several - (d", ":3|"),
        ("zrange several [e + bylex", "*0|"),
        ("zrange z - + bylex withscores", "-ERR syntax error, WITHSCORES not supported in combination with BYLEX|"),
        ("zrange z - + bylex byscore", "-ERR syntax error|"),
        ("zrange z 0 -1 foo", "-ERR syntax error|"),
        ("zrange z 0 -1 limit 0", "-ERR syntax error|"),
        ("zrange z x -1", "-ERR value is not an integer or out of range|"),
        ("zrange z x 1 byscore", "-ERR min or max is not a float|"),
        ("zrange z x + bylex", "-ERR min or max not valid string range item|"),
        ("zrange none 0 -1", "*0|"),
        ("zrevrange z 0 1 withscores", "*4|$1|e|$1|5|$1|d|$1|4|"),
        ("zrevrange z 0 1 rev", "-ERR syntax error|"),
        ("zrangebyscore z 2 3 withscores", "*4|$1|b|$1|2|$1|c|$1|3|"),
        ("zrangebyscore z -inf inf limit 1 2", "*2|$1|b|$1|c|"),
        ("zrevrangebyscore z 3 2", "*2|$1|c|$1|b|"),
        ("zrangebylex l [b +", "*4|$1|b|$1|c|$1|d|$1|e|"),
        ("zrangebylex z [b + withscores", "-ERR syntax error, WITHSCORES not supported in combination with BYLEX|"),
        ("zrevrangebylex l + [b limit 0 2", "*2|$1|e|$1|d|"),
        ("zrangestore t z 1 3", ":3|"),
        ("zrange t 0 -1 withscores", "*6|$1|b|$1|2|$1|c|$1|3|$1|d|$1|4|"),
        ("zrangestore t z 2 4 byscore rev limit 0 2", ":0|"),
        ("zrange t 0 -1 withscores", "*0|"),
        ("zrangestore t none 0 -1", ":0|"),
        ("exists t", ":0|"),
        ("zrangestore t z 0 -1 withscores", "-ERR syntax error|"),
        ("zremrangebyrank z 0 0", ":1|"),
        ("zremrangebyscore z (2 3", ":1|"),
        ("zremrangebylex l [d +", ":2|"),
        ("zrange z 0 -1", "*3|$1|b|$1|d|$1|e|"),
        ("zremrangebyrank z 0 -1", ":3|"),
        ("exists z", ":0|"),
        ("zremrangebyscore none 0 1", ":0|"),
        ("zremrangebyscore z x 1", "-ERR min or max is not a float|"),
        ("zremrangebylex z x +", "-ERR min or max not valid string range item|"),
        ("zremrangebyrank z x 1", "-ERR value is not an integer or out of range|"),
    ]);
}

#[test]
fn members_are_taken_from_the_ends() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a 2 b 3 c 4 d 5 e 6 f 7 g", ":7|"),
        ("zpopmin z", "*2|$1|a|$1|1|"),
        ("zpopmax z", "*2|$1|g|$1|7|"),
        ("zpopmin z 2", "*4|$1|b|$1|2|$1|c|$1|3|"),
        ("zpopmax z 0", "*0|"),
        ("zpopmin none", "*0|"),
        ("zpopmin none 0", "*0|"),
        ("zpopmin z -1", "-ERR value is out of range, must be positive|"),
        ("zpopmin z x", "-ERR value is out of range, must be positive|"),
        ("zpopmin z 1 2", "-ERR syntax error|"),
        ("set s v", "+OK|"),
        ("zpopmin s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("zpopmin s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("zmpop 2 none z min", "*2|$1|z|*1|*2|$1|d|$1|4|"),
        ("zmpop 1 z max count 10", "*2|$1|z|*2|*2|$1|f|$1|6|*2|$1|e|$1|5|"),
        ("zmpop 1 z max", "*-1|"),
        ("zmpop 0 z min", "-ERR numkeys should be greater than 0|"),
        ("zmpop 1 z up", "-ERR syntax error|"),
        ("zmpop 1 z min count 0", "-ERR count should be greater than 0|"),
        ("zadd z 1 a 2 b 3 c", ":3|"),
        ("bzpopmin none z 0", "*3|$1|z|$1|a|$1|1|"),
        ("bzpopmax z 0", "*3|$1|z|$1|c|$1|3|"),
        ("bzmpop 0 1 z min count 5", "*2|$1|z|*1|*2|$1|b|$1|2|"),
        ("bzpopmin z x", "-ERR timeout is not a float or out of range|"),
        ("exists z", ":0|"),
    ]);
}

#[test]
fn sorted_sets_are_combined() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd a 1 x 2 y 3 z", ":3|"),
        ("zadd b 10 y 20 z 30 w", ":3|"),
        ("zunion 2 a b", "*4|$1|x|$1|y|$1|z|$1|w|"),
        ("zunion 2 a b withscores", "*8|$1|x|$1|1|$1|y|$2|12|$1|z|$2|23|$1|w|$2|30|"),
        ("zunion 2 a b weights 2 0.5 withscores", "*8|$1|x|$1|2|$1|y|$1|9|$1|w|$2|15|$1|z|$2|16|"),
        ("zunion 2 a b aggregate min withscores", "*8|$1|x|$1|1|$1|y|$1|2|$1|z|$1|3|$1|w|$2|30|"),
        ("zunion 2 a b aggregate MAX withscores", "*8|$1|x|$1|1|$1|y|$2|10|$1|z|$2|20|$1|w|$2|30|"),
        ("zinter 2 a b withscores", "*4|$1|y|$2|12|$1|z|$2|23|"),
        ("zinter 2 a none", "*0|"),
        ("zdiff 2 a b withscores", "*2|$1|x|$1|1|"),
        ("zdiff 2 none a", "*0|"),
        ("zunionstore t 2 a b weights 1 -1", ":4|"),
        ("zrange t 0 -1 withscores", "*8|$1|w|$3|-30|$1|z|$3|-17|$1|y|$2|-8|$1|x|$1|1|"),
        ("zinterstore t 2 a b", ":2|"),
        ("zdiffstore t 2 a b", ":1|"),
        ("zrange t 0 -1 withscores", "*2|$1|x|$1|1|"),
        ("zinterstore t 2 a none", ":0|"),
        ("exists t", ":0|"),
        ("zintercard 2 a b", ":2|"),
        ("zintercard 2 a b limit 1", ":1|"),
        ("zintercard 2 a b limit 0", ":2|"),
        ("zintercard 2 a b limit -1", "-ERR LIMIT can't be negative|"),
        ("zunion 0 a", "-ERR at least 1 input key is needed for 'zunion' command|"),
        ("zunion x a", "-ERR value is not an integer or out of range|"),
        ("zunion 3 a b", "-ERR syntax error|"),
        ("zunionstore t 0 a", "-ERR at least 1 input key is needed for 'zunionstore' command|"),
        ("zunion 2 a b weights 1", "-ERR syntax error|"),
        ("zunion 2 a b weights 1 x", "-ERR weight value is not a float|"),
        ("zunion 2 a b aggregate avg", "-ERR syntax error|"),
        ("zunion 2 a b foo", "-ERR syntax error|"),
        ("zdiff 2 a b weights 1 1", "-ERR syntax error|"),
        ("zunionstore t 2 a b withscores", "-ERR syntax error|"),
        ("set s v", "+OK|"),
        ("zunion 2 a s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("zadd i inf m", ":1|"),
        ("zadd j -inf m", ":1|"),
        ("zunion 2 i j withscores", "*2|$1|m|$1|0|"),
        ("zunion 1 i weights 0 withscores", "*2|$1|m|$1|0|"),
        ("zunion 2 a a withscores", "*6|$1|x|$1|2|$1|y|$1|4|$1|z|$1|6|"),
    ]);
}

#[test]
fn members_are_chosen_and_visited() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a", ":1|"),
        ("zrandmember z 5", "*1|$1|a|"),
        ("zrandmember z 5 withscores", "*2|$1|a|$1|1|"),
        ("zrandmember z -3", "*3|$1|a|$1|a|$1|a|"),
        ("zrandmember z -2 withscores", "*4|$1|a|$1|1|$1|a|$1|1|"),
        ("zrandmember z 0", "*0|"),
        ("zrandmember none", "$-1|"),
        ("zrandmember none 1", "*0|"),
        ("zrandmember z x", "-ERR value is not an integer or out of range|"),
        ("zrandmember z 1 foo", "-ERR syntax error|"),
        ("zrandmember z 1 withscores foo", "-ERR syntax error|"),
        ("zrandmember z -9223372036854775808", "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|"),
        ("zrandmember z -9223372036854775807 withscores", "-ERR value is out of range|"),
        ("zadd z 2 b 0.1 c", ":2|"),
        ("zscan z 0", "*2|$1|0|*6|$1|c|$3|0.1|$1|a|$1|1|$1|b|$1|2|"),
        ("zscan z 0 match [ab] count 1", "*2|$1|0|*4|$1|a|$1|1|$1|b|$1|2|"),
        ("zscan none 0", "*2|$1|0|*0|"),
        ("zscan none 0 foo", "*2|$1|0|*0|"),
        ("zscan z x", "-ERR invalid cursor|"),
        ("zscan z 0 count 0", "-ERR syntax error|"),
        ("zscan z 0 count x", "-ERR value is not an integer or out of range|"),
        ("zscan z 0 match", "-ERR syntax error|"),
        ("zscan z 0 novalues", "-ERR NOVALUES option can only be used in HSCAN|"),
    ]);
}

#[test]
fn scores_are_numbers_in_version_3() {
    let mut door = Door::new();
    door.said("hello 3");
    door.expect(&[
        ("zadd z 1.5 a 2 b", ":2|"),
        ("zscore z a", ",1.5|"),
        ("zmscore z a none", "*2|,1.5|_|"),
        ("zadd z incr 1 a", ",2.5|"),
        ("zadd z nx incr 1 a", "_|"),
        ("zrank z a withscore", "*2|:1|,2.5|"),
        ("zrank z none withscore", "_|"),
        ("zrank none a", "_|"),
        ("zrange z 0 -1 withscores", "*2|*2|$1|b|,2|*2|$1|a|,2.5|"),
        ("zrange z 0 -1", "*2|$1|b|$1|a|"),
        ("zrange z 0 10 byscore withscores", "*2|*2|$1|b|,2|*2|$1|a|,2.5|"),
        ("zrevrangebyscore z 10 0 withscores", "*2|*2|$1|a|,2.5|*2|$1|b|,2|"),
        ("zunion 1 z withscores", "*2|*2|$1|b|,2|*2|$1|a|,2.5|"),
        ("zdiff 1 z withscores", "*2|*2|$1|b|,2|*2|$1|a|,2.5|"),
        ("zscan z 0", "*2|$1|0|*4|$1|b|$1|2|$1|a|$3|2.5|"),
        ("zpopmin z", "*2|$1|b|,2|"),
        ("zpopmax z 1", "*1|*2|$1|a|,2.5|"),
        ("zpopmax z 1", "*0|"),
        ("zadd z 1 a 2 b 3 c", ":3|"),
        ("zpopmin z 2", "*2|*2|$1|a|,1|*2|$1|b|,2|"),
        ("bzpopmin z 0", "*3|$1|z|$1|c|,3|"),
        ("zadd z 1 a 2 b 3 c", ":3|"),
        ("zmpop 1 z min", "*2|$1|z|*1|*2|$1|a|,1|"),
        ("bzmpop 0 1 z max count 2", "*2|$1|z|*2|*2|$1|c|,3|*2|$1|b|,2|"),
        ("zmpop 1 z min", "_|"),
        ("lpop none", "_|"),
        ("lpop none 1", "_|"),
        ("lmpop 1 none left", "_|"),
        ("multi", "+OK|"),
        ("blpop none 0", "+QUEUED|"),
        ("blmove none l left left 0", "+QUEUED|"),
        ("bzpopmin none 0", "+QUEUED|"),
        ("exec", "*3|_|_|_|"),
    ]);
}

#[test]
fn writes_keep_the_time_of_expiry() {
    let mut door = Door::new();
    door.expect(&[
        ("zadd z 1 a 2 b 3 c", ":3|"),
        ("pexpire z 5000", ":1|"),
        ("zincrby z 1 a", "$1|2|"),
    ]);
    door.expect(&[("zadd z 4 d", ":1|"), ("zpopmin z", "*2|$1|a|$1|2|"), ("zrem z b", ":1|")]);
    door.expect(&[("pttl z", ":5000|"), ("zrangestore z z 0 -1", ":2|"), ("pttl z", ":-1|")]);
}

#[test]
fn the_encoding_is_that_of_redis() {
    let mut door = Door::new();
    for member in 0..128 {
        door.said(&format!("zadd z {member} m{member}"));
    }
    door.expect(&[("object encoding z", "$8|listpack|"), ("zadd z 0 x", ":1|")]);
    door.expect(&[("object encoding z", "$8|skiplist|"), ("zrem z x", ":1|")]);
    door.expect(&[("object encoding z", "$8|skiplist|"), ("zrangestore z z 0 -1", ":128|")]);
    door.expect(&[("object encoding z", "$8|listpack|")]);
    door.said(&format!("zadd z 0 {}", "x".repeat(65)));
    door.expect(&[("object encoding z", "$8|skiplist|"), ("zremrangebyrank z 0 -1", ":129|")]);
}

#[test]
fn a_scan_visits_all_members() {
    let mut door = Door::new();
    for member in 0..1000 {
        door.said(&format!("zadd z {member}.5 m{member}"));
    }
    let (mut cursor, mut seen, mut calls) = ("0".to_owned(), BTreeSet::new(), 0);
    loop {
        let reply = door.said(&format!("zscan z {cursor} count 30"));
        let parts: Vec<&str> = reply.split('|').collect();
        cursor = parts[2].to_owned();
        seen.extend(parts[4..].chunks(4).filter(|it| it.len() == 4).map(|it| it[1].to_owned()));
        calls += 1;
        // Members that come and go do not matter.
        door.said(&format!("zadd z 0 other{calls}\nzrem z other{}", calls - 5));
        if cursor == "0" {
            break;
        }
    }
    assert!((0..1000).all(|member| seen.contains(&format!("m{member}"))));
    assert!((30..45).contains(&calls), "{calls}");
}

#[test]
fn different_members_are_chosen() {
    let mut door = Door::new();
    for member in 0..300 {
        door.said(&format!("zadd z {member} m{member}"));
    }
    for count in [1, 10, 299, 300, 400] {
        let reply = door.said(&format!("zrandmember z {count}"));
        let members: BTreeSet<&str> = reply.split('|').filter(|it| it.starts_with('m')).collect();
        assert_eq!(members.len(), 300.min(count));
    }
    let reply = door.said("zrandmember z -900 withscores");
    assert!(reply.starts_with("*1800|"), "{reply}");
}

#[derive(Clone, Debug)]
enum Step {
    Add(Vec<(i8, u16)>),
    Increment(i8, u16),
    Remove(Vec<u16>),
    RemoveRanks(i16, i16),
    RemoveScores(i8, i8),
    Pop(bool, u8),
    Rank(u16),
    Count(i8, i8),
    Range(i16, i16, bool),
}

fn any_step() -> impl Strategy<Value = Step> {
    let number = || 0u16..200;
    let score = || -20i8..20;
    prop_oneof![
        4 => prop::collection::vec((score(), number()), 1..80).prop_map(Step::Add),
        2 => (score(), number()).prop_map(|(score, number)| Step::Increment(score, number)),
        2 => prop::collection::vec(number(), 1..60).prop_map(Step::Remove),
        1 => (0i16..20, -20i16..60).prop_map(|(first, last)| Step::RemoveRanks(first, last)),
        1 => (score(), score()).prop_map(|(min, max)| Step::RemoveScores(min, max)),
        2 => (any::<bool>(), 0u8..60).prop_map(|(is_min, count)| Step::Pop(is_min, count)),
        1 => number().prop_map(Step::Rank),
        1 => (score(), score()).prop_map(|(min, max)| Step::Count(min, max)),
        1 => (-200i16..200, -200i16..200, any::<bool>())
            .prop_map(|(first, last, is_reverse)| Step::Range(first, last, is_reverse)),
    ]
}

/// The scores of members, in halves.
type Model = BTreeMap<Vec<u8>, i32>;

fn text_of(halves: i32) -> String {
    double_text(f64::from(halves) / 2.0)
}

/// Returns the members in their order.
fn in_order(model: &Model) -> Vec<(i32, Vec<u8>)> {
    let mut all: Vec<_> = model.iter().map(|(member, score)| (*score, member.clone())).collect();
    all.sort();
    all
}

/// Returns an array of members and scores.
fn shown(members: &[(i32, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", 2 * members.len()).into_bytes();
    for (score, member) in members {
        let score = text_of(*score);
        for string in [member, score.as_bytes()] {
            bytes.extend_from_slice(format!("${}\r\n", string.len()).as_bytes());
            bytes.extend_from_slice(string);
            bytes.extend_from_slice(b"\r\n");
        }
    }
    bytes
}

/// Executes a step on a server and on a model; returns both replies.
fn both(door: &mut Door, model: &mut Model, step: &Step) -> (Vec<u8>, Vec<u8>) {
    let integer = |number: usize| format!(":{number}\r\n").into_bytes();
    let is_in =
        |min: i8, max: i8| move |score: i32| i32::from(min) <= score && score < i32::from(max);
    match step {
        Step::Add(members) => {
            let parts: Vec<Vec<u8>> = members
                .iter()
                .flat_map(|(score, number)| {
                    [text_of(i32::from(*score)).into_bytes(), string_of(*number)]
                })
                .collect();
            let mut arguments = vec![&b"zadd"[..], b"z"];
            arguments.extend(parts.iter().map(|part| &**part));
            let before = model.len();
            let new = members.iter().map(|(score, number)| (string_of(*number), i32::from(*score)));
            model.extend(new);
            (execute(door, &arguments), integer(model.len() - before))
        }
        Step::Increment(score, number) => {
            let (text, member) = (text_of(i32::from(*score)), string_of(*number));
            let sum = model.entry(member.clone()).or_default();
            *sum += i32::from(*score);
            let sum = text_of(*sum);
            let reply = execute(door, &[b"zincrby", b"z", text.as_bytes(), &member]);
            (reply, format!("${}\r\n{sum}\r\n", sum.len()).into_bytes())
        }
        Step::Remove(numbers) => {
            let members: Vec<Vec<u8>> = numbers.iter().map(|number| string_of(*number)).collect();
            let mut arguments = vec![&b"zrem"[..], b"z"];
            arguments.extend(members.iter().map(|member| &**member));
            let count = members.iter().filter(|member| model.remove(*member).is_some()).count();
            (execute(door, &arguments), integer(count))
        }
        Step::RemoveRanks(first, last) => {
            let (from, to) = (first.to_string(), last.to_string());
            let reply = execute(door, &[b"zremrangebyrank", b"z", from.as_bytes(), to.as_bytes()]);
            let ranks = bounds::places(i64::from(*first), i64::from(*last), model.len() as u64);
            let all = in_order(model);
            let removed = &all[ranks.start as usize..ranks.end as usize];
            removed.iter().for_each(|(_, member)| {
                model.remove(member);
            });
            (reply, integer(removed.len()))
        }
        Step::RemoveScores(min, max) => {
            let (from, to) = (text_of(i32::from(*min)), format!("({}", text_of(i32::from(*max))));
            let reply = execute(door, &[b"zremrangebyscore", b"z", from.as_bytes(), to.as_bytes()]);
            let before = model.len();
            model.retain(|_, score| !is_in(*min, *max)(*score));
            (reply, integer(before - model.len()))
        }
        Step::Pop(is_min, count) => {
            let name = if *is_min { &b"zpopmin"[..] } else { b"zpopmax" };
            let reply = execute(door, &[name, b"z", count.to_string().as_bytes()]);
            let mut all = in_order(model);
            if !is_min {
                all.reverse();
            }
            all.truncate(usize::from(*count));
            all.iter().for_each(|(_, member)| {
                model.remove(member);
            });
            (reply, shown(&all))
        }
        Step::Rank(number) => {
            let member = string_of(*number);
            let reply = execute(door, &[b"zrank", b"z", &member]);
            match in_order(model).iter().position(|it| it.1 == member) {
                Some(rank) => (reply, integer(rank)),
                None => (reply, b"$-1\r\n".to_vec()),
            }
        }
        Step::Count(min, max) => {
            let (from, to) = (text_of(i32::from(*min)), format!("({}", text_of(i32::from(*max))));
            let reply = execute(door, &[b"zcount", b"z", from.as_bytes(), to.as_bytes()]);
            (reply, integer(model.values().filter(|score| is_in(*min, *max)(**score)).count()))
        }
        Step::Range(first, last, is_reverse) => {
            let (from, to) = (first.to_string(), last.to_string());
            let name = if *is_reverse { &b"zrevrange"[..] } else { b"zrange" };
            let reply = execute(door, &[name, b"z", from.as_bytes(), to.as_bytes(), b"withscores"]);
            let mut all = in_order(model);
            if *is_reverse {
                all.reverse();
            }
            let ranks = bounds::places(i64::from(*first), i64::from(*last), model.len() as u64);
            (reply, shown(&all[ranks.start as usize..ranks.end as usize]))
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_sorted_set_is_like_its_model(
        steps in prop::collection::vec((any_step(), prop::option::weighted(0.3, 0u64..12)), 1..40),
    ) {
        let (mut door, mut model) = (Door::new(), Model::new());
        for (step, refused) in steps {
            door.store.refuses_after = refused;
            let (reply, expected) = both(&mut door, &mut model, &step);
            door.store.refuses_after = None;
            prop_assert_eq!(reply, expected, "{:?}", step);
            let all = execute(&mut door, &[b"zrange", b"z", b"0", b"-1", b"withscores"]);
            prop_assert_eq!(all, shown(&in_order(&model)), "{:?}", step);
            // The scores by member are the same.
            for (member, score) in &model {
                let score = text_of(*score);
                let reply = execute(&mut door, &[b"zscore", b"z", member]);
                prop_assert_eq!(reply, format!("${}\r\n{score}\r\n", score.len()).into_bytes());
            }
        }
    }
}
