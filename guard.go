package onlyonce

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/envelope"
)

// A Guard makes commands run once. It is safe for concurrent use. Create one
// per policy and share it.
type Guard struct {
	store   Store
	cfg     Config
	waiters waiters
	doubts  doubts
	cache   *cache // nil: there is none
	inTx    bool   // the store is in a transaction of the caller's: see CallersTx

	inFlight atomic.Int64
}

// New returns a Guard that keeps its records in store. It panics on a nil store
// or an invalid Config.
func New(store Store, cfg Config) *Guard {
	need("New", store != nil, "a store: pass memstore.New(memstore.Config{}) or another")
	cfg = cfg.withDefaults()
	tx, _ := store.(CallersTx)
	inTx := tx != nil && tx.InCallersTx()
	if inTx {
		cfg.CacheBytes = 0 // a rollback would not undo what is in memory
	}
	return &Guard{
		store:   store,
		cfg:     cfg,
		inTx:    inTx,
		waiters: waiters{store: store, maxAll: cfg.MaxWaiters, maxPerID: cfg.MaxWaitersPerID},
		cache:   newCache(&cfg),
	}
}

// Begin claims a command. The attempt it returns either holds the command and
// must be settled, or carries the stored result (see Attempt.Result). Begin
// returns ErrMismatch, ErrKeyExpired if only its ID is remembered, an InFlightError,
// ErrUnknown if a person must decide about it, or ErrUnavailable with the store's error. If
// the context ends while the caller waits for another attempt, the error is an InFlightError
// and the context's. Most callers want Do, DoTx or an integration built on them.
func (g *Guard) Begin(ctx context.Context, req Request) (*Attempt, error) {
	g.need("Begin", ctx)
	return g.admit(ctx, req, g)
}

// InFlight returns how many requests g is handling now: those that claim their command
// or wait for it, those that run in a transaction, and attempts that are not settled.
func (g *Guard) InFlight() int {
	g.need("InFlight", context.Background())
	return int(g.inFlight.Load())
}

// A claimer claims a command, either to hold it or to run it in a transaction.
type claimer interface {
	// claim makes the claim for a and sets *rec to the record that the store returns. If
	// it returns an error, *rec is unchanged.
	claim(ctx context.Context, a *Attempt, c Claim, rec *Record) error
}

// admit counts a request while it is in flight: until admit returns or, if the attempt
// holds the command, until the attempt is settled.
func (g *Guard) admit(ctx context.Context, req Request, by claimer) (a *Attempt, err error) {
	g.inFlight.Add(1)
	defer func() {
		if a != nil && a.held {
			a.inFlight = true
		} else {
			g.inFlight.Add(-1)
		}
	}()
	return g.enter(ctx, req, by)
}

