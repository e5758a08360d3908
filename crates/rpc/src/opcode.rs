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
    /// The coordinator: what the cluster is made of.
    Coordinator,
    /// A shard, told by the coordinator or by another shard what it is to have.
    ShardControl,
    /// Every process of the cluster: who else there is.
    Membership,
    /// A backup: replicas of segments.
    Backup,
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
    /// Makes a server known, for good: it gets an id.
    Register = 64, "register", Coordinator, level 4, Safe, calls [];
    /// A registered server is there, in a new life.
    Enlist = 65, "enlist", Coordinator, level 4, Safe, calls [];
    /// Tells which shard has which tablet.
    Map = 66, "map", Coordinator, level 4, Safe, calls [];
    /// Makes a table.
    CreateTable = 67, "create table", Coordinator, level 4, Never, calls [TakeTablets];
    /// Does away with a table.
    DropTable = 68, "drop table", Coordinator, level 4, Never, calls [DropTablets];
    /// Makes two tablets of one.
    SplitTablet = 69, "split tablet", Coordinator, level 4, Safe, calls [];
    /// Moves a tablet to another shard.
    MigrateTablet = 70, "migrate tablet", Coordinator, level 4, Safe, calls [MigrateOut, TakeTablets, DropTablets];
    /// A client begins.
    OpenLease = 71, "open lease", Coordinator, level 4, Safe, calls [];
    /// A client is still there.
    RenewLease = 72, "renew lease", Coordinator, level 4, Safe, calls [];
    /// A client is done.
    CloseLease = 73, "close lease", Coordinator, level 4, Safe, calls [];
    /// Tells which clients' leases are over.
    CheckLeases = 74, "check leases", Coordinator, level 4, Safe, calls [];
    /// Tells who there is.
    ServerList = 75, "server list", Coordinator, level 4, Safe, calls [];
    /// Tells how the cluster is.
    ClusterStatus = 76, "cluster status", Coordinator, level 4, Safe, calls [];
    /// A master notes the epoch of a head of which it lost a replica.
    RaiseEpoch = 77, "raise epoch", Coordinator, level 4, Safe, calls [];
    /// A shard has rebuilt tablets of one that is gone.
    Recovered = 78, "recovered", Coordinator, level 4, Safe, calls [];
    /// A server has had no answer from another one.
    Suspect = 79, "suspect", Coordinator, level 4, Safe, calls [Probe];
    /// Changes what may change in a cluster that runs.
    ChangeSettings = 84, "change settings", Coordinator, level 4, Safe, calls [];
    /// A master asks whether it was declared crashed.
    ConfirmMaster = 85, "confirm master", Coordinator, level 4, Safe, calls [];
    /// Has the cluster forget a server that does not come again.
    ForgetServer = 90, "forget server", Coordinator, level 4, Safe, calls [];
    /// Tells a process who there is.
    ServersChanged = 96, "servers changed", Membership, level 0, Safe, calls [];
    /// Gives tablets to a shard: new ones, or such as it was told to prepare.
    TakeTablets = 97, "take tablets", ShardControl, level 2, Safe, calls [];
    /// Takes tablets from a shard.
    DropTablets = 98, "drop tablets", ShardControl, level 2, Safe, calls [];
    /// Has a shard rebuild the tablets of one that is gone. Answered when it has begun.
    Recover = 99, "recover", ShardControl, level 2, Safe, calls [];
    /// Has a shard copy a tablet to another one.
    MigrateOut = 100, "migrate out", ShardControl, level 3, Safe, calls [MigrateIn];
    /// What another shard has of a tablet that is moving here.
    MigrateIn = 101, "migrate in", ShardControl, level 2, Safe, calls [];
    /// Tells how a shard is.
    ShardStatus = 102, "shard status", ShardControl, level 0, Safe, calls [];
    /// Is this server there, in this life?
    Probe = 103, "probe", Membership, level 0, Safe, calls [];
    /// Opens, extends, closes and frees replicas.
    Replicate = 112, "replicate", Backup, level 0, Safe, calls [];
    /// Tells which replicas of a master are here.
    Inventory = 113, "inventory", Backup, level 0, Safe, calls [];
    /// Reads a piece of a replica.
    ReadReplica = 114, "read replica", Backup, level 0, Safe, calls [];
    /// Frees all replicas of a master that is gone and recovered.
    FreeMaster = 115, "free master", Backup, level 0, Safe, calls [];
    /// Tells how a backup is.
    BackupStatus = 116, "backup status", Backup, level 0, Safe, calls [];
    /// Tells what an open replica says of its log: the last digest, and what the tablets held.
    HeadOf = 117, "head of", Backup, level 0, Safe, calls [];
    /// Has a backup read replicas of a master that is gone and cut them by partitions.
    BeginRecovery = 118, "begin recovery", Backup, level 0, Safe, calls [];
    /// Reads a piece of what a partition has in a replica.
    RecoveryData = 119, "recovery data", Backup, level 0, Safe, calls [];
    /// Frees what nobody needs of a master whose log was taken back.
    FreeRest = 120, "free rest", Backup, level 0, Safe, calls [];
    /// Tells which masters a backup has replicas of.
    MastersHere = 126, "masters here", Backup, level 0, Safe, calls [];
}

impl Opcode {
    /// Whether only a coordinator asks for it, and has something done by it: its body begins with the
    /// leadership that it comes from ([`Leadership`](thunderhead_wire::leadership::Leadership)).
    #[must_use]
    pub fn is_command(self) -> bool {
        use Opcode::{
            BeginRecovery, DropTablets, FreeMaster, FreeRest, HeadOf, Inventory, MigrateOut,
            Recover, ServersChanged, TakeTablets,
        };
        matches!(
            self,
            ServersChanged
                | TakeTablets
                | DropTablets
                | Recover
                | MigrateOut
                | Inventory
                | HeadOf
                | BeginRecovery
                | FreeMaster
                | FreeRest
        )
    }

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
    fn what_servers_and_clients_ask_each_other_is_no_command() {
        let commands = Opcode::ALL.iter().filter(|it| it.is_command());
        let codes: Vec<u16> = commands.map(|it| it.code()).collect();
        assert_eq!(codes, [96, 97, 98, 99, 100, 113, 115, 117, 118, 120]);
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
            (64, "register"),
            (65, "enlist"),
            (66, "map"),
            (67, "create table"),
            (68, "drop table"),
            (69, "split tablet"),
            (70, "migrate tablet"),
            (71, "open lease"),
            (72, "renew lease"),
            (73, "close lease"),
            (74, "check leases"),
            (75, "server list"),
            (76, "cluster status"),
            (77, "raise epoch"),
            (78, "recovered"),
            (79, "suspect"),
            (84, "change settings"),
            (85, "confirm master"),
            (90, "forget server"),
            (96, "servers changed"),
            (97, "take tablets"),
            (98, "drop tablets"),
            (99, "recover"),
            (100, "migrate out"),
            (101, "migrate in"),
            (102, "shard status"),
            (103, "probe"),
            (112, "replicate"),
            (113, "inventory"),
            (114, "read replica"),
            (115, "free master"),
            (116, "backup status"),
            (117, "head of"),
            (118, "begin recovery"),
            (119, "recovery data"),
            (120, "free rest"),
            (126, "masters here"),
        ];
        let table: Vec<_> = Opcode::ALL.iter().map(|it| (it.code(), it.name())).collect();
        assert_eq!(table, golden, "new operations are added here too");
        for opcode in Opcode::ALL {
            assert_eq!(Opcode::of_code(opcode.code()), Some(*opcode));
        }
        assert_eq!(Opcode::of_code(0), None);
    }
}
