package thunderhead

import (
	"context"
	"math"
	"time"
)

// A Version is the version of an object. It grows with each update of a key, also across deletes.
// Version 0 means that there is no object.
type Version uint64

// A Value is the value of an object as it was read, or the knowledge that there is no object.
type Value struct {
	// Version is the version of the object; 0 if it does not exist.
	Version Version
	// Data has the bytes of the value. A number has 8 bytes: see [Value.Int64]. The slice belongs
	// to the caller.
	Data []byte
}

// Exists tells whether the object exists. A missing object is no error.
func (v Value) Exists() bool { return v.Version != 0 }

// String returns the bytes of the value as a string.
func (v Value) String() string { return string(v.Data) }

// Int64 returns the value as the whole number that [Table.PutInt] or [Table.Increment] wrote. ok is
// false if the value does not have 8 bytes. A read does not tell numbers from 8 other bytes.
func (v Value) Int64() (number int64, ok bool) {
	if len(v.Data) != 8 {
		return 0, false
	}
	return int64(le.Uint64(v.Data)), true
}

// Float64 returns the value as the number that [Table.PutFloat] or [Table.IncrementFloat] wrote. ok
// is false if the value does not have 8 bytes.
func (v Value) Float64() (number float64, ok bool) {
	if len(v.Data) != 8 {
		return 0, false
	}
	return math.Float64frombits(le.Uint64(v.Data)), true
}

// A ValueKind is the kind of a value, by which increments accept or refuse it.
type ValueKind uint8

// The kinds of values.
const (
	// KindBytes: bytes without meaning to the store.
	KindBytes ValueKind = iota
	// KindInt: a whole number, an int64.
	KindInt
	// KindFloat: a floating-point number, a float64.
	KindFloat
)

// An Object is an object that a scan found.
type Object struct {
	Key string
	Value
	// Kind is the kind of the value.
	Kind ValueKind
}

// A Condition is the condition under which an update goes ahead. The zero Condition always holds.
type Condition struct {
	kind    conditionKind
	version Version
}

// IfVersion holds if the object has exactly this version. Version 0 means that it does not exist.
func IfVersion(version Version) Condition { return Condition{conditionVersionIs, version} }

// IfAbsent holds if the object does not exist.
func IfAbsent() Condition { return Condition{kind: conditionAbsent} }

// IfPresent holds if the object exists.
func IfPresent() Condition { return Condition{kind: conditionPresent} }

// IfVersionBelow holds if the object has a version below this one, or does not exist.
func IfVersionBelow(version Version) Condition { return Condition{conditionVersionBelow, version} }

// A Table is a table of a cluster. Any number of goroutines may share it.
//
// A key is 1 byte to 64 KiB of any content, a value is up to 1 MiB. Every call ends by the deadline
// of its context, or by that of the client. Until then the client masks every temporary obstacle:
// servers that crash and are recovered, tablets that move, coordinators that change. No
// update is ever done twice.
type Table struct {
	db   *DB
	id   uint64
	name string
}

// Name returns the name with which the table was opened.
func (t *Table) Name() string { return t.name }

// ID returns the id of the table, which is never used again.
func (t *Table) ID() uint64 { return t.id }

// Get reads an object. A missing object is no error: see [Value.Exists].
func (t *Table) Get(ctx context.Context, key string) (Value, error) {
	b, err := t.begin(ctx, "get", key, nil)
	if err != nil {
		return Value{}, err
	}
	b.run(ctx)
	p := &b.one
	value, err := Value{p.version, p.body}, t.errorOf("get", p)
	if err != nil || p.isAbsent {
		value = Value{}
	}
	b.release()
	return value, err
}

// Put writes an object if the condition holds, and returns its new version. The client reads value
// only until Put returns.
func (t *Table) Put(ctx context.Context, key string, value []byte, condition ...Condition) (Version, error) {
	b, err := t.begin(ctx, "put", key, condition)
	if err != nil {
		return 0, err
	}
	b.one.kind, b.one.value = kindWrite, value
	version, _, err := t.update(ctx, "put", b)
	return version, err
}

