// Command cost measures the Go client, and go-redis: docs/testing/costs.md describes its input and
// output.
//
// It is a module of its own, so that the module of the client does not depend on go-redis.
//
// It reads requests from its standard input, one line of JSON each, does rounds of operations, and
// writes the time of an operation in each round. A request that makes no sense is a fault of the
// judge: it ends the program with status 1.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"thunderhead.dev/thunderhead"
)

// A request is a line of the input.
type request struct {
	ID         uint64
	Mode       string
	Store      string
	URL        string
	Table      string
	Work       string
	Width      int
	Count      int
	Rounds     int
	ValueBytes int `json:"value_bytes"`
}

// A reply is a line of the output.
type reply struct {
	ID uint64    `json:"id"`
	NS []float64 `json:"ns"`
}

var keys = func() (keys [100]string) {
	for i := range keys {
		keys[i] = fmt.Sprint("key", i)
	}
	return keys
}()

// A store is a client that does each kind of work.
type store interface {
	get(ctx context.Context, key string) error
	put(ctx context.Context, key string) error
	getMany(ctx context.Context) error
	putMany(ctx context.Context) error
	// inFlight does rounds of as many operations at the same time as width says.
	inFlight(ctx context.Context, writes bool, count, width int) error
}

// A cluster is the client of Thunderhead.
type cluster struct {
	table   *thunderhead.Table
	value   []byte
	entries []thunderhead.Entry
}

func openCluster(ctx context.Context, r request) (store, error) {
	db, err := thunderhead.Open(ctx, r.URL)
	if err != nil {
		return nil, err
	}
	table, err := db.Table(ctx, r.Table)
	if err != nil {
		return nil, err
	}
	c := &cluster{table: table, value: bytes.Repeat([]byte("v"), r.ValueBytes)}
	for _, key := range keys {
		c.entries = append(c.entries, thunderhead.Entry{Key: key, Value: c.value})
	}
	return c, c.putMany(ctx)
}

func (c *cluster) get(ctx context.Context, key string) error {
	v, err := c.table.Get(ctx, key)
	if err == nil && len(v.Data) != len(c.value) {
		return fmt.Errorf("the object %s is not there", key)
	}
	return err
}

func (c *cluster) put(ctx context.Context, key string) error {
	_, err := c.table.Put(ctx, key, c.value)
	return err
}

func (c *cluster) getMany(ctx context.Context) error {
	_, err := c.table.GetMany(ctx, keys[:])
	return err
}

func (c *cluster) putMany(ctx context.Context) error {
	_, err := c.table.PutMany(ctx, c.entries)
	return err
}

// inFlight has a goroutine for each operation in flight.
func (c *cluster) inFlight(ctx context.Context, writes bool, count, width int) error {
	do := c.get
	if writes {
		do = c.put
	}
	var group sync.WaitGroup
	failures := make([]error, width)
	for worker := range width {
		group.Add(1)
		go func() {
			defer group.Done()
			for range count / width {
				if err := do(ctx, keys[worker]); err != nil {
					failures[worker] = err
					return
				}
			}
		}()
	}
	group.Wait()
	for _, err := range failures {
		if err != nil {
			return err
		}
	}
	return nil
}

// A redisServer is the client of Redis.
type redisServer struct {
	db      *redis.Client
	value   []byte
	objects []any
}

func openRedis(ctx context.Context, r request) (store, error) {
	options, err := redis.ParseURL(r.URL)
	if err != nil {
		return nil, err
	}
	s := &redisServer{db: redis.NewClient(options), value: bytes.Repeat([]byte("v"), r.ValueBytes)}
	for _, key := range keys {
		s.objects = append(s.objects, key, s.value)
	}
	return s, s.putMany(ctx)
}

func (s *redisServer) get(ctx context.Context, key string) error {
	_, err := s.db.Get(ctx, key).Bytes()
	return err
}

func (s *redisServer) put(ctx context.Context, key string) error {
	return s.db.Set(ctx, key, s.value, 0).Err()
}

func (s *redisServer) getMany(ctx context.Context) error {
	return s.db.MGet(ctx, keys[:]...).Err()
}

func (s *redisServer) putMany(ctx context.Context) error {
	return s.db.MSet(ctx, s.objects...).Err()
}

// inFlight sends pipelines, which are much faster than goroutines with a connection each.
func (s *redisServer) inFlight(ctx context.Context, writes bool, count, width int) error {
	for range count / width {
		_, err := s.db.Pipelined(ctx, func(pipe redis.Pipeliner) error {
			for _, key := range keys[:width] {
				if writes {
					pipe.Set(ctx, key, s.value, 0)
				} else {
					pipe.Get(ctx, key)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// round does a round of operations.
func round(ctx context.Context, s store, r request) error {
	one := func(do func(context.Context, string) error) error {
		for range r.Count {
			if err := do(ctx, keys[0]); err != nil {
				return err
			}
		}
		return nil
	}
	many := func(do func(context.Context) error) error {
		for range r.Count / r.Width {
			if err := do(ctx); err != nil {
				return err
			}
		}
		return nil
	}
	switch r.Work {
	case "get":
		return one(s.get)
	case "put":
		return one(s.put)
	case "get_many":
		return many(s.getMany)
	case "put_many":
		return many(s.putMany)
	case "get_in_flight":
		return s.inFlight(ctx, false, r.Count, r.Width)
	case "put_in_flight":
		return s.inFlight(ctx, true, r.Count, r.Width)
	}
	return fmt.Errorf("there is no work %s", r.Work)
}

func run(ctx context.Context) error {
	opens := map[string]func(context.Context, request) (store, error){
		"thunderhead": openCluster,
		"redis":       openRedis,
	}
	stores := make(map[string]store)
	output := json.NewEncoder(os.Stdout)
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return err
		}
		if stores[r.Store] == nil {
			open := opens[r.Store]
			if open == nil || r.Mode != "sync" {
				return fmt.Errorf("there is no store %s in mode %s", r.Store, r.Mode)
			}
			s, err := open(ctx, r)
			if err != nil {
				return err
			}
			stores[r.Store] = s
		}
		answer := reply{ID: r.ID}
		for range r.Rounds {
			began := time.Now()
			if err := round(ctx, stores[r.Store], r); err != nil {
				return err
			}
			took := time.Since(began)
			answer.NS = append(answer.NS, float64(took.Nanoseconds())/float64(r.Count))
		}
		if err := output.Encode(answer); err != nil {
			return err
		}
	}
	return lines.Err()
}

func main() {
	fmt.Println(`{"ready":true,"language":"go","modes":["sync"]}`)
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
