package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Config says how a Store is opened. The zero Config is usable.
type Config struct {
	// AcceptRisks names the findings of Diagnose that Open lets pass.
	AcceptRisks []string
}

// A Store keeps records in a SQL database.
type Store struct {
	db     *sql.DB
	file   file
	text   map[string]string
	writer *writer
	queue  queue[job]
	lookup *sql.Stmt
	hints  hints
	inside inside
	joined atomic.Int64 // how often WithTx was used
}

var (
	_ onlyonce.Store               = (*Store)(nil)
	_ onlyonce.Transactor[*sql.Tx] = (*Store)(nil)
	_ onlyonce.Purger              = (*Store)(nil)
	_ onlyonce.Lister              = (*Store)(nil)
	_ onlyonce.Diagnoser           = (*Store)(nil)
)

// maxBatch bounds how much is lost, and how long others wait, when a batch
// fails.
const maxBatch = 512

// Open opens a store on a database that has been migrated. It takes one
// connection of the pool for itself until Close, and refuses a database whose
// settings would break the promise.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	var s *Store
	err := patiently(ctx, func() (err error) {
		s, err = openSQLite(ctx, db, cfg)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: %w", err)
	}
	return s, nil
}

// Close ends what is queued and gives the store's connection back. The
// database stays open.
func (s *Store) Close() error {
	s.queue.close()
	if err := errors.Join(s.lookup.Close(), s.writer.close()); err != nil {
		return fmt.Errorf("sqlstore: close: %w", err)
	}
	return nil
}

// Claim asks for the right to run a command.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	o := newClaimOp(c)
	if r := s.seen(ctx, &o.key); r != nil && !c.Takes(r.Record) {
		return r.Record, nil
	}
	if err := s.do(ctx, o); err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim: %w", err)
	}
	s.hints.add(&o.key.hash)
	return o.record, nil
}

// Renew makes the hold's lease end a full lease from now, and adds steps to
// the record's.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := s.do(ctx, &renewOp{key: keyOf(h.ID), hold: h, lease: lease, steps: steps}); err != nil {
		return fmt.Errorf("sqlstore: renew: %w", err)
	}
	return nil
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := s.do(ctx, newSettleOp(h, st)); err != nil {
		return fmt.Errorf("sqlstore: settle: %w", err)
	}
	return nil
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	k := keyOf(id)
	if err := s.file.check(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: lookup: %w", err)
	}
	r, err := s.read(ctx, &k)
	if err == nil && r == nil {
		err = onlyonce.ErrNotFound
	}
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: lookup: %w", err)
	}
	return r.Record, nil
}

// Resolve ends a record that nobody holds as st says; a zero st deletes it.
// The attempt that left it can't settle it any more.
func (s *Store) Resolve(ctx context.Context, id onlyonce.ID, fence int64, st onlyonce.Settlement) error {
	if err := s.do(ctx, &resolveOp{*newSettleOp(onlyonce.Hold{ID: id, Fence: fence}, st)}); err != nil {
		return fmt.Errorf("sqlstore: resolve: %w", err)
	}
	return nil
}

// purgeBatch keeps the others' wait for a batch that purges short.
const purgeBatch = 100

// Purge deletes at most limit records that have expired, a few in every batch.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	purged := 0
	for purged < limit {
		o := &purgeOp{limit: min(limit-purged, purgeBatch)}
		if err := s.do(ctx, o); err != nil {
			return purged, fmt.Errorf("sqlstore: purge: %w", err)
		}
		purged += o.purged
		if o.purged < o.limit {
			break
		}
	}
	return purged, nil
}

// seen returns a record that this process saw before, read without the write
// lock; nil says nothing.
func (s *Store) seen(ctx context.Context, k *key) *stored {
	if !s.hints.has(&k.hash) {
		return nil
	}
	r, err := s.read(ctx, k)
	if err != nil {
		return nil
	}
	return r
}

// read returns the record of k, or nil if there is none, from the pool.
func (s *Store) read(ctx context.Context, k *key) (found *stored, err error) {
	rows, err := s.lookup.QueryContext(ctx, k.hash[:])
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
	case found != nil && !found.Corrupt && found.ID != k.id:
		return nil, errCollision
	case found != nil && found.expired:
		return nil, nil
	}
	return found, nil
}
