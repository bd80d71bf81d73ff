package pgxstore

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
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

// A Store keeps records in PostgreSQL.
type Store struct {
	pool        *pgxpool.Pool
	text        map[string]string // its statements
	maintenance maintenance
	writes      *group.Queue[*statement]
	longWrites  *group.Queue[*statement] // of long values, for which the others do not wait
	writeConns  [lanes + 1]storeConn     // the last one is for long values
	reads       *group.Queue[*lookupJob]
	longReads   *group.Queue[*lookupJob]
	readConns   [lanes + 1]storeConn
	seenCache   record.SeenCache
	standbys    postgres.Standbys
	listener    *listener
	outbox      *Outbox
	leaving     server.Leaving
}

var (
	_ onlyonce.TxStore[pgx.Tx] = (*Store)(nil)
	_ onlyonce.Purger          = (*Store)(nil)
	_ onlyonce.Auditor         = (*Store)(nil)
	_ onlyonce.Lister          = (*Store)(nil)
	_ onlyonce.Counter         = (*Store)(nil)
	_ onlyonce.Waiter          = (*Store)(nil)
	_ onlyonce.Diagnoser       = (*Store)(nil)
)

const (
	maxBatch   = 256 // statements that are lost, and tried again one by one, when one fails
	maxLong    = 8   // the same for statements with long values: so many of them are on their way at a time
	lanes      = 2   // connections for statements, and as many for lookups
	minWaiting = 48  // so many waiting callers justify a second connection
)

// Open opens a store on a database that has been migrated. The pool still
// belongs to the caller; give it at least six connections more than the
// program needs. Open rejects a server whose settings would break the promise. It
// panics on an invalid Config.
func Open(ctx context.Context, pool *pgxpool.Pool, cfg Config) (*Store, error) {
	m, err := openMaintenance(ctx, pool, cfg)
	if err != nil {
		return nil, wrap("open", err)
	}
	s := &Store{pool: pool, text: m.text, maintenance: m, listener: newListener(pool, commandsChannel, commandsLock)}
	s.outbox = newOutbox(s)
	for i := range s.writeConns {
		s.writeConns[i].pool, s.readConns[i].pool = pool, pool
		s.writeConns[i].leave, s.readConns[i].leave = s.replaceAll, s.replaceAll
	}
	s.writes = group.New(group.Config[*statement]{Lanes: lanes, MinWaiting: minWaiting, Max: maxBatch, Write: func(lane int, batch []*group.Ticket[*statement]) (then func()) {
		s.runWrites(s.writes, &s.writeConns[lane], batch)
		return nil
	}})
	s.longWrites = group.New(group.Config[*statement]{Max: maxLong, Write: func(_ int, batch []*group.Ticket[*statement]) (then func()) {
		s.runWrites(s.longWrites, &s.writeConns[lanes], batch)
		return nil
	}})
	s.reads = group.New(group.Config[*lookupJob]{Write: s.runReads, Lanes: lanes, MinWaiting: minWaiting, Max: maxBatch})
	s.longReads = group.New(group.Config[*lookupJob]{Write: s.runLongReads, Max: maxBatch})
	return s, nil
}

// Close ends queued calls and purges in the background, and closes the store's own
// connections. The pool stays open. Every later call of the store or of its Outbox returns
// an error; a transaction in progress may end.
func (s *Store) Close() error {
	s.writes.Close()
	s.longWrites.Close()
	s.reads.Close()
	s.longReads.Close()
	s.listener.close()
	s.outbox.listener.close()
	var errs []error
	for i := range s.writeConns {
		errs = append(errs, s.writeConns[i].close(), s.readConns[i].close())
	}
	return wrap("close", errors.Join(append(errs, s.maintenance.close())...))
}

// leave replaces the connections if err says that the server can't be written.
func (s *Store) leave(err error) {
	if err != nil && s.leaving.Due(explain(err)) {
		s.replaceAll()
	}
}

// replaceAll replaces the connections: those of the pool that are in use, when they come back.
func (s *Store) replaceAll() {
	s.pool.Reset()
	replace(s.writeConns[:])
	replace(s.readConns[:])
}

// Claim asks for the right to run a command.
func (s *Store) Claim(ctx context.Context, c onlyonce.Claim) (onlyonce.Record, error) {
	if err := c.Check(); err != nil {
		return onlyonce.Record{}, wrap("claim", err)
	}
	k := record.KeyOf(c.ID)
	r, created, err := claimRecord(ctx, s, &k, &c, s.seenCache.Has(&k.Hash))
	s.leave(err)
	switch {
	case err == nil:
		s.seenCache.Add(&k.Hash)
	case created:
		err = inDoubt(err)
	}
	return r, wrap("claim", err)
}

// Renew makes the hold's lease end one full lease from now and adds steps to
// those of the record.
func (s *Store) Renew(ctx context.Context, h onlyonce.Hold, lease time.Duration, steps map[string][]byte) error {
	err := renew(ctx, s, &h, lease, steps)
	s.leave(err)
	return wrap("renew", err)
}

// Settle ends the attempt.
func (s *Store) Settle(ctx context.Context, h onlyonce.Hold, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("settle", err)
	}
	err := settle(ctx, s, &h, &st)
	s.leave(err)
	return wrap("settle", err)
}

// Lookup returns the record of id, or onlyonce.ErrNotFound.
func (s *Store) Lookup(ctx context.Context, id onlyonce.ID) (onlyonce.Record, error) {
	r, err := lookup(ctx, s, id)
	return r, wrap("lookup", err)
}

// List lists records, newest first. A record that changes meanwhile may be
// listed in its old or its new state.
func (s *Store) List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error] {
	return record.Walk(f, func(p *record.Page) error { return wrap("list", s.page(ctx, f, p)) })
}

// Resolve settles with st a record that no attempt holds; a zero st deletes it. The
// record gets a new owner and a higher fence, so the attempt that left it can
// no longer settle it, and a caller that saw the old record must look it up
// again. Resolve returns onlyonce.ErrNotFound if there is no record,
// onlyonce.ErrLost if it has changed since it was seen, and onlyonce.ErrInFlight
// while its lease is alive.
func (s *Store) Resolve(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement) error {
	if err := st.Check(); err != nil {
		return wrap("resolve", err)
	}
	return wrap("resolve", resolve(ctx, s, &seen, &st, nil))
}

// ResolveAudited does what Resolve does and adds an entry to the table onlyonce_audit in
// the same transaction. The store never changes or deletes a row of that table.
func (s *Store) ResolveAudited(ctx context.Context, seen onlyonce.Record, st onlyonce.Settlement, d onlyonce.Decision) error {
	if err := cmp.Or(st.Check(), d.Check()); err != nil {
		return wrap("resolve", err)
	}
	return wrap("resolve", resolve(ctx, s, &seen, &st, &d))
}

// Wait returns when the record of id may have changed or ctx has ended.
func (s *Store) Wait(ctx context.Context, id onlyonce.ID) error {
	k := record.KeyOf(id)
	return wrap("wait", s.listener.wait(ctx, channel(&k)))
}
