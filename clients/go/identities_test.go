package thunderhead

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFirstUnacknowledgedIsTheOldestOpenUpdate(t *testing.T) {
	lease := newLease(7)
	a, b, c := lease.take(), lease.take(), lease.take()
	if a != 1 || b != 2 || c != 3 {
		t.Fatalf("sequences are %d, %d, %d", a, b, c)
	}
	lease.end(b)
	if got := lease.firstUnacknowledged(); got != a {
		t.Errorf("after the second ended: %d", got)
	}
	lease.end(a)
	if got := lease.firstUnacknowledged(); got != c {
		t.Errorf("after the first ended: %d", got)
	}
	lease.end(c)
	lease.end(c)
	lease.end(99)
	if got := lease.firstUnacknowledged(); got != 4 {
		t.Errorf("after all ended: %d", got)
	}
}

func TestSequencesFollowAModelForAnyOrderOfEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lease, open, next := newLease(1), map[uint64]bool{}, uint64(1)
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "take") {
				if got := lease.take(); got != next {
					t.Fatalf("took %d, want %d", got, next)
				}
				open[next] = true
				next++
				continue
			}
			var numbers []uint64
			for number := uint64(1); number < next; number++ {
				if open[number] {
					numbers = append(numbers, number)
				}
			}
			number := rapid.SampledFrom(numbers).Draw(t, "end")
			lease.end(number)
			delete(open, number)
			first := next
			for it := range open {
				first = min(first, it)
			}
			if got := lease.firstUnacknowledged(); got != first {
				t.Fatalf("first unacknowledged is %d, want %d", got, first)
			}
		}
	})
}
