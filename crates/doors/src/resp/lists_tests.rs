//! Lists: the replies of Redis 8.2, and a model.

use super::bounds;
use super::models::{array, execute, string_of};
use super::testing::{Door, text_of};
use super::{Facts, Output, ServerOptions};
use proptest::prelude::*;
use std::collections::VecDeque;

#[test]
fn elements_are_added_and_taken_at_both_ends() {
    let mut door = Door::new();
    door.expect(&[
        ("rpush l a b c", ":3|"),
        ("lpush l z y", ":5|"),
        ("lrange l 0 -1", "*5|$1|y|$1|z|$1|a|$1|b|$1|c|"),
        ("llen l", ":5|"),
        ("llen none", ":0|"),
        ("lpushx none a", ":0|"),
        ("rpushx none a", ":0|"),
        ("lpushx l x", ":6|"),
        ("rpushx l d e", ":8|"),
        ("lpop l", "$1|x|"),
        ("rpop l", "$1|e|"),
        ("lpop l 0", "*0|"),
        ("lpop l 2", "*2|$1|y|$1|z|"),
        ("rpop l 100", "*4|$1|d|$1|c|$1|b|$1|a|"),
        ("exists l", ":0|"),
        ("lpop none", "$-1|"),
        ("lpop none 1", "*-1|"),
        ("rpop none 0", "*-1|"),
        ("lpop l -1", "-ERR value is out of range, must be positive|"),
        ("lpop l x", "-ERR value is out of range, must be positive|"),
        ("lpop l 1 2", "-ERR wrong number of arguments for 'lpop' command|"),
        ("set s v", "+OK|"),
        ("lpush s a", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("lpop s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("lpop s 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("llen s", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("lrange s 0 -1", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
    ]);
}

#[test]
fn elements_are_read_and_written_at_their_places() {
    let mut door = Door::new();
    door.expect(&[
        ("rpush l a b c d e", ":5|"),
        ("lindex l 0", "$1|a|"),
        ("lindex l -1", "$1|e|"),
        ("lindex l 5", "$-1|"),
        ("lindex l -6", "$-1|"),
        ("lindex none x", "$-1|"),
        ("lindex l x", "-ERR value is not an integer or out of range|"),
        ("lset l 0 A", "+OK|"),
        ("lset l -1 E", "+OK|"),
        ("lset l 5 x", "-ERR index out of range|"),
        ("lset none 0 x", "-ERR no such key|"),
        ("lset l x x", "-ERR value is not an integer or out of range|"),
        ("lrange l 0 -1", "*5|$1|A|$1|b|$1|c|$1|d|$1|E|"),
        ("lrange l 1 3", "*3|$1|b|$1|c|$1|d|"),
        ("lrange l -2 100", "*2|$1|d|$1|E|"),
        ("lrange l 3 1", "*0|"),
        ("lrange l -100 0", "*1|$1|A|"),
        ("lrange l x 0", "-ERR value is not an integer or out of range|"),
        ("lrange none 0 -1", "*0|"),
        ("ltrim l 1 -2", "+OK|"),
        ("lrange l 0 -1", "*3|$1|b|$1|c|$1|d|"),
        ("ltrim l 5 10", "+OK|"),
        ("exists l", ":0|"),
        ("ltrim none 0 0", "+OK|"),
        ("ltrim none 0 x", "-ERR value is not an integer or out of range|"),
    ]);
}

#[test]
fn elements_are_found_by_their_bytes() {
    let mut door = Door::new();
    door.expect(&[
        ("rpush l a b a c a b", ":6|"),
        ("linsert l before b X", ":7|"),
        ("linsert l AFTER a Y", ":8|"),
        ("linsert l before none x", ":-1|"),
        ("linsert none before a x", ":0|"),
        ("linsert l beside a x", "-ERR syntax error|"),
        ("lrange l 0 -1", "*8|$1|a|$1|Y|$1|X|$1|b|$1|a|$1|c|$1|a|$1|b|"),
        ("lrem l 1 a", ":1|"),
        ("lrem l -1 a", ":1|"),
        ("lrange l 0 -1", "*6|$1|Y|$1|X|$1|b|$1|a|$1|c|$1|b|"),
        ("lrem l 0 b", ":2|"),
        ("lrem l 0 none", ":0|"),
        ("lrem none 1 a", ":0|"),
        ("lrem l x a", "-ERR value is not an integer or out of range|"),
        ("lrem l -9223372036854775808 a", "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|"),
        ("rpush p a b c a b c a", ":7|"),
        ("lpos p a", ":0|"),
        ("lpos p a rank 2", ":3|"),
        ("lpos p a rank -1", ":6|"),
        ("lpos p a rank -2 count 2", "*2|:3|:0|"),
        ("lpos p a count 0", "*3|:0|:3|:6|"),
        ("lpos p a count 2", "*2|:0|:3|"),
        ("lpos p a count 0 maxlen 4", "*2|:0|:3|"),
        ("lpos p c maxlen 2", "$-1|"),
        ("lpos p c rank -1 maxlen 2", ":5|"),
        ("lpos p c rank -1 maxlen 1", "$-1|"),
        ("lpos p none", "$-1|"),
        ("lpos p none count 1", "*0|"),
        ("lpos none a", "$-1|"),
        ("lpos none a count 1", "*0|"),
        ("lpos p a rank 0", "-ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... or use negative to start from the end of the list|"),
        ("lpos p a rank -9223372036854775808", "-ERR value is out of range, value must between -9223372036854775807 and 9223372036854775807|"),
        ("lpos p a count -1", "-ERR COUNT can't be negative|"),
        ("lpos p a maxlen -1", "-ERR MAXLEN can't be negative|"),
        ("lpos p a rank", "-ERR syntax error|"),
        ("lpos p a foo 1", "-ERR syntax error|"),
        ("del p", ":1|"),
        ("lrem l 0 a", ":1|"),
        ("lrem l 0 X", ":1|"),
        ("lrem l 0 Y", ":1|"),
        ("lrem l 0 c", ":1|"),
        ("exists l", ":0|"),
    ]);
}

#[test]
fn elements_are_moved() {
    let mut door = Door::new();
    door.expect(&[
        ("rpush a 1 2 3", ":3|"),
        ("lmove a b left right", "$1|1|"),
        ("lmove a b RIGHT LEFT", "$1|3|"),
        ("lrange b 0 -1", "*2|$1|3|$1|1|"),
        ("rpoplpush a b", "$1|2|"),
        ("exists a", ":0|"),
        ("rpoplpush a b", "$-1|"),
        ("lmove a b left left", "$-1|"),
        ("lmove b b left right", "$1|2|"),
        ("lrange b 0 -1", "*3|$1|3|$1|1|$1|2|"),
        ("lmove b b up left", "-ERR syntax error|"),
        ("set s v", "+OK|"),
        (
            "lmove b s left left",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "lmove s b left left",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        ("rpush t 1", ":1|"),
        ("expire t 1000", ":1|"),
        ("rpoplpush t t", "$1|1|"),
        ("persist t", ":1|"),
        ("lmpop 2 none b left", "*2|$1|b|*1|$1|3|"),
        ("lmpop 1 b RIGHT count 10", "*2|$1|b|*2|$1|2|$1|1|"),
        ("lmpop 1 b left", "*-1|"),
        ("lmpop 2 s b left", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        ("lmpop 0 b left", "-ERR numkeys should be greater than 0|"),
        ("lmpop x b left", "-ERR numkeys should be greater than 0|"),
        ("lmpop 3 b left", "-ERR syntax error|"),
        ("lmpop 1 b up", "-ERR syntax error|"),
        ("lmpop 1 b left count 0", "-ERR count should be greater than 0|"),
        ("lmpop 1 b left count 1 count 1", "-ERR syntax error|"),
        ("lmpop 1 b left count", "-ERR syntax error|"),
    ]);
}

#[test]
fn commands_that_wait_reply_at_once_if_they_can() {
    let mut door = Door::new();
    door.expect(&[
        ("rpush l a b c d e f g", ":7|"),
        ("blpop none l 0", "*2|$1|l|$1|a|"),
        ("brpop l 1.5", "*2|$1|l|$1|g|"),
        ("blmove l m left right 0", "$1|b|"),
        ("brpoplpush l m 0", "$1|f|"),
        ("blmpop 0 2 none l left count 2", "*2|$1|l|*2|$1|c|$1|d|"),
        ("blpop l -1", "-ERR timeout is negative|"),
        ("blpop l x", "-ERR timeout is not a float or out of range|"),
        ("blpop l 1e30", "-ERR timeout is out of range|"),
        ("blpop l 1e5000", "-ERR timeout is not a float or out of range|"),
        ("blmove l m left up 0", "-ERR syntax error|"),
        ("blmove l m left right -1", "-ERR timeout is negative|"),
        ("blmpop -1 1 l left", "-ERR timeout is negative|"),
        ("blmpop 0 0 l left", "-ERR numkeys should be greater than 0|"),
        ("set s v", "+OK|"),
        ("blpop s l 0", "-WRONGTYPE Operation against a key holding the wrong kind of value|"),
        (
            "blmove s l left left 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        (
            "blmove l s left left 0",
            "-WRONGTYPE Operation against a key holding the wrong kind of value|",
        ),
        ("multi", "+OK|"),
        ("blpop none 0", "+QUEUED|"),
        ("blmove none l left left 0", "+QUEUED|"),
        ("brpoplpush none l 0", "+QUEUED|"),
        ("blmpop 0 1 none left", "+QUEUED|"),
        ("blpop none l 0", "+QUEUED|"),
        ("bzpopmin none 0", "+QUEUED|"),
        ("bzmpop 0 1 none min", "+QUEUED|"),
        ("exec", "*7|*-1|$-1|$-1|*-1|*2|$1|l|$1|e|*-1|*-1|"),
    ]);
}

#[test]
fn writes_keep_the_time_of_expiry() {
    let mut door = Door::new();
    door.expect(&[("rpush l a b c", ":3|"), ("pexpire l 5000", ":1|"), ("rpush l d", ":4|")]);
    door.expect(&[("lset l 0 A", "+OK|"), ("lrem l 1 b", ":1|"), ("lpop l", "$1|A|")]);
    door.expect(&[("rpoplpush l l", "$1|d|"), ("pttl l", ":5000|")]);
    door.expect(&[("rpoplpush l m", "$1|c|"), ("ttl m", ":-1|"), ("pttl l", ":5000|")]);
    door.pass(5000);
    door.expect(&[("exists l m", ":1|"), ("rpush l a", ":1|"), ("pttl l", ":-1|")]);
}

#[test]
fn large_lists_go_to_pages_and_leave_none() {
    let mut door = Door::new();
    let line = format!("rpush l{}", " 0123456789".repeat(50));
    for _ in 0..40 {
        door.said(&line);
    }
    assert_eq!(door.said("object encoding l"), "$9|quicklist|");
    door.expect(&[("llen l", ":2000|"), ("lset l 1000 middle", "+OK|")]);
    door.expect(&[("lindex l 1000", "$6|middle|"), ("lpos l middle", ":1000|")]);
    door.expect(&[("ltrim l 999 1001", "+OK|"), ("lrange l 1 -1", "*2|$6|middle|$10|0123456789|")]);
    door.expect(&[
        ("object encoding l", "$8|listpack|"),
        ("lpop l 3", "*3|$10|0123456789|$6|middle|$10|0123456789|"),
    ]);
    assert_eq!(pages(&door), 0);
}

#[test]
fn many_elements_are_removed_by_their_bytes_wherever_they_are() {
    let count = |door: &mut Door, command: &str| -> usize {
        door.said(command).trim_matches([':', '|']).parse().unwrap()
    };
    for among in [1, 2, 7, 90] {
        let elements = |from: usize| {
            let each = (from..from + 500).map(|it| if it % among == 0 { " x" } else { " other" });
            each.collect::<String>()
        };
        let mut door = Door::new();
        for part in 0..20 {
            door.said(&format!("rpush l{}", elements(500 * part)));
        }
        let all = 10_000_usize.div_ceil(among);
        assert_eq!(count(&mut door, "lrem l 3 x"), all.min(3), "{among}");
        assert_eq!(count(&mut door, "lrem l -3 x"), (all - 3).min(3), "{among}");
        assert_eq!(count(&mut door, "lrem l 0 x"), all - 6, "{among}");
        assert_eq!(count(&mut door, "llen l"), 10_000 - all, "{among}");
        assert_eq!(count(&mut door, "lrem l 0 other"), 10_000 - all, "{among}");
        assert_eq!(door.said("exists l"), ":0|");
        door.said("rpush l a");
        for _ in 0..100 {
            door.server.sweep(&mut door.store, 1000, &mut crate::resp::Output::default());
        }
        assert_eq!(pages(&door), 0, "{among}");
    }
}

#[test]
fn a_queue_changes_its_header_alone_nearly_always() {
    let mut door = Door::new();
    let line = format!("rpush l{}", " 0123456789".repeat(500));
    door.expect(&[(&line, ":500|"), (&line, ":1000|")]);
    for (push, pop) in [("lpush", "rpop"), ("rpush", "lpop"), ("lpush", "lpop")] {
        let mut changes = 0;
        for _ in 0..200 {
            let before = lines_of_pages(&door);
            door.expect(&[(&format!("{push} l 0123456789"), ":1001|")]);
            door.expect(&[(&format!("{pop} l"), "$10|0123456789|")]);
            changes += usize::from(lines_of_pages(&door) != before);
        }
        assert!(changes <= 8, "{changes} changes of pages with {push} and {pop}");
    }
}

/// Counts the pages of collections.
fn pages(door: &Door) -> usize {
    lines_of_pages(door).len()
}

fn lines_of_pages(door: &Door) -> Vec<String> {
    let is_page = |line: &String| !line.starts_with("0 ") && !line.contains(" \\x00 ");
    door.store.content().into_iter().filter(is_page).collect()
}

#[derive(Clone, Debug)]
enum Step {
    Push(bool, Vec<u16>),
    Pop(bool, u8),
    Set(i16, u16),
    Insert(bool, u16, u16),
    Remove(i8, u16),
    Trim(i16, i16),
    Move(bool, bool),
    Find(u16, i8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let number = || 0u16..40;
    prop_oneof![
        4 => (any::<bool>(), prop::collection::vec(number(), 1..80))
            .prop_map(|(left, all)| Step::Push(left, all)),
        2 => (any::<bool>(), any::<u8>()).prop_map(|(left, count)| Step::Pop(left, count)),
        2 => (-200i16..200, number()).prop_map(|(place, number)| Step::Set(place, number)),
        2 => (any::<bool>(), number(), number())
            .prop_map(|(before, pivot, number)| Step::Insert(before, pivot, number)),
        1 => (any::<i8>(), number()).prop_map(|(count, number)| Step::Remove(count % 5, number)),
        1 => (0i16..40, -40i16..300).prop_map(|(first, last)| Step::Trim(first, last)),
        2 => (any::<bool>(), any::<bool>()).prop_map(|(from, to)| Step::Move(from, to)),
        1 => (number(), 1i8..4).prop_map(|(number, rank)| Step::Find(number, rank)),
    ]
}

fn end(is_left: bool) -> &'static [u8] {
    if is_left { b"left" } else { b"right" }
}

/// Executes a step on a server and on a model; returns both replies.
fn both(door: &mut Door, model: &mut VecDeque<Vec<u8>>, step: &Step) -> (Vec<u8>, Vec<u8>) {
    let integer = |number: i64| format!(":{number}\r\n").into_bytes();
    let null = || b"$-1\r\n".to_vec();
    match step {
        Step::Push(is_left, numbers) => {
            let strings: Vec<Vec<u8>> = numbers.iter().map(|number| string_of(*number)).collect();
            let mut arguments = vec![if *is_left { &b"lpush"[..] } else { b"rpush" }, b"l"];
            arguments.extend(strings.iter().map(|string| &**string));
            for string in &strings {
                match is_left {
                    true => model.push_front(string.clone()),
                    false => model.push_back(string.clone()),
                }
            }
            (execute(door, &arguments), integer(model.len() as i64))
        }
        Step::Pop(is_left, count) => {
            let name = if *is_left { &b"lpop"[..] } else { b"rpop" };
            let reply = execute(door, &[name, b"l", count.to_string().as_bytes()]);
            if model.is_empty() {
                return (reply, b"*-1\r\n".to_vec());
            }
            let mut taken = Vec::new();
            for _ in 0..*count {
                taken.extend(if *is_left { model.pop_front() } else { model.pop_back() });
            }
            (reply, array(taken.iter().map(|string| &**string)))
        }
        Step::Set(place, number) => {
            let string = string_of(*number);
            let reply = execute(door, &[b"lset", b"l", place.to_string().as_bytes(), &string]);
            if model.is_empty() {
                return (reply, b"-ERR no such key\r\n".to_vec());
            }
            match bounds::place(i64::from(*place), model.len() as u64) {
                Some(place) => {
                    model[place as usize] = string;
                    (reply, b"+OK\r\n".to_vec())
                }
                None => (reply, b"-ERR index out of range\r\n".to_vec()),
            }
        }
        Step::Insert(is_before, pivot, number) => {
            let (pivot, string) = (string_of(*pivot), string_of(*number));
            let word = if *is_before { &b"before"[..] } else { b"after" };
            let reply = execute(door, &[b"linsert", b"l", word, &pivot, &string]);
            let place = model.iter().position(|it| *it == pivot);
            let result = match place {
                _ if model.is_empty() => 0,
                None => -1,
                Some(place) => {
                    model.insert(place + usize::from(!is_before), string);
                    model.len() as i64
                }
            };
            (reply, integer(result))
        }
        Step::Remove(count, number) => {
            let string = string_of(*number);
            let reply = execute(door, &[b"lrem", b"l", count.to_string().as_bytes(), &string]);
            let mut removed = 0;
            let most = if *count == 0 { usize::MAX } else { usize::from(count.unsigned_abs()) };
            while removed < most {
                let place = match *count < 0 {
                    true => model.iter().rposition(|it| *it == string),
                    false => model.iter().position(|it| *it == string),
                };
                let Some(place) = place else { break };
                model.remove(place);
                removed += 1;
            }
            (reply, integer(removed as i64))
        }
        Step::Trim(first, last) => {
            let (from, to) = (first.to_string(), last.to_string());
            let reply = execute(door, &[b"ltrim", b"l", from.as_bytes(), to.as_bytes()]);
            let places = bounds::places(i64::from(*first), i64::from(*last), model.len() as u64);
            model.truncate(places.end as usize);
            model.drain(..places.start as usize);
            (reply, b"+OK\r\n".to_vec())
        }
        Step::Move(from, to) => {
            let reply = execute(door, &[b"lmove", b"l", b"l", end(*from), end(*to)]);
            let taken = if *from { model.pop_front() } else { model.pop_back() };
            let Some(taken) = taken else { return (reply, null()) };
            let shown = [format!("${}\r\n", taken.len()).as_bytes(), &taken, b"\r\n"].concat();
            match to {
                true => model.push_front(taken),
                false => model.push_back(taken),
            }
            (reply, shown)
        }
        Step::Find(number, rank) => {
            let string = string_of(*number);
            let rank_text = rank.to_string();
            let reply = execute(door, &[b"lpos", b"l", &string, b"rank", rank_text.as_bytes()]);
            let mut places = (0..model.len()).filter(|place| model[*place] == string);
            match places.nth(*rank as usize - 1) {
                Some(place) => (reply, integer(place as i64)),
                None => (reply, null()),
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_list_is_like_its_model(
        steps in prop::collection::vec((any_step(), prop::option::weighted(0.3, 0u64..12)), 1..40),
        before in prop_oneof![Just(0), 0..600u16],
    ) {
        let (mut door, mut model) = (Door::new(), VecDeque::new());
        for number in 0..before {
            both(&mut door, &mut model, &Step::Push(number % 3 == 0, vec![number % 100]));
        }
        for (step, refused) in steps {
            door.store.refuses_after = refused;
            let (reply, expected) = both(&mut door, &mut model, &step);
            door.store.refuses_after = None;
            prop_assert_eq!(reply, expected, "{:?}", step);
            let all = execute(&mut door, &[b"lrange", b"l", b"0", b"-1"]);
            prop_assert_eq!(all, array(model.iter().map(|it| &**it)), "{:?}", step);
        }
        door.said("ltrim l 1 0");
        prop_assert_eq!(door.said("exists l"), ":0|");
    }
}

/// A server whose lists are changed by a few pages at a time.
fn door_of_short_changes() -> Door {
    Door::with(ServerOptions { value_bytes_max: 4096, ..ServerOptions::default() })
}

/// Makes a list of long elements, every third of which is `x`; returns its elements.
fn long_list(door: &mut Door) -> Vec<String> {
    let element = |number: usize| match number % 3 {
        0 => "x".to_owned(),
        _ => format!("{number}{}", "-".repeat(500)),
    };
    let all: Vec<String> = (0..300).map(element).collect();
    for some in all.chunks(50) {
        door.said(&format!("rpush l {}", some.join(" ")));
    }
    all
}

/// Removes so many `x`, as LREM does.
fn without(mut elements: Vec<String>, count: i64) -> (usize, Vec<String>) {
    let mut left = if count == 0 { usize::MAX } else { count.unsigned_abs() as usize };
    let mut removed = 0;
    let mut keep = |element: &String| {
        let goes = element == "x" && left > 0;
        left -= usize::from(goes);
        removed += usize::from(goes);
        !goes
    };
    if count < 0 {
        elements.reverse();
        elements.retain(&mut keep);
        elements.reverse();
    } else {
        elements.retain(&mut keep);
    }
    (removed, elements)
}

#[test]
fn a_long_lrem_is_divided_and_goes_on_after_a_refusal() {
    for count in [0, 1, 60, 99, 100, 1000, -1, -60, -1000] {
        for refuses_after in [None, Some(1), Some(5), Some(40), Some(200), Some(450), Some(700)] {
            let door = &mut door_of_short_changes();
            let (removed, expected) = without(long_list(door), count);
            door.store.refuses_after = refuses_after;
            let name = format!("{count} {refuses_after:?}");
            assert_eq!(door.said(&format!("lrem l {count} x")), format!(":{removed}|"), "{name}");
            door.store.refuses_after = None;
            assert_eq!(door.said("llen l"), format!(":{}|", expected.len()), "{name}");
            let text: String =
                expected.iter().map(|element| format!("${}|{element}|", element.len())).collect();
            let all = format!("*{}|{text}", expected.len());
            assert_eq!(door.said("lrange l 0 -1"), all, "{name}");
        }
    }
}

const REMOVAL: &[u8] = b"lrem l 60 x\r\n";

/// Takes a step of a long removal. The store refuses after some calls.
fn remove_until_refused(door: &mut Door, calls: u64, output: &mut Output) -> super::Step {
    door.store.refuses_after = Some(calls);
    let step = door.server.step(&mut door.store, &Facts::default(), 1, REMOVAL, output);
    door.store.refuses_after = None;
    step
}

#[test]
fn a_command_behind_an_lrem_that_was_given_up_counts_anew() {
    let mut removed_in_part = 0;
    for calls in (10..300).step_by(10) {
        let door = &mut door_of_short_changes();
        long_list(door);
        let mut output = Output::default();
        if remove_until_refused(door, calls, &mut output) != super::Step::NotNow {
            break;
        }
        let left = door.said_to(2, "llen l").trim_matches([':', '|']).parse::<usize>().unwrap();
        removed_in_part += usize::from(left < 300);
        door.server.give_up(1, REMOVAL, true, &mut output);
        assert_eq!(door.said("lrem l 20 x"), ":20|", "{calls}");
        assert_eq!(door.said("llen l"), format!(":{}|", left - 20), "{calls}");
    }
    assert!(removed_in_part > 3, "{removed_in_part}");
}

#[test]
fn clients_are_told_about_the_first_part_of_an_lrem_that_fails_later() {
    let mut told = 0;
    for is_full in [false, true] {
        for calls in (10..300).step_by(10) {
            let door = &mut door_of_short_changes();
            long_list(door);
            door.said("config set notify-keyspace-events KEA");
            door.said_to(2, "hello 3\nclient tracking on\nllen l");
            door.said_to(3, "subscribe __keyevent@0__:lrem");
            let mut output = Output::default();
            if remove_until_refused(door, calls, &mut output) != super::Step::NotNow {
                break;
            }
            if is_full {
                // The second attempt finds no room for its changes.
                door.store.bytes_max = Some(0);
                let step =
                    door.server.step(&mut door.store, &Facts::default(), 1, REMOVAL, &mut output);
                assert_eq!(step, super::Step::Done(REMOVAL.len()));
                door.store.bytes_max = None;
            } else {
                door.server.give_up(1, REMOVAL, false, &mut output);
            }
            let is_changed = door.said_to(4, "llen l") != ":300|";
            let heard = |client| {
                let own = output.messages.iter().filter(|(to, _)| *to == client);
                text_of(&own.flat_map(|(_, bytes)| bytes.clone()).collect::<Vec<_>>())
            };
            let invalidated = if is_changed { ">2|$10|invalidate|*1|$1|l|" } else { "" };
            let event = "*3|$7|message|$19|__keyevent@0__:lrem|$1|l|";
            assert_eq!(heard(2), invalidated, "{calls}");
            assert_eq!(heard(3), if is_changed { event } else { "" }, "{calls}");
            told += usize::from(is_changed);
        }
    }
    assert!(told > 6, "{told}");
}

#[test]
fn a_long_lrem_of_a_transaction_is_one_change() {
    let door = &mut door_of_short_changes();
    let (_, expected) = without(long_list(door), 0);
    assert_eq!(door.said("multi\nlrem l 0 x\nllen l\nexec"), "+OK|+QUEUED|+QUEUED|*2|:100|:200|");
    assert_eq!(door.said("llen l"), format!(":{}|", expected.len()));
}
