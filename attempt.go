package onlyonce

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/onlyonce-go/onlyonce/internal/defaults"
)

// An Attempt is one attempt at a command. It either holds the command or
// carries the result of an earlier attempt. Its methods are safe for concurrent
// use.
type Attempt struct {
	guard          *Guard
	id             ID
	fingerprint    []byte        // of the request
	began          time.Duration // when the caller's call began, since epoch: a time.Time would take more memory
	waited         bool          // it waited for another attempt
	held           bool          // it holds, or held, the command by a lease
	inTx           bool          // its function runs in a transaction that ends it
	tookOver       bool          // the outcome of the attempt before it is unknown
	foundUnknown   bool          // Config.Reconcile looks for an outcome that was recorded as unknown before
	replayed       bool
	recalled       bool              // its record is from the Guard's cache, and shared with others
	inFlight       bool              // the Guard counts it until it is settled
	traceparent    string            // of the caller; see Config.Traceparent
	keep           time.Duration     // how long the record stays once it is settled
	remember       time.Duration     // how long its ID is remembered, if that is longer
	fingerprintBuf [sha256.Size]byte // holds the fingerprint

	lease lease
	run   running // room for the first context

	mu       sync.Mutex
	rec      Record
	ref      string
	tx       context.Context     // of the transaction that it runs in; nil: none
	status   int32               // see SetStatus
	unstored int32               // how many steps have begun that may not be stored
	begun    map[string]struct{} // the names of this attempt's steps, except those that returned an error
}

// epoch is the time from which Attempt.began and lease.retry count, by the monotonic clock.
var epoch = time.Now()

// newAttempt returns an attempt of a call that began at a time. It keeps nothing of the caller's
// memory.
func newAttempt(g *Guard, req Request, began time.Time) *Attempt {
	a := &Attempt{guard: g, id: req.ID, began: began.Sub(epoch), keep: cmp.Or(req.Keep, g.cfg.Keep), remember: cmp.Or(req.Remember, g.cfg.Remember), rec: Record{ID: req.ID}}
	a.lease.full = cmp.Or(req.Lease, g.cfg.Lease)
	if req.Fingerprint != nil {
		a.fingerprint = append(a.fingerprintBuf[:0], req.Fingerprint...)
	}
	return a
}

// another returns a new attempt at a's command, for the same caller.
func (a *Attempt) another() *Attempt {
	b := newAttempt(a.guard, Request{ID: a.id, Fingerprint: a.fingerprint, Keep: a.keep, Remember: a.remember, Lease: a.lease.full}, time.Now())
	b.traceparent = a.traceparent
	return b
}

// grant makes the attempt the one that holds the command of its record, or that runs it in
// a transaction. The claim was sent at the given time.
func (a *Attempt) grant(sent time.Time) {
	a.held = a.rec.State == StateProcessing
	a.lease.until = sent.Add(a.lease.full)
}

// Current returns the attempt that runs the function to which ctx was passed,
// or nil. The methods of a nil Attempt panic.
func Current(ctx context.Context) *Attempt {
	need("Current", ctx != nil, needContext)
	a, _ := ctx.Value(attemptKey{}).(*Attempt)
	return a
}

type attemptKey struct{}

// Fence returns the attempt's fence: a number higher than that of every earlier
// attempt at the command. A row that stores the highest fence it has seen can
// reject later writes of an attempt that lost its lease.
func (a *Attempt) Fence() int64 {
	a.need("Fence")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec.Fence
}

// Number returns the number of the attempt; the first is 1.
func (a *Attempt) Number() int {
	a.need("Number")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec.Attempt
}

// SetRef sets the application's identifier of the thing that the command created, such as
// an order number. The record keeps it with the result.
func (a *Attempt) SetRef(ref string) {
	a.need("SetRef")
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ref = ref
}

