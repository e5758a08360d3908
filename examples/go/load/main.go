// Load writes many objects and shows its progress.
//
//	thunderhead dev &
//	go run ./load thunderhead://localhost 100000
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strconv"
	"time"

	"thunderhead.dev/thunderhead"
)

// batch is the number of objects of one call.
const batch = 5000

func main() {
	url, n := "thunderhead://localhost", 100_000
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if len(os.Args) > 2 {
		var err error
		if n, err = strconv.Atoi(os.Args[2]); err != nil {
			log.Fatal("usage: load URL NUMBER")
		}
	}
	// Ctrl-C ends the load in order.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, url, n); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, n int) error {
	db, err := thunderhead.Open(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	table, err := db.Table(ctx, "load", thunderhead.CreateTable())
	if err != nil {
		return err
	}
	began := time.Now()
	entries := make([]thunderhead.Entry, 0, batch)
	for from := 0; from < n; from += batch {
		entries = entries[:0]
		for i := from; i < min(from+batch, n); i++ {
			entries = append(entries, thunderhead.Entry{
				Key: fmt.Sprintf("key%09d", i), Value: []byte(fmt.Sprintf("value %d", i)),
			})
		}
		if err := put(ctx, table, entries); err != nil {
			return err
		}
		seconds := time.Since(began).Seconds()
		fmt.Printf("\r%d of %d objects, %.0f a second", from+len(entries), n, float64(from+len(entries))/seconds)
	}
	fmt.Println()
	return nil
}

// put writes entries until all are written. To write the same value again does no harm, so
// it also repeats writes whose outcome is unknown.
func put(ctx context.Context, table *thunderhead.Table, entries []thunderhead.Entry) error {
	for {
		_, err := table.PutMany(ctx, entries)
		var many *thunderhead.ManyError
		if !errors.As(err, &many) {
			return err
		}
		var rest []thunderhead.Entry
		for i, err := range many.Errors {
			switch {
			case err == nil:
			case errors.Is(err, thunderhead.ErrTimeout) && ctx.Err() == nil:
				rest = append(rest, entries[i])
			default:
				return err
			}
		}
		entries = rest
	}
}
