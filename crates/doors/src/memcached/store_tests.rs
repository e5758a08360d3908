//! The execution of requests, on a store in a hash map. The expected answers are those of
//! memcached 1.6.18.

use super::store::{Attributes, Executed, Object, Objects, Refusal, execute};
use super::{Limits, Parsed, Parser, Request, Run};
use std::collections::HashMap;

const VALUE_BYTES_MAX: usize = 100;

struct Kept {
    value: Vec<u8>,
    attributes: Attributes,
    cas: u64,
    was_read: bool,
    accessed: u64,
}

/// A store whose time stands still until a test moves it.
struct Model {
    objects: HashMap<Vec<u8>, Kept>,
    cas: u64,
    now: u64,
    is_full: bool,
}

impl Model {
    fn new() -> Model {
        Model { objects: HashMap::new(), cas: 0, now: 1_800_000_000, is_full: false }
    }

    /// Returns the answers to some requests.
    fn said(&mut self, requests: &str) -> String {
        let (mut parser, mut out, mut at) = (Parser::new(Limits::default()), Vec::new(), 0);
        let bytes = requests.as_bytes();
        while at < bytes.len() {
            match parser.next(&bytes[at..]) {
                Parsed::Request(request, used) => {
                    assert_eq!(execute(self, &request, &mut out), Executed::Done, "{request:?}");
                    at += used;
                }
                other => panic!("{other:?} in {requests:?}"),
            }
        }
        String::from_utf8_lossy(&out).into_owned()
    }
}

impl Objects for Model {
    fn find(&mut self, key: &[u8], counts: bool) -> Option<Object<'_>> {
        let now = self.now;
        if self.objects.get(key)?.attributes.expires.is_some_and(|second| second <= now) {
            self.objects.remove(key);
        }
        let kept = self.objects.get_mut(key)?;
        let (was_read, idle) = (kept.was_read, (now - kept.accessed) as u32);
        if counts {
            (kept.was_read, kept.accessed) = (true, now);
        }
        let Kept { value, attributes, cas, .. } = kept;
        Some(Object { value, attributes: *attributes, cas: *cas, idle, was_read })
    }

    fn find_each(
        &mut self,
        keys: &[&[u8]],
        counts: bool,
        show: &mut dyn FnMut(Option<Object<'_>>) -> bool,
    ) {
        for key in keys {
            if !show(self.find(key, false)) {
                return;
            }
            self.find(key, counts);
        }
    }

    fn put(
        &mut self,
        key: &[u8],
        value: [&[u8]; 2],
        attributes: Attributes,
    ) -> Result<u64, Refusal> {
        let value = value.concat();
        if value.len() > VALUE_BYTES_MAX {
            return Err(Refusal::TooLarge);
        }
        if self.is_full {
            return Err(Refusal::Full);
        }
        self.cas += 1;
        let (cas, accessed) = (self.cas, self.now);
        let kept = Kept { value, attributes, cas, was_read: false, accessed };
        self.objects.insert(key.to_vec(), kept);
        Ok(cas)
    }

    fn set_attributes(&mut self, key: &[u8], attributes: Attributes, is_new_version: bool) {
        self.cas += u64::from(is_new_version);
        if let Some(kept) = self.objects.get_mut(key) {
            kept.attributes = attributes;
            kept.cas = if is_new_version { self.cas } else { kept.cas };
        }
    }

    fn remove(&mut self, key: &[u8]) -> bool {
        self.find(key, false).is_some() && self.objects.remove(key).is_some()
    }

    fn remove_all(&mut self, at: u64) {
        if at <= self.now {
            self.objects.clear();
        }
    }

    fn now(&self) -> u64 {
        self.now
    }
}

/// Returns the answers to some requests, where runs are executed as such.
fn said_with_runs(model: &mut Model, requests: &str) -> (String, usize) {
    let (mut parser, mut out, mut at) = (Parser::new(Limits::default()), Vec::new(), 0);
    let (bytes, mut runs) = (requests.as_bytes(), 0);
    while at < bytes.len() {
        let Parsed::Request(request, used) = parser.next(&bytes[at..]) else {
            panic!("a request at {at} of {requests:?}");
        };
        if let Request::MetaGet(meta) = &request
            && let Some(run) = Run::of(meta, &bytes[at..])
        {
            let done = run.execute(model, &mut out);
            at += done.bytes;
            runs += usize::from(done.bytes > 0);
            if done.bytes > 0 {
                continue;
            }
        }
        assert_eq!(execute(model, &request, &mut out), Executed::Done, "{request:?}");
        at += used;
    }
    (String::from_utf8_lossy(&out).into_owned(), runs)
}

