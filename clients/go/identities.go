package thunderhead

import "sync"

// A clientLease is a lease of this client, with the sequences of the updates under it.
//
// A client has one lease at a time, but updates may be in flight under a former lease: an update
// that was sent under a lease is only ever sent again under the same one. So sequences are counted
// for each lease.
type clientLease struct {
	id uint64

	mu sync.Mutex
	// next is the sequence of the next new update; sequences begin at 1.
	next uint64
	// first is the oldest sequence that has not ended, or next.
	first uint64
	// ended tells for each sequence from first on whether its update has ended. It is a ring whose
	// length is a power of two; sequence n is at n modulo the length.
	ended []bool
}

func newLease(id uint64) *clientLease {
	return &clientLease{id: id, next: 1, first: 1, ended: make([]bool, 64)}
}

// take returns the sequence of the first of so many new updates. The others follow it.
func (l *clientLease) take(count int) uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	first := l.next
	l.next += uint64(count)
	if length := ringLength(len(l.ended), l.next-l.first); length > len(l.ended) {
		longer := make([]bool, length)
		for at := l.first; at < first; at++ {
			longer[at%uint64(length)] = l.ended[at%uint64(len(l.ended))]
		}
		l.ended = longer
	}
	for at := first; at < l.next; at++ {
		l.ended[at%uint64(len(l.ended))] = false
	}
	return first
}

// ringLength doubles a length until the ring has room for so many sequences.
func ringLength(length int, sequences uint64) int {
	for uint64(length) < sequences {
		length *= 2
	}
	return length
}

// end notes that the updates with the sequences from first to last have ended: the client will not
// send them again.
func (l *clientLease) end(first, last uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for at := max(first, l.first); at <= last && at < l.next; at++ {
		l.ended[at%uint64(len(l.ended))] = true
	}
	for l.first < l.next && l.ended[l.first%uint64(len(l.ended))] {
		l.first++
	}
}

// firstUnacknowledged returns the oldest sequence whose answer the client may still need. The
// caller has an open sequence, so the result is not above it.
func (l *clientLease) firstUnacknowledged() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.first
}
