package thunderhead

import (
	"encoding/binary"
	"fmt"
)

// The encodings of frames, messages and operations. docs/protocol.md of the project describes the
// bytes. A decoder never trusts a length: it checks each one against the bytes that are there.

const (
	frameHeadBytes    = 4
	frameMessage      = 0
	frameGreeting     = 1
	frameSkippable    = 128
	payloadBytesMax   = 1<<24 - 1
	greetingBytes     = 64
	greetingBytesMax  = 1024
	messageHeadBytes  = 16
	isReply           = 1 << 15
	objectHeadBytes   = 24
	identityBytes     = 32
	updateHeadBytes   = 16
	partHeadBytes     = 16
	foundHeadBytes    = 16
	pageHeadBytes     = 24
	flagFloat         = 1
	expiringHeadBytes = 16
	protocolVersion   = 1
	keyBytesMax       = 64 << 10
	messageBytesMax   = 8 << 20
	partsMax          = 128
	pageBytes         = 64 << 10
	greetingMagic     = "THUNDER\n"
	versionsBytes     = 12
	greetingDoorBytes = 32
)

const (
	opRead          uint16 = 32
	opWrite         uint16 = 33
	opDelete        uint16 = 34
	opIncrement     uint16 = 35
	opReadMany      uint16 = 36
	opUpdateMany    uint16 = 37
	opEnumerate     uint16 = 38
	opWriteNumber   uint16 = 39
	opWriteExpiring uint16 = 40
	opSetExpiry     uint16 = 41
	opReadExpiry    uint16 = 42

	opMap                    uint16 = 66
	opCreateTable            uint16 = 67
	opDropTable              uint16 = 68
	opSplitTablet            uint16 = 69
	opMigrateTablet          uint16 = 70
	opOpenLease              uint16 = 71
	opRenewLease             uint16 = 72
	opCloseLease             uint16 = 73
	opCreateTableWithOptions uint16 = 91
)

var le = binary.LittleEndian

// putFrameHead writes the head of the frame that fills b.
func putFrameHead(b []byte, kind byte) {
	le.PutUint32(b, uint32(kind)<<24|uint32(len(b)-frameHeadBytes))
}

func frameHead(b []byte) (kind byte, payload int) {
	head := le.Uint32(b)
	return byte(head >> 24), int(head & payloadBytesMax)
}

// appendGreeting appends the greeting of a client of this cluster, or of none yet, as a frame.
func appendGreeting(b []byte, cluster uint64) []byte {
	begin := len(b)
	b = append(b, 0, 0, 0, 0)
	b = append(b, greetingMagic...)
	b = le.AppendUint16(b, protocolVersion)
	b = le.AppendUint16(b, protocolVersion)
	b = le.AppendUint32(b, messageBytesMax)
	b = le.AppendUint64(b, 0)
	b = append(b, make([]byte, greetingDoorBytes)...)
	b = le.AppendUint64(b, cluster)
	putFrameHead(b[begin:], frameGreeting)
	return b
}

// A greeting is the part of the other end's greeting that concerns a client.
type greeting struct {
	// messageMax is the longest message that the other end takes.
	messageMax int
	// cluster is 0 if the other end did not know it.
	cluster uint64
}

func parseGreeting(payload []byte) (greeting, error) {
	if len(payload) < versionsBytes || string(payload[:len(greetingMagic)]) != greetingMagic {
		return greeting{}, errNotOurs
	}
	oldest, newest := le.Uint16(payload[8:]), le.Uint16(payload[10:])
	if min(newest, protocolVersion) < max(oldest, protocolVersion) || len(payload) < greetingBytes {
		return greeting{}, fmt.Errorf("%w: it speaks versions %d to %d, and this client %d",
			errOtherVersion, oldest, newest, protocolVersion)
	}
	return greeting{
		messageMax: int(min(le.Uint32(payload[12:]), payloadBytesMax)),
		cluster:    le.Uint64(payload[56:]),
	}, nil
}

// appendRequestHead appends the heads of a frame and of a request. The frame's length is written
// when the message is complete.
func appendRequestHead(b []byte, id uint64, opcode uint16, timeoutMicros uint32) []byte {
	b = append(b, 0, 0, 0, 0)
	b = le.AppendUint64(b, id)
	b = le.AppendUint16(b, opcode)
	b = le.AppendUint16(b, 0)
	return le.AppendUint32(b, timeoutMicros)
}

// A replyHead is the head of a reply.
type replyHead struct {
	id     uint64
	status Status
	hint   uint32
}

