//! Two real processes: the test starts itself as the client.

use super::super::doorbell::Until;
use super::super::handover::{Answer, Door, Visit};
use super::super::layout::RING_BYTES_DEFAULT;
use super::super::{Channel, HandoverError};
use super::{pattern_byte, readable};
use std::process::{Command, Stdio};

/// The variable with the door's name for the client. Without it, the client's test does nothing.
const NAME: &str = "THUNDERHEAD_SHM_TEST_DOOR";

/// The bytes that the client sends and receives back.
const BYTES: usize = 4 << 20;

/// Receives at least one byte, and sleeps until there is one; none if the peer is gone.
fn receive(channel: &mut Channel, into: &mut Vec<u8>) -> usize {
    loop {
        let bytes = channel.receive(into, usize::MAX).unwrap();
        channel.flush();
        if bytes > 0 {
            return bytes;
        }
        if channel.prepare_sleep(Until::Arrival) {
            assert!(readable(channel.socket()), "the peer does something");
            if channel.awake(true) {
                return channel.receive(into, usize::MAX).unwrap();
            }
        }
    }
}

/// Sends everything, and sleeps while there is no room.
fn send(channel: &mut Channel, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let sent = channel.send(&[bytes]).unwrap();
        channel.flush();
        bytes = &bytes[sent..];
        if !bytes.is_empty() && channel.prepare_sleep(Until::Room) {
            assert!(readable(channel.socket()), "the peer does something");
            assert!(!channel.awake(true), "the peer lives");
        }
    }
}

fn visit(name: &str) -> Result<Channel, HandoverError> {
    let mut visit = Visit::knock(name.as_bytes(), *b"a fitting token!")?;
    loop {
        match visit.answer()? {
            Answer::Admitted(channel) => return Ok(channel),
            Answer::Pending(pending) => visit = pending,
        }
        assert!(readable(visit.fd()), "the server answers");
    }
}

#[test]
fn the_client_of_the_test_below() {
    let Ok(name) = std::env::var(NAME) else { return };
    let mut channel = visit(&name).unwrap();
    let bytes: Vec<u8> = (0..BYTES).map(pattern_byte).collect();
    let mut back = Vec::new();
    for chunk in bytes.chunks(50_000) {
        send(&mut channel, chunk);
        let before = back.len();
        while back.len() < before + chunk.len() {
            assert_ne!(receive(&mut channel, &mut back), 0, "the server lives");
        }
    }
    assert!(back == bytes, "the server sends the bytes back");
    // No farewell: the server must notice that this process has died.
    std::process::abort();
}

#[test]
fn a_process_is_admitted_talks_and_is_missed_when_it_dies() {
    let name = format!("thunderhead-shm-test-{}", std::process::id());
    let door = Door::listen(name.as_bytes()).unwrap();
    let mut client = Command::new(std::env::current_exe().unwrap())
        .args(["the_client_of_the_test_below", "--test-threads=1"])
        .env(NAME, &name)
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    assert!(readable(door.fd()), "the client comes");
    let mut knock = door.accept().unwrap().expect("the client is at the door");
    while knock.token().unwrap().is_none() {
        assert!(readable(knock.fd()), "the token comes");
    }
    let mut channel = knock.admit(RING_BYTES_DEFAULT).unwrap();
    let (mut bytes, mut total) = (Vec::new(), 0);
    loop {
        bytes.clear();
        let arrived = receive(&mut channel, &mut bytes);
        if arrived == 0 {
            break;
        }
        total += arrived;
        send(&mut channel, &bytes);
    }
    assert_eq!(total, BYTES);
    assert!(channel.peer_gone());
    assert!(!client.wait().unwrap().success(), "it has aborted");
}
