//go:build linux

package histories

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"time"
)

// A Fault is something that goes wrong while the clients call.
type Fault struct {
	Name   string
	Weight int // how often it happens, among the others
	Do     func(r *Run, rng *rand.Rand) error
}

// Among returns what lets the faults happen until the clients have ended, one
// at a time, in an order and after pauses that the seed decides.
func Among(every time.Duration, faults ...Fault) func(r *Run) {
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

// Stops stops a process, mostly for longer than a short lease lasts.
func Stops(weight int) Fault {
	return Fault{"processes stopped", weight, func(r *Run, rng *rand.Rand) error {
		w := r.some(rng)
		w.child.Signal(syscall.SIGSTOP)
		time.Sleep(short/2 + time.Duration(rng.Int64N(int64(4*short))))
		w.child.Signal(syscall.SIGCONT)
		return nil
	}}
}

// Kills kills a process, and starts another in its place.
func Kills(weight int) Fault {
	return Fault{"processes killed", weight, func(r *Run, rng *rand.Rand) error {
		w := r.some(rng)
		w.child.Kill()
		return r.begin(w.number)
	}}
}

// some draws one of the processes.
func (r *Run) some(rng *rand.Rand) *process {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.running[rng.IntN(len(r.running))]
}

// offset draws by how much a clock is wrong.
func offset(rng *rand.Rand) time.Duration {
	return time.Duration(rng.Int64N(int64(2*farthest))) - farthest
}

// farthest is how far a store's clock is moved, and clockMoved how far it may
// then be from the machine's.
const (
	farthest   = 500 * time.Millisecond
	clockMoved = 2*farthest + clockSlack
)
