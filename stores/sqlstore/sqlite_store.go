package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"math"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A sqlite is a store in a SQLite file. It takes one connection of the pool for
// itself until it is closed.
type sqlite struct {
	db     *sql.DB
	file   file
	text   map[string]string
	writer *writer
	queue  queue[job]
	known  *sql.Stmt // the statement "lookup"
	hints  record.Hints
	inside runningTx
	shared atomic.Int64 // how often WithTx was used
}

// maxBatch bounds how much is lost, and how long others wait, when a batch
// fails.
const maxBatch = 512

func (s *sqlite) close() error {
	s.queue.close()
	return errors.Join(s.known.Close(), s.writer.close())
}

func (s *sqlite) claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	if r := s.seen(ctx, &o.key); r != nil && !c.Takes(r.Record) {
		return r.Record, nil
	}
	if err := s.do(ctx, o); err != nil {
		return onlyonce.Record{}, err
	}
	s.hints.Add(&o.key.hash)
	return o.record, nil
}

func (s *sqlite) renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return s.do(ctx, &renewOp{key: keyOf(h.ID), hold: h, lease: lease, steps: steps})
}

func (s *sqlite) settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return s.do(ctx, newSettleOp(h, st))
}

func (s *sqlite) lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := keyOf(id)
	if err := s.file.check(); err != nil {
		return onlyonce.Record{}, err
	}
	r, err := s.read(ctx, &k)
	if err == nil && r == nil {
		err = onlyonce.ErrNotFound
	}
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Record, nil
}

func (s *sqlite) resolve(ctx context.Context, id onlyonce.ID, fence int64, st onlyonce.Settlement) error {
	return s.do(ctx, &resolveOp{*newSettleOp(onlyonce.Hold{ID: id, Fence: fence}, st)})
}

// purgeBatch keeps the others' wait for a batch that purges short.
const purgeBatch = 100

func (s *sqlite) purge(ctx context.Context, limit int) (int, error) {
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

// unresolved counts the records whose outcome nobody knows.
func (s *sqlite) unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	err = sqlSession{ctx: ctx, on: s.db, text: s.text}.query("unresolved", nil, func(v []driver.Value) error {
		n, oldest, err = readUnresolved(v)
		return err
	})
	return n, oldest, err
}

// page reads the records of f but for its state, which only a record that has
// been decoded has. No two have the same created_at.
func (s *sqlite) page(ctx context.Context, f onlyonce.Filter, before position) ([]stored, error) {
	text, values := record.List(s.text["list"], f, anonymous, 0)
	last := before.createdAt
	if before != top {
		if last == math.MinInt64 {
			return nil, nil
		}
		last--
	}
	args := []any{last}
	for _, v := range values {
		args = append(args, v)
	}
	rows, err := s.db.QueryContext(ctx, text, append(args, int64(listPage))...)
	if err != nil {
		return nil, err
	}
	var page []stored
	err = scan(rows, func(v []driver.Value) error {
		page = append(page, decode(v))
		return nil
	})
	return page, err
}

// seen returns a record that this process saw before, read without the write
// lock; nil says nothing.
func (s *sqlite) seen(ctx context.Context, k *key) *stored {
	if !s.hints.Has(&k.hash) {
		return nil
	}
	r, err := s.read(ctx, k)
	if err != nil {
		return nil
	}
	return r
}

// read returns the record of k, or nil if there is none, from the pool.
func (s *sqlite) read(ctx context.Context, k *key) (found *stored, err error) {
	rows, err := s.known.QueryContext(ctx, k.hash[:])
	if err != nil {
		return nil, err
	}
	err = scan(rows, func(v []driver.Value) error {
		r := decode(v)
		found = &r
		return nil
	})
	switch {
	case err != nil:
		return nil, err
	case found == nil:
		return nil, nil
	}
	if err := found.Check(k.id); err != nil {
		return nil, err
	}
	if found.Expired {
		return nil, nil
	}
	return found, nil
}

// A joinedSQLite is the store in a transaction that the caller opened.
type joinedSQLite struct {
	store *sqlite
	tx    *sql.Tx
}

func (s *sqlite) joined(tx *sql.Tx) recordStore { return joinedSQLite{s, tx} }

func (t joinedSQLite) do(ctx context.Context, o op) error {
	t.store.shared.Add(1)
	on := sqlSession{ctx: ctx, on: t.tx, text: t.store.text}
	if done, err := o.alone(on); done || err != nil {
		return err
	}
	if _, err := on.exec("lock", nil); err != nil {
		return err
	}
	now, err := readClock(on)
	if err != nil {
		return err
	}
	return o.apply(on, now)
}

func (t joinedSQLite) claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	err := t.do(ctx, o)
	return o.record, err
}

func (t joinedSQLite) renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	return t.do(ctx, &renewOp{key: keyOf(h.ID), hold: h, lease: lease, steps: steps})
}

func (t joinedSQLite) settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	return t.do(ctx, newSettleOp(h, st))
}

func (t joinedSQLite) lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := keyOf(id)
	r, err := find(sqlSession{ctx: ctx, on: t.tx, text: t.store.text}, &k)
	if err == nil && (r == nil || r.Expired) {
		err = onlyonce.ErrNotFound
	}
	if err != nil {
		return onlyonce.Record{}, err
	}
	return r.Record, nil
}
