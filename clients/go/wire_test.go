package thunderhead

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"net/netip"
	"reflect"
	"testing"
)

// The bytes in these tests are those of the tests in crates/wire.

func words(words ...uint64) []byte {
	var b []byte
	for _, word := range words {
		b = le.AppendUint64(b, word)
	}
	return b
}

func expect(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %v, want %v", what, got, want)
	}
}

func TestAGreetingHasTheseBytes(t *testing.T) {
	want := []byte("\x40\x00\x00\x01THUNDER\n\x01\x00\x01\x00\x00\x00\x80\x00")
	want = append(want, make([]byte, 8+32)...)
	want = append(want, 8, 7, 6, 5, 4, 3, 2, 1)
	got := appendGreeting(nil, 0x0102030405060708)
	expect(t, "greeting", got, want)
	peer, err := parseGreeting(got[4:])
	if err != nil || peer.messageMax != 8<<20 || peer.cluster != 0x0102030405060708 {
		t.Errorf("parsed %v, %v", peer, err)
	}
	// A newer program may send a longer greeting, and offer longer messages than a frame can hold.
	longer := append(append([]byte{}, got[4:]...), make([]byte, 100)...)
	le.PutUint16(longer[10:], 9)
	le.PutUint32(longer[12:], 1<<32-1)
	peer, err = parseGreeting(longer)
	if err != nil || peer.messageMax != payloadBytesMax {
		t.Errorf("a longer greeting: %v, %v", peer, err)
	}
}

