package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// write runs the statement together with others. A statement that met a row locked by
// another transaction runs again alone, so that its neighbors do not wait.
func (s *Store) write(ctx context.Context, st *statement) error {
	q := s.writes
	if st.isLong() {
		q = s.longWrites
	}
	err := q.Do(ctx, st)
	for n := 1; (postgres.Code(err) == postgres.CodeLockTimeout || isRetryable(err)) && retry(ctx, n) == nil; n++ {
		err = s.withPoolConn(ctx, func(conn *pgx.Conn) error { return s.send(ctx, conn, "", []*statement{st}, "") })
	}
	switch {
	case err == nil && st.wrote && st.settlement != nil:
		s.standbys.Settled(st.key, st.hold.Fence)
	case err != nil && st.repeated:
		err = inDoubt(err)
	}
	return err
}

// withPoolConn calls f with a connection of the pool.
func (s *Store) withPoolConn(ctx context.Context, f func(*pgx.Conn) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	return f(conn.Conn())
}

// A lookupJob is one caller's lookup.
type lookupJob struct {
	key   *record.Key
	found *stored
	long  bool // the record exists, but its result is too long to be read together with others
}

// look returns the record of k, which may have expired, or nil.
func (s *Store) look(ctx context.Context, k *record.Key) (*stored, error) {
	return server.FindDurable(func() (*stored, error) {
		for n := 1; ; n++ {
			r := &lookupJob{key: k}
			err := s.reads.Do(ctx, r)
			if err == nil && r.long {
				r = &lookupJob{key: k}
				err = s.longReads.Do(ctx, r)
			}
			if !isRetryable(err) || retry(ctx, n) != nil { // reads conflict at SERIALIZABLE, which a pooler may keep
				return r.found, err
			}
		}
	}, func(l server.Look) (again bool, err error) { return s.durable(ctx, k, l.Found) })
}

// durable returns once the synchronous standbys, if there are any, have the record. It reports
// true if the record must be read again, because it was read from another server than that of
// the writes: the connections for reading are replaced, so that they do not stay with a former
// primary.
func (s *Store) durable(ctx context.Context, k *record.Key, found *stored) (again bool, err error) {
	again, err = s.standbys.Durable(ctx, k, found, s.replicate(k))
	if again {
		replace(s.readConns[:])
	}
	return again, err
}

// flushed returns once the synchronous standbys, if there are any, have the record that was found.
func (s *Store) flushed(ctx context.Context, k *record.Key, found *stored) (again bool, err error) {
	return s.standbys.Flushed(ctx, found.Server, s.replicate(k))
}

// replicate returns how the statement of that name is run together with others.
func (s *Store) replicate(k *record.Key) postgres.Replicate {
	return func(ctx context.Context) (server int64, err error) {
		var by int64
		st := &statement{query: replicateQuery, key: k, into: []any{&by, nil}}
		if err := s.writes.Do(ctx, st); err != nil || !st.wrote {
			return 0, err
		}
		return by, nil
	}
}
