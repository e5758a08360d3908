//! Exported objects come back by import, byte by byte. Bad lines are reported.

use super::formats::LINE_BYTES_MAX;
use crate::exit::Exit;
use crate::fake::{FakeStore, run, run_bytes, run_with};
use proptest::prelude::*;
use std::collections::BTreeMap;
use thunderhead_client::{Error, Obstacle};
use thunderhead_wire::Status;

fn fake() -> FakeStore {
    let mut fake = FakeStore::default();
    run(&mut fake, "table create t").unwrap();
    run(&mut fake, "table create u").unwrap();
    fake
}

fn import(fake: &mut FakeStore, line: &str, input: &[u8]) -> Result<String, (Exit, String)> {
    run_with(fake, line, input).map_err(|failure| (failure.exit, failure.message))
}

#[test]
fn lines_become_objects_and_are_counted() {
    let mut fake = fake();
    let input = b"{\"key\":\"a\",\"value\":\"1\"}\n\n{\"key_base64\":\"/w==\",\"value\":\"\",\"version\":9}";
    let said = import(&mut fake, "import t -", input).unwrap();
    assert!(said.starts_with("imported 2 objects, 3 B, in "), "{said}");
    assert_eq!(run(&mut fake, "scan t").unwrap(), "a\t1\n\\xff\t\n");
    let csv = b"id,ignored,name\na,x,\"one, \"\"two\"\"\"\nb,y,\n";
    let line = "import u - --format csv --key-column id --value-column name --json";
    let said = import(&mut fake, line, csv).unwrap();
    assert!(said.contains("\"imported\":2") && said.contains("\"skipped\":0"), "{said}");
    assert_eq!(run(&mut fake, "scan u").unwrap(), "a\tone, \"two\"\nb\t\n");
}

#[test]
fn numbers_stay_numbers() {
    let mut fake = fake();
    for line in ["put t i 9007199254740993 --number", "put t f 0.1 --float", "put t b 12345678"] {
        run(&mut fake, line).unwrap();
    }
    let exported = run_bytes(&mut fake, "export t", b"").unwrap();
    let text = String::from_utf8(exported.clone()).unwrap();
    assert!(text.contains("\"number\":\"9007199254740993\""), "readers would round it: {text}");
    assert!(text.contains("\"float\":\"0.1\""), "{text}");
    run_with(&mut fake, "import u -", &exported).unwrap();
    assert_eq!(run(&mut fake, "scan u").unwrap(), run(&mut fake, "scan t").unwrap());
    assert_eq!(run(&mut fake, "incr u i").unwrap(), "9007199254740994\n");
    assert_eq!(run(&mut fake, "incr u f 0.25 --float").unwrap(), "0.35\n");
    assert_eq!(run(&mut fake, "incr u b").unwrap_err().kind, "not_a_number");
    run_with(&mut fake, "import u -", b"{\"key\":\"i\",\"number\":5}").unwrap();
    assert_eq!(run(&mut fake, "incr u i").unwrap(), "6\n");
    for bad in [
        "\"number\":0.5",
        "\"number\":\"x\"",
        "\"number\":1,\"value\":\"v\"",
        "\"number\":1,\"float\":1",
    ] {
        let line = format!("{{\"key\":\"k\",{bad}}}");
        let (exit, message) = import(&mut fake, "import u -", line.as_bytes()).unwrap_err();
        assert_eq!(exit, Exit::Usage, "{bad}: {message}");
    }
}

#[test]
fn a_bad_line_is_named_and_ends_the_import_unless_it_may_be_skipped() {
    let cases = [
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n\nnonsense\n{\"key\":\"b\",\"value\":\"2\"}\n",
            3,
        ),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"c\"}\n{\"key\":\"b\",\"value\":\"2\"}",
            2,
        ),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"\",\"value\":\"\"}\n{\"key\":\"b\",\"value\":\"2\"}",
            2,
        ),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"c\",\"value_base64\":\"?\"}\n{\"key\":\"b\",\"value\":\"2\"}",
            2,
        ),
        (
            "jsonl",
            "{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"c\",\"value\":5}\n{\"key\":\"b\",\"value\":\"2\"}",
            2,
        ),
        ("csv", "key,value\na,\"1\n\"\nc\nb,2\n", 4),
        ("csv", "key,value\na,1\n,1\nb,2\n", 3),
    ];
    for (format, input, number) in cases {
        let mut fake = fake();
        let line = format!("import t - --format {format}");
        let (exit, message) = import(&mut fake, &line, input.as_bytes()).unwrap_err();
        assert_eq!(exit, Exit::Usage);
        assert!(message.starts_with(&format!("line {number}: ")), "{message}");
        assert!(message.contains("1 object had been imported"), "{message}");
        assert_eq!(run(&mut fake, "scan t --keys").unwrap(), "a\n", "earlier lines are imported");
        let said = import(&mut fake, &format!("{line} --skip-bad"), input.as_bytes()).unwrap();
        assert!(said.contains("imported 2 objects") && said.contains("1 line skipped"), "{said}");
        assert!(said.contains(&format!("line {number} is skipped")), "{said}");
    }
}

