//! Users: the replies are the ones of Redis 8.2.

use super::options::ServerOptions;
use super::testing::Door;

const PW: &str = "#30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4";

/// Returns a door whose second client is a user with some rules.
fn door_of(rules: &str) -> Door {
    let mut door = Door::new();
    assert_eq!(door.said(&format!("acl setuser u on nopass {rules}")), "+OK|");
    assert_eq!(door.said_to(2, "auth u x"), "+OK|");
    door
}

#[test]
fn users_are_described_by_their_rules() {
    let mut door = Door::new();
    let rules = "on >pw ~a* %R~r* %W~w* &ch* +@string -get +client +config|get (+set ~b*)";
    door.expect(&[
        ("acl whoami", "$7|default|"),
        ("acl users", "*1|$7|default|"),
        ("acl list", "*1|$51|user default on nopass sanitize-payload ~* &* +@all|"),
        ("acl setuser bob", "+OK|"),
        (
            "acl list",
            "*2|$49|user bob off sanitize-payload resetchannels -@all|\
             $51|user default on nopass sanitize-payload ~* &* +@all|",
        ),
        (&format!("acl setuser bob {rules}"), "+OK|"),
        (
            "acl getuser bob",
            "*12|$5|flags|*2|$2|on|$16|sanitize-payload|$9|passwords|*1|$64|\
             30c952fab122c3f9759f02a6d95c3758b246b4fee239957b2d4fee46e26170c4|$8|commands|$39|\
             -@all +@string -get +client +config|get|$4|keys|$15|~a* %R~r* %W~w*|$8|channels|$4|\
             &ch*|$9|selectors|*1|*6|$8|commands|$10|-@all +set|$4|keys|$3|~b*|$8|channels|$0||",
        ),
        ("acl getuser foo", "$-1|"),
        ("acl users", "*2|$3|bob|$7|default|"),
        ("acl deluser bob foo", ":1|"),
        ("acl deluser foo default", "-ERR The 'default' user cannot be removed|"),
    ]);
    door.said(&format!("acl setuser bob {rules}"));
    let list = door.said("acl list");
    let line = format!(
        "user bob on sanitize-payload {PW} ~a* %R~r* %W~w* resetchannels &ch* -@all +@string -get \
         +client +config|get (~b* resetchannels -@all +set)"
    );
    assert!(list.contains(&line), "{list}");
}

#[test]
fn rules_about_commands_replace_older_ones() {
    let mut door = Door::new();
    let rules = |door: &mut Door, rules: &str, shown: &str| {
        assert_eq!(door.said(&format!("acl setuser bob {rules}")), "+OK|", "{rules}");
        let list = door.said("acl list");
        assert!(list.contains(&format!("resetchannels {shown}|")), "{rules}: {list}");
    };
    rules(&mut door, "+@all -@all +get", "-@all +get");
    rules(&mut door, "-@all +@all -get +get|x", "+@all -get +get|x");
    rules(
        &mut door,
        "-@all +@read -@dangerous +config -config|set +client|id -client|id +acl|whoami",
        "-@all +@read -@dangerous +config -config|set -client|id +acl|whoami",
    );
    rules(&mut door, "+acl", "-@all +@read -@dangerous +config -config|set -client|id +acl");
    rules(&mut door, "-acl|whoami -@all", "-@all");
    rules(&mut door, "+GET +get|a", "-@all +get +get|a");
    rules(&mut door, "reset", "-@all");
    door.said("acl setuser bob %RW");
    assert!(door.said("acl list").contains("sanitize-payload ~ resetchannels"));
}

