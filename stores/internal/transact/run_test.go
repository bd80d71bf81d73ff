package transact

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

var (
	errOwn       = errors.New("an error of the application")
	errConflict  = errors.New("a conflict")
	errBroken    = errors.New("a broken connection")
	errBusy      = errors.New("a server that is starting")
	errPermanent = errors.New("a value that does not fit")
)

// A script is a Transactor without a database: each of its steps returns the next of the
// responses that a test wrote down, and then the last one again and again.
type script struct {
	t      *testing.T
	begins []error  // of Begin
	sees   []View   // by the transactions that begin
	fns    []error  // of the function
	ends   []ending // of the commits of transactions with rows of the function's
	alone  []ending // of those without
	apart  []error  // of BeginAlone
	traces []trace
	keeps  []error // of KeepFence
	gone   []bool  // whether the row that was seen is no longer there

	open   bool     // a transaction has its connection
	runs   int      // of the function
	tokens [][]byte // of the transactions
	fences []int64  // that the function got
	kept   []int64
	calls  []string // of the engine, but for those of every run
}

type ending struct {
	outcome Outcome
	err     error
}

type trace struct {
	found bool // the token
	now   Trace
	err   error
}

// next takes the first of a list, and leaves the last.
func next[T any](list *[]T) (v T) {
	if len(*list) == 0 {
		return v
	}
	v = (*list)[0]
	if len(*list) > 1 {
		*list = (*list)[1:]
	}
	return v
}

// call notes a call of the engine, which may need a connection of the pool.
func (s *script) call(name string) {
	if s.open {
		s.t.Errorf("%s asks for a connection while the transaction has one", name)
	}
	if name != "begin" {
		s.calls = append(s.calls, name)
	}
}

func (s *script) Begin(_ context.Context, c *Command) (Tx[int], error) {
	s.call("begin")
	s.tokens = append(s.tokens, c.Token)
	if err := next(&s.begins); err != nil {
		return nil, err
	}
	s.open, c.Seen = true, next(&s.sees)
	return &scriptTx{s, &s.ends}, nil
}

func (s *script) BeginAlone(_ context.Context, c *Command) (Tx[int], error) {
	s.call("begin alone")
	if c.Seen.Mark != 0 {
		s.t.Error("another transaction has the mark of the function's")
	}
	if err := next(&s.apart); err != nil {
		return nil, err
	}
	s.open = true
	return &scriptTx{s, &s.alone}, nil
}

func (s *script) Settle(context.Context, *Command) error {
	s.call("settle")
	return next(&s.alone).err
}

func (s *script) Trace(_ context.Context, c *Command) (Trace, error) {
	s.call("trace")
	t := next(&s.traces)
	if t.found {
		t.now.Token = c.Token
	}
	return t.now, t.err
}

func (s *script) Durable(context.Context, *Command) (bool, error) {
	s.call("durable")
	return !next(&s.gone), nil
}

func (s *script) Flushed(context.Context, *Command, int64) (again bool, err error) {
	s.call("flushed")
	return true, nil
}

func (s *script) KeepFence(_ context.Context, _ *Command, fence int64) error {
	s.call("keep fence")
	s.kept = append(s.kept, fence)
	return next(&s.keeps)
}

func (*script) Classify(err error) Class {
	switch {
	case errors.Is(err, errConflict):
		return Conflict
	case errors.Is(err, errBroken):
		return Broken
	case errors.Is(err, errBusy):
		return Temporary
	}
	return Permanent
}

type scriptTx struct {
	*script
	ends *[]ending
}

func (*scriptTx) Handle() int { return 0 }

func (t *scriptTx) Commit(context.Context, *Command) (int64, Outcome, error) {
	end := next(t.ends)
	return 0, end.outcome, end.err
}

func (t *scriptTx) Close(context.Context) { t.open = false }

var (
	completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour}
	failure   = onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no", Keep: time.Hour}
)