func TestGreetingsOfOtherVersionsAreRefused(t *testing.T) {
	ours := appendGreeting(nil, 0)[4:]
	for _, versions := range [][2]uint16{{2, 9}, {0, 0}, {9, 2}} {
		theirs := bytes.Clone(ours)
		le.PutUint16(theirs[8:], versions[0])
		le.PutUint16(theirs[10:], versions[1])
		if _, err := parseGreeting(theirs); !errors.Is(err, errOtherVersion) {
			t.Errorf("versions %v: %v", versions, err)
		}
	}
	for _, n := range []int{12, 56, 63} {
		if _, err := parseGreeting(ours[:n]); !errors.Is(err, errOtherVersion) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	for _, odd := range []string{"", string(ours[:11]), "GET / HTTP/1.1\r\n"} {
		if _, err := parseGreeting([]byte(odd)); !errors.Is(err, errNotOurs) {
			t.Errorf("%q: %v", odd, err)
		}
	}
}

func TestMessageHeadsHaveTheseBytes(t *testing.T) {
	got := appendRequestHead(nil, 0x0102030405060708, 0x1122, 0x33445566)
	expect(t, "request", got[4:], []byte{8, 7, 6, 5, 4, 3, 2, 1, 0x22, 0x11, 0, 0, 0x66, 0x55, 0x44, 0x33})
	reply := []byte{7, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0x80, 0xe8, 3, 0, 0, 'b'}
	head, body, ok := parseReply(reply)
	if !ok || head != (replyHead{7, statusBusy, 1000}) || string(body) != "b" {
		t.Errorf("parsed %v, %q", head, body)
	}
	if _, _, ok := parseReply(reply[:15]); ok {
		t.Error("a short reply was accepted")
	}
	if _, _, ok := parseReply(got[4:]); ok {
		t.Error("a request was accepted as a reply")
	}
}

func TestHeadsOfOperationsHaveTheseBytes(t *testing.T) {
	got := appendObjectHead(nil, 0x0102, 3, IfVersion(9), flagFloat)
	expect(t, "object head", got, append(words(0x0102, 9), 3, 0, 0, 0, 3, 1, 0, 0))
	for i, condition := range []Condition{{}, IfAbsent(), IfPresent(), IfVersion(4), IfVersionBelow(4)} {
		got := appendObjectHead(nil, 1, 0, condition, 0)
		expect(t, "condition", got[20], byte(i))
	}
	expect(t, "identity", appendIdentity(nil, identity{5, 6, 4, 7}), words(5, 6, 4, 7))
	expect(t, "update head", appendUpdateHead(nil, 258, 8, 3), append(words(258), 8, 0, 0, 0, 3, 0, 0, 0))
	part := append(words(258), 7, 0, 0, 0, 5, 0, 0, 0)
	head, value, rest, ok := takePart(append(bytes.Clone(part), "valuerest"...))
	if !ok || head != (partHead{258, statusConditionFailed}) || string(value) != "value" || string(rest) != "rest" {
		t.Errorf("part: %v, %q, %q", head, value, rest)
	}
	if _, _, _, ok := takePart(append(bytes.Clone(part), "valu"...)); ok {
		t.Error("a false length was accepted")
	}
}

func TestPagesHaveTheseBytes(t *testing.T) {
	expect(t, "request", appendEnumerate(nil, 1, 2, 3, 4, 5), words(1, 2, 3, 4, 5))
	it, ok := parsePage(append(append(words(7, 9, 0), words(8, 1|2<<32)...), "kvv"...))
	want := page{last: 9, cursor: 7, objects: []Object{{Key: "k", Value: Value{8, []byte("vv")}}}}
	if !ok || !reflect.DeepEqual(it, want) {
		t.Errorf("page: %v", it)
	}
	if it, ok := parsePage(words(0, 9, 1)); !ok || !it.isEnd {
		t.Errorf("the last page: %v", it)
	}
	for _, kind := range []ValueKind{KindInt, KindFloat} {
		found := append(append(words(7, 9, 0), words(8, 1|uint64(kind)<<24|8<<32)...), "k12345678"...)
		if it, ok := parsePage(found); !ok || it.objects[0].Kind != kind {
			t.Errorf("a number: %v", it)
		}
	}
	for _, odd := range [][]byte{
		words(7, 9)[:15], words(7, 9, 0, 8), append(words(7, 9, 0, 8, 1|2<<32), "kv"...),
		append(words(7, 9, 0, 8, 3<<24), "k"...), append(words(7, 9, 0, 8, 1|1<<24|7<<32), "k1234567"...),
	} {
		if it, ok := parsePage(odd); ok {
			t.Errorf("%v was accepted as %v", odd, it)
		}
	}
}

func TestMessagesAboutTheClusterAreJSON(t *testing.T) {
	golden := `{"version":3,"tables":[{"id":7,"name":"x","tablets":[{"first":0,"last":18446744073709551615,"master":2,"address":"127.0.0.1:7071"}]}]}`
	address := netip.MustParseAddrPort("127.0.0.1:7071")
	m, ok := parse[mapReply]([]byte(golden))
	want := &mapReply{Version: 3, Tables: []tableInfo{{ID: 7, Name: "x", Tablets: []tabletInfo{{0, 1<<64 - 1, 2, &address}}}}}
	if !ok || !reflect.DeepEqual(m, want) {
		t.Errorf("map: %v", m)
	}
	expect(t, "map", string(body(m)), golden)
	m, ok = parse[mapReply]([]byte(`{"version":6,"tables":[{"id":7,"name":"x","tablets":[],"since":4}],"is_part":true,"gone":[8],"new":1}`))
	if !ok || !m.IsPart || m.Tables[0].Since != 4 || !reflect.DeepEqual(m.Gone, []uint64{8}) {
		t.Errorf("a part of the map: %v", m)
	}
	news := mapRequest{IsNews: true, Since: 5, Tables: [][2]uint64{{7, 4}, {8, 0}}}
	expect(t, "news", string(body(news)), `{"is_news":true,"since":5,"tables":[[7,4],[8,0]]}`)
	expect(t, "first page", string(body(mapRequest{})), `{}`)
	expect(t, "drop", string(body(dropTableRequest{"t", 7})), `{"name":"t","id":7}`)
	expect(t, "split", string(body(splitTabletRequest{"t", 1<<64 - 1})), `{"table":"t","at":18446744073709551615}`)
	expect(t, "migrate", string(body(migrateTabletRequest{"t", 1, 2})), `{"table":"t","first":1,"to":2}`)
	expect(t, "lease", string(body(leaseRequest{3})), `{"lease":3}`)
	expect(t, "create", string(body(createTableRequest{"t", 1, nil})), `{"name":"t","server_span":1}`)
	tablet := tabletInfo{First: 1}
	if b, _ := json.Marshal(tablet); string(b) != `{"first":1,"last":0,"master":0,"address":null}` {
		t.Errorf("a tablet without an address: %s", b)
	}
}

// sent returns the messages that a connection would write for these parts.
func sent(parts ...*part) (c *conn, messages [][]byte) {
	e := newPool(nil, 0).endpoint(netip.MustParseAddrPort("10.0.0.1:1"))
	c = &conn{endpoint: e, pool: e.pool, messageMax: messageBytesMax, isWriting: true, isOpen: true}
	for _, p := range parts {
		p.timeout = patience
	}
	c.submit(parts)
	for len(c.queue) > 0 {
		c.encode(0)
	}
	for b := c.out; len(b) > 0; {
		_, n := frameHead(b)
		messages = append(messages, b[4:4+n])
		b = b[4+n:]
	}
	return c, messages
}

func TestUpdatesOfOneMessageHaveConsecutiveSequences(t *testing.T) {
	lease := newLease(5)
	lease.take(1)
	put := &part{kind: kindWrite, table: 1, key: "k", value: []byte("v"), lease: lease, mapVersion: 9}
	_, messages := sent(put)
	want := appendIdentity(nil, identity{5, 2, 1, 9})
	want = append(appendObjectHead(want, 1, 1, Condition{}, 0), "kv"...)
	expect(t, "opcode of one", le.Uint16(messages[0][8:]), opWrite)
	expect(t, "one update", messages[0][16:], want)

	remove := &part{kind: kindDelete, table: 1, key: "d", lease: lease, mapVersion: 9}
	add := &part{kind: kindIncrement, isFloat: true, table: 1, key: "i", number: 7, lease: lease, mapVersion: 9}
	number := &part{kind: kindWriteNumber, table: 1, key: "n", number: 8, lease: lease, mapVersion: 9}
	read := &part{kind: kindRead, table: 1, key: "r"}
	other := &part{kind: kindDelete, table: 2, key: "o", lease: lease, mapVersion: 10}
	_, messages = sent(put, remove, read, add, number, other)
	want = appendIdentity(nil, identity{5, 2, 1, 9})
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), 2, 1, 1)
	want = append(want, "kv"...)
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), 3, 0, 2)
	want = append(want, 'd')
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, flagFloat), 4, 8, 3)
	want = le.AppendUint64(append(want, 'i'), 7)
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), 5, 8, 4)
	want = le.AppendUint64(append(want, 'n'), 8)
	if len(messages) != 3 {
		t.Fatalf("%d messages", len(messages))
	}
	expect(t, "opcode of many", le.Uint16(messages[0][8:]), opUpdateMany)
	expect(t, "many updates", messages[0][16:], want)
	expect(t, "a read among updates", le.Uint16(messages[1][8:]), opRead)
	expect(t, "another version of the map", le.Uint16(messages[2][8:]), opDelete)

	// Older servers refuse a message with such updates, so no others are in it.
	expiring := &part{kind: kindWriteExpiring, table: 1, key: "x", value: []byte("v"), ttl: 5, lease: lease, mapVersion: 9}
	counted := &part{kind: kindWriteExpiring, table: 1, key: "y", number: 7, valueKind: KindInt, ttl: 6, lease: lease, mapVersion: 9}
	set := &part{kind: kindSetExpiry, table: 1, key: "z", ttl: math.MaxUint64, lease: lease, mapVersion: 9}
	plain := &part{kind: kindWrite, table: 1, key: "k", value: []byte("v"), lease: lease, mapVersion: 9}
	_, messages = sent(expiring, plain, counted, set)
	if len(messages) != 2 {
		t.Fatalf("%d messages", len(messages))
	}
	want = appendIdentity(nil, expiring.identity())
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), expiring.sequence, 17, 5)
	want = append(want, "x\x05\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00v"...)
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), counted.sequence, 24, 5)
	want = append(want, "y\x06\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00"...)
	want = le.AppendUint64(want, 7)
	want = appendUpdateHead(appendObjectHead(want, 1, 1, Condition{}, 0), set.sequence, 8, 6)
	want = append(want, "z\xff\xff\xff\xff\xff\xff\xff\xff"...)
	expect(t, "updates with times", messages[0][16:], want)
	expect(t, "one without", le.Uint16(messages[1][8:]), opWrite)
}

