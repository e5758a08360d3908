package thunderhead

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// patience is how long to wait for one answer. A server that is alive answers much sooner, or
	// refuses because it is busy.
	patience = int64(time.Second)
	// gapWait is about how long to wait if the map has the table but no address for the tablet: a
	// master will soon take it over.
	gapWait = 10 * time.Millisecond
)

// patienceUntil returns how long to wait for one answer if this time remains until the deadline.
// The attempt ends a little before the deadline, because only its end tells whether the request
// has left.
func patienceUntil(left int64) int64 { return min(patience, left-left/16) }

// A batch is the operations of one call. The goroutine of the caller drives it: it sends the parts
// to the shards that have their keys, and decides the next step after each attempt.
//
// # Leases
//
// An update takes its sequence when it is sent for the first time, under the current lease, and
// keeps both in every attempt. This makes retries safe for ever: a shard either has the completion
// records of that lease, or knows that the lease has ended and refuses. When a lease ends,
//
//   - an update that was never sent goes out under the next lease;
//   - an update that was sent just once and refused because the lease has ended was not done, and
//     goes out under the next lease too;
//   - any other update that is refused so is unknown: an earlier attempt may have been done, and
//     its completion record discarded with the lease.
type batch struct {
	db    *DB
	parts []*part
	// one is the part of a batch with a single operation, which needs no other memory.
	one  part
	ones [1]*part
	// all is the parts of a batch with many operations.
	all []*part
	// open counts the parts that have not ended.
	open int
	// inFlight counts the parts that connections have.
	inFlight int
	ready    []*part
	// waits, lost and unleased tell that there may be parts in these states.
	waits, lost, unleased bool
	learns                bool
	opening               *leaseOpening
	news                  <-chan struct{}
	timer                 *time.Timer

	// completed is the list of parts that connections have handed back, and signal tells that it
	// is no longer empty.
	completed atomic.Pointer[part]
	signal    chan struct{}
}

// keptParts is the most parts of many operations that a batch keeps for the next one.
const keptParts = 1024

var batches = sync.Pool{New: func() any { return &batch{signal: make(chan struct{}, 1)} }}

// newSingle returns a batch with one part, which the caller fills in.
func newSingle(db *DB) *batch {
	b := batches.Get().(*batch)
	b.db = db
	b.ones[0] = &b.one
	b.parts = b.ones[:]
	return b
}

// newMany returns a batch with so many parts, which the caller fills in.
func newMany(db *DB, size int) *batch {
	b := batches.Get().(*batch)
	b.db = db
	if missing := size - len(b.all); missing > 0 {
		parts := make([]part, missing)
		b.all = slices.Grow(b.all, missing)
		for i := range parts {
			b.all = append(b.all, &parts[i])
		}
	}
	b.parts = b.all[:size]
	return b
}

// release gives a batch back. Its parts must have ended: after a panic, a connection may still have
// some.
func (b *batch) release() {
	for _, p := range b.parts {
		*p = part{}
	}
	b.db, b.parts = nil, nil
	clear(b.ready)
	b.ready = b.ready[:0]
	if len(b.all) <= keptParts {
		batches.Put(b)
	}
}

// push takes parts back from their connection: first, and those linked to it, up to last.
func (b *batch) push(first, last *part) {
	for {
		head := b.completed.Load()
		last.next = head
		if b.completed.CompareAndSwap(head, first) {
			if head == nil {
				select {
				case b.signal <- struct{}{}:
				default:
				}
			}
			return
		}
	}
}

// run does the operations. Afterwards each part has its result or its failure.
func (b *batch) run(ctx context.Context) {
	b.open, b.inFlight = 0, 0
	b.waits, b.lost, b.unleased = false, false, false
	for _, p := range b.parts {
		p.batch = b
		if p.failure != nil {
			// It was refused before it began.
			p.state = partDone
			continue
		}
		b.open++
		b.ready = append(b.ready, p)
	}
	for {
		b.send()
		if b.open == 0 {
			break
		}
		b.wait(ctx)
	}
	if b.learns {
		b.learns = false
		b.db.learner.leave()
	}
	if b.opening != nil {
		b.opening = nil
		b.db.leases.leave()
	}
	b.news = nil
	if b.timer != nil {
		b.timer.Stop()
		b.timer = nil
	}
}