// fn is the function.
func (s *script) fn(_ context.Context, _ int, r onlyonce.Record) (onlyonce.Settlement, error) {
	s.runs++
	s.fences = append(s.fences, r.Fence)
	if err := next(&s.fns); err != nil {
		return failure, err
	}
	return completed, nil
}

// play runs the function for a new command, or for a hold of fence 7.
func (s *script) play(t *testing.T, settles bool) (r onlyonce.Record, err error) {
	s.t = t
	id := onlyonce.ID{Operation: "pay", Key: "k"}
	k := record.KeyOf(id)
	synctest.Test(t, func(t *testing.T) {
		if settles {
			h := onlyonce.Hold{ID: id, Owner: "me", Fence: 7}
			held := &record.Stored{Record: onlyonce.Record{ID: id, State: onlyonce.StateProcessing, Owner: "me", Fence: 7}}
			s.sees = []View{{Lock: LockMine, Row: held, Mark: 1}}
			err = Settle(t.Context(), "settle", s, &h, &k, s.fn)
			return
		}
		if s.sees == nil {
			s.sees = []View{{Lock: LockMine, Now: 100, Floor: 20, Mark: 1}}
		}
		c := onlyonce.Claim{ID: id, Owner: "me", Fingerprint: []byte("a"), Lease: time.Minute}
		r, err = Run(t.Context(), "run", s, &c, &k, s.fn)
	})
	if s.open {
		t.Error("the transaction was left open")
	}
	return r, err
}

var (
	committed = ending{Committed, nil}
	inDoubt   = ending{InDoubt, errBroken}
)

// several is a list of n times the same.
func several[T any](n int, v T, then ...T) []T { return append(slices.Repeat([]T{v}, n), then...) }

