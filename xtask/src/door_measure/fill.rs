//! Fills a server with objects, by pipelines.

use anyhow::{Context, Result, ensure};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};

/// The commands that are sent before their replies are read.
const PIPELINE: u64 = 500;

/// A kind of objects.
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Writes the command for the object with a number.
    command: fn(&mut Vec<u8>, u64),
}

pub(super) const ROWS: [Row; 4] = [
    Row { name: "strings of 16 B", command: short_string },
    Row { name: "strings of 100 B", command: long_string },
    Row { name: "hashes of 10 fields", command: hash },
    Row { name: "members of one sorted set", command: member },
];

/// Fills a server with so many objects.
pub(super) fn fill(server: SocketAddr, row: &Row, count: u64) -> Result<()> {
    fill_with(server, count, row.command)
}

/// Does so many commands, which a function writes.
pub(super) fn fill_with(
    server: SocketAddr,
    count: u64,
    command: impl Fn(&mut Vec<u8>, u64),
) -> Result<()> {
    let stream = TcpStream::connect(server).context("connect")?;
    let (mut replies, mut stream) = (BufReader::new(stream.try_clone()?), stream);
    let (mut bytes, mut line) = (Vec::new(), Vec::new());
    for first in (0..count).step_by(PIPELINE as usize) {
        bytes.clear();
        let end = count.min(first + PIPELINE);
        (first..end).for_each(|number| command(&mut bytes, number));
        stream.write_all(&bytes)?;
        for _ in first..end {
            line.clear();
            replies.read_until(b'\n', &mut line)?;
            let said = String::from_utf8_lossy(&line);
            ensure!(!said.is_empty() && !said.starts_with('-'), "it says: {}", said.trim_end());
        }
    }
    Ok(())
}

fn short_string(bytes: &mut Vec<u8>, number: u64) {
    put(bytes, &["SET", &format!("key:{number:010}"), &text(number, 16)]);
}

fn long_string(bytes: &mut Vec<u8>, number: u64) {
    put(bytes, &["SET", &format!("key:{number:010}"), &text(number, 100)]);
}

fn hash(bytes: &mut Vec<u8>, number: u64) {
    let mut words = vec!["HSET".to_owned(), format!("hash:{number:010}")];
    for field in 0..10 {
        words.extend([format!("field{field}"), text(number * 10 + field, 8)]);
    }
    put(bytes, &words.iter().map(String::as_str).collect::<Vec<_>>());
}

fn member(bytes: &mut Vec<u8>, number: u64) {
    // 7919 is a prime number, so the scores come in no order and differ.
    let score = (number * 7919 % 1_000_003).to_string();
    put(bytes, &["ZADD", "set", &score, &format!("member:{number:010}")]);
}

/// Writes a command.
pub(super) fn put(bytes: &mut Vec<u8>, words: &[&str]) {
    bytes.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n{word}\r\n", word.len()).as_bytes());
    }
}

/// Returns letters that no server can compress.
fn text(number: u64, length: usize) -> String {
    let mut state = number;
    let mut text = String::with_capacity(length + 16);
    while text.len() < length {
        // The steps of SplitMix64.
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        text += &format!("{:016x}", mixed ^ (mixed >> 31));
    }
    text.truncate(length);
    text
}
