//! Scripts, and scripts that try to do harm.

use crate::resp::models::execute;
use crate::resp::testing::{Door, text_of};
use crate::resp::{ServerOptions, store::Refusal};

/// Returns the reply to a script without keys.
fn eval(door: &mut Door, script: &str) -> String {
    text_of(&execute(door, &[b"eval", script.as_bytes(), b"0"]))
}

/// Checks the replies to scripts. In place of a script's digest, replies have `@`.
#[track_caller]
fn expect(door: &mut Door, table: &[(&str, &str)]) {
    for (script, reply) in table {
        let digest = super::library::digest(script.as_bytes());
        assert_eq!(eval(door, script).replace(&digest, "@"), *reply, "{script}");
    }
}

const ENDED: &str =
    "-ERR The script was ended after 5000 ms (busy-reply-threshold). None of its writes was done.|";

#[test]
fn scripts_return_values() {
    expect(
        &mut Door::new(),
        &[
            ("return 1", ":1|"),
            ("return 1.9", ":1|"),
            ("return {1,2,{3,'a'},nil,4}", "*3|:1|:2|*2|:3|$1|a|"),
            ("return {ok='fine'}", "+fine|"),
            ("return {err='MY error'}", "-MY error|"),
            ("return true", ":1|"),
            ("return false", "$-1|"),
            ("return nil", "$-1|"),
            ("return {double=1.5}", "$3|1.5|"),
            ("return {map={a=1}}", "*2|$1|a|:1|"),
            ("return redis.call('set','a','1')", "+OK|"),
            ("return redis.call('get','a')", "$1|1|"),
            ("return redis.call('get','b')", "$-1|"),
            ("redis.setresp(3) return redis.call('get','b')", "$-1|"),
        ],
    );
}

#[test]
fn values_keep_their_types_in_version_3() {
    let mut door = Door::new();
    assert!(door.said("hello 3\nhset h a 1\nzadd z 1.5 m\nsadd s a").starts_with("%7|"));
    expect(
        &mut door,
        &[
            ("return {double=1.5}", ",1.5|"),
            ("return {map={a=1}}", "%1|$1|a|:1|"),
            ("return {set={a=1}}", "~1|$1|a|"),
            ("return {big_number='12'}", "(12|"),
            ("return {verbatim_string={string='a',format='txt'}}", "=5|txt:a|"),
            ("return true", ":1|"),
            ("redis.setresp(3) return true", "#t|"),
            ("redis.setresp(3) return redis.call('hgetall','h')", "%1|$1|a|$1|1|"),
            ("return redis.call('hgetall','h')", "*2|$1|a|$1|1|"),
            ("redis.setresp(3) return redis.call('zscore','z','m')", ",1.5|"),
            ("redis.setresp(3) return redis.call('smembers','s')", "~1|$1|a|"),
            ("redis.setresp(3) return redis.call('get','no')", "_|"),
        ],
    );
}

#[test]
fn errors_have_the_texts_of_redis() {
    let place = "script: @, on @user_script:1.|";
    let with_place = |text: &str| format!("-ERR {text} {place}");
    let mut door = Door::new();
    for (script, text) in [
        ("return redis.call('nosuch')", "Unknown Redis command called from script"),
        ("return redis.call('get')", "Wrong number of args calling Redis command from script"),
        ("return redis.call('eval','return 1',0)", "This Redis command is not allowed from script"),
        ("return redis.call()", "Please specify at least one argument for this redis lib call"),
        ("return redis.call({})", "Lua redis lib command arguments must be strings or integers"),
        ("error('x')", "user_script:1: x"),
        ("error({})", "unknown error"),
        ("error()", "nil"),
        ("x=1", "user_script:1: Attempt to modify a readonly table"),
        ("redis.x=1", "user_script:1: Attempt to modify a readonly table"),
        ("rawset(_G,'a',1)", "Attempt to modify a readonly table"),
        ("return x", "user_script:1: Script attempted to access nonexistent global variable 'x'"),
        (
            "return cjson.decode('[1')",
            "user_script:1: Expected comma or array end but found T_END at character 3",
        ),
    ] {
        expect(&mut door, &[(script, &with_place(text))]);
    }
    expect(&mut door, &[("error({err='MY x'})", &format!("-MY x {place}"))]);
    door.expect(&[
        ("eval \"return (\" 0", "-ERR Error compiling script (new function): user_script:1: unexpected symbol near '<eof>'|"),
        ("eval \"return 1\" x", "-ERR value is not an integer or out of range|"),
        ("eval \"return 1\" -1", "-ERR Number of keys can't be negative|"),
        ("eval \"return 1\" 1", "-ERR Number of keys can't be greater than number of args|"),
        ("evalsha x 0", "-NOSCRIPT No matching script. Please use EVAL.|"),
        ("script kill", "-NOTBUSY No scripts in execution right now.|"),
        ("script flush x", "-ERR SCRIPT FLUSH only support SYNC|ASYNC option|"),
    ]);
}

