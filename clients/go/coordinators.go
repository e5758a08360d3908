package thunderhead

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

const (
	// questionPatience is how long to wait for an answer that comes at once.
	questionPatience = time.Second
	// changePatience is how long to wait if the coordinator must first inform servers.
	changePatience = 5 * time.Second
	// resolveEvery is the shortest time between two resolutions of the coordinators' names.
	resolveEvery = time.Second
)

// A lookupFunc resolves the name of a host, as [net.Resolver.LookupNetIP] does.
type lookupFunc func(ctx context.Context, network, host string) ([]netip.Addr, error)

// coordinators has the coordinators of a cluster, and the assumed leader.
//
// If the assumed leader says that it does not lead, or does not answer, the next one in the list is
// assumed to lead. When a question has been to all coordinators, it waits a little, longer each
// time, and the names of the coordinators are resolved again: they may be elsewhere.
type coordinators struct {
	db     *DB
	hosts  []hostPort
	lookup lookupFunc

	mu   sync.Mutex
	list []netip.AddrPort
	// found has the last addresses of each host.
	found   [][]netip.AddrPort
	assumed int
	// version is the version of the newest map seen. A coordinator that has lost its leadership
	// without knowing may report an older map, which is refused.
	version     uint64
	isResolving bool
	resolvedAt  time.Time
	// cluster is the cluster of the first lease.
	cluster uint64
	// trouble is the last error of a connection to a coordinator, for messages to people.
	trouble string
}

