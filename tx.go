package onlyonce

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// A TxGuard is a Guard that also runs commands in transactions of its store's
// database, together with the caller's rows. It is safe for concurrent use.
type TxGuard[TX any] struct {
	*Guard
	store TxStore[TX]
}

// NewTx returns a TxGuard that keeps its records in store. It panics on a nil
// store or an invalid Config.
func NewTx[TX any](store TxStore[TX], cfg Config) *TxGuard[TX] {
	need("NewTx", store != nil, "a store: pass what sqlstore.Open or pgxstore.Open returns")
	return &TxGuard[TX]{Guard: New(store, cfg), store: store}
}

// BeginTx is Begin for a command that runs in a transaction: fn's rows and its
// settlement are committed together. It returns the attempt after the commit,
// or when there is a result to replay (see Attempt.Replayed). When fn returns
// an error, its rows are rolled back, its settlement is recorded alone (see
// Failure), and the error is returned unchanged, together with ErrLost if another
// attempt has taken over. A zero settlement releases the command. A settlement
// that Settlement.Check rejects is an error that rolls back and records nothing.
// Most callers want DoTx or an integration built on it.
func (g *TxGuard[TX]) BeginTx(ctx context.Context, req Request, fn func(context.Context, TX) (Settlement, error)) (*Attempt, error) {
	g.need("BeginTx", ctx)
	need("BeginTx", fn != nil, needFunction)
	run := &txRun[TX]{guard: g, fn: fn}
	a, err := g.admit(ctx, req, run)
	if err != nil || a.replayed {
		return a, err
	}
	if a.held { // taken before, for Config.Reconcile
		return a, run.settle(ctx, a)
	}
	g.observe(ctx, a, outcomeOf(a.rec.State, nil), nil)
	return a, nil
}

// Transact runs fn in its own transaction. Nothing is claimed and nothing is
// recorded: it is for a request without a key. An error of fn rolls back and is
// returned unchanged. Any other error is ErrUnavailable if nothing was
// committed, or ErrInDoubt if the store can't find out. As with DoTx,
// Config.Lease limits both the wait for a turn and the run, and fn may run more
// than once if the database requires a retry.
func (g *TxGuard[TX]) Transact(ctx context.Context, fn func(context.Context, TX) error) error {
	g.need("Transact", ctx)
	need("Transact", fn != nil, needFunction)
	if ctx.Err() != nil {
		return fmt.Errorf("onlyonce: transact: %w", context.Cause(ctx))
	}
	c := Claim{
		ID:              ID{Operation: "no key", Key: rand.Text()},
		Owner:           newOwner(),
		SkipFingerprint: true, // there is no repeat
		Lease:           g.cfg.Lease,
	}
	var own *fnError
	_, err := g.runTx(ctx, c, func(ctx context.Context, tx TX, _ Record) (Settlement, error) {
		own = newFnError(fn(ctx, tx))
		return Settlement{}, own.orNil()
	})
	switch {
	case err == nil:
		return nil
	case own.in(err):
		return own.err
	case errors.Is(err, ErrInDoubt):
		err = unkeyedError{err}
	}
	return storeError("transact", err)
}

// An unkeyedError is an ErrInDoubt of a request without a key.
type unkeyedError struct{ error }

func (e unkeyedError) Unwrap() error { return e.error }

// CannotBeRepeated distinguishes the error from that of a command, which a repeat finds out about.
func (e unkeyedError) CannotBeRepeated() {}

// runTx calls the store's RunTx, detached from its caller: the wait for fn's turn
// and each run of fn may take one lease. The package stores/internal/transact says how a
// SQL store finds out about a commit whose response was lost.
func (g *TxGuard[TX]) runTx(ctx context.Context, c Claim, fn func(context.Context, TX, Record) (Settlement, error)) (Record, error) {
	waiting, stop := context.WithTimeout(context.WithoutCancel(ctx), c.Lease)
	defer stop()
	return g.store.RunTx(waiting, c, func(ctx context.Context, tx TX, r Record) (Settlement, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Lease)
		defer cancel()
		return fn(ctx, tx, r)
	})
}

