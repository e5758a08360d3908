// Package thunderhead is the Go client of Thunderhead, a durable key-value store in memory in which
// every update happens once or not at all. It is pure Go: it needs no cgo and no other module.
//
//	db, err := thunderhead.Open(ctx, "thunderhead://localhost")
//	users, err := db.Table(ctx, "users", thunderhead.CreateTable())
//	version, err := users.Put(ctx, "ada", []byte("analyst"))
//	v, err := users.Get(ctx, "ada")
//	_, err = users.Put(ctx, "ada", []byte("countess"), thunderhead.IfVersion(v.Version))
//	for object, err := range users.Scan(ctx) { … }
//
// A program needs one [DB] for each cluster, which its goroutines share. Requests that goroutines
// make at the same time leave together.
//
// # Keys, values and missing objects
//
// A key is a string of 1 byte to 64 KiB with any content, and a value is bytes. A missing object is
// no error: [Table.Get] returns a [Value] that does not exist ([Value.Exists]), with version 0.
//
// # Errors
//
// Each error belongs to one of two families:
//
//   - [ErrNotDone]: nothing was done. A program may repeat the call.
//   - [ErrUnknown]: the change may have been done or not, because no server could tell in time.
//     Read the object before you repeat the call.
//
// The reason is another error for [errors.Is], such as [ErrCondition], [ErrTimeout] or
// [ErrNoSuchTable]:
//
//	switch _, err := users.Put(ctx, "ada", data, thunderhead.IfVersion(v.Version)); {
//	case errors.Is(err, thunderhead.ErrCondition): // another writer was faster: read again
//	case errors.Is(err, thunderhead.ErrUnknown):   // find out whether the object has the data
//	case err != nil:                               // nothing was done
//	}
//
// With [errors.As], an [*Error] has the details: the call, the table, and a number that is the same
// in all languages ([Error.Code]). A [*ConditionError] or [*NotANumberError] has the version of the
// object.
//
// # Deadlines
//
// Every call ends by the deadline of its context, or else by that of the client: 10 seconds, unless
// the URL or [WithDeadline] has another one. Until then the client masks every temporary obstacle:
// servers that crash and are recovered, tablets that move, coordinators that change. To cancel a
// context is to stop waiting: if an update was sent, its error also is [ErrUnknown].
//
// # Exactly once
//
// The first update opens a lease at a coordinator, and each update has a number in that lease. Each
// attempt of the update has the same number, so a server that has done it answers with the recorded
// outcome. The client renews the lease in the background. [DB.Close] ends it.
package thunderhead
