package sqlstore

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"iter"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
)

// A Config controls how a Store is opened. The zero Config is usable.
type Config struct {
	// AcceptRisks names the findings of Diagnose that Open accepts.
	AcceptRisks []string

	// PurgeEvery is the interval at which the store deletes expired records in the
	// background until it is closed. Default 10 minutes; NeverPurge: it deletes none
	// unless Purge is called. Any number of processes may purge one database. The first
	// purge comes at a random moment in the first tenth of the interval.
	PurgeEvery time.Duration

	// Observer is called for every purge in the background, with the outcome
	// onlyonce.OutcomePurged and the purge's error. After an error, the store tries again
	// at the next interval. Nil: failures are logged with slog.Default();
	// onlyonce.DiscardEvents: they are not.
	Observer onlyonce.Observer
}

// NeverPurge is a Config.PurgeEvery with which the store deletes no expired records in the
// background.
const NeverPurge = engine.NeverPurge

// A Store keeps records in a SQL database.
type Store struct {
	engine engine.Engine
	outbox *Outbox
}

var (
	_ onlyonce.TxStore[*sql.Tx] = (*Store)(nil)
	_ onlyonce.Purger           = (*Store)(nil)
	_ onlyonce.Auditor          = (*Store)(nil)
	_ onlyonce.Lister           = (*Store)(nil)
	_ onlyonce.Counter          = (*Store)(nil)
	_ onlyonce.Diagnoser        = (*Store)(nil)
)

// Open opens a store on a database that has been migrated. It rejects a
// database whose settings would break the guarantees. It panics on an invalid
// Config.
func Open(ctx context.Context, db *sql.DB, cfg Config) (*Store, error) {
	purging := engine.NewPurging("sqlstore", cfg.PurgeEvery, cfg.Observer)
	e, err := openEngine(ctx, db, cfg)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: open: %w", err)
	}
	c := engine.NewClosable(e, purging)
	return &Store{engine: c, outbox: newOutbox(c)}, nil
}

// Close ends queued calls and purges in the background, and returns the store's
// connection to the pool. The database stays open. Every later call of the store or of
// its Outbox returns an error; a transaction in progress may end.
func (s *Store) Close() error {
	if err := s.engine.Close(); err != nil {
		return fmt.Errorf("sqlstore: close: %w", err)
	}
	return nil
}

// Claim asks for the right to run a command.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim: %w", err)
	}
	r, err := s.engine.Claim(ctx, c)
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: claim: %w", err)
	}
	return r, nil
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	if err := s.engine.Renew(ctx, h, lease, steps); err != nil {
		return fmt.Errorf("sqlstore: renew: %w", err)
	}
	return nil
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	err := st.Check()
	if err == nil {
		err = s.engine.Settle(ctx, h, st)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: settle: %w", err)
	}
	return nil
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	r, err := s.engine.Lookup(ctx, id)
	if err != nil {
		return onlyonce.Record{}, fmt.Errorf("sqlstore: lookup: %w", err)
	}
	return r, nil
}

// Resolve settles with st a record that no attempt holds; a zero st deletes it. The
// record gets a new owner and a higher fence, so the attempt that left it can
// no longer settle it, and a caller that saw the old record must look it up
// again. Resolve returns onlyonce.ErrNotFound if there is no record,
// onlyonce.ErrLost if it has changed since it was seen, and onlyonce.ErrInFlight
// while its lease is alive.
func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	err := st.Check()
	if err == nil {
		err = s.engine.Resolve(ctx, seen, st, nil)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: resolve: %w", err)
	}
	return nil
}

// ResolveAudited does what Resolve does and adds an entry to the table onlyonce_audit in
// the same transaction. The store never changes or deletes a row of that table.
func (s *Store) ResolveAudited(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d onlyonce.Decision) error {
	err := cmp.Or(st.Check(), d.Check())
	if err == nil {
		err = s.engine.Resolve(ctx, seen, st, &d)
	}
	if err != nil {
		return fmt.Errorf("sqlstore: resolve: %w", err)
	}
	return nil
}

// AuditTrail returns the decisions of people about the command id, oldest first.
func (s *Store) AuditTrail(ctx context.Context, id onlyonce.ID) ([]onlyonce.AuditEntry, error) {
	return auditTrail(ctx, s.engine, id)
}

// Purge deletes at most limit expired records, in batches that are small enough
// not to make other callers wait long.
func (s *Store) Purge(ctx context.Context, limit int) (int, error) {
	n, err := s.engine.Purge(ctx, limit)
	if err != nil {
		return n, fmt.Errorf("sqlstore: purge: %w", err)
	}
	return n, nil
}

// Unresolved counts the records whose outcome is unknown: those in the unknown
// state, those whose lease has lapsed, and those in a state that no store writes.
// It also returns for how long the oldest of them has been unresolved. It uses an
// index of the unresolved and running records.
func (s *Store) Unresolved(ctx context.Context) (n int, oldest time.Duration, err error) {
	n, oldest, err = s.engine.Unresolved(ctx)
	if err != nil {
		return 0, 0, fmt.Errorf("sqlstore: count unresolved records: %w", err)
	}
	return n, oldest, nil
}

// List lists records, newest first.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return list(ctx, s.engine, f)
}

// CountRecords counts records by tenant, operation and state. It reads the whole table.
func (s *Store) CountRecords(ctx context.Context) ([]onlyonce.RecordCount, error) {
	return countRecords(ctx, s.engine)
}

// Diagnose finds settings of the database and of its connections that would
// break the guarantees, and files that every user of the machine can open. It
// checks one connection of the pool.
func (s *Store) Diagnose(ctx context.Context) ([]onlyonce.Finding, error) {
	found, err := s.engine.Diagnose(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqlstore: diagnose: %w", err)
	}
	return found, nil
}
