package thunderhead

import "math/bits"

const (
	// messageBytes is about the most bytes of one message. A single operation may exceed it.
	messageBytes = 256 << 10
	// smallReply: if the answer to a message of reads is shorter than this, messages may have
	// twice as many reads.
	smallReply = 256 << 10
)

// A partGroup has the parts of the queue that can share messages.
type partGroup struct {
	isUpdate bool
	lease    *clientLease
	// mapVersion is the version as of which the tables of updates are known. A message names one
	// version, and a shard refuses updates if that version is too old for their table.
	mapVersion uint64
	// haste is the order of magnitude of the time-out, so that no part gets a time-out much shorter
	// than its deadline allows.
	haste int
	// expires: the parts decide when objects expire.
	expires bool
	bytes   int
	parts   []*part
}

// encode takes parts off the queue, encodes their messages into out, and makes them calls in
// flight. It returns the parts that are too long for the peer. The caller has the lock.
func (c *conn) encode(now int64) (tooLong []*part) {
	readsMax := int(c.endpoint.readsMax.Load())
	taken, bytes := 0, 0
	for _, p := range c.queue {
		if bytes += p.bytes(); taken > 0 && bytes > writeBytes {
			break
		}
		taken++
		if !p.isShared() || len(c.queue) == 1 {
			if !c.emit(now, p) {
				tooLong = append(tooLong, p)
			}
			continue
		}
		g := c.group(p)
		most := partsMax
		if !g.isUpdate {
			most = readsMax
		}
		if len(g.parts) > 0 && (len(g.parts) >= most || g.bytes+p.bytes() > messageBytes) {
			tooLong = c.emitGroup(now, g, tooLong)
		}
		g.parts = append(g.parts, p)
		g.bytes += p.bytes()
	}
	for i := range c.groups {
		g := &c.groups[i]
		tooLong = c.emitGroup(now, g, tooLong)
		g.lease = nil
	}
	c.groups = c.groups[:0]
	if taken == len(c.queue) {
		clear(c.queue)
		c.queue = c.queue[:0]
		if cap(c.queue) > 4096 {
			c.queue = nil
		}
	} else {
		rest := copy(c.queue, c.queue[taken:])
		clear(c.queue[rest:])
		c.queue = c.queue[:rest]
	}
	return tooLong
}

// group returns the group that a part belongs to.
func (c *conn) group(p *part) *partGroup {
	isUpdate, mapVersion := p.isUpdate(), uint64(0)
	if isUpdate {
		mapVersion = p.mapVersion
	}
	haste, expires := bits.LeadingZeros64(uint64(p.timeout)), p.decidesExpiry()
	for i := range c.groups {
		g := &c.groups[i]
		if g.isUpdate == isUpdate && g.lease == p.lease && g.mapVersion == mapVersion && g.haste == haste &&
			g.expires == expires {
			return g
		}
	}
	if len(c.groups) < cap(c.groups) {
		c.groups = c.groups[:len(c.groups)+1]
	} else {
		c.groups = append(c.groups, partGroup{})
	}
	g := &c.groups[len(c.groups)-1]
	*g = partGroup{isUpdate, p.lease, mapVersion, haste, expires, 0, g.parts[:0]}
	return g
}

func (c *conn) emitGroup(now int64, g *partGroup, tooLong []*part) []*part {
	if len(g.parts) > 0 && !c.emit(now, g.parts...) {
		tooLong = append(tooLong, g.parts...)
	}
	clear(g.parts)
	g.parts, g.bytes = g.parts[:0], 0
	return tooLong
}

// takeSequences numbers the updates of a message that have no sequence yet. That is done only now,
// so that the sequences of a message are consecutive: a shard records its outcomes together.
// The updates of a message have the same lease.
func takeSequences(parts []*part) {
	isNew := func(p *part) bool { return p.isUpdate() && p.sequence == 0 }
	count := 0
	for _, p := range parts {
		if isNew(p) {
			count++
		}
	}
	if count == 0 {
		return
	}
	next := parts[0].lease.take(count)
	for _, p := range parts {
		if isNew(p) {
			p.sequence = next
			next++
		}
	}
}

// emit encodes one message. It returns false if the message is too long for the peer; the parts
// are then not in flight.
func (c *conn) emit(now int64, parts ...*part) bool {
	first, isMany := parts[0], len(parts) > 1
	timeout, timeoutAt := first.timeout, first.timeoutAt
	for _, p := range parts {
		timeout, timeoutAt = min(timeout, p.timeout), min(timeoutAt, p.timeoutAt)
		p.attempt = attemptOver
	}
	takeSequences(parts)
	at := c.slot()
	slot := &c.slots[at]
	opcode := first.opcodeAlone()
	switch {
	case isMany && first.isUpdate():
		opcode = opUpdateMany
	case isMany:
		opcode = opReadMany
	}
	begin := len(c.out)
	id := uint64(slot.generation)<<32 | uint64(at)
	micros := uint32(min(max((timeoutAt-now)/1000, 1), 1<<31))
	b := appendRequestHead(c.out, id, opcode, micros)
	if isMany {
		if first.isUpdate() {
			b = appendIdentity(b, first.identity())
		}
		for _, p := range parts {
			b = p.appendShared(b)
		}
	} else {
		b = first.appendAlone(b)
	}
	if len(b)-begin-frameHeadBytes > c.messageMax {
		c.free = append(c.free, at)
		c.out = b[:begin]
		return false
	}
	putFrameHead(b[begin:], frameMessage)
	c.out = b
	slot.isUsed, slot.isMany, slot.isRead = true, isMany, !first.isUpdate()
	slot.timeoutAt = timeoutAt
	for i, p := range parts {
		p.attempt, p.slot, p.index, p.wasMany = attemptSent, at, int32(i), isMany
		slot.parts = append(slot.parts, p)
	}
	return true
}

// slot returns the index of a free slot.
func (c *conn) slot() uint32 {
	if n := len(c.free); n > 0 {
		at := c.free[n-1]
		c.free = c.free[:n-1]
		return at
	}
	c.slots = append(c.slots, callSlot{})
	return uint32(len(c.slots) - 1)
}
