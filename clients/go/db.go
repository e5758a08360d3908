package thunderhead

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	defaultDeadline = 10 * time.Second
	defaultInFlight = 8192
)

// DB is a client of a cluster. Any number of goroutines may share it; a program needs one for each
// cluster. It has one connection for each server that it uses.
type DB struct {
	deadline time.Duration
	inFlight int

	pool         *pool
	tablets      atomic.Pointer[tabletMap]
	coordinators *coordinators
	learner      *learner
	leases       *leases

	isClosed atomic.Bool
	// closing is closed when the client is.
	closing chan struct{}
	// closed is closed when everything has ended.
	closed chan struct{}

	// background is the context of goroutines that belong to no call.
	background context.Context
	cancel     context.CancelFunc
	mu         sync.Mutex
	running    sync.WaitGroup
}

// An Option is a setting for [Open].
type Option func(*settings)

type settings struct {
	deadline time.Duration
	cluster  uint64
	inFlight int
	dial     dialFunc
	lookup   lookupFunc
}

// WithDeadline sets the time limit of calls whose context has no deadline. It is 10 seconds by
// default. The URL's deadline takes its place.
func WithDeadline(deadline time.Duration) Option {
	return func(s *settings) { s.deadline = deadline }
}

// WithCluster restricts the client to the cluster with this id. By default, the first coordinator
// that answers decides the cluster.
func WithCluster(id uint64) Option { return func(s *settings) { s.cluster = id } }

// WithInFlight sets the limit of operations that one call of GetMany, PutMany or DeleteMany has in
// flight. It is 8192 by default.
func WithInFlight(operations int) Option { return func(s *settings) { s.inFlight = operations } }

// WithDialer makes connections with this function instead of a [net.Dialer]. On Linux, a dialer for
// a server on this machine should set SO_REUSEADDR: without it, the port of a connection stays taken
// for a minute, and a server that restarts may need that port.
func WithDialer(dial func(ctx context.Context, network, address string) (net.Conn, error)) Option {
	return func(s *settings) { s.dial = dial }
}

func newDialer() *net.Dialer {
	return &net.Dialer{
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: 10 * time.Second, Interval: 5 * time.Second, Count: 3,
		},
		Control: allowListeners,
	}
}

// Open connects to the cluster that a URL names:
//
//	thunderhead://HOST[:PORT][,HOST[:PORT]...]/[?deadline=TIME&cluster=ID&in_flight=N]
//
// The hosts are the coordinators: all of them, or some. It is enough if one of them can be reached.
// The port is 7070 if there is none. Open asks a coordinator for the map, to notice a wrong address
// now, and waits for one until the deadline.
func Open(ctx context.Context, url string, options ...Option) (*DB, error) {
	const op = "open"
	if ctx == nil {
		return nil, nilContext().in(op, "")
	}
	parsed, f := parseURL(url)
	if f != nil {
		return nil, f.in(op, "")
	}
	dialer := newDialer()
	s := settings{
		deadline: defaultDeadline, inFlight: defaultInFlight,
		dial: dialer.DialContext, lookup: net.DefaultResolver.LookupNetIP,
	}
	for _, option := range options {
		option(&s)
	}
	if parsed.deadline != 0 {
		s.deadline = parsed.deadline
	}
	if parsed.cluster != 0 {
		s.cluster = parsed.cluster
	}
	if parsed.inFlight != 0 {
		s.inFlight = parsed.inFlight
	}
	if s.deadline <= 0 || s.inFlight <= 0 || s.dial == nil {
		return nil, badArgument("the deadline and the limit of operations must be above 0, and a dialer not nil").in(op, "")
	}
	db := newDB(&s, parsed.hosts)
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, s.deadline)
		defer cancel()
		ctx = limited
	}
	if err := db.coordinators.resolve(ctx); err != nil {
		db.Close()
		f := &failure{reason: ErrURL, cause: err}
		f.text = fmt.Sprintf("no coordinator can be found: %v; check the hosts of the URL", err)
		return nil, f.in(op, "")
	}
	db.coordinators.shuffle()
	news, f := db.fetchMap(ctx, mapRequest{IsNews: true})
	if f != nil {
		db.Close()
		if trouble := db.coordinators.trouble; f.reason == ErrTimeout && trouble != "" {
			f.text += " (the last attempt: " + trouble + ")"
		}
		return nil, f.in(op, "")
	}
	db.learner.tell(news)
	return db, nil
}