// A txRun is the run of one caller's function in a transaction.
type txRun[TX any] struct {
	guard *TxGuard[TX]
	fn    func(context.Context, TX) (Settlement, error)
}

// An fnError is the error of one run of a caller's function, which gets it back unchanged. The
// store gets it as it is: what the store returns then shows whether the function has failed,
// or has run again, or was not run again because another attempt has settled the command.
type fnError struct{ err error }

// newFnError returns nil if there is no error.
func newFnError(err error) *fnError {
	if err == nil {
		return nil
	}
	return &fnError{err}
}

func (e *fnError) Error() string { return e.err.Error() }
func (e *fnError) Unwrap() error { return e.err }

// orNil returns e as an error, which is nil if e is.
func (e *fnError) orNil() error {
	if e == nil {
		return nil
	}
	return e
}

// in reports whether err, which the store has returned, says that the function failed with e.
func (e *fnError) in(err error) bool { return e != nil && errors.Is(err, e) }

// unrecorded returns what kept the store from recording how the function failed with e; nil:
// nothing did.
func (e *fnError) unrecorded(err error) error {
	if err == error(e) {
		return nil
	}
	return err
}

// claim runs the function if the claim is granted. A caller that disconnects
// does not end it. It ends if it takes too long, either waiting for its turn or
// running.
func (t *txRun[TX]) claim(ctx context.Context, a *Attempt, c Claim, rec *Record) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	inner := a.another()
	inner.inTx, inner.tookOver = true, c.TakeUnknown
	ended, ran := false, false
	var own *fnError // of the last run
	var settled Settlement
	var asked time.Time // before the settlement was sent
	defer func() {
		if ran {
			t.guard.waiters.wake(c.ID)
		}
		if ran && !ended {
			t.guard.observe(ctx, inner, OutcomeFailed, errors.New("onlyonce: panic in a transaction, which was rolled back"))
		}
	}()
	r, err := t.guard.runTx(ctx, c, func(ctx context.Context, tx TX, r Record) (Settlement, error) {
		ran, ended, own = true, false, nil
		inner.startTx(ctx, r)
		s, err := t.fn(&txContext{ctx, inner}, tx)
		if wrong := s.Check(); wrong != nil {
			ended, own = true, newFnError(settlementError(wrong, err))
			inner.endTx(Settlement{State: StateFailed})
			return Settlement{}, own
		}
		s = inner.complete(s)
		inner.endTx(s)
		settled, asked = s, time.Now()
		ended, own = true, newFnError(err)
		return s, own.orNil()
	})
	ended = true
	if own.in(err) {
		var lost error
		if settled.State != "" {
			lost = own.unrecorded(err)
		}
		t.guard.observe(ctx, inner, outcomeOf(inner.Record().State, lost), cmp.Or(lost, own.err))
		return &fnError{failedWith(own.err, lost)}
	}
	switch {
	case err != nil && ran:
		t.observeUncommitted(ctx, inner, err)
		return &fnError{storeError("claim", err)} // also to a caller whose context has ended
	case err != nil:
		t.guard.observeUnavailable(ctx, a, err)
		return err
	}
	if ran && r.Owner == c.Owner {
		r.State = inner.Record().State // which says so when the command was released
		final := r
		final.KeepLeft = max(settled.Keep, 0)
		t.guard.cache.put(&final, asked)
	}
	*rec = r
	return nil
}

