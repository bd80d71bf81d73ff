package sqlstore

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqlrow"
)

// doubtful is how long a commit without an answer is looked for.
const doubtful = 10 * time.Second

// doubt finds out what became of a commit that returned an error.
func (t *turn) doubt(cause error) error {
	t.leave()
	ctx, cancel := context.WithTimeout(t.in.ctx, doubtful)
	defer cancel()
	for n := 1; ; n++ {
		committed, err := t.witness(ctx)
		switch {
		case err == nil && committed:
			t.settled()
			return nil
		case err == nil:
			return cause
		}
		if !pause(ctx, 10*n) {
			return fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, cause, err)
		}
	}
}

var errStillRunning = errors.New("the transaction has not ended at the server")

// witness looks on another connection whether the run's settlement is there.
// The transaction has ended once its lock is free.
func (t *turn) witness(ctx context.Context) (committed bool, err error) {
	again := &serverRun{server: t.server, ctx: ctx, key: t.key, asks: t.asks, hold: t.hold}
	conn, tx, got, err := again.begin()
	if err != nil {
		return false, err
	}
	w := &turn{serverRun: again, conn: conn, in: line{server: t.server, ctx: ctx, tx: tx}}
	defer w.leave()
	if got != sqlrow.LockMine {
		return false, errStillRunning
	}
	if t.hold != nil {
		if err := w.in.query("locked", func([]driver.Value) error { return nil }, t.key.hash[:]); err != nil {
			return false, err
		}
	}
	found, err := w.in.find(&t.key)
	if err != nil || found == nil {
		return false, err
	}
	wanted := string(t.settlement.State)
	if wanted == "" {
		wanted = stateReleased
	}
	return found.Owner == t.record.Owner && found.Fence == t.record.Fence && found.As == wanted, nil
}
