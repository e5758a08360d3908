//! Tests of functions. The replies are those of Redis 8.2.

use super::limits::ScriptClock;
use crate::resp::models::execute;
use crate::resp::testing::{Door, text_of};
use crate::resp::{Facts, Output, Step};
use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

/// The time of a script clock and the milliseconds of each of its readings.
type Clock = Rc<Cell<(u64, u64)>>;

/// Sets a script clock whose readings take some milliseconds.
fn set_clock(door: &mut Door, step: u64) -> Clock {
    let clock: Clock = Rc::new(Cell::new((0, step)));
    let read = Rc::clone(&clock);
    door.server.set_script_clock(ScriptClock::new(move || {
        let (now, step) = read.get();
        read.set((now + step, step));
        Duration::from_millis(now + step)
    }));
    clock
}

/// Returns a server that restarts with the objects of another one, and its script clock.
fn restarted(door: &Door, step: u64) -> (Door, Clock) {
    let mut other = Door::new();
    other.store = door.store.clone();
    let clock = set_clock(&mut other, step);
    (other, clock)
}

/// A library that looks at the clock some times while it is loaded.
fn looking(name: &str) -> String {
    format!(
        "#!lua name={name}\nfor i = 1, 500 do end redis.register_function('of_{name}', \
         function() return '{name}' end)"
    )
}

/// Returns the reply to `FUNCTION LOAD` with the library `l`.
fn load(door: &mut Door, program: &str) -> String {
    load_all(door, &format!("#!lua name=l\n{program}"))
}

fn load_all(door: &mut Door, code: &str) -> String {
    text_of(&execute(door, &[b"FUNCTION", b"LOAD", b"REPLACE", code.as_bytes()]))
}

const COUNTER: &str =
    "local c = 0 redis.register_function('count', function() c = c + 1 return c end)";

const STORE: &str = "redis.register_function{function_name='Read', callback=function(keys) return \
                     redis.call('get', keys[1]) end, flags={'NO-WRITES', 'allow-oom'}, \
                     description='reads'} redis.register_function('write', function(keys, args) \
                     return redis.call('set', keys[1], args[1]) end)";

