// Package mysql is the engine for MySQL and MariaDB.
package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

//go:embed statements.sql
var statementsFile string

//go:embed outbox.sql
var outboxFile string

//go:embed group.sql
var groupFile string

var texts = record.Blocks(record.Expiry("{now}").Replace(statementsFile + "\n" + groupFile + "\n" + outboxFile))

// dialect is the dialect of MySQL and MariaDB.
type dialect struct {
	database  string // locks are the server's, not the database's
	packet    int    // max_allowed_packet
	foundRows bool   // a row that was there as it is counts as changed
	binlog    bool   // a commit is on disk before it is seen
	floor     cachedFloor
	flush     flusher
}

func (*dialect) Schema() int { return len(Migrations) }

func (*dialect) Statements() map[string]string { return texts }

func (*dialect) Decode(values []driver.Value) record.Stored {
	row := record.Read(values)
	return row.Record()
}

func (*dialect) EncodeText(s string) any { return []byte(s) }

func (*dialect) List(f onlyonce.Filter, p *record.Page) (string, []any) {
	text, values := record.List(texts["list"], f, record.Anonymous, 0)
	args := []any{p.Before.CreatedAt, p.Before.CreatedAt, p.Before.Hash[:]}
	for _, v := range values {
		args = append(args, []byte(v))
	}
	return text, append(args, int64(p.Limit))
}

// The driver's error is a type of its own: its text begins with the number.
var errorNumber = regexp.MustCompile(`^Error (\d{4})\b`)

// numberOf returns the server's number of an error, or of one that it wraps; 0: none.
func numberOf(err error) int {
	if err == nil {
		return 0
	}
	if found := errorNumber.FindStringSubmatch(err.Error()); found != nil {
		n, _ := strconv.Atoi(found[1])
		return n
	}
	switch e := err.(type) { // which errors.As would need the driver's type for
	case interface{ Unwrap() error }:
		return numberOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, wrapped := range e.Unwrap() {
			if n := numberOf(wrapped); n != 0 {
				return n
			}
		}
	}
	return 0
}

func (*dialect) Classify(err error) server.ErrorClass {
	switch n := numberOf(err); n {
	case 1213, 1020, 3101:
		return server.ClassConflict
	case 1205, 1317, 1969, 3024, 3572:
		return server.ClassTimeout
	case 1105, 1118, 1153, 1162, 1264, 1406:
		return server.ClassTooLarge
	case 1290, 1792, 1836, 3989:
		return server.ClassReadOnly
	case 0, 1040, 1053, 1077, 1927, 2006, 2013, 3169, 4031:
		return server.ClassOther
	default:
		return server.ClassRefused
	}
}

// CheckPacketSize rejects arguments so large that the server would close the connection.
func (m *dialect) CheckPacketSize(args []any) error {
	size := 0
	for _, arg := range args {
		switch v := arg.(type) {
		case string:
			size += len(v)
		case []byte:
			size += len(v)
		}
	}
	if headroom := 64 << 10; m.packet > 0 && size > m.packet-headroom {
		return fmt.Errorf("%w: %d bytes, and max_allowed_packet is %d", server.ErrTooLarge, size, m.packet)
	}
	return nil
}

func (m *dialect) Claim(l server.Session, a server.ClaimArgs) (fence int64, given bool, err error) {
	if l.Tx != nil {
		return m.Give(l, "claim in", a.List())
	}
	floor, err := m.floor.read(l)
	if err != nil {
		return 0, false, err
	}
	return m.Give(l, "claim", claim(a, floor))
}

func (*dialect) Give(l server.Session, name string, args []any) (fence int64, given bool, err error) {
	return lastID(l.Exec(name, args...))
}

// lastID returns the last insert id, by which a statement returns a number. It reports
// false if the statement changed no row, or returned none.
func lastID(res sql.Result, err error) (id int64, set bool, _ error) {
	if err != nil {
		return 0, false, err
	}
	changed, err := res.RowsAffected()
	if err != nil || changed == 0 {
		return 0, false, err
	}
	id, err = res.LastInsertId()
	return id, id > 0, err
}

