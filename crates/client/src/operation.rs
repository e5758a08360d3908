//! Operations on objects and their answers.

use crate::error::Error;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::operations::{
    EXPIRING_HEAD_BYTES, EnumerateHead, ExpiringHead, FLOAT, FoundHead, Identity, KEY_BYTES_MAX,
    ObjectHead, PageHead, PartHead, UpdateKind, UpdatePart, VALUE_BYTES_MAX,
};
use thunderhead_wire::{
    Condition, KeyHash, Next, Sequence, Status, TableId, TabletRange, TimeToLive, ValueKind,
    Version,
};
use zerocopy::{FromBytes, IntoBytes};

/// A number to write or to add, and the resulting number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Number {
    /// A whole number.
    Integer(i64),
    /// A floating-point number.
    Float(f64),
}

impl Number {
    fn to_bytes(self) -> [u8; 8] {
        match self {
            Number::Integer(number) => number.to_le_bytes(),
            Number::Float(number) => number.to_le_bytes(),
        }
    }

    fn kind(self) -> ValueKind {
        match self {
            Number::Integer(_) => ValueKind::Integer,
            Number::Float(_) => ValueKind::Float,
        }
    }

    /// Returns the number in a value, if its kind is a number: increments add to this number.
    #[must_use]
    pub fn of_value(kind: ValueKind, value: &[u8]) -> Option<Number> {
        let bytes = value.try_into().ok()?;
        match kind {
            ValueKind::Bytes => None,
            ValueKind::Integer => Some(Number::Integer(i64::from_le_bytes(bytes))),
            ValueKind::Float => Some(Number::Float(f64::from_le_bytes(bytes))),
        }
    }

    /// Decodes a number of the same kind from these bytes.
    fn like(self, bytes: [u8; 8]) -> Number {
        match self {
            Number::Integer(_) => Number::Integer(i64::from_le_bytes(bytes)),
            Number::Float(_) => Number::Float(f64::from_le_bytes(bytes)),
        }
    }
}

/// An operation on an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Vec<u8>,
    /// The condition on the object's version.
    pub condition: Condition,
    /// The action.
    pub action: Action,
}

/// The action of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read it.
    Read,
    /// Write this value.
    Write(Vec<u8>),
    /// Delete it.
    Delete,
    /// Add this to it. An object that does not exist counts as 0. A value that was written as
    /// bytes, or a number of the other kind, is refused.
    Increment(Number),
    /// Write this number. Reads return its 8 bytes, little-endian.
    WriteNumber(Number),
    /// Write this value. The object lives for this time, not for the table's default.
    WriteExpiring(Vec<u8>, TimeToLive),
    /// Write this number. The object lives for this time, not for the table's default.
    WriteNumberExpiring(Number, TimeToLive),
    /// Change when the object expires: it lives for this time from now on. That gives it a new
    /// version.
    SetExpiry(TimeToLive),
    /// Read how long it still lives.
    ReadExpiry,
    /// Enumerate objects whose keys hash into a range, from a cursor on. The operation's key is
    /// ignored.
    Page {
        /// The first hash.
        first: KeyHash,
        /// The last hash.
        last: KeyHash,
        /// Where to start; 0 at the beginning.
        cursor: u64,
    },
}

/// The answer to an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The object was read.
    Found {
        /// Its version.
        version: Version,
        /// Its value.
        value: Vec<u8>,
    },
    /// There is no such object to read or delete.
    Absent,
    /// The object was written and now has this version.
    Written(Version),
    /// The object was deleted; this was its version.
    Deleted(Version),
    /// The object exists, and lives for this time from now on.
    Lives {
        /// Its version.
        version: Version,
        /// How long it still lives.
        time_to_live: TimeToLive,
    },
    /// The object was incremented.
    Sum {
        /// Its new version.
        version: Version,
        /// Its new value.
        number: Number,
    },
    /// A page of objects.
    Page {
        /// The objects.
        objects: Vec<Object>,
        /// The last hash that this page and the following ones cover. Another tablet has the rest.
        last: KeyHash,
        /// Where to go on up to that hash, if there are more objects.
        cursor: Option<u64>,
    },
}

/// The version and the value of an object.
pub type Value = (Version, Vec<u8>);

/// An object that an enumeration returns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    /// Its version.
    pub version: Version,
    /// Its key.
    pub key: Vec<u8>,
    /// The kind of its value.
    pub kind: ValueKind,
    /// Its value.
    pub value: Vec<u8>,
}

impl Object {
    /// Returns its value as a number, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of_value(self.kind, &self.value)
    }
}

/// About how many bytes of objects fit into a page.
const PAGE_BYTES: u32 = 64 << 10;

