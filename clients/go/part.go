package thunderhead

// A partKind is the kind of an operation, or a request to a coordinator.
type partKind uint8

const (
	kindRead partKind = iota
	kindWrite
	kindDelete
	kindIncrement
	kindWriteNumber
	kindWriteExpiring
	kindSetExpiry
	kindReadExpiry
	kindPage
	kindQuestion
)

// partState is the state of a part for its batch.
type partState uint8

const (
	// partReady: to be sent.
	partReady partState = iota
	// partInFlight: a connection has it, and will complete it.
	partInFlight
	// partWaiting: to be sent again at a time.
	partWaiting
	// partLost: to be sent when there is a new map.
	partLost
	// partUnleased: to be sent when there is a lease.
	partUnleased
	// partDone: it has ended.
	partDone
)

// attemptState is the state of a part for its connection, whose lock protects it.
type attemptState uint8

const (
	// attemptOver: no connection has the part.
	attemptOver attemptState = iota
	// attemptQueued: the part waits for the next write.
	attemptQueued
	// attemptSent: the part's bytes were written, or are about to be.
	attemptSent
)

// A part is one operation on an object, from its begin to its end. Several parts that begin
// together are a batch. The goroutine of the caller owns its parts, except while a connection has
// them.
type part struct {
	kind      partKind
	isFloat   bool
	condition Condition
	table     uint64
	// hash decides the shard. For a page it is the first hash.
	hash uint64
	key  string
	// value is the value to write, or the body of a question.
	value []byte
	// number has the bits of a number to write or to add. For a page it is the cursor.
	number uint64
	// ttl is how long an object lives, as it goes over the wire; of kindWriteExpiring, also the
	// kind of the value.
	ttl       uint64
	valueKind ValueKind
	// last is the last hash of a page.
	last uint64
	// opcode is that of a question.
	opcode uint16

	batch *batch
	// next links the completed parts of a batch.
	next *part
	// deadline is the time by which the operation ends.
	deadline int64
	state    partState
	// dueAt is the time at which a waiting part is sent again.
	dueAt int64
	// lease and sequence are the identity of an update. The lease is nil until the update is sent
	// for the first time.
	lease    *clientLease
	sequence uint64
	// failures counts the attempts that failed.
	failures int
	// sent counts the attempts that were sent, not counting attempts that never left.
	sent int
	// mayBeDone: an attempt may have been done without an answer.
	mayBeDone bool
	// isAlone: it is sent alone, because an answer together with others would be too long.
	isAlone  bool
	obstacle obstacle

	// The attempt. mapVersion and timeout are set before a connection gets the part.
	mapVersion uint64
	timeout    int64
	conn       *conn
	attempt    attemptState
	timeoutAt  int64
	slot       uint32
	index      int32

	// The result of the attempt.
	result callResult
	status Status
	hint   uint32
	// version is the version of the object, or the detail of a refusal.
	version Version
	// body is the value, or the answer to a page or question.
	body []byte
	// sum has the bits of the sum of an increment, or how long the object still lives.
	sum uint64
	// isMalformed: the answer makes no sense.
	isMalformed bool
	// wasMany: the message had several parts.
	wasMany bool
	// cause is the error of the connection.
	cause error

	// failure is the final error; nil if the operation was done.
	failure *failure
	// isAbsent: there is no such object.
	isAbsent bool
}

func (p *part) isUpdate() bool { return p.kind >= kindWrite && p.kind <= kindSetExpiry }

// decidesExpiry tells whether it decides when an object expires. Servers of earlier releases refuse a
// message with such an update, so it shares a message only with its like.
func (p *part) decidesExpiry() bool { return p.kind == kindWriteExpiring || p.kind == kindSetExpiry }

// isShared tells whether it may share a message with others of its kind.
func (p *part) isShared() bool { return p.kind < kindReadExpiry && !p.isAlone }

// opcodeAlone returns the opcode of a message with this part alone.
func (p *part) opcodeAlone() uint16 {
	switch p.kind {
	case kindRead:
		return opRead
	case kindWrite:
		return opWrite
	case kindDelete:
		return opDelete
	case kindIncrement:
		return opIncrement
	case kindWriteNumber:
		return opWriteNumber
	case kindWriteExpiring:
		return opWriteExpiring
	case kindSetExpiry:
		return opSetExpiry
	case kindReadExpiry:
		return opReadExpiry
	case kindPage:
		return opEnumerate
	}
	return p.opcode
}

func (p *part) flags() uint8 {
	if p.isFloat {
		return flagFloat
	}
	return 0
}

