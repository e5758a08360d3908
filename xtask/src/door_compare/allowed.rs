//! The differences that are allowed, each with its reason. A rule that no run uses should go.

use super::connection::Answer;
use super::contest::{Difference, End};
use super::older;
use super::reply::read;
use std::cell::{Cell, RefCell};

/// An allowed difference.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rule {
    /// The beginning of the command's name, as in `CLIENT`; all commands if it is empty.
    pub(super) command: &'static str,
    /// A part of the request, as it is printed, in any letters; `""` fits all.
    pub(super) request: &'static str,
    /// A part of the real server's answer; `""` fits all.
    pub(super) theirs: &'static str,
    /// A part of our answer; `""` fits all. See also [`FEWER`].
    pub(super) ours: &'static str,
    /// Whether only the answer differs, so that the sequence goes on.
    pub(super) goes_on: bool,
    pub(super) reason: &'static str,
}

/// Commands of Redis that are not sent, because their effect is allowed to differ.
struct Skipped {
    command: &'static str,
    /// Its arguments include all of these.
    words: &'static [&'static str],
    reason: &'static str,
}

const SKIPPED: &[Skipped] = &[
    Skipped {
        command: "BITFIELD",
        words: &["SAT", "-9223372036854775808"],
        reason: "A number far below the lowest value of a field becomes the lowest. Redis writes \
                 the highest: the difference of the two overflows.",
    },
    Skipped {
        command: "FUNCTION",
        words: &["FLUSH"],
        reason: "Redis 8.2.3 crashes when it has deleted all functions for the second time.",
    },
];

/// Returns the commands that are not sent, with their reasons.
pub(super) fn skipped() -> Vec<String> {
    let line = |it: &Skipped| format!("{} {}: {}", it.command, it.words.join(" "), it.reason);
    SKIPPED.iter().map(line).collect()
}

/// Whether a command is not sent.
pub(super) fn is_skipped(words: &[Vec<u8>]) -> bool {
    let has = |wanted: &str| words.iter().any(|word| word.eq_ignore_ascii_case(wanted.as_bytes()));
    SKIPPED.iter().any(|it| has(it.command) && it.words.iter().all(|word| has(word)))
}

/// In place of a part of our answer: it is a smaller number than the real server's, in a sequence
/// that writes an object with a time that may lie in the past.
const FEWER: &str = "(fewer)";

const fn of_past_object(command: &'static str) -> Rule {
    Rule {
        command,
        request: "DBSIZE",
        theirs: ":",
        ours: FEWER,
        goes_on: true,
        reason: "An object that is written with a time in the past is not counted. Redis counts it \
                 until it is removed.",
    }
}

