package onlyonce_test

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

// A simStore is the simplest store that keeps the rules: a map, and a clock that
// a test can move. Its transactions change rows of its own.
type simStore struct {
	mu      sync.Mutex
	skew    time.Duration
	fence   int64
	records map[onlyonce.ID]*simRecord
	inTx    map[onlyonce.ID]bool
	rows    map[string]int
}

type simRecord struct {
	onlyonce.Record
	until time.Time     // when lease or keep ends; zero: never
	gone  time.Time     // when the result is forgotten; zero: not before the record
	keep  time.Duration // the claim's; not positive: for good
}

// simRows are the rows of a transaction that is not committed.
type simRows map[string]int

func newSimStore() *simStore {
	return &simStore{records: map[onlyonce.ID]*simRecord{}, inTx: map[onlyonce.ID]bool{}, rows: map[string]int{}}
}

func (s *simStore) now() time.Time { return time.Now().Add(s.skew) }

// find returns the record as it stands, or nil.
func (s *simStore) find(id onlyonce.ID) *simRecord {
	r := s.records[id]
	switch {
	case r == nil:
		return nil
	case r.State == onlyonce.StateProcessing && r.keep > 0 && !r.until.Add(r.keep).After(s.now()):
		delete(s.records, id)
		return nil
	case r.State == onlyonce.StateProcessing:
		r.LeaseLeft = r.until.Sub(s.now())
	case !r.until.IsZero() && !r.until.After(s.now()):
		delete(s.records, id)
		return nil
	case !r.until.IsZero():
		r.KeepLeft = r.until.Sub(s.now())
	}
	if !r.gone.IsZero() {
		if r.Result.Keep = r.gone.Sub(s.now()); r.Result.Keep <= 0 {
			r.Record, r.gone = r.Remembered(), time.Time{}
		}
	}
	return r
}

// claimed returns the record after a claim.
func (s *simStore) claimed(c onlyonce.Claim, was *simRecord) *simRecord {
	r := &simRecord{Record: onlyonce.Record{ID: c.ID, Summary: c.Summary, CreatedAt: s.now().UTC()}}
	if was != nil {
		r.Attempt, r.Fingerprint, r.Steps, r.Error, r.CreatedAt = was.Attempt, was.Fingerprint, was.Steps, was.Error, was.CreatedAt
		r.Summary = cmp.Or(c.Summary, was.Summary)
	}
	if len(r.Fingerprint) == 0 && !c.SkipFingerprint {
		r.Fingerprint = append([]byte(nil), c.Fingerprint...)
	}
	s.fence = max(s.fence+1, s.now().UnixMicro())
	r.State, r.Owner, r.Fence, r.until, r.LeaseLeft = onlyonce.StateProcessing, c.Owner, s.fence, s.now().Add(c.Lease), c.Lease
	r.Attempt++
	r.keep = c.Keep
	return r
}

func (s *simStore) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), c.Check()); err != nil {
		return onlyonce.Record{}, err
	}
	if r := s.find(c.ID); r != nil && !c.Takes(r.Record) {
		return r.Record, nil
	}
	r := s.claimed(c, s.find(c.ID))
	s.records[c.ID] = r
	return r.Record, nil
}

// held returns the record of a hold that is its holder's, or was.
func (s *simStore) held(h onlyonce.Hold) *simRecord {
	if r := s.find(h.ID); r != nil && r.Owner == h.Owner && r.Fence == h.Fence {
		return r
	}
	return nil
}

func (s *simStore) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.held(h)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case r == nil || r.State != onlyonce.StateProcessing:
		return onlyonce.ErrLost
	}
	r.until = s.now().Add(lease)
	all := maps.Clone(r.Steps)
	for name, b := range steps {
		if all == nil {
			all = map[string][]byte{}
		}
		all[name] = append([]byte{}, b...)
	}
	r.Steps = all
	return nil
}

func (s *simStore) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := cmp.Or(ctx.Err(), st.Check()); err != nil {
		return err
	}
	r := s.held(h)
	if r == nil {
		return onlyonce.ErrLost
	}
	if r.State == onlyonce.StateProcessing {
		s.end(r, st)
	}
	return nil
}

func (s *simStore) commit(rows simRows) {
	for name, n := range rows {
		s.rows[name] += n
	}
}