func TestRun_EachEndOfATransactionFollowsItsRule(t *testing.T) {
	id := onlyonce.ID{Operation: "pay", Key: "k"}
	there := &record.Stored{Record: onlyonce.Record{ID: id, State: onlyonce.StateCompleted, Owner: "another", Fingerprint: []byte("a"), Fence: 200}}
	for _, c := range []struct {
		name    string
		settles bool // a hold
		script  script
		want    error  // nil: none
		not     error  // that the error is not
		is      bool   // the error is want itself
		runs    int    // of the function
		calls   string // of the engine, after all runs
	}{
		{name: "committed", script: script{ends: []ending{committed}}, runs: 1, calls: "[]"},
		{name: "a conflict, and then committed", script: script{ends: several(2, ending{RolledBack, errConflict}, committed)}, runs: 3, calls: "[]"},
		{
			name: "a conflict every time", script: script{ends: []ending{{RolledBack, errConflict}}},
			want: onlyonce.ErrUnavailable, runs: MaxRuns, calls: "[keep fence]",
		},
		{
			name: "a function that returns the conflict, and then commits", script: script{fns: []error{errConflict, nil}, ends: []ending{committed}},
			runs: 2, calls: "[]",
		},
		{
			name: "a function that returns a conflict every time", script: script{fns: []error{errConflict}, alone: []ending{committed}},
			want: errConflict, is: true, runs: MaxRuns, calls: "[begin alone]",
		},
		{
			name: "a conflict every time, of a hold", settles: true, script: script{fns: []error{errConflict}},
			want: errConflict, is: true, runs: MaxRuns, calls: "[settle]",
		},
		{name: "an error of the function", script: script{fns: []error{errOwn}, alone: []ending{committed}}, want: errOwn, is: true, runs: 1, calls: "[begin alone]"},
		{name: "an error of the function, of a hold", settles: true, script: script{fns: []error{errOwn}}, want: errOwn, is: true, runs: 1, calls: "[settle]"},
		{
			name: "an error whose recording meets a conflict", script: script{fns: []error{errOwn}, alone: []ending{{RolledBack, errConflict}, committed}},
			want: errOwn, is: true, runs: 1, calls: "[begin alone begin alone]",
		},
		{
			name: "an error whose recording meets broken connections", script: script{fns: []error{errOwn}, apart: []error{errBroken, nil}, alone: []ending{inDoubt, committed}, traces: []trace{{}}},
			want: errOwn, is: true, runs: 1, calls: "[begin alone begin alone trace begin alone]",
		},
		{
			name: "an error whose recording meets broken connections every time", script: script{fns: []error{errOwn}, apart: []error{errBroken}},
			want: errBroken, runs: 1, calls: "[begin alone begin alone begin alone keep fence]",
		},
		{
			name: "an error, and another attempt", script: script{fns: []error{errOwn}, alone: []ending{{Overtaken, nil}}},
			want: onlyonce.ErrLost, runs: 1, calls: "[begin alone keep fence]",
		},
		{
			name: "an error that is not recorded", script: script{fns: []error{errOwn}, alone: []ending{{RolledBack, errPermanent}}},
			want: errPermanent, runs: 1, calls: "[begin alone keep fence]",
		},
		{name: "a value that does not fit", script: script{ends: []ending{{RolledBack, errPermanent}}}, want: errPermanent, runs: 1, calls: "[keep fence]"},
		{name: "ended by the function", script: script{ends: []ending{{Ended, nil}}}, want: onlyonce.ErrUnknown, not: onlyonce.ErrInDoubt, runs: 1, calls: "[keep fence]"},
		{
			name: "overtaken, and then answered", script: script{ends: []ending{{Overtaken, nil}}, sees: []View{{Lock: LockMine, Now: 100}, {Lock: LockMine, Row: there}}},
			runs: 1, calls: "[durable keep fence]",
		},
		{name: "overtaken every time", script: script{ends: []ending{{Overtaken, nil}}}, want: onlyonce.ErrUnavailable, runs: MaxRuns, calls: "[keep fence]"},
		{name: "overtaken, of a hold", settles: true, script: script{ends: []ending{{Overtaken, nil}}}, want: onlyonce.ErrLost, runs: 1, calls: "[]"},
		{name: "answered", script: script{sees: []View{{Lock: LockMine, Row: there}}}, calls: "[durable]"},
		{
			name: "answered by a server that was replaced", script: script{sees: []View{{Lock: LockMine, Row: there}, {Lock: LockMine, Now: 100}}, gone: []bool{true, false}, ends: []ending{committed}},
			runs: 1, calls: "[durable]",
		},
		{name: "another transaction runs it", script: script{sees: []View{{Lock: LockBusy}}}, calls: "[]"},
		{
			name: "in doubt, and found", script: script{ends: []ending{inDoubt}, traces: []trace{{err: errBroken}, {found: true, now: Trace{Fence: 100}}}},
			runs: 1, calls: "[trace trace flushed trace]",
		},
		{
			name: "in doubt, and found on a server that was replaced", script: script{ends: []ending{inDoubt}, traces: []trace{{found: true, now: Trace{Fence: 100}}, {}}},
			want: ErrNotCommitted, not: onlyonce.ErrUnknown, runs: 1, calls: "[trace flushed trace keep fence]",
		},
		{
			name: "in doubt, and not there", script: script{ends: []ending{inDoubt}, traces: []trace{{}}},
			want: ErrNotCommitted, not: onlyonce.ErrUnknown, runs: 1, calls: "[trace keep fence]",
		},
		{
			name: "in doubt, and others have followed", script: script{ends: []ending{inDoubt}, traces: []trace{{now: Trace{Fence: 300, Floor: 200}}}},
			want: onlyonce.ErrInDoubt, runs: 1, calls: "[trace keep fence]",
		},
		{name: "no connection", script: script{begins: []error{errBusy}}, want: errBusy, calls: "[]"},
		{name: "broken connections, and then a good one", script: script{begins: several(2, errBroken, nil), ends: []ending{committed}}, runs: 1, calls: "[]"},
		{name: "a conflict before the function runs", script: script{begins: several(2, errConflict, nil), ends: []ending{committed}}, runs: 1, calls: "[]"},
		{
			name: "a fence that is hard to keep", script: script{ends: []ending{{Ended, nil}}, keeps: []error{errBroken, errBusy, errConflict, nil}},
			want: onlyonce.ErrUnknown, runs: 1, calls: "[keep fence keep fence keep fence keep fence]",
		},
		{
			name: "a fence that can't be kept", script: script{ends: []ending{{Ended, nil}}, keeps: []error{errPermanent}},
			want: onlyonce.ErrUnknown, runs: 1, calls: "[keep fence]",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := &c.script
			r, err := s.play(t, c.settles)
			if !errors.Is(err, c.want) || c.is && err != c.want || c.not != nil && errors.Is(err, c.not) {
				t.Errorf("got error %v, want %v", err, c.want)
			}
			if err != nil && !errors.Is(err, errOwn) && !c.is && r.Owner != "" {
				t.Errorf("got the record %+v with an error of the store", r)
			}
			if s.runs != c.runs {
				t.Errorf("the function ran %d times, want %d", s.runs, c.runs)
			}
			if calls := fmt.Sprint(s.calls); calls != c.calls {
				t.Errorf("the engine was asked to %s, want %s", calls, c.calls)
			}
		})
	}
}