func parseReply(message []byte) (head replyHead, body []byte, ok bool) {
	if len(message) < messageHeadBytes || le.Uint16(message[10:])&isReply == 0 {
		return replyHead{}, nil, false
	}
	head = replyHead{le.Uint64(message), Status(le.Uint16(message[8:])), le.Uint32(message[12:])}
	return head, message[messageHeadBytes:], true
}

// A conditionKind is the condition of an operation, as it goes over the wire.
type conditionKind uint8

const (
	conditionAlways conditionKind = iota
	conditionAbsent
	conditionPresent
	conditionVersionIs
	conditionVersionBelow
)

func appendObjectHead(b []byte, table uint64, keyBytes int, condition Condition, flags uint8) []byte {
	b = le.AppendUint64(b, table)
	b = le.AppendUint64(b, uint64(condition.version))
	b = le.AppendUint32(b, uint32(keyBytes))
	return append(b, byte(condition.kind), flags, 0, 0)
}

// An identity marks each attempt of an update as the same update.
type identity struct {
	lease, sequence, firstUnacknowledged, mapVersion uint64
}

func appendIdentity(b []byte, it identity) []byte {
	b = le.AppendUint64(b, it.lease)
	b = le.AppendUint64(b, it.sequence)
	b = le.AppendUint64(b, it.firstUnacknowledged)
	return le.AppendUint64(b, it.mapVersion)
}

func appendUpdateHead(b []byte, sequence uint64, argumentBytes int, kind byte) []byte {
	b = le.AppendUint64(b, sequence)
	b = le.AppendUint32(b, uint32(argumentBytes))
	return append(b, kind, 0, 0, 0)
}

// appendExpiringHead appends how long an object lives, and the kind of the value that follows.
func appendExpiringHead(b []byte, ttl uint64, kind ValueKind) []byte {
	b = le.AppendUint64(b, ttl)
	return append(b, byte(kind), 0, 0, 0, 0, 0, 0, 0)
}

// A partHead is the result of one operation of many.
type partHead struct {
	version Version
	status  Status
}

// takePart takes a result and its value off the front of b.
func takePart(b []byte) (head partHead, value, rest []byte, ok bool) {
	if len(b) < partHeadBytes {
		return partHead{}, nil, nil, false
	}
	head = partHead{Version(le.Uint64(b)), Status(le.Uint16(b[8:]))}
	length := uint64(le.Uint32(b[12:]))
	b = b[partHeadBytes:]
	if length > uint64(len(b)) {
		return partHead{}, nil, nil, false
	}
	return head, b[:length], b[length:], true
}

func appendEnumerate(b []byte, table, first, last, cursor uint64, bytes uint32) []byte {
	b = le.AppendUint64(b, table)
	b = le.AppendUint64(b, first)
	b = le.AppendUint64(b, last)
	b = le.AppendUint64(b, cursor)
	b = le.AppendUint32(b, bytes)
	return append(b, 0, 0, 0, 0)
}

// A page is the answer to an enumeration.
type page struct {
	objects []Object
	// last is the last hash that this page and the following ones cover.
	last uint64
	// cursor is the place at which the next page begins, unless isEnd.
	cursor uint64
	isEnd  bool
}

func parsePage(b []byte) (page, bool) {
	if len(b) < pageHeadBytes {
		return page{}, false
	}
	it := page{cursor: le.Uint64(b), last: le.Uint64(b[8:]), isEnd: b[16] != 0}
	b = b[pageHeadBytes:]
	for len(b) > 0 {
		if len(b) < foundHeadBytes {
			return page{}, false
		}
		version, word, valueBytes := le.Uint64(b), le.Uint32(b[8:]), uint64(le.Uint32(b[12:]))
		kind, keyBytes := ValueKind(word>>24), uint64(word&0xffffff)
		b = b[foundHeadBytes:]
		if kind > KindFloat || (kind != KindBytes && valueBytes != 8) ||
			keyBytes+valueBytes > uint64(len(b)) {
			return page{}, false
		}
		// Each object gets bytes of its own, so that a kept object does not keep the whole page.
		key, value := string(b[:keyBytes]), append([]byte{}, b[keyBytes:keyBytes+valueBytes]...)
		it.objects = append(it.objects, Object{
			Key: key, Value: Value{Version: Version(version), Data: value}, Kind: kind,
		})
		b = b[keyBytes+valueBytes:]
	}
	return it, true
}
