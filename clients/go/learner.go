package thunderhead

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"
)

// mapTablesMax is the most tables that one request for the map names.
const mapTablesMax = 1024

// A learner fetches the map when operations need a newer one. It runs only while operations wait.
type learner struct {
	db *DB

	mu sync.Mutex
	// stale has the tables for which the map is wrong or incomplete.
	stale map[uint64]struct{}
	// users counts the operations that may want a map.
	users     int
	isRunning bool
	// news is closed when a newer map has arrived.
	news chan struct{}
}

func newLearner(db *DB) *learner {
	return &learner{db: db, stale: map[uint64]struct{}{}, news: make(chan struct{})}
}

func (l *learner) join() {
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
}

func (l *learner) leave() {
	l.mu.Lock()
	l.users--
	l.mu.Unlock()
}

// want asks for a newer map of a table.
func (l *learner) want(table uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stale[table] = struct{}{}
	if !l.isRunning {
		l.isRunning = l.db.goRun(l.run)
	}
}

// look returns the present map, the tables that are stale in it, and a channel that is closed when
// there is a newer one.
func (l *learner) look() (<-chan struct{}, *tabletMap, func(table uint64) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var stale map[uint64]struct{}
	if len(l.stale) > 0 {
		stale = maps.Clone(l.stale)
	}
	return l.news, l.db.tablets.Load(), func(table uint64) bool {
		_, ok := stale[table]
		return ok
	}
}

// run fetches maps until no table is stale or no operation waits.
func (l *learner) run(ctx context.Context) {
	for {
		news := l.fetch(ctx)
		l.mu.Lock()
		before := len(l.stale)
		if news != nil {
			l.take(news)
		}
		if len(l.stale) == 0 || l.users == 0 || ctx.Err() != nil {
			l.isRunning = false
			if l.users == 0 {
				clear(l.stale)
			}
			l.mu.Unlock()
			return
		}
		isSlow := news == nil || len(l.stale) >= before
		l.mu.Unlock()
		if isSlow {
			// The next answer may have more. The wait bounds the rate of requests.
			sleep(ctx, gapWait)
		}
	}
}

// fetch asks a coordinator for the changes since the present map. It returns nil if no operation
// needs them any more.
func (l *learner) fetch(ctx context.Context) *mapReply {
	var news *mapReply
	q := l.db.inquire(0)
	q.isWanted = func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.users > 0
	}
	q.request = func() (uint16, []byte, time.Duration) { return opMap, body(l.request()), questionPatience }
	q.understand = func(b []byte) verdict {
		it, ok := q.mapOf(b)
		if !ok {
			return elsewhere
		}
		news = it
		return ended
	}
	// Operations wait for the map, and have deadlines.
	q.refuse = func(*failure) verdict { return again(q.backoff()) }
	q.run(ctx)
	return news
}

// request returns the request for the changes since the present map.
func (l *learner) request() mapRequest {
	l.mu.Lock()
	defer l.mu.Unlock()
	tablets := l.db.tablets.Load()
	request := mapRequest{IsNews: true, Since: tablets.wholeVersion()}
	for _, table := range slices.Sorted(maps.Keys(l.stale)) {
		if len(request.Tables) < mapTablesMax {
			request.Tables = append(request.Tables, [2]uint64{table, tablets.tableVersion(table)})
		}
	}
	return request
}

// tell merges a map that another question brought.
func (l *learner) tell(news *mapReply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.take(news)
}

// take merges news. The caller has the lock.
func (l *learner) take(news *mapReply) {
	l.db.tablets.Store(l.db.tablets.Load().merge(news, l.db.pool.endpoint))
	if !news.IsPart && news.More == nil {
		clear(l.stale)
	}
	for i := range news.Tables {
		delete(l.stale, news.Tables[i].ID)
	}
	for _, table := range news.Gone {
		delete(l.stale, table)
	}
	close(l.news)
	l.news = make(chan struct{})
}

// sleep waits, or returns when the context ends.
func sleep(ctx context.Context, wait time.Duration) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