// enter claims until the caller holds the command, or it is replayed or
// rejected. It is the one place that decides what a record means for a claim.
func (g *Guard) enter(ctx context.Context, req Request, by claimer) (*Attempt, error) {
	if err := req.check(&g.cfg); err != nil {
		return nil, err
	}
	sent := time.Now()
	a := newAttempt(g, req, sent)
	a.traceparent = g.traceparent(ctx)
	w := waiter{waiters: &g.waiters, id: req.ID, limit: g.waitFor(req)}
	defer w.leave()
	c := Claim{
		ID: req.ID, Fingerprint: a.fingerprint, SkipFingerprint: req.SkipFingerprint, Summary: req.Summary,
		Lease: a.lease.full, Keep: g.keepUnknown(a.keep), RetryFailed: !g.cfg.KeepFailures,
	}
	rec := &a.rec
	for ; ; sent, c.Owner = time.Now(), "" {
		w.subscribe()
		if a.recalled = ctx.Err() == nil && g.cache.recall(req.ID, sent, rec); !a.recalled {
			// An earlier claim of this call may reach the store late. It must not pass for this
			// one, because its lease ends earlier.
			c.Owner = newOwner()
			if err := by.claim(ctx, a, c, rec); err != nil {
				if rec.Owner != "" { // this call has seen a record
					err = &recordError{err}
				}
				return nil, claimError(ctx, err)
			}
			if err := checkRecord(&c, rec); err != nil {
				*rec = Record{ID: req.ID}
				g.observeUnavailable(ctx, a, err)
				return nil, storeError("claim", &recordError{err})
			}
		}
		switch decide(&c, rec) {
		case decisionRun:
			a.grant(sent)
			a.tookOver = c.TakeUnknown
			if a.held && a.lease.over() != nil {
				g.releaseDoubtful(ctx, c, a.keep)
				g.observeUnavailable(ctx, a, errLate)
				return nil, claimError(ctx, errLate)
			}
			if c.TakeUnknown {
				g.observe(ctx, a, OutcomeTakenOver, nil)
			}
			return a, nil
		case decisionReplay:
			a.replayed = true
			if !a.recalled {
				g.cache.put(rec, sent)
			}
			g.observe(ctx, a, OutcomeReplayed, nil)
			return a, nil
		case decisionMismatch:
			g.observe(ctx, a, OutcomeMismatch, nil)
			return nil, fmt.Errorf("onlyonce: %w", ErrMismatch)
		case decisionExpired:
			g.observe(ctx, a, OutcomeKeyExpired, nil)
			return nil, fmt.Errorf("onlyonce: %w", ErrKeyExpired)
		case decisionInFlight:
			c.TakeUnknown = false
			if err := w.wait(ctx); errors.Is(err, ErrInFlight) {
				g.observe(ctx, a, OutcomeInFlight, nil)
				return nil, &InFlightError{ID: req.ID, RetryAfter: rec.LeaseLeft}
			} else if err != nil {
				g.observe(ctx, a, OutcomeInFlight, nil)
				return nil, fmt.Errorf("onlyonce: wait: %w: %w", err, &InFlightError{ID: req.ID, RetryAfter: rec.LeaseLeft})
			}
			if !a.waited {
				a.waited = true
				g.observe(ctx, a, OutcomeWaited, nil)
			}
		case decisionUnknown:
			if rec.Corrupt {
				g.observe(ctx, a, OutcomeCorrupt, errors.New(rec.Error))
			}
			switch {
			case g.cfg.Reconcile != nil:
				if taken, err := g.reconcile(ctx, a, c); taken != nil || err != nil {
					return taken, err
				}
			case g.cfg.HoldUnknown:
				return nil, g.rejectUnknown(ctx, a)
			case c.TakeUnknown: // another claim took it over, and its lease has lapsed, too
				pause(ctx, firstPoll)
			default:
				c.TakeUnknown = true
			}
		}
	}
}

// checkRecord rejects a record that a claim can't return. A record of another
// command comes from two IDs with the same hash, or from a broken store, and
// its result must not be replayed. A state that this package does not know may
// have been written by a newer version. The ciphertext of an encrypted result is no
// response.
func checkRecord(c *Claim, r *Record) error {
	switch {
	case r.ID != c.ID && !r.Corrupt:
		return errors.New("the store returned the record of another command")
	case !r.State.known() && (r.State != "" || r.Owner != c.Owner): // a transaction may have released its command
		return fmt.Errorf("the store has a record in the state %q, which this version does not know", r.State)
	case len(r.Result.Header) == 0 && envelope.Is(r.Result.Body):
		return errEncrypted
	}
	return nil
}

// A recordError is an ErrUnavailable of a store that has responded with a record, which can't be
// used, or which can't be claimed any more. An integration that runs a command without its store
// must not run this one, which may have completed or be running.
type recordError struct{ error }

func (e *recordError) Unwrap() error { return e.error }

// FoundRecord distinguishes the error from those of a store that can't be reached.
func (e *recordError) FoundRecord() {}

var errEncrypted = errors.New("the record is encrypted: wrap the store with cryptstore and its keys, as the program that wrote the record does")

// errLate is the error of a claim whose lease could end before the function
// that runs under it would notice.
var errLate = errors.New("the store took most of the lease to respond: nothing ran")

