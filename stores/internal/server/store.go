// Package server is the store on a database server over database/sql, whatever server
// it is. The differences between kinds of servers are in a Dialect.
package server

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"sync"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A Store is a store on a database server. Every step is one statement, which commits
// by itself and uses the server's clock.
type Store struct {
	DB        *sql.DB
	Encode    TextEncoder // the dialect's
	dialect   Dialect
	risks     []string
	prepared  map[string]*sql.Stmt // by name
	groups    *groups              // nil: nothing goes in groups
	seenCache record.SeenCache
	runningTx transact.RunningTx
	covered   covered

	leaving Leaving
}

// New returns a store that has not been checked. Check can be told to accept the
// risks.
func New(db *sql.DB, d Dialect, risks []string) *Store {
	return &Store{DB: db, Encode: d.EncodeText, dialect: d, risks: risks}
}

// PrepareAll prepares the statements now: a caller in a transaction has
// a connection already and must not wait for another.
func (s *Store) PrepareAll(ctx context.Context, names ...string) (err error) {
	s.prepared = make(map[string]*sql.Stmt, len(names))
	for _, name := range names {
		if s.prepared[name], err = s.DB.PrepareContext(ctx, s.dialect.Statements()[name]); err != nil {
			return errors.Join(err, s.Close())
		}
	}
	return nil
}

// A Leaving says when to close connections to a server that can't be written, or that did not
// respond in time. After a failover, they may lead to the former primary, which may never end
// them, while new ones lead to the primary.
type Leaving struct {
	mu   sync.Mutex
	last time.Time
}

const (
	leaveEvery  = 100 * time.Millisecond // how often, at most, connections are closed
	leaveWithin = time.Second            // how long a driver may take to hand out a connection that is closed then
)

// Due reports whether err, which Explain or a transaction returned, says that the server can't be
// written or did not respond in time, and connections have not been closed for a while.
func (l *Leaving) Due(err error) bool {
	if !errors.Is(err, meanings[ClassReadOnly]) && !errors.Is(err, transact.ErrReadOnly) && !errors.Is(err, errSilent) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if now.Sub(l.last) < leaveEvery {
		return false
	}
	l.last = now
	return true
}

// leave closes the pool's idle connections if err, or the cause of the end of ctx, says that the
// server can't be written or did not respond in time. A connection that no longer responds takes
// its driver a while to test, and to close, so that none waits for another.
func (s *Store) leave(ctx context.Context, err error) {
	if context.Cause(ctx) == errSilent {
		err = errSilent
	}
	if !s.leaving.Due(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), leaveWithin)
	defer cancel()
	var taken sync.WaitGroup
	for range s.DB.Stats().Idle {
		taken.Go(func() {
			if conn, err := s.DB.Conn(ctx); err == nil {
				go func() { _ = Discard(conn, nil) }()
			}
		})
	}
	taken.Wait()
}

func (s *Store) Close() error {
	s.groups.close()
	var errs []error
	for _, st := range s.prepared {
		if st != nil {
			errs = append(errs, st.Close())
		}
	}
	return errors.Join(errs...)
}

// callTimeout bounds how long the server may take over a claim or a lookup on the pool: a
// server that does not respond for so long counts as unreachable. It is longer than the 50
// seconds for which InnoDB, by default, lets a claim wait for a transaction of a caller's.
const callTimeout = time.Minute

func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := s.dialect.CheckID(c.ID); err != nil {
		return onlyonce.Record{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errSilent)
	defer cancel()
	k := record.KeyOf(c.ID)
	if r := s.seen(ctx, &k); r.StandsAgainst(&c) && r.Owner != c.Owner {
		return r.Record, nil
	}
	r, err := s.claimNew(ctx, &k, &c)
	if err == nil {
		s.seenCache.Add(&k.Hash)
	}
	return r, err
}

// claimNew claims a command that is probably new.
func (s *Store) claimNew(ctx context.Context, k *record.Key, c *onlyonce.Claim) (onlyonce.Record, error) {
	together, done := s.groups.grouped(k)
	defer done()
	if together {
		return s.claimInGroup(ctx, k, c)
	}
	return s.Runner(ctx).claim(k, c, false)
}

// seen returns the record of a command that this process saw before. nil does not say
// that there is none.
func (s *Store) seen(ctx context.Context, k *record.Key) *record.Stored {
	if !s.seenCache.Has(&k.Hash) {
		return nil
	}
	r, err := s.Runner(ctx).find(k)
	if err != nil || r == nil || r.Expired {
		return nil
	}
	return r
}

func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return s.Runner(ctx).renew(h, lease, steps)
}

func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	k := record.KeyOf(h.ID)
	together, done := s.groups.grouped(&k)
	defer done()
	if together && groupable(&st) {
		return s.settleInGroup(ctx, &k, &h, &st)
	}
	return s.settleAlone(ctx, &h, &st, false)
}

// settleAlone settles a command on the pool. It gives up while the hold still lasts, so that its
// caller can try another connection if this one gets no response.
func (s *Store) settleAlone(ctx context.Context, h *onlyonce.Hold, st *onlyonce.Settlement, repeated bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, StepTimeout, errSilent)
	defer cancel()
	return s.Runner(ctx).settle(*h, *st, repeated)
}

func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTimeout, errSilent)
	defer cancel()
	return s.Runner(ctx).lookup(id)
}

// CountRecords counts records by tenant, operation and state.
func (s *Store) CountRecords(ctx context.Context) (all []onlyonce.RecordCount, err error) {
	err = s.Runner(ctx).Query("count records", func(v []driver.Value) error {
		one, err := record.ReadCount(v, s.dialect.DecodeText)
		all = append(all, one)
		return err
	})
	return all, err
}

// Page reads a page of the records of f but for its state, which only a record that has
// been decoded has.
func (s *Store) Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	l := s.Runner(ctx)
	text, args := s.dialect.List(f, p)
	return l.Again(func() error {
		p.Clear()
		rows, err := s.DB.QueryContext(ctx, text, args...)
		if err != nil {
			return err
		}
		return engine.ScanPage(rows, p, s.dialect.Decode)
	})
}

func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	return s.dialect.Diagnose(s.Runner(ctx))
}
