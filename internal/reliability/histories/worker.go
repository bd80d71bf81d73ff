//go:build linux

package histories

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// A Place names a store and its database, so that a process can open it.
type Place struct {
	Store string // one of the names in openers
	DSN   string
	Pool  int // the maximum number of connections of a process
}

// openers open a store in a process.
var openers = map[string]func(Place) (Database, error){}

// A report is a message from a process: a client begins a call, a call has an outcome, or all
// clients of a key have ended.
type report struct {
	Key     string
	Client  int
	N       int
	Call    *Call
	Outcome *Outcome
}

// placeVariable is the environment variable that makes the program a process
// that calls the store.
const placeVariable = "ONLYONCE_HISTORIES"

// Worker runs the jobs that it reads from standard input, and reports whether the program was
// started for that. A main function calls it first.
func Worker() bool {
	var p Place
	if _, err := fmt.Sscanf(os.Getenv(placeVariable), "%s %d %s", &p.Store, &p.Pool, &p.DSN); err != nil {
		return false
	}
	db, err := openers[p.Store](p)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		db, err = openers[p.Store](p) // the server may be down because of a fault
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := work(db, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_ = db.close() // the process ends anyway
	return true
}

// work runs clients until there are no more jobs.
func work(db Database, jobs io.Reader, reports io.Writer) error {
	var mu sync.Mutex
	out := gob.NewEncoder(reports)
	send := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // nobody reads any more: the process is about to end
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	for in := gob.NewDecoder(jobs); ; {
		var job Job
		if err := in.Decode(&job); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read a job: %w", err)
		}
		clients.Go(func() {
			var of sync.WaitGroup
			for _, number := range job.Clients {
				of.Go(func() {
					newClient(db, job, number, func(number, n int, c *Call, o *Outcome) {
						send(report{Key: job.Key, Client: number, N: n, Call: c, Outcome: o})
					}).run()
				})
			}
			of.Wait()
			send(report{Key: job.Key})
		})
	}
}