func TestMessagesHaveAtMost128PartsAndAboutAQuarterOfAMegabyte(t *testing.T) {
	var parts []*part
	for range 300 {
		parts = append(parts, &part{kind: kindRead, table: 1, key: "k"})
	}
	_, messages := sent(parts...)
	var sizes []int
	for _, message := range messages {
		sizes = append(sizes, (len(message)-16)/(objectHeadBytes+1))
	}
	expect(t, "parts of the messages", sizes, []int{128, 128, 44})
	parts = nil
	lease := newLease(1)
	for range 9 {
		parts = append(parts, &part{kind: kindWrite, table: 1, key: "k", value: make([]byte, 100_000), lease: lease})
	}
	_, messages = sent(parts...)
	for _, message := range messages {
		if len(message) > messageBytes {
			t.Errorf("a message has %d bytes", len(message))
		}
	}
	if len(messages) != 5 {
		t.Errorf("%d messages", len(messages))
	}
}

func TestNewsReplaceOlderKnowledgeAndChangeNothingElse(t *testing.T) {
	tablet := func(first, last uint64, port uint16) tabletInfo {
		it := tabletInfo{First: first, Last: last, Master: 1}
		if port > 0 {
			address := netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)
			it.Address = &address
		}
		return it
	}
	table := func(id, since uint64, tablets ...tabletInfo) tableInfo {
		return tableInfo{ID: id, Since: since, Tablets: tablets}
	}
	pool := newPool(nil, 0)
	merge := func(m *tabletMap, news mapReply) *tabletMap { return m.merge(&news, pool.endpoint) }
	find := func(m *tabletMap, table, hash uint64) uint16 {
		to, _ := m.find(table, hash)
		if to == nil {
			return 0
		}
		return to.address.Port()
	}
	const end = 1<<64 - 1
	m := merge(&tabletMap{}, mapReply{Version: 10, Tables: []tableInfo{table(1, 0, tablet(0, end, 1)), table(2, 0, tablet(0, end, 2))}})
	expect(t, "whole version", m.wholeVersion(), uint64(10))
	// A table is split, and a half of it is being recovered.
	m = merge(m, mapReply{Version: 12, Since: 10, Tables: []tableInfo{table(1, 10, tablet(0, 9, 1), tablet(10, end, 0))}})
	expect(t, "halves", []uint16{find(m, 1, 9), find(m, 1, 10), find(m, 2, 5)}, []uint16{1, 0, 2})
	expect(t, "versions", []uint64{m.wholeVersion(), m.tableVersion(2)}, []uint64{12, 12})
	// Older news change nothing.
	m = merge(m, mapReply{Version: 11})
	expect(t, "after older news", find(m, 2, 5), uint16(2))
	// The cluster has become large: the other tables keep their versions.
	m = merge(m, mapReply{Version: 20, IsPart: true, Tables: []tableInfo{table(1, 12, tablet(10, end, 3))}})
	expect(t, "a part", []uint16{find(m, 1, 9), find(m, 1, 10)}, []uint16{1, 3})
	expect(t, "versions of tables", []uint64{m.wholeVersion(), m.tableVersion(1), m.tableVersion(2), m.tableVersion(3)}, []uint64{0, 20, 12, 0})
	// Changes since a version that is not known here cannot be applied.
	m = merge(m, mapReply{Version: 30, IsPart: true, Tables: []tableInfo{table(2, 15, tablet(0, 4, 7))}})
	expect(t, "a gap", []any{find(m, 2, 3), m.tableVersion(2)}, []any{uint16(2), uint64(12)})
	m = merge(m, mapReply{Version: 31, IsPart: true, Gone: []uint64{1}})
	expect(t, "a table that is gone", []any{m.hasTable(1), find(m, 1, 9)}, []any{false, uint16(0)})
	m = merge(m, mapReply{Version: 32})
	expect(t, "an empty map", []any{m.wholeVersion(), m.hasTable(2)}, []any{uint64(32), false})
	// A tablet replaces the tablets that it overlaps. A tablet that makes no sense is ignored.
	m = merge(m, mapReply{Version: 33, Tables: []tableInfo{table(1, 0, tablet(20, end, 2), tablet(0, 9, 1), tablet(5, 30, 3), tablet(9, 3, 4))}})
	expect(t, "overlaps", []uint16{find(m, 1, 3), find(m, 1, 5), find(m, 1, 30), find(m, 1, 31)}, []uint16{0, 3, 3, 0})
}

