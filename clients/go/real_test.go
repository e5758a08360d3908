package thunderhead_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"thunderhead.dev/thunderhead"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestObjectsAreWrittenReadAndDeleted(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url))
	if v, err := table.Get(ctx, "ada"); err != nil || v.Exists() {
		t.Fatalf("a missing object: %v, %v", v, err)
	}
	version, err := table.Put(ctx, "ada", []byte("analyst"), thunderhead.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	v, err := table.Get(ctx, "ada")
	if err != nil || v.Version != version || v.String() != "analyst" {
		t.Fatalf("got %v, %v; wrote version %d", v, err, version)
	}
	_, err = table.Put(ctx, "ada", nil, thunderhead.IfAbsent())
	var condition *thunderhead.ConditionError
	if !errors.Is(err, thunderhead.ErrCondition) || !errors.Is(err, thunderhead.ErrNotDone) ||
		errors.Is(err, thunderhead.ErrUnknown) || !errors.As(err, &condition) || condition.Version != version {
		t.Fatalf("a condition that does not hold: %v", err)
	}
	next, err := table.Put(ctx, "ada", nil, thunderhead.IfVersion(version))
	if err != nil || next <= version {
		t.Fatalf("version %d after %d: %v", next, version, err)
	}
	if v, err := table.Get(ctx, "ada"); err != nil || !v.Exists() || v.Data == nil || len(v.Data) != 0 {
		t.Fatalf("an empty value: %v, %v", v, err)
	}
	if deleted, err := table.Delete(ctx, "ada", thunderhead.IfPresent()); err != nil || deleted != next {
		t.Fatalf("deleted %d, %v", deleted, err)
	}
	if deleted, err := table.Delete(ctx, "ada"); err != nil || deleted != 0 {
		t.Fatalf("deleted again: %d, %v", deleted, err)
	}
	if _, err := table.Put(ctx, "ada", nil, thunderhead.IfPresent()); !errors.Is(err, thunderhead.ErrCondition) {
		t.Fatalf("a missing object is not present: %v", err)
	}
}

func TestObjectsLiveForTheirTime(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url))
	if ttl, version, err := table.TimeToLive(ctx, "k"); err != nil || ttl != 0 || version != 0 {
		t.Fatalf("a missing object lives %v, %d, %v", ttl, version, err)
	}
	if version, err := table.Expire(ctx, "k", time.Minute); err != nil || version != 0 {
		t.Fatalf("a missing object expires: %d, %v", version, err)
	}
	first, err := table.PutExpiring(ctx, "k", []byte("v"), time.Minute, thunderhead.IfAbsent())
	if err != nil {
		t.Fatal(err)
	}
	ttl, version, err := table.TimeToLive(ctx, "k")
	if err != nil || ttl <= 0 || ttl > time.Minute || version != first {
		t.Fatalf("it lives %v, %d, %v", ttl, version, err)
	}
	second, err := table.Expire(ctx, "k", thunderhead.Forever, thunderhead.IfVersion(first))
	if err != nil || second <= first {
		t.Fatalf("version %d after %d: %v", second, first, err)
	}
	if ttl, _, err := table.TimeToLive(ctx, "k"); err != nil || ttl != thunderhead.Forever {
		t.Fatalf("it lives %v, %v", ttl, err)
	}
	if _, err := table.Expire(ctx, "k", 0); !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a time of 0: %v", err)
	}
	if _, err := table.PutIntExpiring(ctx, "n", 7, time.Hour); err != nil {
		t.Fatal(err)
	}
	if sum, _, err := table.Increment(ctx, "n", 1); err != nil || sum != 8 {
		t.Fatalf("sum %d, %v", sum, err)
	}
	if ttl, _, err := table.TimeToLive(ctx, "n"); err != nil || ttl > time.Hour || ttl <= 0 {
		t.Fatalf("the number lives %v, %v", ttl, err)
	}
	entries := []thunderhead.Entry{
		{Key: "short", TTL: time.Millisecond},
		{Key: "plain"},
		{Key: "long", TTL: time.Hour},
		{Key: "wrong", TTL: -1},
	}
	_, err = table.PutMany(ctx, entries)
	var many *thunderhead.ManyError
	if !errors.As(err, &many) || many.Errors[0] != nil || many.Errors[2] != nil || many.Errors[3] == nil {
		t.Fatalf("many: %v", err)
	}
	for {
		v, err := table.Get(ctx, "short")
		if err != nil {
			t.Fatal(err)
		}
		if !v.Exists() {
			break
		}
	}
	if ttl, _, err := table.TimeToLive(ctx, "plain"); err != nil || ttl != thunderhead.Forever {
		t.Fatalf("it lives %v, %v", ttl, err)
	}
	if ttl, _, err := table.TimeToLive(ctx, "long"); err != nil || ttl > time.Hour {
		t.Fatalf("it lives %v, %v", ttl, err)
	}
}