func newDB(s *settings, hosts []hostPort) *DB {
	db := &DB{
		deadline: s.deadline, inFlight: s.inFlight, pool: newPool(s.dial, s.cluster),
		closing: make(chan struct{}), closed: make(chan struct{}),
	}
	db.background, db.cancel = context.WithCancel(context.Background())
	db.coordinators = &coordinators{db: db, hosts: hosts, lookup: s.lookup}
	db.tablets.Store(&tabletMap{})
	db.learner = newLearner(db)
	db.leases = &leases{db: db}
	return db
}

// Close ends the client: all calls in flight return [ErrClosed], and the lease ends, so that
// servers can forget its completion records. It waits for a coordinator for a second at most.
// Further calls of Close wait for the first one. The error is always nil.
func (db *DB) Close() error {
	db.mu.Lock()
	isFirst := !db.isClosed.Swap(true)
	db.mu.Unlock()
	if !isFirst {
		<-db.closed
		return nil
	}
	close(db.closing)
	db.cancel()
	db.pool.dropAll()
	db.running.Wait()
	db.leases.close(context.Background())
	db.pool.close()
	close(db.closed)
	return nil
}

// goRun runs a function in the background, unless the client is closed. Its context ends when the
// client is closed, and Close waits for it.
func (db *DB) goRun(f func(ctx context.Context)) bool {
	db.mu.Lock()
	defer db.mu.Unlock()
	if db.isClosed.Load() {
		return false
	}
	db.running.Add(1)
	go func() {
		defer db.running.Done()
		f(db.background)
	}()
	return true
}

// deadlineOf returns the time by which a call with this context ends.
func (db *DB) deadlineOf(ctx context.Context) int64 {
	now := db.pool.now()
	if at, ok := ctx.Deadline(); ok {
		return now + int64(time.Until(at))
	}
	return now + int64(db.deadline)
}

func nilContext() *failure { return badArgument("the context is nil; pass context.Background()") }

func badArgument(text string) *failure { return &failure{reason: ErrArgument, text: text} }

// check refuses a call that cannot begin.
func (db *DB) check(ctx context.Context) *failure {
	switch {
	case ctx == nil:
		return nilContext()
	case db.isClosed.Load():
		return &failure{reason: ErrClosed}
	}
	if err := ctx.Err(); err != nil {
		return canceled(err, false)
	}
	return nil
}

// A TableOption is a setting for [DB.Table] and [DB.CreateTable].
type TableOption func(*tableSettings)

type tableSettings struct {
	creates bool
	span    int
	options createOptions
	failure *failure
}

// CreateTable makes [DB.Table] create the table if there is none of this name.
func CreateTable() TableOption { return func(s *tableSettings) { s.creates = true } }

// Span spreads a new table over so many shards; 1 by default.
func Span(shards int) TableOption { return func(s *tableSettings) { s.span = shards } }

// DefaultTTL sets how long an object of a new table lives if its write does not say it. A cluster that
// was made by an earlier release must be switched to format 2 first.
func DefaultTTL(ttl time.Duration) TableOption {
	return func(s *tableSettings) {
		millis, f := ttlMillis(ttl)
		if f != nil {
			s.failure = f
		} else if ttl != Forever {
			s.options.TTLms = millis
		}
	}
}

// Cache makes a new table a cache: when memory is full, it evicts objects that were not used lately,
// where other tables refuse writes. The format of the cluster matters as for [DefaultTTL].
func Cache() TableOption { return func(s *tableSettings) { s.options.Policy = policyCache } }

// MaxBytes limits the bytes of the objects of a new table, with their keys and headers. A cache evicts
// its own objects; other tables refuse writes that would exceed the limit. The format of the cluster
// matters as for [DefaultTTL].
func MaxBytes(bytes uint64) TableOption {
	return func(s *tableSettings) {
		if bytes == 0 {
			s.failure = badArgument("the limit of a table must be at least 1 byte")
		}
		s.options.Max = bytes
	}
}

