//! The table of operations: the single source of their numbers, names and properties.
//!
//! Numbers are permanent: a used number is never assigned to another operation.
//!
//! # Levels
//!
//! A server may call another server while it handles a request. If that server in turn waited for
//! the first one, both would deadlock. So every operation has a level, and lists the operations
//! that it calls; each of these must have a lower level. [`check_levels`] finds a table that
//! violates this.

use crate::component::Component;

/// The rule for a request that may or may not have been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Repeat {
    /// Send it again: repeating it changes nothing.
    Safe,
    /// Send it again: the server recognizes it by its identity.
    Identified,
    /// Do not send it again: report the error.
    Never,
}

/// An operation's depth below the clients. It calls only operations of lower levels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Level(pub u8);

macro_rules! opcodes {
    ($($(#[$doc:meta])* $id:ident = $code:literal, $name:literal, $component:ident, level $level:literal, $repeat:ident, calls [$($calls:ident),*];)*) => {
        /// An operation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        #[non_exhaustive]
        pub enum Opcode {
            $($(#[$doc])* $id = $code,)*
        }

        impl Opcode {
            /// All operations.
            pub const ALL: &'static [Opcode] = &[$(Opcode::$id),*];

            /// Returns the operation with a number.
            #[inline]
            #[must_use]
            pub fn of_code(code: u16) -> Option<Opcode> {
                match code {
                    $($code => Some(Opcode::$id),)*
                    _ => None,
                }
            }

            /// Returns the operation's name for people.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$id => $name,)* }
            }

            /// Returns the component that serves it.
            #[must_use]
            pub fn component(self) -> Component {
                match self { $(Opcode::$id => Component::$component,)* }
            }

            /// Returns its level.
            #[must_use]
            pub fn level(self) -> Level {
                match self { $(Opcode::$id => Level($level),)* }
            }

            /// Returns the rule for repeating it.
            #[must_use]
            pub fn repeat(self) -> Repeat {
                match self { $(Opcode::$id => Repeat::$repeat,)* }
            }

            /// Returns the operations that a server calls while it handles this one.
            #[must_use]
            pub fn calls(self) -> &'static [Opcode] {
                match self { $(Opcode::$id => &[$(Opcode::$calls),*],)* }
            }
        }
    };
}

opcodes! {
    /// Answers with nothing, at once: to check that a node is alive.
    Ping = 1, "ping", Node, level 0, Safe, calls [];
    /// Answers with the requested number of bytes.
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
    /// Writes, deletes and increments many objects, each separately.
    UpdateMany = 37, "update many", Shard, level 1, Identified, calls [];
    /// Lists some of the objects of a table.
    Enumerate = 38, "enumerate", Shard, level 1, Safe, calls [];
    /// Writes a number.
    WriteNumber = 39, "write number", Shard, level 1, Identified, calls [];
    /// Writes an object that expires.
    WriteExpiring = 40, "write expiring", Shard, level 1, Identified, calls [];
    /// Changes when an object expires.
    SetExpiry = 41, "set expiry", Shard, level 1, Identified, calls [];
    /// Returns how long an object still lives.
    ReadExpiry = 42, "read expiry", Shard, level 1, Safe, calls [];
    /// Registers a new server and gives it a permanent id.
    Register = 64, "register", Coordinator, level 4, Safe, calls [];
    /// Announces a registered server that has started, in a new generation.
    Enlist = 65, "enlist", Coordinator, level 4, Safe, calls [];
    /// Returns the shard of each tablet.
    Map = 66, "map", Coordinator, level 4, Safe, calls [];
    /// Makes a table.
    CreateTable = 67, "create table", Coordinator, level 4, Never, calls [TakeTablets];
    /// Drops a table.
    DropTable = 68, "drop table", Coordinator, level 4, Never, calls [DropTablets];
    /// Splits a tablet into two.
    SplitTablet = 69, "split tablet", Coordinator, level 4, Safe, calls [];
    /// Moves a tablet to another shard.
    MigrateTablet = 70, "migrate tablet", Coordinator, level 4, Safe, calls [MigrateOut, TakeTablets, DropTablets];
    /// Opens a client's lease.
    OpenLease = 71, "open lease", Coordinator, level 4, Safe, calls [];
    /// Renews a client's lease.
    RenewLease = 72, "renew lease", Coordinator, level 4, Safe, calls [];
    /// Closes a client's lease.
    CloseLease = 73, "close lease", Coordinator, level 4, Safe, calls [];
    /// Returns which of the given clients' leases have expired.
    CheckLeases = 74, "check leases", Coordinator, level 4, Safe, calls [];
    /// Lists the servers.
    ServerList = 75, "server list", Coordinator, level 4, Safe, calls [];
    /// Describes the cluster's state.
    ClusterStatus = 76, "cluster status", Coordinator, level 4, Safe, calls [];
    /// Records the epoch of a master's head that has lost a replica.
    RaiseEpoch = 77, "raise epoch", Coordinator, level 4, Safe, calls [];
    /// Reports that a shard has rebuilt tablets of a crashed shard.
    Recovered = 78, "recovered", Coordinator, level 4, Safe, calls [];
    /// Reports that another server has not answered.
    Suspect = 79, "suspect", Coordinator, level 4, Safe, calls [Probe];
    /// Changes the settings that can change in a running cluster.
    ChangeSettings = 84, "change settings", Coordinator, level 4, Safe, calls [];
    /// Asks whether the calling master was declared crashed.
    ConfirmMaster = 85, "confirm master", Coordinator, level 4, Safe, calls [];
    /// Makes the cluster forget a server that will not restart.
    ForgetServer = 90, "forget server", Coordinator, level 4, Safe, calls [];
    /// Makes a table with options.
    CreateTableWithOptions = 91, "create table with options", Coordinator, level 4, Never, calls [TakeTablets];
    /// Sends a process the list of servers.
    ServersChanged = 96, "servers changed", Membership, level 0, Safe, calls [];
    /// Gives tablets to a shard: new ones, or tablets that it has prepared.
    TakeTablets = 97, "take tablets", ShardControl, level 2, Safe, calls [];
    /// Takes tablets from a shard.
    DropTablets = 98, "drop tablets", ShardControl, level 2, Safe, calls [];
    /// Makes a shard rebuild the tablets of a crashed shard. Answered when it has begun.
    Recover = 99, "recover", ShardControl, level 2, Safe, calls [];
    /// Makes a shard copy a tablet to another shard.
    MigrateOut = 100, "migrate out", ShardControl, level 3, Safe, calls [MigrateIn];
    /// Delivers entries of a tablet that is moving to this shard.
    MigrateIn = 101, "migrate in", ShardControl, level 2, Safe, calls [];
    /// Describes a shard's state.
    ShardStatus = 102, "shard status", ShardControl, level 0, Safe, calls [];
    /// Asks whether this server is alive, in this generation.
    Probe = 103, "probe", Membership, level 0, Safe, calls [];
    /// Returns the address at which a shard's door takes the connections of other servers' doors.
    FindDoor = 104, "find door", Membership, level 0, Safe, calls [];
    /// Opens, extends, closes and frees replicas.
    Replicate = 112, "replicate", Backup, level 0, Safe, calls [];
    /// Lists the replicas of a master on this backup.
    Inventory = 113, "inventory", Backup, level 0, Safe, calls [];
    /// Reads a piece of a replica.
    ReadReplica = 114, "read replica", Backup, level 0, Safe, calls [];
    /// Frees all replicas of a crashed and recovered master.
    FreeMaster = 115, "free master", Backup, level 0, Safe, calls [];
    /// Describes a backup's state.
    BackupStatus = 116, "backup status", Backup, level 0, Safe, calls [];
    /// Returns the contents of an open replica that describe its log: the last digest and the
    /// tablet statistics.
    HeadOf = 117, "head of", Backup, level 0, Safe, calls [];
    /// Makes a backup read replicas of a crashed master and cut them by partitions.
    BeginRecovery = 118, "begin recovery", Backup, level 0, Safe, calls [];
    /// Reads a piece of a partition's entries in a replica.
    RecoveryData = 119, "recovery data", Backup, level 0, Safe, calls [];
    /// Frees the superfluous replicas of a master whose log was taken back.
    FreeRest = 120, "free rest", Backup, level 0, Safe, calls [];
    /// Lists the masters that have replicas on a backup.
    MastersHere = 126, "masters here", Backup, level 0, Safe, calls [];
}

impl Opcode {
    /// Whether only a coordinator sends it, to have something done. Its body then begins with the
    /// leadership that sends it ([`CommandHeader`](thunderhead_wire::command::CommandHeader)).
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

    /// Returns the number that goes over the wire.
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

/// Checks that every operation calls only operations of lower levels. Then none can wait for
/// itself.
///
/// # Errors
/// The first operation that violates this, and the operation that it calls.
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
    fn requests_of_servers_and_clients_are_no_commands() {
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
    fn numbers_and_names_are_unique_and_permanent() {
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
            (39, "write number"),
            (40, "write expiring"),
            (41, "set expiry"),
            (42, "read expiry"),
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
            (91, "create table with options"),
            (96, "servers changed"),
            (97, "take tablets"),
            (98, "drop tablets"),
            (99, "recover"),
            (100, "migrate out"),
            (101, "migrate in"),
            (102, "shard status"),
            (103, "probe"),
            (104, "find door"),
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