/// For Redis.
pub(super) const REDIS: &[Rule] = &[
    Rule {
        command: "OBJECT",
        request: "ENCODING",
        theirs: "listpackex",
        ours: "listpack",
        goes_on: true,
        reason: "A hash has the form for fields that expire if one does. Redis gives it this form \
                 although an HPEXPIRE finds no field.",
    },
    Rule {
        command: "EVAL",
        request: "OBJECT ENCODING",
        theirs: "raw",
        ours: "",
        goes_on: true,
        reason: "The form of a string that a command changed in place, in a script.",
    },
    Rule {
        command: "XTRIM",
        request: "~ 0 LIMIT",
        theirs: ":",
        ours: ":0",
        goes_on: false,
        reason: "An approximate trim removes a hundred entries at a time. Redis removes nodes, which \
                 have fewer if the entries are long.",
    },
    Rule {
        command: "OBJECT",
        request: "ENCODING",
        theirs: "raw",
        ours: "embstr",
        goes_on: true,
        reason: "A short string has one form. Redis keeps it in another one after a change in place.",
    },
    Rule {
        command: "OBJECT",
        request: "ENCODING",
        theirs: "raw",
        ours: "int",
        goes_on: true,
        reason: "The same for a string that is a number.",
    },
    Rule {
        command: "OBJECT",
        request: "ENCODING",
        theirs: "embstr",
        ours: "int",
        goes_on: true,
        reason: "The same for a number that INCRBYFLOAT has written.",
    },
    Rule {
        command: "ZSCAN",
        request: "",
        theirs: "e+17",
        ours: "00000000",
        goes_on: true,
        reason: "A SORT of a small sorted set changes its form in Redis, and ZSCAN writes the \
                 numbers of that form in another way.",
    },
    Rule {
        command: "ZSCAN",
        request: "",
        theirs: "4.9406564584124654e-324",
        ours: "5e-324",
        goes_on: true,
        reason: "The same for the least number.",
    },
    Rule {
        command: "OBJECT",
        request: "ENCODING",
        theirs: "skiplist",
        ours: "listpack",
        goes_on: true,
        reason: "A SORT of a small sorted set leaves its form. Redis changes the form for good.",
    },
    Rule {
        command: "Z",
        request: "",
        theirs: "-0",
        ours: "0",
        goes_on: true,
        reason: "A score of zero has no sign. Redis keeps the sign for some members.",
    },
    Rule {
        command: "CONFIG",
        request: "maxmemory",
        theirs: "maxmemory",
        ours: "maxmemory",
        goes_on: true,
        reason: "There is always a limit for memory.",
    },
    Rule {
        command: "MODULE",
        request: "",
        theirs: "",
        ours: "",
        goes_on: true,
        reason: "There are no modules, and the real server has one.",
    },
    Rule {
        command: "CLIENT",
        request: "",
        theirs: "+QUEUED",
        ours: "-ERR Command not allowed inside a transaction",
        goes_on: false,
        reason: "A delay of clients, and the end of a client's wait, cannot be undone with a \
                 transaction.",
    },
    Rule {
        command: "RESET",
        request: "",
        theirs: "keymiss",
        ours: "keymiss",
        goes_on: false,
        reason: "A SORT of a set with BY looks up keys in the order of the set, which is the \
                 server's own.",
    },
    Rule {
        command: "EVAL",
        request: "LEX",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A range of strings over members with different scores, in a script.",
    },
    Rule {
        command: "Z",
        request: "LEX",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A range of strings over members with different scores. Redis promises nothing there.",
    },
    Rule {
        command: "",
        request: "",
        theirs: ":922",
        ours: ":2796",
        goes_on: false,
        reason: "No object expires later than in the year 10889. This is the time until then.",
    },
    Rule {
        command: "",
        request: "-9223372036854775809",
        theirs: "",
        ours: "invalid cursor",
        goes_on: false,
        reason: "A cursor below the least integer is refused. Redis takes some number for it.",
    },
    Rule {
        command: "LSET",
        request: "",
        theirs: "+OK",
        ours: "index out of range",
        goes_on: false,
        reason: "An index that does not fit is refused. Redis takes its low 32 bits.",
    },
    of_past_object("EVAL"),
    of_past_object("DBSIZE"),
    Rule {
        command: "(bytes)",
        request: "\\x00",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A line may have a zero byte. Redis does not find the end of such a line, and waits.",
    },
    Rule {
        command: "(bytes)",
        request: "5368",
        theirs: "",
        ours: "invalid bulk length",
        goes_on: true,
        reason: "Values are shorter than in Redis, so a length of 512 MiB is refused.",
    },
    Rule {
        command: "(bytes)",
        request: "7091",
        theirs: "",
        ours: "invalid bulk length",
        goes_on: true,
        reason: "The same for a length of nearly as many digits: a random byte was changed.",
    },
    Rule {
        command: "(bytes)",
        request: "Host:",
        theirs: "(then closed)",
        ours: "(then closed)",
        goes_on: true,
        reason: "A line of a browser ends the connection behind the answers to earlier commands. Redis \
                 drops the answers that it has not sent yet.",
    },
    Rule {
        command: "(bytes)",
        request: "POST",
        theirs: "(then closed)",
        ours: "(then closed)",
        goes_on: true,
        reason: "The same for the other word of a browser.",
    },
    Rule {
        command: "",
        request: "\\x00",
        theirs: "-ERR",
        ours: "\\x00",
        goes_on: true,
        reason: "An error shows a whole word. Redis shows it up to its zero byte.",
    },
    Rule {
        command: "CLIENT",
        request: "\\x00",
        theirs: "+OK",
        ours: "-ERR",
        goes_on: false,
        reason: "A zero byte is a special character. For Redis it is the end of the name.",
    },
    Rule {
        command: "HELLO",
        request: "\\x00",
        theirs: "server",
        ours: "-ERR Client names",
        goes_on: false,
        reason: "The same for the name of a client.",
    },
];

