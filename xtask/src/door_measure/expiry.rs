//! Many keys that expire in the same second: the latency of reads of other keys meanwhile, and the
//! expired keys whose memory is not free some seconds later.

use super::fill::{fill_with, put};
use super::{SERVER_CORE, Setup, pin};
use crate::scratch::Scratch;
use crate::steps::run;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The keys that stay, of which one client reads one after the other.
const STAYING: u64 = 100_000;

/// The time for writing a million keys, and the time of reading before they expire.
const FILLING: Duration = Duration::from_secs(15);
const BEFORE: Duration = Duration::from_secs(3);

/// The time in which the keys expire, one thousandth of them in each millisecond.
const SPREAD_MS: u64 = 1000;

/// The times after the last expiry at which the keys are counted whose memory is not free.
const COUNTED_MS: [u64; 2] = [1000, 5000];

/// One of so many reads is of a key that expires.
const EXPIRING_READS: u64 = 16;

/// The clocks of server and client are read one after the other, and may differ so much.
const CLOCKS_MS: u64 = 2;

/// The results of a server in one round: microseconds, and numbers of keys.
#[derive(Clone, Debug, Default)]
struct Round {
    before: [f64; 3],
    during: [f64; 3],
    left: [u64; 2],
    returned: u64,
}

/// Measures servers in turn, and returns the table.
pub(super) fn expiry(
    thunderhead: &Path,
    setups: &[Setup],
    rounds: usize,
    thousands: u64,
) -> Result<String> {
    // The client is on one core, each server on the other one.
    let own = std::process::id().to_string();
    run("taskset", &["--all-tasks", "--pid", "--cpu-list", "0", &own])?;
    let mut all = vec![Vec::new(); setups.len()];
    for _ in 0..rounds {
        for (setup, rounds) in setups.iter().zip(&mut all) {
            let scratch = Scratch::new("door-measure")?;
            let server = setup.start(thunderhead, &scratch, 0)?;
            pin(&server, SERVER_CORE)?;
            let round = measure(server.address, thousands * 1000)
                .with_context(|| format!("measure {}", setup.name))?;
            println!("{}: {round:?}", setup.name);
            rounds.push(round);
        }
    }
    let mut text = format!("\n| {thousands} thousand keys that expire in the same second |");
    let mut line = "| --- |".to_owned();
    for setup in setups {
        write!(text, " {} |", setup.name)?;
        line += " --- |";
    }
    text = format!("{text}\n{line}\n");
    let three = |it: [f64; 3]| format!("{:.0} / {:.0} / {:.0} µs", it[0], it[1], it[2]);
    let of = |rounds: &[Round], get: fn(&Round) -> f64| {
        let mut values: Vec<f64> = rounds.iter().map(get).collect();
        values.sort_by(f64::total_cmp);
        values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
    };
    let mut add = |name: &str, show: &dyn Fn(&[Round]) -> String| {
        let cells: Vec<String> = all.iter().map(|rounds| show(rounds)).collect();
        text += &format!("| {name} | {} |\n", cells.join(" | "));
    };
    add("reads before: p50 / p99 / p99.9", &|rounds| {
        three([
            of(rounds, |it| it.before[0]),
            of(rounds, |it| it.before[1]),
            of(rounds, |it| it.before[2]),
        ])
    });
    add("reads meanwhile: p50 / p99 / p99.9", &|rounds| {
        three([
            of(rounds, |it| it.during[0]),
            of(rounds, |it| it.during[1]),
            of(rounds, |it| it.during[2]),
        ])
    });
    add("p99.9 rises by", &|rounds| {
        format!("{:.0} µs", of(rounds, |it| it.during[2]) - of(rounds, |it| it.before[2]))
    });
    add("expired keys in memory 1 s and 5 s later", &|rounds| {
        format!("{} / {}", of(rounds, |it| it.left[0] as f64), of(rounds, |it| it.left[1] as f64))
    });
    add("expired keys that a read returned", &|rounds| {
        rounds.iter().map(|it| it.returned).sum::<u64>().to_string()
    });
    print!("{text}");
    Ok(text)
}

/// Returns the milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

fn staying_key(number: u64) -> String {
    format!("stay:{number:010}")
}

fn expiring_key(number: u64) -> String {
    format!("key:{number:010}")
}

