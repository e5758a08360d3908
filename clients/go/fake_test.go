package thunderhead

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// A fake is a coordinator and a shard that a test scripts.
type fake struct {
	t       testing.TB
	ln      net.Listener
	cluster uint64
	// handle answers the requests; by default the requests of coordinators have good answers.
	handle func(r *request) bool

	// handling is held during each call of handle.
	handling sync.Mutex
	mu       sync.Mutex
	running  sync.WaitGroup
	conns    map[net.Conn]bool
	maps     int
	leases   uint64
}

// A request is a message to a fake.
type request struct {
	fake    *fake
	nc      net.Conn
	id      uint64
	opcode  uint16
	timeout uint32
	body    []byte
}

func startFake(t testing.TB, handle func(r *request) bool) *fake {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{t: t, ln: ln, cluster: 77, handle: handle, conns: map[net.Conn]bool{}}
	f.running.Add(1)
	go func() {
		defer f.running.Done()
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns[nc] = true
			f.mu.Unlock()
			f.running.Add(1)
			go f.serve(nc)
		}
	}()
	t.Cleanup(f.stop)
	return f
}

// of sets the cluster that the fake names in its greetings.
func (f *fake) of(cluster uint64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.cluster = cluster
}

func (f *fake) stop() {
	f.ln.Close()
	f.mu.Lock()
	for nc := range f.conns {
		nc.Close()
	}
	f.mu.Unlock()
	f.running.Wait()
}

func (f *fake) address() netip.AddrPort { return netip.MustParseAddrPort(f.ln.Addr().String()) }

func (f *fake) url() string { return urlScheme + f.ln.Addr().String() }

func (f *fake) serve(nc net.Conn) {
	defer f.running.Done()
	defer nc.Close()
	f.mu.Lock()
	greeting := appendGreeting(nil, f.cluster)
	f.mu.Unlock()
	nc.Write(greeting)
	r := bufio.NewReader(nc)
	if _, err := readGreeting(r); err != nil {
		return
	}
	for {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return
		}
		_, n := frameHead(head[:])
		message := make([]byte, n)
		if _, err := io.ReadFull(r, message); err != nil {
			return
		}
		it := &request{f, nc, le.Uint64(message), le.Uint16(message[8:]), le.Uint32(message[12:]), message[16:]}
		if !f.isHandled(it) {
			it.byDefault()
		}
	}
}

func (f *fake) isHandled(r *request) bool {
	f.handling.Lock()
	defer f.handling.Unlock()
	return f.handle != nil && f.handle(r)
}

// untilSent makes a call with a deadline, again with a later one until the request arrived in time:
// on a busy machine the first deadlines may pass before.
func untilSent(t *testing.T, requests *atomic.Int32, call func(ctx context.Context)) {
	t.Helper()
	for wait := 20 * time.Millisecond; ; wait *= 2 {
		before := requests.Load()
		func() {
			ctx, cancel := context.WithTimeout(context.Background(), wait)
			defer cancel()
			call(ctx)
		}()
		if requests.Load() > before {
			return
		}
	}
}

// byDefault answers as a coordinator with one table, 1, that this fake serves.
func (r *request) byDefault() {
	f := r.fake
	f.mu.Lock()
	defer f.mu.Unlock()
	switch r.opcode {
	case opMap:
		f.maps++
		r.ok(body(f.table(uint64(f.maps))))
	case opOpenLease:
		f.leases++
		r.ok(body(leaseOpened{f.leases, 300_000, f.cluster}))
	case opRenewLease, opCloseLease:
		r.ok([]byte("{}"))
	default:
		r.reply(statusUnknownOpcode, 0, nil)
	}
}

func (f *fake) table(version uint64) *mapReply {
	address := f.address()
	return &mapReply{Version: version, Tables: []tableInfo{
		{ID: 1, Name: "t", Tablets: []tabletInfo{{0, 1<<64 - 1, 1, &address}}},
	}}
}