#[test]
fn known_scripts_are_called_by_their_digests() {
    let mut door = Door::new();
    let digest = "e0e1f9fabfc9d4800c877a703b823ac0578ff8db";
    let no_script = "-NOSCRIPT No matching script. Please use EVAL.|";
    door.expect(&[
        (&format!("evalsha {digest} 0"), no_script),
        ("eval \"return 1\" 0", ":1|"),
        (&format!("evalsha {} 0", digest.to_uppercase()), ":1|"),
        (&format!("script exists {digest} x"), "*2|:1|:0|"),
        ("script flush", "+OK|"),
        (&format!("evalsha {digest} 0"), no_script),
        ("script load \"return 1\"", &format!("$40|{digest}|")),
        (&format!("evalsha_ro {digest} 0"), ":1|"),
    ]);
}

#[test]
fn a_script_that_only_reads_cannot_write() {
    let mut door = Door::new();
    let line = "#!lua flags=no-writes\n";
    let text =
        "-ERR Write commands are not allowed from read-only scripts. script: @, on @user_script:";
    expect(&mut door, &[(&format!("{line}return redis.call('set','a',1)"), &format!("{text}2.|"))]);
    expect(&mut door, &[(&format!("{line}return redis.call('get','a')"), "$-1|")]);
    // Redis would send these to its replicas.
    for call in ["'publish','q',1", "'pfcount','a'"] {
        expect(&mut door, &[(&format!("{line}return redis.call({call})"), &format!("{text}2.|"))]);
        expect(&mut door, &[(&format!("return redis.call({call})"), ":0|")]);
    }
    let reply = execute(&mut door, &[b"eval_ro", b"return redis.pcall('set','a',1)", b"0"]);
    assert_eq!(text_of(&reply), "-ERR Write commands are not allowed from read-only scripts.|");
    let reply = execute(&mut door, &[b"eval_ro", b"#!lua\nreturn 1", b"0"]);
    let refused = "-ERR Can not execute a script with write flag using *_ro command.|";
    assert_eq!(text_of(&reply), refused);
}

#[test]
fn a_script_that_fails_keeps_its_writes() {
    let mut door = Door::new();
    assert!(eval(&mut door, "redis.call('set','a',1) error('x')").starts_with("-ERR"));
    door.expect(&[("get a", "$1|1|")]);
}

#[test]
fn a_script_that_is_ended_has_written_nothing() {
    let mut door = Door::new();
    expect(&mut door, &[("redis.call('set','a',1) while true do end", ENDED)]);
    door.expect(&[("get a", "$-1|"), ("multi", "+OK|"), ("set b 1", "+QUEUED|")]);
    assert_eq!(eval(&mut door, "redis.call('set','a',1) while true do end"), "+QUEUED|");
    let aborted = format!(
        "-EXECABORT Transaction discarded because of: {}",
        ENDED.trim_start_matches("-ERR ")
    );
    door.expect(&[("exec", &aborted), ("get a", "$-1|"), ("get b", "$-1|")]);
}

#[test]
fn a_script_that_the_store_refuses_is_executed_again() {
    let script = "redis.call('incr','a') redis.call('select',3) redis.call('incr','a') \
                  pcall(redis.call,'incr','a') return redis.call('get','a')";
    for refused in 0..6 {
        let mut door = Door::new();
        door.store.refuses_after = Some(refused);
        assert_eq!(eval(&mut door, script), "$1|2|", "{refused}");
        door.expect(&[("get a", "$1|1|"), ("select 3", "+OK|"), ("get a", "$1|2|")]);
    }
    let mut door = Door::with(ServerOptions {
        value_bytes_max: 100,
        string_bytes_max: 100,
        ..ServerOptions::default()
    });
    let script = "return redis.pcall('set','a',string.rep('x',200))";
    assert!(eval(&mut door, script).starts_with("-ERR string exceeds"), "{:?}", Refusal::TooLong);
}

