package mysql

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// Begin turns autocommit off for the session. If the server rolls the transaction back, as
// after a deadlock, later statements of the function are in a transaction, too, and are not
// committed.
func (m *dialect) Begin(ctx context.Context, conn *sql.Conn, locks *transact.Locks, token []byte) (*sql.Tx, string, error) {
	if _, err := conn.ExecContext(ctx, fill(texts["begin"], "{token}", tokenLock(token))); err != nil {
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
	if _, err := tx.ExecContext(ctx, fill(texts["savepoint"], "{name}", transact.SavepointName(token))); err != nil {
		return nil, "", errors.Join(err, tx.Rollback())
	}
	return tx, got, nil
}

// lockSQL returns the statement that takes the locks.
func (m *dialect) lockSQL(l *transact.Locks) string {
	if l.Request == l.Uncompared {
		return fill(texts["lock uncompared"], "{uncompared}", m.lockName(l.Uncompared), "{command}", m.lockName(l.Command))
	}
	return fill(texts["lock"], "{request}", m.lockName(l.Request), "{command}", m.lockName(l.Command), "{uncompared}", m.lockName(l.Uncompared))
}

// fill returns a statement with its placeholders replaced.
func fill(text string, placeholders ...string) string {
	for i := 0; i < len(placeholders); i += 2 {
		text = strings.Replace(text, placeholders[i], placeholders[i+1], 1)
	}
	return text
}

// End closes a connection whose session it can't restore.
func (m *dialect) End(conn *sql.Conn, locks *transact.Locks, token []byte) {
	ctx, cancel := context.WithTimeout(context.Background(), engine.Reconnect)
	defer cancel()
	undo := fill(texts["end"], "{token}", tokenLock(token))
	if locks != nil {
		undo = fill(texts["end with locks"], "{token}", tokenLock(token),
			"{command}", m.lockName(locks.Command), "{request}", m.lockName(locks.Request), "{uncompared}", m.lockName(locks.Uncompared))
	}
	if _, err := conn.ExecContext(ctx, undo); err != nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
}

// lockName returns the name of a lock. It holds the database, because a lock is the
// server's.
func (m *dialect) lockName(lock [32]byte) string {
	h := sha256.Sum256(append([]byte(m.database+"\x00"), lock[:]...))
	return "onlyonce:" + hex.EncodeToString(h[:24])
}

// tokenLock returns the name of the lock that a transaction holds until it ends. The token is
// random, so no other database has the same.
func tokenLock(token []byte) string { return "onlyonce:" + hex.EncodeToString(token) }

func (m *dialect) Look(l server.Runner, k *record.Key, _ []byte) (seen transact.View, err error) {
	readOnly := false
	err = l.Query("look", func(v []driver.Value) error {
		row, more := v[:len(v)-3], record.Reader{Values: v[len(v)-3:]}
		now := record.Reader{Values: v[record.Columns-1:]}
		seen.Now, seen.Floor, readOnly, seen.Token = now.Int("now"), more.Int("floor"), more.Int("read only") != 0, more.Bytes("commit_token")
		if row[0] != nil {
			r := m.Decode(row)
			seen.Row = &r
		}
		return errors.Join(now.Err, more.Err)
	}, k.Hash[:])
	switch {
	case err == nil && seen.Now == 0:
		err = engine.ErrNoFence
	case err == nil && readOnly:
		_, err = l.Exec("try to write")
		if m.Classify(err) == server.ClassReadOnly {
			err = fmt.Errorf("%w: %w", transact.ErrReadOnly, err)
		}
	}
	return seen, err
}

// Ended waits for the lock that the transaction's session releases after the transaction
// has ended.
func (m *dialect) Ended(ctx context.Context, conn *sql.Conn, token []byte) error {
	var got sql.NullBool
	var replica bool
	if err := conn.QueryRowContext(ctx, fill(m.texts["ended"], "{token}", tokenLock(token))).Scan(&got, &replica); err != nil {
		return err
	}
	if !got.Bool {
		return server.ErrStillRunning
	}
	_, err := conn.ExecContext(ctx, fill(texts["release token"], "{token}", tokenLock(token)))
	if err == nil && replica {
		err = transact.ErrReplica
	}
	return err
}

func (m *dialect) Record(l server.Runner, seen *transact.View, k *record.Key, r *onlyonce.Record, settled server.SettledArgs, token []byte) (settledAt int64, err error) {
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
	if numberOf(err) == 1062 { // another claim has made the row
		return 0, nil
	}
	return settledAt, err
}

func (*dialect) Decision(settled server.SettledArgs, seen server.SeenArgs, owner []byte) []any {
	return decision(settled, seen, owner)
}

// CheckSameTx looks for the savepoint, which is gone if the transaction has ended. Its name
// holds the token, so that no function makes one of the same name by chance.
func (*dialect) CheckSameTx(l server.Runner, _ *transact.View, token []byte) error {
	_, err := l.Tx.ExecContext(l.Ctx, fill(texts["release savepoint"], "{name}", transact.SavepointName(token)))
	if numberOf(err) == 1305 {
		return transact.ErrEnded
	}
	return err
}

// CheckJoinable rejects a transaction that the server has rolled back, because every later
// statement would be committed by itself.
func (*dialect) CheckJoinable(l server.Runner) error {
	for _, statement := range []string{"savepoint", "release savepoint"} {
		if _, err := l.Tx.ExecContext(l.Ctx, fill(texts[statement], "{name}", "onlyonce_join")); err != nil {
			if numberOf(err) == 1305 {
				return transact.ErrEnded
			}
			return err
		}
	}
	return nil
}
