//! The state of a client's connection that all parts must know: its user, its version of the
//! protocol, its database and its names.
//!
//! Part 0 executes the commands that change it. If one succeeds there, the change is noted here. A
//! connection to another part learns the present state before its next command.

use super::super::context::is;
use super::super::number::integer_of;
use super::super::parser::Arguments;
use super::super::writer::{Version, Writer};

/// A user's name, unless it is `default`, and the password.
type Login = (Option<Vec<u8>>, Vec<u8>);

/// See the module's documentation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Session {
    pub(super) version: Version,
    pub(super) login: Option<Login>,
    database: i64,
    name: Vec<u8>,
    /// The name and the version of the client's library.
    driver: [Vec<u8>; 2],
    touches_not: bool,
    evicts_not: bool,
}

/// A change of the state by a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Hello { version: Option<Version>, login: Option<Login>, name: Option<Vec<u8>> },
    Login(Login),
    Database(i64),
    Name(Vec<u8>),
    Library(usize, Vec<u8>),
    TouchesNot(bool),
    EvictsNot(bool),
    Reset,
}

/// Whether a command changes the state.
pub(super) fn is_change(name: &str) -> bool {
    matches!(
        name,
        "hello"
            | "auth"
            | "select"
            | "reset"
            | "client|setname"
            | "client|setinfo"
            | "client|no-touch"
            | "client|no-evict"
    )
}

impl Change {
    /// Returns the change by a command of [`is_change`], or `None` if its arguments are wrong, so
    /// that part 0 refuses it.
    pub(super) fn of(name: &str, arguments: &Arguments<'_>) -> Option<Change> {
        let argument = |place: usize| arguments.get(place).map(<[u8]>::to_vec);
        let switch = |place| match arguments.get(place)? {
            it if is(it, "ON") => Some(true),
            it if is(it, "OFF") => Some(false),
            _ => None,
        };
        match name {
            "hello" => Change::of_hello(arguments),
            "auth" => match (argument(1)?, argument(2)) {
                (password, None) => Some(Change::Login((None, password))),
                (user, Some(password)) => Some(Change::Login((Some(user), password))),
            },
            "select" => integer_of(arguments.get(1)?).map(Change::Database),
            "client|setname" => argument(2).map(Change::Name),
            "client|setinfo" => {
                let place = usize::from(!is(arguments.get(2)?, "LIB-NAME"));
                argument(3).map(|value| Change::Library(place, value))
            }
            "client|no-touch" => switch(2).map(Change::TouchesNot),
            "client|no-evict" => switch(2).map(Change::EvictsNot),
            "reset" => Some(Change::Reset),
            _ => None,
        }
    }

    fn of_hello(arguments: &Arguments<'_>) -> Option<Change> {
        let version = match arguments.get(1) {
            None => None,
            Some(text) => match integer_of(text)? {
                2 => Some(Version::Two),
                3 => Some(Version::Three),
                _ => return None,
            },
        };
        let (mut login, mut name, mut at) = (None, None, 2);
        while let Some(word) = arguments.get(at) {
            match (arguments.get(at + 1)?, arguments.get(at + 2)) {
                (user, Some(password)) if is(word, "AUTH") => {
                    login = Some((Some(user.to_vec()), password.to_vec()));
                    at += 3;
                }
                (given, _) if is(word, "SETNAME") => {
                    name = Some(given.to_vec());
                    at += 2;
                }
                _ => return None,
            }
        }
        Some(Change::Hello { version, login, name })
    }

    /// Whether it changes the version of the protocol.
    pub(super) fn changes_version(&self, session: &Session) -> bool {
        matches!(self, Change::Hello { version: Some(version), .. } if *version != session.version)
    }
}

impl Session {
    /// Applies a change.
    pub(super) fn apply(&mut self, change: Change) {
        match change {
            Change::Hello { version, login, name } => {
                self.version = version.unwrap_or(self.version);
                self.login = login.or(self.login.take());
                self.name = name.unwrap_or(std::mem::take(&mut self.name));
            }
            Change::Login(login) => self.login = Some(login),
            Change::Database(number) => self.database = number,
            Change::Name(name) => self.name = name,
            Change::Library(place, value) => {
                if let Some(own) = self.driver.get_mut(place) {
                    *own = value;
                }
            }
            Change::TouchesNot(is_set) => self.touches_not = is_set,
            Change::EvictsNot(is_set) => self.evicts_not = is_set,
            Change::Reset => {
                let driver = std::mem::take(&mut self.driver);
                *self = Session { driver, ..Session::default() };
            }
        }
    }

