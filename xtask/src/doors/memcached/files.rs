//! The files of memcached's own tests, and the results that each must have.

use super::tap::Results;
use anyhow::{Result, bail, ensure};
use std::collections::BTreeSet;

/// A file of tests.
#[derive(Debug)]
pub(super) struct File {
    pub(super) name: &'static str,
    pub(super) expected: Expected,
}

/// The results that a file must have.
#[derive(Clone, Copy, Debug)]
pub(super) enum Expected {
    /// This many results, all good.
    Good(u32),
    /// At least this many results, all good: their number depends on the memory for objects.
    GoodFrom(u32),
    /// This many results, all good but those with these numbers, which fail or are not reached.
    GoodBut(u32, &'static [u32], &'static str),
    /// The file is not run.
    Skipped(&'static str),
}

use Expected::{Good, GoodBut, GoodFrom, Skipped};

const fn file(name: &'static str, expected: Expected) -> File {
    File { name, expected }
}

const BINARY: &str = "there is no binary protocol";
const CRAWLER: &str = "there are no LRU lists and no crawler";
const EXTSTORE: &str = "there is no extstore";
const PROXY: &str = "there is no proxy";
const SLABS: &str = "there are no slabs";
const TLS: &str = "there is no TLS";
const UDP: &str = "there is no UDP";
const WATCH: &str = "there is no watch";

/// All files of memcached 1.6.18.
pub(super) const FILES: [File; 82] = [
    file(
        "00-startup",
        GoodBut(
            21,
            &[5, 6, 7, 11, 14, 18, 20, 21],
            "-C, -b and -B binary are refused, -t is ignored",
        ),
    ),
    file("64bit", Skipped(SLABS)),
    file("ascii-auth", Skipped("there are no passwords (-Y)")),
    file("binary-extstore", Skipped(EXTSTORE)),
    file("binary-get", Good(8)),
    file("binary-sasl", Skipped(BINARY)),
    file("binary", Skipped(BINARY)),
    file("bogus-commands", Good(1)),
    file("cas", Good(43)),
    file("chunked-extstore", Skipped(EXTSTORE)),
    file("chunked-items", Good(16_629)),
    file("conn-limits", Skipped("there is no limit of all read buffers together")),
    file("daemonize", Skipped("it does not go to the background (-d)")),
    file("dash-M", GoodFrom(2_000)),
    file("dyn-maxbytes", Skipped("cache_memlimit is refused")),
    file("error-extstore", Skipped(EXTSTORE)),
    file("evictions", Good(92)),
    file("expirations", Good(41)),
    file("extstore-buckets", Skipped(EXTSTORE)),
    file("extstore-jbod", Skipped(EXTSTORE)),
    file("extstore", Skipped(EXTSTORE)),
    file("flags", Good(8)),
    file("flush-all", GoodBut(27, &[27], "-C is refused: each object has a version")),
    file("getandtouch", Good(15)),
    file("getset", GoodBut(37_991, &[536, 539], "a refused set leaves the old object")),
    file("idle-timeout", Skipped("idle connections stay open")),
    file("incrdecr", Good(23)),
    file("issue_104", Good(6)),
    file("issue_108", Good(4)),
    file("issue_14", Good(21)),
    file("issue_140", Skipped("the file skips itself")),
    file("issue_152", Good(2)),
    file("issue_163", GoodBut(7, &[4], "no count of reclaimed objects")),
    file("issue_183", GoodBut(5, &[2, 5], "no count of reclaimed objects")),
    file("issue_192", Good(2)),
    file("issue_22", GoodBut(84, &[43, 84], "the memory is larger, so that it is not full")),
    file("issue_260", Skipped("the file skips itself")),
    file("issue_29", GoodBut(4, &[2, 4], SLABS)),
    file("issue_3", Good(8)),
    file("issue_41", Good(691)),
    file("issue_42", GoodBut(11, &[11], SLABS)),
    file("issue_50", Skipped(BINARY)),
    file("issue_61", GoodBut(7, &[7], "-R is ignored")),
    file("issue_67", Skipped("it writes no file with its ports")),
    file("issue_68", Good(996)),
    file("issue_70", Good(4)),
    file("item_size_max", GoodBut(7, &[5, 6, 7], "values have at most 1 MiB, so the file ends")),
    file("line-lengths", Skipped("it looks at memcached's own pages")),
    file("lru-crawler", Skipped(CRAWLER)),
    file("lru-maintainer", Skipped(CRAWLER)),
    file("lru", Skipped(CRAWLER)),
    file("malicious-commands", Good(3)),
    file("maxconns", Skipped("no count of refused connections")),
    file("metaget", GoodBut(148, &[111], "the flag l is always 0")),
    file("misbehave", Skipped("the file skips itself")),
    file("multiversioning", Good(13)),
    file("noreply", Good(9)),
    file("proxy", Skipped(PROXY)),
    file("quit", Good(1)),
    file("refhang", Skipped("the file skips itself")),
    file("restart", Skipped("objects are kept with --data, not with -e")),
    file("shutdown", Skipped("there is no command shutdown (-A)")),
    file("slabhang", Skipped("the file skips itself")),
    file("slabs-reassign-chunked", Skipped(SLABS)),
    file("slabs-reassign2", Skipped(SLABS)),
    file("slabs_reassign", Skipped(SLABS)),
    file("ssl_cert_refresh", Skipped(TLS)),
    file("ssl_ports", Skipped(TLS)),
    file("ssl_proto_version", Skipped(TLS)),
    file("ssl_session_resumption", Skipped(TLS)),
    file("ssl_settings", Skipped(TLS)),
    file("ssl_verify_modes", Skipped(TLS)),
    file("stats-conns", Skipped("stats conns has fewer fields")),
    file("stats-detail", Skipped("stats detail counts nothing")),
    file("stats", Skipped("stats has other fields, and there is no stats cachedump")),
    file("strtol-testing", GoodBut(2, &[2], SLABS)),
    file("touch", Good(4)),
    file("udp", Skipped(UDP)),
    file("unixsocket", Good(3)),
    file("watcher", Skipped(WATCH)),
    file("watcher_connid", Skipped(WATCH)),
    file("whitespace", Skipped("it looks at memcached's own sources")),
];

/// Checks that a file of the suite has a line, and that each line has a file.
pub(super) fn check_names(found: &[String]) -> Result<()> {
    let known: BTreeSet<&str> = FILES.iter().map(|file| file.name).collect();
    let found: BTreeSet<&str> = found.iter().map(String::as_str).collect();
    let list = |names: Vec<&&str>| names.iter().map(|it| **it).collect::<Vec<_>>().join(", ");
    let new = list(found.difference(&known).collect());
    ensure!(new.is_empty(), "files without a line in doors/memcached/files.rs: {new}");
    let gone = list(known.difference(&found).collect());
    ensure!(gone.is_empty(), "lines of doors/memcached/files.rs without a file: {gone}");
    Ok(())
}

impl Expected {
    /// Returns the reason why the file, or a part of it, differs from memcached.
    pub(super) fn reason(self) -> Option<&'static str> {
        match self {
            Good(_) | GoodFrom(_) => None,
            GoodBut(_, _, reason) | Skipped(reason) => Some(reason),
        }
    }