/// Refuses a key that no cluster accepts. A read would find no object under it.
pub(crate) fn check_key(key: &[u8]) -> Result<(), Error> {
    match key.len() {
        0 => Err(Error::Refused(Status::KeyEmpty)),
        1..=KEY_BYTES_MAX => Ok(()),
        _ => Err(Error::Refused(Status::KeyTooLong)),
    }
}

impl Operation {
    /// Refuses a key or a value that no cluster accepts.
    pub(crate) fn check(&self) -> Result<(), Error> {
        match &self.action {
            Action::Page { .. } => Ok(()),
            Action::Write(value) | Action::WriteExpiring(value, _)
                if value.len() > VALUE_BYTES_MAX =>
            {
                check_key(&self.key)?;
                Err(Error::Refused(Status::ValueTooLong))
            }
            _ => check_key(&self.key),
        }
    }

    pub(crate) fn is_update(&self) -> bool {
        !matches!(self.action, Action::Read | Action::ReadExpiry | Action::Page { .. })
    }

    /// Whether it may share a message with others of its kind.
    pub(crate) fn may_be_together(&self) -> bool {
        !matches!(self.action, Action::ReadExpiry | Action::Page { .. })
    }

    /// Whether it decides when an object expires. Masters of earlier releases refuse a message with
    /// such an update, so it shares a message only with its like.
    pub(crate) fn decides_expiry(&self) -> bool {
        use Action::{SetExpiry, WriteExpiring, WriteNumberExpiring};
        matches!(self.action, WriteExpiring(..) | WriteNumberExpiring(..) | SetExpiry(_))
    }

    /// Returns the hash by which it is routed.
    pub(crate) fn hash(&self) -> KeyHash {
        match self.action {
            Action::Page { first, .. } => first,
            _ => KeyHash::of(&self.key),
        }
    }

    pub(crate) fn opcode(&self) -> Opcode {
        match self.action {
            Action::Read => Opcode::Read,
            Action::Write(_) => Opcode::Write,
            Action::Delete => Opcode::Delete,
            Action::Increment(_) => Opcode::Increment,
            Action::WriteNumber(_) => Opcode::WriteNumber,
            Action::WriteExpiring(..) | Action::WriteNumberExpiring(..) => Opcode::WriteExpiring,
            Action::SetExpiry(_) => Opcode::SetExpiry,
            Action::ReadExpiry => Opcode::ReadExpiry,
            Action::Page { .. } => Opcode::Enumerate,
        }
    }

    fn head(&self) -> ObjectHead {
        let is_float = matches!(
            self.action,
            Action::Increment(Number::Float(_)) | Action::WriteNumber(Number::Float(_))
        );
        let flags = if is_float { FLOAT } else { 0 };
        ObjectHead::new(self.table, self.key.len(), self.condition, flags)
    }

    /// Returns the body of a request for this operation alone.
    pub(crate) fn body(&self, identity: Identity) -> Vec<u8> {
        if let Action::Page { first, last, cursor } = self.action {
            let range = TabletRange { table: self.table, first, last };
            return EnumerateHead::new(range, cursor, PAGE_BYTES).as_bytes().to_vec();
        }
        let mut body = Vec::with_capacity(48 + self.key.len() + self.argument_bytes());
        if self.is_update() {
            body.extend_from_slice(identity.as_bytes());
        }
        body.extend_from_slice(self.head().as_bytes());
        body.extend_from_slice(&self.key);
        match &self.action {
            Action::Write(value) => body.extend_from_slice(value),
            Action::Increment(number) | Action::WriteNumber(number) => {
                body.extend_from_slice(&number.to_bytes());
            }
            Action::WriteExpiring(..) | Action::WriteNumberExpiring(..) | Action::SetExpiry(_) => {
                body.extend_from_slice(&self.expiring_argument())
            }
            Action::Read | Action::ReadExpiry | Action::Delete | Action::Page { .. } => {}
        }
        body
    }