#[test]
fn wrong_libraries_have_the_errors_of_redis() {
    let mut door = Door::new();
    for (code, error) in [
        ("return 1", "Missing library metadata"),
        ("#!lua name=l\n", "No functions registered"),
        ("#!lua name=l\nreturn 1", "No functions registered"),
        (
            "#!lua name=l\nsyntax error",
            "Error compiling function: user_function:2: '=' expected near 'error'",
        ),
    ] {
        assert_eq!(load_all(&mut door, code), format!("-ERR {error}|"), "{code}");
    }
    let named = "redis.register_function({function_name='f', callback=function() end, ";
    let nothing = "function() end";
    for (program, error) in [
        (
            "error('x')",
            "user_function:2: Script attempted to access nonexistent global variable 'error'",
        ),
        (
            "redis.call('get','a')",
            "user_function:2: Script attempted to access nonexistent global variable 'call'",
        ),
        ("foo = 1", "user_function:2: Attempt to modify a readonly table"),
        ("redis.log(5, 'x')", "Invalid log level."),
        (
            "redis.register_function('f')",
            "calling redis.register_function with a single argument is only applicable to Lua \
             table (representing named arguments).",
        ),
        ("redis.register_function()", "wrong number of arguments to redis.register_function"),
        (
            "redis.register_function('f', 1)",
            "second argument to redis.register_function must be a function",
        ),
        (
            &format!("redis.register_function({{}}, {nothing})"),
            "first argument to redis.register_function must be a string",
        ),
        (
            &format!("redis.register_function('f-f', {nothing})"),
            "Library names can only contain letters, numbers, or underscores(_) and must be at \
             least one character long",
        ),
        (
            "redis.register_function({})",
            "redis.register_function must get a function name argument",
        ),
        (
            "redis.register_function({function_name='f'})",
            "redis.register_function must get a callback argument",
        ),
        (
            "redis.register_function({function_name='f', callback=1})",
            "callback argument given to redis.register_function must be a function",
        ),
        (&format!("{named}foo=1}})"), "unknown argument given to redis.register_function"),
        (&format!("{named}flags={{'bad'}}}})"), "unknown flag given"),
        (
            &format!("{named}flags='x'}})"),
            "flags argument to redis.register_function must be a table representing function flags",
        ),
        (
            &format!("{named}description={{}}}})"),
            "description argument given to redis.register_function must be a string",
        ),
        (
            &format!("{named}[{{}}]='f'}})"),
            "named argument key given to redis.register_function is not a string",
        ),
        (
            &format!(
                "redis.register_function('f', {nothing}) redis.register_function('F', {nothing})"
            ),
            "Function already exists in the library",
        ),
        ("while true do end", "FUNCTION LOAD timeout"),
    ] {
        let expected = format!("-ERR Error registering functions: ERR {error}|");
        assert_eq!(load(&mut door, program), expected, "{program}");
    }
    assert!(door.store.content().is_empty());
    assert_eq!(load(&mut door, COUNTER), "$1|l|");
    door.expect(&[
        ("FUNCTION LOAD foo x", "-ERR Unknown option given: foo|"),
        ("FUNCTION DELETE zz", "-ERR Library not found|"),
        ("FUNCTION FLUSH foo", "-ERR FUNCTION FLUSH only supports SYNC|ASYNC option|"),
        ("FUNCTION LIST foo", "-ERR Unknown argument foo|"),
        ("FUNCTION LIST LIBRARYNAME", "-ERR library name argument was not given|"),
        ("FUNCTION KILL", "-NOTBUSY No scripts in execution right now.|"),
        ("FUNCTION nope", "-ERR unknown subcommand 'nope'. Try FUNCTION HELP.|"),
        ("FUNCTION RESTORE abc", "-ERR DUMP payload version or checksum are wrong|"),
        ("FCALL nope 0", "-ERR Function not found|"),
        ("FCALL count x", "-ERR Bad number of keys provided|"),
        ("FCALL count -1", "-ERR Number of keys can't be negative|"),
        ("FCALL count 3 a", "-ERR Number of keys can't be greater than number of args|"),
        ("FCALL_RO count 0", "-ERR Can not execute a script with write flag using *_ro command.|"),
    ]);
    let code = format!("#!lua name=l\n{COUNTER}");
    assert_eq!(
        text_of(&execute(&mut door, &[b"FUNCTION", b"LOAD", code.as_bytes()])),
        "-ERR Library 'l' already exists|"
    );
    assert_eq!(
        load_all(&mut door, &format!("#!lua name=m\n{COUNTER}")),
        "-ERR Function count already exists|"
    );
    // A library that is refused changes nothing.
    door.expect(&[("FCALL count 0", ":1|")]);
    assert_eq!(load(&mut door, "return 1"), "-ERR No functions registered|");
    door.expect(&[("FCALL Count 0", ":2|")]);
}