// send sends all ready parts.
func (b *batch) send() {
	if len(b.ready) == 0 {
		return
	}
	now, tablets := b.db.pool.now(), b.db.tablets.Load()
	if len(b.ready) == 1 {
		p := b.ready[0]
		b.ready = b.ready[:0]
		if to := b.route(now, tablets, p); to != nil {
			to.submit(p)
		}
		return
	}
	routes := map[*endpoint][]*part{}
	for _, p := range b.ready {
		if to := b.route(now, tablets, p); to != nil {
			routes[to] = append(routes[to], p)
		}
	}
	clear(b.ready)
	b.ready = b.ready[:0]
	for to, parts := range routes {
		to.submit(parts...)
	}
}

// route prepares a part for its next attempt and returns the shard to send it to. nil: it waits for
// a map or a lease, or has ended.
func (b *batch) route(now int64, tablets *tabletMap, p *part) *endpoint {
	if b.db.isClosed.Load() {
		b.end(p, p.unlessDone(&failure{reason: ErrClosed}))
		return nil
	}
	left := p.deadline - now
	if left <= 0 {
		b.end(p, p.expired())
		return nil
	}
	if p.isUpdate() {
		current := b.db.leases.use(now)
		if p.lease != nil && p.sent == 0 && p.lease != current {
			p.endSequence()
		}
		if p.lease == nil {
			if current == nil {
				p.state, p.obstacle = partUnleased, obstacleNoCoordinator
				b.unleased = true
				return nil
			}
			p.lease = current
		}
	}
	to, version := tablets.find(p.table, p.hash)
	if to == nil {
		p.state, p.obstacle = partLost, obstacleNoMap
		b.lost = true
		b.learn(p.table)
		return nil
	}
	p.clearResult()
	p.state, p.mapVersion, p.timeout = partInFlight, version, patienceUntil(left)
	p.sent++
	b.inFlight++
	return to
}

// learn asks for a newer map of a table, in the background.
func (b *batch) learn(table uint64) {
	if !b.learns {
		b.learns = true
		b.db.learner.join()
	}
	b.db.learner.want(table)
}

// wait waits for the next event and handles it.
func (b *batch) wait(ctx context.Context) {
	if !b.waits && !b.lost && !b.unleased {
		select {
		case <-b.signal:
			b.takeCompleted()
		case <-ctx.Done():
			b.cancel(ctx)
		}
		return
	}
	var opened <-chan struct{}
	if b.unleased {
		if b.opening == nil {
			b.db.leases.join()
		}
		b.opening = b.db.leases.open()
		opened = b.opening.done
	}
	b.news = nil
	if b.lost {
		b.news = b.takeNews()
		if len(b.ready) > 0 || b.open == 0 {
			return
		}
	}
	wait := time.Duration(b.nextTime() - b.db.pool.now())
	if b.timer == nil {
		b.timer = time.NewTimer(wait)
	} else {
		b.timer.Reset(wait)
	}
	select {
	case <-b.signal:
		b.takeCompleted()
	case <-b.news:
		b.takeNews()
	case <-opened:
		b.leaseOpened()
	case <-b.timer.C:
	case <-ctx.Done():
		b.cancel(ctx)
		return
	case <-b.db.closing:
		b.endIdle(func(p *part) *failure { return p.unlessDone(&failure{reason: ErrClosed}) })
		return
	}
	b.wake()
}

// nextTime returns the time of the next step of a part that no connection has.
func (b *batch) nextTime() int64 {
	next := int64(1<<63 - 1)
	for _, p := range b.parts {
		switch p.state {
		case partWaiting:
			next = min(next, p.dueAt)
		case partLost, partUnleased:
			next = min(next, p.deadline)
		}
	}
	return next
}

// wake readies the parts whose wait is over, and ends parts at their deadline.
func (b *batch) wake() {
	now := b.db.pool.now()
	b.waits, b.lost, b.unleased = false, false, false
	for _, p := range b.parts {
		switch {
		case p.state == partWaiting && p.dueAt <= now:
			b.makeReady(p)
		case p.state == partWaiting:
			b.waits = true
		case p.state != partLost && p.state != partUnleased:
		case p.deadline <= now:
			b.end(p, p.expired())
		case p.state == partLost:
			b.lost = true
		default:
			b.unleased = true
		}
	}
}

