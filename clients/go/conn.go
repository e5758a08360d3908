package thunderhead

import (
	"fmt"
	"math"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// greetingTime is the time in which a connection must be made and greeted.
	greetingTime = 5 * time.Second
	// unfinishedTime is the time in which a message must be complete after its first bytes.
	unfinishedTime = 30 * time.Second
	// notReadingTime is the time for which a peer may leave written bytes unread.
	notReadingTime = 30 * time.Second
	// readBytes is the length of the buffer for input. Longer messages get a buffer of their own.
	readBytes = 64 << 10
	// writeBytes is about the most that one write takes from the queue.
	writeBytes = 512 << 10
	// keepBytes is the longest buffer for output that is kept when it is empty.
	keepBytes = 1 << 20
	// flushesMax is the number of writes that one caller does for others before another goroutine
	// goes on, so that the caller can take its own answer.
	flushesMax = 8
)

// An endpoint is the address of a server, with at most one connection. The first request makes the
// connection; when it has ended, the next request makes another one.
type endpoint struct {
	pool    *pool
	address netip.AddrPort
	current atomic.Pointer[conn]
	// readsMax is the limit of reads in one message. It falls if an answer to many reads is too
	// long.
	readsMax atomic.Int32

	mu sync.Mutex
}

// submit sends parts, and completes each of them later: with a reply, or with an error.
func (e *endpoint) submit(parts ...*part) {
	for {
		c := e.current.Load()
		if c == nil {
			if c = e.connect(); c == nil {
				for _, p := range parts {
					p.complete(callUnreachable, errPoolClosed)
				}
				return
			}
		}
		if c.submit(parts) {
			return
		}
		e.current.CompareAndSwap(c, nil)
	}
}

// connect begins a connection, unless there is one. It returns nil if the client is closed.
func (e *endpoint) connect() *conn {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.current.Load(); c != nil {
		return c
	}
	c := &conn{endpoint: e, pool: e.pool, earliest: math.MaxInt64}
	if !e.pool.add(c) {
		return nil
	}
	e.current.Store(c)
	go c.run()
	return c
}

// A conn is a connection and the requests that wait for it or are in flight on it.
//
// The caller of a request writes it, without another goroutine. If a write is in progress, the
// request joins a queue, and the writing caller takes the whole queue with its next write. Requests
// for objects that are in the queue together become one message. One goroutine reads the replies.
type conn struct {
	endpoint *endpoint
	pool     *pool

	// The greeting. The lock of the pool protects these.
	hasGreeted   bool
	said, theirs uint64

	mu     sync.Mutex
	isOpen bool
	isOver bool
	nc     net.Conn
	direct *directWriter
	// messageMax is the longest message that the peer takes.
	messageMax int
	queue      []*part
	// isWriting: one goroutine writes, and will take the queue.
	isWriting  bool
	out, spare []byte
	slots      []callSlot
	free       []uint32
	groups     []partGroup
	// earliest is a time before which no request is late; timer rings then.
	earliest int64
	timer    *time.Timer
}

// A callSlot is a message in flight. Its place and generation are the id of the message.
type callSlot struct {
	generation uint32
	isUsed     bool
	isMany     bool
	isRead     bool
	// parts has nil for each part that was withdrawn.
	parts     []*part
	timeoutAt int64
}

// submit takes parts, unless the connection is over.
func (c *conn) submit(parts []*part) bool {
	now := c.pool.now()
	c.mu.Lock()
	if c.isOver {
		c.mu.Unlock()
		return false
	}
	earliest := c.earliest
	for _, p := range parts {
		p.conn, p.attempt = c, attemptQueued
		p.timeoutAt = now + p.timeout
		earliest = min(earliest, p.timeoutAt)
	}
	c.queue = append(c.queue, parts...)
	if earliest < c.earliest {
		c.setTimer(now, earliest)
	}
	if !c.isOpen || c.isWriting {
		c.mu.Unlock()
		return true
	}
	c.isWriting = true
	isBusy := len(c.free) < len(c.slots)
	c.mu.Unlock()
	if isBusy {
		// Other callers are about to send, too: let them join this write.
		runtime.Gosched()
	}
	c.flush(flushesMax)
	return true
}

