//go:build linux

package histories

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// A Fault happens while the clients call the store.
type Fault struct {
	Name   string
	Weight int // relative frequency
	Do     func(r *Run, rng *rand.Rand) error
}

// Inject returns a function that makes the faults happen one at a time until the clients have
// ended. The seed determines their order and the pauses between them.
func Inject(every time.Duration, faults ...Fault) func(r *Run) {
	return func(r *Run) {
		rng, sum := seeded(r.Seed, "faults"), 0
		for _, f := range faults {
			sum += f.Weight
		}
		for {
			select {
			case <-r.Over:
				return
			case <-time.After(every/2 + time.Duration(rng.Int64N(int64(every)))):
			}
			f, n := faults[0], rng.IntN(sum)
			for _, f = range faults {
				if n -= f.Weight; n < 0 {
					break
				}
			}
			if err := f.Do(r, rng); err != nil {
				r.fail(fmt.Errorf("%s: %w", f.Name, err))
				return
			}
			r.mu.Lock()
			r.faults[f.Name]++
			r.mu.Unlock()
		}
	}
}

// ProcessStops stops a process, usually for longer than a short lease.
func ProcessStops(weight int) Fault {
	return Fault{"processes stopped", weight, func(r *Run, rng *rand.Rand) error {
		w := r.randomProcess(rng)
		w.child.Signal(syscall.SIGSTOP)
		time.Sleep(short/2 + time.Duration(rng.Int64N(int64(4*short))))
		w.child.Signal(syscall.SIGCONT)
		return nil
	}}
}

// ProcessKills kills a process, and starts another in its place.
func ProcessKills(weight int) Fault {
	return Fault{"processes killed", weight, func(r *Run, rng *rand.Rand) error {
		w := r.randomProcess(rng)
		w.child.Kill()
		return r.startProcess(w.number)
	}}
}

// randomProcess returns one of the processes.
func (r *Run) randomProcess(rng *rand.Rand) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[rng.IntN(len(r.running))]
}

// offset returns a random error of a clock.
func offset(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(2*maxClockOffset))) - maxClockOffset
}

// maxClockOffset is the greatest error of a store's clock. clockMoved is the greatest difference
// between such a clock and the machine's.
const (
	maxClockOffset = 500 * time.Millisecond
	clockMoved     = 2*maxClockOffset + clockSlack
)
