//! The table of operations: the single source of their numbers, names and properties.
//!
//! Numbers are for ever: one that was used is never given to something else.
//!
//! # Levels
//!
//! A server that waits for another one's answer while it answers a request may be waited for by
//! that one in turn: a deadlock. So every operation has a level, and says which operations it
//! calls; each of these must be of a lower level. [`check_levels`] finds a table that breaks this.

/// Which part of a program answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServiceKind {
    /// Every node.
    Node,
    /// The echo service, for measuring.
    Echo,
    /// The toy register, for testing the stack.
    Register,
    /// A shard: tables' objects.
    Shard,
}

/// What may be done about a request of which nobody knows whether it was carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Send it again: twice is as good as once.
    Safe,
    /// Send it again: it carries an identity by which the server knows it.
    Identified,
    /// Nothing: report it.
    Never,
}

/// How deep below the clients an operation stands; it calls only lower ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

macro_rules! opcodes {
    ($($(#[$doc:meta])* $id:ident = $code:literal, $name:literal, $service:ident, level $level:literal, $repeat:ident, calls [$($calls:ident),*];)*) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Opcode {
            $($(#[$doc])* $id = $code,)*
        }

        impl Opcode {
            /// All of them.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$id),*];

            /// The operation with a number.
            #[inline]
            #[must_use]
            pub fn of_code(code: u16) -> Option<Opcode> {
                match code {
                    $($code => Some(Opcode::$id),)*
                    _ => None,
                }
            }

            /// What people call it.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$id => $name,)* }
            }

            /// Who answers it.
            #[must_use]
            pub fn service(self) -> ServiceKind {
                match self { $(Opcode::$id => ServiceKind::$service,)* }
            }

            /// Its level.
            #[must_use]
            pub fn level(self) -> Level {
                match self { $(Opcode::$id => Level($level),)* }
            }

            /// Whether it may be repeated.
            #[must_use]
            pub fn repeat(self) -> Repeat {
                match self { $(Opcode::$id => Repeat::$repeat,)* }
            }

            /// What a server calls while it answers it.
            #[must_use]
            pub fn calls(self) -> &'static [Opcode] {
                match self { $(Opcode::$id => &[$(Opcode::$calls),*],)* }
            }
        }
    };
}

opcodes! {
    /// Answers with nothing, as soon as it can: is anybody there?
    Ping = 1, "ping", Node, level 0, Safe, calls [];
    /// Answers with as many bytes as were asked for.
    Echo = 2, "echo", Echo, level 0, Safe, calls [];
    /// Reads a register.
    RegisterRead = 16, "register read", Register, level 0, Safe, calls [];
    /// Writes, deletes or increments a register.
    RegisterUpdate = 17, "register update", Register, level 0, Identified, calls [];
    /// Reads an object.
    Read = 32, "read", Shard, level 1, Safe, calls [];
    /// Writes an object.
    Write = 33, "write", Shard, level 1, Identified, calls [];
    /// Deletes an object.
    Delete = 34, "delete", Shard, level 1, Identified, calls [];
    /// Adds to a number.
    Increment = 35, "increment", Shard, level 1, Identified, calls [];
    /// Reads many objects.
    ReadMany = 36, "read many", Shard, level 1, Safe, calls [];
    /// Writes, deletes and increments many objects, each by itself.
    UpdateMany = 37, "update many", Shard, level 1, Identified, calls [];
    /// Tells of some of the objects of a table.
    Enumerate = 38, "enumerate", Shard, level 1, Safe, calls [];
}

impl Opcode {
    /// The number that goes over the wire.
    #[inline]
    #[must_use]
    pub fn code(self) -> u16 {
        self as u16
    }
}

impl std::fmt::Display for Opcode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// Checks that every operation calls only lower ones; then none can wait for itself.
///
/// # Errors
/// The first operation that does not, and what it calls.
pub fn check_levels<T: Copy>(
    table: &[T],
    level: impl Fn(T) -> Level,
    calls: impl Fn(T) -> Vec<T>,
) -> Result<(), (T, T)> {
    for operation in table {
        let wrong =
            calls(*operation).into_iter().find(|called| level(*called) >= level(*operation));
        if let Some(called) = wrong {
            return Err((*operation, called));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_operation_can_wait_for_itself() {
        let checked = check_levels(Opcode::ALL, Opcode::level, |it| it.calls().to_vec());
        assert_eq!(checked, Ok(()));
    }

    #[test]
    fn a_table_with_a_cycle_is_found() {
        let levels = [0u8, 1, 2];
        let calls = [vec![2], vec![0], vec![1, 0]];
        let checked = check_levels(&[0usize, 1, 2], |it| Level(levels[it]), |it| calls[it].clone());
        assert_eq!(checked, Err((0, 2)));
    }

    #[test]
    fn numbers_and_names_are_unique_and_for_ever() {
        let golden = [
            (1, "ping"),
            (2, "echo"),
            (16, "register read"),
            (17, "register update"),
            (32, "read"),
            (33, "write"),
            (34, "delete"),
            (35, "increment"),
            (36, "read many"),
            (37, "update many"),
            (38, "enumerate"),
        ];
        let table: Vec<_> = Opcode::ALL.iter().map(|it| (it.code(), it.name())).collect();
        assert_eq!(table, golden, "new operations are added here too");
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::of_code(opcode.code()), Some(*opcode));
        }
        assert_eq!(Opcode::of_code(0), None);
    }
}
