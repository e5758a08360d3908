//! Users with few rights: the router must know which commands the parts refuse.

use super::{ABORTED, CROSSED_MULTI, Door, Front};

/// Checks that lines of clients have the same replies as those of one server.
#[track_caller]
fn check_with_one_server(table: &[(u64, &str)]) {
    let (mut front, mut alone) = (Front::new(), Door::new());
    for (client, lines) in table {
        assert_eq!(front.said_to(*client, lines), alone.said_to(*client, lines), "{lines}");
    }
}

#[test]
fn a_transaction_ends_without_the_right_to_discard_it() {
    let user = "acl setuser u on nopass ~* +set +get +ping +multi +exec\nauth u x";
    check_with_one_server(&[
        (1, user),
        // The transaction begins in part 0, and goes to that of its first key.
        (1, "multi"),
        (1, "ping"),
        (1, "set foo 1"),
        (1, "exec"),
        (1, "set bar 1\nget bar\nget foo"),
        (1, "multi"),
        (1, "set foo 2"),
        (1, "discard"),
        (1, "set foo 3\nget foo"),
        (1, "exec"),
        (1, "get foo\nset bar 2\nget bar"),
        (1, "multi\nset foo 2\ndiscard\nset foo 3\nexec\nget foo"),
        (1, "multi\ndiscard x\ndiscard\nexec\nget bar"),
        (1, "multi\nset foo\nexec\nget foo"),
        (1, "multi\nset foo 4\nexec x\nget foo"),
        (1, "multi\nset foo 4\nexec x\nget bar"),
    ]);
    let mut front = Front::new();
    front.said(user);
    let crossed = format!("+OK|+QUEUED|{CROSSED_MULTI}{ABORTED}");
    front.expect(&[
        ("multi\nset foo 1\nset bar 1\nexec", &crossed),
        ("set foo 2\nget foo\nset bar 2\nget bar", "+OK|$1|2|+OK|$1|2|"),
    ]);
}

#[test]
fn a_transaction_ends_without_the_right_to_execute_it() {
    check_with_one_server(&[
        (1, "acl setuser u on nopass ~* +set +get +multi +discard\nauth u x"),
        (1, "multi"),
        (1, "set foo 1"),
        (1, "exec"),
        (1, "set foo 2\nset bar 2\nget foo\nget bar"),
        (1, "multi\nset foo 1\ndiscard\nget foo"),
    ]);
}

#[test]
fn only_watched_keys_choose_the_part_of_the_transaction() {
    check_with_one_server(&[
        // EXEC without MULTI does not end the watching, unless it is refused earlier.
        (1, "watch foo\nexec"),
        (2, "set foo 1"),
        (1, "multi\nset foo 2\nexec\nget foo"),
        (1, "watch foo\nexec x"),
        (2, "set foo 3"),
        (1, "multi\nset foo 4\nexec\nget foo"),
        (1, "watch foo\ndiscard"),
        (2, "set foo 5"),
        (1, "multi\nset foo 6\nexec\nget foo"),
        (1, "acl setuser u on nopass ~* +@all -watch\nauth u x"),
        (1, "watch foo\nmulti\nset bar 1\nexec"),
        (1, "acl setuser u +watch -unwatch"),
        (1, "watch foo\nunwatch"),
        (2, "set foo 7"),
        (1, "multi\nset foo 8\nexec\nget foo"),
    ]);
    let mut front = Front::new();
    front.said("acl setuser u on nopass ~* +@all -unwatch\nauth u x\nwatch foo\nunwatch");
    assert!(front.lose(1, 2), "the key is still watched");
}

#[test]
fn a_subscriber_without_the_right_to_send_ping_can_leave() {
    check_with_one_server(&[
        (1, "acl setuser u on nopass ~* &a &b +subscribe +unsubscribe +set +get\nauth u x"),
        (1, "unsubscribe\nget foo"),
        (1, "subscribe c\nget foo"),
        (1, "subscribe a b"),
        (1, "get foo"),
        (1, "subscribe c"),
        (1, "unsubscribe a"),
        (1, "get foo"),
        (2, "publish b x"),
        (1, "unsubscribe b\nset foo 1\nget foo"),
        (1, "subscribe a b\nunsubscribe\nget foo"),
    ]);
}