func (r *request) ok(body []byte) { r.reply(statusOK, 0, body) }

func (r *request) reply(status Status, hint uint32, body []byte) {
	b := appendRequestHead(nil, r.id, uint16(status), hint)
	le.PutUint16(b[14:], isReply)
	b = append(b, body...)
	putFrameHead(b, frameMessage)
	r.nc.Write(b)
}

// written answers an update.
func (r *request) written(version uint64) { r.ok(words(version)) }

func (r *request) identity() identity {
	if r.opcode < opWrite || r.opcode == opReadMany || r.opcode > opWriteNumber {
		return identity{}
	}
	return identity{le.Uint64(r.body), le.Uint64(r.body[8:]), le.Uint64(r.body[16:]), le.Uint64(r.body[24:])}
}

// openFake opens a client of a fake, and its table.
func openFake(t testing.TB, f *fake, options ...Option) (*DB, *Table) {
	t.Helper()
	db, err := Open(context.Background(), f.url(), options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db, &Table{db, 1, "t"}
}

// script answers the requests for objects with these functions, one after the other.
func script(identities *[]identity, steps ...func(r *request)) func(r *request) bool {
	return func(r *request) bool {
		if r.opcode < opRead || r.opcode > opWriteNumber {
			return false
		}
		r.fake.mu.Lock()
		at := len(*identities)
		*identities = append(*identities, r.identity())
		r.fake.mu.Unlock()
		if at >= len(steps) {
			r.fake.t.Errorf("request %d, with opcode %d, is one too many", at, r.opcode)
			return false
		}
		steps[at](r)
		return true
	}
}

func lose(r *request) { r.nc.Close() }

func done(version uint64) func(r *request) { return func(r *request) { r.written(version) } }

func refuse(status Status) func(r *request) { return func(r *request) { r.reply(status, 1, nil) } }

func ignore(*request) {}

func TestARetriedUpdateKeepsItsSequence(t *testing.T) {
	var seen []identity
	f := startFake(t, script(&seen, lose, refuse(statusBusy), refuse(statusMoved), refuse(statusAwaitingReplicas),
		refuse(statusNoSpace), done(5), done(6)))
	_, table := openFake(t, f)
	for want := Version(5); want <= 6; want++ {
		if version, err := table.Put(context.Background(), "k", nil); err != nil || version != want {
			t.Fatalf("version %d, %v", version, err)
		}
	}
	for i, it := range seen {
		want := identity{1, 1, 1, it.mapVersion}
		if i == 6 {
			want.sequence, want.firstUnacknowledged = 2, 2
		}
		if it != want {
			t.Errorf("attempt %d had %v", i, it)
		}
		if i > 0 && it.mapVersion < seen[i-1].mapVersion {
			t.Errorf("attempt %d named an older map", i)
		}
	}
}

func TestOpenUpdatesAreNotAcknowledged(t *testing.T) {
	first, second := make(chan *request, 1), make(chan *request, 1)
	var seen []identity
	f := startFake(t, script(&seen,
		func(r *request) { first <- r }, func(r *request) { second <- r }, done(3)))
	_, table := openFake(t, f)
	var group sync.WaitGroup
	put := func() {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := table.Put(context.Background(), "k", nil); err != nil {
				t.Error(err)
			}
		}()
	}
	put()
	a := <-first
	put()
	b := <-second
	b.written(2)
	a.written(1)
	group.Wait()
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	for i, want := range []uint64{1, 1, 3} {
		if seen[i].firstUnacknowledged != want || seen[i].sequence != uint64(i+1) {
			t.Errorf("update %d had %v", i, seen[i])
		}
	}
}

func TestAnUpdateUnderAnEndedLeaseGoesOutUnderTheNext(t *testing.T) {
	var seen []identity
	f := startFake(t, script(&seen, refuse(statusLeaseEnded), done(1)))
	_, table := openFake(t, f)
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if seen[0].lease != 1 || seen[1].lease != 2 || seen[1].sequence != 1 {
		t.Errorf("the attempts had %v", seen)
	}
}

