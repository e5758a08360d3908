//! Random scripts in Lua: values that are built, converted, packed and unpacked, and calls of
//! commands. The texts of numbers, strings and patterns are random, the shapes are not.

use super::random::Random;

/// Strings in Lua's own form.
const STRINGS: &[&str] = &[
    "'a'",
    "''",
    "'12'",
    "'1.5'",
    "'hello world'",
    "'a\\0b'",
    "'\\r\\n'",
    "'\"/\\\\'",
    "'\\127\\128\\255'",
    "'key=value, k2=v2'",
    "string.rep('x', 40)",
    "string.rep('ab', 200)",
];

const NUMBERS: &[&str] = &[
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "31",
    "-32",
    "-33",
    "127",
    "128",
    "255",
    "256",
    "-129",
    "65535",
    "65536",
    "-32769",
    "2147483648",
    "-2147483649",
    "4294967296",
    "2^53",
    "1.5",
    "-0.5",
    "1/3",
    "0.1",
    "1e15",
    "1e100",
    "1e-7",
    "123456789.123",
];

const PATTERNS: &[&str] = &[
    "'%w+'",
    "'(%w+)=(%w+)'",
    "'.-'",
    "'l+'",
    "'()'",
    "'^h'",
    "'o$'",
    "'[a-h]'",
    "'[^%s]+'",
    "'%f[%w]%w+'",
    "'(.)%1'",
    "'%b()'",
    "'.'",
    "'x*'",
    "'%d'",
    "'('",
    "'%'",
    "'[a'",
    "''",
];

/// Arguments of calls. `@` stands for a value, `#` for a number.
const COMMANDS: &[&str] = &[
    "'GET', 's1'",
    "'SET', 's1', @",
    "'SET', 's2', @, 'NX'",
    "'APPEND', 's1', @",
    "'INCRBY', 's3', #",
    "'INCRBYFLOAT', 's3', #",
    "'RPUSH', 'l1', @, @",
    "'LRANGE', 'l1', 0, -1",
    "'LPOP', 'l1'",
    "'HSET', 'h1', 'f', @",
    "'HGET', 'h1', 'f'",
    "'HGETALL', 'h1'",
    "'HINCRBY', 'h1', 'n', #",
    "'SADD', 't1', @",
    "'SISMEMBER', 't1', @",
    "'SCARD', 't1'",
    "'ZADD', 'z1', #, 'm'",
    "'ZSCORE', 'z1', 'm'",
    "'ZINCRBY', 'z1', #, 'm'",
    "'TYPE', 's1'",
    "'DEL', 's1', 'l1'",
    "'EXISTS', 's1', 'l1'",
    "'STRLEN', 's1'",
    "'BLPOP', 'l1', 0",
    "'PING'",
    "'ECHO', @",
    "'SELECT', 3",
    "'NOSUCH'",
    "'GET'",
    "'MULTI'",
    "'EVAL', 'return 1', 0",
];

/// Returns a script.
pub(super) fn program(random: &mut Random) -> String {
    match random.below(10) {
        0 => format!("return {}", value(random, 3)),
        1 => format!("return cjson.encode({})", plain(random, 3)),
        2 => {
            let made = plain(random, 2);
            format!("return cjson.decode(cjson.encode({{{made}, {made}}}))")
        }
        3 => format!("return cmsgpack.pack({}, {})", plain(random, 3), plain(random, 1)),
        4 => {
            let (one, other) = (plain(random, 2), plain(random, 2));
            format!("return {{cmsgpack.unpack(cmsgpack.pack({one}, {other}))}}")
        }
        5 => bits(random),
        6 => packed(random),
        7 => patterns(random),
        _ => calls(random),
    }
}

/// Returns a string or a number.
fn scalar(random: &mut Random) -> String {
    match random.one_in(2) {
        true => random.of(STRINGS).to_owned(),
        false => random.of(NUMBERS).to_owned(),
    }
}

/// Returns a value that all formats have. Tables have one field at most, as the order of fields is
/// open.
fn plain(random: &mut Random, depth: usize) -> String {
    match random.below(8) {
        0 => "true".to_owned(),
        1 => "false".to_owned(),
        2 | 3 if depth > 0 => {
            let count = random.between(0, 4);
            let items: Vec<String> = (0..count).map(|_| plain(random, depth - 1)).collect();
            format!("{{{}}}", items.join(", "))
        }
        4 if depth > 0 => format!("{{f = {}}}", plain(random, depth - 1)),
        _ => scalar(random),
    }
}