// PutInt writes a whole number if the condition holds, and returns its new version.
// [Table.Increment] can add to it.
func (t *Table) PutInt(ctx context.Context, key string, number int64, condition ...Condition) (Version, error) {
	return t.putNumber(ctx, "put int", key, uint64(number), false, condition)
}

// PutFloat writes a floating-point number if the condition holds, and returns its new version.
// [Table.IncrementFloat] can add to it.
func (t *Table) PutFloat(ctx context.Context, key string, number float64, condition ...Condition) (Version, error) {
	return t.putNumber(ctx, "put float", key, math.Float64bits(number), true, condition)
}

func (t *Table) putNumber(ctx context.Context, op, key string, bits uint64, isFloat bool, condition []Condition) (Version, error) {
	b, err := t.begin(ctx, op, key, condition)
	if err != nil {
		return 0, err
	}
	b.one.kind, b.one.number, b.one.isFloat = kindWriteNumber, bits, isFloat
	version, _, err := t.update(ctx, op, b)
	return version, err
}

// Forever is the time to live of an object that never expires.
const Forever time.Duration = math.MaxInt64

// PutExpiring writes an object that lives for ttl, or [Forever], if the condition holds, and returns
// its new version. The time begins when the server does the write.
func (t *Table) PutExpiring(ctx context.Context, key string, value []byte, ttl time.Duration, condition ...Condition) (Version, error) {
	return t.putExpiring(ctx, "put expiring", key, part{value: value}, ttl, condition)
}

// PutIntExpiring writes a whole number that lives for ttl: see [Table.PutExpiring].
func (t *Table) PutIntExpiring(ctx context.Context, key string, number int64, ttl time.Duration, condition ...Condition) (Version, error) {
	it := part{number: uint64(number), valueKind: KindInt}
	return t.putExpiring(ctx, "put int expiring", key, it, ttl, condition)
}

// PutFloatExpiring writes a floating-point number that lives for ttl: see [Table.PutExpiring].
func (t *Table) PutFloatExpiring(ctx context.Context, key string, number float64, ttl time.Duration, condition ...Condition) (Version, error) {
	it := part{number: math.Float64bits(number), valueKind: KindFloat}
	return t.putExpiring(ctx, "put float expiring", key, it, ttl, condition)
}

func (t *Table) putExpiring(ctx context.Context, op, key string, it part, ttl time.Duration, condition []Condition) (Version, error) {
	b, err := t.beginExpiring(ctx, op, key, kindWriteExpiring, ttl, condition)
	if err != nil {
		return 0, err
	}
	b.one.value, b.one.number, b.one.valueKind = it.value, it.number, it.valueKind
	version, _, err := t.update(ctx, op, b)
	return version, err
}

// Expire changes when an object expires, if the condition holds: it lives for ttl from now on, or
// [Forever]. It returns the new version of the object; 0 if there is none. An increment does not
// change when its object expires.
func (t *Table) Expire(ctx context.Context, key string, ttl time.Duration, condition ...Condition) (Version, error) {
	b, err := t.beginExpiring(ctx, "expire", key, kindSetExpiry, ttl, condition)
	if err != nil {
		return 0, err
	}
	version, _, err := t.update(ctx, "expire", b)
	return version, err
}

// TimeToLive returns how long an object still lives, in whole milliseconds, or [Forever], and its
// version. Both are 0 if there is no object.
func (t *Table) TimeToLive(ctx context.Context, key string) (time.Duration, Version, error) {
	b, err := t.begin(ctx, "time to live", key, nil)
	if err != nil {
		return 0, 0, err
	}
	b.one.kind = kindReadExpiry
	b.run(ctx)
	p := &b.one
	ttl, version, err := ttlOf(p.sum), p.version, t.errorOf("time to live", p)
	if err != nil || p.isAbsent {
		ttl, version = 0, 0
	}
	b.release()
	return ttl, version, err
}