func TestAnUpdateWhoseLeaseEndedAfterALostAnswerIsUnknown(t *testing.T) {
	var seen []identity
	f := startFake(t, script(&seen, lose, refuse(statusLeaseEnded)))
	_, table := openFake(t, f)
	_, err := table.Put(context.Background(), "k", nil)
	if !errors.Is(err, ErrUnknown) || errors.Is(err, ErrNotDone) {
		t.Fatal(err)
	}
}

func TestADefiniteRefusalAfterALostAnswerIsDefinite(t *testing.T) {
	var seen []identity
	f := startFake(t, script(&seen, lose, func(r *request) { r.reply(statusConditionFailed, 0, words(9)) },
		lose, refuse(statusMalformed)))
	_, table := openFake(t, f)
	_, err := table.Put(context.Background(), "k", nil, IfAbsent())
	var condition *ConditionError
	if !errors.Is(err, ErrNotDone) || !errors.As(err, &condition) || condition.Version != 9 {
		t.Fatal(err)
	}
	// A server that does not know the first attempt may give another refusal.
	if _, err = table.Put(context.Background(), "k", nil); !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
}

func TestTheDeadlineEndsCalls(t *testing.T) {
	var requests atomic.Int32
	f := startFake(t, func(r *request) bool {
		if r.opcode > opWriteNumber {
			return false
		}
		requests.Add(1)
		return true
	})
	_, table := openFake(t, f)
	var err error
	untilSent(t, &requests, func(ctx context.Context) { _, err = table.Get(ctx, "k") })
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrNotDone) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a read: %v", err)
	}
	untilSent(t, &requests, func(ctx context.Context) { _, err = table.Put(ctx, "k", nil) })
	if !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrUnknown) {
		t.Fatalf("an update: %v", err)
	}
	var timeout net.Error
	if !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Fatalf("%v is no time-out", err)
	}
}

func TestTheDeadlineOfTheClientHoldsWithoutThatOfAContext(t *testing.T) {
	f := startFake(t, func(r *request) bool { return r.opcode <= opWriteNumber })
	db, table := openFake(t, f)
	db.deadline = 20 * time.Millisecond
	if _, err := table.Get(context.Background(), "k"); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
}

func TestARefusalUntilTheDeadlineIsNotDone(t *testing.T) {
	status := statusBusy
	f := startFake(t, func(r *request) bool {
		if r.opcode > opWriteNumber {
			return false
		}
		r.reply(status, 10_000_000, nil)
		return true
	})
	_, table := openFake(t, f)
	// The hint is longer than the deadline, so the refusal ends the call.
	_, err := table.Put(context.Background(), "k", nil)
	if !errors.Is(err, ErrNotDone) || !errors.Is(err, ErrTimeout) {
		t.Fatalf("busy: %v", err)
	}
	f.handling.Lock()
	status = statusAwaitingReplicas
	f.handling.Unlock()
	_, err = table.Put(context.Background(), "k", nil)
	if !errors.Is(err, ErrUnknown) {
		t.Fatalf("the update is in the log of a server: %v", err)
	}
}

func TestACanceledUpdateIsUnknownOnceItWasSent(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var seen []identity
	f := startFake(t, script(&seen, func(*request) { cancel() }, done(2)))
	_, table := openFake(t, f)
	_, err := table.Put(ctx, "k", nil)
	if !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if seen[1].firstUnacknowledged != 2 {
		t.Errorf("the client still waits for the canceled update: %v", seen[1])
	}
}