    /// The argument of an update that decides when an object expires.
    fn expiring_argument(&self) -> Vec<u8> {
        let of_value = |time_to_live: TimeToLive, kind, value: &[u8]| {
            [ExpiringHead::new(time_to_live, kind).as_bytes(), value].concat()
        };
        match &self.action {
            Action::WriteExpiring(value, time) => of_value(*time, ValueKind::Bytes, value),
            Action::WriteNumberExpiring(number, time) => {
                of_value(*time, number.kind(), &number.to_bytes())
            }
            Action::SetExpiry(time) => time.code().to_le_bytes().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Returns about how many bytes its argument takes.
    fn argument_bytes(&self) -> usize {
        match &self.action {
            Action::Write(value) => value.len(),
            Action::WriteExpiring(value, _) => EXPIRING_HEAD_BYTES + value.len(),
            Action::WriteNumberExpiring(..) => EXPIRING_HEAD_BYTES + 8,
            _ => 8,
        }
    }

    /// Appends it to a message of several operations.
    pub(crate) fn put(&self, sequence: Sequence, into: &mut Vec<u8>) {
        let head = &self.head();
        let expiring;
        let (kind, argument) = match &self.action {
            Action::Read | Action::ReadExpiry | Action::Page { .. } => {
                into.extend_from_slice(head.as_bytes());
                return into.extend_from_slice(&self.key);
            }
            Action::Write(value) => (UpdateKind::Write, value.as_slice()),
            Action::Delete => (UpdateKind::Delete, &[][..]),
            Action::Increment(by) => (UpdateKind::Increment, &by.to_bytes()[..]),
            Action::WriteNumber(number) => (UpdateKind::WriteNumber, &number.to_bytes()[..]),
            Action::WriteExpiring(..) | Action::WriteNumberExpiring(..) | Action::SetExpiry(_) => {
                expiring = self.expiring_argument();
                let kind = match self.action {
                    Action::SetExpiry(_) => UpdateKind::SetExpiry,
                    _ => UpdateKind::WriteExpiring,
                };
                (kind, expiring.as_slice())
            }
        };
        UpdatePart { head, kind, key: &self.key, argument }.put(sequence, into);
    }

    /// Returns about how many bytes it takes in a message, and its answer.
    pub(crate) fn bytes(&self) -> usize {
        64 + self.key.len() + self.argument_bytes()
    }

    /// Decodes the answer to this operation alone.
    pub(crate) fn understand(&self, body: &[u8]) -> Result<Answer, Error> {
        if matches!(self.action, Action::Page { .. }) {
            return page(body).ok_or(Error::Incomprehensible);
        }
        let (version, rest) = body.split_first_chunk().ok_or(Error::Incomprehensible)?;
        self.done(Version(u64::from_le_bytes(*version)), rest)
    }

    /// Decodes a part of an answer to several operations: an answer, a final error, or a refusal
    /// after which to try again.
    pub(crate) fn understand_part(
        &self,
        head: &PartHead,
        value: &[u8],
    ) -> Result<Result<Answer, Error>, CallError> {
        match Status::of_code(head.status()) {
            Some(Status::Ok) => Ok(self.done(head.version(), value)),
            Some(status) => self.refused(status, head.version().0),
            None => Ok(Err(Error::Incomprehensible)),
        }
    }

    /// Decodes a refusal: an answer, a final error, or a refusal after which to try again.
    pub(crate) fn refused(
        &self,
        status: Status,
        detail: u64,
    ) -> Result<Result<Answer, Error>, CallError> {
        match status {
            Status::NotFound if !self.is_update() => Ok(Ok(Answer::Absent)),
            Status::ConditionFailed => Ok(Err(Error::ConditionFailed { version: Version(detail) })),
            Status::NotANumber => Ok(Err(Error::NotANumber { version: Version(detail) })),
            status if matches!(status.next(), Next::Refresh | Next::Wait) => {
                Err(CallError::Refused { status, hint: 0, detail })
            }
            status => Ok(Err(Error::Refused(status))),
        }
    }

    fn done(&self, version: Version, rest: &[u8]) -> Result<Answer, Error> {
        Ok(match &self.action {
            Action::Read => Answer::Found { version, value: rest.to_vec() },
            Action::Write(_) | Action::WriteNumber(_) => Answer::Written(version),
            Action::WriteExpiring(..) | Action::WriteNumberExpiring(..) => Answer::Written(version),
            Action::SetExpiry(_) if version == Version::NONE => Answer::Absent,
            Action::SetExpiry(_) => Answer::Written(version),
            Action::ReadExpiry => {
                let code = rest.first_chunk().ok_or(Error::Incomprehensible)?;
                let time_to_live = TimeToLive::of_code(u64::from_le_bytes(*code));
                Answer::Lives { version, time_to_live }
            }
            Action::Delete if version == Version::NONE => Answer::Absent,
            Action::Delete => Answer::Deleted(version),
            Action::Page { .. } => return Err(Error::Incomprehensible),
            Action::Increment(by) => {
                let sum = rest.first_chunk().ok_or(Error::Incomprehensible)?;
                Answer::Sum { version, number: by.like(*sum) }
            }
        })
    }
}

fn page(body: &[u8]) -> Option<Answer> {
    let (head, mut rest) = PageHead::read_from_prefix(body).ok()?;
    let mut objects = Vec::new();
    while !rest.is_empty() {
        let (found, behind) = FoundHead::take(rest)?;
        let (version, kind) = (found.version, found.kind);
        let (key, value) = (found.key.to_vec(), found.value.to_vec());
        objects.push(Object { version, key, kind, value });
        rest = behind;
    }
    Some(Answer::Page { objects, last: head.last(), cursor: head.cursor() })
}