// observeUncommitted notifies the observer of a function that ran in a transaction that was
// not committed because of cause, or may not have been.
func (t *txRun[TX]) observeUncommitted(ctx context.Context, a *Attempt, cause error) {
	s := Settlement{State: StateFailed, Error: cause.Error()}
	if errors.Is(cause, ErrUnknown) {
		s.State = StateUnknown
	}
	a.endTx(s)
	outcome := outcomeOf(s.State, nil)
	if errors.Is(cause, ErrLost) {
		outcome = OutcomeLost
	}
	t.guard.observe(ctx, a, outcome, cause)
}

// endInTx notes that the attempt's function runs in a transaction that ends it, as if the attempt
// had not been taken before.
func (a *Attempt) endInTx() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.inTx = true
}

// endsInTx reports whether the attempt's function runs in a transaction that ends it.
func (a *Attempt) endsInTx() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.inTx
}

// startTx notes that the attempt runs in a transaction, which ctx bounds. What a run that was
// undone has set does not count.
func (a *Attempt) startTx(ctx context.Context, rec Record) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rec, a.tx, a.ref, a.status = rec, ctx, "", 0
}

// endTx notes how the function ended that ran in the transaction.
func (a *Attempt) endTx(s Settlement) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.rec.State, a.rec.Result, a.rec.Error = s.State, s.Result, s.Error
}

// settlementError returns the error of a call whose function returned err with a settlement
// that Settlement.Check rejects.
func settlementError(wrong, err error) error {
	return errors.Join(fmt.Errorf("onlyonce: settle: %w", wrong), err)
}

// settle runs the function for an attempt that holds the command already.
func (t *txRun[TX]) settle(ctx context.Context, a *Attempt) error {
	a.endInTx()
	leased, stop := a.Context(ctx)
	defer stop()
	defer a.settleUnfinished(leased)
	err := t.guard.SettleTx(leased, a, t.fn)
	if err != nil && !a.lease.ended() {
		_ = a.Settle(leased, Settlement{}) // observed
	}
	return err
}

// settleAfter ends an attempt after SettleTx of the store returned cause: the
// transaction was not committed, or the store does not know. Nobody has to wait
// for the lease then. The settlement is that the command failed: a transaction
// that is still on its way finds the record settled and is rolled back; one that
// was committed has settled it, and this settlement changes nothing. A function that
// ended its own transaction may have committed rows without the settlement, so the outcome
// is unknown.
func (a *Attempt) settleAfter(ctx context.Context, cause error) error {
	failed := a.complete(Settlement{State: StateFailed, Error: cause.Error()})
	unknown := a.complete(Settlement{State: StateUnknown, Error: cause.Error()})
	s := failed
	if errors.Is(cause, ErrUnknown) && !errors.Is(cause, ErrInDoubt) {
		s = unknown
	}
	err := a.settle(ctx, s)
	a.lease.settled(false)
	a.guard.waiters.wake(a.id)
	if errors.Is(cause, ErrUnknown) {
		s = unknown
	}
	a.note(ctx, s, err)
	return settleError(cause)
}

