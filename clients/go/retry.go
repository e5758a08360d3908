package thunderhead

import (
	"math/rand/v2"
	"time"
)

// A backoff has the waits of a caller that repeats a failed request. They double with each failure,
// up to a limit, so that a server in trouble gets few requests. They are random, so that callers
// that failed together do not return together.
type backoff struct{ first, longest time.Duration }

var (
	// operationBackoff is for operations on objects.
	operationBackoff = backoff{time.Millisecond, 500 * time.Millisecond}
	// questionBackoff is for questions to coordinators.
	questionBackoff = backoff{4 * time.Millisecond, 500 * time.Millisecond}
)

func (b backoff) limit(doublings int) time.Duration {
	return min(b.first<<min(doublings, 16), b.longest)
}

// wait returns a random wait that is not zero and not above the limit.
func (b backoff) wait(doublings int) time.Duration {
	return 1 + rand.N(b.limit(doublings))
}

// halfWait returns a random wait between the half of the limit and the limit.
func (b backoff) halfWait(doublings int) time.Duration {
	most := b.limit(doublings)
	return most/2 + rand.N(most/2)
}

// A callResult tells how the attempt to send a request ended.
type callResult uint8

const (
	// callReplied: there is a reply.
	callReplied callResult = iota
	// callUnreachable: there is no connection, so the request was not sent.
	callUnreachable
	// callBroken: the connection broke, so the request may have been carried out.
	callBroken
	// callLate: no reply came in time, so the request may have been carried out.
	callLate
	// callTooLong: the request is longer than the server accepts, so it was not sent.
	callTooLong
	// callClosed: the client was closed. A request that was sent may have been carried out.
	callClosed
)

// A decision is the next step after a failed attempt.
type decision struct {
	giveUp bool
	// refresh: fetch the map as well.
	refresh bool
	wait    time.Duration
}

// decideRetry returns the next step after an attempt that ended so. failures counts the attempts
// that failed before.
//
//   - Moved: refresh the map, then try the new server; the first time at once.
//   - Busy, no space: wait as long as the server asks, and a random time more.
//   - Waits for its backups: the same, and after two attempts refresh the map, because a master
//     that was declared crashed waits for ever.
//   - Connection broken or never made, or no answer: refresh, and wait longer each time.
//   - Everything else is final.
func decideRetry(result callResult, status Status, hintMicros uint32, failures int) decision {
	wait := operationBackoff.wait(failures)
	switch result {
	case callReplied:
		next, _ := status.next()
		switch next {
		case stepRefresh:
			if failures == 0 {
				wait = 0
			}
			return decision{refresh: true, wait: wait}
		case stepWait:
			asked := time.Duration(hintMicros) * time.Microsecond
			refresh := status == statusAwaitingReplicas && failures+1 > 2
			return decision{refresh: refresh, wait: asked + wait}
		}
		return decision{giveUp: true}
	case callUnreachable, callBroken, callLate:
		return decision{refresh: true, wait: wait}
	}
	return decision{giveUp: true}
}
