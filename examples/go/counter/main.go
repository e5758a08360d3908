// Counter counts, and never counts twice, although the server is killed meanwhile. It starts a
// server, counts from several goroutines, kills the server and starts it again, and compares the
// sum.
//
//	go run ./counter path/to/thunderhead
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"thunderhead.dev/thunderhead"
)

const (
	goroutines = 4
	increments = 500
	kills      = 2
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: counter path/to/thunderhead")
	}
	if err := run(context.Background(), os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, binary string) error {
	directory, err := os.MkdirTemp("", "counter")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	port, err := freePorts()
	if err != nil {
		return err
	}
	listen := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	start := func() (*exec.Cmd, error) { return startServer(binary, listen, directory) }
	server, err := start()
	if err != nil {
		return err
	}
	defer func() {
		server.Process.Signal(syscall.SIGTERM)
		server.Wait()
	}()

	// The deadline is longer than a restart of the server takes.
	db, err := thunderhead.Open(ctx, "thunderhead://"+listen, thunderhead.WithDeadline(time.Minute))
	if err != nil {
		return err
	}
	defer db.Close()
	table, err := db.Table(ctx, "counters", thunderhead.CreateTable())
	if err != nil {
		return err
	}

	var counted, unknown atomic.Int64
	var group sync.WaitGroup
	errs := make(chan error, goroutines)
	for range goroutines {
		group.Add(1)
		go func() {
			defer group.Done()
			for range increments {
				_, _, err := table.Increment(ctx, "visits", 1)
				switch {
				case err == nil:
					counted.Add(1)
				case errors.Is(err, thunderhead.ErrUnknown):
					unknown.Add(1)
				case !errors.Is(err, thunderhead.ErrNotDone):
					errs <- err
					return
				}
			}
		}()
	}
	for kill := int64(1); kill <= kills; kill++ {
		// Kill the server in the middle of the work.
		for counted.Load() < kill*goroutines*increments/(kills+1) {
			time.Sleep(time.Millisecond)
		}
		server.Process.Kill()
		server.Wait()
		fmt.Println("killed the server after", counted.Load(), "increments")
		if server, err = start(); err != nil {
			return err
		}
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
	}
	v, err := table.Get(ctx, "visits")
	if err != nil {
		return err
	}
	sum, _ := v.Int64()
	fmt.Printf("the counter is at %d: %d increments were acknowledged, %d are unknown\n", sum, counted.Load(), unknown.Load())
	if sum < counted.Load() || sum > counted.Load()+unknown.Load() {
		return errors.New("the counter is wrong")
	}
	return nil
}

// startServer starts a server that keeps its data, and waits until it serves.
func startServer(binary, listen, directory string) (*exec.Cmd, error) {
	server := exec.Command(binary, "dev", "--json", "--listen", listen, "--data", directory+"/data", "--memory", "64MiB")
	output, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(output).ReadBytes('\n')
	var ready struct{ Coordinators []string }
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		server.Process.Kill()
		server.Wait()
		return nil, fmt.Errorf("the server did not start: %w", err)
	}
	return server, nil
}

// freePorts returns a free port whose successor is free, too: a server listens on both.
func freePorts() (int, error) {
	for range 100 {
		a, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, err
		}
		port := a.Addr().(*net.TCPAddr).Port
		b, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port+1)))
		a.Close()
		if err == nil {
			b.Close()
			return port, nil
		}
	}
	return 0, errors.New("no two free ports follow each other")
}
