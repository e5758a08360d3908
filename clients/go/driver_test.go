package thunderhead_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// A driver is a process of internal/driver.
type driver struct {
	t       *testing.T
	command *exec.Cmd
	in      io.WriteCloser
	out     *bufio.Scanner
	errors  bytes.Buffer
}

// buildDriver returns the path of the driver.
func buildDriver(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "driver")
	if out, err := exec.Command("go", "build", "-o", binary, "./internal/driver").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return binary
}

// startDriver starts the driver. A test must end it.
func startDriver(t *testing.T, binary string) *driver {
	t.Helper()
	d := &driver{t: t, command: exec.Command(binary)}
	d.command.Stderr = &d.errors
	in, err := d.command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := d.command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	d.in, d.out = in, bufio.NewScanner(out)
	if err := d.command.Start(); err != nil {
		t.Fatal(err)
	}
	d.expect(`{"cancels":["sync"],"language":"go","modes":["sync"],"ready":true}`)
	return d
}

var versions = regexp.MustCompile(`"version":"(\d+)"`)

// expect reads a line, which must begin so. Each V stands for the first version in the line, which
// it returns.
func (d *driver) expect(want string) (version string) {
	d.t.Helper()
	if !d.out.Scan() {
		d.t.Fatalf("the driver has ended: %v", d.out.Err())
	}
	got := d.out.Text()
	if found := versions.FindStringSubmatch(got); found != nil {
		version = found[1]
	}
	if want := strings.ReplaceAll(want, "V", version); !strings.HasPrefix(got, want) {
		d.t.Fatalf("the driver wrote\n%s, not\n%s", got, want)
	}
	return version
}

// ask sends a request of the client 7 and expects the reply.
func (d *driver) ask(request, reply string) (version string) {
	d.t.Helper()
	fmt.Fprintf(d.in, "{\"id\":5,\"client\":7,%s}\n", request)
	return d.expect(`{"id":5,` + reply)
}

// end ends the input and waits for the end of the process.
func (d *driver) end() (failed bool, errors string) {
	d.t.Helper()
	d.in.Close()
	for d.out.Scan() {
		d.t.Errorf("the driver also wrote %s", d.out.Text())
	}
	return d.command.Wait() != nil, d.errors.String()
}

func TestTheDriverAnswersEachRequest(t *testing.T) {
	server := startServer(t)
	newTable(t, open(t, server.url))
	d := startDriver(t, buildDriver(t))
	opening := fmt.Sprintf(`"op":"open","url":%q,"mode":"sync"`, server.url)
	const key = `"table":"t","key":"aw=="`
	d.ask(opening, `"ok":{}}`)
	d.ask(`"op":"get",`+key, `"ok":{"absent":true}}`)
	version := d.ask(`"op":"put","value":"dg==","if":"absent",`+key, `"ok":{"version":"V"}}`)
	if got := d.ask(`"op":"get",`+key, `"ok":{"version":"V","value":"dg=="}}`); got != version {
		t.Errorf("read version %s, wrote %s", got, version)
	}
	d.ask(`"op":"put","value":"","if":"absent",`+key, `"error":{"code":1,"outcome":"not_done","version":"`+version+`","text":"thunderhead: put`)
	d.ask(`"op":"increment","by":"1",`+key, `"error":{"code":1013,"outcome":"not_done","version":"`+version+`","text":"thunderhead: incr`)
	d.ask(`"op":"delete","if":{"version":"`+version+`"},`+key, `"ok":{"version":"`+version+`"}}`)
	d.ask(`"op":"delete",`+key, `"ok":{"absent":true}}`)
	d.ask(`"op":"put","value":"","if":"present",`+key, `"error":{"code":1,"outcome":"not_done","version":"0","text":"thunderhead: put`)
	d.ask(`"op":"put_number","number":"-40",`+key, `"ok":{"version":"V"}}`)
	d.ask(`"op":"increment","by":"82",`+key, `"ok":{"version":"V","sum":"42"}}`)
	d.ask(`"op":"put_many","table":"t","objects":[["YQ==",""],["","dg=="]]`,
		`"ok":{"results":[{"version":"V"},{"error":{"code":1010,"outcome":"not_done","version":"0","text":"thunderhead: put many`)
	d.ask(`"op":"get_many","table":"t","keys":["YQ==","eA=="]`, `"ok":{"results":[{"version":"V","value":""},{"absent":true}]}}`)
	d.ask(`"op":"scan","table":"t"`, `"ok":{"objects":[{"key":"`)
	d.ask(`"op":"get","table":"none","key":"aw=="`, `"error":{"code":1020,"outcome":"not_done","version":"0","text":"thunderhead: open table`)
	d.ask(`"op":"close"`, `"ok":{}}`)
	d.ask(`"op":"get",`+key, `"error":{"code":12,"outcome":"not_done","version":"0","text":"thunderhead: get`)
	d.ask(opening, `"ok":{}}`)
	d.ask(`"op":"increment","by":"1",`+key, `"ok":{"version":"V","sum":"43"}}`)
	if failed, errors := d.end(); failed || errors != "" {
		t.Errorf("the driver failed: %v, and printed %q", failed, errors)
	}
}

func TestTheDriverCancels(t *testing.T) {
	server := startServer(t)
	db := open(t, server.url)
	newTable(t, db)
	d := startDriver(t, buildDriver(t))
	d.ask(fmt.Sprintf(`"op":"open","url":%q,"mode":"sync"`, server.url), `"ok":{}}`)
	var done, unknown int64
	for range 50 {
		d.ask(`"op":"increment","by":"1","table":"t","key":"bg==","cancel":true`, ``)
		switch got := d.out.Text(); {
		case strings.Contains(got, `"ok"`):
			done++
		case strings.Contains(got, `"outcome":"unknown"`):
			unknown++
		case !strings.Contains(got, `"error":{"code":20,"outcome":"not_done"`):
			t.Errorf("a cancelled increment ended with %s", got)
		}
	}
	table, err := db.Table(context.Background(), "t")
	if err != nil {
		t.Fatal(err)
	}
	sum, _, err := table.Increment(context.Background(), "n", 0)
	if err != nil || sum < done || sum > done+unknown {
		t.Errorf("the sum is %d, %v; %d are done, %d unknown", sum, err, done, unknown)
	}
	if failed, errors := d.end(); failed || errors != "" {
		t.Errorf("the driver failed: %v, and printed %q", failed, errors)
	}
}

func TestTheDriverEndsAtARequestThatMakesNoSense(t *testing.T) {
	binary := buildDriver(t)
	for _, it := range []struct{ line, says string }{
		{`"op":"get","table":"t","key":"aw=="`, "the client 7 is not open"},
		{`"op":"open","url":"thunderhead://localhost","mode":"async"`, `there is no mode "async"`},
		{`"op":"put","if":{"version":7}`, "the condition"},
		{`nonsense`, "invalid character"},
	} {
		d := startDriver(t, binary)
		fmt.Fprintf(d.in, "{\"id\":5,\"client\":7,%s}\n", it.line)
		if failed, errors := d.end(); !failed || !strings.Contains(errors, it.says) {
			t.Errorf("%s: failed: %v, and printed %q", it.line, failed, errors)
		}
	}
	d := startDriver(t, binary)
	d.ask(`"op":"open","url":"nonsense","mode":"sync"`, `"error":{"code":0,"outcome":"not_done","version":"0","text":"thunderhead: open`)
	d.end()
}