#[test]
fn a_run_has_the_answers_of_its_requests() {
    let prepared = || {
        let mut model = Model::new();
        for key in 0..9 {
            model.said(&format!("ms k{key} 2 F{key} T{}\r\nxx\r\n", key * 10));
        }
        // The first client that reads an object that is stale may load it again.
        model.said("md k4 I T30\r\n");
        model
    };
    let flags = ["v", "v q", "s v q k f t c O12 h l", "k q", "t", "v T5", "h"];
    for flags in flags {
        for last in ["mn\r\n", "mg k1\r\n", "get k1 k2 k1\r\n"] {
            let mut requests = String::new();
            for number in 0..200 {
                // Some of the keys are missing, some are asked for twice.
                requests += &format!("mg k{} {flags}\r\n", number * 7 % 12);
            }
            requests += last;
            let one_by_one = prepared().said(&requests);
            let (together, runs) = said_with_runs(&mut prepared(), &requests);
            assert_eq!(together, one_by_one, "{flags}");
            assert_eq!(runs > 0, flags != "v T5", "{flags}");
        }
    }
}

#[test]
fn unusual_requests_are_in_no_run() {
    let run = |requests: &str| {
        let mut parser = Parser::new(Limits::default());
        match parser.next(requests.as_bytes()) {
            Parsed::Request(Request::MetaGet(meta), _) => {
                Run::of(&meta, requests.as_bytes()).is_some()
            }
            other => panic!("{other:?}"),
        }
    };
    assert!(run(&"mg a v\r\n".repeat(4)));
    assert!(run(&"mg a v\n".repeat(4)));
    assert!(!run(&"mg a v\r\n".repeat(3)));
    for request in ["mg  a v\r\n", "mg a\r\n", "mg YQ== b v\r\n", "mg a v N5\r\n", "mg a v u\r\n"] {
        assert!(!run(&request.repeat(9)), "{request}");
    }
    let long = format!("{}mg {} v\r\n", "mg a v\r\n".repeat(3), "k".repeat(251));
    assert!(!run(&long));
}

/// Checks the answers to requests one after the other.
fn check(model: &mut Model, exchanges: &[(&str, &str)]) {
    for (request, answer) in exchanges {
        assert_eq!(model.said(request), *answer, "{request:?}");
    }
}