func TestRun_ACommitThatStaysInDoubtIsUnknown(t *testing.T) {
	s := &script{ends: []ending{inDoubt}, traces: []trace{{err: errBroken}}, keeps: []error{errBroken}}
	if _, err := s.play(t, false); !errors.Is(err, onlyonce.ErrInDoubt) || !errors.Is(err, errBroken) {
		t.Errorf("got error %v", err)
	}
}

func TestRun_AnUnknownOutcomeIsNotAlsoUnavailable(t *testing.T) {
	silent := fmt.Errorf("%w: no response", onlyonce.ErrUnavailable)
	for name, s := range map[string]*script{
		"in doubt":           {ends: []ending{{InDoubt, silent}}, traces: []trace{{err: silent}}},
		"in doubt, moved on": {ends: []ending{{InDoubt, silent}}, traces: []trace{{now: Trace{Fence: 200, Floor: 150}}}},
		"ended":              {ends: []ending{{Ended, silent}}},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := s.play(t, false); !errors.Is(err, onlyonce.ErrUnknown) || errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("got error %v, want ErrUnknown alone", err)
			}
		})
	}
}

func TestRun_EveryRunHasAHigherFenceAndATokenOfItsOwn(t *testing.T) {
	s := &script{begins: []error{errBroken, nil}, ends: several(3, ending{RolledBack, errConflict}, ending{Ended, nil})}
	_, _ = s.play(t, false)
	if want := []int64{100, 101, 102, 103}; !slices.Equal(s.fences, want) {
		t.Errorf("the function got the fences %d, want %d", s.fences, want)
	}
	if !slices.Equal(s.kept, []int64{103}) {
		t.Errorf("the fences %d were kept, want the highest", s.kept)
	}
	for i, a := range s.tokens {
		for _, b := range s.tokens[:i] {
			if string(a) == string(b) {
				t.Error("two transactions have the same token")
			}
		}
	}
}

func TestRun_AFunctionThatPanicsLeavesNoTransactionAndKeepsItsFence(t *testing.T) {
	s := &script{}
	s.sees = []View{{Lock: LockMine, Now: 100}}
	c := onlyonce.Claim{ID: onlyonce.ID{Operation: "pay", Key: "k"}, Owner: "me", SkipFingerprint: true, Lease: time.Minute}
	s.t = t
	k := record.KeyOf(c.ID)
	func() {
		defer func() {
			if p := recover(); p != "a bug" {
				t.Errorf("it panicked with %v", p)
			}
		}()
		_, _ = Run(t.Context(), "run", s, &c, &k, func(context.Context, int, onlyonce.Record) (onlyonce.Settlement, error) {
			panic("a bug")
		})
	}()
	if s.open || !slices.Equal(s.kept, []int64{100}) {
		t.Errorf("the transaction is open: %v; the fences %d were kept", s.open, s.kept)
	}
}
