//! `thunderhead table …`.

use crate::exit::{Exit, Failure};
use crate::objects::time_to_live;
use crate::session::Session;
use crate::store::Store;
use crate::text;
use clap::{Subcommand, ValueEnum};
use serde_json::json;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::time::Duration;
use thunderhead_config::{bytes_text, duration_text, parse_bytes};
use thunderhead_wire::control::{Policy, TableInfo, TableOptions, TabletInfo};
use thunderhead_wire::{KeyHash, MasterId, TimeToLive};

/// The commands for tables.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make a table.
    Create {
        /// Its name.
        name: String,
        /// The number of shards over which it is spread.
        #[arg(long, default_value_t = 1, value_name = "SHARDS", value_parser = clap::value_parser!(u32).range(1..=65_536))]
        span: u32,
        /// Objects expire after this time, such as 10s or 5m, if their write does not say it; or
        /// never.
        #[arg(long, value_name = "TIME", default_value = "never", value_parser = time_to_live)]
        ttl: TimeToLive,
        /// The behaviour of the table if memory is full: durable refuses writes; cache evicts
        /// objects that were not used lately.
        #[arg(long, value_enum, default_value_t = Kept::Durable)]
        policy: Kept,
        /// The most bytes of its objects, with their keys and headers, such as 1GiB. A durable
        /// table refuses writes that would exceed it; a cache evicts its own objects.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        max: Option<u64>,
        /// The bytes of a cache of which none are evicted for other tables, such as 100MiB.
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
        reserved: Option<u64>,
    },
    /// Drop a table with all its objects.
    Drop {
        /// Its name.
        name: String,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
    /// List the tables.
    List,
    /// Show a table's tablets and their masters.
    Show {
        /// Its name.
        name: String,
    },
    /// Divide tablets, so that their parts can be moved.
    Split {
        /// The table's name.
        name: String,
        /// The first hash of the second part.
        #[arg(long, value_name = "HASH", value_parser = hash, required_unless_present = "into")]
        at: Option<KeyHash>,
        /// The number of equal parts of the whole table. Existing boundaries stay.
        #[arg(long = "in", value_name = "N", conflicts_with = "at", value_parser = clap::value_parser!(u64).range(2..=65_536))]
        into: Option<u64>,
    },
    /// Move a tablet to another shard. Clients can use it all the time.
    Migrate {
        /// The table's name.
        name: String,
        /// The tablet's first hash.
        #[arg(long, value_name = "HASH", value_parser = hash)]
        first: KeyHash,
        /// The number of the new master: `thunderhead status` prints a line `master N` for each.
        #[arg(long, value_name = "MASTER")]
        to: MasterNumber,
    },
}

/// The behaviour of a table if memory is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kept {
    Durable,
    Cache,
}

impl Kept {
    fn policy(self) -> Policy {
        match self {
            Kept::Durable => Policy::Durable,
            Kept::Cache => Policy::Cache,
        }
    }
}

/// Formats the options of a table, each after a comma; nothing for the defaults.
fn options_text(options: TableOptions) -> String {
    let mut text = String::new();
    if options.ttl_ms > 0 {
        text += &format!(", ttl {}", duration_text(Duration::from_millis(options.ttl_ms)));
    }
    if !options.policy.is_durable() {
        text += &format!(", policy {}", options.policy.name());
    }
    for (name, bytes) in [("max", options.max_bytes), ("reserved", options.reserved_bytes)] {
        if bytes > 0 {
            text += &format!(", {name} {}", bytes_text(bytes));
        }
    }
    text
}

/// The number of a master, as a person writes it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct MasterNumber(MasterId);

impl FromStr for MasterNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<MasterNumber, String> {
        let digits = text.strip_prefix("master ").unwrap_or(text);
        let number = digits.parse().map(|number| MasterNumber(MasterId(number)));
        number.map_err(|_| {
            "give the number of a master, not an address: `thunderhead status` prints a line `master N` for each"
                .to_owned()
        })
    }
}

/// Parses a hash, in hexadecimal with 0x before it, or in decimal.
fn hash(text: &str) -> Result<KeyHash, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map(KeyHash).map_err(|_| "give a number of 64 bits, such as 0x8000000000000000".into())
}

