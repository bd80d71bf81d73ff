package sqlstore

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// runningTx tracks the commands that are in RunTx in this process.
type runningTx struct {
	mu       sync.Mutex
	commands map[[32]byte]onlyonce.Record
}

// retryInside is when asking again about a command in RunTx is worth it.
const retryInside = time.Second

// enter notes the claim's command, or returns the record of the one that is
// there.
func (in *runningTx) enter(k *key, c *onlyonce.Claim) (onlyonce.Record, bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if r, there := in.commands[k.hash]; there {
		return r, false
	}
	if in.commands == nil {
		in.commands = make(map[[32]byte]onlyonce.Record)
	}
	in.commands[k.hash] = running(c)
	return onlyonce.Record{}, true
}

// running is the record of a command in RunTx, which has no row.
func running(c *onlyonce.Claim) onlyonce.Record {
	return onlyonce.Record{
		ID: c.ID, State: onlyonce.StateProcessing, Fingerprint: c.Fingerprint, Attempt: 1, CreatedAt: time.Now().UTC(), LeaseLeft: retryInside,
	}
}

func (in *runningTx) exit(k *key) {
	in.mu.Lock()
	defer in.mu.Unlock()
	delete(in.commands, k.hash)
}

var errInside = errors.New("called from a function in RunTx or SettleTx of the same store, which holds the one write lock: use WithTx with its transaction")

type insideKey struct{ store *sqlite }

// enterContext marks the context of a function that runs in RunTx or SettleTx.
func (s *sqlite) enterContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, insideKey{s}, true)
}

// checkContext refuses what would wait for itself.
func (s *sqlite) checkContext(ctx context.Context) error {
	if ctx.Value(insideKey{s}) != nil {
		return errInside
	}
	return nil
}
