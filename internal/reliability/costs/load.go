//go:build linux

package costs

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A Load holds the measurements of a number of callers, each of which sent its requests one
// after another.
type Load struct {
	Callers  int
	Requests int
	Took     time.Duration
	Client   time.Duration // processor time of this process, for all requests
	Server   time.Duration // processor time of the server, for all requests
}

// Rate returns the requests per second.
func (l Load) Rate() float64 { return float64(l.Requests) / l.Took.Seconds() }

// Latency returns the mean time that a request took.
func (l Load) Latency() time.Duration {
	return l.Took * time.Duration(l.Callers) / time.Duration(l.Requests)
}

// Loads has the measurements of one system.
type Loads struct {
	Name     string
	Commands []Load // new commands, by several numbers of callers
	Repeats  Load   // by another process than ran the commands
	OneKey   Load   // repeats of a single command
}

const (
	// repeaters is the number of callers that send repeats.
	repeaters = 64

	// rounds is how often each number of callers has its turn, so that other work on the
	// machine affects all of them alike.
	rounds = 10
)

// Run measures new commands with each number of callers, in turns, and repeats of the commands
// of the last number.
func (s *System) Run(ctx context.Context, callers []int, requests func(callers int) int) (*Loads, error) {
	l := &Loads{Name: s.Name, Commands: make([]Load, len(callers)), Repeats: Load{Callers: repeaters}, OneKey: Load{Callers: repeaters}}
	run := rand.Text()
	key := func(round, i int64) string { return fmt.Sprint(run, round, "-", i) }
	p, err := s.start(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer p.close()
	if err := concurrently(repeaters, 4*repeaters, func(i int64) error { return p.request(ctx, fmt.Sprint(run, "warm", i)) }); err != nil {
		return nil, err
	}
	for round := range int64(rounds) {
		for i, n := range callers {
			l.Commands[i].Callers = n
			if err := l.Commands[i].add(requests(n)/rounds, func(k int64) error { return p.request(ctx, key(round*100+int64(i), k)) }); err != nil {
				return nil, fmt.Errorf("%s: %w", s.Name, err)
			}
		}
	}
	last := int64(len(callers) - 1)
	other, err := s.start(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer other.close()
	for round := range int64(rounds) {
		err := l.Repeats.add(requests(callers[last])/rounds, func(k int64) error { return other.request(ctx, key(round*100+last, k)) })
		if err == nil {
			err = l.OneKey.add(requests(callers[last])/rounds, func(int64) error { return other.request(ctx, key(last, 1)) })
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.Name, err)
		}
	}
	return l, nil
}

// add sends n more requests.
func (l *Load) add(n int, request func(i int64) error) error {
	before, began := now(), time.Now()
	if err := concurrently(l.Callers, int64(n), request); err != nil {
		return err
	}
	took, after := time.Since(began), now()
	l.Requests += n
	l.Took += took
	l.Client += after.client - before.client
	l.Server += after.server - before.server
	return nil
}

// concurrently calls f with the numbers from 1 to n, in several goroutines.
func concurrently(callers int, n int64, f func(i int64) error) error {
	var next atomic.Int64
	var wg sync.WaitGroup
	errs := make(chan error, callers)
	for range callers {
		wg.Go(func() {
			for i := next.Add(1); i <= n; i = next.Add(1) {
				if err := f(i); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}

// usage is processor time.
type usage struct{ client, server time.Duration }

func now() usage {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // it cannot fail
	return usage{time.Duration(r.Utime.Nano() + r.Stime.Nano()), faults.DescendantsCPU(os.Getpid())}
}
