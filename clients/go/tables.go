package thunderhead

import (
	"context"
	"time"
	"unicode/utf8"
)

// lookingTime is how long to look for the end of a table after the answer to its deletion was lost.
const lookingTime = 10 * time.Second

// A TableInfo describes a table.
type TableInfo struct {
	// ID does not change as long as the table exists, and is never used again.
	ID   uint64
	Name string
	// Tablets are in the order of their hashes, without gaps.
	Tablets []TabletInfo
	// TTL is the default time to live of its objects, or [Forever].
	TTL time.Duration
	// IsCache tells whether it evicts objects when memory is full.
	IsCache bool
	// MaxBytes is the most bytes of its objects; 0 if there is no limit.
	MaxBytes uint64
	// ReservedBytes is the bytes of which none are evicted for other tables.
	ReservedBytes uint64
}

// A TabletInfo describes a tablet: the part of a table whose keys hash into one range.
type TabletInfo struct {
	// First and Last are the first and the last hash that belong to it.
	First, Last uint64
	// Master is the master that owns it.
	Master uint64
	// Address is the address of the master; empty while the tablet is being recovered.
	Address string
}

func (t *tableInfo) public() TableInfo {
	it := TableInfo{ID: t.ID, Name: t.Name, TTL: Forever}
	if options := t.Options; options != nil {
		it.IsCache = options.Policy == policyCache
		it.MaxBytes, it.ReservedBytes = options.Max, options.Reserved
		if options.TTLms != 0 {
			it.TTL = ttlOf(options.TTLms)
		}
	}
	for _, tablet := range t.Tablets {
		address := ""
		if tablet.Address != nil {
			address = tablet.Address.String()
		}
		it.Tablets = append(it.Tablets, TabletInfo{tablet.First, tablet.Last, tablet.Master, address})
	}
	return it
}

// A change is a question that changes the tables, with its progress.
type change struct {
	*inquiry
	// step is the next request.
	step changeStep
	// mayBeDone: a request may have been done without an answer.
	mayBeDone bool
	// mayMove: a migration is in progress, so the tablet may move.
	mayMove bool
	answer  *tableInfo
	failed  *failure
}

type changeStep uint8

const (
	// stepAsk sends the request for the change.
	stepAsk changeStep = iota
	// stepBefore looks the table up first.
	stepBefore
	// stepLook fetches the map to see whether the change was done.
	stepLook
)

// newChange returns a question for a table that has no request yet.
func (db *DB) newChange(ctx context.Context, name string, ask func() (uint16, []byte)) *change {
	c := &change{inquiry: db.inquire(db.deadlineOf(ctx))}
	c.request = func() (uint16, []byte, time.Duration) {
		if c.step != stepAsk {
			return opMap, body(mapRequest{Table: name}), questionPatience
		}
		opcode, b := ask()
		return opcode, b, changePatience
	}
	c.understand = func(b []byte) verdict {
		it, ok := parse[tableInfo](b)
		if !ok || it.ID == 0 {
			c.failed = incomprehensible(true)
			return ended
		}
		c.answer = it
		return ended
	}
	c.refuse = func(f *failure) verdict {
		c.failed = f
		return ended
	}
	c.lost = func() { c.mayBeDone = c.mayBeDone || c.step == stepAsk }
	return c
}

// do runs the question and returns the table in its answer.
func (c *change) do(ctx context.Context) (*tableInfo, *failure) {
	f := c.run(ctx)
	if f != nil && c.isSent && c.step == stepAsk {
		c.mayBeDone = true
	}
	if f == nil {
		f = c.failed
	}
	if f == nil {
		return c.answer, nil
	}
	// *Not migrated* says that the migration in progress has ended, and how.
	mayMove := c.mayMove && f.status != statusNotMigrated
	if c.mayBeDone || mayMove {
		it := *f
		it.unknown = true
		if it.reason == ErrTimeout && c.failure.text != "" {
			it.text = c.failure.text
		}
		f = &it
	}
	return nil, f
}

func tableIn(m *mapReply, name string) *tableInfo {
	for i := range m.Tables {
		if m.Tables[i].Name == name {
			return &m.Tables[i]
		}
	}
	return nil
}

// createTable creates a table. The question is repeated if its answer is lost; a table of this name
// that exists then counts as the created one, although another client may have created it.
func (db *DB) createTable(ctx context.Context, name string, s tableSettings) (*tableInfo, *failure) {
	opcode, request := opCreateTable, createTableRequest{Name: name, ServerSpan: uint32(s.span)}
	if s.options != (createOptions{}) {
		opcode, request.Options = opCreateTableWithOptions, &s.options
	}
	c := db.newChange(ctx, name, func() (uint16, []byte) {
		return opcode, body(request)
	})
	created := c.understand
	c.understand = func(b []byte) verdict {
		if c.step == stepAsk {
			return created(b)
		}
		m, ok := c.mapOf(b)
		if !ok {
			return elsewhere
		}
		switch table := tableIn(m, name); {
		case table == nil:
			c.step = stepAsk
		case table.isServed():
			c.answer = table
			return ended
		default:
			c.failure = refusedWith(statusInProgress)
		}
		return again(c.backoff())
	}
	c.special = func(status Status) (verdict, bool) {
		switch {
		case c.step == stepLook && status == statusNoSuchTable:
			c.step = stepAsk
			return again(c.backoff()), true
		case status == statusInProgress:
			// The table exists, but its masters do not serve all of it yet.
			c.mayBeDone, c.step = true, stepLook
		case status == statusTableExists && c.mayBeDone:
			c.step = stepLook
			return again(0), true
		}
		return verdict{}, false
	}
	return c.do(ctx)
}

