//! Tests of the effective configuration and of the problems that mistakes cause.

use proptest::prelude::*;
use std::time::Duration;
use thunderhead_config::{
    Durability, Effective, File, KEYS, Kind, LogLevel, Metastore, Origin, Problems, Sources,
};

fn file(text: &str) -> Sources {
    let file = Some(File { name: "t.toml".into(), text: text.into() });
    Sources { file, ..Sources::default() }
}

fn environment(variable: &str, value: &str) -> Sources {
    let environment = vec![(variable.to_owned(), value.to_owned())];
    Sources { environment, ..Sources::default() }
}

fn problems(sources: &Sources) -> Vec<String> {
    let Problems(problems) = sources.resolve().unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

#[test]
fn flags_come_before_the_environment_before_the_file_before_defaults() {
    let mut sources = file("[server]\nmemory = \"2GiB\"\nshards = 2\ncleaners = 3\n");
    sources.environment = vec![
        ("THUNDERHEAD_SERVER_MEMORY".into(), "3GiB".into()),
        ("THUNDERHEAD_SERVER_SHARDS".into(), "4".into()),
        ("THUNDERHEAD_SERVER_CLEANERS".into(), String::new()),
        ("PATH".into(), "/bin".into()),
        ("THUNDERHEAD_SERVICE_HOST".into(), "10.0.0.1".into()),
    ];
    sources.flags = vec![("--memory".into(), "server.memory".into(), "4GiB".into())];
    let effective = sources.resolve().unwrap();
    assert!(effective.warnings.is_empty(), "{:?}", effective.warnings);
    let server = effective.config().server;
    assert_eq!((server.memory_bytes, server.shards, server.cleaners), (4 << 30, 4, 3));
    let origin = |name: &str| effective.get(name).unwrap().origin.clone();
    assert_eq!(origin("server.memory"), Origin::Flag("--memory".into()));
    assert_eq!(origin("server.shards"), Origin::Environment("THUNDERHEAD_SERVER_SHARDS".into()));
    assert_eq!(origin("server.cleaners"), Origin::File { name: "t.toml".into(), line: 4 });
    assert_eq!(origin("server.polling"), Origin::Default);
}

#[test]
fn a_mistake_is_reported_with_its_line_and_a_remedy() {
    let cases = [
        (
            "[server]\nmemroy = \"1GiB\"",
            "t.toml:2: server.memroy: there is no such key; did you mean server.memory?",
        ),
        (
            "\n[sever]\nshards = 1",
            "t.toml:3: sever.shards: there is no such key; did you mean server.shards?",
        ),
        ("[serve]", "t.toml:1: serve: there is no such key; did you mean server."),
        (
            "[server.log]\nlevel = 1",
            "t.toml:2: server.log.level: there is no such key; did you mean log.level?",
        ),
        ("memory = 1", "t.toml:1: memory: there is no such key; did you mean server.memory?"),
        ("[server]\nmemory = 8", "t.toml:2: server.memory = \"8\": add a unit, as in 8GiB"),
        ("[server]\nmemory = 1.5", "t.toml:2: server.memory = \"1.5\": it must be: bytes"),
        ("[server]\nshards = 0", "t.toml:2: server.shards = \"0\": it must be from 1 to 128"),
        ("[server]\nshards = -1", "it must be a whole number from 1 to 128"),
        ("[server]\npolling = \"sometimes\"", "it must be one of: always, adaptive, never"),
        ("[cluster]\ndurability = \"interval:1h\"", "it must be from 1ms to 1m"),
        ("[cluster]\ndurability = \"soon\"", "replicated, interval:TIME, synced"),
        ("[coordinator]\nmetastore = \"etcd:localhost\"", "is not a URL like http://HOST:2379"),
        ("coordinators = [1]", "it must be: list of HOST:PORT"),
        ("coordinators = []", "give at least one address"),
        ("[server]\nshm = \"maybe\"", "it must be true or false"),
        ("[server]\nlisten = \"localhost:1\"", "it must be an IP address and a port"),
        ("[server]\nlisten = \"0.0.0.0:1\"", "set server.advertise"),
        ("[server]\nredis = \"10.0.0.1:6379\"", "set server.redis_password"),
        ("[dev]\nredis = \"0.0.0.0:6379\"", "an address of this machine"),
        ("[server]\nlisten = \"127.0.0.1:65530\"\nshards = 9", "no ports are left for 9 shards"),
        ("[dev]\nmemory = \"16MiB\"", "need at least 64MiB"),
        ("[dev]\nreplicas = 2", "1 servers can keep at most 1 replicas"),
        ("[server\n", "t.toml:1: "),
        ("a = 1\na = 2", "t.toml:2: duplicate key"),
    ];
    for (text, expected) in cases {
        let said = problems(&file(text)).join("\n");
        assert!(said.contains(expected), "{text:?} gives {said:?}, not {expected:?}");
    }
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let mut sources = file("[server]\nmemory = 8\nshads = 1\n");
    sources.environment = vec![("THUNDERHEAD_CLIENT_DEADLINE".into(), "soon".into())];
    sources.flags = vec![("--set".into(), "server.rak".into(), "r1".into())];
    let said = problems(&sources);
    assert_eq!(said.len(), 4, "{said:?}");
    assert!(said[2].starts_with("THUNDERHEAD_CLIENT_DEADLINE: client.deadline"), "{said:?}");
    assert_eq!(said[3], "--set: server.rak: there is no such key; did you mean server.rack?");
}

#[test]
fn a_misspelled_variable_causes_a_warning() {
    let sources = environment("THUNDERHEAD_SERVER_MEMROY", "1GiB");
    let warnings = sources.resolve().unwrap().warnings;
    assert!(warnings[0].to_string().contains("THUNDERHEAD_SERVER_MEMORY"), "{warnings:?}");
}

#[test]
fn words_become_types() {
    let text = r#"
        coordinators = ["a:1", "[::1]:2"]
        [cluster]
        durability = "interval:100ms"
        [coordinator]
        metastore = "zookeeper:a:2181,b:2181"
        [dev]
        servers = 3
        [server]
        rack = 'r "1"'
    "#;
    let config = file(text).resolve().unwrap().config();
    let durability = Durability::Interval(Duration::from_millis(100));
    assert_eq!(config.coordinator.cluster.durability, durability);
    assert!(matches!(&config.coordinator.metastore, Metastore::ZooKeeper(all) if all.len() == 2));
    assert_eq!(config.client.coordinators.len(), 2);
    assert_eq!((config.dev.cluster.replicas, config.dev.cluster.self_backup), (2, false));
    assert_eq!(config.server.rack.as_deref(), Some("r \"1\""));
    assert_eq!(config.server.disk_bytes(3), 9 << 30);
    let dev = Sources::default().resolve().unwrap().config().dev;
    assert_eq!((dev.cluster.replicas, dev.cluster.self_backup), (1, true));
}

#[test]
fn dev_logs_warnings_and_servers_log_info_unless_the_level_is_set() {
    for (text, of_dev, of_servers) in [
        ("", LogLevel::Warn, LogLevel::Info),
        ("[log]\nlevel = \"info\"", LogLevel::Info, LogLevel::Info),
        ("[log]\nlevel = \"error\"", LogLevel::Error, LogLevel::Error),
    ] {
        let config = file(text).resolve().unwrap().config();
        assert_eq!((config.dev.log.level, config.server.log.level), (of_dev, of_servers));
        assert_eq!(config.coordinator.log.level, of_servers);
    }
}

/// Returns a strategy for allowed text of a kind.
fn allowed(kind: Kind) -> BoxedStrategy<String> {
    let addresses = prop::collection::vec("[a-z]{1,8}:[1-9][0-9]{0,3}", 1..4);
    match kind {
        Kind::Bytes(min, max) => (min..=max).prop_map(|it| format!("{it}B")).boxed(),
        Kind::Time(min, max) => (min..=max).prop_map(|it| format!("{it}ms")).boxed(),
        Kind::Count(min, max) => (min..=max).prop_map(|it| it.to_string()).boxed(),
        Kind::Flag => any::<bool>().prop_map(|it| it.to_string()).boxed(),
        Kind::Listen => "127.0.0.1:[1-9][0-9]{0,3}".boxed(),
        Kind::Host => "[a-z][a-z0-9.-]{0,20}".boxed(),
        Kind::Addresses => addresses.prop_map(|all| all.join(",")).boxed(),
        Kind::Path | Kind::Text => "[^\\p{C}]{1,30}".boxed(),
        Kind::Choice(words) => prop::sample::select(words).prop_map(str::to_owned).boxed(),
        Kind::Durability => prop_oneof![
            Just("replicated".to_owned()),
            Just("synced".to_owned()),
            (1_u64..60_000).prop_map(|it| format!("interval:{it}ms"))
        ]
        .boxed(),
        Kind::Metastore => prop_oneof![
            "embedded:[^\\p{C}]{1,20}[^\\p{C}\\s]",
            Just("etcd:http://a:2379,http://b:2379".to_owned()),
            addresses.prop_map(|all| format!("zookeeper:{}", all.join(",")))
        ]
        .boxed(),
    }
}

/// Returns a strategy for values of some of the keys.
fn some_flags() -> impl Strategy<Value = Vec<(String, String, String)>> {
    let each: Vec<_> = KEYS
        .iter()
        .map(|key| {
            let name = key.name.to_owned();
            prop::option::of(allowed(key.kind)).prop_map(move |text| (name.clone(), text))
        })
        .collect();
    each.prop_map(|all| {
        let set = all.into_iter().filter_map(|(name, text)| Some((name, text?)));
        set.map(|(name, text)| ("--set".to_owned(), name, text)).collect()
    })
}

fn values(effective: &Effective) -> Vec<(String, String)> {
    let all = effective.iter().map(|(key, setting)| {
        (key.name.to_owned(), setting.value.as_ref().map_or("-".into(), ToString::to_string))
    });
    all.collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn a_configuration_printed_as_a_file_reads_back_equal(flags in some_flags()) {
        let sources = Sources { flags, ..Sources::default() };
        // Some combinations contradict each other.
        if let Ok(effective) = sources.resolve() {
            let text = effective.to_toml();
            let again = file(&text).resolve().map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
            prop_assert_eq!(values(&again), values(&effective));
            prop_assert_eq!(again.config(), effective.config());
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "\\PC*", variable in "\\PC*") {
        let _ = file(&text).resolve();
        for key in KEYS {
            let _ = environment(&key.variable(), &variable).resolve();
        }
    }
}
