// Command driver is the driver of the Go client: docs/testing/drivers.md says what it reads and
// writes.
//
// It reads requests from its standard input, one line of JSON each, and writes a reply for each.
// Each client of the requests is a client of its own, with a goroutine. A request that makes no
// sense is a fault of the judge: it ends the driver with status 1.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"thunderhead.dev/thunderhead"
)

// lineBytesMax is the longest line of a request: a value of 1 MiB in base64, and much more.
const lineBytesMax = 64 << 20

// A request is a line of the input. Bytes are in base64, as encoding/json has them.
type request struct {
	ID      uint64
	Client  uint64
	Op      string
	URL     string
	Mode    string
	Table   string
	Key     []byte
	Value   []byte
	Number  int64 `json:",string"`
	By      int64 `json:",string"`
	If      condition
	Keys    [][]byte
	Objects [][2][]byte
	// Cancel is whether to cancel the operation while it is performed.
	Cancel bool
}

// A condition is the condition of an update: none, or one.
type condition []thunderhead.Condition

func (c *condition) UnmarshalJSON(b []byte) error {
	switch string(b) {
	case "null":
		return nil
	case `"absent"`:
		*c = condition{thunderhead.IfAbsent()}
		return nil
	case `"present"`:
		*c = condition{thunderhead.IfPresent()}
		return nil
	}
	var is struct {
		Version *thunderhead.Version `json:",string"`
	}
	if err := json.Unmarshal(b, &is); err != nil || is.Version == nil {
		return fmt.Errorf("the condition %s is unknown", b)
	}
	*c = condition{thunderhead.IfVersion(*is.Version)}
	return nil
}

// A reply is a line of the output.
type reply struct {
	ID    uint64   `json:"id"`
	OK    any      `json:"ok,omitempty"`
	Error *failure `json:"error,omitempty"`
}

type (
	failure struct {
		Code    int                 `json:"code"`
		Outcome string              `json:"outcome,omitempty"`
		Version thunderhead.Version `json:"version,string"`
		Text    string              `json:"text"`
	}
	empty  struct{}
	absent struct {
		Absent bool `json:"absent"`
	}
	versioned struct {
		Version thunderhead.Version `json:"version,string"`
	}
	found struct {
		Version thunderhead.Version `json:"version,string"`
		Value   []byte              `json:"value"`
	}
	counted struct {
		Version thunderhead.Version `json:"version,string"`
		Sum     int64               `json:"sum,string"`
	}
	results struct {
		Results []any `json:"results"`
	}
	failed struct {
		Error *failure `json:"error"`
	}
	listed struct {
		Objects []object `json:"objects"`
	}
	object struct {
		Key []byte `json:"key"`
		found
	}
)

func foundOf(v thunderhead.Value) any {
	if !v.Exists() {
		return absent{true}
	}
	return found{v.Version, v.Data}
}

func deletedOf(version thunderhead.Version) any {
	if version == 0 {
		return absent{true}
	}
	return versioned{version}
}

// failureOf takes the outcome from the family of the error. An error that belongs to none, or to
// both, has no outcome, which the judge refuses.
func failureOf(err error) *failure {
	it := &failure{Text: err.Error()}
	switch isNotDone, isUnknown := errors.Is(err, thunderhead.ErrNotDone), errors.Is(err, thunderhead.ErrUnknown); {
	case isNotDone && !isUnknown:
		it.Outcome = "not_done"
	case isUnknown && !isNotDone:
		it.Outcome = "unknown"
	}
	var coded *thunderhead.Error
	if errors.As(err, &coded) {
		it.Code = coded.Code()
	}
	var condition *thunderhead.ConditionError
	var number *thunderhead.NotANumberError
	switch {
	case errors.As(err, &condition):
		it.Version = condition.Version
	case errors.As(err, &number):
		it.Version = number.Version
	}
	return it
}

// each returns a result for each of n operations of a call. err is the error of the call.
func each(n int, err error, convert func(i int) any) any {
	var many *thunderhead.ManyError
	isPart := errors.As(err, &many)
	all := make([]any, n)
	for i := range all {
		switch {
		case isPart && many.Errors[i] != nil:
			all[i] = failed{failureOf(many.Errors[i])}
		case err != nil && !isPart:
			all[i] = failed{failureOf(err)}
		default:
			all[i] = convert(i)
		}
	}
	return results{all}
}

// A client performs the requests of one client, one after the other.
type client struct {
	requests chan request
	db       *thunderhead.DB
	tables   map[string]*thunderhead.Table
}