#[test]
fn wrong_rules_are_refused_and_change_nothing() {
    let mut door = Door::new();
    door.said("acl setuser bob +get");
    let before = door.said("acl list");
    for (rule, wanted) in [
        ("foo", "Syntax error"),
        ("+foo", "Unknown command or category name in ACL"),
        ("+@foo", "Unknown command or category name in ACL"),
        ("+config|foo", "Unknown command or category name in ACL"),
        ("-config|get|x", "Unknown command or category name in ACL"),
        ("+get|a|b", "Unknown command or category name in ACL"),
        ("+config|get|x", "Allowing first-arg of a subcommand is not supported"),
        ("<nope", "The password you are trying to remove from the user does not exist"),
        ("%X~a", "Syntax error"),
        ("%~a", "Syntax error"),
        ("%", "Syntax error"),
        ("(on)", "Syntax error"),
        ("#abc", "The password hash must be exactly 64 characters"),
    ] {
        let said = door.said(&format!("acl setuser bob +set {rule}"));
        let begin = format!("-ERR Error in ACL SETUSER modifier '{rule}': {wanted}");
        assert!(said.starts_with(&begin), "{said}");
    }
    let said = door.said("acl setuser bob (+get");
    assert_eq!(said, "-ERR Unmatched parenthesis in acl selector starting at '(+get'.|");
    for (rules, wanted) in [("allkeys ~a", "'allkeys' flag"), ("&* &a", "'allchannels' flag")] {
        assert!(door.said(&format!("acl setuser bob {rules}")).contains(wanted));
    }
    let said = door.said("acl setuser \"a b\" on");
    assert_eq!(said, "-ERR Usernames can't contain spaces or null characters|");
    assert_eq!(door.said("acl list"), before);
}

#[test]
fn a_user_has_passwords() {
    let mut door = Door::new();
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.|";
    door.said("acl setuser bob >one");
    assert_eq!(door.said_to(2, "auth bob one"), wrong, "the user is off");
    door.said(&format!("acl setuser bob on {PW}"));
    for (password, reply) in [("one", "+OK|"), ("pw", "+OK|"), ("two", wrong)] {
        assert_eq!(door.said_to(2, &format!("auth bob {password}")), reply);
    }
    door.said("acl setuser bob <one +@all");
    assert_eq!(door.said_to(2, "auth bob one"), wrong);
    assert_eq!(door.said_to(2, "acl whoami"), "$3|bob|", "a wrong password changes nothing");
    assert_eq!(door.said_to(2, "auth stranger x"), wrong);
    // The last password of a HELLO counts.
    let said = door.said_to(2, "hello 3 auth bob bad auth default x");
    assert_eq!(said.chars().next(), Some('%'));
    assert_eq!(door.said_to(2, "acl whoami"), "$7|default|");
}

#[test]
fn requirepass_is_the_password_of_the_default_user() {
    let mut door = Door::new();
    door.said("config set requirepass foo");
    let hash = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
    assert!(door.said("acl list").contains(&format!("default on sanitize-payload #{hash} ~*")));
    assert_eq!(door.said_to(2, "ping"), "-NOAUTH Authentication required.|");
    assert_eq!(door.said_to(2, "auth foo\nping"), "+OK|+PONG|");
    door.said("acl setuser default >x");
    assert_eq!(door.said("config get requirepass"), "*2|$11|requirepass|$0||");
    assert_eq!(door.said_to(3, "auth foo\nauth x"), "+OK|+OK|");
    door.said("acl setuser default nopass");
    assert_eq!(door.said_to(4, "ping"), "+PONG|");
    door.said("acl setuser default off");
    assert_eq!(door.said_to(5, "ping"), "-NOAUTH Authentication required.|");
}

