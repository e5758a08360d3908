//! A connection to a server of Redis's protocol, which may be a real one or ours.

use crate::exit::{Exit, Failure};
use std::io::{BufRead, BufReader, BufWriter, Read, Write};
use std::net::{Shutdown, TcpStream, ToSocketAddrs};
use std::time::Duration;

/// How long a server may take to accept a connection, and to answer.
const CONNECT_PATIENCE: Duration = Duration::from_secs(5);
pub(super) const ANSWER_PATIENCE: Duration = Duration::from_secs(60);

/// The limits of answers.
const LINE_BYTES_MAX: u64 = 64 << 10;
const STRING_BYTES_MAX: u64 = 1 << 30;
const DEPTH_MAX: usize = 8;

/// The place of a server, with the right to use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Address {
    host: String,
    port: u16,
    user: Option<String>,
    password: Option<String>,
    pub(super) database: Option<u32>,
}

impl Address {
    /// Reads `redis://[[user]:password@]host[:port][/database]`.
    pub(super) fn read(url: &str) -> Result<Address, Failure> {
        let wrong = |reason: &str| {
            let form = "redis://[user:password@]host:port[/database]";
            Failure::usage(format!("{reason}: write {form}"))
        };
        let rest = url.strip_prefix("redis://").ok_or_else(|| wrong("this is no URL of Redis"))?;
        let (rest, database) = match rest.split_once('/') {
            None | Some((_, "")) => (rest.trim_end_matches('/'), None),
            Some((rest, digits)) => {
                let database = digits.parse().map_err(|_| wrong("the database is no number"))?;
                (rest, Some(database))
            }
        };
        let (rights, place) = match rest.rsplit_once('@') {
            Some((rights, place)) => (Some(rights), place),
            None => (None, rest),
        };
        let (user, password) =
            match rights.map(|rights| rights.split_once(':').unwrap_or((rights, ""))) {
                None => (None, None),
                Some((user, password)) => (plain(user), plain(password)),
            };
        if user.is_some() && password.is_none() {
            return Err(wrong("a password is missing"));
        }
        let (host, port) = match place.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => {
                (host, port.parse().map_err(|_| wrong("the port is no number"))?)
            }
            _ => (place, 6379),
        };
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if host.is_empty() {
            return Err(wrong("a host is missing"));
        }
        Ok(Address { host, port, user, password, database })
    }

    /// Returns its name for people, without the password.
    pub(super) fn name(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

/// Replaces `%` and two hexadecimal digits by the byte; `None` for an empty text.
fn plain(text: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        let mut ahead = rest.clone();
        let digits = [ahead.next(), ahead.next()];
        let digit = |digit: Option<u8>| char::from(digit?).to_digit(16);
        match (byte, digit(digits[0]), digit(digits[1])) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high << 4 | low) as u8);
                rest = ahead;
            }
            _ => bytes.push(byte),
        }
    }
    (!bytes.is_empty()).then(|| String::from_utf8_lossy(&bytes).into_owned())
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    String(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
}

impl Reply {
    pub(super) fn strings(self) -> Option<Vec<Vec<u8>>> {
        let Reply::Array(Some(parts)) = self else { return None };
        let string = |part| match part {
            Reply::String(Some(string)) => Some(string),
            _ => None,
        };
        parts.into_iter().map(string).collect()
    }
}

/// Reads an answer.
pub(super) fn read_reply(input: &mut impl BufRead, depth: usize) -> std::io::Result<Reply> {
    let wrong = |text: &str| std::io::Error::new(std::io::ErrorKind::InvalidData, text.to_owned());
    let mut line = Vec::new();
    input.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
    let Some(line) = line.strip_suffix(b"\r\n") else {
        return Err(match line.is_empty() {
            true => std::io::ErrorKind::UnexpectedEof.into(),
            false => wrong("the server does not speak Redis's protocol"),
        });
    };
    let text = || String::from_utf8_lossy(&line[1..]).into_owned();
    let number = || text().parse::<i64>().map_err(|_| wrong("a number is missing"));
    match line.first() {
        Some(b'+') => Ok(Reply::Simple(text())),
        Some(b'-') => Ok(Reply::Error(text())),
        Some(b':') => Ok(Reply::Integer(number()?)),
        Some(b'$') => match u64::try_from(number()?) {
            Err(_) => Ok(Reply::String(None)),
            Ok(length) if length > STRING_BYTES_MAX => Err(wrong("a string is too long")),
            Ok(length) => {
                let mut string = Vec::new();
                input.by_ref().take(length + 2).read_to_end(&mut string)?;
                if string.len() as u64 != length + 2 {
                    return Err(std::io::ErrorKind::UnexpectedEof.into());
                }
                string.truncate(length as usize);
                Ok(Reply::String(Some(string)))
            }
        },
        Some(b'*') if depth < DEPTH_MAX => match u64::try_from(number()?) {
            Err(_) => Ok(Reply::Array(None)),
            Ok(count) => {
                let mut parts = Vec::new();
                for _ in 0..count {
                    parts.push(read_reply(input, depth + 1)?);
                }
                Ok(Reply::Array(Some(parts)))
            }
        },
        _ => Err(wrong("the server does not speak Redis's protocol")),
    }
}