func TestCloseEndsCallsInFlight(t *testing.T) {
	isSent, isClosing := make(chan struct{}, 2), make(chan uint64, 1)
	f := startFake(t, func(r *request) bool {
		if r.opcode == opCloseLease {
			isClosing <- le.Uint64([]byte("\x01\x00\x00\x00\x00\x00\x00\x00"))
		}
		if r.opcode <= opWriteNumber {
			isSent <- struct{}{}
			return true
		}
		return false
	})
	db, table := openFake(t, f)
	ended := make(chan error, 2)
	go func() { _, err := table.Put(context.Background(), "k", nil); ended <- err }()
	<-isSent
	go func() { _, err := table.Get(context.Background(), "k"); ended <- err }()
	<-isSent
	db.Close()
	a, b := <-ended, <-ended
	if errors.Is(b, ErrUnknown) {
		a, b = b, a
	}
	if !errors.Is(a, ErrClosed) || !errors.Is(a, ErrUnknown) || !errors.Is(b, ErrClosed) || !errors.Is(b, ErrNotDone) {
		t.Fatalf("%v, %v", a, b)
	}
	<-isClosing
}

func TestACallMayBeCanceledWhileItsClientIsClosed(t *testing.T) {
	f := startFake(t, func(*request) bool { return false })
	db, table := openFake(t, f)
	// The client has learned the table, and its connections are gone.
	table.Get(context.Background(), "k")
	db.pool.mu.Lock()
	db.pool.closed = true
	for _, it := range db.pool.endpoints {
		it.current.Store(nil)
	}
	db.pool.mu.Unlock()
	// The batch takes the end of the context or its completed part, by chance.
	for range 100 {
		b := newSingle(db)
		p := &b.one
		p.table, p.key, p.hash, p.deadline = table.id, "k", keyHash("k"), db.pool.now()+int64(time.Hour)
		ctx, cancel := context.WithCancel(context.Background())
		b.open, b.parts[0].batch = 1, b
		b.ready = append(b.ready, p)
		b.send()
		cancel()
		b.cancel(ctx)
		if p.state != partDone && p.state != partWaiting {
			t.Fatalf("the part is in state %d", p.state)
		}
		// The batch is not given back: only run makes it ready for another call.
	}
	db.pool.mu.Lock()
	db.pool.closed = false
	db.pool.mu.Unlock()
}

func TestAMovedTabletIsFoundAtItsNewServer(t *testing.T) {
	var there []identity
	after := startFake(t, script(&there, done(8)))
	var here []identity
	var f *fake
	maps := 0
	f = startFake(t, func(r *request) bool {
		if r.opcode == opMap {
			maps++
			if maps > 1 {
				news := after.table(9)
				news.Since, news.Tables[0].Since = 3, 3
				if want := `{"is_news":true,"since":3,"tables":[[1,3]]}`; string(r.body) != want {
					t.Errorf("the client asked for %s", r.body)
				}
				r.ok(body(news))
			} else {
				r.ok(body(f.table(3)))
			}
			return true
		}
		return script(&here, refuse(statusMoved))(r)
	})
	_, table := openFake(t, f)
	if version, err := table.Put(context.Background(), "k", nil); err != nil || version != 8 {
		t.Fatalf("%d, %v", version, err)
	}
	if here[0] != (identity{1, 1, 1, 3}) || there[0] != (identity{1, 1, 1, 9}) {
		t.Errorf("sent %v here and %v there", here, there)
	}
}

func TestATabletWithoutAnAddressIsAwaited(t *testing.T) {
	var seen []identity
	var f *fake
	maps := 0
	f = startFake(t, func(r *request) bool {
		if r.opcode != opMap {
			return script(&seen, done(1))(r)
		}
		maps++
		m := f.table(uint64(maps))
		if maps < 4 {
			m.Tables[0].Tablets[0].Address = nil
		}
		r.ok(body(m))
		return true
	})
	_, table := openFake(t, f)
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
}