// Begin makes the session go on without autocommit: when the server rolls the
// transaction back, as it does with one of a deadlock's, what the function
// writes after that is in a transaction too, and not there for good.
func (m *dialect) Begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, token []byte) (*sql.Tx, string, error) {
	if _, err := conn.ExecContext(ctx, fill("begin", "{token}", tokenLock(token))); err != nil {
		return nil, "", err
	}
	got := transact.LockMine
	if locks != nil {
		if err := conn.QueryRowContext(ctx, m.lockSQL(locks)).Scan(&got); err != nil {
			return nil, "", err
		}
		if got != transact.LockMine {
			tx, err := conn.BeginTx(ctx, nil)
			return tx, got, err
		}
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, "", err
	}
	if _, err := tx.ExecContext(ctx, fill("savepoint", "{name}", transact.SavepointName(token))); err != nil {
		return nil, "", errors.Join(err, tx.Rollback())
	}
	return tx, got, nil
}

// lockSQL is the statement that takes the locks.
func (m *dialect) lockSQL(l *transact.Locks) string {
	if l.Request == l.Uncompared {
		return fill("lock uncompared", "{uncompared}", m.lockName(l.Uncompared), "{command}", m.lockName(l.Command))
	}
	return fill("lock", "{request}", m.lockName(l.Request), "{command}", m.lockName(l.Command), "{uncompared}", m.lockName(l.Uncompared))
}

// fill returns a statement with names in the place of those in braces.
func fill(name string, placeholders ...string) string {
	text := texts[name]
	for i := 0; i < len(placeholders); i += 2 {
		text = strings.Replace(text, placeholders[i], placeholders[i+1], 1)
	}
	return text
}

// End discards a connection that it can't make as it was.
func (m *dialect) End(conn *sql.Conn, locks *transact.Locks, token []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), engine.Reconnect)
	defer cancel()
	undo := fill("end", "{token}", tokenLock(token))
	if locks != nil {
		undo = fill("end with locks", "{token}", tokenLock(token),
			"{command}", m.lockName(locks.Command), "{request}", m.lockName(locks.Request), "{uncompared}", m.lockName(locks.Uncompared))
	}
	if _, err := conn.ExecContext(ctx, undo); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// lockName is what a lock is called on a server with other databases.
func (m *dialect) lockName(lock [32]byte) string {
	h := sha256.Sum256(append([]byte(m.database+"\x00"), lock[:]...))
	return "onlyonce:" + hex.EncodeToString(h[:24])
}

// tokenLock is what the lock of a transaction is called, on a server with other
// databases.
func tokenLock(token []byte) string { return "onlyonce:" + hex.EncodeToString(token) }

func (m *dialect) Look(l server.Session, k *record.Key, _ []byte) (seen transact.View, err error) {
	err = l.Query("look", func(v []driver.Value) error {
		row, more := v[:len(v)-2], record.Reader{Values: v[len(v)-3:]}
		seen.Now, seen.Floor, seen.Token = more.Int("now"), more.Int("floor"), more.Bytes("commit_token")
		if row[0] != nil {
			r := m.Decode(row)
			seen.Row = &r
		}
		return more.Err
	}, k.Hash[:])
	if seen.Now == 0 && err == nil {
		err = engine.ErrNoFence
	}
	return seen, err
}

// Ended waits for the lock that the transaction's session gives back after the
// transaction's end.
func (*dialect) Ended(ctx context.Context, conn *sql.Conn, token []byte) error {
	var got sql.NullBool
	if err := conn.QueryRowContext(ctx, fill("ended", "{token}", tokenLock(token))).Scan(&got); err != nil {
		return err
	}
	if !got.Bool {
		return server.ErrStillRunning
	}
	_, err := conn.ExecContext(ctx, fill("release token", "{token}", tokenLock(token)))
	return err
}

func (m *dialect) Record(l server.Session, seen *transact.View, k *record.Key, r *onlyonce.Record, settled server.SettledArgs, token []byte) (settledAt int64, err error) {
	if l.Tx != nil {
		if err := m.CheckSameTx(l, seen, token); err != nil {
			return 0, err
		}
	}
	fingerprint, steps, err := settled.Kept(r)
	if err != nil {
		return 0, err
	}
	args := recordArgs{
		settled: settled, id: l.Encode.ID(k), fingerprint: fingerprint, owner: []byte(r.Owner), attempt: int64(r.Attempt), fence: r.Fence, steps: steps,
		createdAt: r.CreatedAt.UnixMicro(), token: record.NullBytes(token),
	}
	if row := seen.Row; row != nil {
		settledAt, _, err = lastID(l.Exec("record again", args.again(server.SeenAs(k, row), row.StepsAs)...))
		return settledAt, err
	}
	settledAt, _, err = lastID(l.Exec("record", args.list()...))
	if numberOf(err) == 1062 { // someone else made the row
		return 0, nil
	}
	return settledAt, err
}