// ReservedBytes keeps so many bytes of a new cache: none of them are evicted for other tables. The
// format of the cluster matters as for [DefaultTTL].
func ReservedBytes(bytes uint64) TableOption {
	return func(s *tableSettings) { s.options.Reserved = bytes }
}

// policyCache is the policy of a cache, as it goes over the wire.
const policyCache = "cache"

func tableOptions(options []TableOption) (tableSettings, *failure) {
	s := tableSettings{span: 1}
	for _, option := range options {
		option(&s)
	}
	if s.span < 1 || int64(s.span) > 1<<31 {
		return s, badArgument("the span of a table must be at least 1")
	}
	return s, s.failure
}

// Table opens a table by its name. With [CreateTable] it creates a missing table.
func (db *DB) Table(ctx context.Context, name string, options ...TableOption) (*Table, error) {
	const op = "open table"
	s, f := tableOptions(options)
	if f == nil {
		f = db.check(ctx)
	}
	if f == nil {
		f = checkName(name)
	}
	if f != nil {
		return nil, f.in(op, name)
	}
	table, f := db.findTable(ctx, name)
	if f != nil && f.reason == ErrNoSuchTable && s.creates {
		table, f = db.createTable(ctx, name, s)
		if f != nil && f.reason == ErrTableExists {
			// Another client was faster.
			table, f = db.findTable(ctx, name)
		}
	}
	if f != nil {
		return nil, f.in(op, name)
	}
	return &Table{db, table.ID, name}, nil
}

// CreateTable creates a table and opens it. The error is [ErrTableExists] if there is one of this
// name. If an answer is lost and another client creates a table of this name at the same time, both
// calls may succeed with the same table.
func (db *DB) CreateTable(ctx context.Context, name string, options ...TableOption) (*Table, error) {
	const op = "create table"
	s, f := tableOptions(options)
	if f == nil {
		f = db.check(ctx)
	}
	if f == nil {
		f = checkName(name)
	}
	if f != nil {
		return nil, f.in(op, name)
	}
	table, f := db.createTable(ctx, name, s)
	if f != nil {
		return nil, f.in(op, name)
	}
	return &Table{db, table.ID, name}, nil
}

// DropTable drops a table with all its objects.
func (db *DB) DropTable(ctx context.Context, name string) error {
	f := db.check(ctx)
	if f == nil {
		f = checkName(name)
	}
	if f == nil {
		f = db.dropTable(ctx, name)
	}
	if f != nil {
		return f.in("drop table", name)
	}
	return nil
}

// Tables returns all tables, with the location of each tablet.
func (db *DB) Tables(ctx context.Context) ([]TableInfo, error) {
	f := db.check(ctx)
	var m *mapReply
	if f == nil {
		m, f = db.fetchMap(ctx, mapRequest{})
	}
	if f != nil {
		return nil, f.in("list tables", "")
	}
	tables := []TableInfo{}
	for i := range m.Tables {
		tables = append(tables, m.Tables[i].public())
	}
	return tables, nil
}

// SplitTablet splits the tablet that holds the hash at into two. at is the first hash of the second
// one.
func (db *DB) SplitTablet(ctx context.Context, name string, at uint64) (TableInfo, error) {
	return db.changeTablet(ctx, "split tablet", name, func() (*tableInfo, *failure) {
		return db.splitTablet(ctx, name, at)
	})
}

// MigrateTablet moves the tablet that begins with the hash first to another master, and waits until
// the move is complete. The move of a large tablet takes longer than the default deadline: use a
// context with a later one.
func (db *DB) MigrateTablet(ctx context.Context, name string, first, toMaster uint64) (TableInfo, error) {
	return db.changeTablet(ctx, "migrate tablet", name, func() (*tableInfo, *failure) {
		return db.migrateTablet(ctx, name, first, toMaster)
	})
}

func (db *DB) changeTablet(ctx context.Context, op, name string, do func() (*tableInfo, *failure)) (TableInfo, error) {
	f := db.check(ctx)
	if f == nil {
		f = checkName(name)
	}
	var table *tableInfo
	if f == nil {
		table, f = do()
	}
	if f != nil {
		return TableInfo{}, f.in(op, name)
	}
	return table.public(), nil
}
