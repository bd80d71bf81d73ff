package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

const stateReleased = record.StateReleased

// kept is how many microseconds the row of a released command stays.
const kept = int64(time.Hour / time.Microsecond)

// postgres is the dialect of PostgreSQL.
type postgres struct{}

func (postgres) engine() string { return enginePostgres }

func (postgres) statements() map[string]string { return pgschema.Text }

func (postgres) decode(values []driver.Value) stored { return pgschema.Record(record.Read(values)) }

func (postgres) encodeText(s string) any { return pgschema.Escape(s) }

func (postgres) list(f onlyonce.Filter, before position) (string, []any) {
	return pgschema.List(f, before.createdAt, before.hash[:], listPage)
}

// classify goes by SQLSTATE, which every driver's error has.
func (postgres) classify(err error) errorClass {
	var e interface{ SQLState() string }
	if !errors.As(err, &e) {
		return classOther
	}
	switch code := e.SQLState(); code {
	case "40001", "40P01":
		return classConflict
	case "25P02":
		return classAborted
	case "57014", "55P03", "25P03", "25P04":
		return classTimeout
	case "54000", "22001", "22003":
		return classTooLarge
	case "25006":
		return classReadOnly
	default:
		if strings.HasPrefix(code, "08") || strings.HasPrefix(code, "57P") || strings.HasPrefix(code, "58") || strings.HasPrefix(code, "XX") {
			return classOther
		}
		return classRefused
	}
}

func (postgres) give(l serverSession, name string, args []any) (fence int64, given bool, err error) {
	if l.tx != nil && name != "take" {
		name += " in"
	}
	err = l.query(name, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		fence, given = r.Int("fence"), true
		return r.Err
	}, args...)
	return fence, given, err
}

func (postgres) begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, _ []byte) (*sql.Tx, string, error) {
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil || locks == nil {
		return tx, transact.LockMine, err
	}
	request, command, uncompared := pgschema.LockNames(locks)
	var got string
	err = tx.QueryRowContext(ctx, pgschema.Text["lock"], request, command, uncompared).Scan(&got)
	if err != nil {
		return nil, "", errors.Join(err, tx.Rollback())
	}
	return tx, got, nil
}

// end has nothing to do: the locks went with the transaction.
func (postgres) end(*sql.Conn, *transact.Locks, []byte) {}

func (p postgres) look(l serverSession, k *key, token []byte) (seen rowSnapshot, err error) {
	err = l.query("look", func(v []driver.Value) error {
		row, more := v[:len(v)-4], record.Reader{Values: v[len(v)-5:]}
		seen.now, seen.floor, seen.mark, seen.token = more.Int("now"), more.Int("floor"), more.Int("mark"), more.Bytes("commit_token")
		if row[0] != nil {
			r := p.decode(row)
			seen.row = &r
		}
		return more.Err
	}, k.hash[:], transact.TokenLock(token))
	if seen.now == 0 && err == nil {
		err = errNoFence
	}
	return seen, err
}

func (postgres) ended(ctx context.Context, conn *sql.Conn, token []byte) error {
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, pgschema.Text["ended"], transact.TokenLock(token))
	return errors.Join(err, tx.Rollback())
}

func (p postgres) record(l serverSession, seen *rowSnapshot, r *onlyonce.Record, values []any, token []byte) (bool, error) {
	steps, err := record.EncodeSteps(r.Steps)
	if err != nil {
		return false, err
	}
	values = released(values)
	values = append(values, nil, p.encodeText(r.ID.Tenant), p.encodeText(r.ID.Operation), p.encodeText(r.ID.Key), blob(r.Fingerprint), []byte(r.Owner),
		int64(r.Attempt), r.Fence, steps, r.CreatedAt.UnixMicro(), nil, nil, nil, nil, blob(token), nil)
	hash := r.ID.Hash()
	values[8] = hash[:]
	if row := seen.row; row != nil {
		copy(values[18:], []any{[]byte(row.Owner), row.Fence, row.As})
		values[23] = row.StepsAs
	}
	if seen.mark != 0 {
		values[21] = seen.mark
	}
	n, err := l.change("record", values...)
	if n > 0 || err != nil {
		return n > 0, err
	}
	if l.tx == nil {
		return false, nil
	}
	return false, p.checkSameTx(l, seen, token)
}

func (postgres) decision(values []any, owner []byte, seen ...any) []any {
	return append(append(values, seen...), owner)
}

// released makes the values of a settlement that releases those of a row that
// is there for its fence alone.
func released(values []any) []any {
	if values[0] == "" {
		values[0], values[7] = stateReleased, kept
	}
	return values
}

// checkJoinable has nothing to do: the server refuses every statement of a transaction
// that failed.
func (postgres) checkJoinable(serverSession) error { return nil }

// durable has nothing to do: PostgreSQL flushes a commit, and waits for its
// synchronous standbys, before others can see it.
func (postgres) durable(serverSession, *key, *stored) error { return nil }

func (postgres) settled(*key, int64) {}

func (postgres) checkPacketSize([]any) error { return nil }

func (postgres) checkSameTx(l serverSession, seen *rowSnapshot, _ []byte) error {
	mark, err := l.number("mark")
	if err == nil && mark != seen.mark {
		err = errEnded
	}
	return err
}

func (postgres) lapse(l serverSession, limit int) (n int, err error) {
	err = l.query("lapse", func([]driver.Value) error {
		n++
		return nil
	}, int64(limit))
	return n, err
}

func (postgres) purge(l serverSession, limit int) (rows, records int, err error) {
	var highest, now int64
	err = l.query("due", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		rows, highest, now = int(r.Int("rows")), r.Int("fence"), r.Int("now")
		return r.Err
	}, int64(limit))
	if err != nil || rows == 0 {
		return 0, 0, err
	}
	upTo, err := l.cover(highest, now, record.Spread)
	if err != nil {
		return 0, 0, err
	}
	var deleted int
	var floor int64
	err = l.query("purge", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		deleted, records, floor = int(r.Int("rows")), int(r.Int("records")), r.Int("floor")
		return r.Err
	}, int64(limit), upTo)
	if floor < upTo {
		l.covered.forget()
	}
	if deleted == 0 {
		rows = 0 // what is due is in use
	}
	return rows, records, err
}