func (*dialect) Decision(settled server.SettledArgs, seen server.SeenArgs, owner []byte) []any {
	return decision(settled, seen, owner)
}

// CheckSameTx looks for the savepoint, which is gone when the transaction has ended. Its
// name is the token's, so that a function makes none of the same name by chance.
func (*dialect) CheckSameTx(l server.Session, _ *transact.View, token []byte) error {
	_, err := l.Tx.ExecContext(l.Ctx, fill("release savepoint", "{name}", transact.SavepointName(token)))
	if numberOf(err) == 1305 {
		return transact.ErrEnded
	}
	return err
}

// CheckJoinable refuses a transaction that the server has rolled back: without one,
// every statement is there for good.
func (*dialect) CheckJoinable(l server.Session) error {
	for _, statement := range []string{"savepoint", "release savepoint"} {
		if _, err := l.Tx.ExecContext(l.Ctx, fill(statement, "{name}", "onlyonce_join")); err != nil {
			if numberOf(err) == 1305 {
				return transact.ErrEnded
			}
			return err
		}
	}
	return nil
}

// purgeBatch is how many rows a statement deletes.
const purgeBatch = 500

func (m *dialect) Lapse(l server.Session, limit int) (int, error) {
	now, err := l.Number("time")
	if err != nil {
		return 0, err
	}
	var ids []any
	err = l.Query("lapsed", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		ids = append(ids, r.Bytes("id"))
		return r.Err
	}, now, int64(min(limit, purgeBatch)))
	if err != nil {
		return 0, err
	}
	return m.remove(l, "lapse", now, ids)
}

// Purge deletes what is due and not in use. A command that a transaction runs
// keeps its row: that transaction chose its fence when it looked.
func (m *dialect) Purge(l server.Session, limit int) (rows, records int, err error) {
	now, err := l.Number("time")
	if err != nil {
		return 0, 0, err
	}
	var due []any
	highest := int64(0)
	err = l.Query("due", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		due = append(due, r.Bytes("id"))
		highest = max(highest, r.Int("fence"))
		return r.Err
	}, now, int64(min(limit, purgeBatch)))
	if rows = len(due); err != nil || rows == 0 {
		return rows, 0, err
	}
	upTo, err := l.Cover(highest, now, floorSpread)
	if err != nil {
		return 0, 0, err
	}
	free, err := m.free(l, upTo, due)
	if err != nil {
		return 0, 0, err
	}
	if _, err := m.remove(l, "purge", now, free[true]); err != nil {
		return 0, 0, err
	}
	records, err = m.remove(l, "purge", now, free[false])
	switch {
	case len(free) == 0:
		rows = 0 // what is due is in use
	case rows == purgeBatch:
		rows = limit // there may be more
	}
	return rows, records, err
}

// free returns those of the rows that no transaction runs; true: of released
// commands. It returns none if the floor does not cover them any more.
func (m *dialect) free(l server.Session, upTo int64, ids []any) (map[bool][]any, error) {
	if floor, err := l.Number("floor"); err != nil || floor < upTo {
		l.Uncover()
		return nil, err
	}
	free := make(map[bool][]any)
	rows, err := l.DB.QueryContext(l.Ctx, withIDs("free", ids), append([]any{[]byte(m.database)}, ids...)...)
	if err != nil {
		return nil, err
	}
	return free, engine.Scan(rows, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		id, released := r.Bytes("id"), r.Text("state") == record.StateReleased
		free[released] = append(free[released], id)
		return r.Err
	})
}

// withIDs is a statement for so many rows.
func withIDs(name string, ids []any) string {
	return strings.Replace(texts[name], "{ids}", strings.TrimSuffix(strings.Repeat("?, ", len(ids)), ", "), 1)
}

// remove runs a statement on the rows of the ids that are still due.
func (*dialect) remove(l server.Session, name string, now int64, ids []any) (int, error) {
	if len(ids) == 0 {
		return 0, nil
	}
	text := withIDs(name, ids)
	var n int64
	err := l.Again(func() error {
		res, err := l.DB.ExecContext(l.Ctx, text, append([]any{now}, ids...)...)
		if err != nil {
			return err
		}
		n, err = res.RowsAffected()
		return err
	})
	return int(n), err
}
