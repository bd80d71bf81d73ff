package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
)

// doubtful is how long a commit without an answer is looked for.
const doubtful = 10 * time.Second

var errNotCommitted = errors.New("the transaction was not committed")

// resolve finds out whether a transaction was committed whose end was not
// answered, and when it settled. Otherwise it returns cause: with ErrUnknown if
// the server can't be asked for too long.
func (r *run) resolve(cause error) (settled int64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), doubtful)
	defer cancel()
	for n := 1; ; n++ {
		settled, err = r.witness(ctx)
		switch {
		case err == nil:
			return settled, nil
		case errors.Is(err, errNotCommitted) && (r.hold == nil || n > 5): // SettleTx holds no lock before its end, to which the server may have yet to come
			return 0, fmt.Errorf("%w: %w", err, cause)
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("%w: %w: %w", onlyonce.ErrUnknown, cause, err)
		case <-time.After(rand.N(time.Millisecond << min(n, 9))):
		}
	}
}

// witness looks on another connection whether the run's settlement is there. The
// command's locks, and its row, are free once the transaction has ended.
func (r *run) witness(ctx context.Context) (settled int64, err error) {
	err = r.store.alone(ctx, func(conn *pgx.Conn) error {
		tx := &tx{conn: conn}
		if _, err := conn.Exec(ctx, beginRead); err != nil {
			return err
		}
		defer tx.end(context.WithoutCancel(ctx))
		if r.hold == nil { // in the order in which a transaction takes them
			request, command, _ := r.locks()
			for _, lock := range []int64{request, command} {
				if _, err := conn.Exec(ctx, pgschema.Text["lock patiently"], lock); err != nil {
					return err
				}
			}
		}
		if _, err := conn.Exec(ctx, pgschema.Text["locked"], r.key.hash[:]); err != nil {
			return err
		}
		found, err := look(ctx, conn, &r.key)
		switch {
		case err != nil:
			return err
		case found == nil || found.Owner != r.record.Owner || found.State == onlyonce.StateProcessing:
			return errNotCommitted
		case !found.SettledAt.IsZero():
			settled = found.SettledAt.UnixMicro()
		}
		return nil
	})
	return settled, err
}
