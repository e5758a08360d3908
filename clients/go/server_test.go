package thunderhead_test

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"thunderhead.dev/thunderhead"
)

// A server is a real server process of a test.
type server struct {
	command *exec.Cmd
	url     string
}

// startServer starts a temporary store, or skips the test if there is no binary.
func startServer(t testing.TB, arguments ...string) *server {
	t.Helper()
	binary := os.Getenv("THUNDERHEAD")
	if binary == "" {
		t.Skip("set THUNDERHEAD to the path of the thunderhead binary to run the tests with a real server")
	}
	if len(arguments) == 0 {
		arguments = []string{"--ephemeral"}
	}
	command := exec.Command(binary, append([]string{"dev", "--json"}, arguments...)...)
	output, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	s := &server{command: command}
	t.Cleanup(s.stop)
	line, err := bufio.NewReader(output).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the server did not say that it is ready: %v", err)
	}
	var ready struct{ Coordinators []string }
	if err := json.Unmarshal(line, &ready); err != nil || len(ready.Coordinators) == 0 {
		t.Fatalf("the server said %s: %v", line, err)
	}
	s.url = "thunderhead://" + ready.Coordinators[0]
	return s
}

// stop ends the server in order, once.
func (s *server) stop() {
	if s.command != nil {
		s.command.Process.Signal(syscall.SIGTERM)
		s.command.Wait()
		s.command = nil
	}
}

// open opens a client that the test closes at its end.
func open(t testing.TB, url string, options ...thunderhead.Option) *thunderhead.DB {
	t.Helper()
	db, err := thunderhead.Open(context.Background(), url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func newTable(t testing.TB, db *thunderhead.DB) *thunderhead.Table {
	t.Helper()
	table, err := db.CreateTable(context.Background(), "t")
	if err != nil {
		t.Fatal(err)
	}
	return table
}