/// For memcached: the list at the top of `crates/doors/src/memcached.rs`.
pub(super) const MEMCACHED: &[Rule] = &[
    Rule {
        command: "",
        request: "\\000",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A line with a zero byte is refused. Memcached ignores the rest of such a line.",
    },
    Rule {
        command: "",
        request: "429496729",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "Flags, times and lengths that do not fit are refused. Memcached takes the low bits.",
    },
    Rule {
        command: "",
        request: " t",
        theirs: "t-1",
        ours: "t100000",
        goes_on: false,
        reason: "The time of an ma always counts. Memcached forgets it if the number becomes longer, or \
                 if another answer still uses the object.",
    },
    Rule {
        command: "",
        request: " t",
        theirs: "t-1",
        ours: "t99999",
        goes_on: false,
        reason: "The same, a second later.",
    },
    Rule {
        command: "",
        request: "",
        theirs: "VA",
        ours: " \\r\\n",
        goes_on: false,
        reason: "A number that becomes shorter is always padded. Memcached does so unless another \
                 answer still uses the object.",
    },
    Rule {
        command: "",
        request: "",
        theirs: "VA",
        ours: " Z",
        goes_on: false,
        reason: "A stale object stays stale when its number changes. Memcached forgets that if another \
                 answer still uses the object.",
    },
    Rule {
        command: "",
        request: "h",
        theirs: "h0",
        ours: "h1",
        goes_on: false,
        reason: "An add of an object that is there counts as an access.",
    },
    Rule {
        command: "",
        request: "h",
        theirs: "h1",
        ours: "h0",
        goes_on: false,
        reason: "A new number has not been read yet. Memcached changes the number in place.",
    },
    Rule {
        command: "(bytes)",
        request: "set a 18446744073709551615",
        theirs: "STORED",
        ours: "CLIENT_ERROR",
        goes_on: false,
        reason: "Flags that do not fit are refused. Memcached takes the low bits.",
    },
    Rule {
        command: "(several)",
        request: "mg a k s f t c v",
        theirs: " t2",
        ours: "t-1",
        goes_on: false,
        reason: "The time of an ma always counts, also if it takes the time away.",
    },
    Rule {
        command: "(several)",
        request: "mg ",
        theirs: "HD s1",
        ours: "HD s2",
        goes_on: false,
        reason: "A number that becomes shorter is padded, as its length shows.",
    },
    Rule {
        command: "(bytes)",
        request: "2000000",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A set that is refused leaves the old object. Memcached removes it.",
    },
    Rule {
        command: "(several)",
        request: "kkkkkkkkkk",
        theirs: "",
        ours: "",
        goes_on: false,
        reason: "A get with a key that is too long leaves the earlier answers. Memcached drops the \
                 answers that it has not sent yet.",
    },
];

/// The rules of a run, and how often each was used.
#[derive(Debug, Default)]
pub(super) struct Judge {
    rules: Vec<Rule>,
    used: RefCell<Vec<u64>>,
    /// Whether the real server is an older Redis, which writes numbers in another way.
    is_older: bool,
    /// Whether the sequence writes objects with times that may lie in the past.
    has_past: Cell<bool>,
}

impl Judge {
    /// Returns the rules for a Redis, which may be an older one.
    pub(super) fn of_redis(is_older: bool) -> Judge {
        let older = if is_older { older::RULES } else { &[] };
        let rules = [REDIS, older].concat();
        let used = RefCell::new(vec![0; rules.len()]);
        Judge { used, rules, is_older, has_past: Cell::new(false) }
    }

    /// Notes the commands of the next sequence.
    pub(super) fn begin<'a>(&self, mut commands: impl Iterator<Item = &'a [Vec<u8>]>) {
        let is_time = |word: &Vec<u8>| {
            [&b"EXAT"[..], b"PXAT", b"ABSTTL"].iter().any(|it| word.eq_ignore_ascii_case(it))
        };
        self.has_past.set(commands.any(|words| words.iter().any(is_time)));
    }

    /// Returns the end of a sequence after a difference: none if it may go on.
    pub(super) fn judge(&self, difference: Difference) -> Result<(), End> {
        let Difference { name, command, theirs, ours, .. } = &difference;
        if self.is_older && older::are_equal_numbers(theirs, ours) {
            return Ok(());
        }
        let Some(rule) = allowed(&self.rules, name, command, (theirs, ours), self.has_past.get())
        else {
            return Err(End::Different(Box::new(difference)));
        };
        self.used.borrow_mut()[rule] += 1;
        if self.rules[rule].goes_on { Ok(()) } else { Err(End::Allowed) }
    }

    /// Returns the rules with the numbers of their uses.
    pub(super) fn uses(&self) -> Vec<(Rule, u64)> {
        self.rules.iter().copied().zip(self.used.borrow().iter().copied()).collect()
    }
}