#[test]
fn a_transaction_has_scripts() {
    let mut door = Door::new();
    door.expect(&[
        ("multi", "+OK|"),
        ("set a 1", "+QUEUED|"),
        ("eval \"redis.call('select',2) return redis.call('incr',KEYS[1])\" 1 a", "+QUEUED|"),
        ("eval \"return redis.call('incr',KEYS[1])\" 1 a", "+QUEUED|"),
        ("eval \"return redis.call('blpop','l',0)\" 0", "+QUEUED|"),
        ("get a", "+QUEUED|"),
        ("exec", "*5|+OK|:1|:2|$-1|$1|2|"),
    ]);
}

#[test]
fn elements_of_a_script_wake_a_client_that_waits() {
    let mut door = Door::new();
    assert_eq!(door.said_to(2, "blpop l 0"), "");
    expect(&mut door, &[("return redis.call('rpush','l','x')", ":1|")]);
    assert_eq!(door.heard(2), "*2|$1|l|$1|x|");
}

#[test]
fn scripts_that_never_end_are_ended() {
    for script in [
        "while true do end",
        "repeat until false",
        "while true do pcall(function() while true do end end) end",
        "while true do xpcall(function() while true do end end, function() while true do end end) end",
        "local function f() pcall(f) while true do pcall(f) end end f()",
        "coroutine.wrap(function() while true do end end)()",
        "while true do coroutine.resume(coroutine.create(function() while true do end end)) end",
        "local t = {} while true do local co = coroutine.create(function() while true do \
         pcall(function() while true do end end) end end) t[#t % 9 + 1] = co coroutine.resume(co) end",
        "local t = setmetatable({}, {__index = function(t, k) return t[k + 1] end}) while true do \
         pcall(function() return t[1] end) end",
        "while true do pcall(redis.call, 'ping') end",
        "while true do redis.pcall('nosuch') end",
        "string.gsub(string.rep('x', 1000), 'x', function() while true do pcall(error) end end)",
        "table.sort({1, 2, 3}, function() while true do end end)",
        "return string.find(string.rep('a', 100), string.rep('a-', 100) .. 'b')",
        "while true do pcall(string.find, string.rep('a', 100), string.rep('.-', 50) .. 'b') end",
        "while true do string.rep('x', 1000) end",
        "while true do load(function() while true do end end) end",
        "local n = 0 load(function() n = n + 1 return ' ' end)",
    ] {
        let mut door = Door::new();
        door.expect(&[("config set lua-time-limit 50", "+OK|")]);
        expect(&mut door, &[(script, &ENDED.replace("5000", "50"))]);
    }
}

#[test]
fn a_setting_limits_the_time_of_scripts() {
    let mut door = Door::new();
    door.expect(&[
        ("config set lua-time-limit 20", "+OK|"),
        ("config get busy-reply-threshold", "*2|$20|busy-reply-threshold|$2|20|"),
    ]);
    assert!(eval(&mut door, "while true do end").starts_with("-ERR The script was ended after 20"));
    expect(&mut door, &[("return 1", ":1|")]);
}

#[test]
fn memory_is_limited() {
    let mut door = Door::new();
    door.expect(&[("config set lua-time-limit 60000", "+OK|")]);
    for script in [
        "local s = 'x' while true do s = s .. s end",
        "local t = {} while true do t[#t + 1] = {} end",
        "return string.rep('x', 1e10)",
        "return string.rep('x', 2^31)",
        "return (string.gsub(string.rep('x', 1e6), 'x', string.rep('y', 1000)))",
        "local s = string.rep('x', 1e7) return cjson.encode({s, s, s, s, s, s, s})",
        "local s = string.rep('x', 1e7) return cmsgpack.pack(s, s, s, s, s, s, s)",
        "local s = string.rep('x', 1e7) return table.concat({s, s, s, s, s, s, s, s})",
        "local t = {} for i = 1, 1e9 do t[i] = i end",
        "local s = string.rep('a', 1e7) local t = {} for i = 1, 100 do t[i] = s .. i end",
    ] {
        let reply = eval(&mut door, script);
        assert!(reply.contains("not enough memory"), "{script}: {reply}");
        expect(&mut door, &[("return 'fine'", "$4|fine|")]);
    }
}

