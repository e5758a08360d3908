//! Successful handovers, and all refusals.

use super::super::channel::Channel;
use super::super::layout::{RING_BYTES_MAX, RING_BYTES_MIN};
use super::super::tests::{readable, readable_within};
use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::fcntl_getfd;
use rustix::net::{Shutdown, shutdown};
use std::sync::atomic::{AtomicU32, Ordering};

const TOKEN: [u8; TOKEN_BYTES] = *b"0123456789abcdef";

/// Returns a name that no other test uses.
fn name() -> Vec<u8> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("thunderhead-handover-{}-{next}\0\n", std::process::id()).into_bytes()
}

fn knock_of(door: &Door) -> Knock {
    assert!(readable(door.fd()));
    door.accept().unwrap().expect("a client has connected")
}

/// Returns a visit that waits for its answer, and the server's socket for sending it.
fn visit() -> (Visit, OwnedFd) {
    let name = name();
    let door = Door::listen(&name).unwrap();
    let visit = Visit::knock(&name, TOKEN).unwrap();
    (visit, knock_of(&door).socket)
}

/// Returns a socket connected to a door, for sending any token.
fn stranger() -> (OwnedFd, Knock) {
    let name = name();
    let door = Door::listen(&name).unwrap();
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SOCKET, None).unwrap();
    connect(&socket, &address(&name).unwrap()).unwrap();
    (socket, knock_of(&door))
}

fn refusal(visit: Visit) -> HandoverError {
    assert!(readable(visit.fd()));
    match visit.answer() {
        Err(error) => error,
        Ok(_) => panic!("it must be refused"),
    }
}