#[test]
fn functions_get_keys_and_arguments_and_keep_the_variables_of_their_library() {
    let mut door = Door::new();
    load(&mut door, "redis.register_function('f', function(k, a) return {k, a, KEYS == nil} end)");
    assert_eq!(
        door.said("FCALL f 1 k a b"),
        "-ERR user_function:2: Script attempted to access nonexistent global variable 'KEYS' \
         script: f, on @user_function:2.|"
    );
    load(&mut door, "redis.register_function('f', function(k, a) return {k, a} end)");
    load_all(&mut door, &format!("#!lua name=m\n{COUNTER}"));
    load_all(&mut door, &format!("#!lua name=n\n{STORE}"));
    door.expect(&[
        ("FCALL f 1 k a b", "*2|*1|$1|k|*2|$1|a|$1|b|"),
        ("FCALL count 0", ":1|"),
        ("FCALL count 0", ":2|"),
        ("SCRIPT FLUSH", "+OK|"),
        ("FCALL count 0", ":3|"),
        ("FCALL write 1 k v", "+OK|"),
        ("FCALL_RO read 1 k", "$1|v|"),
        ("FUNCTION STATS", "*4|$14|running_script|$-1|$7|engines|*2|$3|LUA|*4|$15|libraries_count|:3|$15|functions_count|:4|"),
        ("EVAL \"return redis.register_function\" 0", "$-1|"),
        (
            "FUNCTION LIST LIBRARYNAME N",
            "*1|*6|$12|library_name|$1|n|$6|engine|$3|LUA|$9|functions|*2|*6|$4|name|$4|Read|$11|\
             description|$5|reads|$5|flags|*2|+no-writes|+allow-oom|*6|$4|name|$5|write|$11|\
             description|$-1|$5|flags|*0|",
        ),
    ]);
    load(
        &mut door,
        "redis.register_function('e1', function(keys) return redis.call('incr', keys[1]) end)
         redis.register_function('e2', function() error('boom') end)
         redis.register_function('e3', function() return redis.error_reply('My err') end)
         redis.register_function('e4', function() x = 1 end)
         redis.register_function('e5', function() redis.register_function('z', function() end) end)
         redis.register_function('e6', function() error({err='tab'}) end)",
    );
    for (line, reply) in [
        (
            "FCALL e1 1 k",
            "ERR value is not an integer or out of range script: e1, on @user_function:2.",
        ),
        ("FCALL e2 0", "ERR user_function:3: boom script: e2, on @user_function:3."),
        ("FCALL e3 0", "My err"),
        (
            "FCALL e4 0",
            "ERR user_function:5: Attempt to modify a readonly table script: e4, on \
             @user_function:5.",
        ),
        (
            "FCALL e5 0",
            "ERR user_function:6: attempt to call field 'register_function' (a nil value) script: \
             e5, on @user_function:6.",
        ),
        ("FCALL e6 0", "tab script: e6, on @user_function:7."),
    ] {
        assert_eq!(door.said(line), format!("-{reply}|"));
    }
}

#[test]
fn libraries_are_those_of_the_store_after_a_restart() {
    let mut door = Door::new();
    load(&mut door, STORE);
    load_all(&mut door, &format!("#!lua name=m\n{COUNTER}"));
    door.expect(&[("FCALL count 0", ":1|"), ("FLUSHALL", "+OK|"), ("FCALL count 0", ":2|")]);
    let mut other = Door::new();
    other.store = door.store.clone();
    other.expect(&[
        ("FCALL write 1 k v", "+OK|"),
        ("FCALL read 1 k", "$1|v|"),
        ("FCALL count 0", ":1|"),
        ("FUNCTION DELETE m", "+OK|"),
        ("FCALL count 0", "-ERR Function not found|"),
    ]);
    let mut third = Door::new();
    third.store = other.store.clone();
    third.expect(&[
        ("FCALL count 0", "-ERR Function not found|"),
        ("FUNCTION FLUSH ASYNC", "+OK|"),
        ("FUNCTION LIST", "*0|"),
        ("DEL k", ":1|"),
    ]);
    assert!(third.store.content().is_empty());
}

#[test]
fn a_transaction_that_fails_leaves_the_libraries_as_they_were() {
    let mut door = Door::new();
    load(&mut door, COUNTER);
    door.expect(&[("FCALL count 0", ":1|"), ("MULTI", "+OK|")]);
    let new = "redis.register_function('count', function() return 'new' end)";
    assert_eq!(load(&mut door, new), "+QUEUED|");
    door.expect(&[("FCALL count 0", "+QUEUED|"), ("FUNCTION FLUSH", "+QUEUED|")]);
    door.expect(&[("FCALL count 0", "+QUEUED|")]);
    assert_eq!(door.said("EXEC"), "*4|$1|l|$3|new|+OK|-ERR Function not found|");
    load(&mut door, COUNTER);
    door.expect(&[("FCALL count 0", ":1|"), ("MULTI", "+OK|")]);
    load(&mut door, new);
    door.said("FCALL count 0");
    door.store.bytes_max = Some(0);
    assert!(door.said("EXEC").starts_with("-EXECABORT"));
    door.store.bytes_max = None;
    door.expect(&[("FCALL count 0", ":1|"), ("FCALL count 0", ":2|")]);
}

