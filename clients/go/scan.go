package thunderhead

import (
	"context"
	"iter"
	"math"
)

// A piece is a range of hashes that a scan has not finished, with a place in it.
//
// Shards enumerate the hashes of their tablets in an order of their own. A cursor is a place in
// that order and means the same in every tablet. If a shard has only the beginning of a piece, the
// rest becomes a piece with the same cursor. So an object that exists during the whole scan comes
// exactly once, also if its tablet is split or moves meanwhile.
type piece struct{ first, last, cursor uint64 }

// An enumeration is the pieces of a scan that remain; the last one is next.
type enumeration []piece

func newEnumeration() enumeration { return enumeration{{0, math.MaxUint64, 0}} }

// take takes the answer to the request for the next piece. It returns false if the answer makes no
// progress: the server would be asked for ever.
func (e *enumeration) take(it page) bool {
	pieces := *e
	at := pieces[len(pieces)-1]
	if it.last < at.first {
		return false
	}
	pieces = pieces[:len(pieces)-1]
	if it.last < at.last {
		pieces = append(pieces, piece{it.last + 1, at.last, at.cursor})
	}
	if !it.isEnd {
		pieces = append(pieces, piece{at.first, min(it.last, at.last), it.cursor})
	}
	*e = pieces
	return true
}

// Scan returns all objects of the table, in no particular order. An object that exists during the
// whole scan comes exactly once. An object that is created or deleted meanwhile may come or not.
//
// The scan fetches a page of objects at a time. The deadline of the client holds for each page, and
// the deadline of the context for the whole scan. An error is the last element of the sequence. If
// no error comes, the scan is complete.
func (t *Table) Scan(ctx context.Context) iter.Seq2[Object, error] {
	return func(yield func(Object, error) bool) {
		for pieces := newEnumeration(); len(pieces) > 0; {
			if f := t.db.check(ctx); f != nil {
				yield(Object{}, f.in("scan", t.name))
				return
			}
			at := pieces[len(pieces)-1]
			b := newSingle(t.db)
			p := &b.one
			p.kind, p.table, p.deadline = kindPage, t.id, t.db.deadlineOf(ctx)
			p.hash, p.last, p.number = at.first, at.last, at.cursor
			b.run(ctx)
			err := t.errorOf("scan", p)
			bytes := p.body
			b.release()
			if err != nil {
				yield(Object{}, err)
				return
			}
			it, ok := parsePage(bytes)
			if !ok || !pieces.take(it) {
				yield(Object{}, incomprehensible(false).in("scan", t.name))
				return
			}
			for _, object := range it.objects {
				if !yield(object, nil) {
					return
				}
			}
		}
	}
}