// beginExpiring returns a batch for one update that decides when an object expires.
func (t *Table) beginExpiring(ctx context.Context, op, key string, kind partKind, ttl time.Duration, conditions []Condition) (*batch, error) {
	b, err := t.begin(ctx, op, key, conditions)
	if err != nil {
		return nil, err
	}
	millis, f := ttlMillis(ttl)
	if f != nil {
		b.release()
		return nil, f.in(op, t.name)
	}
	b.one.kind, b.one.ttl = kind, millis
	return b, nil
}

// ttlMillis returns a time to live as it goes over the wire: in milliseconds, rounded up.
func ttlMillis(ttl time.Duration) (uint64, *failure) {
	switch {
	case ttl == Forever:
		return math.MaxUint64, nil
	case ttl <= 0:
		return 0, refusedWith(statusBadTimeToLive)
	}
	return (uint64(ttl) + uint64(time.Millisecond) - 1) / uint64(time.Millisecond), nil
}

// ttlOf returns a time to live of the wire.
func ttlOf(millis uint64) time.Duration {
	if millis > uint64(Forever/time.Millisecond) {
		return Forever
	}
	return time.Duration(millis) * time.Millisecond
}

// Delete deletes an object if the condition holds, and returns the version that it had; 0 if there
// was none.
func (t *Table) Delete(ctx context.Context, key string, condition ...Condition) (Version, error) {
	b, err := t.begin(ctx, "delete", key, condition)
	if err != nil {
		return 0, err
	}
	b.one.kind = kindDelete
	version, _, err := t.update(ctx, "delete", b)
	return version, err
}

// Increment adds to a whole number and returns the sum and the new version. A missing object counts
// as 0. The error is [ErrNotANumber] if the object was written as bytes or as a floating-point
// number, and [ErrOverflow] if the sum does not fit.
func (t *Table) Increment(ctx context.Context, key string, by int64) (sum int64, version Version, err error) {
	b, err := t.begin(ctx, "increment", key, nil)
	if err != nil {
		return 0, 0, err
	}
	b.one.kind, b.one.number = kindIncrement, uint64(by)
	version, bits, err := t.update(ctx, "increment", b)
	return int64(bits), version, err
}

// IncrementFloat adds to a floating-point number and returns the sum and the new version. A missing
// object counts as 0.
func (t *Table) IncrementFloat(ctx context.Context, key string, by float64) (sum float64, version Version, err error) {
	b, err := t.begin(ctx, "increment float", key, nil)
	if err != nil {
		return 0, 0, err
	}
	b.one.kind, b.one.number, b.one.isFloat = kindIncrement, math.Float64bits(by), true
	version, bits, err := t.update(ctx, "increment float", b)
	return math.Float64frombits(bits), version, err
}

// begin returns a batch for one operation on a key.
func (t *Table) begin(ctx context.Context, op, key string, conditions []Condition) (*batch, error) {
	f := t.db.check(ctx)
	if f == nil {
		f = checkKey(key)
	}
	if f == nil && len(conditions) > 1 {
		f = badArgument("an update has at most one condition")
	}
	if f != nil {
		return nil, f.in(op, t.name)
	}
	b := newSingle(t.db)
	p := &b.one
	p.table, p.key, p.hash, p.deadline = t.id, key, keyHash(key), t.db.deadlineOf(ctx)
	if len(conditions) > 0 {
		p.condition = conditions[0]
	}
	return b, nil
}

// checkKey refuses a key that no object can have. A server would answer a read of it as that of a
// missing object.
func checkKey(key string) *failure {
	switch {
	case key == "":
		return refusedWith(statusKeyEmpty)
	case len(key) > keyBytesMax:
		return refusedWith(statusKeyTooLong)
	}
	return nil
}

