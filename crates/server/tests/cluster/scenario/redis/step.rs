//! The steps of a client: the commands of each, and the meaning of their replies.

use super::records::{ACCOUNTS, Number, Records, Span};
use super::resp::{Command, Reply, command};
use thunderhead_simulator::linearizability::{Action, Condition, Operation, Outcome, Version};

/// The kinds of objects that one client alone writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Own {
    Text,
    /// A field of one large hash of all clients.
    Field,
    /// A hash with many fields, all of which change together.
    Hash,
    /// A string that is written together with a message about it.
    Channel,
}

impl Own {
    pub(super) const ALL: [Own; 4] = [Own::Text, Own::Field, Own::Hash, Own::Channel];

    fn space(self) -> u64 {
        2 + self as u64
    }

    fn key(self, (user, number): Number) -> String {
        let letter = ["o", "f", "b", "p"][self as usize];
        format!("{letter}:{user}:{number}")
    }
}

/// The large hash of all clients, and its fields that do not change.
const HASH: &str = "hash";
pub(super) const FILLING: u64 = 300;

/// The fields of a hash of [`Own::Hash`].
const FIELDS: u64 = 60;

/// The spaces of keys of the judge.
const COUNTERS: u64 = 0;
const VERSIONED: u64 = 1;

pub(super) const QUEUE: &str = "queue";

/// One or more commands that have one meaning.
#[derive(Clone, Debug)]
pub(super) enum Step {
    /// Adds 1 to a counter.
    Count(u64),
    ReadCounters(Vec<u64>),
    /// Writes an object together with its version.
    Write(u64, u64),
    Delete(u64),
    Read(u64, bool),
    /// Reads an object in order to change it, if no other client does.
    Watch(u64),
    WriteWatched(u64, u64, Option<u64>),
    /// Writes an own object. The value is the number of the write.
    WriteOwn(Own, Number, u64),
    /// Deletes an own object with the number of its last write; 0 if that is unknown.
    DeleteOwn(Own, Number, u64),
    ReadOwn(Own, Number),
    Transfer(u64, u64, u64),
    ReadMoney,
    Push(Number),
    /// Takes an item, and waits for one if there is a time in milliseconds.
    Pop(Option<u64>),
    ReadQueue,
    /// Writes an object that expires after some milliseconds: a key, or a field if its number is
    /// odd.
    WriteExpiring(Number, u64),
    /// Reads it, and perhaps the time.
    ReadExpiring(Number, bool),
    /// Writes objects for other steps.
    Found(Command),
    ReadFilling,
}

/// The effect of a step on the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    None,
    /// The object that is watched, and its version.
    Watches(u64, Option<u64>),
    Queue(Vec<Number>),
}

/// Returns the text of a number, as values have it: some are long.
fn text(number: u64) -> String {
    format!("{number}:{}", "x".repeat((number * 37 % 700) as usize))
}

/// Returns the number of a text.
fn number_of(bytes: &[u8]) -> Option<u64> {
    let read = std::str::from_utf8(bytes).ok()?;
    let number = read.split(':').next()?.parse().ok()?;
    (text(number) == read).then_some(number)
}

fn field_text(number: u64) -> String {
    format!("{number:040}")
}

fn item_text((user, number): Number) -> String {
    format!("{user}:{number}")
}

fn item_of(bytes: &[u8]) -> Option<Number> {
    let (user, number) = std::str::from_utf8(bytes).ok()?.split_once(':')?;
    Some((user.parse().ok()?, number.parse().ok()?))
}

/// Returns the channel and the message of a push to a subscriber.
pub(super) fn message_of(reply: &Reply) -> Option<(Number, u64)> {
    let [kind, _, channel, message] = reply.array()? else { return None };
    if kind.text()? != b"pmessage" {
        return None;
    }
    let channel = channel.text()?.strip_prefix(b"p:")?;
    Some((item_of(channel)?, message.number()?))
}

fn transaction(commands: impl IntoIterator<Item = Command>) -> Vec<Command> {
    let mut all = vec![command(["MULTI"])];
    all.extend(commands);
    all.push(command(["EXEC"]));
    all
}

/// Whether an error says that the command was not executed.
fn is_refusal(error: &str) -> bool {
    let why = error.strip_prefix("EXECABORT Transaction discarded because of: ").unwrap_or(error);
    why.starts_with("LOADING") || why.starts_with("OOM")
}