    /// Returns the commands that give a connection this state if it has another one, and their
    /// number.
    pub(super) fn commands_from(&self, other: &Session) -> (Vec<u8>, usize) {
        let (mut out, mut count) = (Vec::new(), 0);
        let mut say = |words: &[&[u8]]| {
            write_command(&mut out, words.iter().copied());
            count += 1;
        };
        if let Some((user, password)) = self.login.as_ref().filter(|_| self.login != other.login) {
            match user {
                Some(user) => say(&[b"AUTH", user, password]),
                None => say(&[b"AUTH", password]),
            }
        }
        if self.version != other.version {
            say(&[b"HELLO", if self.version == Version::Three { b"3" } else { b"2" }]);
        }
        if self.database != other.database {
            say(&[b"SELECT", self.database.to_string().as_bytes()]);
        }
        if self.name != other.name {
            say(&[b"CLIENT", b"SETNAME", &self.name]);
        }
        let drivers = self.driver.iter().zip(&other.driver).zip([&b"LIB-NAME"[..], b"LIB-VER"]);
        for ((own, other), word) in drivers {
            if own != other {
                say(&[b"CLIENT", b"SETINFO", word, own]);
            }
        }
        let switch = |is_on| if is_on { &b"ON"[..] } else { b"OFF" };
        if self.touches_not != other.touches_not {
            say(&[b"CLIENT", b"NO-TOUCH", switch(self.touches_not)]);
        }
        if self.evicts_not != other.evicts_not {
            say(&[b"CLIENT", b"NO-EVICT", switch(self.evicts_not)]);
        }
        (out, count)
    }
}

/// Writes a command.
pub(super) fn write_command<'a>(
    out: &mut Vec<u8>,
    words: impl IntoIterator<Item = &'a [u8], IntoIter: ExactSizeIterator>,
) {
    let words = words.into_iter();
    let mut writer = Writer::new(out, Version::Two);
    writer.array(words.len());
    words.for_each(|word| writer.string(word));
}

#[cfg(test)]
mod tests {
    use super::super::super::parser::{Limits, Parsed, Parser};
    use super::*;

    /// Applies the commands in some lines.
    fn session(lines: &[&str]) -> Session {
        let mut session = Session::default();
        for line in lines {
            let (mut parser, line) = (Parser::new(Limits::default()), format!("{line}\r\n"));
            assert!(matches!(parser.next(line.as_bytes()), Parsed::Command(_)));
            let arguments = parser.arguments(line.as_bytes());
            let mut name = arguments[0].to_ascii_lowercase();
            if name == b"client" {
                name = [b"client|", &*arguments[1].to_ascii_lowercase()].concat();
            }
            let name = String::from_utf8(name).unwrap();
            assert!(is_change(&name));
            session.apply(Change::of(&name, &arguments).unwrap());
        }
        session
    }

    #[test]
    fn a_part_gets_the_commands_that_make_its_state_the_same() {
        let new = Session::default();
        let table: &[(&[&str], &str)] = &[
            (&[], ""),
            (&["select 0"], ""),
            (&["hello 2"], ""),
            (&["auth secret", "hello 3"], "AUTH secret HELLO 3"),
            (&["hello 3 auth me secret setname x"], "AUTH me secret HELLO 3 CLIENT SETNAME x"),
            (&["select 7", "client setname a", "client setname b"], "SELECT 7 CLIENT SETNAME b"),
            (&["client setinfo lib-ver 1", "client setinfo lib-name l"], {
                "CLIENT SETINFO LIB-NAME l CLIENT SETINFO LIB-VER 1"
            }),
            (
                &["client no-touch on", "client no-evict on"],
                "CLIENT NO-TOUCH ON CLIENT NO-EVICT ON",
            ),
            (&["hello 3", "select 1", "client setinfo lib-name l", "reset"], {
                "CLIENT SETINFO LIB-NAME l"
            }),
        ];
        for (lines, expected) in table {
            let session = session(lines);
            let (bytes, count) = session.commands_from(&new);
            let (mut words, mut rest, mut commands) = (Vec::new(), bytes.as_slice(), 0);
            while !rest.is_empty() {
                let mut parser = Parser::new(Limits::default());
                let Parsed::Command(used) = parser.next(rest) else { panic!("{rest:?}") };
                let arguments = parser.arguments(rest);
                words.extend(arguments.iter().map(|it| String::from_utf8(it.to_vec()).unwrap()));
                (rest, commands) = (&rest[used..], commands + 1);
            }
            assert_eq!((words.join(" ").as_str(), count), (*expected, commands), "{lines:?}");
            assert_eq!(session.commands_from(&session), (Vec::new(), 0));
        }
    }

    #[test]
    fn arguments_that_make_no_sense_change_nothing() {
        let wrong = ["hello x", "hello 4", "hello 3 auth u", "select x", "client no-touch maybe"];
        for line in wrong {
            let (mut parser, line) = (Parser::new(Limits::default()), format!("{line}\r\n"));
            parser.next(line.as_bytes());
            let arguments = parser.arguments(line.as_bytes());
            let name = if line.starts_with("client") { "client|no-touch" } else { &line[..5] };
            let name = name.trim();
            assert_eq!(Change::of(name, &arguments), None, "{line}");
        }
    }
}
