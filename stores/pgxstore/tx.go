package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A txFunc is a caller's function; SettleTx gives it no record that counts.
type txFunc = func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error)

// txRetryAfter is the LeaseLeft of a command that is in another process's RunTx: when
// a retry is worthwhile.
const txRetryAfter = time.Second

// RunTx claims, runs fn and settles in one transaction of a connection of the
// pool, at the isolation level that the pool or the database has. Beginning and
// ending the transaction take one round trip each. fn must not end the
// transaction: its Commit and Rollback return an error. After a serialization
// failure or a deadlock, fn runs again, up to twenty times in all.
func (s *Store) RunTx(ctx context.Context, c onlyonce.Claim, fn func(ctx context.Context, tx pgx.Tx, r onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, wrap("run in a transaction", err)
	}
	k := keyOf(c.ID)
	if s.hints.Has(&k.hash) {
		if found, err := s.look(ctx, &k); err == nil && found != nil && !found.Expired && !c.Takes(found.Record) {
			return found.Record, nil
		}
	}
	r := &run{store: s, key: k, claim: &c, fn: transact.Checked("pgxstore: run in a transaction", fn)}
	defer r.keepFence(ctx)
	rec, err := r.retry(ctx)
	if err == nil {
		s.hints.Add(&k.hash)
	}
	return rec, err
}

// keepFence makes every fence to come for the command higher than one that the
// function got in vain, as far as the server can be reached: by a row where there
// is none, otherwise by the floor.
func (r *run) keepFence(ctx context.Context) {
	if r.given == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keeping)
	defer cancel()
	for {
		err := r.store.alone(ctx, func(conn *pgx.Conn) error {
			id := &r.key.id
			done, err := conn.Exec(ctx, pgschema.Text["keep fence"], r.key.hash[:], pgschema.Escape(id.Tenant), pgschema.Escape(id.Operation), pgschema.Escape(id.Key),
				[]byte(r.claim.Owner), r.given)
			if err == nil && done.RowsAffected() == 0 {
				_, err = conn.Exec(ctx, pgschema.Text["raise floor"], r.given)
			}
			return err
		})
		if err == nil || code(err) != "" && !comesBack(err) || !transact.Pause(ctx, keepPause) {
			return
		}
	}
}

const (
	// keeping bounds how long a caller waits for a fence that was given in vain to
	// be kept: mostly the server is not there.
	keeping = 5 * time.Second

	// keepPause is the longest pause before that is tried again.
	keepPause = 100 * time.Millisecond
)

// SettleTx runs fn and settles an existing claim in one transaction, as RunTx
// does. The claim's row is checked first but is not locked until the end: if
// another attempt takes over meanwhile, the settlement fails, and fn's rows are
// rolled back.
func (s *Store) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(ctx context.Context, tx pgx.Tx) (onlyonce.Settlement, error)) error {
	r := &run{store: s, key: keyOf(h.ID), hold: &h, fn: transact.Checked("pgxstore: settle in a transaction",
		func(ctx context.Context, tx pgx.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			return fn(ctx, tx)
		})}
	_, err := r.retry(ctx)
	return err
}

// A run is a caller's function on its way through a transaction.
type run struct {
	store *Store
	key   key
	claim *onlyonce.Claim // by RunTx
	hold  *onlyonce.Hold  // by SettleTx
	fn    txFunc

	mark   *int64          // of the transaction
	doubt  transact.Commit // by which its commit is found
	before *stored         // the row that was there, or nil
	given  int64           // the highest fence that the function has got by RunTx
	record onlyonce.Record // as claimed, then as settled
}

func (r *run) doing() string {
	if r.hold != nil {
		return "settle in a transaction"
	}
	return "run in a transaction"
}

// An ownError is the caller's function's, and passes as it is.
type ownError struct{ error }

// retry runs the transaction until the server does not ask to run it again.
func (r *run) retry(ctx context.Context) (onlyonce.Record, error) {
	for n := 1; ; n++ {
		began := time.Now()
		err := r.once(ctx, n == transact.MaxRuns)
		if n < transact.MaxRuns && (isRetryable(err) || errors.Is(err, errClaimed) || errors.Is(err, errChanged)) {
			if transact.Pause(ctx, transact.AfterRun(n, time.Since(began))) {
				continue
			}
			err = errors.Join(ctx.Err(), err)
		}
		if own, ok := err.(ownError); ok { // never wrapped by us
			return r.record, own.error
		}
		return r.record, wrap(r.doing(), err)
	}
}