impl Step {
    pub(super) fn commands(&self) -> Vec<Command> {
        match self {
            Step::Count(key) => vec![command(["INCR", &format!("c:{key}")])],
            Step::ReadCounters(keys) if keys.len() == 1 => {
                vec![command(["GET", &format!("c:{}", keys[0])])]
            }
            Step::ReadCounters(keys) => {
                let keys = keys.iter().map(|key| format!("c:{key}").into_bytes());
                vec![std::iter::once(b"MGET".to_vec()).chain(keys).collect()]
            }
            Step::Write(key, value) | Step::WriteWatched(key, value, _) => transaction([
                command(["INCR", &format!("v:{key}")]),
                command(["SET", &format!("s:{key}"), &text(*value)]),
            ]),
            Step::Delete(key) => transaction([
                command(["GET", &format!("v:{key}")]),
                command(["DEL", &format!("s:{key}")]),
            ]),
            Step::Read(key, true) => transaction([
                command(["GET", &format!("v:{key}")]),
                command(["GET", &format!("s:{key}")]),
            ]),
            Step::Read(key, false) => {
                vec![command(["MGET", &format!("v:{key}"), &format!("s:{key}")])]
            }
            Step::Watch(key) => {
                let (version, value) = (format!("v:{key}"), format!("s:{key}"));
                vec![command(["WATCH", &version, &value]), command(["MGET", &version, &value])]
            }
            Step::WriteOwn(own, number, value) => write_own(*own, *number, *value),
            Step::DeleteOwn(Own::Field, number, _) => {
                vec![command(["HDEL", HASH, &Own::Field.key(*number)])]
            }
            Step::DeleteOwn(own, number, _) => vec![command(["DEL", &own.key(*number)])],
            Step::ReadOwn(Own::Field, number) => {
                vec![command(["HGET", HASH, &Own::Field.key(*number)])]
            }
            Step::ReadOwn(Own::Hash, number) => {
                vec![command(["HGETALL", &Own::Hash.key(*number)])]
            }
            Step::ReadOwn(own, number) => vec![command(["GET", &own.key(*number)])],
            Step::Transfer(from, to, amount) => transaction([
                command(["DECRBY", &format!("a:{from}"), &amount.to_string()]),
                command(["INCRBY", &format!("a:{to}"), &amount.to_string()]),
            ]),
            Step::ReadMoney => {
                let keys = (0..ACCOUNTS).map(|account| format!("a:{account}").into_bytes());
                vec![std::iter::once(b"MGET".to_vec()).chain(keys).collect()]
            }
            Step::Push(number) => vec![command(["RPUSH", QUEUE, &item_text(*number)])],
            Step::Pop(None) => vec![command(["LPOP", QUEUE])],
            Step::Pop(Some(wait)) => {
                vec![command(["BLPOP", QUEUE, &format!("{}.{:03}", wait / 1000, wait % 1000)])]
            }
            Step::ReadQueue => vec![command(["LRANGE", QUEUE, "0", "-1"])],
            Step::WriteExpiring((user, number), lasts) if number % 2 == 1 => {
                let (hash, field) = (format!("x:{user}"), number.to_string());
                let lasts = lasts.to_string();
                transaction([
                    command(["HSETEX", &hash, "PX", &lasts, "FIELDS", "1", &field, "value"]),
                    command(["HPEXPIRETIME", &hash, "FIELDS", "1", &field]),
                ])
            }
            Step::WriteExpiring((user, number), lasts) => {
                let key = format!("e:{user}:{number}");
                transaction([
                    command(["SET", &key, "value", "PX", &lasts.to_string()]),
                    command(["PEXPIRETIME", &key]),
                ])
            }
            Step::ReadExpiring((user, number), asks_time) => {
                let read = match number % 2 {
                    0 => command(["GET", &format!("e:{user}:{number}")]),
                    _ => command(["HGET", &format!("x:{user}"), &number.to_string()]),
                };
                match asks_time {
                    false => vec![read],
                    true => transaction([command(["TIME"]), read]),
                }
            }
            Step::Found(command) => vec![command.clone()],
            Step::ReadFilling => vec![command(["HGETALL", HASH])],
        }
    }