#[test]
fn commands_keys_and_channels_need_permissions() {
    let key = "-NOPERM No permissions to access a key|";
    let channel = "-NOPERM No permissions to access a channel|";
    let mut door = door_of(
        "~a* %R~r* %W~w* &ch* &p? +@string -append +client|id +publish +subscribe +psubscribe +copy +select|1 (+lpush ~l)",
    );
    for (line, reply) in [
        ("set a1 x", "+OK|"),
        ("set b x", key),
        ("get r1", "$-1|"),
        ("set r1 x", key),
        ("set w1 x", "+OK|"),
        ("get w1", key),
        ("mget a1 r1", "*2|$1|x|$-1|"),
        ("mset a1 1 b 2", key),
        ("copy a1 w2", ":1|"),
        ("copy a1 r2", key),
        ("append a1 x", "-NOPERM User u has no permissions to run the 'append' command|"),
        ("client id", ":2|"),
        ("client list", "-NOPERM User u has no permissions to run the 'client|list' command|"),
        ("lpush l x", ":1|"),
        ("lpush a1 x", key),
        ("rpush l x", "-NOPERM User u has no permissions to run the 'rpush' command|"),
        ("publish ch1 x", ":0|"),
        ("publish c x", channel),
        ("select 1", "+OK|"),
        ("select 0", "-NOPERM User u has no permissions to run the 'select' command|"),
        ("psubscribe p1", channel),
        ("subscribe x", channel),
        ("get a b", "-ERR wrong number of arguments for 'get' command|"),
    ] {
        assert_eq!(door.said_to(2, line), reply, "{line}");
    }
    let counts = door.said("info stats");
    assert!(counts.contains("acl_access_denied_cmd:4|acl_access_denied_key:6|"), "{counts}");
    // The fast way for GET and SET checks rights, too.
    let run = b"*2\r\n$3\r\nGET\r\n$1\r\nb\r\n*3\r\n$3\r\nSET\r\n$1\r\nb\r\n$1\r\nx\r\n";
    assert_eq!(super::testing::text_of(&door.replies(2, run)), key.repeat(2));
}

#[test]
fn keys_among_options_need_permissions() {
    let key = "-NOPERM No permissions to access a key|";
    let mut door = door_of("+@all ~a* ~STORE* ~STREAMS");
    door.said("xadd b 1-1 f v\nxgroup create b g 0\ngeoadd b 15 37 m");
    for (line, reply) in [
        // The last STORE counts.
        ("georadius ag 15 37 200 km store a1 store b", key),
        ("georadius ag 15 37 200 km store a1 storedist b", key),
        ("georadius ag 15 37 200 km store b store a1", ":0|"),
        ("georadius ag 15 37 200 km count 1 STORE STOREDIST storedist b", key),
        ("georadiusbymember ag m 200 km store a1 storedist b", key),
        // A key may have the name of an option.
        ("georadius b 15 37 200 km STORE STOREDIST", key),
        ("georadius ag 15 37 200 km STORE STOREDIST", ":0|"),
        ("georadius ag 15 37 200 km STOREDIST STORE", ":0|"),
        ("georadiusbymember b m 200 km STORE STOREDIST", key),
        // So may a group, a consumer and a stream.
        ("xreadgroup noack group g STREAMS STREAMS b >", key),
        ("xreadgroup group STREAMS c count 1 streams b >", key),
        ("xread streams STREAMS b 0 0", key),
        ("xread count 1 streams a STREAMS 0 0", "*-1|"),
        // Wrong arguments have no known keys.
        ("xread s a 0", key),
        // Without the last id, the last word is no key. The command is an error anyway.
        ("xread streams b a 0", key),
        (
            "xread streams a b 0",
            "-ERR Unbalanced 'xread' list of streams: for each stream key an ID, '+', or '$' must \
             be specified.|",
        ),
        ("zunion x a", key),
        ("zunion 1 a", "*0|"),
        ("eval return(1) 0", ":1|"),
    ] {
        assert_eq!(door.said_to(2, line), reply, "{line}");
    }
    let said = door.said("acl dryrun u xread s a 0");
    assert_eq!(said, "$46|User u has no permissions to access the '' key|");
}

#[test]
fn a_transaction_checks_rights_twice() {
    let mut door = door_of("~a +@all -get");
    let no_get = "-NOPERM User u has no permissions to run the 'get' command|";
    let said = door.said_to(2, "multi\nget a\nexec");
    let aborted = "-EXECABORT Transaction discarded because of previous errors.|";
    assert_eq!(said, format!("+OK|{no_get}{aborted}"));
    door.said_to(2, "multi\nset a 1\nset a 2\nstrlen a");
    door.said("acl setuser u -set");
    let said = door.said_to(2, "exec");
    let begin = "*3|-NOPERM ACLs rules changed between the moment the transaction was accumulated";
    assert!(said.starts_with(begin) && said.ends_with("|:0|"), "{said}");
}