fn measure(server: SocketAddr, count: u64) -> Result<Round> {
    let value = "v".repeat(100);
    fill_with(server, STAYING, |bytes, number| {
        put(bytes, &["SET", &staying_key(number), &value]);
    })?;
    let mut asking = Connection::new(server)?;
    let first = now_ms() + u64::try_from((FILLING + BEFORE).as_millis())?;
    fill_with(server, count, |bytes, number| {
        let at = (first + number % SPREAD_MS).to_string();
        put(bytes, &["SET", &expiring_key(number), "sixteen bytes 16", "PXAT", &at]);
    })?;
    ensure!(now_ms() + 2000 < first, "writing the keys took too long");
    ensure!(asking.objects()? == STAYING + count, "some keys are missing");
    let reader = std::thread::spawn(move || read(server, (first, count)));
    let last = first + SPREAD_MS;
    let mut left = [0; 2];
    for (left, after) in left.iter_mut().zip(COUNTED_MS) {
        std::thread::sleep(Duration::from_millis((last + after).saturating_sub(now_ms())));
        *left = asking.objects()?.saturating_sub(STAYING);
    }
    let (samples, returned) = reader.join().ok().context("the client panics")??;
    let of = |from: u64, until: u64| {
        let within = samples.iter().filter(|it| (from..until).contains(&it.0));
        let mut micros: Vec<f64> = within.map(|it| it.1).collect();
        micros.sort_by(f64::total_cmp);
        let at = |part: f64| {
            let place = (micros.len() as f64 * part) as usize;
            micros.get(place).copied().unwrap_or(f64::NAN)
        };
        [at(0.5), at(0.99), at(0.999)]
    };
    Ok(Round {
        before: of(first - 2000, first),
        // Servers remove the last keys after their expiry.
        during: of(first, last + SPREAD_MS),
        left,
        returned,
    })
}

/// Reads keys from two seconds before the first expiry on. Returns the time of each read of a key
/// that stays, with its microseconds, and the number of keys that were returned after their expiry.
fn read(server: SocketAddr, (first, count): (u64, u64)) -> Result<(Vec<(u64, f64)>, u64)> {
    let mut connection = Connection::new(server)?;
    let until = first + 2 * SPREAD_MS;
    std::thread::sleep(Duration::from_millis((first - 2000).saturating_sub(now_ms())));
    let (mut samples, mut returned) = (Vec::with_capacity(1 << 20), 0);
    for turn in 0.. {
        let now = now_ms();
        if now > until {
            break;
        }
        // 7919 is a prime number, so the keys come in no order.
        if turn % EXPIRING_READS == 0 {
            let number = turn / EXPIRING_READS * 7919 % count;
            let is_there = connection.ask(&["GET", &expiring_key(number)])?.is_some();
            let is_over = now > first + number % SPREAD_MS + CLOCKS_MS;
            returned += u64::from(is_there && is_over);
            continue;
        }
        let key = staying_key(turn * 7919 % STAYING);
        let began = Instant::now();
        let value = connection.ask(&["GET", &key])?;
        samples.push((now, began.elapsed().as_secs_f64() * 1e6));
        ensure!(value.is_some(), "the key {key} is lost");
    }
    Ok((samples, returned))
}

/// A client that asks and waits.
struct Connection {
    stream: BufReader<TcpStream>,
    bytes: Vec<u8>,
}

impl Connection {
    fn new(server: SocketAddr) -> Result<Connection> {
        let stream = TcpStream::connect(server).context("connect")?;
        stream.set_nodelay(true)?;
        Ok(Connection { stream: BufReader::new(stream), bytes: Vec::new() })
    }

    /// Returns the string that a command returns; `None` if it returns null.
    fn ask(&mut self, words: &[&str]) -> Result<Option<Vec<u8>>> {
        self.bytes.clear();
        put(&mut self.bytes, words);
        self.stream.get_mut().write_all(&self.bytes)?;
        self.bytes.clear();
        self.stream.read_until(b'\n', &mut self.bytes)?;
        let line = String::from_utf8_lossy(&self.bytes);
        let length = line.trim_end().strip_prefix('$').and_then(|it| it.parse::<i64>().ok());
        let length = length.with_context(|| format!("{words:?} has the reply {line}"))?;
        let Ok(length) = usize::try_from(length) else { return Ok(None) };
        let mut value = vec![0; length + 2];
        self.stream.read_exact(&mut value)?;
        value.truncate(length);
        Ok(Some(value))
    }

    /// Returns the number of objects. It includes expired objects that are not removed yet.
    fn objects(&mut self) -> Result<u64> {
        self.bytes.clear();
        put(&mut self.bytes, &["DBSIZE"]);
        self.stream.get_mut().write_all(&self.bytes)?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let count = line.trim_end().strip_prefix(':').and_then(|it| it.parse().ok());
        count.with_context(|| format!("DBSIZE has the reply {line}"))
    }
}