// flush writes the queue until it is empty. The caller has set isWriting.
func (c *conn) flush(writesMax int) {
	now := c.pool.now()
	for writes := 0; ; writes++ {
		c.mu.Lock()
		failed := c.encode(now)
		if len(c.out) == 0 || c.isOver {
			c.isWriting = false
			c.mu.Unlock()
			completeAll(failed, callTooLong, nil)
			return
		}
		bytes, direct := c.out, c.direct
		c.out, c.spare = c.spare[:0], nil
		isLong := writes >= writesMax || direct == nil
		c.mu.Unlock()
		completeAll(failed, callTooLong, nil)
		if isLong {
			if c.pool.start() {
				go c.writeOn(bytes, 0)
			}
			return
		}
		n, err := direct.tryWrite(bytes)
		if err != nil {
			c.fail(err)
			return
		}
		if n < len(bytes) {
			if c.pool.start() {
				go c.writeOn(bytes, n)
			}
			return
		}
		c.keep(bytes)
	}
}

// keep keeps a buffer for the next write but one.
func (c *conn) keep(bytes []byte) {
	if cap(bytes) <= keepBytes {
		c.mu.Lock()
		c.spare = bytes[:0]
		c.mu.Unlock()
	}
}

// writeOn writes the rest of some bytes, waiting for room, and then the queue. It is a goroutine of
// its own, so that no caller waits for a slow peer beyond its deadline.
func (c *conn) writeOn(bytes []byte, from int) {
	defer c.pool.running.Done()
	c.nc.SetWriteDeadline(time.Now().Add(notReadingTime))
	if _, err := c.nc.Write(bytes[from:]); err != nil {
		c.fail(err)
		return
	}
	c.nc.SetWriteDeadline(time.Time{})
	c.keep(bytes)
	c.flush(flushesMax)
}

// start notes another goroutine of a connection, unless the pool is closed.
func (p *pool) start() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		p.running.Add(1)
	}
	return !p.closed
}

// run makes the connection and reads from it until it ends.
func (c *conn) run() {
	defer c.pool.running.Done()
	err := c.open()
	if err == nil {
		err = c.read()
	}
	c.fail(err)
}

// open makes the connection and exchanges greetings.
func (c *conn) open() error {
	deadline := time.Now().Add(greetingTime)
	ctx, cancel := contextUntil(c.pool.ctx, deadline)
	defer cancel()
	nc, err := c.pool.dial(ctx, "tcp", c.endpoint.address.String())
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.nc = nc
	isOver := c.isOver
	c.mu.Unlock()
	if isOver {
		nc.Close()
		return errPoolClosed
	}
	nc.SetDeadline(deadline)
	if _, err := nc.Write(appendGreeting(nil, c.pool.greetAs(c))); err != nil {
		return err
	}
	peer, err := readGreeting(nc)
	if err != nil {
		return err
	}
	if err := c.pool.meet(c, peer.cluster); err != nil {
		return err
	}
	nc.SetDeadline(time.Time{})
	c.mu.Lock()
	c.messageMax, c.direct = peer.messageMax, newDirectWriter(nc)
	c.isOpen = true
	writes := len(c.queue) > 0 && !c.isOver
	c.isWriting = writes
	c.mu.Unlock()
	if writes {
		c.flush(flushesMax)
	}
	return nil
}