/// Writes a command.
pub(super) fn write_command(out: &mut impl Write, words: &[&[u8]]) -> std::io::Result<()> {
    write!(out, "*{}\r\n", words.len())?;
    for word in words {
        write!(out, "${}\r\n", word.len())?;
        out.write_all(word)?;
        out.write_all(b"\r\n")?;
    }
    Ok(())
}

/// A connection. Commands may be sent before the answers to earlier ones are read.
pub(super) struct Connection {
    pub(super) name: String,
    stream: TcpStream,
    input: BufReader<TcpStream>,
    output: BufWriter<TcpStream>,
    database: u32,
}

impl Connection {
    /// Connects, and gives the password.
    pub(super) fn open(address: &Address) -> Result<Connection, Failure> {
        let name = address.name();
        let failed = |error: std::io::Error| unreachable(&name, &error);
        let mut places = (&*address.host, address.port).to_socket_addrs().map_err(failed)?;
        let place = places.next().ok_or_else(|| failed(std::io::ErrorKind::NotFound.into()))?;
        let stream = TcpStream::connect_timeout(&place, CONNECT_PATIENCE).map_err(failed)?;
        let set = stream.set_nodelay(true);
        set.and_then(|()| stream.set_read_timeout(Some(ANSWER_PATIENCE))).map_err(failed)?;
        let input = BufReader::new(stream.try_clone().map_err(failed)?);
        let output = BufWriter::new(stream.try_clone().map_err(failed)?);
        let mut connection = Connection { name, stream, input, output, database: 0 };
        if let Some(password) = &address.password {
            let mut words: Vec<&[u8]> = vec![b"AUTH"];
            words.extend(address.user.as_ref().map(|user| user.as_bytes()));
            words.push(password.as_bytes());
            connection.want_ok(&words)?;
        }
        Ok(connection)
    }

    pub(super) fn send(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        write_command(&mut self.output, words).map_err(|error| unreachable(&self.name, &error))
    }

    pub(super) fn reply(&mut self) -> Result<Reply, Failure> {
        let flushed = self.output.flush();
        let reply = flushed.and_then(|()| read_reply(&mut self.input, 0));
        reply.map_err(|error| unreachable(&self.name, &error))
    }

    pub(super) fn call(&mut self, words: &[&[u8]]) -> Result<Reply, Failure> {
        self.send(words)?;
        self.reply()
    }

    /// Sends a command whose answer must not be an error.
    pub(super) fn want(&mut self, words: &[&[u8]]) -> Result<Reply, Failure> {
        match self.call(words)? {
            Reply::Error(text) => {
                let command = words.first().map_or("", |word| str::from_utf8(word).unwrap_or(""));
                let text = format!("{} refuses {command}: {text}", self.name);
                Err(Failure::new(Exit::Refused, "refused", text))
            }
            reply => Ok(reply),
        }
    }

    pub(super) fn want_ok(&mut self, words: &[&[u8]]) -> Result<(), Failure> {
        self.want(words).map(|_| ())
    }

    /// Chooses a database.
    pub(super) fn select(&mut self, database: u32) -> Result<(), Failure> {
        if self.database != database {
            self.want_ok(&[b"SELECT", database.to_string().as_bytes()])?;
            self.database = database;
        }
        Ok(())
    }

    /// Divides the connection into the half that another thread reads, and the half that sends.
    pub(super) fn into_halves(self) -> std::io::Result<(BufReader<TcpStream>, SendingHalf)> {
        self.stream.set_read_timeout(None)?;
        self.stream.set_write_timeout(Some(ANSWER_PATIENCE))?;
        Ok((self.input, SendingHalf(self.stream)))
    }
}

/// Sends on a connection that another thread reads. The connection ends with it.
pub(super) struct SendingHalf(TcpStream);

impl SendingHalf {
    /// Sends some commands.
    pub(super) fn send(&mut self, commands: &[&[&[u8]]]) -> std::io::Result<()> {
        let mut bytes = Vec::new();
        for words in commands {
            write_command(&mut bytes, words)?;
        }
        self.0.write_all(&bytes)
    }
}

impl Drop for SendingHalf {
    fn drop(&mut self) {
        let _ = self.0.shutdown(Shutdown::Both);
    }
}

fn unreachable(name: &str, error: &std::io::Error) -> Failure {
    Failure::new(Exit::Unreachable, "unreachable", format!("{name}: {error}"))
}