// SetStatus sets the HTTP status of the result, for operators and for code that
// replays it as an HTTP response. httponce sets it by itself. SetStatus panics
// if status does not fit into 32 bits.
func (a *Attempt) SetStatus(status int) {
	a.need("SetStatus")
	if !storable(status) {
		panic(fmt.Sprintf("onlyonce: SetStatus(%d): write an HTTP status, or 0 for none", status))
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = int32(status) // it was checked
}

// saveRefAndStatus returns a function that undoes what SetRef and SetStatus set from now on.
func (a *Attempt) saveRefAndStatus() (restore func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	ref, status := a.ref, a.status
	return func() {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.ref, a.status = ref, status
	}
}

// Key derives a key for a step of the command. It has 32 hexadecimal digits, is
// the same on every attempt, and differs for every other command and step. Send
// it to a downstream API as the Idempotency-Key.
func (a *Attempt) Key(step string) string {
	a.need("Key")
	id := a.id.Hash()
	sum := Fingerprint([]byte("onlyonce step"), id[:], []byte(step))
	return hex.EncodeToString(sum[:sha256.Size/2])
}

// Record returns the record as the attempt last saw it. Its slices and maps
// must not be modified.
func (a *Attempt) Record() Record {
	a.need("Record")
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.rec
}

// Replayed reports whether the result is from an earlier attempt.
func (a *Attempt) Replayed() bool {
	a.need("Replayed")
	return a.replayed
}

// Result returns the stored result and true if the command is settled. The
// result is then to be replayed, and the attempt needs no Settle. Its slices and maps
// must not be modified. See also Err.
func (a *Attempt) Result() (Result, bool) {
	a.need("Result")
	rec := a.Record()
	if a.recalled { // a caller that modifies it all the same must not change the result of others
		rec.Result = rec.Result.own()
	}
	return rec.Result, rec.State != StateProcessing
}

// Err returns ErrFailed with the stored text if the attempt replays a stored
// failure, otherwise nil.
func (a *Attempt) Err() error {
	a.need("Err")
	rec := a.Record()
	if !a.replayed || rec.State != StateFailed {
		return nil
	}
	return fmt.Errorf("onlyonce: %w: %s", ErrFailed, rec.Error)
}

// Settle ends an attempt that holds the command. A zero s.Keep means the
// Request's Keep, or the Guard's. Settle continues after ctx is canceled and,
// if the store fails, retries until the lease would end. It returns ErrLost if
// another attempt took over. It returns ErrUnavailable if the store stayed
// unreachable: the command has run and its response may be sent, but it is not
// recorded. In both cases, and after any other error of the store, the attempt
// is over and its contexts have ended.
//
// An attempt is settled by one call. A second call returns an error and changes
// nothing; while the first is in progress, that error is ErrInFlight. A
// settlement that Settlement.Check rejects is also an error, and so is one that
// is larger than the store accepts (ErrTooLarge): the attempt continues and can be
// settled with a smaller one.
//
// Releasing the command forgets this attempt, and none before it: a record that an
// earlier attempt left as unknown or failed stays so, with its request and the number of
// attempts. If the record has steps, releasing a first attempt keeps the record as
// failed, because a later attempt must not run those steps again. With Config.KeepFailures,
// that failure is replayed like any other, and the command does not run again.
//
// If a step has begun that may not be stored, the outcome of an attempt that is released, or
// fails without s.Final, is unknown: whether the command had an effect is not known, and
// another attempt would run that step again.
func (a *Attempt) Settle(ctx context.Context, s Settlement) error {
	a.need("Settle")
	need("Settle", ctx != nil, needContext)
	if err := s.Check(); err != nil {
		return fmt.Errorf("onlyonce: settle: %w", err)
	}
	if err := a.beginSettling(phaseSettling); err != nil {
		return fmt.Errorf("onlyonce: settle: %w", err)
	}
	s = a.complete(s)
	asked := a.guard.cache.clock()
	err := a.settle(ctx, s)
	if errors.Is(err, ErrTooLarge) {
		a.lease.resume()
		return settleError(err)
	}
	if err == nil {
		a.cacheSettled(s, asked)
	}
	a.settled(ctx, s, err)
	return settleError(err)
}

// settleSmaller settles an attempt without its result, which is too large for the store.
// A command that has completed must not run again. Where an unknown outcome does not make
// it run again, a person or Reconcile may still give it a smaller result.
func (a *Attempt) settleSmaller(ctx context.Context, s Settlement, cause error) error {
	if s.Result = (Result{}); s.State == StateCompleted {
		s.Error = cause.Error()
		if cfg := &a.guard.cfg; cfg.HoldUnknown || cfg.Reconcile != nil {
			s = Settlement{State: StateUnknown, Error: s.Error}
		}
	}
	a.SetRef("") // the ref may be too large
	if err := a.beginSettling(phaseSettling); err != nil {
		return fmt.Errorf("onlyonce: settle: %w", err)
	}
	s = a.complete(s)
	err := a.settle(ctx, s)
	a.settled(ctx, s, cmp.Or(err, cause))
	return settleError(err)
}

// settled ends the attempt with the outcome of its settlement.
func (a *Attempt) settled(ctx context.Context, s Settlement, err error) {
	a.lease.settled(true)
	a.guard.waiters.wake(a.id)
	a.note(ctx, s, err)
}

func settleError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLost), errors.Is(err, ErrUnknown), errors.Is(err, ErrTooLarge):
		return fmt.Errorf("onlyonce: settle: %w", err)
	}
	return fmt.Errorf("onlyonce: settle: %w: %w", ErrUnavailable, err)
}

