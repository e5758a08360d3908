//! What can be asked for, and what is answered.

use crate::error::Error;
use thunderhead_rpc::{CallError, Opcode};
use thunderhead_wire::operations::{
    EnumerateHead, FLOAT, FoundHead, Identity, ObjectHead, PageHead, PartHead, UpdateKind,
    UpdatePart,
};
use thunderhead_wire::{
    Condition, KeyHash, Next, Status, TableId, TabletRange, ValueKind, Version,
};
use zerocopy::{FromBytes, IntoBytes};

/// A number to write or to add, and the number that comes of it.
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

    /// The number in a value of a kind, if it is one: what increments count with.
    #[must_use]
    pub fn of_value(kind: ValueKind, value: &[u8]) -> Option<Number> {
        let bytes = value.try_into().ok()?;
        match kind {
            ValueKind::Bytes => None,
            ValueKind::Integer => Some(Number::Integer(i64::from_le_bytes(bytes))),
            ValueKind::Float => Some(Number::Float(f64::from_le_bytes(bytes))),
        }
    }

    /// The number of the same kind with these bytes.
    fn like(self, bytes: [u8; 8]) -> Number {
        match self {
            Number::Integer(_) => Number::Integer(i64::from_le_bytes(bytes)),
            Number::Float(_) => Number::Float(f64::from_le_bytes(bytes)),
        }
    }
}

/// What to do with one object.
#[derive(Clone, Debug, PartialEq)]
pub struct Operation {
    /// The table.
    pub table: TableId,
    /// The key.
    pub key: Vec<u8>,
    /// When to go ahead.
    pub condition: Condition,
    /// What to do.
    pub action: Action,
}

/// What to do with an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Read it.
    Read,
    /// Write this value.
    Write(Vec<u8>),
    /// Delete it.
    Delete,
    /// Add this to it; what does not exist counts as 0. What was written as bytes, or is a number of the other kind, is
    /// refused.
    Increment(Number),
    /// Write this number. Reads return its 8 bytes, little-endian.
    WriteNumber(Number),
    /// Not with one object: tell of some whose keys hash into a range, from a cursor on. The
    /// operation's key is not looked at.
    Page {
        /// The first hash.
        first: KeyHash,
        /// The last hash.
        last: KeyHash,
        /// 0 to begin with.
        cursor: u64,
    },
}

/// What came of an operation.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// It was read.
    Found {
        /// Its version.
        version: Version,
        /// Its value.
        value: Vec<u8>,
    },
    /// There is no such object, to be read or deleted.
    Absent,
    /// It was written, and has this version now.
    Written(Version),
    /// It was deleted; this was its version.
    Deleted(Version),
    /// It was incremented.
    Sum {
        /// Its version now.
        version: Version,
        /// Its value now.
        number: Number,
    },
    /// Some objects.
    Page {
        /// Version, key and value of each.
        objects: Vec<Object>,
        /// The last hash that this page and those after it are about; another tablet has the rest.
        last: KeyHash,
        /// Where to go on up to that hash, if there is more.
        cursor: Option<u64>,
    },
}

/// The version and the value of an object.
pub type Value = (Version, Vec<u8>);

/// An object that an enumeration tells of.
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
    /// The number that it is, if it is one.
    #[must_use]
    pub fn number(&self) -> Option<Number> {
        Number::of_value(self.kind, &self.value)
    }
}

/// Bytes of objects in a page, about.
const PAGE_BYTES: u32 = 64 << 10;

impl Operation {
    pub(crate) fn is_update(&self) -> bool {
        !matches!(self.action, Action::Read | Action::Page { .. })
    }

    /// Whether it may be sent together with others of its kind.
    pub(crate) fn may_be_together(&self) -> bool {
        !matches!(self.action, Action::Page { .. })
    }

    /// What says where it belongs.
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

    /// The body of a request for it alone.
    pub(crate) fn body(&self, identity: Identity) -> Vec<u8> {
        if let Action::Page { first, last, cursor } = self.action {
            let range = TabletRange { table: self.table, first, last };
            return EnumerateHead::new(range, cursor, PAGE_BYTES).as_bytes().to_vec();
        }
        let value = match &self.action {
            Action::Write(value) => value.len(),
            _ => 8,
        };
        let mut body = Vec::with_capacity(48 + self.key.len() + value);
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
            Action::Read | Action::Delete | Action::Page { .. } => {}
        }
        body
    }

    /// Puts it behind others of its kind; bytes about that it adds.
    pub(crate) fn put(&self, sequence: u64, into: &mut Vec<u8>) {
        let head = &self.head();
        let (kind, argument) = match &self.action {
            Action::Read | Action::Page { .. } => {
                into.extend_from_slice(head.as_bytes());
                return into.extend_from_slice(&self.key);
            }
            Action::Write(value) => (UpdateKind::Write, value.as_slice()),
            Action::Delete => (UpdateKind::Delete, &[][..]),
            Action::Increment(by) => (UpdateKind::Increment, &by.to_bytes()[..]),
            Action::WriteNumber(number) => (UpdateKind::WriteNumber, &number.to_bytes()[..]),
        };
        UpdatePart { head, kind, key: &self.key, argument }.put(sequence, into);
    }

    /// Bytes about that it takes in a message, and its answer.
    pub(crate) fn bytes(&self) -> usize {
        let value = match &self.action {
            Action::Write(value) => value.len(),
            _ => 8,
        };
        64 + self.key.len() + value
    }

    /// What the answer to it alone says.
    pub(crate) fn understand(&self, body: &[u8]) -> Result<Answer, Error> {
        if matches!(self.action, Action::Page { .. }) {
            return page(body).ok_or(Error::Incomprehensible);
        }
        let (version, rest) = body.split_first_chunk().ok_or(Error::Incomprehensible)?;
        self.done(Version(u64::from_le_bytes(*version)), rest)
    }

    /// What a part of an answer to many says: an answer, a final error, or something to be tried
    /// again.
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

    /// What a refusal means: an answer, a final error, or something to be tried again.
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