// serve performs requests until there are no more.
func (c *client) serve(to *output) {
	for r := range c.requests {
		ok, err := c.answer(&r)
		if err != nil {
			to.write(reply{ID: r.ID, Error: failureOf(err)})
		} else {
			to.write(reply{ID: r.ID, OK: ok})
		}
	}
	c.close()
}

// answer performs a request, and cancels it meanwhile if the request says so.
func (c *client) answer(r *request) (any, error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if r.Cancel {
		go cancel()
	}
	return c.perform(ctx, r)
}

func (c *client) perform(ctx context.Context, r *request) (any, error) {
	switch r.Op {
	case "open":
		return empty{}, c.open(ctx, r)
	case "close":
		c.close()
		return empty{}, nil
	}
	if c.db == nil {
		end(fmt.Errorf("the client %d is not open", r.Client))
	}
	table := c.tables[r.Table]
	if table == nil {
		var err error
		if table, err = c.db.Table(ctx, r.Table); err != nil {
			return nil, err
		}
		c.tables[r.Table] = table
	}
	key := string(r.Key)
	switch r.Op {
	case "get":
		v, err := table.Get(ctx, key)
		return foundOf(v), err
	case "put":
		version, err := table.Put(ctx, key, r.Value, r.If...)
		return versioned{version}, err
	case "put_number":
		version, err := table.PutInt(ctx, key, r.Number, r.If...)
		return versioned{version}, err
	case "delete":
		version, err := table.Delete(ctx, key, r.If...)
		return deletedOf(version), err
	case "increment":
		sum, version, err := table.Increment(ctx, key, r.By)
		return counted{version, sum}, err
	case "get_many":
		keys := make([]string, len(r.Keys))
		for i, key := range r.Keys {
			keys[i] = string(key)
		}
		values, err := table.GetMany(ctx, keys)
		return each(len(keys), err, func(i int) any { return foundOf(values[i]) }), nil
	case "put_many":
		entries := make([]thunderhead.Entry, len(r.Objects))
		for i, it := range r.Objects {
			entries[i] = thunderhead.Entry{Key: string(it[0]), Value: it[1]}
		}
		versions, err := table.PutMany(ctx, entries)
		return each(len(entries), err, func(i int) any { return versioned{versions[i]} }), nil
	case "scan":
		all := []object{}
		for it, err := range table.Scan(ctx) {
			if err != nil {
				return nil, err
			}
			all = append(all, object{[]byte(it.Key), found{it.Version, it.Data}})
		}
		return listed{all}, nil
	}
	end(fmt.Errorf("there is no operation %q", r.Op))
	return nil, nil
}

func (c *client) open(ctx context.Context, r *request) error {
	if r.Mode != "sync" {
		end(fmt.Errorf("there is no mode %q", r.Mode))
	}
	c.close()
	db, err := thunderhead.Open(ctx, r.URL)
	if err == nil {
		c.db, c.tables = db, map[string]*thunderhead.Table{}
	}
	return err
}

// close closes the client. It stays, so that later requests show that it refuses them.
func (c *client) close() {
	if c.db != nil {
		c.db.Close()
	}
}

// An output writes replies, each at once. Any number of goroutines may share it.
type output struct {
	mu sync.Mutex
	w  io.Writer
}

func (o *output) write(line any) {
	b, err := json.Marshal(line)
	if err == nil {
		o.mu.Lock()
		_, err = o.w.Write(append(b, '\n'))
		o.mu.Unlock()
	}
	if err != nil {
		end(err)
	}
}

// end ends the driver because it cannot go on.
func end(err error) {
	fmt.Fprintln(os.Stderr, "driver:", err)
	os.Exit(1)
}

func main() {
	to := &output{w: os.Stdout}
	to.write(map[string]any{"ready": true, "language": "go", "modes": []string{"sync"}, "cancels": []string{"sync"}})
	clients := map[uint64]*client{}
	var running sync.WaitGroup
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, lineBytesMax)
	for lines.Scan() {
		var r request
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			end(fmt.Errorf("%w in the line %s", err, lines.Bytes()))
		}
		c := clients[r.Client]
		if c == nil {
			c = &client{requests: make(chan request, 16)}
			clients[r.Client] = c
			running.Add(1)
			go func() {
				defer running.Done()
				c.serve(to)
			}()
		}
		c.requests <- r
	}
	if err := lines.Err(); err != nil {
		end(err)
	}
	for _, c := range clients {
		close(c.requests)
	}
	running.Wait()
}