// complete fills in the fields of a settlement that the settings determine.
func (a *Attempt) complete(s Settlement) Settlement {
	a.mu.Lock()
	defer a.mu.Unlock()
	cfg := &a.guard.cfg
	if s.State == "" {
		if s = a.found(); s.State == "" {
			return s
		}
	}
	if s.Result.Ref == "" {
		s.Result.Ref = a.ref
	}
	if s.Result.Status == 0 {
		s.Result.Status = int(a.status)
	}
	s.Result.Traceparent = a.traceparent
	if s.State == StateFailed && !s.Final && a.unstored > 0 {
		kept := Result{Status: s.Result.Status, Ref: s.Result.Ref, Traceparent: s.Result.Traceparent}
		s = Settlement{State: StateUnknown, Error: s.Error + " (a step has begun that may not be stored)", Result: kept} // the text of an inbox begins with what it means
	}
	if s.State == StateUnknown && a.foundUnknown { // Reconcile has not found out: what the lost attempt has left stays
		s.Result.Ref = cmp.Or(s.Result.Ref, a.rec.Result.Ref)
		s.Result.Status = cmp.Or(s.Result.Status, a.rec.Result.Status)
	}
	s.Final = s.State == StateFailed && (s.Final || cfg.KeepFailures)
	s.Error = cut(s.Error)
	if s.Keep == 0 {
		s.Keep = a.keep
		if s.State == StateUnknown {
			s.Keep = a.guard.keepUnknown(a.keep)
		}
	}
	return s.remembered(a.remember)
}

// remembered returns a settlement after which the record stays for as long as the ID is
// remembered, if that is longer than the result is kept.
func (s Settlement) remembered(remember time.Duration) Settlement {
	if isFinal(s.State, s.Final) && s.Result.Keep == 0 && s.Keep > 0 && (remember == KeepForever || remember > s.Keep) {
		s.Result.Keep, s.Keep = s.Keep, remember
	}
	return s
}

// found returns the settlement that releases the command: it leaves the record in the
// state in which the claim found it, as failed if steps have run, or as unknown if one of
// them may not be stored. The caller holds the lock.
func (a *Attempt) found() Settlement {
	if a.unstored > 0 {
		return Settlement{State: StateUnknown, Error: "released after a step that may not be stored"}
	}
	s := releasedAs(a.rec, a.tookOver)
	if s.State == "" && len(a.rec.Steps) > 0 {
		s = Settlement{State: StateFailed, Error: "released after some of its steps"}
	}
	return s
}

// releasedAs returns the settlement that returns the record of a claim to the state in
// which the claim found it: absent, unknown if the claim was a take-over, or failed.
func releasedAs(claimed Record, tookOver bool) Settlement {
	switch {
	case tookOver: // only what was of unknown outcome: see Claim.Takes
		return Settlement{State: StateUnknown, Error: claimed.Error}
	case claimed.Attempt > 1: // without a take-over, a claim takes only a failure
		return Settlement{State: StateFailed, Error: claimed.Error}
	}
	return Settlement{}
}

// settle retries until the store has settled the attempt or the lease would
// end, unless the store is in a transaction of the caller's.
func (a *Attempt) settle(ctx context.Context, s Settlement) error {
	ctx, stop := a.settleContext(ctx)
	defer stop()
	for every := firstPoll; ; every = min(2*every, time.Second) {
		err := a.guard.store.Settle(ctx, a.hold(), s)
		if err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrTooLarge) || a.guard.inTx {
			return err
		}
		if pause(ctx, every); ctx.Err() != nil {
			return err
		}
	}
}

// note updates the record of an attempt that has ended to the settlement, and
// notifies the observer.
func (a *Attempt) note(ctx context.Context, s Settlement, err error) {
	outcome := outcomeOf(s.State, err)
	a.mu.Lock()
	a.rec = a.rec.Settled(s, time.Now()) // close enough to the store's clock
	if outcome == OutcomeUnknown && a.foundUnknown {
		outcome = OutcomeHeld
	}
	a.mu.Unlock()
	if a.inFlight {
		a.guard.inFlight.Add(-1)
	}
	a.guard.observe(ctx, a, outcome, err)
}

// runs notes that Config.Reconcile has decided to run the command again. The function gets the
// results of the steps that Reconcile has run or read.
func (a *Attempt) runs() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.foundUnknown, a.rec.Result = false, Result{}
	for name := range a.rec.Steps {
		delete(a.begun, name)
	}
}

func outcomeOf(s State, err error) Outcome {
	switch {
	case errors.Is(err, ErrLost):
		return OutcomeLost
	case err != nil:
		return OutcomeUnrecorded
	case s == StateFailed:
		return OutcomeFailed
	case s == StateUnknown:
		return OutcomeUnknown
	}
	return OutcomeExecuted
}

func (a *Attempt) hold() Hold {
	a.mu.Lock()
	defer a.mu.Unlock()
	return Hold{ID: a.id, Owner: a.rec.Owner, Fence: a.rec.Fence}
}

// cut shortens text to the length that a record keeps, at a character boundary.
func cut(text string) string {
	end := defaults.LongestErrorText
	if len(text) <= end {
		return text
	}
	for end > defaults.LongestErrorText-utf8.UTFMax && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end]
}