/// Returns a value that a script may return.
fn value(random: &mut Random, depth: usize) -> String {
    match random.below(14) {
        0 => "nil".to_owned(),
        1 => format!("{{ok = {}}}", random.of(STRINGS)),
        2 => format!("{{err = {}}}", random.of(STRINGS)),
        3 => format!("{{double = {}}}", random.of(NUMBERS)),
        4 if depth > 0 => format!("{{map = {{f = {}}}}}", value(random, depth - 1)),
        5 => format!("{{set = {{[{}] = true}}}}", scalar(random)),
        6 => format!("{{big_number = {}}}", random.of(STRINGS)),
        7 => format!("{{verbatim_string = {{format = 'txt', string = {}}}}}", random.of(STRINGS)),
        8 => format!("redis.error_reply({})", scalar(random)),
        9 => format!("redis.status_reply({})", scalar(random)),
        10 | 11 if depth > 0 => {
            let count = random.below(5);
            let items: Vec<String> = (0..count).map(|_| value(random, depth - 1)).collect();
            format!("{{{}}}", items.join(", "))
        }
        _ => plain(random, depth.min(1)),
    }
}

fn bits(random: &mut Random) -> String {
    let (one, other) = (random.of(NUMBERS), random.of(NUMBERS));
    let two = random.of(&["band", "bor", "bxor", "lshift", "rshift", "arshift", "rol", "ror"]);
    let single = random.of(&["tobit", "bnot", "bswap", "tohex"]);
    format!("return {{bit.{two}({one}, {other}), bit.{single}({one}), bit.tohex({one}, {other})}}")
}

fn packed(random: &mut Random) -> String {
    let order = random.of(&["", "<", ">", "!4", ">!8", "!3"]);
    let count = random.between(1, 3);
    let (mut format, mut values) = (order.to_owned(), Vec::new());
    for _ in 0..count {
        let option =
            random.of(&["b", "B", "h", "H", "l", "i", "I", "i3", "i8", "d", "s", "c2", "x"]);
        format.push_str(option);
        match option {
            "s" | "c2" => values.push(random.of(STRINGS).to_owned()),
            "x" => {}
            // A number of C that is too large for an integer has no defined value.
            _ => {
                values.push(random.of(&["0", "1", "-1", "100", "-100", "70000", "1.5"]).to_owned())
            }
        }
    }
    let values: String = values.iter().map(|value| format!(", {value}")).collect();
    format!(
        "local p = struct.pack('{format}'{values}) return {{p, #p, struct.unpack('{format}', p)}}"
    )
}

fn patterns(random: &mut Random) -> String {
    let (text, pattern) = (random.of(STRINGS), random.of(PATTERNS));
    let by = random.of(&["'%0%0'", "'%1'", "'<>'", "{k2 = 'v'}", "string.upper", "'%2'", "7"]);
    match random.below(4) {
        0 => format!("return {{string.find({text}, {pattern}, {})}}", random.of(&["1", "2", "-3"])),
        1 => format!("return {{string.match({text}, {pattern})}}"),
        2 => format!("return {{string.gsub({text}, {pattern}, {by})}}"),
        _ => format!(
            "local t = {{}} for a, b in string.gmatch({text}, {pattern}) do t[#t + 1] = a \
             t[#t + 1] = b if #t > 50 then break end end return t"
        ),
    }
}

fn calls(random: &mut Random) -> String {
    let count = random.between(1, 4);
    let mut script = String::new();
    if random.one_in(4) {
        script.push_str("redis.setresp(3) ");
    }
    script.push_str("local t = {} ");
    for _ in 0..count {
        let call = random.of(&["call", "pcall", "pcall"]);
        let mut words = String::new();
        for character in random.of(COMMANDS).chars() {
            match character {
                '@' => words.push_str(&scalar(random)),
                '#' => words.push_str(random.of(NUMBERS)),
                other => words.push(other),
            }
        }
        script.push_str(&format!("t[#t + 1] = redis.{call}({words}) "));
    }
    script.push_str(random.of(&["return t", "return t[#t]", "error('end')", "return #t"]));
    script
}