#[test]
fn depth_is_limited() {
    let mut door = Door::new();
    for (script, text) in [
        ("local function f() return 1 + f() end return f()", "stack overflow"),
        ("local function f() return pcall(f) end return tostring(select('#', f()))", ""),
        ("local function f() return (string.gsub('x', 'x', f)) end return f()", "stack overflow"),
        (
            "local t = setmetatable({}, {}) getmetatable(t).__index = function(t, k) return t[k] end return t.x",
            "stack overflow",
        ),
        ("local function f() return coroutine.wrap(f)() end return f()", "stack overflow"),
        ("return cjson.decode(string.rep('[', 100000))", "too many nested"),
        (
            "cjson.decode_max_depth(1e9) return cjson.decode(string.rep('[', 100000))",
            "too many nested",
        ),
        ("local t = {} t[1] = t return cjson.encode(t)", "excessive nesting"),
        (
            "cjson.encode_max_depth(1e9) local t = {} t[1] = t return cjson.encode(t)",
            "excessive nesting",
        ),
        ("return cmsgpack.unpack(string.rep('\\145', 100000))", "nested"),
        ("local t = {} t[1] = t return t", "reached lua stack limit"),
        ("return string.find(string.rep('a', 1e5), string.rep('a?', 1e5))", "pattern too complex"),
        ("return string.find(string.rep('a', 1e5), string.rep('(a)', 1e5))", "too many captures"),
        ("return loadstring(string.rep('(', 1e5))", ""),
        ("return loadstring('return ' .. string.rep('{', 1e5))", ""),
        ("return string.format('%99999d', 1)", "invalid format"),
        ("return select('#', unpack({}, 1, 1e8))", "too many results"),
        // Lua's own function counts in 32 bits.
        ("local t = {} for i = 1, 7999 do t[i] = i end return select('#', unpack(t))", ":7999"),
        (
            "local t = {} for i = 1, 8000 do t[i] = i end return select('#', unpack(t))",
            "too many results",
        ),
        (
            "local t = {} for i = 1, 7998 do t[i] = i end return select('#', unpack(t, 1, 7998))",
            "too many results",
        ),
        ("return {unpack({1, 2}, -2, 2147483647)}", "too many results"),
        ("return {unpack({1, 2}, -2147483648, -2)}", "too many results"),
        ("return {unpack({1, 2}, -1e300, 1e300)}", "too many results"),
        ("return {unpack({1, 2}, 0/0, 2147483647)}", "too many results"),
        ("return {unpack({1, 2}, 1/0, 2147483647)}", "*0"),
        ("return {unpack({1, 2}, 1/0, 1/0)}", "too many results"),
        ("return {unpack({1, 2}, 9.3e18, 9.3e18)}", "*"),
        ("return {unpack({1, 2}, -1, -2)}", "*0"),
        ("return {unpack({1, 2}, '2')}", "*1|:2"),
        ("table.insert({}, -2147483648, 1)", "position out of bounds"),
        ("table.insert({}, 2147483648, 1)", "position out of bounds"),
        ("table.insert({}, 0/0, 1)", "position out of bounds"),
        ("local t = {1, 3} table.insert(t, 2, 2) table.insert(t, 4) return t", "*4|:1|:2|:3|:4"),
        ("table.insert({}, 'x', 1)", "bad argument #2 to 'insert' (number expected, got string)"),
        ("table.insert({})", "wrong number of arguments to 'insert'"),
        ("return unpack(1)", "bad argument #1 to 'unpack' (table expected, got number)"),
        ("return unpack({}, {})", "bad argument #2 to 'unpack' (number expected, got table)"),
        (
            "local t = {} for i = 1, 7900 do t[i] = 'x' .. i end return redis.call('del', unpack(t))",
            ":0",
        ),
        (
            "local t = {} for i = 1, 7900 do t[i] = 'x' .. i end return #cmsgpack.pack(unpack(t))",
            ":",
        ),
        (
            "local t = {} for i = 1, 7900 do t[i] = {} end return select('#', cmsgpack.unpack(string.rep('\\144', 7900)))",
            "too many return values",
        ),
        (
            "local t = {} for i = 1, 7900 do t[i] = {} end return cjson.encode(unpack(t))",
            "expected 1 argument",
        ),
        ("local t = {} for i = 1, 7900 do t[i] = {} end return pcall(unpack(t))", ""),
    ] {
        let reply = eval(&mut door, script);
        assert!(reply.contains(text), "{script}: {reply}");
        expect(&mut door, &[("return 'fine'", "$4|fine|")]);
    }
}