func TestAURLNamesHostsAndSettings(t *testing.T) {
	u, f := parseURL(" Thunderhead://h1:7071,h2,[::1]:9,10.0.0.1/?deadline=1.5m&cluster=0xff&in_flight=10&polling=never ")
	if f != nil {
		t.Fatal(f.text)
	}
	expect(t, "hosts", u.hosts, []hostPort{{"h1", 7071}, {"h2", 7070}, {"::1", 9}, {"10.0.0.1", 7070}})
	expect(t, "settings", []any{u.deadline.Seconds(), u.cluster, u.inFlight}, []any{90.0, uint64(255), 10})
	for _, url := range []string{
		"", "redis://h", "thunderhead:/h", "thünderhead://h", "thunderhead://", "thunderhead://a,,b", "thunderhead://:1",
		"thunderhead://h:0", "thunderhead://h:65536", "thunderhead://h:+1", "thunderhead://h:", "thunderhead://::1",
		"thunderhead://[::1", "thunderhead://[h]", "thunderhead://[::1]x", "thunderhead://a b", "thunderhead://h/db",
		"thunderhead://ada:pw@h", "thunderhead://h/?deadline=2", "thunderhead://h/?deadline=0s", "thunderhead://h/?deadline=1e9s",
		"thunderhead://h/?deadline=99999999h", "thunderhead://h/?deadline", "thunderhead://h/?cluster=0",
		"thunderhead://h/?polling=now", "thunderhead://h/?in_flight=-1", "thunderhead://h/?dedline=2s",
		"thunderhead://h/?deadline=1s&deadline=2s",
	} {
		if _, f := parseURL(url); f == nil || f.reason != ErrURL || len(f.text) < 10 {
			t.Errorf("%q: %v", url, f)
		}
	}
}
