// Package sqlite is the engine for SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A Store is a store in a SQLite file. It takes one connection of the pool for
// itself until it is closed.
type Store struct {
	db        *sql.DB
	file      *file
	text      map[string]string
	writer    *writer
	queue     *group.Queue[job]
	known     *sql.Stmt // the statement "lookup"
	seenCache record.SeenCache
	runningTx transact.RunningTx
	shared    atomic.Int64 // how often WithTx was used
	unkept    atomic.Int64 // the highest fence that a function saw and that could not be recorded, as on a full disk; 0: none
}

// maxBatch is the size of a batch. It bounds how much has to be repeated, and how long
// others wait, if a batch fails.
const maxBatch = 512

func (s *Store) Close() error {
	s.queue.Close()
	return errors.Join(s.known.Close(), s.writer.close())
}

func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	if r := s.seen(ctx, &o.key); r.StandsAgainst(&c) {
		return r.Record, nil
	}
	if err := s.do(ctx, o); err != nil {
		return onlyonce.Record{}, err
	}
	s.seenCache.Add(&o.key.Hash)
	return o.record, nil
}

func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return s.do(ctx, &renewOp{key: record.KeyOf(h.ID), hold: h, lease: lease, steps: steps})
}

func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return s.do(ctx, newSettleOp(h, st))
}

func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := record.KeyOf(id)
	if err := s.file.check(); err != nil {
		return onlyonce.Record{}, err
	}
	r, err := s.read(ctx, &k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Found()
}

func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d *onlyonce.Decision) error {
	return s.do(ctx, &resolveOp{*newSettleOp(onlyonce.Hold{ID: seen.ID}, st), seen, d})
}

func (s *Store) AuditTrail(ctx context.Context, id onlyonce.ID) (entries []onlyonce.AuditEntry, err error) {
	k := record.KeyOf(id)
	err = sqlRunner{ctx: ctx, on: s.db, text: s.text}.Query("audit trail", (&keyArgs{k.Hash[:]}).list(), func(v []driver.Value) error {
		e, err := record.ReadAudit(&record.Reader{Values: v}, id, func(text string) string { return text })
		entries = append(entries, e)
		return err
	})
	return entries, err
}

// purgeBatch is how many records one op deletes, so that others do not wait for it for
// long.
const purgeBatch = 100

func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	purged := 0
	for purged < limit {
		o := &purgeOp{limit: min(limit-purged, purgeBatch)}
		if err := s.do(ctx, o); err != nil {
			return purged, err
		}
		purged += o.purged
		if o.purged < o.limit {
			break
		}
	}
	return purged, nil
}

// Unresolved counts the records whose outcome is unknown.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	err = sqlRunner{ctx: ctx, on: s.db, text: s.text}.Query("unresolved", nil, func(v []driver.Value) error {
		n, oldest, err = record.ReadUnresolved(v)
		return err
	})
	return n, oldest, err
}

// CountRecords counts records by tenant, operation and state.
func (s *Store) CountRecords(ctx context.Context) (all []onlyonce.RecordCount, err error) {
	err = sqlRunner{ctx: ctx, on: s.db, text: s.text}.Query("count records", nil, func(v []driver.Value) error {
		one, err := record.ReadCount(v, func(text string) string { return text })
		all = append(all, one)
		return err
	})
	return all, err
}

// OpenReader returns a reader of the records in a database that has been migrated. It needs
// only the right to read the file.
func OpenReader(ctx context.Context, db *sql.DB) (engine.Reader, error) {
	if err := checkLibrary(ctx, db); err != nil {
		return nil, err
	}
	if err := checkSchema(ctx, db); err != nil {
		return nil, err
	}
	return &Store{db: db, text: statements}, nil
}

// Page reads a page of the records of f but for its state, which only a record that has
// been decoded has. No two have the same created_at.
func (s *Store) Page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	name, ids := record.ListStatement(f)
	text, values := record.List(s.text[name], f, record.Anonymous, 0)
	last := p.Before.CreatedAt
	if p.Before != record.Top {
		if last == math.MinInt64 {
			return nil
		}
		last--
	}
	args := listArgs{last: last, limit: int64(p.Limit)}
	rows, err := s.db.QueryContext(ctx, text, args.list(ids, values)...)
	if err != nil {
		return err
	}
	return engine.ScanPage(rows, p, record.Decode)
}

// seen returns the record of a command that this process saw before, read without the write
// lock. nil does not say that there is none.
func (s *Store) seen(ctx context.Context, k *record.Key) *record.Stored {
	if !s.seenCache.Has(&k.Hash) {
		return nil
	}
	r, err := s.read(ctx, k)
	if err != nil {
		return nil
	}
	return r
}

// read returns the record of k, or nil if there is none, from the pool.
func (s *Store) read(ctx context.Context, k *record.Key) (found *record.Stored, err error) {
	rows, err := s.known.QueryContext(ctx, k.Hash[:])
	if err != nil {
		return nil, err
	}
	err = engine.Scan(rows, func(v []driver.Value) error {
		r := record.Decode(v)
		found = &r
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, nil
	}
	if err := found.Check(k.ID); err != nil {
		return nil, err
	}
	if found.Expired {
		return nil, nil
	}
	return found, nil
}

// A joined store is the store in a transaction that the caller opened.
type joined struct {
	store *Store
	tx    *sql.Tx
}

func (s *Store) Joined(tx *sql.Tx) onlyonce.Store { return joined{s, tx} }

func (t joined) do(ctx context.Context, o op) error {
	t.store.shared.Add(1)
	on := sqlRunner{ctx: ctx, on: t.tx, text: t.store.text}
	if err := on.checkOpen(); err != nil {
		return err
	}
	unkept := t.store.unkept.Load()
	if unkept == 0 {
		if done, err := o.trySingleStatement(on); done || err != nil {
			return err
		}
	}
	if _, err := on.Exec("lock", nil); err != nil {
		return err
	}
	now, err := readClock(on)
	if err != nil {
		return err
	}
	now.floor = max(now.floor, unkept)
	return o.apply(on, now)
}

func (t joined) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	err := t.do(ctx, o)
	return o.record, err
}

func (t joined) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return t.do(ctx, &renewOp{key: record.KeyOf(h.ID), hold: h, lease: lease, steps: steps})
}

func (t joined) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return t.do(ctx, newSettleOp(h, st))
}

func (t joined) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := record.KeyOf(id)
	r, err := find(sqlRunner{ctx: ctx, on: t.tx, text: t.store.text}, &k)
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Found()
}

//go:embed outbox.sql
var outboxFile string

func (s *Store) OutboxIn(ctx context.Context, tx *sql.Tx) (engine.Runner, error) {
	on := sqlRunner{ctx: ctx, on: tx, text: s.text}
	return on, on.checkOpen()
}

func (s *Store) OutboxRead(ctx context.Context) engine.Runner {
	return sqlRunner{ctx: ctx, on: s.db, text: s.text}
}

// OutboxWrite always has the queue to itself, because SQLite has one writer.
func (s *Store) OutboxWrite(ctx context.Context, _ bool, f func(engine.Runner) error) error {
	if err := s.file.check(); err != nil {
		return err
	}
	return s.do(ctx, outboxOp(f))
}

// An outboxOp is a change of the outbox.
type outboxOp func(engine.Runner) error

func (outboxOp) trySingleStatement(engine.Runner) (bool, error) { return false, nil }

func (o outboxOp) apply(s engine.Runner, _ *clock) error {
	return whole(s, func() error { return o(s) })
}