#[test]
fn a_refused_command_is_executed_again_with_the_right_libraries() {
    for refused in 0..6 {
        let mut door = Door::new();
        load(&mut door, COUNTER);
        door.store.refuses_after = Some(refused);
        let new = "redis.register_function('f', function() return 5 end)";
        assert_eq!(load(&mut door, new), "$1|l|");
        door.expect(&[("FCALL f 0", ":5|"), ("FCALL count 0", "-ERR Function not found|")]);
    }
}

#[test]
fn a_refused_deletion_is_executed_again() {
    for refused in 0..6 {
        for line in ["FUNCTION DELETE l", "FUNCTION FLUSH"] {
            let mut door = Door::new();
            load(&mut door, COUNTER);
            door.store.refuses_after = Some(refused);
            door.expect(&[(line, "+OK|")]);
            door.store.refuses_after = None;
            door.expect(&[("FUNCTION LIST", "*0|"), ("FCALL count 0", "-ERR Function not found|")]);
            assert!(door.store.content().is_empty());
        }
    }
}

#[test]
fn a_library_that_cannot_be_loaded_stays_and_is_loaded_later() {
    let mut door = Door::new();
    for name in ["slow", "deleted"] {
        load_all(&mut door, &looking(name));
    }
    // Each load runs out of time.
    let (mut door, clock) = restarted(&door, 10_000);
    let failure = "-ERR Function not found. The library 'deleted' could not be loaded: Error \
                   registering functions: ERR FUNCTION LOAD timeout|";
    door.expect(&[("FCALL of_slow 0", failure)]);
    assert_eq!(load(&mut door, COUNTER), "$1|l|");
    assert!(door.said("FUNCTION LIST").starts_with("*3|"));
    assert_eq!(
        text_of(&execute(&mut door, &[b"FUNCTION", b"LOAD", looking("slow").as_bytes()])),
        "-ERR Library 'slow' already exists|"
    );
    door.expect(&[("FUNCTION DELETE deleted", "+OK|"), ("FCALL count 0", ":1|")]);
    let dump = text_of(&execute(&mut door, &[b"FUNCTION", b"DUMP"]));
    assert!(dump.contains("of_slow") && dump.contains("count"), "{dump}");
    let (mut third, _) = restarted(&door, 1);
    third.expect(&[("FCALL of_slow 0", "$4|slow|"), ("FCALL count 0", ":1|")]);
    clock.set((0, 1));
    door.pass(60_000);
    door.expect(&[("FCALL of_slow 0", "$4|slow|"), ("FCALL count 0", ":2|")]);
}

#[test]
fn a_library_gets_more_time_when_its_load_runs_out_of_time() {
    let mut door = Door::new();
    load_all(&mut door, &looking("l"));
    for (step, reply) in [(100, true), (600, true), (1500, false)] {
        let (mut door, _) = restarted(&door, step);
        assert_eq!(door.said("FCALL of_l 0") == "$1|l|", reply, "{step}");
    }
}

#[test]
fn many_libraries_are_loaded_in_several_turns() {
    let mut door = Door::new();
    for number in 0..20 {
        load_all(&mut door, &looking(&format!("l{number:02}")));
    }
    let (mut door, clock) = restarted(&door, 20);
    door.expect(&[("FCALL of_l00 0", "$3|l00|")]);
    let command = b"*3\r\n$5\r\nFCALL\r\n$6\r\nof_l19\r\n$1\r\n0\r\n";
    let mut turns = 0;
    loop {
        let (before, mut output) = (clock.get().0, Output::default());
        let step = door.server.step(&mut door.store, &Facts::default(), 1, command, &mut output);
        let passed = clock.get().0 - before;
        assert!(passed < 1000, "{passed} ms");
        turns += 1;
        match step {
            Step::NotNow => {}
            Step::Done(_) => break assert_eq!(text_of(&output.replies), "$3|l19|"),
            other => panic!("{other:?}"),
        }
    }
    assert!(turns > 2, "{turns} turns");
    assert!(door.said("FUNCTION LIST").starts_with("*20|"));
    // All libraries of a payload have the time of one.
    let dump = execute(&mut door, &[b"FUNCTION", b"DUMP"]);
    let begin = dump.iter().position(|byte| *byte == b'\n').expect("it has a length") + 1;
    let restore = [&b"FUNCTION"[..], b"RESTORE", &dump[begin..dump.len() - 2], b"FLUSH"];
    assert_eq!(
        text_of(&execute(&mut door, &restore)),
        "-ERR Error registering functions: ERR FUNCTION LOAD timeout|"
    );
    clock.set((0, 1));
    assert_eq!(text_of(&execute(&mut door, &restore)), "+OK|");
}

