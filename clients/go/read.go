package thunderhead

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

// readGreeting reads the greeting of the peer, which is its first frame.
func readGreeting(r io.Reader) (greeting, error) {
	var head [frameHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return greeting{}, greetingError(err)
	}
	kind, n := frameHead(head[:])
	if kind != frameGreeting || n > greetingBytesMax {
		return greeting{}, errNotOurs
	}
	payload := make([]byte, n)
	if _, err := io.ReadFull(r, payload); err != nil {
		return greeting{}, greetingError(err)
	}
	return parseGreeting(payload)
}

func greetingError(err error) error {
	var timeout net.Error
	if errors.As(err, &timeout) && timeout.Timeout() {
		return errNoGreeting
	}
	return err
}

// read takes replies until the connection ends.
func (c *conn) read() error {
	buffer := make([]byte, readBytes)
	start, end := 0, 0
	isPartial := false
	var taken []*part
	for {
		for end-start >= frameHeadBytes {
			kind, n := frameHead(buffer[start:])
			switch {
			case n > messageBytesMax:
				return errTooLong
			case kind != frameMessage && kind < frameSkippable:
				return errMalformed
			}
			if frameHeadBytes+n > len(buffer) {
				payload, err := c.readLong(buffer[start+frameHeadBytes:end], n)
				if err != nil {
					return err
				}
				if taken, err = c.takeFrame(kind, payload, taken); err != nil {
					return err
				}
				start, end = 0, 0
				continue
			}
			if end-start-frameHeadBytes < n {
				break
			}
			payload := buffer[start+frameHeadBytes : start+frameHeadBytes+n]
			var err error
			if taken, err = c.takeFrame(kind, payload, taken); err != nil {
				return err
			}
			start += frameHeadBytes + n
		}
		if wasPartial := isPartial; start == end {
			start, end, isPartial = 0, 0, false
			if wasPartial {
				c.nc.SetReadDeadline(time.Time{})
			}
		} else {
			// The rest of a message follows.
			end, start = copy(buffer, buffer[start:end]), 0
			isPartial = true
			if !wasPartial {
				c.nc.SetReadDeadline(time.Now().Add(unfinishedTime))
			}
		}
		n, err := c.nc.Read(buffer[end:])
		if err != nil {
			return err
		}
		end += n
	}
}

// readLong reads the rest of a long message. Its buffer grows with the bytes that arrive, so a
// length alone costs no memory.
func (c *conn) readLong(begun []byte, n int) ([]byte, error) {
	c.nc.SetReadDeadline(time.Now().Add(unfinishedTime))
	defer c.nc.SetReadDeadline(time.Time{})
	payload := append(make([]byte, 0, min(n, 2*readBytes)), begun...)
	for len(payload) < n {
		if len(payload) == cap(payload) {
			longer := make([]byte, len(payload), min(n, 2*cap(payload)))
			copy(longer, payload)
			payload = longer
		}
		m, err := c.nc.Read(payload[len(payload):cap(payload)])
		if err != nil {
			return nil, err
		}
		payload = payload[:len(payload)+m]
	}
	return payload, nil
}

// takeFrame handles a frame. taken is a buffer for the parts of one message.
func (c *conn) takeFrame(kind byte, payload []byte, taken []*part) ([]*part, error) {
	if kind != frameMessage {
		return taken, nil
	}
	head, body, ok := parseReply(payload)
	if !ok {
		// A client serves no requests.
		return taken, errMalformed
	}
	at, generation := uint32(head.id), uint32(head.id>>32)
	c.mu.Lock()
	if uint64(at) >= uint64(len(c.slots)) || !c.slots[at].isUsed || c.slots[at].generation != generation {
		// The reply to a request that has ended.
		c.mu.Unlock()
		return taken, nil
	}
	isMany, isRead := c.slots[at].isMany, c.slots[at].isRead
	taken = c.takeSlot(at, taken[:0])
	c.mu.Unlock()
	if isRead {
		c.endpoint.learnReads(len(taken), isMany, head.status, len(body))
	}
	rest := body
	var done partChain
	for i, p := range taken {
		taken[i] = nil
		var it partHead
		var value []byte
		isThere := true
		if isMany && head.status == statusOK {
			it, value, rest, isThere = takePart(rest)
		}
		// Each part of the answer is consumed, also for operations that have ended.
		if p == nil {
			continue
		}
		switch {
		case !isThere:
			p.result, p.isMalformed = callReplied, true
		case isMany && head.status == statusOK:
			p.understandShared(it, value)
		default:
			p.understand(head, body)
		}
		done.add(p)
	}
	done.push()
	return taken[:0], nil
}

// A partChain is completed parts of one batch, which gets them together.
type partChain struct{ first, last *part }

// add adds a part. A part of another batch begins a new chain.
func (c *partChain) add(p *part) {
	if c.first != nil && c.first.batch != p.batch {
		c.push()
		*c = partChain{}
	}
	p.next = c.first
	c.first = p
	if c.last == nil {
		c.last = p
	}
}

// push hands the parts to their batch. They belong to it afterwards.
func (c *partChain) push() {
	if c.first != nil {
		c.first.batch.push(c.first, c.last)
	}
}

// learnReads adapts the limit of reads in one message to an answer.
func (e *endpoint) learnReads(parts int, isMany bool, status Status, bytes int) {
	most := int(e.readsMax.Load())
	switch {
	case isMany && status == statusReplyTooLong:
		e.readsMax.Store(int32(max(parts/2, 1)))
	case status == statusOK && bytes < smallReply && parts == most:
		e.readsMax.Store(int32(min(2*most, partsMax)))
	}
}

// contextUntil returns a context that ends at a time.
func contextUntil(ctx context.Context, at time.Time) (context.Context, context.CancelFunc) {
	return context.WithDeadline(ctx, at)
}