/// Returns a memory file of any size with any seals.
fn memory(bytes: usize, seals: SealFlags) -> OwnedFd {
    let file = memfd_create(c"test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&file, bytes as u64).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

const MAPPED: usize = 4096 + 2 * RING_BYTES_MIN;

fn all_seals() -> SealFlags {
    SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL
}

/// Returns a client's error for an honest message with the given file.
fn offer(file: &OwnedFd) -> HandoverError {
    let (visit, server) = visit();
    let message = Admission::of(RING_BYTES_MIN).encode();
    send_admission(&server, &message, &[file.as_fd()]).unwrap();
    refusal(visit)
}

#[test]
fn a_client_with_a_good_token_is_admitted() {
    let name = name();
    let door = Door::listen(&name).unwrap();
    assert!(door.accept().unwrap().is_none());
    let visit = Visit::knock(&name, TOKEN).unwrap();
    let mut knock = knock_of(&door);
    assert_eq!(knock.token().unwrap(), Some(TOKEN));
    let Answer::Pending(visit) = visit.answer().unwrap() else {
        panic!("it has not been admitted yet")
    };
    let mut server = knock.admit(RING_BYTES_MIN).unwrap();
    assert!(readable(visit.fd()));
    let Answer::Admitted(mut client) = visit.answer().unwrap() else {
        panic!("the whole answer is there")
    };
    assert_eq!(client.ring_bytes(), RING_BYTES_MIN);
    let exchange = |from: &mut Channel, to: &mut Channel| {
        assert_eq!(from.send(&[b"hello"]), Ok(5));
        let mut bytes = Vec::new();
        assert_eq!(to.receive(&mut bytes, 100), Ok(5));
        assert_eq!(bytes, b"hello");
    };
    exchange(&mut client, &mut server);
    exchange(&mut server, &mut client);
    assert!(!client.peer_gone() && !server.peer_gone());
    drop(server);
    assert!(client.peer_gone());
}

#[test]
fn a_token_may_come_in_pieces_or_never() {
    let (socket, mut knock) = stranger();
    assert_eq!(knock.token().unwrap(), None);
    for piece in TOKEN.chunks(5) {
        assert_eq!(knock.token().unwrap(), None);
        assert_eq!(send(&socket, piece, SEND), Ok(piece.len()));
    }
    assert_eq!(knock.token().unwrap(), Some(TOKEN));
    assert_eq!(knock.token().unwrap(), Some(TOKEN), "it may be asked for again");
}

#[test]
fn a_short_token_and_then_nothing_is_an_error() {
    for bytes in [0, 1, TOKEN_BYTES - 1] {
        let (socket, mut knock) = stranger();
        assert_eq!(send(&socket, &TOKEN[..bytes], SEND), Ok(bytes));
        shutdown(&socket, Shutdown::Write).unwrap();
        assert!(matches!(knock.token(), Err(HandoverError::Closed)), "{bytes}");
    }
}

#[test]
fn bytes_behind_a_token_count_as_wake_ups() {
    let (socket, mut knock) = stranger();
    assert_eq!(send(&socket, &[7; 1000], SEND), Ok(1000));
    assert_eq!(knock.token().unwrap(), Some([7; TOKEN_BYTES]));
    let mut channel = knock.admit(RING_BYTES_MIN).unwrap();
    while readable_within(channel.socket(), 0) {
        assert!(!channel.peer_gone());
    }
}

#[test]
fn a_client_whose_token_is_wrong_finds_the_socket_closed() {
    let name = name();
    let door = Door::listen(&name).unwrap();
    let visit = Visit::knock(&name, [0; TOKEN_BYTES]).unwrap();
    let mut knock = knock_of(&door);
    assert_ne!(knock.token().unwrap(), Some(TOKEN));
    drop(knock);
    assert!(matches!(refusal(visit), HandoverError::Closed));
}

#[test]
fn a_client_that_has_left_is_not_admitted() {
    let (socket, knock) = stranger();
    drop(socket);
    assert!(knock.admit(RING_BYTES_MIN).is_err());
}

#[test]
fn a_server_cannot_admit_to_rings_of_impossible_sizes() {
    for bytes in [0, 64, 4097, 2 * RING_BYTES_MAX] {
        let (_socket, knock) = stranger();
        let error = knock.admit(bytes).err().expect("the size is impossible");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}

#[test]
fn an_answer_without_a_descriptor_is_refused() {
    let (visit, server) = visit();
    send_admission(&server, &Admission::of(RING_BYTES_MIN).encode(), &[]).unwrap();
    assert!(matches!(refusal(visit), HandoverError::NoDescriptor));
}

#[test]
fn memory_without_all_seals_is_refused() {
    for seals in [SealFlags::empty(), SealFlags::SHRINK, SealFlags::SHRINK | SealFlags::GROW] {
        assert!(matches!(offer(&memory(MAPPED, seals)), HandoverError::NotSealed));
    }
    let file = memfd_create(c"test", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, MAPPED as u64).unwrap();
    assert!(matches!(offer(&file), HandoverError::NotSealed));
}

#[test]
fn files_other_than_memory_are_refused() {
    let (_visit, socket) = visit();
    assert!(matches!(offer(&socket), HandoverError::NotSealed));
    let file =
        OwnedFd::from(std::fs::OpenOptions::new().read(true).open("/proc/self/exe").unwrap());
    assert!(matches!(offer(&file), HandoverError::NotSealed));
}

#[test]
fn memory_of_another_size_is_refused() {
    for bytes in [0, 4096, MAPPED - 1, MAPPED + 1, 2 * MAPPED] {
        match offer(&memory(bytes, all_seals())) {
            HandoverError::Size { expected: MAPPED, actual } => assert_eq!(actual, bytes as u64),
            other => panic!("{other}"),
        }
    }
}

#[test]
fn memory_that_cannot_be_written_is_refused() {
    let seals = all_seals() | SealFlags::WRITE;
    assert!(matches!(offer(&memory(MAPPED, seals)), HandoverError::System(_)));
}

#[test]
fn a_message_of_another_kind_version_or_size_is_refused() {
    let answer = |message: &[u8]| {
        let (visit, server) = visit();
        let file = memory(MAPPED, all_seals());
        send_admission(&server, message, &[file.as_fd()]).unwrap();
        refusal(visit)
    };
    let good = Admission::of(RING_BYTES_MIN);
    let mut foreign = good.encode();
    foreign[0] ^= 1;
    assert!(matches!(answer(&foreign), HandoverError::Foreign));
    let newer = Admission { version: VERSION + 1, ..good };
    let refused = answer(&newer.encode());
    assert!(matches!(refused, HandoverError::Version { theirs, .. } if theirs == VERSION + 1));
    for ring_bytes in [0, 1, 4097, 128 << 20, 1 << 63, u64::MAX] {
        let message = Admission { version: VERSION, ring_bytes }.encode();
        assert!(matches!(answer(&message), HandoverError::RingBytes(told) if told == ring_bytes));
    }
}

#[test]
fn an_answer_that_breaks_off_is_refused_and_one_in_pieces_is_not() {
    for (bytes, whole) in [(10, false), (Admission::BYTES, true)] {
        let (mut visit, server) = visit();
        let message = Admission::of(RING_BYTES_MIN).encode();
        let file = memory(MAPPED, all_seals());
        for (at, byte) in message[..bytes].iter().enumerate() {
            let files = [file.as_fd()];
            // The descriptor comes with a byte in the middle.
            send_admission(&server, &[*byte], if at == 5 { &files } else { &[] }).unwrap();
            match visit.answer().unwrap() {
                Answer::Pending(pending) => visit = pending,
                Answer::Admitted(_) if at + 1 == message.len() => return assert!(whole),
                Answer::Admitted(_) => panic!("it is not whole"),
            }
        }
        drop(server);
        assert!(matches!(refusal(visit), HandoverError::Closed));
        assert!(!whole);
    }
}

#[test]
fn descriptors_beyond_the_first_are_closed() {
    let (visit, server) = visit();
    let file = memory(MAPPED, all_seals());
    // The write end of a pipe stays open until its last descriptor is closed.
    let (reader, writer) = std::io::pipe().unwrap();
    let (reader, writer) = (OwnedFd::from(reader), OwnedFd::from(writer));
    let message = Admission::of(RING_BYTES_MIN).encode();
    let files = [file.as_fd(), writer.as_fd(), writer.as_fd()];
    send_admission(&server, &message, &files).unwrap();
    drop(writer);
    assert!(!readable_within(reader.as_fd(), 0), "the message in flight holds it open");
    assert!(matches!(visit.answer().unwrap(), Answer::Admitted(_)));
    let mut byte = [0];
    assert_eq!(rustix::io::read(&reader, &mut byte), Ok(0), "no descriptor of it remains");
}

#[test]
fn sockets_are_closed_when_another_program_is_started() {
    let name = name();
    let door = Door::listen(&name).unwrap();
    let visit = Visit::knock(&name, TOKEN).unwrap();
    let knock = knock_of(&door);
    for socket in [door.fd(), visit.fd(), knock.fd()] {
        assert!(fcntl_getfd(socket).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
    }
}

#[test]
fn doors_without_a_name_or_with_a_taken_one_are_refused() {
    assert!(Door::listen(b"").is_err());
    assert!(Door::listen(&[b'x'; 108]).is_err());
    assert!(Door::listen(&[b'x'; 107]).is_ok());
    let name = name();
    let door = Door::listen(&name).unwrap();
    assert!(Door::listen(&name).is_err());
    drop(door);
    assert!(Visit::knock(&name, TOKEN).is_err(), "the door is closed");
}
