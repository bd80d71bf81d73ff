package engine

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// NeverPurge is a Purging.Every with which nothing is deleted.
const NeverPurge time.Duration = -1

// A Purging is how a store deletes expired records in the background.
type Purging struct {
	Every    time.Duration // NeverPurge: nothing is deleted
	Observer onlyonce.Observer
}

// NewPurging returns the Purging of a store's Config. It panics on a negative interval other
// than NeverPurge. The name is that of the store's package.
func NewPurging(name string, every time.Duration, o onlyonce.Observer) Purging {
	if every != NeverPurge {
		every = defaults.Positive(name+": Config.PurgeEvery", every, defaults.PurgeEvery)
	}
	return Purging{Every: every, Observer: o}
}

// A purger purges an engine in the background.
type purger struct {
	stop context.CancelFunc
	done sync.WaitGroup
}

// start purges e until close is called. The first purge comes at a random moment in the first
// tenth of the interval, so that processes that start together do not purge together, and
// programs that run briefly still purge.
func (p *purger) start(e *Closable, how Purging) {
	ctx, stop := context.WithCancel(context.Background())
	p.stop = stop
	if how.Every < 0 {
		return
	}
	g := onlyonce.New(paced{e}, onlyonce.Config{Observer: how.Observer})
	p.done.Go(func() {
		for wait := rand.N(how.Every/10 + 1); ; wait = how.Every {
			select {
			case <-time.After(wait):
				_, _ = g.Purge(ctx) // the Observer gets the error
			case <-ctx.Done():
				return
			}
		}
	})
}

// A paced engine leaves most of the time to other callers while expired records are deleted: after
// each batch, it pauses for four times as long as the batch took, but for no longer than
// longestPause, so that a slow server still keeps up with the records that expire.
type paced struct{ *Closable }

const longestPause = 100 * time.Millisecond

func (p paced) Purge(ctx context.Context, limit int) (int, error) {
	began := time.Now()
	n, err := p.Closable.Purge(ctx, limit)
	if n > 0 && err == nil {
		select {
		case <-time.After(min(4*time.Since(began), longestPause)):
		case <-ctx.Done():
		}
	}
	return n, err
}

// close ends the purge in progress and waits for it.
func (p *purger) close() {
	p.stop()
	p.done.Wait()
}
