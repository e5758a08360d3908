//! A whole connection to a server: any bytes, in any pieces, with or without a greeting first. The
//! server must not panic, and must go on serving other clients.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::cell::RefCell;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use thunderhead_net::os::{Options, OsTransport};
use thunderhead_rpc::echo::Echo;
use thunderhead_rpc::{Caller, Node, Opcode};
use thunderhead_runtime::os;
use thunderhead_runtime::polling::Polling;
use thunderhead_wire::frame::{Head, Kind, Preface};
use zerocopy::IntoBytes;

struct Pair {
    node: Node<Echo>,
    good: Caller,
    address: SocketAddr,
}

thread_local! {
    static PAIR: RefCell<Pair> = RefCell::new(Pair::new());
}

impl Pair {
    fn new() -> Pair {
        let directory = std::env::temp_dir().join("thunderhead-fuzz-connection");
        let options = Options { shared_memory: false, ..Options::default() };
        let server = os::world(&directory).unwrap();
        let transport = OsTransport::new(&server, options).unwrap();
        let mut node = Node::new(server, Box::new(transport), Echo::default());
        let address = node.listen("127.0.0.1:0".parse().unwrap()).unwrap();
        let client = os::world(&directory).unwrap();
        let transport = OsTransport::new(&client, options).unwrap();
        Pair { node, good: Caller::new(&client, Box::new(transport), Polling::Always), address }
    }

    fn check(&mut self) {
        let timeout = Some(Duration::from_secs(20));
        self.good.begin(self.address, Opcode::Ping, &[], timeout).unwrap();
        let mut answered = None;
        while answered.is_none() {
            self.good.poll(&mut |_, outcome| answered = Some(outcome.is_ok()));
            self.node.turn_now();
        }
        assert_eq!(answered, Some(true));
    }
}

fuzz_target!(|data: &[u8]| {
    let Some((how, data)) = data.split_first() else { return };
    PAIR.with_borrow_mut(|pair| {
        let Ok(mut stream) = TcpStream::connect(pair.address) else { return };
        let _ = stream.set_nodelay(true);
        if how & 1 == 0 {
            let preface = Preface::new(0, 1 << 20, None);
            let payload = preface.as_bytes();
            let head = Head { kind: Kind::PREFACE, payload_bytes: payload.len() };
            let _ = stream.write_all(&[&head.to_bytes(), payload].concat());
        }
        let pieces = usize::from(how >> 1).max(1);
        for piece in data.chunks(data.len().div_ceil(pieces).max(1)).take(128) {
            if stream.write_all(piece).is_err() {
                break;
            }
            pair.node.turn_now();
        }
        pair.check();
        drop(stream);
        pair.check();
    });
});
