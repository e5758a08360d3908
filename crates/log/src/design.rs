//! Why the log is right: arguments that span several files, for readers of the code.

/// Why a folded log never resurrects an object.
///
/// # What must hold
///
/// Replaying any complete set of a log's segments, in any order, must give the live objects and
/// nothing else. Replay takes the newest version of each key, unless a tombstone of that version
/// or a later one is met. So for every *dead* version that a recovery can still read, it must also
/// be able to read a record that kills it: a newer version of the key, or a tombstone for that
/// version or a later one.
///
/// What a recovery can read is the **durable log**: the segments named by the newest durable
/// digest, with the bytes that backups have of them. Memory may have dropped an entry long since;
/// its segment on the backups still has it.
///
/// # Guards
///
/// Call an entry a *guard* of segment `S` for version `d` of a key when it kills versions up to
/// `d` or later ones and its `prior` is `S`. The log keeps this invariant:
///
/// > For every dead version `d` of a key in a segment `S` of the durable log, the durable log
/// > holds a guard of `S` for `d`, or a newer version that is itself alive.
///
/// The invariant gives what must hold, for a guard kills what it guards against.
///
/// 1. **A version dies** when a newer one is appended (its `prior` is the segment where the old
///    version was at that moment: the reactor swaps the index from just that place, and tries
///    again with the new segment's id if a cleaner was faster), or by a delete (the tombstone's
///    `prior` is likewise where the object was). Either record is a guard as required. Until it is
///    durable the old version is not dead as far as a recovery is concerned.
/// 2. **A cleaner drops a dead object** `v`, which was itself a guard of its `prior` segment `P`.
///    If `P` is not known to be out of the durable log, a residual tombstone with the same
///    `version` and the same `prior` takes its place: a guard of `P` for all that `v` guarded
///    against. Combined cleaning writes it to a survivor, which enters the durable log by the very
///    digest that takes the cleaned segment out. Compaction keeps it in memory, for the day the
///    segment is cleaned; on the backups `v` itself is still there.
/// 3. **A cleaner drops a tombstone** only when its `prior` is known to be out of the durable log:
///    then there is nothing left in that segment to guard against. The same holds where `prior` is
///    among the segments of its own pass: the digest that takes the guard's segment out takes that
///    one out too, and whoever still reads an older digest reads the guard's segment with it.
/// 4. **A cleaner moves a version** from `S` to a survivor `S'`. While both are readable they hold
///    the same version twice. If it dies then, its guard names `S'`. The copy in `S` needs one too:
///    `S` leaves the durable log by the digest that brings `S'` in, and `S'` counts as present
///    from the moment its id is taken, so a guard of `S'` cannot be dropped before `S` is gone.
/// 5. **The copy that lost the race.** When the reactor replaces an object after a cleaner has
///    copied it, the index refuses the copy, and the dead version would lie in `S'` with a guard
///    that names `S`. So the copy is changed in place before anyone can read it: to a residual
///    tombstone if one is needed, else to bytes without meaning.
///
/// # Spent segments
///
/// A segment is *spent*, and leaves the durable log with nothing in its place and no look at its entries, when by the
/// rules above a look would find nothing to copy and nothing to leave. That is told from three numbers:
///
/// - **Nothing in it is alive.** An object or a record is alive until the reactor marks it dead and then counts its
///   bytes, once, in the segment where it is. All other bytes are counted as *idle* by whoever puts them there:
///   header, digests, fillings, tombstones, copies that lost their race. So once dead and idle bytes are as many
///   as there are bytes every object and record is marked, and stays so. What is not counted (entries of a tablet
///   that was dropped, an adopted segment's own) keeps a segment from being spent, no more.
/// - **Nothing in it guards.** The lowest and the highest id that a `prior` in it says are kept with it
///   (`named.rs`), and none from the one to the other is present, but for those of its own pass.
///   What is gone when an object is moved is left out: it never comes back. So is what leaves with the pass that moves
///   it: whoever can read the survivor's digest has that one gone, and no cleaner gets the survivor before.
///   Then 2. and 3. have every one of its entries dropped. (The highest may be above its own id: a head names
///   survivors that are made while it is open.)
///
/// Its pass waits for the head as any other does, for the killers of what was in it.
///
/// # Judging what is gone
///
/// "Known to be out of the durable log" errs on the side of presence. The reactor publishes a set
/// of the segments that are named by the newest digest written, or still by the newest durable
/// one, or are survivors that no digest names yet; and a horizon, below every id that a cleaner
/// may have taken without having reported it. An id at or above the horizon counts as present.
/// A segment once gone never comes back, so an older set is merely more cautious.
///
/// A log may be taken back by the next life of its shard ([`Rebuild::adopt`](crate::Rebuild::adopt)). If the process
/// ended between 4. and the digest that would have named `S'`, nobody has told the next life of `S'`: its id is one of those
/// that are in no digest, like all that are gone, and yet `S` is there, with a guard that names `S'`. So each digest says
/// from which id on there may be such survivors ([`Unnamed`](crate::Unnamed)), and these count as present for as
/// long as any segment with a lower id is part of the log: `S`, which `S'` was made of, has one.
///
/// # Durability of the killer
///
/// A cleaner drops an object because the index says that a newer version exists. That version may
/// not be durable yet. If the digest that drops the object's segment became durable first, a crash
/// would lose both versions. Hence a pass of combined cleaning is taken into a digest only after
/// everything that was appended before the pass was received is durable.
///
/// # The classic scheme
///
/// With [`Tombstones::Classic`](crate::Tombstones::Classic) an overwrite appends the new version
/// without `prior` and then a tombstone for the old one, in this order: a crash between the two
/// leaves a log in which the newer version still kills the older.
pub mod tombstones {}