func TestTheLeaderIsFoundAmongTheCoordinators(t *testing.T) {
	follower := startFake(t, func(r *request) bool {
		r.reply(statusNotLeader, 0, nil)
		return true
	})
	gone := startFake(t, nil)
	gone.stop()
	var seen []identity
	leader := startFake(t, script(&seen, done(1)))
	for range 3 {
		url := urlScheme + follower.address().String() + "," + gone.address().String() + "," + leader.address().String()
		db, err := Open(context.Background(), url)
		if err != nil {
			t.Fatal(err)
		}
		db.Close()
	}
}

func TestNamesAreResolvedAgainAfterAFailedRound(t *testing.T) {
	gone := startFake(t, nil)
	gone.stop()
	f := startFake(t, nil)
	lookups := 0
	lookup := func(ctx context.Context, network, host string) ([]netip.Addr, error) {
		lookups++
		return []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, byte(lookups)})}, nil
	}
	dial := func(ctx context.Context, network, address string) (net.Conn, error) {
		it := gone.ln.Addr().String()
		if netip.MustParseAddrPort(address).Addr() != netip.AddrFrom4([4]byte{127, 0, 0, 1}) {
			it = f.ln.Addr().String()
		}
		return (&net.Dialer{}).DialContext(ctx, network, it)
	}
	db, err := Open(context.Background(), "thunderhead://name", WithDialer(dial), func(s *settings) { s.lookup = lookup })
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
}

func TestADroppedTableIsAskedForOnce(t *testing.T) {
	drops, maps := 0, 0
	var f *fake
	f = startFake(t, func(r *request) bool {
		switch r.opcode {
		case opDropTable:
			drops++
			if string(r.body) != `{"name":"t","id":1}` {
				t.Errorf("the request is %s", r.body)
			}
			r.nc.Close()
		case opMap:
			maps++
			m := f.table(uint64(maps))
			if maps > 3 {
				r.reply(statusNoSuchTable, 0, nil)
				return true
			}
			r.ok(body(m))
		default:
			return false
		}
		return true
	})
	db, _ := openFake(t, f)
	if err := db.DropTable(context.Background(), "t"); err != nil || drops != 1 {
		t.Fatalf("%d requests, %v", drops, err)
	}
}

func TestATableWhoseCreationWasLostIsFound(t *testing.T) {
	creates := 0
	var f *fake
	f = startFake(t, func(r *request) bool {
		if r.opcode != opCreateTable {
			return false
		}
		creates++
		if creates == 1 {
			r.nc.Close()
		} else {
			r.reply(statusTableExists, 0, nil)
		}
		return true
	})
	db, _ := openFake(t, f)
	table, err := db.CreateTable(context.Background(), "t")
	if err != nil || table.ID() != 1 || creates != 2 {
		t.Fatalf("%d requests, %v", creates, err)
	}
}

func TestAMigrationInProgressIsUnknownAtTheDeadline(t *testing.T) {
	var requests atomic.Int32
	f := startFake(t, func(r *request) bool {
		if r.opcode == opMigrateTablet {
			r.reply(statusInProgress, 0, nil)
			requests.Add(1)
			return true
		}
		return false
	})
	db, _ := openFake(t, f)
	var err error
	untilSent(t, &requests, func(ctx context.Context) { _, err = db.MigrateTablet(ctx, "t", 0, 2) })
	if !errors.Is(err, ErrUnknown) {
		t.Fatal(err)
	}
	if _, err := db.SplitTablet(context.Background(), "t", 5); !errors.Is(err, ErrNotDone) || !errors.Is(err, ErrRefused) {
		t.Fatal(err)
	}
}

func TestAReadsAnswerThatIsTooLongIsAskedForAlone(t *testing.T) {
	var many, alone int
	f := startFake(t, func(r *request) bool {
		switch r.opcode {
		case opReadMany:
			many++
			r.reply(statusReplyTooLong, 0, nil)
		case opRead:
			alone++
			r.ok(append(words(3), "value"...))
		default:
			return false
		}
		return true
	})
	_, table := openFake(t, f)
	values, err := table.GetMany(context.Background(), []string{"a", "b", "c"})
	if err != nil || values[2].String() != "value" || many != 1 || alone != 3 {
		t.Fatalf("%v, %v; %d and %d requests", values, err, many, alone)
	}
}