func (b *batch) makeReady(p *part) {
	p.state = partReady
	b.ready = append(b.ready, p)
}

// takeNews looks at the parts that wait for a map. It returns a channel that is closed when there
// is a newer map.
func (b *batch) takeNews() <-chan struct{} {
	news, tablets, stale := b.db.learner.look()
	for _, p := range b.parts {
		if p.state != partLost || stale(p.table) {
			continue
		}
		to, _ := tablets.find(p.table, p.hash)
		switch {
		case to != nil:
			b.makeReady(p)
		case tablets.hasTable(p.table):
			p.obstacle = obstacleNoOwner
			b.waitFor(p, b.db.pool.now()+int64(gapWait+rand.N(gapWait)))
		default:
			// No later attempt can be done for a table that no longer exists, but an earlier one
			// may have been done.
			b.end(p, p.unlessDone(droppedTable()))
		}
	}
	return news
}

func (b *batch) waitFor(p *part, at int64) {
	p.state, p.dueAt = partWaiting, min(at, p.deadline)
	b.waits = true
}

// leaseOpened readies the parts that wait for a lease, or ends them if none can be had.
func (b *batch) leaseOpened() {
	failure := b.opening.failure
	b.opening = nil
	b.db.leases.leave()
	for _, p := range b.parts {
		if p.state != partUnleased {
			continue
		}
		if failure != nil {
			f := *failure
			b.end(p, p.unlessDone(&f))
		} else {
			b.makeReady(p)
		}
	}
}

// takeCompleted handles the parts that connections have handed back.
func (b *batch) takeCompleted() {
	var ended sequenceRun
	for p := b.completed.Swap(nil); p != nil; {
		next := p.next
		p.next = nil
		b.inFlight--
		if p.isDone() && p.lease != nil && p.sequence != 0 {
			ended.add(p.lease, p.sequence)
			p.lease, p.sequence = nil, 0
		}
		b.answered(p)
		p = next
	}
	ended.end()
}

// A sequenceRun is consecutive sequences of updates that have ended. Most updates of a message end
// together, and their lease notes that at once.
type sequenceRun struct {
	lease       *clientLease
	first, last uint64
}

// add adds a sequence. A sequence that does not stand before the others begins a new run.
func (r *sequenceRun) add(lease *clientLease, sequence uint64) {
	if r.lease == lease && sequence+1 == r.first {
		r.first = sequence
		return
	}
	r.end()
	*r = sequenceRun{lease, sequence, sequence}
}

// end tells the lease.
func (r *sequenceRun) end() {
	if r.lease != nil {
		r.lease.end(r.first, r.last)
	}
}

// answered decides the next step after an attempt.
func (b *batch) answered(p *part) {
	switch {
	case p.result != callReplied:
		b.failed(p)
	case p.isMalformed:
		b.end(p, p.unlessDone(incomprehensible(p.isUpdate())))
	case p.isDone():
		b.end(p, nil)
	case p.status == statusNotFound && (p.kind == kindRead || p.kind == kindReadExpiry):
		p.isAbsent = true
		b.end(p, nil)
	case p.status == statusReplyTooLong && p.wasMany:
		p.isAlone = true
		b.makeReady(p)
	case p.status == statusLeaseEnded:
		b.leaseEnded(p)
	default:
		next, isKnown := p.status.next()
		switch {
		case !isKnown:
			b.end(p, p.unlessDone(incomprehensible(p.isUpdate())))
		case next == stepRefresh || next == stepWait:
			b.failed(p)
		case p.status == statusConditionFailed:
			b.end(p, conditionFailed(p.version))
		case p.status == statusNotANumber:
			b.end(p, notANumber(p.version))
		case p.status.isDefinite():
			b.end(p, refusedWith(p.status))
		default:
			// A server without knowledge of an earlier attempt may have refused.
			b.end(p, p.unlessDone(refusedWith(p.status)))
		}
	}
}