    /// Checks the results of a file. Results that are expected to fail must do so, so that a line
    /// does not outlive its reason.
    pub(super) fn check(self, results: &Results) -> Result<()> {
        let (count, bad): (u32, &[u32]) = match self {
            Good(count) => (count, &[]),
            GoodFrom(least) => {
                let count = results.planned.unwrap_or(0);
                ensure!(count >= least, "{count} results are planned, expected {least} or more");
                (count, &[])
            }
            GoodBut(count, bad, _) => (count, bad),
            Skipped(reason) => bail!("the file is not run: {reason}"),
        };
        match results.planned {
            Some(planned) if planned == count => {}
            Some(planned) => bail!("{planned} results are planned, expected {count}"),
            None => bail!("no plan: the file ended early"),
        }
        let expected = |number: &u32| !bad.contains(number);
        let lacking: Vec<u32> =
            (1..=count).filter(expected).filter(|it| !results.good.contains(it)).collect();
        if let Some(first) = lacking.first() {
            let named = results.bad.get(first).map_or("it was not reached", String::as_str);
            bail!(
                "{} of {count} results are not good, the first is {first}: {named}",
                lacking.len()
            );
        }
        let good: Vec<u32> = bad.iter().copied().filter(|it| results.good.contains(it)).collect();
        ensure!(good.is_empty(), "results {good:?} are good now: correct the line in files.rs");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(expected: Expected, text: &str) -> std::result::Result<(), String> {
        expected.check(&Results::of(text)).map_err(|error| error.to_string())
    }

    #[test]
    fn each_file_must_have_its_results() {
        let (all, one_bad) = ("1..2\nok 1\nok 2 - b\n", "1..2\nok 1\nnot ok 2 - the reason\n");
        assert_eq!(outcome(Good(2), all), Ok(()));
        assert_eq!(outcome(GoodFrom(2), all), Ok(()));
        assert!(outcome(GoodFrom(3), all).unwrap_err().contains("3 or more"));
        assert!(outcome(Good(3), all).unwrap_err().contains("expected 3"));
        assert!(outcome(Good(2), one_bad).unwrap_err().contains("the first is 2: the reason"));
        assert!(outcome(Good(2), "1..2\nok 1\n").unwrap_err().contains("not reached"));
        assert!(outcome(Good(2), "ok 1\nok 2\n").unwrap_err().contains("no plan"));
        assert_eq!(outcome(GoodBut(2, &[2], ""), one_bad), Ok(()));
        assert_eq!(outcome(GoodBut(2, &[2], ""), "1..2\nok 1\n"), Ok(()));
        assert!(outcome(GoodBut(2, &[2], ""), all).unwrap_err().contains("good now"));
        assert!(outcome(Skipped("why"), all).is_err());
    }

    #[test]
    fn a_file_without_a_line_is_refused() {
        let mut names: Vec<String> = FILES.iter().map(|file| file.name.to_owned()).collect();
        assert!(check_names(&names).is_ok());
        names.push("brand-new".to_owned());
        assert!(check_names(&names).unwrap_err().to_string().contains("brand-new"));
        names.truncate(3);
        assert!(check_names(&names).unwrap_err().to_string().contains("without a file"));
    }

    #[test]
    fn files_are_listed_once_and_in_order() {
        assert!(FILES.iter().zip(&FILES[1..]).all(|(one, next)| one.name != next.name));
    }
}