func TestAScanFollowsTabletsAndRefusesPagesWithoutProgress(t *testing.T) {
	var asked [][3]uint64
	f := startFake(t, func(r *request) bool {
		if r.opcode != opEnumerate {
			return false
		}
		first, last, cursor := le.Uint64(r.body[8:]), le.Uint64(r.body[16:]), le.Uint64(r.body[24:])
		asked = append(asked, [3]uint64{first, last, cursor})
		object := append(words(1, 1), 'k')
		switch len(asked) {
		case 1: // The tablet ends at 99, and has more.
			r.ok(append(words(7, 99, 0), object...))
		case 2: // The rest of it.
			r.ok(append(words(0, 99, 1), object...))
		case 3: // Another tablet has everything else.
			r.ok(append(words(0, 1<<64-1, 1), object...))
		default:
			r.ok(words(0, 5, 1))
		}
		return true
	})
	_, table := openFake(t, f)
	count := 0
	for _, err := range table.Scan(context.Background()) {
		if err != nil {
			t.Fatal(err)
		}
		count++
	}
	want := [][3]uint64{{0, 1<<64 - 1, 0}, {0, 99, 7}, {100, 1<<64 - 1, 0}}
	if count != 3 || len(asked) != 3 || asked[0] != want[0] || asked[1] != want[1] || asked[2] != want[2] {
		t.Fatalf("%d objects; asked for %v", count, asked)
	}
	count = 0
	for _, err := range table.Scan(context.Background()) {
		if count++; count > 2 {
			t.Fatal("a scan without progress goes on")
		}
		if err != nil && !errors.Is(err, ErrProtocol) {
			t.Fatal(err)
		}
	}
}

// oddServer accepts connections and writes some bytes to each.
func oddServer(t *testing.T, bytes []byte) string {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Add(1)
	go func() {
		defer running.Done()
		for {
			nc, err := ln.Accept()
			if err != nil {
				return
			}
			nc.Write(bytes)
			running.Add(1)
			go func() {
				defer running.Done()
				io.Copy(io.Discard, nc)
				nc.Close()
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); running.Wait() })
	return urlScheme + ln.Addr().String()
}

func TestOpenSaysTheReason(t *testing.T) {
	ctx := context.Background()
	otherVersion := appendGreeting(nil, 0)
	le.PutUint16(otherVersion[4+8:], 5)
	le.PutUint16(otherVersion[4+10:], 6)
	for name, greeting := range map[string][]byte{
		"a web server": []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), "another version": otherVersion,
		"a message first": {16, 0, 0, 0}, "a long greeting": {0xff, 0xff, 0xff, 1},
	} {
		_, err := Open(ctx, oddServer(t, greeting))
		if !errors.Is(err, ErrNotThunderhead) || !errors.Is(err, ErrNotDone) {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := startFake(t, nil)
	if _, err := Open(ctx, f.url(), WithCluster(5)); !errors.Is(err, ErrWrongCluster) {
		t.Errorf("another cluster: %v", err)
	}
	gone := startFake(t, nil)
	gone.stop()
	_, err := Open(ctx, gone.url()+"/?deadline=30ms")
	if !errors.Is(err, ErrTimeout) {
		t.Errorf("no process: %v", err)
	}
	shard := startFake(t, func(r *request) bool { r.reply(statusUnknownOpcode, 0, nil); return true })
	if _, err := Open(ctx, shard.url()); !errors.Is(err, ErrRefused) {
		t.Errorf("a shard: %v", err)
	}
	for _, bytes := range []string{"", "[]", "{", `{"version":"x"}`} {
		var requests atomic.Int32
		odd := startFake(t, func(r *request) bool { r.ok([]byte(bytes)); requests.Add(1); return true })
		untilSent(t, &requests, func(ctx context.Context) { _, err = Open(ctx, odd.url()) })
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("the map %q: %v", bytes, err)
		}
	}
	var none context.Context
	if _, err := Open(none, f.url()); !errors.Is(err, ErrArgument) {
		t.Errorf("no context: %v", err)
	}
	if _, err := Open(ctx, f.url(), WithDeadline(-1)); !errors.Is(err, ErrArgument) {
		t.Errorf("a deadline below 0: %v", err)
	}
}

