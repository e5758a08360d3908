package thunderhead

import (
	"testing"

	"pgregory.net/rapid"
)

func TestFirstUnacknowledgedIsTheOldestOpenUpdate(t *testing.T) {
	lease := newLease(7)
	a, b, c := lease.take(1), lease.take(1), lease.take(1)
	if a != 1 || b != 2 || c != 3 {
		t.Fatalf("sequences are %d, %d, %d", a, b, c)
	}
	lease.end(b, b)
	if got := lease.firstUnacknowledged(); got != a {
		t.Errorf("after the second ended: %d", got)
	}
	lease.end(a, a)
	if got := lease.firstUnacknowledged(); got != c {
		t.Errorf("after the first ended: %d", got)
	}
	lease.end(c, c)
	lease.end(c, c)
	lease.end(99, 99)
	if got := lease.firstUnacknowledged(); got != 4 {
		t.Errorf("after all ended: %d", got)
	}
}

func TestSequencesFollowAModelForAnyOrderOfEnds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lease, open, next := newLease(1), map[uint64]bool{}, uint64(1)
		for range rapid.IntRange(0, 400).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "take") {
				count := rapid.SampledFrom([]int{1, 1, 2, 63, 130}).Draw(t, "count")
				if got := lease.take(count); got != next {
					t.Fatalf("took %d, want %d", got, next)
				}
				for range count {
					open[next] = true
					next++
				}
				continue
			}
			var numbers []uint64
			for number := uint64(1); number < next; number++ {
				if open[number] {
					numbers = append(numbers, number)
				}
			}
			number := rapid.SampledFrom(numbers).Draw(t, "end")
			last := number
			for range rapid.SampledFrom([]int{0, 0, 1, 7, 100}).Draw(t, "more") {
				if !open[last+1] {
					break
				}
				last++
			}
			lease.end(number, last)
			for it := number; it <= last; it++ {
				delete(open, it)
			}
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