#[test]
fn objects_are_written_by_their_modes() {
    check(
        &mut Model::new(),
        &[
            ("get a\r\n", "END\r\n"),
            ("replace a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("append a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("cas a 0 0 1 1\r\nx\r\n", "NOT_FOUND\r\n"),
            ("add a 7 0 1\r\nx\r\n", "STORED\r\n"),
            ("add a 0 0 1\r\ny\r\n", "NOT_STORED\r\n"),
            ("append a 9 1000 1\r\n>\r\n", "STORED\r\n"),
            ("prepend a 9 1000 1\r\n<\r\n", "STORED\r\n"),
            ("gets a b\r\n", "VALUE a 7 3 3\r\n<x>\r\nEND\r\n"),
            ("cas a 1 0 1 2\r\nz\r\n", "EXISTS\r\n"),
            ("cas a 1 0 1 0\r\nz\r\n", "EXISTS\r\n"),
            ("cas a 1 0 1 3\r\nz\r\n", "STORED\r\n"),
            ("replace a 2 0 1 noreply\r\nr\r\n", ""),
            ("get a a\r\n", "VALUE a 2 1\r\nr\r\nVALUE a 2 1\r\nr\r\nEND\r\n"),
            ("delete a\r\n", "DELETED\r\n"),
            ("delete a\r\n", "NOT_FOUND\r\n"),
            ("set a 0 0 1\r\nx\r\n", "STORED\r\n"),
            ("flush_all\r\n", "OK\r\n"),
            ("get a\r\n", "END\r\n"),
        ],
    );
}

#[test]
fn objects_expire() {
    let mut model = Model::new();
    check(
        &mut model,
        &[
            ("set a 0 10 1\r\nx\r\n", "STORED\r\n"),
            ("set b 0 -1 1\r\nx\r\n", "STORED\r\n"),
            ("set c 0 1800000005 1\r\nx\r\n", "STORED\r\n"),
            ("get a b c\r\n", "VALUE a 0 1\r\nx\r\nVALUE c 0 1\r\nx\r\nEND\r\n"),
            ("mg a t\r\n", "HD t10\r\n"),
            ("touch a 20\r\n", "TOUCHED\r\n"),
            ("touch b 20\r\n", "NOT_FOUND\r\n"),
        ],
    );
    model.now += 10;
    check(
        &mut model,
        &[
            ("gat 0 a c\r\n", "VALUE a 0 1\r\nx\r\nEND\r\n"),
            ("mg a t\r\n", "HD t-1\r\n"),
            ("add c 0 0 1\r\ny\r\n", "STORED\r\n"),
        ],
    );
}

#[test]
fn numbers_wrap_upwards_and_stop_at_zero() {
    let not_a_number = "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n";
    check(
        &mut Model::new(),
        &[
            ("incr n 1\r\n", "NOT_FOUND\r\n"),
            ("set n 5 0 2\r\n99\r\n", "STORED\r\n"),
            ("incr n 1\r\n", "100\r\n"),
            ("decr n 91\r\n", "9\r\n"),
            ("get n\r\n", "VALUE n 5 3\r\n9  \r\nEND\r\n"),
            ("decr n 100\r\n", "0\r\n"),
            ("incr n 18446744073709551615 noreply\r\n", ""),
            ("incr n 2\r\n", "1\r\n"),
            ("set n 0 0 3\r\nabc\r\n", "STORED\r\n"),
            ("incr n 1\r\n", not_a_number),
            ("set n 0 0 0\r\n\r\n", "STORED\r\n"),
            ("decr n 1\r\n", not_a_number),
            ("ma n\r\n", not_a_number),
        ],
    );
}

#[test]
fn meta_arithmetic_creates_and_sets_the_time() {
    check(
        &mut Model::new(),
        &[
            ("ma n Oxy k\r\n", "NF Oxy kn\r\n"),
            ("ma n N100 J13 t v c\r\n", "VA 2 t100 c1\r\n13\r\n"),
            ("ma n t v c\r\n", "VA 2 t100 c2\r\n14\r\n"),
            ("ma n D10 MD T50 t\r\n", "HD t50\r\n"),
            ("ma n C99 v\r\n", "EX\r\n"),
            ("ma n C3 q\r\n", ""),
            ("mg n v t\r\n", "VA 2 t50\r\n5 \r\n"),
            ("ma m t N100 v\r\n", "VA 1 t-1\r\n0\r\n"),
            ("mg m t\r\n", "HD t100\r\n"),
        ],
    );
}

#[test]
fn meta_set_returns_versions_and_makes_objects_stale() {
    check(
        &mut Model::new(),
        &[
            ("ms a 1 c F9 Oxy k\r\nx\r\n", "HD c1 Oxy ka\r\n"),
            ("ms a 1 C5\r\ny\r\n", "EX\r\n"),
            ("ms b 1 C5\r\ny\r\n", "NF\r\n"),
            ("ms a 1 ME\r\ny\r\n", "NS\r\n"),
            ("ms a 1 C1 c\r\ny\r\n", "HD c2\r\n"),
            ("ms a 1 MA q\r\nz\r\n", ""),
            ("mg a v f\r\n", "VA 2 f0\r\nyz\r\n"),
            ("ms a 3 C1 I c\r\nold\r\n", "HD c4\r\n"),
            ("mg a v\r\n", "VA 3 X W\r\nold\r\n"),
            ("mg a v\r\n", "VA 3 Z X\r\nold\r\n"),
            ("ms a 3\r\nnew\r\n", "HD\r\n"),
            ("mg a v\r\n", "VA 3\r\nnew\r\n"),
            ("ms Zm9v 1 b k\r\nx\r\n", "HD kZm9v b\r\n"),
            ("get foo\r\n", "VALUE foo 0 1\r\nx\r\nEND\r\n"),
        ],
    );
}

#[test]
fn one_client_is_told_to_load_an_object() {
    let mut model = Model::new();
    check(
        &mut model,
        &[
            ("mg a v N30 t\r\n", "VA 0 t30 W\r\n\r\n"),
            ("mg a v N30 t\r\n", "VA 0 t30 Z\r\n\r\n"),
            ("ms a 1 T100\r\nx\r\n", "HD\r\n"),
            ("mg a R30\r\n", "HD\r\n"),
        ],
    );
    model.now += 80;
    check(
        &mut model,
        &[
            ("mg a R30 t\r\n", "HD t20 W\r\n"),
            ("mg a R30 t\r\n", "HD t20 Z\r\n"),
            ("md a I T90 q\r\n", ""),
            ("mg a t c\r\n", "HD t90 c3 X W\r\n"),
            ("md a C1\r\n", "EX\r\n"),
            ("md a C3 k\r\n", "HD ka\r\n"),
            ("md a q\r\n", "NF\r\n"),
            ("mg a q\r\nmn\r\n", "MN\r\n"),
            ("mg a k O1\r\n", "EN ka O1\r\n"),
        ],
    );
}

#[test]
fn an_access_counts_unless_the_client_forbids_it() {
    let mut model = Model::new();
    check(&mut model, &[("set a 0 0 1\r\nx\r\n", "STORED\r\n"), ("mg a h u\r\n", "HD h0\r\n")]);
    model.now += 5;
    check(
        &mut model,
        &[
            ("mg a h l\r\n", "HD h0 l5\r\n"),
            ("mg a h l\r\n", "HD h1 l0\r\n"),
            ("me a\r\n", "ME a exp=-1 la=0 cas=1 fetch=yes cls=1 size=1\r\n"),
            ("me b\r\n", "EN\r\n"),
        ],
    );
}

#[test]
fn a_store_that_is_full_says_so_and_keeps_what_it_has() {
    let mut model = Model::new();
    let long = "x".repeat(VALUE_BYTES_MAX);
    let no_memory = "SERVER_ERROR out of memory storing object\r\n";
    check(
        &mut model,
        &[
            (&format!("set a 0 0 {VALUE_BYTES_MAX}\r\n{long}\r\n"), "STORED\r\n"),
            ("append a 0 0 1\r\nx\r\n", "NOT_STORED\r\n"),
            ("ms a 1 MP\r\nx\r\n", "NS\r\n"),
            (
                &format!("set a 0 0 {}\r\nx{long}\r\n", VALUE_BYTES_MAX + 1),
                "SERVER_ERROR object too large for cache\r\n",
            ),
            ("set n 0 0 1\r\n1\r\n", "STORED\r\n"),
        ],
    );
    model.is_full = true;
    check(
        &mut model,
        &[
            ("set b 0 0 1\r\nx\r\n", no_memory),
            ("set b 0 0 1 noreply\r\nx\r\n", ""),
            ("incr n 1\r\n", "SERVER_ERROR out of memory\r\n"),
            ("ms b 1 q\r\nx\r\n", no_memory),
            ("mg b N0\r\n", "EN\r\n"),
            ("ma b N0\r\n", "SERVER_ERROR Out of memory allocating new item\r\n"),
            ("get n b\r\n", "VALUE n 0 1\r\n1\r\nEND\r\n"),
        ],
    );
}

#[test]
fn a_get_with_a_long_answer_is_interrupted_and_goes_on() {
    let mut model = Model::new();
    let value = "x".repeat(90);
    model.said(&format!("set a 0 0 90\r\n{value}\r\n"));
    let line = format!("get{}\r\n", " a b".repeat(20_000));
    let Parsed::Request(mut request, _) = Parser::new(Limits::default()).next(line.as_bytes())
    else {
        panic!("a get");
    };
    let (mut answer, mut steps) = (Vec::new(), 0);
    loop {
        let mut out = Vec::new();
        let executed = execute(&mut model, &request, &mut out);
        assert!(out.len() < 300 << 10);
        answer.extend(out);
        steps += 1;
        match executed {
            Executed::Done => break,
            Executed::Unfinished(rest) => request = rest,
            Executed::Other => panic!("a get"),
        }
        assert!(matches!(request, Request::Get { .. }));
    }
    let expected = format!("VALUE a 0 90\r\n{value}\r\n").repeat(20_000) + "END\r\n";
    assert_eq!(String::from_utf8(answer).unwrap(), expected);
    assert!(steps > 5);
}