// update runs an update and returns its result.
func (t *Table) update(ctx context.Context, op string, b *batch) (Version, uint64, error) {
	b.run(ctx)
	version, sum, err := b.one.version, b.one.sum, t.errorOf(op, &b.one)
	if err != nil {
		version, sum = 0, 0
	}
	b.release()
	return version, sum, err
}

func (t *Table) errorOf(op string, p *part) error {
	if p.failure == nil {
		return nil
	}
	return p.failure.in(op, t.name)
}

// An Entry is an object to write.
type Entry struct {
	Key   string
	Value []byte
	// If is the condition; the zero value always holds.
	If Condition
	// TTL is how long the object lives, or [Forever]; 0 for the default of the table.
	TTL time.Duration
}

// GetMany reads many objects at once, in the order of the keys. Each is read by itself: together
// they are no snapshot. If some fail, the error is a [*ManyError], and the other values are there.
func (t *Table) GetMany(ctx context.Context, keys []string) ([]Value, error) {
	values := make([]Value, len(keys))
	err := t.many(ctx, "get many", len(keys), func(p *part, i int) { p.key = keys[i] },
		func(p *part, i int) {
			if !p.isAbsent {
				values[i] = Value{p.version, p.body}
			}
		})
	return values, err
}

// PutMany writes many objects at once and returns their versions in the order of the entries. Each
// is written by itself, in no particular order. If some fail, the error is a [*ManyError], and the
// versions of the others are there.
func (t *Table) PutMany(ctx context.Context, entries []Entry) ([]Version, error) {
	versions := make([]Version, len(entries))
	err := t.many(ctx, "put many", len(entries), func(p *part, i int) {
		it := &entries[i]
		p.kind, p.key, p.value, p.condition = kindWrite, it.Key, it.Value, it.If
		if it.TTL != 0 {
			p.kind = kindWriteExpiring
			p.ttl, p.failure = ttlMillis(it.TTL)
		}
	}, func(p *part, i int) { versions[i] = p.version })
	return versions, err
}

// DeleteMany deletes many objects at once and returns the versions that they had, in the order of
// the keys. Each is deleted by itself, in no particular order. If some fail, the error is a
// [*ManyError], and the versions of the others are there.
func (t *Table) DeleteMany(ctx context.Context, keys []string) ([]Version, error) {
	versions := make([]Version, len(keys))
	err := t.many(ctx, "delete many", len(keys), func(p *part, i int) {
		p.kind, p.key = kindDelete, keys[i]
	}, func(p *part, i int) { versions[i] = p.version })
	return versions, err
}

// many does many operations, so many at a time as may be in flight.
func (t *Table) many(ctx context.Context, op string, n int, fill, take func(p *part, i int)) error {
	if f := t.db.check(ctx); f != nil {
		return f.in(op, t.name)
	}
	deadline := t.db.deadlineOf(ctx)
	var failed *ManyError
	size := min(n, t.db.inFlight)
	b := newMany(t.db, size)
	all := b.parts
	for from := 0; from < n; from += size {
		count := min(size, n-from)
		for i := range count {
			p := all[i]
			*p = part{table: t.id, deadline: deadline}
			fill(p, from+i)
			p.hash = keyHash(p.key)
			if f := checkKey(p.key); f != nil {
				p.failure = f
			}
			if err := ctx.Err(); err != nil {
				p.failure = canceled(err, false)
			}
		}
		b.parts = all[:count]
		b.run(ctx)
		for i, p := range b.parts {
			if err := t.errorOf(op, p); err == nil {
				take(p, from+i)
			} else {
				if failed == nil {
					failed = &ManyError{make([]error, n)}
				}
				failed.Errors[from+i] = err
			}
		}
	}
	b.parts = all
	b.release()
	if failed != nil {
		return failed
	}
	return nil
}
