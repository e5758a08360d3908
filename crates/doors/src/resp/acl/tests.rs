//! The lines of users in the store.

use super::user::User;
use crate::resp::commands::Names;
use proptest::prelude::*;

/// A pattern or a first argument. Some of its bytes mean something elsewhere in a line.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![
        6 => prop::sample::select(b"ab*)(~|%@&+-\xff\xc3\xa9".to_vec()),
        1 => prop::sample::select(b" \n\r\t\x0b\x0c\0".to_vec()),
        1 => any::<u8>(),
    ];
    prop_oneof![
        1 => Just(b"*".to_vec()),
        6 => prop::collection::vec(byte, 0..5),
    ]
}

/// A rule about commands, keys or channels.
fn rule() -> impl Strategy<Value = Vec<u8>> {
    let commands = ["get", "SET", "config", "config|get", "client|id", "select", "acl"];
    let categories = ["@read", "@string", "@dangerous", "@all"];
    let words = ["allkeys", "resetkeys", "allchannels", "resetchannels", "nocommands"];
    let with = |begins: &'static [&'static str]| {
        let begin = prop::sample::select(begins);
        (begin, text()).prop_map(|(begin, text)| [begin.as_bytes(), &text].concat())
    };
    let sign = || prop::sample::select(vec!["+", "-"]);
    let signed = (sign(), prop::sample::select([&commands[..], &categories[..]].concat()));
    prop_oneof![
        4 => signed.prop_map(|(sign, name)| format!("{sign}{name}").into_bytes()),
        3 => with(&["+get|", "+SET|", "+select|", "+config|"]),
        4 => with(&["~", "%R~", "%w~", "%RW~", "&"]),
        1 => prop::sample::select(words.to_vec()).prop_map(|word| word.as_bytes().to_vec()),
        1 => text(),
    ]
}

/// A rule of a user.
fn user_rule() -> impl Strategy<Value = Vec<u8>> {
    let flags = ["on", "off", "nopass", "resetpass", "skip-sanitize-payload", ">a", ">b", "<a"];
    let selector = prop::collection::vec(rule(), 0..4);
    prop_oneof![
        6 => rule(),
        2 => selector.prop_map(|rules| [b"(", rules.join(&b' ').as_slice(), b")"].concat()),
        2 => prop::sample::select(flags.to_vec()).prop_map(|flag| flag.as_bytes().to_vec()),
    ]
}

#[track_caller]
fn check(rules: &[Vec<u8>]) {
    let names = Names::new();
    let mut user = User::new(b"u");
    for rule in rules {
        // A rule that is refused changes nothing.
        let before = user.clone();
        if user.apply(&names, rule).is_err() {
            assert_eq!(user, before, "{}", rule.escape_ascii());
        }
    }
    let line = user.stored_line();
    assert!(!line.contains(&b'\n'), "{}", line.escape_ascii());
    assert_eq!(User::of_line(&names, &line), Some(user), "{}", line.escape_ascii());
}

#[test]
fn rules_whose_texts_look_like_parts_of_a_line_are_stored() {
    for rules in [
        &["+select|1 +@all"][..],
        &["+select|1\nuser default on nopass ~* &* +@all"],
        &["+set|\u{e9}"],
        &["(~a) +get|b)"],
        &["(~a) %R~b) +get|c))", "(+get)", "()"],
        &["%RW~*", "~a"],
        &["+@all", "-get", "+get"],
        &["+get|b", "+get|a", "+get|b"],
    ] {
        check(&rules.iter().map(|rule| rule.as_bytes().to_vec()).collect::<Vec<_>>());
    }
}

proptest! {
    #[test]
    fn a_user_is_made_again_from_its_line(rules in prop::collection::vec(user_rule(), 0..12)) {
        check(&rules);
    }
}