func TestATableHasADefaultTimeToLive(t *testing.T) {
	ctx := context.Background()
	db := open(t, startServer(t).url)
	table, err := db.CreateTable(ctx, "cache", thunderhead.DefaultTTL(time.Hour), thunderhead.Cache(),
		thunderhead.MaxBytes(1<<20), thunderhead.ReservedBytes(1000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.Put(ctx, "k", nil); err != nil {
		t.Fatal(err)
	}
	if ttl, _, err := table.TimeToLive(ctx, "k"); err != nil || ttl <= 0 || ttl > time.Hour {
		t.Fatalf("it lives %v, %v", ttl, err)
	}
	if _, err := table.PutExpiring(ctx, "k", nil, thunderhead.Forever); err != nil {
		t.Fatal(err)
	}
	if ttl, _, err := table.TimeToLive(ctx, "k"); err != nil || ttl != thunderhead.Forever {
		t.Fatalf("it lives %v, %v", ttl, err)
	}
	tables, err := db.Tables(ctx)
	if err != nil || len(tables) != 1 || tables[0].TTL != time.Hour || !tables[0].IsCache {
		t.Fatalf("tables %v, %v", tables, err)
	}
	if tables[0].MaxBytes != 1<<20 || tables[0].ReservedBytes != 1000 {
		t.Fatalf("tables %v", tables)
	}
	small, err := db.CreateTable(ctx, "small", thunderhead.MaxBytes(1000))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := small.Put(ctx, "k", make([]byte, 1000)); !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a full table: %v", err)
	}
	if _, err := db.CreateTable(ctx, "wrong", thunderhead.ReservedBytes(5)); !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a reservation of a durable table: %v", err)
	}
	if _, err := db.CreateTable(ctx, "wrong", thunderhead.DefaultTTL(0)); !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a time of 0: %v", err)
	}
}

func TestNumbersAreCounted(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url))
	for want := int64(5); want <= 15; want += 5 {
		if sum, version, err := table.Increment(ctx, "n", 5); err != nil || sum != want || version == 0 {
			t.Fatalf("sum %d, version %d, %v", sum, version, err)
		}
	}
	if v, err := table.Get(ctx, "n"); err != nil {
		t.Fatal(err)
	} else if n, ok := v.Int64(); !ok || n != 15 {
		t.Fatalf("read %v", v)
	}
	if sum, _, err := table.IncrementFloat(ctx, "f", 0.5); err != nil || sum != 0.5 {
		t.Fatalf("sum %v, %v", sum, err)
	}
	_, err := table.PutInt(ctx, "n", math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.Increment(ctx, "n", 1); !errors.Is(err, thunderhead.ErrOverflow) {
		t.Fatalf("an overflow: %v", err)
	}
	var number *thunderhead.NotANumberError
	version, err := table.PutInt(ctx, "n", 7)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := table.IncrementFloat(ctx, "n", 1); !errors.Is(err, thunderhead.ErrNotANumber) ||
		!errors.As(err, &number) || number.Version != version {
		t.Fatalf("the other kind: %v; the version is %d", err, version)
	}
	if _, err := table.PutFloat(ctx, "f", -2.5); err != nil {
		t.Fatal(err)
	}
	if v, err := table.Get(ctx, "f"); err != nil {
		t.Fatal(err)
	} else if n, ok := v.Float64(); !ok || n != -2.5 {
		t.Fatalf("read %v", v)
	}
}

