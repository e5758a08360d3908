//! The differences between Redis 7.0 and the 8.2 that our answers follow.
//!
//! Commands that the older server does not have are not sent. The other differences are here: words
//! that only the newer one knows, errors that it has changed, and shorter texts of numbers.

use super::allowed::Rule;
use super::connection::Answer;
use super::reply::{Reply, read};

const fn newer(command: &'static str, theirs: &'static str, ours: &'static str) -> Rule {
    Rule {
        command,
        request: "",
        theirs,
        ours,
        goes_on: false,
        reason: "Redis 8.2 is different from 7.0.",
    }
}

/// Returns the rule for a word that 7.0 does not know.
const fn with(request: &'static str) -> Rule {
    Rule { request, ..newer("", "-ERR", "") }
}

/// For Redis 7.0, behind the rules for every Redis.
pub(super) const RULES: &[Rule] = &[
    with("KEEPREF"),
    with("DELREF"),
    with("ACKED"),
    newer("XINFO", "", ""),
    newer("XREAD", "-ERR Invalid stream ID", ""),
    // An XREADGROUP without entries makes no consumer.
    newer("XGROUP", ":1", ":0"),
    newer("RESET", "+RESET", "xgroup-createconsumer"),
    newer("XREADGROUP", "-NOGROUP the consumer group", ""),
    newer("XREADGROUP", "-UNBLOCKED", ""),
    newer("X", "-ERR Unbalanced", "-ERR Unbalanced"),
    newer("XSETID", "", "-ERR The ID"),
    // A client that waits for one key twice gets it once.
    newer("XREAD", "1", "*2"),
    newer("XREAD", "1", "%2"),
    newer("EVAL", "-ERR Wrong number of args calling", ""),
    newer("EVAL", "not allowed", ""),
    newer("EVAL", "-ERR syntax error", ""),
    newer("EVAL", "-ERR Invalid stream ID", ""),
    newer("EVAL", "-ERR Unbalanced", ""),
    newer("EVAL", ":", "-ERR value is not an integer"),
    // Coordinates have fewer digits.
    newer("GEO", "", ""),
    Rule { request: "GEO", ..newer("EVAL", "", "") },
    // A HELLO with a wrong option sets the name.
    Rule { request: "GETNAME", ..newer("CLIENT", "$", "-1") },
    Rule { request: "GETNAME", ..newer("CLIENT", "$", "_") },
    newer("LREM", ":0", "-ERR value is out of range"),
    newer("LPOS", "", "-ERR value is out of range"),
    newer("B", "-WRONGTYPE", "-ERR"),
    newer("SORT", "-ERR One or more scores", ""),
    newer("EVAL", "-ERR DUMP payload version", ""),
    newer("OBJECT", "hashtable", "listpack"),
    newer("OBJECT", "quicklist", "listpack"),
    newer("RESTORE", "-ERR DUMP payload version", "+OK"),
    newer("BITOP", "-ERR syntax error", ""),
    newer("BITPOS", ":", "-ERR"),
    newer("BITCOUNT", ":0", "-ERR"),
    newer("", "", "-ERR invalid cursor"),
    newer("", "-ERR invalid cursor", ""),
    Rule { request: "NOVALUES", ..newer("HSCAN", "-ERR syntax error", "") },
    newer("ZRANK", "-ERR wrong number", ""),
    newer("ZREVRANK", "-ERR wrong number", ""),
    newer("COMMAND", "-ERR wrong number", "-ERR"),
    newer("LPOS", "-ERR MAXLEN", "-ERR value is out of range"),
    // The elements of all pages: numbers have other texts.
    newer("ZSCAN", "$", "$"),
    newer("B", "timeout is negative", "timeout is out of range"),
    // A client of version 3 that publishes to itself gets the message first.
    newer("", "message\\r\\n", ""),
];

/// Whether two answers differ only in the texts of equal numbers: 7.0 writes 17 digits.
pub(super) fn are_equal_numbers(theirs: &Answer, ours: &Answer) -> bool {
    let (Some(theirs), Some(ours)) = (theirs.bytes(), ours.bytes()) else { return false };
    match (read(theirs), read(ours)) {
        (Ok(theirs), Ok(ours)) => are_equal(&theirs, &ours),
        _ => false,
    }
}

fn are_equal(theirs: &Reply<'_>, ours: &Reply<'_>) -> bool {
    if theirs.raw == ours.raw {
        return true;
    }
    let number = |reply: &Reply<'_>| {
        let text = std::str::from_utf8(reply.text).ok()?;
        text.parse::<f64>().ok()
    };
    let is_same_shape = theirs.kind == ours.kind && theirs.parts.len() == ours.parts.len();
    match theirs.parts.is_empty() {
        true => is_same_shape && number(theirs).is_some() && number(theirs) == number(ours),
        false => {
            is_same_shape
                && theirs.parts.iter().zip(&ours.parts).all(|(one, other)| are_equal(one, other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_of_equal_numbers_are_equal() {
        let answer = |text: &str| Answer::Reply(text.replace('|', "\r\n").into_bytes());
        let are = |theirs, ours| are_equal_numbers(&answer(theirs), &answer(ours));
        assert!(are("$5|1e+17|", "$18|100000000000000000|"));
        assert!(are("*2|$1|a|$19|0.10000000000000001|", "*2|$1|a|$3|0.1|"));
        assert!(!are("*2|$1|a|$3|0.2|", "*2|$1|a|$3|0.1|"));
        assert!(!are("*2|$1|a|$3|0.1|", "*2|$1|b|$3|0.1|"));
        assert!(!are("$1|a|", "$1|b|") && !are("*1|$1|1|", "$1|1|"));
    }
}