#[test]
fn payloads_of_libraries_are_restored_by_each_policy() {
    let mut door = Door::new();
    load(&mut door, COUNTER);
    load_all(&mut door, &format!("#!lua name=m\n{STORE}"));
    let dump = execute(&mut door, &[b"FUNCTION", b"DUMP"]);
    let begin = dump.iter().position(|byte| *byte == b'\n').expect("it has a length") + 1;
    let dump = dump[begin..dump.len() - 2].to_vec();
    let restore = |door: &mut Door, policy: &str| {
        text_of(&execute(door, &[b"FUNCTION", b"RESTORE", &dump, policy.as_bytes()]))
    };
    assert_eq!(restore(&mut door, "APPEND"), "-ERR Library l already exists|");
    assert_eq!(restore(&mut door, "REPLACE"), "+OK|");
    load_all(&mut door, "#!lua name=n\nredis.register_function('f', function() end)");
    assert_eq!(restore(&mut door, "FLUSH"), "+OK|");
    door.expect(&[
        ("FCALL f 0", "-ERR Function not found|"),
        ("FCALL count 0", ":1|"),
        ("FUNCTION FLUSH", "+OK|"),
    ]);
    load_all(&mut door, &format!("#!lua name=n\n{COUNTER}"));
    assert_eq!(restore(&mut door, "APPEND"), "-ERR Function count already exists|");
    door.expect(&[("FUNCTION FLUSH", "+OK|")]);
    assert_eq!(restore(&mut door, "APPEND"), "+OK|");
    door.expect(&[("FCALL write 1 k v", "+OK|")]);
    assert_eq!(
        restore(&mut door, "FOO"),
        "-ERR Wrong restore policy given, value should be either FLUSH, APPEND or REPLACE.|"
    );
}

#[test]
fn the_payload_of_redis_is_restored() {
    // `FUNCTION DUMP` of Redis 8.2 with one library.
    const PAYLOAD: &[u8] =
        b"\xf5\xc3@S@\x86\x1f#!lua name=r\x0aredis.register_func\x0ation('from_`\x1d\x02',\
        \x20\xe0\x00\x16\x09) return '\x80\x1a\x08 end)\x0a--x\xe0&\x00\x01xx\x0c\x00\xafj\
        \xfd\x1f\x8c\x86\x89h";
    let mut door = Door::new();
    assert_eq!(text_of(&execute(&mut door, &[b"FUNCTION", b"RESTORE", PAYLOAD])), "+OK|");
    door.expect(&[("FCALL from_redis 0", "$5|redis|")]);
}

#[test]
fn errors_show_the_subcommand_as_the_client_wrote_it() {
    let mut door = Door::new();
    for name in ["flush", "Restore"] {
        let error = format!(
            "-ERR unknown subcommand or wrong number of arguments for '{name}'. Try FUNCTION HELP.|"
        );
        door.expect(&[(&format!("FUNCTION {name} x y z"), &error)]);
    }
}

#[test]
fn functions_that_only_read_are_not_delayed_by_a_pause_of_writes() {
    let mut door = Door::new();
    load_all(&mut door, &format!("#!lua name=l\n{STORE}"));
    door.expect(&[
        ("CLIENT PAUSE 100000 WRITE", "+OK|"),
        ("FCALL read 1 k", "$-1|"),
        ("FCALL write 1 k v", ""),
    ]);
}