#[test]
fn a_script_needs_the_rights_of_its_user() {
    let mut door = door_of("~a* +eval +sort");
    let said = door.said_to(2, "eval \"return redis.call('get','a')\" 0");
    let denied = "-ERR ACL failure in script: User u has no permissions to run the 'get' command";
    assert!(said.starts_with(denied), "{said}");
    let said = door.said_to(2, "eval \"return redis.pcall('get','a')\" 0");
    assert_eq!(said, format!("{denied}|"));
    for option in ["by", "get"] {
        let upper = option.to_ascii_uppercase();
        let error =
            format!("-ERR {upper} option of SORT denied due to insufficient ACL permissions.|");
        assert_eq!(door.said_to(2, &format!("sort a {option} b*")), error);
    }
    for (call, reply) in [
        ("'sort','ax'", ":1|"),
        ("'sort','b'", "$-1|"),
        ("'get','ax'", "$-1|"),
        ("'get'", "-ERR Wrong number of args calling Redis command from script"),
        ("'foo'", "-ERR Invalid command passed to redis.acl_check_cmd()"),
    ] {
        let said = door.said_to(2, &format!("eval \"return redis.acl_check_cmd({call})\" 0"));
        assert!(said.starts_with(reply), "{call}: {said}");
    }
    door.said("acl setuser u resetkeys %R~*");
    assert_eq!(door.said_to(2, "sort a by b*"), "*0|");
}

#[test]
fn a_waiting_command_is_checked_again() {
    let mut door = door_of("+@all ~*");
    assert_eq!(door.said_to(2, "blpop l 0"), "");
    door.said("acl setuser u resetkeys");
    door.said("lpush l a");
    assert_eq!(door.heard(2), "-NOPERM No permissions to access a key|");
    assert_eq!(door.said("llen l"), ":1|");
    let counts = door.said("info commandstats");
    assert!(counts.contains("cmdstat_blpop:calls=0,usec=0,usec_per_call=0.00,rejected_calls=1,"));
}

#[test]
fn connections_without_rights_are_closed() {
    let mut door = door_of("+@all ~* &a &p*");
    door.said_to(2, "subscribe a\npsubscribe p*");
    door.said("acl setuser u &b");
    assert_eq!(door.said_to(2, "ping"), "*2|$4|pong|$0||");
    door.said("acl setuser u resetchannels &a");
    assert_eq!(door.server.clients(), 1);
    door.said_to(3, "auth u x");
    assert_eq!(door.said("client kill user stranger"), "-ERR No such user 'stranger'|");
    assert_eq!(door.said("client kill user u"), ":1|");
    door.said_to(3, "auth u x");
    assert!(door.said_to(3, "client info").contains(" user=u "));
    assert_eq!(door.said_to(3, "acl deluser u"), ":1|(end)");
    assert_eq!(door.server.clients(), 1);
}

#[test]
fn refusals_are_in_the_log() {
    let mut door = door_of("+@all -get ~a");
    door.said_to(2, "get a\nget a\nset b 1\nmulti\nget a");
    door.said_to(3, "auth u\nauth stranger x");
    let log = door.said("acl log");
    assert!(log.starts_with("*4|*20|$5|count|:1|$6|reason|$4|auth|$7|context|$8|toplevel|$6|object|$4|auth|$8|username|$8|stranger|$11|age-seconds|"), "{log}");
    let multi =
        "$5|count|:1|$6|reason|$7|command|$7|context|$5|multi|$6|object|$3|get|$8|username|$1|u|";
    let key = "$5|count|:1|$6|reason|$3|key|$7|context|$8|toplevel|$6|object|$1|b|";
    let twice = "$5|count|:2|$6|reason|$7|command|$7|context|$8|toplevel|$6|object|$3|get|";
    for entry in [multi, key, twice] {
        assert!(log.contains(entry), "{entry} {log}");
    }
    assert!(door.said("acl log 1").starts_with("*1|"));
    door.said("config set acllog-max-len 2");
    door.said_to(3, "auth other x");
    assert!(door.said("acl log").starts_with("*2|"));
    door.expect(&[
        ("acl log x", "-ERR value is not an integer or out of range|"),
        ("acl log reset", "+OK|"),
        ("acl log", "*0|"),
        (
            "acl log reset a",
            "-ERR unknown subcommand or wrong number of arguments for 'log'. Try ACL HELP.|",
        ),
    ]);
}