func TestMalformedAnswersEndAsErrors(t *testing.T) {
	long := []byte{0xff, 0xff, 0xff, 0, 1, 2, 3}
	for name, answer := range map[string]func(r *request){
		"a short body": func(r *request) { r.ok([]byte{1, 2, 3}) },
		"no such status": func(r *request) {
			r.reply(9999, 0, nil)
		},
		"a frame that is too long": func(r *request) { r.nc.Write(long) },
		"a short message":          func(r *request) { r.nc.Write([]byte{3, 0, 0, 0, 1, 2, 3}) },
		"an unknown kind":          func(r *request) { r.nc.Write([]byte{0, 0, 0, 2}) },
		"a request": func(r *request) {
			b := appendRequestHead(nil, r.id, 1, 0)
			putFrameHead(b, frameMessage)
			r.nc.Write(b)
		},
		"another id": func(r *request) {
			(&request{nc: r.nc, id: r.id + 1}).ok(words(1))
			(&request{nc: r.nc, id: r.id + 1<<32}).ok(words(1))
			(&request{nc: r.nc, id: 1<<64 - 1}).ok(words(1))
		},
	} {
		var requests atomic.Int32
		f := startFake(t, func(r *request) bool {
			if r.opcode <= opWriteNumber {
				answer(r)
				requests.Add(1)
				return true
			}
			return false
		})
		db, table := openFake(t, f)
		for call, do := range map[string]func(ctx context.Context) error{
			"get": func(ctx context.Context) error { _, err := table.Get(ctx, "k"); return err },
			"put": func(ctx context.Context) error { _, err := table.Put(ctx, "k", nil); return err },
			"put many": func(ctx context.Context) error {
				_, err := table.PutMany(ctx, []Entry{{Key: "a"}, {Key: "b"}})
				return err
			},
			"increment": func(ctx context.Context) error { _, _, err := table.Increment(ctx, "k", 1); return err },
			"scan": func(ctx context.Context) error {
				var last error
				for _, err := range table.Scan(ctx) {
					last = err
				}
				return last
			},
		} {
			var err error
			untilSent(t, &requests, func(ctx context.Context) { err = do(ctx) })
			want, other := ErrUnknown, ErrNotDone
			if call == "get" || call == "scan" {
				want, other = other, want
			}
			if !errors.Is(err, want) || errors.Is(err, other) {
				t.Errorf("%s, %s: %v", name, call, err)
			}
		}
		db.Close()
		f.stop()
	}
}

func TestUnknownFramesThatMayBeSkippedAreSkipped(t *testing.T) {
	f := startFake(t, func(r *request) bool {
		if r.opcode != opRead {
			return false
		}
		skipped := make([]byte, 4+200_000)
		putFrameHead(skipped, 200)
		r.nc.Write(skipped)
		r.nc.Write([]byte{2, 0, 0, 128, 1, 2})
		r.ok(append(words(4), make([]byte, 300_000)...))
		return true
	})
	_, table := openFake(t, f)
	if v, err := table.Get(context.Background(), "k"); err != nil || len(v.Data) != 300_000 {
		t.Fatal(err)
	}
}

