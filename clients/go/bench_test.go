package thunderhead_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkOne measures one operation after the other, and reports the median time.
func BenchmarkOne(b *testing.B) {
	ctx := context.Background()
	table := newTable(b, open(b, startServer(b).url))
	value := make([]byte, 100)
	if _, err := table.Put(ctx, "k", value); err != nil {
		b.Fatal(err)
	}
	for name, do := range map[string]func() error{
		"get": func() error { _, err := table.Get(ctx, "k"); return err },
		"put": func() error { _, err := table.Put(ctx, "k", value); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			times := make([]time.Duration, 0, b.N)
			for range b.N {
				began := time.Now()
				if err := do(); err != nil {
					b.Fatal(err)
				}
				times = append(times, time.Since(began))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1000, "µs-p50")
			b.ReportMetric(float64(times[len(times)*99/100].Nanoseconds())/1000, "µs-p99")
		})
	}
}

// BenchmarkInFlight64 measures 64 goroutines that do one operation after the other.
func BenchmarkInFlight64(b *testing.B) {
	ctx := context.Background()
	table := newTable(b, open(b, startServer(b).url))
	value := make([]byte, 100)
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("key", i))
		if _, err := table.Put(ctx, keys[i], value); err != nil {
			b.Fatal(err)
		}
	}
	for name, do := range map[string]func(key string) error{
		"get": func(key string) error { _, err := table.Get(ctx, key); return err },
		"put": func(key string) error { _, err := table.Put(ctx, key, value); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			var next atomic.Int64
			var group sync.WaitGroup
			for range 64 {
				group.Add(1)
				go func() {
					defer group.Done()
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						if err := do(keys[i%1000]); err != nil {
							b.Error(err)
							return
						}
					}
				}()
			}
			group.Wait()
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "ops/s")
		})
	}
}

// BenchmarkMany measures calls with a thousand operations.
func BenchmarkMany(b *testing.B) {
	ctx := context.Background()
	table := newTable(b, open(b, startServer(b).url))
	var keys []string
	for i := range 1000 {
		keys = append(keys, fmt.Sprint("key", i))
		if _, err := table.Put(ctx, keys[i], make([]byte, 100)); err != nil {
			b.Fatal(err)
		}
	}
	b.Run("get", func(b *testing.B) {
		for range b.N {
			if _, err := table.GetMany(ctx, keys); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)*1000/b.Elapsed().Seconds(), "ops/s")
	})
}