// once runs one transaction.
func (r *run) once(ctx context.Context, last bool) (err error) {
	conn, err := r.store.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx := &tx{conn: conn.Conn()}
	defer conn.Release() // which closes a connection with an open transaction
	ctx = context.WithoutCancel(ctx)
	var runs bool
	err = bounded(ctx, func(ctx context.Context) error { runs, err = r.begin(ctx, tx); return err })
	if err != nil || !runs {
		return errors.Join(err, tx.end(ctx))
	}
	ended := false
	defer func() {
		if !ended { // a panic, or the end of the goroutine
			_ = tx.end(ctx)
		}
	}()
	if r.hold == nil {
		r.given = r.record.Fence
	}
	st, failed := r.fn(ctx, tx, r.record)
	ended = true
	if failed != nil && isRetryable(failed) && !last {
		return errors.Join(failed, tx.end(ctx))
	}
	if failed != nil {
		return r.fail(ctx, tx, &st, failed)
	}
	return r.commit(ctx, tx, &st)
}

// begin begins the transaction, takes the command's lock and looks, in one round
// trip, and says whether the function runs.
func (r *run) begin(ctx context.Context, tx *tx) (runs bool, err error) {
	var b pgx.Batch
	b.BeginTx(pgx.TxOptions{})
	if r.hold == nil {
		request, command, uncompared := r.locks()
		b.Queue(pgschema.Text["lock"], request, command, uncompared)
	}
	r.doubt = transact.Commit{Token: transact.NewToken()}
	b.Queue(opening, r.key.hash[:], transact.TokenLock(r.doubt.Token))
	results := tx.conn.SendBatch(ctx, &b)
	tx.Tx = results.Tx()
	defer func() { err = errors.Join(err, results.Close()) }()
	if _, err := results.Exec(); err != nil {
		return false, err
	}
	got := transact.LockMine
	if r.hold == nil {
		if err := results.QueryRow().Scan(&got); err != nil {
			return false, err
		}
	}
	var found row
	var floor int64
	var token []byte
	if err := results.QueryRow().Scan(found.into(&floor, &r.mark, &token, nil)...); err != nil {
		return false, err
	}
	if r.before = nil; found.owner != nil {
		r.before = found.stored()
		r.doubt.Before = token
		if err := r.before.Check(r.key.id); err != nil {
			return false, err
		}
	}
	if r.hold != nil {
		if !holds(r.before, r.hold) || r.before.State != onlyonce.StateProcessing {
			return false, onlyonce.ErrLost
		}
		r.record = r.before.Record
		return true, nil
	}
	return r.begun(got, found.Now, floor), nil
}

// locks are those of what is asked for.
func (r *run) locks() (request, command, uncompared int64) {
	locks := transact.LocksOf(r.key.hash, r.claim.Fingerprint)
	return pgschema.LockNames(&locks)
}

// begun says whether the command is given to the claim.
func (r *run) begun(got string, now, floor int64) bool {
	b, c := r.before, r.claim
	if b != nil && !b.Expired && !c.Takes(b.Record) {
		r.record = b.Record
		return false
	}
	if got != transact.LockMine {
		r.record = onlyonce.Record{ID: r.key.id, State: onlyonce.StateProcessing, Attempt: 1, CreatedAt: time.UnixMicro(now).UTC(), LeaseLeft: txRetryAfter}
		if got == transact.LockOther {
			r.record.Fingerprint = transact.Another
		}
		if b != nil && !b.Expired {
			r.record.Fingerprint, r.record.Attempt, r.record.CreatedAt = b.Fingerprint, b.Attempt+1, b.CreatedAt
		}
		return false
	}
	fence := max(now, floor+1, r.given+1)
	if b != nil {
		fence = max(fence, b.Fence+1)
	}
	r.record = record.Next(c, b, fence, fence)
	return true
}

// beginRead begins a transaction of the store's own.
const beginRead = "BEGIN ISOLATION LEVEL READ COMMITTED"

// recordAlone records how the function failed, in a transaction of its own: on
// another connection if that of the function broke.
func (r *run) recordAlone(ctx context.Context, conn *pgx.Conn, st *onlyonce.Settlement) error {
	if conn.IsClosed() {
		return bounded(ctx, func(ctx context.Context) error {
			return r.store.alone(ctx, func(conn *pgx.Conn) error { return r.recordAlone(ctx, conn, st) })
		})
	}
	tx := &tx{conn: conn}
	if err := r.beginAlone(ctx, tx); err != nil {
		return errors.Join(err, tx.end(ctx))
	}
	return r.commit(ctx, tx, st)
}