// fail ends the connection and all its requests.
func (c *conn) fail(cause error) {
	c.mu.Lock()
	if c.isOver {
		c.mu.Unlock()
		return
	}
	c.isOver = true
	queued, sent := c.takeAll()
	if c.timer != nil {
		c.timer.Stop()
	}
	nc := c.nc
	c.mu.Unlock()
	c.endpoint.current.CompareAndSwap(c, nil)
	c.pool.remove(c)
	if nc != nil {
		nc.Close()
	}
	completeAll(queued, callUnreachable, cause)
	completeAll(sent, callBroken, cause)
}

// drop ends all requests because the client was closed, and keeps the connection.
func (c *conn) drop() {
	c.mu.Lock()
	queued, sent := c.takeAll()
	c.mu.Unlock()
	completeAll(queued, callUnreachable, errPoolClosed)
	completeAll(sent, callClosed, errPoolClosed)
}

// takeAll takes all parts off the connection: the queued parts, and the sent parts.
func (c *conn) takeAll() (queued, sent []*part) {
	queued, c.queue = c.queue, nil
	for _, p := range queued {
		p.attempt = attemptOver
	}
	for at := range c.slots {
		if c.slots[at].isUsed {
			sent = c.takeSlot(uint32(at), sent)
		}
	}
	return queued, sent
}

// takeSlot ends the message of a slot and appends its parts to a list.
func (c *conn) takeSlot(at uint32, into []*part) []*part {
	slot := &c.slots[at]
	for i, p := range slot.parts {
		if p != nil {
			p.attempt = attemptOver
		}
		into = append(into, p)
		slot.parts[i] = nil
	}
	slot.parts, slot.isUsed = slot.parts[:0], false
	// A reply does not come after four thousand million further messages in its slot.
	slot.generation++
	c.free = append(c.free, at)
	return into
}

// withdraw takes a part back from its connection. If it returns false, the part is being completed,
// and its batch gets it soon. wasSent tells whether the part's bytes may have left.
func (c *conn) withdraw(p *part) (isBack, wasSent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch p.attempt {
	case attemptQueued:
		for i, it := range c.queue {
			if it == p {
				c.queue = append(c.queue[:i], c.queue[i+1:]...)
				break
			}
		}
		p.attempt = attemptOver
		return true, false
	case attemptSent:
		c.slots[p.slot].parts[p.index] = nil
		p.attempt = attemptOver
		return true, true
	}
	return false, false
}

// setTimer sets the time of the next look for late requests.
func (c *conn) setTimer(now, at int64) {
	c.earliest = at
	wait := time.Duration(max(at-now, 0))
	if c.timer == nil {
		c.timer = time.AfterFunc(wait, c.sweep)
	} else {
		c.timer.Reset(wait)
	}
}

// sweep ends the requests whose time is over.
func (c *conn) sweep() {
	now := c.pool.now()
	c.mu.Lock()
	if c.isOver {
		c.mu.Unlock()
		return
	}
	var unsent, late []*part
	earliest := int64(math.MaxInt64)
	rest := c.queue[:0]
	for _, p := range c.queue {
		if p.timeoutAt <= now {
			p.attempt = attemptOver
			unsent = append(unsent, p)
		} else {
			earliest = min(earliest, p.timeoutAt)
			rest = append(rest, p)
		}
	}
	clear(c.queue[len(rest):])
	c.queue = rest
	for at := range c.slots {
		switch slot := &c.slots[at]; {
		case !slot.isUsed:
		case slot.timeoutAt <= now:
			late = c.takeSlot(uint32(at), late)
		default:
			earliest = min(earliest, slot.timeoutAt)
		}
	}
	c.earliest = earliest
	if earliest != math.MaxInt64 {
		c.setTimer(now, earliest)
	}
	c.mu.Unlock()
	completeAll(unsent, callUnreachable, errNoGreeting)
	completeAll(late, callLate, nil)
}

func completeAll(parts []*part, result callResult, cause error) {
	for _, p := range parts {
		if p != nil {
			p.complete(result, cause)
		}
	}
}

func (e *endpoint) String() string { return fmt.Sprint(e.address) }
