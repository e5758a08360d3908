// Queue is a work queue. Producers add tasks under the next number, and workers claim them with
// conditional writes, so that each task has one worker at a time. A worker that fails loses its
// claim after a while.
//
//	thunderhead dev &
//	go run ./queue thunderhead://localhost
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"
	"time"

	"thunderhead.dev/thunderhead"
)

// claimTime is how long a worker may take for a task.
const claimTime = 10 * time.Second

// A Task is the value of an object of the queue.
type Task struct {
	Work  string
	Until time.Time // the end of the claim; zero if no worker has claimed the task
}

// A Queue is a table of tasks.
type Queue struct{ table *thunderhead.Table }

// Add adds a task. The number of the task comes from a counter, which gives each number once.
func (q *Queue) Add(ctx context.Context, work string) error {
	number, _, err := q.table.Increment(ctx, "last", 1)
	if err != nil {
		return err // A number that was given out is just not used.
	}
	data, err := json.Marshal(Task{Work: work})
	if err != nil {
		return err
	}
	_, err = q.table.Put(ctx, fmt.Sprintf("task/%020d", number), data, thunderhead.IfAbsent())
	return err
}

// Claim claims a task that no worker has. ok is false if there is none.
func (q *Queue) Claim(ctx context.Context, now time.Time) (key string, task Task, version thunderhead.Version, ok bool, err error) {
	for object, err := range q.table.Scan(ctx) {
		if err != nil {
			return "", Task{}, 0, false, err
		}
		if object.Kind != thunderhead.KindBytes {
			continue // the counter
		}
		if err := json.Unmarshal(object.Data, &task); err != nil {
			return "", Task{}, 0, false, err
		}
		if task.Until.After(now) {
			continue
		}
		task.Until = now.Add(claimTime)
		data, err := json.Marshal(task)
		if err != nil {
			return "", Task{}, 0, false, err
		}
		version, err := q.table.Put(ctx, object.Key, data, thunderhead.IfVersion(object.Version))
		switch {
		case errors.Is(err, thunderhead.ErrCondition):
			continue // Another worker was faster.
		case errors.Is(err, thunderhead.ErrUnknown):
			continue // If the claim was written, it ends by itself.
		case err != nil:
			return "", Task{}, 0, false, err
		}
		return object.Key, task, version, true, nil
	}
	return "", Task{}, 0, false, nil
}

// Done removes a task that was claimed under this version. It returns false if the claim had ended.
func (q *Queue) Done(ctx context.Context, key string, claim thunderhead.Version) (bool, error) {
	_, err := q.table.Delete(ctx, key, thunderhead.IfVersion(claim))
	if errors.Is(err, thunderhead.ErrCondition) {
		return false, nil
	}
	return err == nil, err
}

func main() {
	url := "thunderhead://localhost"
	if len(os.Args) > 1 {
		url = os.Args[1]
	}
	if err := run(context.Background(), url, 100, 4); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string, tasks, workers int) error {
	db, err := thunderhead.Open(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close()
	table, err := db.Table(ctx, "queue", thunderhead.CreateTable())
	if err != nil {
		return err
	}
	queue := &Queue{table}
	for i := range tasks {
		if err := queue.Add(ctx, fmt.Sprint("work ", i)); err != nil {
			return err
		}
	}
	var group sync.WaitGroup
	errs := make(chan error, workers)
	for worker := range workers {
		group.Add(1)
		go func() {
			defer group.Done()
			done := 0
			for {
				key, _, claim, ok, err := queue.Claim(ctx, time.Now())
				if err != nil || !ok {
					if err != nil {
						errs <- err
					}
					break
				}
				// The work itself would be done here.
				if ok, err := queue.Done(ctx, key, claim); err != nil {
					errs <- err
					break
				} else if ok {
					done++
				}
			}
			fmt.Printf("worker %d did %d tasks\n", worker, done)
		}()
	}
	group.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