// These are the possible meanings of a record for a claim.
const (
	decisionRun = iota
	decisionReplay
	decisionMismatch
	decisionExpired
	decisionInFlight
	decisionUnknown
)

// decide returns what the record that the store returned means for the claim. The store has
// decided already whether the claim is granted: see Claim.Takes.
func decide(c *Claim, r *Record) int {
	switch {
	case r.Owner == c.Owner:
		return decisionRun
	case !c.matches(*r):
		return decisionMismatch
	case r.State == StateRemembered:
		return decisionExpired
	case r.State == StateCompleted, r.State == StateFailed:
		return decisionReplay
	case r.State == StateProcessing && r.LeaseLeft > 0:
		return decisionInFlight
	}
	return decisionUnknown
}

// claim calls the store, and retries once if the response was lost: the store
// recognizes a repeated claim. A claim that stays in doubt is released if it
// was made. ErrUnavailable says only of its own call that it did nothing.
func (g *Guard) claim(ctx context.Context, a *Attempt, c Claim, rec *Record) error {
	r, err := g.store.Claim(ctx, c)
	inDoubt := err != nil && !errors.Is(err, ErrUnavailable) && !g.inTx
	if inDoubt && ctx.Err() == nil {
		r, err = g.store.Claim(ctx, c)
	}
	if err != nil && inDoubt {
		g.releaseDoubtful(ctx, c, a.keep)
	}
	if err != nil {
		g.observeUnavailable(ctx, a, err)
		return err
	}
	*rec = r
	return nil
}

// claimError returns the caller's error for an error of a claim, or of the function that
// ran in it.
func claimError(ctx context.Context, err error) error {
	var own *fnError
	switch {
	case errors.As(err, &own):
		return own.err
	case ctx.Err() != nil:
		return fmt.Errorf("onlyonce: claim: %w", context.Cause(ctx))
	}
	return storeError("claim", err)
}

// storeError returns an error of the store as ErrUnavailable, unless it is
// ErrUnknown.
func storeError(operation string, err error) error {
	if errors.Is(err, ErrUnknown) || errors.Is(err, ErrUnavailable) {
		return fmt.Errorf("onlyonce: %s: %w", operation, err)
	}
	return fmt.Errorf("onlyonce: %s: %w: %w", operation, ErrUnavailable, err)
}

// reconcile takes over the command, whose outcome is unknown by a's record, and calls
// Config.Reconcile. It returns the attempt if the command is to run. If it returns
// neither an attempt nor an error, the caller must claim again.
func (g *Guard) reconcile(ctx context.Context, a *Attempt, c Claim) (*Attempt, error) {
	taken, sent := a.another(), time.Now()
	taken.began = a.began
	c.TakeUnknown, c.Owner = true, newOwner() // a claim of its own, as in enter
	if err := g.claim(ctx, a, c, &taken.rec); err != nil {
		return nil, claimError(ctx, &recordError{err})
	}
	if taken.rec.Owner != c.Owner {
		return nil, nil
	}
	if taken.rec.Attempt > a.rec.Attempt+1 { // attempts of others came in between, and ended
		a.rec = taken.rec.Settled(Settlement{State: StateUnknown}, time.Now())
		a.rec.Attempt--
	}
	a.rec.Steps, a.rec.Error = taken.rec.Steps, taken.rec.Error // which may be newer, too
	taken.grant(sent)
	taken.tookOver, taken.foundUnknown = true, a.rec.State == StateUnknown
	taken.rec.Result = Result{Status: a.rec.Result.Status, Ref: a.rec.Result.Ref} // no claim returns them
	g.observe(ctx, taken, OutcomeTakenOver, nil)

	leased, stop := taken.Context(ctx)
	defer stop()
	decided := false
	defer func() {
		if !decided {
			taken.settleUnfinished(leased)
		}
	}()
	s, cause := g.cfg.Reconcile(leased, a.rec)
	decided = true
	if cause == nil {
		cause = s.Check()
	}
	if cause != nil {
		s = Settlement{State: StateUnknown, Error: cause.Error()}
	}
	if s.State == "" {
		if err := taken.lease.over(); err != nil {
			_ = taken.Settle(leased, Settlement{}) // observed
			return nil, fmt.Errorf("onlyonce: reconcile: %w", err)
		}
		taken.runs()
		return taken, nil
	}
	err := taken.Settle(leased, s)
	if errors.Is(err, ErrTooLarge) {
		if s.State == StateCompleted { // the record was settled as unknown
			cause = err
		}
		err = taken.settleSmaller(leased, s, err)
	}
	if err != nil {
		return nil, err
	}
	if taken.Record().State == StateUnknown || cause != nil { // also after a step that may not be stored
		return nil, unknownError(cause)
	}
	return nil, nil
}