// SettleTx runs fn in a transaction to end an attempt of g that holds the
// command. fn's rows and its settlement are committed together, and only if the
// attempt still holds the command. Otherwise, the error is ErrLost, and fn's
// rows are rolled back. When fn returns an error, its rows are rolled back and
// the error is returned unchanged. Its settlement is recorded alone; with a
// zero settlement, the attempt continues. A transaction that does not get its
// turn within a lease does not run, and the error is ErrUnavailable.
//
// If the attempt is that of Do, a repeat decodes the Body of the settlement's Result: set it to the
// JSON of the value that Do's function then returns, or a repeat gets ErrCorrupt.
//
// When the transaction finally fails, the command has failed, the error is
// ErrUnavailable, and fn's rows are rolled back. When the response to the
// commit was lost and the store can't find out whether the commit succeeded,
// the error is ErrInDoubt: either both the rows and the settlement are stored,
// or neither is.
// If fn ended its transaction, which it must not, and then returned no error, the error is
// ErrUnknown, and the outcome is recorded as unknown.
//
// Passing an attempt of another Guard is an error that changes nothing.
func (g *TxGuard[TX]) SettleTx(ctx context.Context, a *Attempt, fn func(context.Context, TX) (Settlement, error)) error {
	g.need("SettleTx", ctx)
	a.need("SettleTx")
	need("SettleTx", fn != nil, needFunction)
	if a.guard != g.Guard {
		return errors.New("onlyonce: settle: the attempt is another Guard's: pass the TxGuard that began it")
	}
	if err := a.beginSettling(phaseInTx); err != nil {
		return fmt.Errorf("onlyonce: settle: %w", err)
	}
	defer a.lease.enter(phaseRunning) // unless it is settled
	waiting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	wait := time.AfterFunc(a.lease.full, func() { stop(context.DeadlineExceeded) })
	defer wait.Stop()
	var s Settlement
	var own *fnError    // of the last run
	var asked time.Time // before the settlement was sent
	ran := false
	restore := a.saveRefAndStatus()
	err := g.store.SettleTx(waiting, a.hold(), func(ctx context.Context, tx TX) (Settlement, error) {
		if !wait.Stop() && !ran {
			return Settlement{}, context.Cause(waiting)
		}
		if ran { // what a run that was undone has set does not count
			restore()
		}
		ran = true
		var failed error
		s, failed = a.settlementTx(func() (Settlement, error) {
			return fn(&txContext{ctx, a}, tx)
		})
		asked, own = time.Now(), newFnError(failed)
		return s, own.orNil()
	})
	failed := own.in(err)
	if failed {
		err = own.unrecorded(err)
	}
	switch {
	case failed && s.State == "":
		restore() // what fn has set is about rows that do not exist
		return own.err
	case !ran && !errors.Is(err, ErrLost):
		return settleError(err)
	case !a.lease.enter(phaseSettling):
		return errSettledFirst
	case err != nil && !errors.Is(err, ErrLost) && failed:
		return a.settleFailure(ctx, s, own.err)
	case err != nil && !errors.Is(err, ErrLost):
		return a.settleAfter(ctx, err)
	}
	a.lease.settled(false)
	if err == nil && !failed {
		a.cacheSettled(s, asked)
	}
	a.guard.waiters.wake(a.id)
	a.note(ctx, s, err)
	if failed {
		return failedWith(own.err, err)
	}
	return settleError(err)
}

// settleFailure ends an attempt whose function returned failed, and whose settlement the
// store could not record when it had rolled back the transaction.
func (a *Attempt) settleFailure(ctx context.Context, s Settlement, failed error) error {
	err := a.settle(ctx, s)
	a.lease.settled(false)
	a.guard.waiters.wake(a.id)
	a.note(ctx, s, err)
	return failedWith(failed, err)
}

// failedWith returns the error of a function that returned failed, and whose failure was recorded
// with err. If another attempt has taken over, the caller must retry to learn the outcome.
func failedWith(failed, err error) error {
	if errors.Is(err, ErrLost) {
		return errors.Join(settleError(ErrLost), failed)
	}
	return failed
}

// errSettledFirst is the error of a transaction whose attempt Settle ended first.
var errSettledFirst = fmt.Errorf("onlyonce: settle: %w", errSettled)

// settlementTx runs the function of SettleTx, which runs again if the database
// requires a retry. Its settlement counts unless Settle came first.
func (a *Attempt) settlementTx(fn func() (Settlement, error)) (Settlement, error) {
	if !a.lease.enter(phaseInTx) {
		return Settlement{}, errSettledFirst
	}
	s, err := fn()
	if wrong := s.Check(); wrong != nil {
		return Settlement{}, settlementError(wrong, err)
	}
	if err != nil && s.State == "" {
		return s, err
	}
	s = a.complete(s)
	if !a.lease.enter(phaseCommitting) {
		return Settlement{}, errors.Join(errSettledFirst, err)
	}
	return s, err
}