// beginAlone begins a transaction that records how the function's failed.
func (r *run) beginAlone(ctx context.Context, tx *tx) error {
	r.mark = nil
	return bounded(ctx, func(ctx context.Context) error {
		var b pgx.Batch
		b.Queue(beginRead)
		b.Queue(pgschema.Text["ended"], transact.TokenLock(r.doubt.Token))
		return tx.conn.SendBatch(ctx, &b).Close()
	})
}

// fail rolls back what the function did, and records its settlement alone.
func (r *run) fail(ctx context.Context, tx *tx, st *onlyonce.Settlement, failed error) error {
	err := tx.end(ctx)
	if st.State != "" && err == nil {
		if r.hold != nil {
			err = settle(ctx, r.store, r.hold, st)
		} else {
			err = r.recordAlone(ctx, tx.conn, st)
		}
	}
	if err != nil && !errors.Is(err, errChanged) && !errors.Is(err, errClaimed) { // then the command has gone on without this attempt
		return ownError{errors.Join(failed, wrap(r.doing(), err))}
	}
	return ownError{failed}
}

// commit records how the command ended and commits, in one round trip.
func (r *run) commit(ctx context.Context, tx *tx, st *onlyonce.Settlement) error {
	switch tx.conn.PgConn().TxStatus() {
	case 'E':
		return errors.Join(errAborted, tx.end(ctx))
	case 'I':
		return errors.Join(errEnded, tx.end(ctx))
	}
	s, err := r.statement(st)
	if err != nil {
		return errors.Join(err, tx.end(ctx))
	}
	var settled int64
	s.into = []any{&settled, nil}
	err = bounded(ctx, func(ctx context.Context) error {
		return send(ctx, tx.conn, r.store.listener, "", []*statement{s}, "COMMIT")
	})
	tx.done = true
	switch {
	case err == nil:
	case claimed(err):
		return errors.Join(errClaimed, tx.end(ctx))
	case code(err) == codeDivision:
		return errors.Join(r.lost(), tx.end(ctx))
	case code(err) == codeRoot:
		return errors.Join(errEnded, tx.end(ctx))
	case isRetryable(err):
		return errors.Join(err, tx.end(ctx))
	default: // a server that is told to end says so after a commit, too, and a pooler may answer in its place
		if settled, err = r.resolveCommit(errors.Join(err, tx.end(ctx))); err != nil {
			return err
		}
	}
	r.given = 0 // a row has it
	if st.State != "" {
		r.record = r.record.Settled(*st, time.UnixMicro(settled).UTC())
	}
	return nil
}

var (
	errAborted = errors.New("the transaction was aborted by an error that its function got, and did not return: nothing was written")
	errClaimed = errors.New("the command was claimed outside the transaction: nothing was written")
	errChanged = errors.New("the command's record was changed by a claim outside the transaction: nothing was written")
	errEnded   = fmt.Errorf("%w: the function ended its transaction: nothing was recorded, and what it had committed is there", onlyonce.ErrUnknown)
)

// lost is the error of a record that is not as it was when the transaction began.
func (r *run) lost() error {
	if r.hold != nil {
		return onlyonce.ErrLost
	}
	return errChanged
}

// statement returns what records the end, and fails if it writes nothing.
func (r *run) statement(st *onlyonce.Settlement) (*statement, error) {
	if r.hold != nil {
		s := &statement{name: textRelease, key: &r.key}
		if st.State != "" {
			s.name, s.args = textSettle, values(st)
		}
		s.args = append(append(append(s.args, r.doubt.Token), owned(&r.key, r.hold)...), r.mark)
		return s, nil
	}
	rec := &r.record
	steps, err := record.EncodeSteps(rec.Steps)
	if err != nil {
		return nil, err
	}
	list := values(st)
	fingerprint := rec.Fingerprint
	if st.State == "" { // the row remembers the fence that was given
		list = values(&onlyonce.Settlement{Keep: time.Hour})
		list[0] = record.StateReleased
		fingerprint, steps = nil, nil
	}
	id := r.key.id
	list = append(list, r.key.hash[:], pgschema.Escape(id.Tenant), pgschema.Escape(id.Operation), pgschema.Escape(id.Key),
		fingerprint, []byte(rec.Owner), int32(rec.Attempt), rec.Fence, steps, rec.CreatedAt.UnixMicro())
	b := r.before
	if b == nil {
		return &statement{name: textRecord, key: &r.key, args: append(list, r.mark, r.doubt.Token)}, nil
	}
	list = append(list, []byte(b.Owner), b.Fence, b.As, r.mark, r.doubt.Token, b.StepsAs)
	return &statement{name: textReplace, key: &r.key, args: list}, nil
}