// end settles a record.
func (s *simStore) end(r *simRecord, st onlyonce.Settlement) {
	if st.State == "" {
		delete(s.records, r.ID)
		return
	}
	r.State, r.Error, r.Final, r.SettledAt, r.LeaseLeft, r.until = st.State, st.Error, st.Final, s.now().UTC(), 0, time.Time{}
	r.Result = onlyonce.Result{Status: st.Result.Status, Ref: st.Result.Ref, Traceparent: st.Result.Traceparent, Body: append([]byte(nil), st.Result.Body...)}
	if st.Result.Header != nil {
		r.Result.Header = map[string][]string{}
		for name, values := range st.Result.Header {
			r.Result.Header[name] = append([]string{}, values...)
		}
	}
	if r.Result.Keep = st.Result.Keep; r.Result.Keep > 0 {
		r.gone = s.now().Add(r.Result.Keep)
	}
	if r.KeepLeft = max(st.Keep, 0); st.Keep > 0 {
		r.until = s.now().Add(st.Keep)
	}
	s.records[r.ID] = r
}

func (s *simStore) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.find(id)
	switch {
	case ctx.Err() != nil:
		return onlyonce.Record{}, ctx.Err()
	case r == nil:
		return onlyonce.Record{}, onlyonce.ErrNotFound
	}
	return r.Record, nil
}

var errChangedUnder = errors.New("the record changed under the transaction every time")

func (s *simStore) RunTx(ctx context.Context, c onlyonce.Claim, fn func(context.Context, simRows, onlyonce.Record) (onlyonce.Settlement, error)) (onlyonce.Record, error) {
	for range 10 {
		s.mu.Lock()
		if err := cmp.Or(ctx.Err(), c.Check()); err != nil {
			s.mu.Unlock()
			return onlyonce.Record{}, err
		}
		was := s.find(c.ID)
		if was != nil && !c.Takes(was.Record) {
			defer s.mu.Unlock()
			return was.Record, nil
		}
		if s.inTx[c.ID] {
			defer s.mu.Unlock()
			return onlyonce.Record{ID: c.ID, State: onlyonce.StateProcessing, LeaseLeft: time.Second}, nil
		}
		saw := standingOf(was)
		r := s.claimed(c, was)
		seen := r.Record
		seen.LeaseLeft = 0
		s.inTx[c.ID] = true
		s.mu.Unlock()
		rows, st, err := s.call(ctx, c.ID, func(rows simRows) (onlyonce.Settlement, error) { return fn(ctx, rows, seen) })
		s.mu.Lock()
		delete(s.inTx, c.ID)
		if standingOf(s.find(c.ID)) != saw {
			s.mu.Unlock()
			continue
		}
		defer s.mu.Unlock()
		if err == nil {
			s.commit(rows)
		}
		if err == nil || st.State != "" {
			s.end(r, st)
		}
		return r.Record, err
	}
	return onlyonce.Record{}, errChangedUnder
}

// A standing has the fields that change whenever a record does.
type standing struct {
	owner string
	fence int64
	state onlyonce.State
}

func standingOf(r *simRecord) standing {
	if r == nil {
		return standing{}
	}
	return standing{r.Owner, r.Fence, r.State}
}

// call runs a function; if it does not return, its transaction is over.
func (s *simStore) call(_ context.Context, id onlyonce.ID, fn func(simRows) (onlyonce.Settlement, error)) (rows simRows, st onlyonce.Settlement, err error) {
	returned := false
	defer func() {
		if !returned {
			s.mu.Lock()
			defer s.mu.Unlock()
			delete(s.inTx, id)
		}
	}()
	rows = simRows{}
	st, err = fn(rows)
	returned = true
	if wrong := st.Check(); wrong != nil {
		return nil, onlyonce.Settlement{}, errors.Join(wrong, err)
	}
	return rows, st, err
}

func (s *simStore) SettleTx(ctx context.Context, h onlyonce.Hold, fn func(context.Context, simRows) (onlyonce.Settlement, error)) error {
	mine := func() bool { r := s.held(h); return r != nil && r.State == onlyonce.StateProcessing }
	s.mu.Lock()
	ours := mine()
	s.mu.Unlock()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case !ours:
		return onlyonce.ErrLost
	}
	rows, st, err := s.call(ctx, h.ID, func(rows simRows) (onlyonce.Settlement, error) { return fn(ctx, rows) })
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil && st.State == "":
		return err
	case !mine():
		return errors.Join(onlyonce.ErrLost, err)
	case err == nil:
		s.commit(rows)
	}
	s.end(s.records[h.ID], st)
	return err
}

func TestSimStore_TheSimulatedStoreKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(*testing.T) onlyonce.Store { return newSimStore() })
	storetest.RunTx(t, func(*testing.T) storetest.Tx[simRows] {
		s := newSimStore()
		return storetest.Tx[simRows]{
			Store:  s,
			Insert: func(_ context.Context, tx simRows, row string) error { tx[row]++; return nil },
			Count: func(_ context.Context, row string) (int, error) {
				s.mu.Lock()
				defer s.mu.Unlock()
				return s.rows[row], nil
			},
		}
	})
}