// dropTable drops a table. It looks up the id of the table first and sends it with the name, so
// that a request that the network delays drops no later table of that name. The request is never
// sent twice, because a coordinator of an earlier version ignores the id. If the answer is lost, it
// fetches the map until the table is gone from it.
func (db *DB) dropTable(ctx context.Context, name string) *failure {
	var id uint64
	c := db.newChange(ctx, name, func() (uint16, []byte) {
		return opDropTable, body(dropTableRequest{name, id})
	})
	c.step = stepBefore
	c.understand = func(b []byte) verdict {
		if c.step == stepAsk {
			return ended
		}
		m, ok := c.mapOf(b)
		if !ok {
			return elsewhere
		}
		table := tableIn(m, name)
		switch {
		case c.step == stepLook && (table == nil || table.ID != id):
			return ended
		case c.step == stepLook:
			return again(c.backoff())
		case table == nil:
			return c.refuse(refusedWith(statusNoSuchTable))
		}
		id, c.step = table.ID, stepAsk
		return again(0)
	}
	c.special = func(status Status) (verdict, bool) {
		if c.step == stepLook && status == statusNoSuchTable {
			return ended, true
		}
		return verdict{}, false
	}
	c.lost = func() {
		if c.step == stepAsk {
			c.mayBeDone, c.step = true, stepLook
			// The request may never have been done, so the wait also ends for a long deadline.
			c.deadline = min(c.deadline, c.db.pool.now()+int64(lookingTime))
		}
	}
	_, f := c.do(ctx)
	return f
}

func (db *DB) splitTablet(ctx context.Context, name string, at uint64) (*tableInfo, *failure) {
	c := db.newChange(ctx, name, func() (uint16, []byte) {
		return opSplitTablet, body(splitTabletRequest{name, at})
	})
	return c.do(ctx)
}

func (db *DB) migrateTablet(ctx context.Context, name string, first, to uint64) (*tableInfo, *failure) {
	c := db.newChange(ctx, name, func() (uint16, []byte) {
		return opMigrateTablet, body(migrateTabletRequest{name, first, to})
	})
	c.special = func(status Status) (verdict, bool) {
		c.mayMove = c.mayMove || status == statusInProgress
		return verdict{}, false
	}
	return c.do(ctx)
}

// findTable looks a table up.
func (db *DB) findTable(ctx context.Context, name string) (*tableInfo, *failure) {
	var found *tableInfo
	m, f := db.fetchMap(ctx, mapRequest{Table: name})
	if f != nil {
		return nil, f
	}
	if found = tableIn(m, name); found == nil {
		return nil, refusedWith(statusNoSuchTable)
	}
	return found, nil
}

// fetchMap fetches one map, with all its pages.
func (db *DB) fetchMap(ctx context.Context, request mapRequest) (*mapReply, *failure) {
	var whole *mapReply
	var refused *failure
	q := db.inquire(db.deadlineOf(ctx))
	q.isEager = request.IsNews
	q.request = func() (uint16, []byte, time.Duration) { return opMap, body(request), questionPatience }
	q.understand = func(b []byte) verdict {
		if whole == nil {
			m, ok := q.mapOf(b)
			if !ok {
				return elsewhere
			}
			whole = m
		} else if page, ok := parse[mapReply](b); !ok || !whole.join(page) {
			refused = incomprehensible(false)
			return ended
		}
		if whole.More == nil || request.IsNews || request.Table != "" {
			return ended
		}
		request.From = whole.More
		return again(0)
	}
	q.refuse = func(f *failure) verdict {
		refused = f
		return ended
	}
	if f := q.run(ctx); f != nil {
		return nil, f
	}
	return whole, refused
}

// join adds the page that begins with the table m.More. It returns false if the page makes no
// sense; otherwise the pages could go on for ever.
func (m *mapReply) join(page *mapReply) bool {
	from := *m.More
	for i := range page.Tables {
		if page.Tables[i].ID < from {
			return false
		}
	}
	if page.More != nil && *page.More <= from {
		return false
	}
	m.Tables = append(m.Tables, page.Tables...)
	m.More = page.More
	return true
}

// checkName refuses a name that no table can have and that a message cannot carry.
func checkName(name string) *failure {
	if !utf8.ValidString(name) || name == "" {
		return refusedWith(statusBadName)
	}
	return nil
}
