//! Why the log is correct: arguments that span several files, for readers of the code.

/// Why a folded log never resurrects an object.
///
/// # The requirement
///
/// Replaying any complete set of a log's segments, in any order, must give exactly the live
/// objects. Replay takes the newest version of each key, unless it meets a tombstone of that
/// version or a later one. So for every *dead* version that a recovery can still read, the recovery
/// must also be able to read a record that kills it: a newer version of the key, or a tombstone for
/// that version or a later one.
///
/// A recovery can read the **durable log**: the segments named by the newest durable digest, with
/// the bytes that backups have of them. An entry may have left memory long ago; its segment on the
/// backups still has it.
///
/// # Guards
///
/// Call an entry a *guard* of segment `S` for version `d` of a key when it kills versions up to
/// `d` or later ones and its `prior` is `S`. The log keeps this invariant:
///
/// > For every dead version `d` of a key in a segment `S` of the durable log, the durable log
/// > holds a guard of `S` for `d`, or a newer version that is itself alive.
///
/// The invariant implies the requirement, because a guard kills the version that it guards against.
///
/// 1. **A version dies** when a newer one is appended, or by a delete. The newer version's `prior`
///    is the segment where the old version was at that moment: the reactor swaps the index from
///    exactly that place, and tries again with the new segment's id if a cleaner moved the old
///    version first. The tombstone's `prior` is likewise the segment of the object. Either record
///    is a guard as required. Until the record is durable, a recovery does not regard the old
///    version as dead.
/// 2. **A cleaner drops a dead object** `v`, which was itself a guard of its `prior` segment `P`.
///    If `P` is not known to be out of the durable log, a residual tombstone with the same
///    `version` and the same `prior` takes its place: a guard of `P` for every version that `v`
///    guarded against. Combined cleaning writes it to a survivor, which enters the durable log by
///    the very digest that takes the cleaned segment out. Compaction keeps it in memory until the
///    segment is cleaned; on the backups `v` itself is still there.
/// 3. **A cleaner drops a tombstone** only when its `prior` is known to be out of the durable log:
///    then that segment has nothing left to guard against. The same holds if `prior` is among the
///    segments of the cleaner's own pass: the digest that takes the guard's segment out takes that
///    one out too, and a recovery that still reads an older digest also reads the guard's segment.
/// 4. **A cleaner moves a version** from `S` to a survivor `S'`. While both are readable they hold
///    the same version twice. If the version dies then, its guard names `S'`. The copy in `S` needs
///    a guard too. It has one: `S` leaves the durable log by the digest that brings `S'` in, and
///    `S'` counts as present from the moment its id is taken, so a guard of `S'` cannot be dropped
///    before `S` has left.
/// 5. **A copy that lost the race.** The reactor may replace an object after a cleaner has copied
///    it. Then the index refuses the copy, and the dead version would lie in `S'` while its guard
///    names `S`. So the cleaner changes the copy in place before any reader can see it: to a
///    residual tombstone if one is needed, else to a filling.
///
/// # Spent segments
///
/// A segment is *spent* if, by the rules above, a scan of its entries would find nothing to copy
/// and nothing to leave. It leaves the durable log with nothing in its place, and its entries are
/// not scanned. Three numbers tell that a segment is spent:
///
/// - **Nothing in it is alive.** An object or a completion record is alive until the reactor marks
///   it dead; the reactor then counts its bytes, once, in the segment where it is. All other bytes
///   are counted as *idle* when they are written: header, digests, fillings, tombstones, copies
///   that lost their race. So once dead and idle bytes together equal the segment's length, every
///   object and record is marked dead, and stays so. Some dead entries are not counted (those of a
///   dropped tablet, and an adopted segment's own). That only keeps the segment from being spent.
/// - **Nothing in it guards.** The segment keeps the lowest and the highest id that a `prior` in it
///   names (`memory/prior_span.rs`). No id from the lowest to the highest is present, except those
///   of the segment's own pass. A `prior` that has already left the durable log when its entry is
///   moved is not counted: it never comes back. Neither is a `prior` that leaves with the pass that
///   moves the entry: a recovery that can read the survivor's digest does not read that segment,
///   and no cleaner gets the survivor before. Then rules 2 and 3 drop every entry of the segment.
///   (The highest id may be above the segment's own: a head names survivors that are made while it
///   is open.)
///
/// Its pass waits for the head as any other does, because the records that killed its entries must
/// be durable first.
///
/// # Judging which segments have left
///
/// "Known to be out of the durable log" errs on the side of presence. The reactor publishes two
/// things. The first is a set of segments: the ones in the newest written digest, the ones in the
/// newest durable digest, and survivors that no digest names yet. The second is a horizon, below
/// every id that a cleaner may have taken without having reported it. An id at or above the horizon
/// counts as present. A segment that has left the durable log never comes back, so an older set is
/// merely more cautious.
///
/// The next generation of a shard may take back its log
/// ([`Rebuild::adopt`](crate::Rebuild::adopt)). Suppose the process ended between 4. and the digest
/// that would have named `S'`. Then no record tells the next generation about `S'`: its id is in no
/// digest, like the ids of all segments that have left the log. Yet `S` is there, with a guard that
/// names `S'`. So each digest says from which id on there may be such survivors
/// ([`UnnamedSurvivors`](crate::UnnamedSurvivors)). These count as present as long as any segment
/// with a lower id is part of the log: `S`, from which `S'` was made, has a lower id.
///
/// # Durability of the killer
///
/// A cleaner drops an object because the index says that a newer version exists. That version may
/// not be durable yet. If the digest that drops the object's segment became durable first, a crash
/// would lose both versions. Hence a digest takes in a pass of combined cleaning only after
/// everything that was appended before the pass was received is durable.
///
/// # The classic scheme
///
/// With [`Tombstones::Classic`](crate::Tombstones::Classic) an overwrite appends the new version
/// without `prior` and then a tombstone for the old one, in this order: a crash between the two
/// leaves a log in which the newer version still kills the older.
pub mod tombstones {}