#[test]
fn the_last_line_about_a_key_wins() {
    let mut fake = fake();
    fake.reverses = true;
    let lines: String =
        (0..100).map(|n| format!("{{\"key\":\"k\",\"value\":\"{n}\"}}\n")).collect();
    import(&mut fake, "import t -", lines.as_bytes()).unwrap();
    assert_eq!(run(&mut fake, "get t k").unwrap(), "99\n");
}

#[test]
fn many_lines_go_in_batches_of_bounded_size() {
    let mut fake = fake();
    let value = "v".repeat(10_000);
    let line = |n: u32| format!("{{\"key\":\"{n}\",\"value\":\"{value}\"}}\n");
    let lines: String = (0..300).map(line).collect();
    import(&mut fake, "import t -", lines.as_bytes()).unwrap();
    let lines: String =
        (0..2000).map(|n| format!("{{\"key\":\"{n}\",\"value\":\"\"}}\n")).collect();
    import(&mut fake, "import u -", lines.as_bytes()).unwrap();
    assert_eq!(fake.batches.iter().sum::<usize>(), 2300);
    assert!(fake.batches.iter().all(|batch| *batch <= 512), "{:?}", fake.batches);
    assert!(fake.batches[0] <= 106, "about a MiB: {:?}", fake.batches);
}

#[test]
fn a_line_without_end_does_not_take_all_memory() {
    let mut long = vec![b'x'; LINE_BYTES_MAX as usize + 10];
    long.extend_from_slice(b"\n{\"key\":\"a\",\"value\":\"1\"}\n");
    let mut fake = fake();
    let (_, message) = import(&mut fake, "import t -", &long).unwrap_err();
    assert!(message.starts_with("line 1: it is longer than"), "{message}");
    let said = import(&mut fake, "import t - --skip-bad", &long).unwrap();
    assert!(said.contains("imported 1 object,"), "{said}");
    let mut open = b"key,value\na,1\nb,\"".to_vec();
    open.extend(vec![b'x'; LINE_BYTES_MAX as usize + (1 << 20)]);
    let (_, message) = import(&mut fake, "import t - --format csv", &open).unwrap_err();
    assert!(message.contains("a record is too long"), "{message}");
}

#[test]
fn an_error_of_the_cluster_names_its_line() {
    let lines = b"{\"key\":\"a\",\"value\":\"1\"}\n{\"key\":\"bad\",\"value\":\"1\"}\n{\"key\":\"c\",\"value\":\"1\"}";
    let cases = [
        (Error::TimedOut(Obstacle::NoAnswer), Exit::Unreachable),
        (Error::Unknown(Obstacle::NoAnswer), Exit::Unknown),
        (Error::Refused(Status::ValueTooLong), Exit::Refused),
    ];
    for (error, expected) in cases {
        let mut fake = fake();
        fake.refuses = Some((b"bad".to_vec(), error));
        let (exit, message) = import(&mut fake, "import t -", lines).unwrap_err();
        assert_eq!(exit, expected);
        assert!(message.starts_with("line 2: "), "{message}");
        let skipped = import(&mut fake, "import t - --skip-bad", lines);
        assert_eq!(skipped.is_ok(), expected == Exit::Refused, "{skipped:?}");
    }
}

#[test]
fn a_missing_column_is_reported_with_the_present_ones() {
    let (exit, message) =
        import(&mut fake(), "import t - --format csv", b"id,value\n").unwrap_err();
    assert_eq!(exit, Exit::Usage);
    assert!(
        message.contains("\"key\", but id, value") && message.contains("--key-column"),
        "{message}"
    );
    assert!(import(&mut fake(), "import t - --format csv", b"").unwrap().contains("0 objects"));
}

#[test]
fn an_export_into_a_file_is_whole_or_absent() {
    let mut fake = fake();
    run(&mut fake, "put t a 1").unwrap();
    let path = std::env::temp_dir().join(format!("thunderhead-export-{}.csv", std::process::id()));
    let line = format!("export t {}", path.display());
    fake.fails_in_scan = true;
    assert_eq!(run(&mut fake, &line).unwrap_err().exit, Exit::Unreachable);
    assert!(!path.exists() && !path.with_extension("csv.partial").exists());
    fake.fails_in_scan = false;
    assert!(run(&mut fake, &line).unwrap().starts_with("exported 1 object, 2 B"));
    assert_eq!(std::fs::read(&path).unwrap(), b"key,value\na,1\n");
    let said = run(&mut fake, &format!("import u {}", path.display())).unwrap();
    assert!(said.starts_with("imported 1 object"), "{said}");
    std::fs::remove_file(path).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn exported_objects_come_back(
        objects in prop::collection::btree_map(
            prop::collection::vec(any::<u8>(), 1..20),
            prop_oneof![prop::collection::vec(any::<u8>(), 0..20), "[,\"\r\n a]{0,8}".prop_map(String::into_bytes)],
            0..20,
        ),
        format in prop::sample::select(vec!["jsonl", "csv"]),
    ) {
        let mut fake = fake();
        fake.fill("t", &objects);
        let exported = run_bytes(&mut fake, &format!("export t --format {format}"), b"").unwrap();
        run_bytes(&mut fake, &format!("import u - --format {format}"), &exported).unwrap();
        let back: BTreeMap<Vec<u8>, Vec<u8>> = fake.content("u");
        prop_assert_eq!(back, objects);
    }
}