func TestAClientStaysWithTheClusterThatItMetFirst(t *testing.T) {
	other := startFake(t, func(r *request) bool { t.Error("a message to another cluster"); return false })
	other.of(78)
	f := startFake(t, func(r *request) bool {
		if r.opcode != opMap {
			return false
		}
		r.ok(body(other.table(1)))
		return true
	})
	_, table := openFake(t, f)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	if _, err := table.Get(ctx, "k"); !errors.Is(err, ErrTimeout) {
		t.Fatal(err)
	}
}

func TestAClientThatLearnsItsClusterGreetsAgain(t *testing.T) {
	// The coordinator does not know its cluster yet; the shard does.
	var seen []identity
	shard := startFake(t, script(&seen, done(1)))
	f := startFake(t, func(r *request) bool {
		if r.opcode != opMap {
			return false
		}
		r.ok(body(shard.table(1)))
		return true
	})
	f.of(0)
	db, table := openFake(t, f)
	first := db.pool.endpoint(f.address()).current.Load()
	if _, err := table.Put(context.Background(), "k", nil); err != nil && !errors.Is(err, ErrWrongCluster) {
		t.Fatal(err)
	}
	if _, err := table.db.Tables(context.Background()); err != nil {
		t.Fatal(err)
	}
	if second := db.pool.endpoint(f.address()).current.Load(); second == first {
		t.Error("the connection on which the client named no cluster is still used")
	}
}

func TestALeaseIsRenewedAndReplacedWhenItHasEnded(t *testing.T) {
	renewals := make(chan uint64, 1)
	status := statusOK
	var seen []identity
	updates := script(&seen, done(1), done(2))
	f := startFake(t, func(r *request) bool {
		if r.opcode != opRenewLease {
			return updates(r)
		}
		if want := `{"lease":1}`; string(r.body) != want {
			t.Errorf("the request is %s", r.body)
		}
		r.reply(status, 0, []byte("{}"))
		renewals <- 1
		return true
	})
	db, table := openFake(t, f)
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	// The lease lasts for minutes, so the test renews it by itself.
	lease := db.leases.present.Load()
	ctx, cancel := context.WithCancel(context.Background())
	isOver := make(chan struct{})
	go func() {
		defer close(isOver)
		db.leases.renew(ctx, lease, 0)
	}()
	<-renewals
	cancel()
	<-isOver
	if db.leases.present.Load() != lease {
		t.Fatal("a renewed lease has ended")
	}
	f.handling.Lock()
	status = statusLeaseEnded
	f.handling.Unlock()
	db.leases.renew(context.Background(), lease, 0)
	<-renewals
	if _, err := table.Put(context.Background(), "k", nil); err != nil {
		t.Fatal(err)
	}
	if seen[0].lease != 1 || seen[1].lease != 2 {
		t.Errorf("the updates had %v", seen)
	}
}

func TestAReadOpensNoLease(t *testing.T) {
	f := startFake(t, func(r *request) bool {
		switch r.opcode {
		case opRead:
			r.reply(statusNotFound, 0, nil)
			return true
		case opOpenLease:
			t.Error("a lease was opened")
		}
		return false
	})
	_, table := openFake(t, f)
	if v, err := table.Get(context.Background(), "k"); err != nil || v.Exists() {
		t.Fatal(err)
	}
}

func TestAPeerThatDoesNotReadHoldsNoCallBeyondItsDeadline(t *testing.T) {
	var f *fake
	stuck := make(chan struct{})
	f = startFake(t, func(r *request) bool {
		if r.opcode == opWrite {
			<-stuck
			return true
		}
		return false
	})
	t.Cleanup(func() { close(stuck) })
	db, table := openFake(t, f)
	db.deadline = 100 * time.Millisecond
	var group sync.WaitGroup
	for range 40 {
		group.Add(1)
		go func() {
			defer group.Done()
			if _, err := table.Put(context.Background(), "k", make([]byte, 1<<20)); err == nil {
				t.Error("an update without an answer succeeded")
			}
		}()
	}
	group.Wait()
}