/// Runs the command.
pub(crate) fn run(
    command: Command,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    match command {
        Command::Create { name, span, ttl, policy, max, reserved } => {
            if max == Some(0) {
                return Err(Failure::usage("a table has at least one byte: leave --max out"));
            }
            let options = TableOptions {
                policy: policy.policy(),
                max_bytes: max.unwrap_or(0),
                reserved_bytes: reserved.unwrap_or(0),
                ..TableOptions::DEFAULT
            };
            let options = options.with_time_to_live(ttl)?;
            options.check()?;
            let table = store.create_table(&name, span, options)?;
            if session.json {
                return session.put_json(&table);
            }
            let count = table.tablets.len() as u64;
            let tablets = text::plural(count, "tablet");
            let options = options_text(table.options);
            writeln!(session.out, "created table {name:?} with {tablets}{options}")?;
            if count < u64::from(span) {
                let advice = "`table split` and `table migrate` divide it among more";
                writeln!(session.out, "fewer than {span} shards can take a tablet now; {advice}")?;
            }
        }
        Command::Drop { name, yes } => drop(&name, yes, store, session)?,
        Command::List => list(store, session)?,
        Command::Show { name } => {
            let table = find(store, &name)?;
            show(&table, session)?;
        }
        Command::Split { name, at: Some(at), .. } => {
            let table = store.split(&name, at)?;
            show(&table, session)?;
        }
        Command::Split { name, at: None, into } => {
            let table = split_in(store, &name, into.unwrap_or(2))?;
            show(&table, session)?;
        }
        Command::Migrate { name, first, to } => {
            let table = store.migrate(&name, first, to.0)?;
            show(&table, session)?;
        }
    }
    Ok(())
}

fn drop(
    name: &str,
    yes: bool,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    if !yes {
        let Some(ask) = &mut session.ask else {
            return Err(Failure::usage(format!(
                "table {name:?} would be lost with all its objects, and there is no terminal for a question: add --yes"
            )));
        };
        // A missing table is reported before the question.
        store.table(name)?;
        if !ask(&format!("Drop table {name:?} with all its objects?")) {
            return Err(Failure::new(Exit::Negative, "declined", "nothing was dropped"));
        }
    }
    store.drop_table(name)?;
    match session.json {
        true => session.put_json(&json!({"dropped": name}))?,
        false => writeln!(session.out, "dropped table {name:?}")?,
    }
    Ok(())
}

fn find(store: &mut dyn Store, name: &str) -> Result<TableInfo, Failure> {
    let map = store.tables()?;
    map.tables.into_iter().find(|table| table.name == name).ok_or_else(|| Failure::no_table(name))
}

fn list(store: &mut dyn Store, session: &mut Session<'_>) -> Result<(), Failure> {
    let map = store.tables()?;
    if session.json {
        return session.put_json(&map.tables);
    }
    if map.tables.is_empty() {
        writeln!(session.out, "no tables; `thunderhead table create NAME` makes a table")?;
        return Ok(());
    }
    writeln!(session.out, "{:>6}  {:>7}  name", "id", "tablets")?;
    for TableInfo { id, name, tablets, options, .. } in &map.tables {
        let (name, options) = (text::escape(name.as_bytes()), options_text(*options));
        writeln!(session.out, "{:>6}  {:>7}  {name}{options}", id.0, tablets.len())?;
    }
    Ok(())
}

fn show(table: &TableInfo, session: &mut Session<'_>) -> Result<(), Failure> {
    if session.json {
        return session.put_json(table);
    }
    let TableInfo { id, name, tablets, options, .. } = table;
    let (name, options) = (text::escape(name.as_bytes()), options_text(*options));
    writeln!(session.out, "table {name}, id {}{options}", id.0)?;
    writeln!(
        session.out,
        "{:18}  {:18}  {:>6}  {:>6}  address",
        "first", "last", "share", "master"
    )?;
    for TabletInfo { first, last, master, address } in tablets {
        let share = 100.0 * (last.0.saturating_sub(first.0) as f64 + 1.0) / 2_f64.powi(64);
        let address = address.map_or("being recovered".to_owned(), |it| it.to_string());
        writeln!(
            session.out,
            "{:#018x}  {:#018x}  {share:>5.1}%  {:>6}  {address}",
            first.0, last.0, master.0
        )?;
    }
    Ok(())
}

/// Splits at each boundary of so many equal parts that does not exist yet.
fn split_in(store: &mut dyn Store, name: &str, parts: u64) -> Result<TableInfo, Failure> {
    let mut table = find(store, name)?;
    let there: BTreeSet<u64> = table.tablets.iter().map(|tablet| tablet.first.0).collect();
    for part in 1..parts {
        // Below 2^64, because `part` is less than `parts`.
        let at = ((u128::from(part) << 64) / u128::from(parts)) as u64;
        if !there.contains(&at) {
            table = store.split(name, KeyHash(at))?;
        }
    }
    Ok(table)
}

