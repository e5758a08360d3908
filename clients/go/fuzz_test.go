package thunderhead

import (
	"bytes"
	"encoding/binary"
	"io"
	"math"
	"net"
	"net/netip"
	"testing"
	"time"
)

// Each fuzz test feeds a decoder with any bytes. A decoder may refuse them. It must not panic, nor
// allocate more than the bytes that are there.

func FuzzGreeting(f *testing.F) {
	f.Add(appendGreeting(nil, 7)[4:])
	f.Add([]byte("THUNDER\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		peer, err := parseGreeting(b)
		if err == nil && (peer.messageMax > payloadBytesMax || len(b) < greetingBytes) {
			t.Fatalf("accepted %v", peer)
		}
	})
}

func FuzzPage(f *testing.F) {
	f.Add(append(append(words(7, 9, 0), words(8, 1|2<<32)...), "kvv"...))
	f.Add(words(0, math.MaxUint64, 1))
	f.Fuzz(func(t *testing.T, b []byte) {
		it, ok := parsePage(b)
		if !ok {
			return
		}
		size := pageHeadBytes
		for _, object := range it.objects {
			size += foundHeadBytes + len(object.Key) + len(object.Data)
		}
		if size != len(b) {
			t.Fatalf("%d bytes of %d", size, len(b))
		}
		pieces := newEnumeration()
		pieces.take(it)
		for _, piece := range pieces {
			if piece.first > piece.last {
				t.Fatalf("a piece without hashes: %v", pieces)
			}
		}
	})
}

func FuzzURL(f *testing.F) {
	f.Add("thunderhead://h1:7071,[::1]:9,10.0.0.1/?deadline=1.5m&cluster=0xff&in_flight=10&polling=never")
	f.Fuzz(func(t *testing.T, url string) {
		u, failure := parseURL(url)
		if failure == nil && (len(u.hosts) == 0 || u.deadline < 0) {
			t.Fatalf("accepted %v", u)
		}
	})
}

func FuzzMap(f *testing.F) {
	f.Add([]byte(`{"version":3,"tables":[{"id":7,"name":"x","tablets":[{"first":0,"last":9,"master":2,"address":"127.0.0.1:7071"},{"first":5,"last":18446744073709551615,"master":2,"address":null}],"since":2}],"is_part":true,"gone":[8],"more":3}`), uint64(7), uint64(6))
	f.Fuzz(func(t *testing.T, b []byte, table, hash uint64) {
		news, ok := parse[mapReply](b)
		if !ok {
			return
		}
		pool := newPool(nil, 0)
		first := (&tabletMap{}).merge(news, pool.endpoint)
		first.find(table, hash)
		for _, entry := range first.merge(news, pool.endpoint).tables {
			for i, tablet := range entry.tablets {
				if tablet.first > tablet.last || i > 0 && entry.tablets[i-1].last >= tablet.first {
					t.Fatalf("tablets overlap: %v", entry.tablets)
				}
			}
		}
		whole := &mapReply{More: new(uint64)}
		whole.join(news)
	})
}

// pipe is a connection with these bytes from the peer.
type pipe struct {
	io.Reader
	net.Conn
}

func (p *pipe) Read(b []byte) (int, error)       { return p.Reader.Read(b) }
func (p *pipe) Write(b []byte) (int, error)      { return len(b), nil }
func (p *pipe) Close() error                     { return nil }
func (p *pipe) SetReadDeadline(time.Time) error  { return nil }
func (p *pipe) SetWriteDeadline(time.Time) error { return nil }

// FuzzConnection feeds a connection on which requests of all kinds are in flight.
func FuzzConnection(f *testing.F) {
	frame := func(message []byte) []byte {
		b := append(make([]byte, 4), message...)
		putFrameHead(b, frameMessage)
		return b
	}
	reply := func(id uint64, status uint16, body []byte) []byte {
		b := binary.LittleEndian.AppendUint64(nil, id)
		b = binary.LittleEndian.AppendUint16(b, status)
		b = append(b, 0, 0x80, 5, 0, 0, 0)
		return frame(append(b, body...))
	}
	for id := uint64(0); id < 6; id++ {
		f.Add(reply(id, 0, append(words(7), "12345678"...)), uint8(id))
		f.Add(reply(id, 7, words(9)), uint8(id))
		many := append(append(words(258), 0, 0, 0, 0, 5, 0, 0, 0), "value"...)
		f.Add(reply(id, 0, append(many, many...)), uint8(1))
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint8(3))
	f.Add([]byte{0, 0, 1, 200, 1}, uint8(1))
	f.Fuzz(func(t *testing.T, b []byte, chunk uint8) {
		lease := newLease(1)
		parts := []*part{
			{kind: kindQuestion}, {kind: kindPage}, {kind: kindRead, key: "a"}, {kind: kindRead, key: "b"},
			{kind: kindIncrement, key: "c", lease: lease}, {kind: kindWrite, key: "d", lease: lease},
			{kind: kindRead, key: "e", isAlone: true}, {kind: kindIncrement, key: "f", lease: lease, isAlone: true},
			{kind: kindDelete, key: "g", lease: lease, isAlone: true},
		}
		it := &batch{parts: parts, signal: make(chan struct{}, 1)}
		e := newPool(nil, 0).endpoint(netip.MustParseAddrPort("10.0.0.1:1"))
		var r io.Reader = bytes.NewReader(b)
		if chunk > 0 {
			r = &chunks{r, int(chunk)}
		}
		c := &conn{endpoint: e, pool: e.pool, messageMax: messageBytesMax, isOpen: true, nc: &pipe{Reader: r}, isWriting: true}
		for _, p := range parts {
			p.batch, p.timeout = it, patience
		}
		c.submit(parts)
		c.encode(0)
		c.fail(c.read())
		completed := 0
		for p := it.completed.Load(); p != nil; p = p.next {
			completed++
			if len(p.body) > len(b) {
				t.Fatalf("%d bytes of %d", len(p.body), len(b))
			}
		}
		if completed != len(parts) {
			t.Fatalf("%d of %d parts were completed", completed, len(parts))
		}
	})
}

// chunks is a reader that returns a few bytes at a time.
type chunks struct {
	io.Reader
	n int
}

func (c *chunks) Read(b []byte) (int, error) { return c.Reader.Read(b[:min(len(b), c.n)]) }
