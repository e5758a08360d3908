//! The faults of the swarm, with their weights. The rows stand in the order of the random numbers
//! that draw them: a seed gives the same run only as long as the rows and their order stay.

use thunderhead_testkit::Weighted;

/// A fault of a seed.
#[derive(Clone, Copy)]
pub(super) enum Fault {
    Kill,
    /// Many servers crash at once.
    KillMany,
    StopAtDiskOperation,
    StopAtSend,
    /// The server is asked to end, and restarts.
    Leave,
    CrashCoordinator,
    CrashUser,
    Pause,
    CutFromStore,
    StopStore,
    BlockOrSlowLinks,
    SlowDisk,
    Drift,
    /// The clock jumps, or the leader declares a server crashed that may be well.
    JumpOrVerdict,
}

pub(super) const FAULTS: Weighted<Fault> = Weighted(&[
    (3, Fault::Kill),
    (1, Fault::KillMany),
    (1, Fault::StopAtDiskOperation),
    (1, Fault::StopAtSend),
    (1, Fault::Leave),
    (1, Fault::CrashCoordinator),
    (1, Fault::CrashUser),
    (2, Fault::Pause),
    (1, Fault::CutFromStore),
    (1, Fault::StopStore),
    (2, Fault::BlockOrSlowLinks),
    (1, Fault::SlowDisk),
    (1, Fault::Drift),
    (1, Fault::JumpOrVerdict),
]);

/// A fault for which a server is declared crashed.
#[derive(Clone, Copy)]
pub(super) enum Ending {
    Stop,
    /// Another server crashes soon after: mostly a recovery master, or a backup that is read.
    StopTwo,
    /// The leader, which would recover the server, crashes too.
    StopWithLeader,
    Pause,
    /// Other servers do not hear it. Its coordinator may, or does not either.
    Mute,
    Weaken,
    Zombie,
    LeaveAlone,
    LoseAnswers,
    UnheardVerdict,
    LoseLeaderHalfWay,
    OtherRots,
    SlowLinks,
    ChangeDemand,
}

pub(super) const ENDINGS: Weighted<Ending> = Weighted(&[
    (1, Ending::Stop),
    (1, Ending::StopTwo),
    (1, Ending::StopWithLeader),
    (1, Ending::Pause),
    (1, Ending::Mute),
    (1, Ending::Weaken),
    (2, Ending::Zombie),
    (2, Ending::LeaveAlone),
    (2, Ending::LoseAnswers),
    (2, Ending::UnheardVerdict),
    (2, Ending::LoseLeaderHalfWay),
    (1, Ending::OtherRots),
    (3, Ending::SlowLinks),
    (2, Ending::ChangeDemand),
]);
