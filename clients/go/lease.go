package thunderhead

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
)

// closingTime is how long to try to close a lease. It also expires by itself.
const closingTime = time.Second

// leases has the client's lease. The client opens it for the first update, so that a client that
// only reads costs the coordinator nothing. It renews the lease after a third of its duration.
// While no coordinator answers, the client goes on using the lease: an absent coordinator ends no
// lease, and access to data must not depend on the coordinator. A client that had no turn for
// longer than a lease lasts (a process that was stopped) takes a new lease for its next update,
// because the old one has probably ended.
type leases struct {
	db *DB
	// present is the lease for new updates.
	present atomic.Pointer[presentLease]
	// lastTurn is the last time at which the client had a turn.
	lastTurn atomic.Int64

	mu sync.Mutex
	// users counts the operations that may wait for a lease.
	users   int
	opening *leaseOpening
}

type presentLease struct {
	*clientLease
	lasts time.Duration
	// over is closed when the lease is no longer used.
	over chan struct{}
}

// A leaseOpening is the opening of a lease. When done is closed, there is a lease, or a failure.
type leaseOpening struct {
	done    chan struct{}
	failure *failure
}

func (l *leases) join() {
	l.mu.Lock()
	l.users++
	l.mu.Unlock()
}

func (l *leases) leave() {
	l.mu.Lock()
	l.users--
	l.mu.Unlock()
}

// use returns the lease for new updates, or nil.
func (l *leases) use(now int64) *clientLease {
	it := l.present.Load()
	if it == nil {
		return nil
	}
	last := l.lastTurn.Load()
	if now-last > int64(it.lasts) {
		l.ended(it.clientLease)
		return nil
	}
	// The resolution of a second keeps the processors from sharing a changing word.
	if now-last > int64(time.Second) {
		l.lastTurn.Store(now)
	}
	return it.clientLease
}

// ended notes that a lease has ended, or may have ended. Updates that were sent keep theirs, and
// shards say whether it has ended.
func (l *leases) ended(lease *clientLease) {
	it := l.present.Load()
	if it != nil && it.clientLease == lease && l.present.CompareAndSwap(it, nil) {
		close(it.over)
	}
}

// open returns the opening of a lease, and begins one if there is none. The caller has joined.
func (l *leases) open() *leaseOpening {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.opening != nil {
		return l.opening
	}
	it := &leaseOpening{done: make(chan struct{})}
	if l.present.Load() != nil {
		// Another operation has opened one meanwhile.
		close(it.done)
		return it
	}
	if l.db.goRun(func(ctx context.Context) { l.runOpening(ctx, it) }) {
		l.opening = it
	} else {
		it.failure = &failure{reason: ErrClosed}
		close(it.done)
	}
	return it
}

func (l *leases) runOpening(ctx context.Context, it *leaseOpening) {
	q := l.db.inquire(0)
	q.isWanted = func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return l.users > 0
	}
	q.request = func() (uint16, []byte, time.Duration) { return opOpenLease, []byte("{}"), questionPatience }
	q.understand = func(b []byte) verdict {
		opened, ok := parse[leaseOpened](b)
		if !ok || opened.Lease == 0 {
			it.failure = incomprehensible(false)
			return ended
		}
		if !l.db.coordinators.isCluster(opened.Cluster) {
			it.failure = refusedWith(statusWrongCluster)
			return ended
		}
		lasts := time.Duration(min(max(opened.TTLms, 1), 1<<40)) * time.Millisecond
		now := l.db.pool.now()
		if now-q.sentAt > int64(lasts) {
			// The answer took longer than the lease lasts, so the lease has already ended.
			return again(q.backoff())
		}
		lease := &presentLease{newLease(opened.Lease), lasts, make(chan struct{})}
		l.lastTurn.Store(now)
		l.present.Store(lease)
		renewAt := q.sentAt + int64(lasts/3)
		l.db.goRun(func(ctx context.Context) { l.renew(ctx, lease, renewAt) })
		return ended
	}
	q.refuse = func(f *failure) verdict {
		it.failure = f
		return ended
	}
	// If no operation wanted the lease any more, an operation that has begun to wait since opens it
	// again.
	if f := q.run(ctx); f != nil && l.db.isClosed.Load() {
		it.failure = f
	}
	l.mu.Lock()
	l.opening = nil
	l.mu.Unlock()
	close(it.done)
}

// renew keeps a lease open until it is no longer used.
func (l *leases) renew(ctx context.Context, lease *presentLease, at int64) {
	for {
		timer := time.NewTimer(time.Duration(max(at-l.db.pool.now(), 0)))
		select {
		case <-timer.C:
		case <-lease.over:
			timer.Stop()
			return
		case <-ctx.Done():
			timer.Stop()
			return
		}
		if now := l.db.pool.now(); now-l.lastTurn.Load() > int64(lease.lasts) {
			// The process has had no turn for so long.
			l.ended(lease.clientLease)
			return
		}
		at = l.db.pool.now() + int64(lease.lasts/3)
		q := l.db.inquire(0)
		q.isWanted = func() bool { return l.present.Load() == lease }
		q.request = func() (uint16, []byte, time.Duration) {
			l.lastTurn.Store(l.db.pool.now())
			return opRenewLease, body(leaseRequest{lease.id}), questionPatience
		}
		q.understand = func([]byte) verdict {
			at = q.sentAt + int64(lease.lasts/3)
			return ended
		}
		q.refuse = func(f *failure) verdict {
			if f.status == statusLeaseEnded {
				l.ended(lease.clientLease)
			}
			// After any other refusal, shards say whether the lease has ended.
			return ended
		}
		q.run(ctx)
	}
}

// close ends the lease, so that servers can forget its completion records.
func (l *leases) close(ctx context.Context) {
	it := l.present.Load()
	if it == nil {
		return
	}
	l.ended(it.clientLease)
	q := l.db.inquire(l.db.pool.now() + int64(closingTime))
	q.request = func() (uint16, []byte, time.Duration) {
		return opCloseLease, body(leaseRequest{it.id}), questionPatience
	}
	q.understand = func([]byte) verdict { return ended }
	q.refuse = func(*failure) verdict { return ended }
	q.run(ctx)
}