// resolve looks all hosts up. A host whose lookup fails keeps its last addresses.
func (c *coordinators) resolve(ctx context.Context) error {
	var errs []error
	found := make([][]netip.AddrPort, len(c.hosts))
	for i, host := range c.hosts {
		if address, err := netip.ParseAddr(host.host); err == nil {
			found[i] = []netip.AddrPort{netip.AddrPortFrom(address, host.port)}
			continue
		}
		addresses, err := c.lookup(ctx, "ip", host.host)
		if err != nil {
			errs = append(errs, err)
		}
		for _, address := range addresses {
			found[i] = append(found[i], netip.AddrPortFrom(address.Unmap(), host.port))
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.found == nil {
		c.found = make([][]netip.AddrPort, len(c.hosts))
	}
	var list []netip.AddrPort
	for i := range c.hosts {
		if len(found[i]) > 0 {
			c.found[i] = found[i]
		}
		for _, address := range c.found[i] {
			if !slices.Contains(list, address) {
				list = append(list, address)
			}
		}
	}
	if len(list) == 0 {
		return errors.Join(errs...)
	}
	c.list = list
	c.assumed %= len(list)
	c.resolvedAt = time.Now()
	return nil
}

// resolveAgain resolves the names again, in the background, unless that was done a moment ago.
func (c *coordinators) resolveAgain() {
	isNumber := func(host hostPort) bool {
		_, err := netip.ParseAddr(host.host)
		return err == nil
	}
	if !slices.ContainsFunc(c.hosts, func(host hostPort) bool { return !isNumber(host) }) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isResolving || time.Since(c.resolvedAt) < resolveEvery {
		return
	}
	c.isResolving = c.db.goRun(func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		c.resolve(ctx)
		c.mu.Lock()
		c.isResolving = false
		c.mu.Unlock()
	})
	c.resolvedAt = time.Now()
}

// leader returns the assumed leader.
func (c *coordinators) leader() (index, count int, address netip.AddrPort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.assumed, len(c.list), c.list[c.assumed]
}

// passOver notes that a coordinator does not lead: assumes the next one, unless another question
// has done so already.
func (c *coordinators) passOver(index int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if index == c.assumed {
		c.assumed = (index + 1) % len(c.list)
	}
}

// isCluster notes the cluster of a lease, and tells whether it is that of the first lease.
func (c *coordinators) isCluster(cluster uint64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.cluster == 0 {
		c.cluster = cluster
	}
	return c.cluster == cluster
}

// note keeps the error of a connection for messages to people.
func (c *coordinators) note(address netip.AddrPort, cause error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.trouble = fmt.Sprintf("%v: %v", address, cause)
}

// A verdict is the next step for a question after an answer.
type verdict struct {
	step verdictStep
	wait time.Duration
}

type verdictStep uint8

const (
	stepEnded verdictStep = iota
	// stepAgain sends the question to the same coordinator after a wait.
	stepAgain
	// stepElsewhere sends it to another coordinator.
	stepElsewhere
)

var (
	ended     = verdict{step: stepEnded}
	elsewhere = verdict{step: stepElsewhere}
)

func again(wait time.Duration) verdict { return verdict{stepAgain, wait} }

// An inquiry is a question to the leading coordinator, until it is answered.
type inquiry struct {
	db *DB
	// deadline is the time by which it ends; 0: never.
	deadline int64
	// request returns the next request, and how long to wait for its answer.
	request func() (opcode uint16, body []byte, patience time.Duration)
	// understand handles the body of a successful answer.
	understand func(body []byte) verdict
	// special handles a refusal before the general rules do, if it is set.
	special func(status Status) (verdict, bool)
	// refuse handles a final refusal.
	refuse func(f *failure) verdict
	// lost notes a request that may have been done without an answer, if it is set.
	lost func()
	// isWanted tells whether the answer is still needed, if it is set.
	isWanted func() bool
	// isEager: the inquiry ends when all coordinators prove to be no coordinators.
	isEager bool

	// sentAt is the time at which the last request was sent.
	sentAt int64
	// isSent: the last request was sent, and there is no answer yet.
	isSent bool
	// tried counts the coordinators in a row that did not answer as the leader, strangers counts
	// coordinators of another cluster, and odd counts programs that do not speak the protocol.
	tried, strangers, odd int
	failures              int
	// failure is the failure at the deadline.
	failure *failure
}

func (db *DB) inquire(deadline int64) *inquiry {
	return &inquiry{db: db, deadline: deadline, failure: timedOut(obstacleNoCoordinator, false)}
}

// backoff returns the next wait: twice as long after every failure, with a random part.
func (q *inquiry) backoff() time.Duration {
	q.failures++
	return questionBackoff.halfWait(q.failures - 1)
}

// mapOf decodes a map. It refuses a map that is older than the newest one seen.
func (q *inquiry) mapOf(b []byte) (*mapReply, bool) {
	it, ok := parse[mapReply](b)
	if !ok {
		q.failure = incomprehensible(false)
		return nil, false
	}
	c := q.db.coordinators
	c.mu.Lock()
	defer c.mu.Unlock()
	if it.Version < c.version {
		return nil, false
	}
	c.version = it.Version
	return it, true
}

// run asks until the question is answered. The failure is nil, or the reason for which there is no
// answer: the deadline, the end of the context, or the end of the client.
func (q *inquiry) run(ctx context.Context) *failure {
	for {
		if q.isWanted != nil && !q.isWanted() {
			return q.failure
		}
		if err := ctx.Err(); err != nil {
			return q.stopped(err)
		}
		next, f := q.attempt(ctx)
		if f != nil {
			return f
		}
		switch next.step {
		case stepEnded:
			return nil
		case stepAgain:
			q.tried, q.strangers, q.odd = 0, 0, 0
		}
		if next.wait <= 0 {
			continue
		}
		if q.deadline != 0 {
			left := time.Duration(q.deadline - q.db.pool.now())
			if left <= next.wait {
				sleep(ctx, max(left, 0))
				if err := ctx.Err(); err != nil {
					return q.stopped(err)
				}
				return q.failure
			}
		}
		sleep(ctx, next.wait)
	}
}

// stopped returns the failure after the context ended.
func (q *inquiry) stopped(err error) *failure {
	if q.db.isClosed.Load() {
		return &failure{reason: ErrClosed}
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return q.failure
	}
	return canceled(err, false)
}

// attempt sends the question to the assumed leader once.
func (q *inquiry) attempt(ctx context.Context) (verdict, *failure) {
	now := q.db.pool.now()
	opcode, body, wait := q.request()
	timeout := int64(wait)
	if q.deadline != 0 {
		left := q.deadline - now
		if left <= 0 {
			return ended, q.failure
		}
		timeout = min(timeout, left-left/16)
	}
	c := q.db.coordinators
	index, count, address := c.leader()
	b := newSingle(q.db)
	p := &b.one
	p.batch, p.kind, p.opcode, p.value, p.timeout = b, kindQuestion, opcode, body, timeout
	q.sentAt, q.isSent = now, true
	q.db.pool.endpoint(address).submit(p)
	if err := b.await(ctx); err != nil {
		b.release()
		return ended, q.stopped(err)
	}
	q.isSent = false
	next := q.answered(p, address, count)
	b.release()
	if next.step == stepElsewhere {
		c.passOver(index)
		q.tried++
		if q.tried%max(count, 1) == 0 {
			// No coordinator answers as the leader: their addresses may have changed.
			c.resolveAgain()
			next.wait = q.backoff()
		}
	}
	return next, nil
}

// await waits until the only part of a batch is completed, or withdraws it when the context ends.
func (b *batch) await(ctx context.Context) error {
	p := &b.one
	for b.completed.Load() == nil {
		select {
		case <-b.signal:
			continue
		case <-ctx.Done():
		}
		if isBack, _ := p.withdraw(); isBack {
			return ctx.Err()
		}
		for b.completed.Load() == nil {
			<-b.signal
		}
	}
	b.completed.Store(nil)
	return nil
}

// answered handles the outcome of a request.
func (q *inquiry) answered(p *part, address netip.AddrPort, count int) verdict {
	switch p.result {
	case callReplied:
	case callUnreachable:
		q.db.coordinators.note(address, p.cause)
		switch {
		case p.cause == errOtherCluster:
			q.strangers++
			if q.isEager && q.strangers >= count || q.isWanted == nil && q.strangers >= count {
				// No other coordinator is left to try.
				return q.refuse(refusedWith(statusWrongCluster))
			}
		case errors.Is(p.cause, errNotOurs), errors.Is(p.cause, errOtherVersion):
			q.odd++
			if q.isEager && q.odd >= count {
				text := fmt.Sprintf("%v: %v; check the host and the port", address, p.cause)
				return q.refuse(&failure{reason: ErrNotThunderhead, text: text})
			}
		default:
			q.strangers, q.odd = 0, 0
		}
		return elsewhere
	case callTooLong:
		return q.refuse(refusedWith(statusMalformed))
	default:
		q.strangers = 0
		return q.unanswered()
	}
	if p.status == statusOK {
		return q.understand(p.body)
	}
	next, isKnown := p.status.next()
	switch {
	case !isKnown:
		return q.refuse(incomprehensible(false))
	case p.status == statusNotLeader:
		q.strangers = 0
		return elsewhere
	case p.status == statusLeadershipLost || p.status == statusDeadlineExceeded:
		q.strangers = 0
		q.failure = timedOut(obstacleNoLeader, false)
		return q.unanswered()
	}
	if q.special != nil {
		if v, ok := q.special(p.status); ok {
			return v
		}
	}
	switch next {
	case stepWait:
		q.failure = refusedWith(p.status)
		return again(time.Duration(p.hint)*time.Microsecond + q.backoff())
	case stepRefresh:
		return elsewhere
	}
	return q.refuse(refusedWith(p.status))
}

func (q *inquiry) unanswered() verdict {
	if q.lost != nil {
		q.lost()
	}
	return elsewhere
}

// shuffle assumes a random leader, which spreads the first requests of all clients.
func (c *coordinators) shuffle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.assumed = rand.IntN(len(c.list))
}