// leaseEnded handles the refusal of an update because its lease has ended.
func (b *batch) leaseEnded(p *part) {
	lease := p.lease
	isFirst := p.sent == 1 && !p.mayBeDone && lease != nil
	if isFirst {
		p.endSequence()
		p.sent = 0
		b.makeReady(p)
	} else {
		// If more than one attempt was sent, an earlier one may have been done.
		f := refusedWith(statusLeaseEnded)
		f.unknown = p.isUpdate()
		b.end(p, f)
	}
	if lease != nil {
		b.db.leases.ended(lease)
	}
}

// failed handles an attempt that failed, as far as the client knows.
func (b *batch) failed(p *part) {
	now := b.db.pool.now()
	if p.result == callUnreachable || p.result == callTooLong {
		// This attempt never left.
		p.sent--
	}
	switch p.result {
	case callClosed, callBroken, callLate:
		p.mayBeDone = true
		// A server that reported that it waits for its backups probably still does.
		if p.obstacle != obstacleReplicas || p.result != callLate {
			p.obstacle = obstacleNoAnswer
		}
	case callReplied:
		// The update is in the log of a server that may still lose it.
		p.mayBeDone = p.mayBeDone || p.status == statusAwaitingReplicas
		p.obstacle = obstacleOf(p.status)
	case callUnreachable:
		p.obstacle = obstacleNoAnswer
		if p.cause == errOtherCluster {
			p.obstacle = obstacleOtherCluster
		}
	}
	if p.result == callClosed || b.db.isClosed.Load() {
		b.end(p, p.unlessDone(&failure{reason: ErrClosed}))
		return
	}
	if p.result == callTooLong {
		b.end(p, p.unlessDone(refusedWith(statusValueTooLong)))
		return
	}
	next := decideRetry(p.result, p.status, p.hint, p.failures)
	p.failures++
	at := now + int64(next.wait)
	switch {
	case next.giveUp || at >= p.deadline:
		b.end(p, p.expired())
	case next.refresh && next.wait == 0:
		p.state = partLost
		b.lost = true
		b.learn(p.table)
	default:
		// By then the server may have restarted at the same address.
		b.waitFor(p, at)
		if next.refresh {
			b.learn(p.table)
		}
	}
}

// cancel ends all parts because the caller stops waiting.
func (b *batch) cancel(ctx context.Context) {
	err := ctx.Err()
	for _, p := range b.parts {
		if p.state != partInFlight {
			continue
		}
		if isBack, wasSent := p.withdraw(); isBack {
			b.inFlight--
			p.mayBeDone = p.mayBeDone || wasSent
			b.end(p, canceled(err, p.isUpdate() && p.mayBeDone))
		}
	}
	// The others are being completed.
	for b.inFlight > 0 {
		<-b.signal
		b.takeCompleted()
	}
	b.endIdle(func(p *part) *failure { return canceled(err, p.isUpdate() && p.mayBeDone) })
}

// endIdle ends the parts that no connection has.
func (b *batch) endIdle(why func(p *part) *failure) {
	for _, p := range b.parts {
		if p.state != partInFlight && p.state != partDone {
			b.end(p, why(p))
		}
	}
	clear(b.ready)
	b.ready = b.ready[:0]
	b.waits, b.lost, b.unleased = false, false, false
}

// end ends a part with a failure, or with the result that it has.
func (b *batch) end(p *part, f *failure) {
	if p.state == partDone {
		return
	}
	p.state, p.failure = partDone, f
	p.endSequence()
	b.open--
}

// endSequence notes that the client will not send the update again under its identity.
func (p *part) endSequence() {
	if p.lease != nil && p.sequence != 0 {
		p.lease.end(p.sequence, p.sequence)
	}
	p.lease, p.sequence = nil, 0
}

// unlessDone returns the failure of a part whose last attempt was not done: this one, unless an
// earlier attempt may have been done.
func (p *part) unlessDone(f *failure) *failure {
	if p.isUpdate() && p.mayBeDone {
		if f.reason == ErrClosed {
			f.unknown = true
			return f
		}
		return &failure{reason: ErrUnknown, unknown: true, text: p.obstacle.String()}
	}
	return f
}

// expired returns the failure of a part whose deadline has passed.
func (p *part) expired() *failure {
	return timedOut(p.obstacle, p.isUpdate() && p.mayBeDone)
}