#[cfg(test)]
mod tests {
    use crate::exit::Exit;
    use crate::fake::{FakeStore, run};

    #[test]
    fn tables_are_made_listed_divided_moved_and_dropped() {
        let mut fake = FakeStore::default();
        assert!(run(&mut fake, "table list").unwrap().contains("no tables"));
        let made = run(&mut fake, "table create t --span 2").unwrap();
        assert_eq!(made, "created table \"t\" with 2 tablets\n");
        let small = run(&mut fake, "table create small --span 100").unwrap();
        assert!(small.starts_with("created table \"small\" with 8 tablets\nfewer than 100 shards"));
        run(&mut fake, "table drop small --yes").unwrap();
        let again = run(&mut fake, "table create t").unwrap_err();
        assert_eq!((again.exit, again.kind), (Exit::Negative, "table_exists"));
        let parts = run(&mut fake, "table split t --in 4").unwrap();
        for first in ["0x0000000000000000", "0x4000000000000000", "0xc000000000000000"] {
            assert!(parts.contains(&format!("\n{first}")), "{parts}");
        }
        assert_eq!(parts.matches("25.0%").count(), 4, "{parts}");
        assert_eq!(
            run(&mut fake, "table split t --in 4").unwrap(),
            parts,
            "the boundaries exist already"
        );
        let parts = run(&mut fake, "table split t --at 16 --json").unwrap();
        assert!(parts.contains(r#""first":16,"#), "{parts}");
        let moved = run(&mut fake, "table migrate t --first 0x10 --to 9").unwrap();
        assert!(moved.contains("     9  "), "{moved}");
        assert!(run(&mut fake, "table list").unwrap().contains("5  t\n"));
        let failure = run(&mut fake, "table drop t").unwrap_err();
        assert_eq!(failure.exit, Exit::Usage, "there is no terminal for a question");
        assert_eq!(run(&mut fake, "table drop t --yes").unwrap(), "dropped table \"t\"\n");
        for line in ["table drop t --yes", "table show t", "table split t --in 2", "get t k"] {
            let failure = run(&mut fake, line).unwrap_err();
            assert_eq!((failure.exit, failure.kind), (Exit::Negative, "no_such_table"), "{line}");
        }
    }

    #[test]
    fn a_table_shows_the_options_with_which_it_was_made() {
        let mut fake = FakeStore::default();
        let made = run(&mut fake, "table create t --ttl 90m --policy cache").unwrap();
        assert_eq!(made, "created table \"t\" with 1 tablet, ttl 90m, policy cache\n");
        assert!(run(&mut fake, "table list").unwrap().ends_with("1  t, ttl 90m, policy cache\n"));
        let shown = run(&mut fake, "table show t").unwrap();
        assert!(shown.starts_with("table t, id 1, ttl 90m, policy cache\n"), "{shown}");
        let shown = run(&mut fake, "table show t --json").unwrap();
        assert!(shown.contains(r#""options":{"ttl_ms":5400000,"policy":"cache"}"#), "{shown}");
        let plain = run(&mut fake, "table create u --ttl never --policy durable").unwrap();
        assert_eq!(plain, "created table \"u\" with 1 tablet\n");
        let limited = "table create v --policy cache --max 1GiB --reserved 100MiB";
        let made = run(&mut fake, limited).unwrap();
        let text = ", policy cache, max 1GiB, reserved 100MiB\n";
        assert_eq!(made, format!("created table \"v\" with 1 tablet{text}"));
        assert!(run(&mut fake, "table list").unwrap().contains(text));
        for wrong in ["--reserved 1MiB", "--policy cache --max 1MiB --reserved 2MiB"] {
            let failure = run(&mut fake, &format!("table create w {wrong}")).unwrap_err();
            assert_eq!((failure.exit, failure.kind), (Exit::Refused, "bad_options"), "{wrong}");
        }
        for wrong in ["--ttl 0s", "--ttl 5", "--policy lru", "--max 0", "--max much"] {
            let failure = run(&mut fake, &format!("table create w {wrong}")).unwrap_err();
            assert_eq!(failure.exit, Exit::Usage, "{wrong}");
        }
    }

    #[test]
    fn a_person_may_decline() {
        let mut fake = FakeStore::default();
        run(&mut fake, "table create t").unwrap();
        fake.agrees = Some(false);
        assert_eq!(run(&mut fake, "table drop t").unwrap_err().kind, "declined");
        assert_eq!(run(&mut fake, "table drop u").unwrap_err().kind, "no_such_table");
        fake.agrees = Some(true);
        run(&mut fake, "table drop t").unwrap();
    }
}
