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

// A Place is where a store keeps its records, as a process needs to know it.
type Place struct {
	Store string // one of the names in openers
	DSN   string
	Pool  int // connections of a process at most
}

// openers open a store in a process.
var openers = map[string]func(Place) (Database, error){}

// A report is what a process tells of a client: a call that begins, what became
// of it, or that all clients of a key have ended.
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

// Worker calls a store as it is told on standard input, and returns whether the
// program was started for that. A main function calls it first.
func Worker() bool {
	var p Place
	if _, err := fmt.Sscanf(os.Getenv(placeVariable), "%s %d %s", &p.Store, &p.Pool, &p.DSN); err != nil {
		return false
	}
	db, err := openers[p.Store](p)
	for end := time.Now().Add(time.Minute); err != nil && time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		db, err = openers[p.Store](p) // what failed is among what is to fail
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
	tell := func(r report) {
		mu.Lock()
		defer mu.Unlock()
		_ = out.Encode(r) // nobody listens any more: the process is about to end
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
						tell(report{Key: job.Key, Client: number, N: n, Call: c, Outcome: o})
					}).run()
				})
			}
			of.Wait()
			tell(report{Key: job.Key})
		})
	}
}