func TestManyObjectsAreWrittenReadScannedAndDeleted(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url, thunderhead.WithInFlight(300)))
	const n = 1000
	var keys []string
	var entries []thunderhead.Entry
	for i := range n {
		keys = append(keys, fmt.Sprint("key", i))
		entries = append(entries, thunderhead.Entry{Key: keys[i], Value: bytes.Repeat([]byte{byte(i)}, 500)})
	}
	versions, err := table.PutMany(ctx, entries)
	if err != nil {
		t.Fatal(err)
	}
	values, err := table.GetMany(ctx, append(keys, "missing"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if values[i].Version != versions[i] || !bytes.Equal(values[i].Data, entries[i].Value) {
			t.Fatalf("%s: got version %d, wrote %d", keys[i], values[i].Version, versions[i])
		}
	}
	if values[n].Exists() {
		t.Fatal("a missing object exists")
	}
	found := map[string]int{}
	for object, err := range table.Scan(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if len(object.Data) != 500 || object.Kind != thunderhead.KindBytes {
			t.Fatalf("scanned %v", object)
		}
		found[object.Key]++
	}
	if len(found) != n {
		t.Fatalf("scanned %d objects", len(found))
	}
	for key, times := range found {
		if times != 1 {
			t.Fatalf("%s came %d times", key, times)
		}
	}
	for range table.Scan(ctx) {
		break
	}
	deleted, err := table.DeleteMany(ctx, append(keys, "missing"))
	if err != nil || deleted[0] != versions[0] || deleted[n] != 0 {
		t.Fatalf("deleted %d, %d: %v", deleted[0], deleted[n], err)
	}
	if _, err := table.PutMany(ctx, nil); err != nil {
		t.Fatal(err)
	}
	// A failure is that of its operation only.
	entries[3].If = thunderhead.IfPresent()
	entries[5].Key = ""
	versions, err = table.PutMany(ctx, entries[:10])
	var many *thunderhead.ManyError
	if !errors.As(err, &many) || !errors.Is(err, thunderhead.ErrCondition) || !errors.Is(err, thunderhead.ErrKeyEmpty) {
		t.Fatalf("two failures: %v", err)
	}
	for i, err := range many.Errors {
		if (err != nil) != (i == 3 || i == 5) || (versions[i] == 0) != (err != nil) {
			t.Fatalf("entry %d: version %d, %v", i, versions[i], err)
		}
	}
}

func TestLongObjectsAreReadTogether(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url))
	value := bytes.Repeat([]byte("7"), 100_000)
	var entries []thunderhead.Entry
	var keys []string
	for i := range 30 {
		keys = append(keys, fmt.Sprint(i))
		entries = append(entries, thunderhead.Entry{Key: keys[i], Value: value})
	}
	if _, err := table.PutMany(ctx, entries); err != nil {
		t.Fatal(err)
	}
	values, err := table.GetMany(ctx, keys)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range values {
		if !bytes.Equal(v.Data, value) {
			t.Fatal("another value")
		}
	}
	for object, err := range table.Scan(ctx) {
		if err != nil || !bytes.Equal(object.Data, value) {
			t.Fatalf("scanned another value: %v", err)
		}
	}
}