    /// Returns the operation of the judge with this outcome.
    fn judged(&self, span: Span, outcome: Outcome) -> Option<Operation<(u64, u64)>> {
        let always = Condition::Always;
        let own = |own: &Own, (user, number): &Number| (own.space(), user << 32 | number);
        let (key, action) = match self {
            Step::Count(key) => ((COUNTERS, *key), Action::Increment { by: 1 }),
            Step::Write(key, value) => {
                ((VERSIONED, *key), Action::Write { value: *value, condition: always })
            }
            Step::WriteWatched(key, value, version) => {
                let condition =
                    version.map_or(Condition::Absent, |it| Condition::VersionIs(Version(it)));
                ((VERSIONED, *key), Action::Write { value: *value, condition })
            }
            Step::Delete(key) => ((VERSIONED, *key), Action::Delete { condition: always }),
            Step::Read(key, _) | Step::Watch(key) => ((VERSIONED, *key), Action::Read),
            Step::WriteOwn(kind, number, value) => {
                (own(kind, number), Action::Write { value: *value, condition: always })
            }
            Step::DeleteOwn(kind, number, _) => {
                (own(kind, number), Action::Delete { condition: always })
            }
            Step::ReadOwn(kind, number) => (own(kind, number), Action::Read),
            _ => return None,
        };
        let Span { called, answered } = span;
        Some(Operation { key, called, answered, action, outcome })
    }

    /// Learns that an earlier step was refused. If this step deletes its object, the number of the
    /// last write is unknown then.
    pub(super) fn lacks(&mut self, refused: &Step) {
        if let Step::DeleteOwn(own, number, last) = self
            && let Step::WriteOwn(other, of, _) = refused
            && (*own, *number) == (*other, *of)
        {
            *last = 0;
        }
    }

    /// Records that the outcome is unknown.
    pub(super) fn is_unanswered(&self, called: u64, records: &mut Records) {
        records.count("unanswered steps");
        let span = Span { called, answered: called };
        records.history.extend(self.judged(span, Outcome::Unknown));
        if let Step::Pop(_) = self {
            records.lost_pops += 1;
        }
    }

    /// Records the replies, of which there are as many as commands. Returns whether the step was
    /// done: a server without memory may refuse it.
    pub(super) fn is_answered(
        &self,
        span: Span,
        replies: &[Reply],
        records: &mut Records,
    ) -> Option<Effect> {
        if let Some(Reply::Error(error)) = replies.last()
            && is_refusal(error)
        {
            records.count("refused steps");
            return None;
        }
        records.count("answered steps");
        let effect = self.understand(span, replies, records);
        if effect.is_none() {
            let shown: String = format!("{replies:?}").chars().take(600).collect();
            records.fail(format!("{self:?} has this reply: {shown}"));
        }
        Some(effect.unwrap_or(Effect::None))
    }

