//! `thunderhead server forget`.

use crate::exit::{Exit, Failure};
use crate::session::Session;
use crate::store::Store;
use clap::Subcommand;
use serde_json::json;
use thunderhead_wire::ServerId;
use thunderhead_wire::control::{Map, RecoveryInfo, TableInfo};

/// The commands about a server.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make the cluster forget servers that are down for good.
    ///
    /// The cluster no longer relies on the replicas on the server's disk, and no server owns that
    /// storage any more. The command waits while a recovery begins. It is refused if a recovery
    /// lacks replicas that this server may have. The message then names the log and its tables. Of
    /// several servers, each is forgotten or refused by itself.
    Forget {
        /// The servers' numbers; `thunderhead status` shows them.
        #[arg(required = true, num_args = 1.., value_name = "SERVER")]
        servers: Vec<u64>,
        /// Do not ask for confirmation.
        #[arg(long, short)]
        yes: bool,
    },
}

/// Runs the command.
pub(crate) fn run(
    command: Command,
    store: &mut dyn Store,
    session: &mut Session<'_>,
) -> Result<(), Failure> {
    let Command::Forget { servers, yes } = command;
    let servers: Vec<ServerId> = servers.into_iter().map(ServerId).collect();
    if !yes {
        let names: Vec<String> = servers.iter().map(ToString::to_string).collect();
        let disks = if servers.len() == 1 { "its disk" } else { "their disks" };
        let question = format!("Forget {}, with the replicas on {disks}?", names.join(", "));
        match session.ask.as_mut().map(|ask| ask(&question)) {
            Some(true) => {}
            Some(false) => {
                return Err(Failure::new(Exit::Negative, "declined", "nothing was forgotten"));
            }
            None => return Err(Failure::usage("add --yes: there is no terminal for a question")),
        }
    }
    if let [server] = servers[..] {
        forget(server, store)?;
        if session.json {
            return session.put_json(&json!({ "forgotten": server.0 }));
        }
        return Ok(writeln!(session.out, "{server} is forgotten")?);
    }
    let (mut forgotten, mut refused, mut first) = (Vec::new(), Vec::new(), None);
    for server in servers {
        match forget(server, store) {
            Ok(()) if session.json => forgotten.push(server.0),
            Ok(()) => writeln!(session.out, "{server} is forgotten")?,
            // The next servers could not be forgotten either.
            Err(failure) if failure.exit != Exit::Negative => {
                return Err(failure.within(server));
            }
            Err(failure) => {
                if session.json {
                    let Failure { kind, message, .. } = &failure;
                    refused.push(json!({ "server": server.0, "kind": kind, "message": message }));
                } else {
                    writeln!(session.out, "{server} is not forgotten: {failure}")?;
                }
                first.get_or_insert(failure.within(server));
            }
        }
    }
    if session.json {
        session.put_json(&json!({ "forgotten": forgotten, "refused": refused }))?;
    }
    first.map_or(Ok(()), Err)
}

/// Makes the cluster forget one server.
fn forget(server: ServerId, store: &mut dyn Store) -> Result<(), Failure> {
    store.forget_server(server).map_err(|mut failure| {
        if failure.kind == "may_be_needed"
            && let (Ok(status), Ok(map)) = (store.status(), store.tables())
        {
            let needed = needed_for(server, &status.recoveries, &map);
            failure.message = needed.unwrap_or(failure.message);
        }
        failure
    })
}