func TestLimitsOfKeysAndValuesAreTyped(t *testing.T) {
	ctx := context.Background()
	table := newTable(t, open(t, startServer(t).url))
	// A temporary store has short segments, and a value has at most an eighth of one.
	if _, err := table.Put(ctx, "k", make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	long := string(make([]byte, 64<<10))
	if _, err := table.Put(ctx, long, nil); err != nil {
		t.Fatal(err)
	}
	for _, it := range []struct {
		key   string
		value int
		want  error
	}{
		{"", 0, thunderhead.ErrKeyEmpty},
		{long + "k", 0, thunderhead.ErrKeyTooLong},
		{string(make([]byte, 9<<20)), 0, thunderhead.ErrKeyTooLong},
		{"k", 1<<20 + 1, thunderhead.ErrValueTooLong},
		{"k", 9 << 20, thunderhead.ErrValueTooLong},
	} {
		_, err := table.Put(ctx, it.key, make([]byte, it.value))
		if !errors.Is(err, it.want) || !errors.Is(err, thunderhead.ErrNotDone) {
			t.Errorf("a key of %d bytes, a value of %d: %v", len(it.key), it.value, err)
		}
	}
	if _, err := table.Get(ctx, ""); !errors.Is(err, thunderhead.ErrKeyEmpty) {
		t.Errorf("an empty key to read: %v", err)
	}
	if _, err := table.Get(ctx, long+"k"); !errors.Is(err, thunderhead.ErrKeyTooLong) {
		t.Errorf("a long key to read: %v", err)
	}
	if _, err := table.Get(ctx, string(make([]byte, 20<<20))); !errors.Is(err, thunderhead.ErrKeyTooLong) {
		t.Errorf("a key that fits into no message: %v", err)
	}
}

func TestTablesAreCreatedListedSplitAndDropped(t *testing.T) {
	ctx := context.Background()
	db := open(t, startServer(t).url)
	if _, err := db.Table(ctx, "users"); !errors.Is(err, thunderhead.ErrNoSuchTable) {
		t.Fatalf("a missing table: %v", err)
	}
	users, err := db.Table(ctx, "users", thunderhead.CreateTable(), thunderhead.Span(1))
	if err != nil {
		t.Fatal(err)
	}
	again, err := db.Table(ctx, "users", thunderhead.CreateTable())
	if err != nil || again.ID() != users.ID() || again.Name() != "users" {
		t.Fatalf("opened another table: %v", err)
	}
	if _, err := db.CreateTable(ctx, "users"); !errors.Is(err, thunderhead.ErrTableExists) {
		t.Fatalf("a table that exists: %v", err)
	}
	for _, name := range []string{"", "\xff", "a\x00b"} {
		if _, err := db.CreateTable(ctx, name); !errors.Is(err, thunderhead.ErrBadName) {
			t.Errorf("the name %q: %v", name, err)
		}
	}
	for i := range 100 {
		if _, err := users.Put(ctx, fmt.Sprint(i), nil); err != nil {
			t.Fatal(err)
		}
	}
	info, err := db.SplitTablet(ctx, "users", 1<<63)
	if err != nil || len(info.Tablets) != 2 || info.Tablets[1].First != 1<<63 {
		t.Fatalf("split: %v, %v", info, err)
	}
	count := 0
	for _, err := range users.Scan(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	if count != 100 {
		t.Fatalf("scanned %d objects of two tablets", count)
	}
	if _, err := db.SplitTablet(ctx, "none", 1); !errors.Is(err, thunderhead.ErrNoSuchTable) {
		t.Fatalf("split of a missing table: %v", err)
	}
	if _, err := db.SplitTablet(ctx, "users", 0); !errors.Is(err, thunderhead.ErrBadRange) {
		t.Fatalf("split at the first hash: %v", err)
	}
	if tables, err := db.Tables(ctx); err != nil || len(tables) != 1 || tables[0].Name != "users" {
		t.Fatalf("tables: %v, %v", tables, err)
	}
	if err := db.DropTable(ctx, "users"); err != nil {
		t.Fatal(err)
	}
	if err := db.DropTable(ctx, "users"); !errors.Is(err, thunderhead.ErrNoSuchTable) {
		t.Fatalf("dropped again: %v", err)
	}
	if _, err := users.Get(ctx, "1"); !errors.Is(err, thunderhead.ErrNoSuchTable) {
		t.Fatalf("read of a dropped table: %v", err)
	}
	if _, err := users.Put(ctx, "1", nil); !errors.Is(err, thunderhead.ErrNoSuchTable) {
		t.Fatalf("write to a dropped table: %v", err)
	}
	for _, err := range users.Scan(ctx) {
		if !errors.Is(err, thunderhead.ErrNoSuchTable) {
			t.Fatalf("scan of a dropped table: %v", err)
		}
	}
}

func TestGoroutinesShareAClient(t *testing.T) {
	ctx := context.Background()
	db := open(t, startServer(t).url)
	table := newTable(t, db)
	const goroutines, each = 32, 50
	var group sync.WaitGroup
	for g := range goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			own := fmt.Sprint("own", g)
			for i := range each {
				if _, _, err := table.Increment(ctx, "shared", 1); err != nil {
					t.Error(err)
				}
				version, err := table.Put(ctx, own, []byte(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				}
				v, err := table.Get(ctx, own)
				if err != nil || v.Version != version || v.String() != fmt.Sprint(i) {
					t.Errorf("read %v after the write of %d: %v", v, i, err)
				}
			}
		}()
	}
	group.Wait()
	v, err := table.Get(ctx, "shared")
	if n, _ := v.Int64(); err != nil || n != goroutines*each {
		t.Fatalf("counted %d, %v", n, err)
	}
}

func TestAClosedClientRefusesCalls(t *testing.T) {
	ctx := context.Background()
	db := open(t, startServer(t).url)
	table := newTable(t, db)
	if _, err := table.Put(ctx, "k", nil); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
	_, err := table.Get(ctx, "k")
	if !errors.Is(err, thunderhead.ErrClosed) || !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a read after the end: %v", err)
	}
	if _, err := table.PutMany(ctx, []thunderhead.Entry{{Key: "k"}}); !errors.Is(err, thunderhead.ErrClosed) {
		t.Fatalf("writes after the end: %v", err)
	}
	if _, err := db.Tables(ctx); !errors.Is(err, thunderhead.ErrClosed) {
		t.Fatalf("tables after the end: %v", err)
	}
}

func TestContextsEndCalls(t *testing.T) {
	db := open(t, startServer(t).url)
	table := newTable(t, db)
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := table.Put(canceled, "k", nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, thunderhead.ErrNotDone) {
		t.Fatalf("a canceled context: %v", err)
	}
	late, cancel := context.WithDeadline(context.Background(), time.Unix(0, 0))
	defer cancel()
	_, err = table.Get(late, "k")
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, thunderhead.ErrTimeout) {
		t.Fatalf("a deadline that has passed: %v", err)
	}
	var none context.Context
	if _, err := table.Get(none, "k"); !errors.Is(err, thunderhead.ErrArgument) {
		t.Fatalf("no context: %v", err)
	}
	if _, err := table.Put(context.Background(), "k", nil, thunderhead.IfAbsent(), thunderhead.IfPresent()); !errors.Is(err, thunderhead.ErrArgument) {
		t.Fatalf("two conditions: %v", err)
	}
}