#[test]
fn acl_dryrun_checks_the_command_and_executes_nothing() {
    let mut door = door_of("~a &c +@all -get");
    let no = |right: &str| format!("User u has no permissions to {right}");
    let bulk = |text: String| format!("${}|{text}|", text.len());
    door.expect(&[
        ("acl dryrun default set a b", "+OK|"),
        ("exists a", ":0|"),
        ("acl dryrun foo set a b", "-ERR User 'foo' not found|"),
        ("acl dryrun default foo", "-ERR Command 'foo' not found|"),
        ("acl dryrun default set a", "-ERR wrong number of arguments for 'set' command|"),
        ("acl dryrun default client list", "+OK|"),
        ("acl dryrun u get a", &bulk(no("run the 'get' command"))),
        ("acl dryrun u set b x", &bulk(no("access the 'b' key"))),
        ("acl dryrun u subscribe c d", &bulk(no("access the 'd' channel"))),
        (
            "acl dryrun default client id x",
            "-ERR wrong number of arguments for 'client|id' command|",
        ),
    ]);
}

#[test]
fn passwords_are_made_from_the_secret() {
    let wrong = "-ERR ACL GENPASS argument must be the number of bits for the output password, a \
                 positive number up to 4096|";
    let secret = Some([7; 32]);
    let mut door = Door::with(ServerOptions { secret, ..ServerOptions::default() });
    let (one, other) = (door.said("acl genpass"), door.said("acl genpass"));
    assert!(one.starts_with("$64|") && one.len() == 69 && one != other);
    assert!(door.said("acl genpass 5").starts_with("$2|"));
    assert!(door.said("acl genpass 4096").starts_with("$1024|"));
    door.expect(&[
        ("acl genpass 0", wrong),
        ("acl genpass 5000", wrong),
        ("acl genpass x", "-ERR value is not an integer or out of range|"),
    ]);
    assert!(Door::new().said("acl genpass").starts_with("-ERR The server has no random numbers"));
}

#[test]
fn servers_with_the_same_secret_make_different_passwords() {
    let options = ServerOptions { secret: Some([7; 32]), ..ServerOptions::default() };
    let mut passwords = std::collections::BTreeSet::new();
    for _ in 0..3 {
        let mut door = Door::with(options.clone());
        passwords.extend([door.said("acl genpass"), door.said("acl genpass")]);
    }
    assert_eq!(passwords.len(), 6);
}

#[test]
fn the_store_keeps_users_for_the_next_server() {
    let mut door = Door::new();
    door.said("acl setuser bob on >pw ~a* resetchannels +@read (+set ~b*)");
    door.said("acl setuser default resetpass >secret");
    let before = door.said("acl list");
    door.said("function flush\nflushall");
    let mut next = Door::new();
    next.store = door.store.clone();
    assert_eq!(next.said("ping"), "-NOAUTH Authentication required.|");
    assert_eq!(next.said("auth default secret\nacl list"), format!("+OK|{before}"));
    // The server's own option is stronger than the store.
    let password = Some(b"option".to_vec());
    let mut next = Door::with(ServerOptions { password, ..ServerOptions::default() });
    next.store = door.store.clone();
    assert!(next.said("auth default secret").starts_with("-WRONGPASS"));
    assert_eq!(next.said("auth option"), "+OK|");
    // A store that cannot answer yet lets no client in.
    let mut next = Door::new();
    next.store = door.store.clone();
    next.store.refuses_after = Some(0);
    assert_eq!(next.said("ping"), "-NOAUTH Authentication required.|");
}