/// Names the logs that lack replicas which the server may have, and the tables of these logs.
fn needed_for(server: ServerId, recoveries: &[RecoveryInfo], map: &Map) -> Option<String> {
    let log = |recovery: &RecoveryInfo| {
        let why = recovery.trouble.as_deref()?;
        let is_lost = |table: &&TableInfo| {
            table.tablets.iter().any(|tablet| tablet.master == recovery.crashed)
        };
        let tables = map.tables.iter().filter(is_lost).map(|it| it.name.as_str());
        let tables = tables.collect::<Vec<_>>().join(", ");
        Some(format!("the log of {} (tables: {tables}): {why}", recovery.crashed))
    };
    let logs: Vec<String> = recoveries.iter().filter_map(log).collect();
    (!logs.is_empty()).then(|| {
        format!(
            "{server} is not forgotten, because it may have replicas that a recovery lacks; start it again, or drop \
             the tables: {}",
            logs.join("; ")
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::arguments::{Arguments, Command, ServerCommand};
    use crate::fake::FakeStore;
    use clap::Parser;

    fn forget(line: &str, answer: Option<bool>) -> Result<String, Failure> {
        let (out, done) = run_line(line, answer);
        done.map(|()| out)
    }

    /// Returns the output, also of a command that fails.
    fn run_line(line: &str, answer: Option<bool>) -> (String, Result<(), Failure>) {
        let words = ["thunderhead", "server"].into_iter().chain(line.split(' '));
        let arguments = Arguments::try_parse_from(words).expect("a good command line");
        let Command::Server(ServerCommand { action: Some(command), .. }) = arguments.command else {
            panic!("{line} runs a server");
        };
        let (mut out, mut notes) = (Vec::new(), Vec::new());
        let mut ask = |_: &str| answer.unwrap_or_default();
        let mut session = Session {
            out: &mut out,
            notes: &mut notes,
            input: None,
            ask: answer.map(|_| &mut ask as &mut dyn FnMut(&str) -> bool),
            json: arguments.common.json,
            progress: false,
        };
        let mut fake = FakeStore::default();
        fake.create_table("users", 2, Default::default()).expect("a table");
        let done = run(command, &mut fake, &mut session);
        (String::from_utf8(out).expect("text"), done)
    }

    #[test]
    fn each_of_several_servers_is_forgotten_or_refused_by_itself() {
        let (out, done) = run_line("forget 1 2 9 --yes", None);
        let lines: Vec<&str> = out.lines().collect();
        assert!(lines[0].starts_with("server 1 is not forgotten: the server is up"), "{out}");
        assert_eq!(lines[1], "server 2 is forgotten");
        assert!(lines[2].starts_with("server 9 is not forgotten"), "{out}");
        let refused = done.unwrap_err();
        assert_eq!((refused.kind, refused.exit), ("server_is_up", Exit::Negative));
        let (out, done) = run_line("forget 2 3 --yes --json", None);
        let json: serde_json::Value = serde_json::from_str(&out).expect("JSON");
        assert_eq!(json["forgotten"], json!([2]));
        assert_eq!(
            (&json["refused"][0]["server"], &json["refused"][0]["kind"]),
            (&json!(3), &json!("may_be_needed"))
        );
        assert_eq!(done.unwrap_err().exit, Exit::Negative);
        assert_eq!(
            forget("forget 2 2 --yes --json", None).unwrap(),
            "{\"forgotten\":[2,2],\"refused\":[]}\n"
        );
    }

    #[test]
    fn a_server_is_forgotten_if_it_is_down_and_a_person_agrees() {
        assert_eq!(forget("forget 2 --yes", None).unwrap(), "server 2 is forgotten\n");
        assert_eq!(forget("forget 2", Some(true)).unwrap(), "server 2 is forgotten\n");
        assert_eq!(forget("forget 2 --yes --json", None).unwrap(), "{\"forgotten\":2}\n");
        let kind = |line, answer| forget(line, answer).unwrap_err().kind;
        assert_eq!(kind("forget 2", Some(false)), "declined");
        assert_eq!(kind("forget 1 --yes", None), "server_is_up");
        assert_eq!(kind("forget 9 --yes", None), "no_such_server");
        let refused = forget("forget 3 --yes", None).unwrap_err();
        assert_eq!((refused.kind, refused.exit), ("may_be_needed", Exit::Negative));
        let lacking = "the log of master 2 (tables: users): a segment is missing";
        assert!(refused.message.ends_with(lacking), "{}", refused.message);
        assert_eq!(forget("forget 2", None).unwrap_err().exit, Exit::Usage);
    }

    #[test]
    fn the_plain_command_runs_a_server() {
        let arguments = Arguments::try_parse_from(["thunderhead", "server", "--shards", "2"]);
        let command = arguments.expect("a good command line").command;
        assert!(matches!(command, Command::Server(ServerCommand { action: None, .. })));
    }
}