    /// Records the replies; returns `None` if they make no sense.
    fn understand(&self, span: Span, replies: &[Reply], records: &mut Records) -> Option<Effect> {
        let last = replies.last()?;
        let mut judge = |outcome| records.history.extend(self.judged(span, outcome));
        let found = |version: u64, value: u64| Outcome::Found(Version(version), value);
        match self {
            Step::Count(_) => {
                let count = last.number()?;
                judge(Outcome::Done(Version(count), count));
            }
            Step::ReadCounters(keys) => {
                let counts = last.array().unwrap_or(std::slice::from_ref(last));
                if counts.len() != keys.len() {
                    return None;
                }
                for (key, count) in keys.iter().zip(counts) {
                    let outcome = match count {
                        Reply::Nothing => Outcome::Absent,
                        count => found(count.number()?, count.number()?),
                    };
                    let Span { called, answered } = span;
                    let (key, action) = ((COUNTERS, *key), Action::Read);
                    records.history.push(Operation { key, called, answered, action, outcome });
                }
            }
            Step::Write(_, value) => {
                let [version, _] = last.array()? else { return None };
                judge(Outcome::Done(Version(version.number()?), *value));
            }
            Step::WriteWatched(_, value, _) => match last {
                Reply::Nothing => records.count("writes that came too late"),
                last => {
                    let [version, _] = last.array()? else { return None };
                    judge(Outcome::Done(Version(version.number()?), *value));
                    records.count("watched writes");
                }
            },
            Step::Delete(_) => match last.array()? {
                [_, Reply::Integer(0)] => judge(Outcome::Absent),
                [version, Reply::Integer(1)] => judge(Outcome::Deleted(Version(version.number()?))),
                _ => return None,
            },
            Step::Read(key, _) | Step::Watch(key) => {
                let [version, value] = last.array()? else { return None };
                let version = match value {
                    Reply::Nothing => None,
                    value => Some((version.number()?, number_of(value.text()?)?)),
                };
                judge(version.map_or(Outcome::Absent, |(version, value)| found(version, value)));
                if let Step::Watch(_) = self {
                    return Some(Effect::Watches(*key, version.map(|(version, _)| version)));
                }
            }
            Step::WriteOwn(own, number, value) => {
                if let Reply::Error(_) = last {
                    return None;
                }
                judge(Outcome::Done(Version(*value), *value));
                if *own == Own::Channel {
                    records.published(*number, *value);
                }
            }
            Step::DeleteOwn(_, _, value) => match last.number()? {
                0 => judge(Outcome::Absent),
                _ if *value == 0 => judge(Outcome::Unknown),
                _ => judge(Outcome::Deleted(Version(*value))),
            },
            Step::ReadOwn(Own::Hash, _) => {
                let fields = last.array()?;
                let value = match fields {
                    [] => None,
                    [_, value, ..] => Some(value.number()?),
                    _ => return None,
                };
                let is_whole = fields.chunks(2).all(|it| it[1].number() == value);
                if value.is_some() && (!is_whole || fields.len() as u64 != 2 * FIELDS) {
                    return None;
                }
                judge(value.map_or(Outcome::Absent, |value| found(value, value)));
            }
            Step::ReadOwn(..) => match last {
                Reply::Nothing => judge(Outcome::Absent),
                last => {
                    let value = number_of(last.text()?)?;
                    judge(found(value, value));
                }
            },
            Step::Transfer(..) => {
                last.array()?;
            }
            Step::ReadMoney => {
                let accounts = last.array()?;
                records.sees_money(&accounts.iter().map(Reply::number).collect::<Vec<_>>());
            }
            Step::Push(number) => {
                last.number()?;
                records.pushed(*number, span);
            }
            Step::Pop(_) => match last {
                Reply::Nothing => {}
                Reply::Text(item) => records.popped(item_of(item)?, span),
                last => {
                    let [_, item] = last.array()? else { return None };
                    records.popped(item_of(item.text()?)?, span);
                }
            },
            Step::ReadQueue => {
                let items = last.array()?.iter().map(|item| item_of(item.text()?));
                return Some(Effect::Queue(items.collect::<Option<_>>()?));
            }
            Step::WriteExpiring(number, _) => {
                let [_, expires] = last.array()? else { return None };
                let expires = expires.array().and_then(<[Reply]>::first).unwrap_or(expires);
                records.wrote_expiring(*number, span, expires.number()?);
            }
            Step::ReadExpiring(number, asks_time) => {
                let (time, value) = match (asks_time, last) {
                    (false, value) => (None, value),
                    (true, last) => {
                        let [time, value] = last.array()? else { return None };
                        let [seconds, micros] = time.array()? else { return None };
                        let time = seconds.number()? * 1000 + micros.number()? / 1000;
                        (Some(time), value)
                    }
                };
                let is_there = match value {
                    Reply::Nothing => false,
                    Reply::Text(text) if text == b"value" => true,
                    _ => return None,
                };
                records.read_expiring(*number, span, time, is_there);
            }
            Step::Found(_) => {
                if let Reply::Error(_) = last {
                    return None;
                }
            }
            Step::ReadFilling => {
                let fields = last.array()?;
                let filling = fields
                    .chunks(2)
                    .filter(|it| it[0].text().is_some_and(|name| name.starts_with(b"fill")));
                if filling.count() as u64 != FILLING {
                    return None;
                }
            }
        }
        Some(Effect::None)
    }
}

fn write_own(own: Own, number: Number, value: u64) -> Vec<Command> {
    let key = own.key(number);
    match own {
        Own::Text => vec![command(["SET", &key, &text(value)])],
        Own::Field => vec![command(["HSET", HASH, &key, &text(value)])],
        Own::Hash => {
            let mut all = command(["HSET", &key]);
            for field in 0..FIELDS {
                all.push(field.to_string().into_bytes());
                all.push(field_text(value).into_bytes());
            }
            vec![all]
        }
        Own::Channel => transaction([
            command(["SET", &key, &text(value)]),
            command(["PUBLISH", &key, &value.to_string()]),
        ]),
    }
}

/// Returns the steps that write the accounts and the large hash.
pub(super) fn founding() -> Vec<Step> {
    let mut accounts = command(["MSET"]);
    for account in 0..ACCOUNTS {
        accounts.push(format!("a:{account}").into_bytes());
        accounts.push(super::records::MONEY.to_string().into_bytes());
    }
    let mut steps = vec![Step::Found(accounts)];
    for part in 0..FILLING / 20 {
        let mut fields = command(["HSET", HASH]);
        for field in part * 20..(part + 1) * 20 {
            fields.push(format!("fill:{field}").into_bytes());
            fields.push(field_text(field).into_bytes());
        }
        steps.push(Step::Found(fields));
    }
    steps
}