#[test]
fn users_of_a_failed_change_stay_as_they_were() {
    let mut door = Door::new();
    door.said("acl setuser bob");
    let before = door.said("acl list");
    door.store.refuses_after = Some(0);
    assert_eq!(door.said("acl deluser bob"), ":1|", "it is executed again");
    door.said("acl setuser bob");
    door.store.bytes_max = Some(0);
    assert!(door.said("acl setuser bob on +get").starts_with("-OOM"));
    assert_eq!(door.said("acl list"), before);
    door.said("multi\nacl setuser bob on +get\nset a 1");
    assert!(door.said("exec").starts_with("-EXECABORT"));
    assert_eq!(door.said("acl list"), before);
}

#[test]
fn a_refused_command_of_a_transaction_leaves_users_and_settings() {
    let mut door = Door::with(ServerOptions { value_bytes_max: 100, ..ServerOptions::default() });
    let before = door.said("acl list\nconfig get requirepass slowlog-max-len");
    let rules = format!("on nopass ~{}", "a".repeat(100));
    for command in [
        &format!("acl setuser bob {rules}"),
        "acl setuser default >x",
        "config set slowlog-max-len 5 requirepass new",
    ] {
        let said = door.said(&format!("multi\n{command}\nset a 1\nexec"));
        assert!(said.starts_with("+OK|+QUEUED|+QUEUED|*2|-ERR ") && said.ends_with("|+OK|"));
        assert_eq!(door.said("acl list\nconfig get requirepass slowlog-max-len"), before);
    }
}

#[test]
fn settings_of_a_failed_change_stay_as_they_were() {
    let mut door = Door::new();
    door.said("config set requirepass old");
    let before = door.said("acl list\nconfig get requirepass slowlog-max-len");
    door.store.bytes_max = Some(0);
    for command in ["config set slowlog-max-len 5 requirepass new", "acl setuser default >x"] {
        assert!(door.said(command).starts_with("-OOM"));
        assert_eq!(door.said("acl list\nconfig get requirepass slowlog-max-len"), before);
    }
}

#[test]
fn the_password_of_a_cluster_is_an_option_of_its_servers() {
    let options = ServerOptions { may_set_password: false, ..ServerOptions::default() };
    let mut door = Door::with(options);
    assert!(door.said("acl setuser default >x").contains("set server.redis_password"));
    assert_eq!(door.said("acl setuser default -debug\nacl setuser bob on >x"), "+OK|+OK|");
}

#[test]
fn sort_is_dangerous_because_its_patterns_name_any_keys() {
    let door = &mut Door::new();
    door.said("acl setuser reader on allkeys +@read -@dangerous");
    let refused = "$48|User reader has no permissions to run the 'sort_ro' command|";
    assert_eq!(door.said("acl dryrun reader sort_ro l by x*")[4..], refused[4..]);
    door.said("acl setuser sorter on allkeys +@dangerous");
    assert_eq!(door.said("acl dryrun sorter sort l by x*"), "+OK|");
}

#[test]
fn a_pattern_behind_all_keys_is_refused_before_its_bytes_are_read() {
    let door = &mut Door::new();
    let error = |door: &mut Door, rule: &str| {
        let words: [&[u8]; 5] = [b"acl", b"setuser", b"u", b"allkeys", rule.as_bytes()];
        super::testing::text_of(&super::models::execute(door, &words))
    };
    assert!(error(door, "~a b").contains("Adding a pattern after the * pattern"));
    assert!(error(door, "+a b").contains("Unknown command or category name"));
    assert!(error(door, "&a b").contains("Syntax error"));
}

#[test]
fn a_rule_adds_no_user_to_the_store() {
    let mut door = Door::new();
    let said = |door: &mut Door, rule: &[u8]| {
        let words: [&[u8]; 4] = [b"acl", b"setuser", b"u", rule];
        super::testing::text_of(&super::models::execute(door, &words))
    };
    for rule in ["+select|1\nuser evil on nopass ~* &* +@all", "+select|1 +@all", "+select|\t"] {
        assert!(said(&mut door, rule.as_bytes()).ends_with("': Syntax error|"), "{rule}");
    }
    assert_eq!(said(&mut door, b"+select|\xff"), "+OK|");
    let before = door.said("acl list");
    let mut next = Door::new();
    next.store = door.store.clone();
    assert_eq!(next.said("acl list"), before);
}