/// Returns the number of the first rule that allows a difference.
pub(super) fn allowed(
    rules: &[Rule],
    name: &str,
    request: &str,
    (theirs, ours): (&Answer, &Answer),
    has_past: bool,
) -> Option<usize> {
    if rules.is_empty() {
        return None;
    }
    let number = |answer: &Answer| {
        let reply = answer.bytes().and_then(|bytes| read(bytes).ok());
        reply.filter(|reply| reply.kind == b':').and_then(|reply| reply.number())
    };
    let is_fewer =
        || has_past && number(theirs).zip(number(ours)).is_some_and(|(theirs, ours)| theirs > ours);
    let (theirs, ours) = (theirs.whole_text(), ours.whole_text());
    let request = request.to_ascii_uppercase();
    rules.iter().position(|rule| {
        name.starts_with(rule.command)
            && request.contains(&rule.request.to_ascii_uppercase())
            && theirs.contains(rule.theirs)
            && if rule.ours == FEWER { is_fewer() } else { ours.contains(rule.ours) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rule_fits_its_command_and_both_answers() {
        let rules = [Rule {
            command: "HELLO",
            request: "4",
            theirs: "-ERR a",
            ours: "-ERR b",
            goes_on: true,
            reason: "test",
        }];
        let answer = |text: &str| Answer::Reply(text.as_bytes().to_vec());
        let found = |name, request, theirs, ours| {
            allowed(&rules, name, request, (&answer(theirs), &answer(ours)), false)
        };
        assert_eq!(found("HELLO", "HELLO 4", "-ERR a\r\n", "-ERR b\r\n"), Some(0));
        assert_eq!(found("HELLO", "HELLO 4", "-ERR b\r\n", "-ERR a\r\n"), None);
        assert_eq!(found("HELLO", "HELLO 3", "-ERR a\r\n", "-ERR b\r\n"), None);
        assert_eq!(found("PING", "PING 4", "-ERR a\r\n", "-ERR b\r\n"), None);
    }

    #[test]
    fn fewer_objects_are_allowed_only_after_a_time_in_the_past() {
        let judge = Judge::of_redis(false);
        let differs = |theirs: &str, ours: &str| {
            let [theirs, ours] = [theirs, ours].map(|it| Answer::Reply(it.as_bytes().to_vec()));
            let (command, name) = ("DBSIZE".to_owned(), "DBSIZE".to_owned());
            let is_of_contents = false;
            let end = judge.judge(Difference { command, name, theirs, ours, is_of_contents });
            matches!(end, Err(End::Different(_)))
        };
        let words =
            |line: &str| line.split(' ').map(|it| it.as_bytes().to_vec()).collect::<Vec<_>>();
        let (past, other) = (words("SET s1 foo pxat 1000"), words("SET s1 foo"));
        judge.begin([&other[..]].into_iter());
        assert!(differs(":17\r\n", ":16\r\n"));
        judge.begin([&other[..], &past[..]].into_iter());
        assert!(!differs(":17\r\n", ":16\r\n"));
        assert!(differs(":16\r\n", ":17\r\n") && differs(":16\r\n", "$2\r\n15\r\n"));
    }

    #[test]
    fn every_rule_has_a_reason() {
        assert!(REDIS.iter().chain(MEMCACHED).all(|rule| !rule.reason.is_empty()));
        assert!(SKIPPED.iter().all(|it| !it.reason.is_empty()));
        assert_eq!(skipped().len(), SKIPPED.len());
    }

    #[test]
    fn a_command_is_skipped_for_its_words_in_any_letters() {
        let is_skipped = |line: &str| {
            let words = line.split(' ').map(|word| word.as_bytes().to_vec());
            is_skipped(&words.collect::<Vec<_>>())
        };
        assert!(is_skipped("bitfield k OVERFLOW sat SET i8 0 -9223372036854775808"));
        assert!(!is_skipped("BITFIELD k OVERFLOW FAIL SET i8 0 -9223372036854775808"));
        assert!(!is_skipped("BITFIELD k OVERFLOW SAT SET i8 0 -129"));
    }

    #[test]
    fn letters_of_a_request_do_not_matter() {
        let answers = [":1\r\n", ":2\r\n"].map(|it| Answer::Reply(it.as_bytes().to_vec()));
        let [theirs, ours] = &answers;
        let name = "ZREMRANGEBYLEX";
        for request in ["ZREMRANGEBYLEX z - +", "zremrangebylex z - +"] {
            assert!(allowed(REDIS, name, request, (theirs, ours), false).is_some(), "{request}");
        }
    }
}