#[test]
fn scripts_cannot_leave_the_sandbox() {
    let mut door = Door::new();
    let missing = [
        "io",
        "os.time",
        "os.execute",
        "debug",
        "package",
        "require",
        "dofile",
        "loadfile",
        "print",
        "getfenv",
        "setfenv",
        "newproxy",
        "module",
    ];
    for name in missing {
        let (table, field) = name.split_once('.').unwrap_or(("_G", name));
        let script = format!("return rawget({table}, '{field}') == nil");
        expect(&mut door, &[(&script, ":1|")]);
    }
    expect(
        &mut door,
        &[
            ("return getmetatable(redis) == nil", ":1|"),
            (
                "return select(2, pcall(setmetatable, string, {}))",
                "$34|Attempt to modify a readonly table|",
            ),
            (
                "return select(2, pcall(rawset, string, 'len', 1))",
                "$34|Attempt to modify a readonly table|",
            ),
            ("return pcall(function() getmetatable('').__index = nil end)", "$-1|"),
            ("return pcall(function() getmetatable(_G).__index = nil end)", "$-1|"),
            ("return pcall(function() getmetatable('').__index.len = nil end)", "$-1|"),
            ("return type(loadstring(string.dump(function() end)))", "$3|nil|"),
            (
                "local n = 0 return type(load(function() n = n + 1 if n == 1 then return '\\27Lua' end end))",
                "$3|nil|",
            ),
            ("return pcall(loadstring('x = 1'))", "$-1|"),
            ("table.insert(redis, 'leaves') table.insert(_G, 'this') return #redis", ":1|"),
            (
                "return {tostring(rawget(redis, 1)), #redis, tostring(rawget(_G, 1))}",
                "*3|$3|nil|:0|$3|nil|",
            ),
            (
                "collectgarbage('stop') collectgarbage('setpause', 1e9) return collectgarbage('step')",
                ":0|",
            ),
            ("KEYS.x = 1 ARGV[1] = 2 return {#KEYS, #ARGV}", "*2|:0|:1|"),
            ("return {tostring(KEYS.x), #ARGV}", "*2|$3|nil|:0|"),
            ("cjson.encode_number_precision(2) return cjson.encode(1.25)", "$3|1.2|"),
        ],
    );
    expect(&mut door, &[("return cjson.encode(1.25)", "$4|1.25|")]);
}

#[test]
fn ten_thousand_scripts_can_be_loaded() {
    let mut door = Door::new();
    for number in 0..10_000 {
        let reply = door.said(&format!("script load \"return {number}\""));
        assert!(reply.starts_with("$40|"), "{number}: {reply}");
    }
    assert!(door.said("info memory").contains("|number_of_cached_scripts:10000|"));
    expect(&mut door, &[("return 'fine'", "$4|fine|")]);
    assert_eq!(door.said("script flush"), "+OK|");
    assert!(door.said("info memory").contains("|number_of_cached_scripts:0|"));
    expect(&mut door, &[("return 'fine'", "$4|fine|")]);
}

#[test]
fn scripts_see_the_elements_of_a_set_in_their_order() {
    let mut door = Door::new();
    assert_eq!(door.said("sadd s c b aa a"), ":4|");
    expect(
        &mut door,
        &[
            ("return redis.call('sort', 's', 'by', '_')", "*4|$1|a|$2|aa|$1|b|$1|c|"),
            ("return redis.call('sort', 's', 'by', '_', 'desc')", "*4|$1|c|$1|b|$2|aa|$1|a|"),
        ],
    );
}