// bytes returns about how many bytes it takes in a message.
func (p *part) bytes() int { return 80 + len(p.key) + len(p.value) }

func (p *part) identity() identity {
	if p.lease == nil {
		return identity{}
	}
	return identity{p.lease.id, p.sequence, p.lease.firstUnacknowledged(), p.mapVersion}
}

// appendAlone appends the body of a message with this part alone.
func (p *part) appendAlone(b []byte) []byte {
	switch p.kind {
	case kindQuestion:
		return append(b, p.value...)
	case kindPage:
		return appendEnumerate(b, p.table, p.hash, p.last, p.number, pageBytes)
	}
	if p.isUpdate() {
		b = appendIdentity(b, p.identity())
	}
	b = appendObjectHead(b, p.table, len(p.key), p.condition, p.flags())
	b = append(b, p.key...)
	return p.appendArgument(b)
}

// appendArgument appends the value or the number of an update, and how long the object lives.
func (p *part) appendArgument(b []byte) []byte {
	switch p.kind {
	case kindWrite:
		b = append(b, p.value...)
	case kindIncrement, kindWriteNumber:
		b = le.AppendUint64(b, p.number)
	case kindWriteExpiring:
		b = appendExpiringHead(b, p.ttl, p.valueKind)
		if p.valueKind == KindBytes {
			b = append(b, p.value...)
		} else {
			b = le.AppendUint64(b, p.number)
		}
	case kindSetExpiry:
		b = le.AppendUint64(b, p.ttl)
	}
	return b
}

// appendShared appends the part to the body of a message with several parts.
func (p *part) appendShared(b []byte) []byte {
	b = appendObjectHead(b, p.table, len(p.key), p.condition, p.flags())
	switch p.kind {
	case kindWrite:
		b = appendUpdateHead(b, p.sequence, len(p.value), 1)
	case kindDelete:
		b = appendUpdateHead(b, p.sequence, 0, 2)
	case kindIncrement:
		b = appendUpdateHead(b, p.sequence, 8, 3)
	case kindWriteNumber:
		b = appendUpdateHead(b, p.sequence, 8, 4)
	case kindWriteExpiring:
		length := len(p.value)
		if p.valueKind != KindBytes {
			length = 8
		}
		b = appendUpdateHead(b, p.sequence, expiringHeadBytes+length, 5)
	case kindSetExpiry:
		b = appendUpdateHead(b, p.sequence, 8, 6)
	}
	b = append(b, p.key...)
	return p.appendArgument(b)
}

// understand takes the reply to a message with this part alone.
func (p *part) understand(head replyHead, body []byte) {
	p.result, p.status, p.hint = callReplied, head.status, head.hint
	if p.kind >= kindPage {
		p.body = append([]byte{}, body...)
		return
	}
	if head.status != statusOK {
		if len(body) >= 8 {
			p.version = Version(le.Uint64(body))
		}
		return
	}
	if len(body) < 8 {
		p.isMalformed = true
		return
	}
	p.done(Version(le.Uint64(body)), body[8:])
}

// understandShared takes the part's result from the reply to a message with several parts.
func (p *part) understandShared(head partHead, value []byte) {
	p.result, p.status, p.version = callReplied, head.status, head.version
	if head.status == statusOK {
		p.done(head.version, value)
	}
}

// done takes the answer to an operation that was done.
func (p *part) done(version Version, rest []byte) {
	p.version = version
	switch p.kind {
	case kindRead:
		p.body = append(make([]byte, 0, len(rest)), rest...)
	case kindIncrement, kindReadExpiry:
		if len(rest) < 8 {
			p.isMalformed = true
			return
		}
		p.sum = le.Uint64(rest)
	}
}

// isDone tells whether the answer says that the operation was done.
func (p *part) isDone() bool {
	return p.result == callReplied && !p.isMalformed && p.status == statusOK
}

// clearResult makes the part ready for another attempt.
func (p *part) clearResult() {
	p.status, p.hint, p.version, p.body, p.sum = 0, 0, 0, nil, 0
	p.isMalformed, p.wasMany, p.cause = false, false, nil
}

// withdraw takes the part back from its connection: see [conn.withdraw]. If the client was closed
// before a connection got the part, it is being completed, too.
func (p *part) withdraw() (isBack, wasSent bool) {
	if p.conn == nil {
		return false, false
	}
	return p.conn.withdraw(p)
}

// complete hands the part back to its batch.
func (p *part) complete(result callResult, cause error) {
	p.result, p.cause = result, cause
	p.batch.push(p, p)
}