// rejectUnknown rejects a request for a command about which a person must decide.
func (g *Guard) rejectUnknown(ctx context.Context, a *Attempt) error {
	var cause error
	if a.rec.Corrupt {
		cause = ErrCorrupt
	}
	g.observe(ctx, a, OutcomeHeld, cause)
	return unknownError(cause)
}

func unknownError(cause error) error {
	if cause != nil {
		return fmt.Errorf("onlyonce: %w: %w", ErrUnknown, cause)
	}
	return fmt.Errorf("onlyonce: %w", ErrUnknown)
}

// keepUnknown returns how long a record with an unknown outcome stays if the Keep of
// its request is keep. A record about which a person must decide stays until then.
func (g *Guard) keepUnknown(keep time.Duration) time.Duration {
	if g.cfg.HoldUnknown || g.cfg.Reconcile != nil {
		return KeepForever
	}
	return keep
}

// HoldsUnknown reports whether a command with an unknown outcome waits for a person:
// Config.HoldUnknown is set, and Config.Reconcile is not. A repeat is then rejected until the
// person has decided. It is meant for code that builds an integration on Begin.
func (g *Guard) HoldsUnknown() bool { return g.cfg.HoldUnknown && g.cfg.Reconcile == nil }

func (g *Guard) waitFor(req Request) time.Duration {
	switch {
	case g.inTx:
		return 0
	case req.Wait != 0:
		return req.Wait
	}
	return g.cfg.Wait
}

// observeUnavailable notifies the observer of a claim that the store did not execute. A
// caller that has left is no fault of the store; one whose deadline has passed may be.
func (g *Guard) observeUnavailable(ctx context.Context, a *Attempt, err error) {
	if !errors.Is(ctx.Err(), context.Canceled) {
		g.observe(ctx, a, OutcomeUnavailable, err)
	}
}

func (g *Guard) observe(ctx context.Context, a *Attempt, outcome Outcome, err error) {
	if g.cfg.Observer == nil && !outcome.wentWrong(err) {
		return
	}
	g.Observe(ctx, Event{
		Outcome: outcome, Record: a.Record(), Fingerprint: a.fingerprint,
		Duration: time.Since(epoch) - a.began, Err: err,
	})
}

// newOwner returns a random owner token for one claim.
func newOwner() string {
	d := randomStocks.Get().(*randomStock)
	defer randomStocks.Put(d)
	if d.owners == "" {
		if len(d.left) == 0 {
			rand.Read(d.buf[:]) // never fails
			d.left = d.buf[:]
		}
		d.owners, d.left = string(d.left[:ownersAtOnce*ownerBytes]), d.left[ownersAtOnce*ownerBytes:]
	}
	owner := d.owners[:ownerBytes]
	d.owners = d.owners[ownerBytes:]
	return owner
}

const (
	ownerBytes = 16
	// ownersAtOnce is how many owners share an allocation. One of them that is kept, such
	// as in a record of memstore, keeps the memory of all.
	ownersAtOnce = 4
)

// A randomStock is a buffer of random bytes for owners. A system call for each owner
// would take longer than the rest of a replay in this package.
type randomStock struct {
	buf    [64 * ownerBytes]byte
	left   []byte // of buf
	owners string // made from buf, and not used yet
}

var randomStocks = sync.Pool{New: func() any { return new(randomStock) }}
