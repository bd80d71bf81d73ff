// Package postgres is the engine for PostgreSQL over database/sql. The store over pgx
// shares its schema, its statements, and how text that PostgreSQL can't hold is
// written.
package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// dialect is the dialect of PostgreSQL.
type dialect struct {
	text     map[string]string // the statements of the store
	standbys *Standbys
}

func (dialect) Schema() int { return len(Migrations) }

func (p dialect) Statements() map[string]string { return p.text }

func (dialect) Decode(values []driver.Value) record.Stored {
	s := Record(record.Read(values))
	if len(values) > record.Columns { // a list has no more
		more := record.Reader{Values: values[record.Columns:]}
		s.Server = more.Int("server")
	}
	return s
}

func (dialect) EncodeText(s string) any { return Encode(s) }

func (p dialect) List(f onlyonce.Filter, page *record.Page) (string, []any) {
	return List(p.text, f, page)
}

func (dialect) Classify(err error) server.ErrorClass { return Classify(err) }

func (p dialect) Claim(l server.Runner, a server.ClaimArgs) (fence int64, granted bool, err error) {
	return p.Grant(l, "claim", a.List())
}

func (p dialect) Grant(l server.Runner, name string, args []any) (fence int64, granted bool, err error) {
	if l.Tx != nil {
		name = server.InTx(p.text, name)
	}
	err = l.Query(name, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		fence, granted = r.Int("fence"), true
		return r.Err
	}, args...)
	return fence, granted, err
}

func (p dialect) Begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, _ []byte) (*sql.Tx, string, error) {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil || locks == nil {
		return tx, transact.LockMine, err
	}
	request, command, uncompared := LockNames(locks)
	var got string
	err = tx.QueryRowContext(ctx, p.text["lock"], request, command, uncompared).Scan(&got)
	if err != nil {
		return nil, "", errors.Join(err, tx.Rollback())
	}
	return tx, got, nil
}

// End has nothing to do: the locks went with the transaction.
func (dialect) End(*sql.Conn, *transact.Locks, []byte) {}

func (p dialect) Look(l server.Runner, k *record.Key, token []byte) (seen transact.View, err error) {
	err = l.Query("look", func(v []driver.Value) error {
		row, more := v[:len(v)-4], record.Reader{Values: v[len(v)-4:]}
		now := record.Reader{Values: v[record.Columns-1:]}
		seen.Now, seen.Floor, seen.Mark, seen.Token = now.Int("now"), more.Int("floor"), more.Int("mark"), more.Bytes("commit_token")
		if row[0] != nil {
			r := p.Decode(row)
			seen.Row = &r
		}
		readOnly := more.Int("read only") != 0
		if err := errors.Join(now.Err, more.Err); err != nil || !readOnly {
			return err
		}
		return transact.ErrReadOnly
	}, k.Hash[:], transact.TokenLock(token))
	if seen.Now == 0 && err == nil {
		err = engine.ErrNoFence
	}
	return seen, err
}

func (p dialect) Ended(ctx context.Context, conn *sql.Conn, token []byte) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	var locked, replica bool
	err = tx.QueryRowContext(ctx, p.text["ended"], transact.TokenLock(token)).Scan(&locked, &replica)
	if err == nil && replica {
		err = transact.ErrReplica
	}
	return errors.Join(err, tx.Rollback())
}

func (p dialect) Record(l server.Runner, seen *transact.View, k *record.Key, r *onlyonce.Record, settled server.SettledArgs, token []byte) (settledAt int64, err error) {
	args, err := RecordArgsOf(seen, k, r, settled, token)
	if err != nil {
		return 0, err
	}
	if l.Tx == nil {
		return l.Number("record", args.List()...)
	}
	err = l.Tx.QueryRowContext(l.Ctx, p.text["record"], args.List()...).Scan(&settledAt) // which costs less than Number
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, p.CheckSameTx(l, seen, token)
	case err != nil:
		return 0, l.Explain(err)
	}
	return settledAt, nil
}

func (dialect) Decision(settled server.SettledArgs, seen server.SeenArgs, owner []byte) []any {
	return Decision(settled, seen, owner)
}

func (dialect) DecodeText(s string) string { return Unescape(s) }

func (dialect) Audited(l server.Runner, name string, decision []any, entry server.AuditArgs) (int64, error) {
	return l.Change(name+" and audit", append(decision, entry.List()...)...)
}

// CheckJoinable has nothing to do: the server rejects every statement of a transaction that
// has failed.
func (dialect) CheckJoinable(server.Runner) error { return nil }

// Durable returns once the record is on the synchronous standbys, if there are any.
// PostgreSQL flushes a commit before others can see it.
func (p dialect) Durable(l server.Runner, k *record.Key, look server.Look) (again bool, err error) {
	return p.standbys.Durable(l.Ctx, k, look.Found, replicate(l))
}

func (p dialect) Flushed(l server.Runner, from int64) (again bool, err error) {
	return p.standbys.Flushed(l.Ctx, from, replicate(l))
}

func replicate(l server.Runner) Replicate {
	return func(ctx context.Context) (server int64, err error) {
		err = l.Store.Runner(ctx).Query("replicate", func(v []driver.Value) error {
			r := record.Reader{Values: v}
			server = r.Int("server")
			return r.Err
		})
		return server, err
	}
}

func (p dialect) Settled(k *record.Key, fence int64) { p.standbys.Settled(k, fence) }

func (dialect) CheckID(onlyonce.ID) error { return nil }

func (dialect) CheckPacketSize([]any) error { return nil }

func (dialect) CheckSameTx(l server.Runner, seen *transact.View, _ []byte) error {
	mark, err := l.Number("mark")
	if err == nil && mark != seen.Mark {
		err = transact.ErrEnded
	}
	return err
}

func (dialect) Lapse(l server.Runner, limit int) (int, error) { return changed(l, "lapse", limit) }

func (dialect) Forget(l server.Runner, limit int) (int, error) { return changed(l, "forget", limit) }

// changed returns how many rows a statement has changed that changes at most limit.
func changed(l server.Runner, name string, limit int) (n int, err error) {
	err = l.Query(name, func([]driver.Value) error {
		n++
		return nil
	}, int64(limit))
	return n, err
}

func (dialect) Purge(l server.Runner, limit int) (rows, records int, err error) {
	var highest, now int64
	err = l.Query("due", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		rows, highest, now = int(r.Int("rows")), r.Int("fence"), r.Int("now")
		return r.Err
	}, int64(limit))
	if err != nil || rows == 0 {
		return 0, 0, err
	}
	upTo, err := l.Cover(highest, now, record.Spread)
	if err != nil {
		return 0, 0, err
	}
	var deleted int
	var floor int64
	err = l.Query("purge", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		deleted, records, floor = int(r.Int("rows")), int(r.Int("records")), r.Int("floor")
		return r.Err
	}, int64(limit), upTo)
	if floor < upTo {
		l.Uncover()
	}
	if deleted == 0 {
		rows = 0 // the due rows are in use
	}
	return rows, records, err
}
