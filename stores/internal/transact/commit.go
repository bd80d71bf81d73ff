package transact

import (
	"bytes"
	"crypto/rand"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A Commit identifies a function's transaction, so that the store can find out later whether
// it was committed. Only that transaction writes Token, and only another function's
// transaction replaces it. Owner, fence and state do not tell, because any settlement of
// the hold leaves the same ones.
type Commit struct {
	Token  []byte // random; the transaction's settlement writes it into the row
	Fence  int64  // of the attempt that is settled
	Before []byte // the token in the row that the transaction saw; nil: none
}

// A Trace is the part of a command's row that shows which transaction wrote it.
type Trace struct {
	Fence     int64  // 0: there is no row
	SettledAt int64  // 0: not settled
	Token     []byte // of the last transaction that settled it; nil: none did
	Floor     int64  // no row with a higher fence was ever deleted
	Server    int64  // names the server if that may lose the row in a failover; 0: nothing does
}

// ReadTrace reads a row of the statement "trace".
func ReadTrace(values []driver.Value) (Trace, error) {
	r := record.Reader{Values: values}
	now := Trace{Fence: r.Int("fence"), SettledAt: r.Int("settled_at"), Token: r.Bytes("commit_token"), Floor: r.Int("floor")}
	replica := r.Int("replica") != 0
	now.Server = r.Int("server")
	if replica && r.Err == nil {
		return now, ErrReplica
	}
	return now, r.Err
}

// ErrReplica is the error of a look for a transaction on a replica, which may not have it yet.
var ErrReplica = errors.New("the response came from a replica, which may lack the latest commits: connect to the primary only (on PostgreSQL: target_session_attrs=read-write)")

// ErrReadOnly is the error of a transaction that can only read: its function must not run,
// because nothing that it does could be committed.
var ErrReadOnly = fmt.Errorf("%w: the transaction can only read, as on a replica: connect to the primary only (on PostgreSQL: target_session_attrs=read-write), and let transactions write (on PostgreSQL: default_transaction_read_only = off; on MySQL: read_only = 0 and transaction_read_only = 0; on MariaDB: tx_read_only = 0)", onlyonce.ErrUnavailable)

// NewToken returns the token of one transaction.
func NewToken() []byte {
	token := make([]byte, 16)
	rand.Read(token) // never fails
	return token
}

// TokenLock returns the number of the lock that a transaction holds until it has ended, so
// that a store can wait for its end.
func TokenLock(token []byte) int64 { return int64(binary.BigEndian.Uint64(token)) } // any 64 bits will do

// The errors of a commit whose result was lost.
var (
	ErrNotCommitted = errors.New("the transaction was not committed")
	ErrMovedOn      = errors.New("other attempts have written the record since")
)

// Committed returns nil if a transaction that has ended was committed, ErrNotCommitted if
// it was not, and ErrMovedOn if the row no longer shows it.
func (c *Commit) Committed(now Trace) error {
	there := now.Fence != 0
	switch {
	case there && bytes.Equal(now.Token, c.Token):
		return nil
	case there && now.Fence <= c.Fence: // the row has been this attempt's, or an earlier one's, ever since
		return ErrNotCommitted
	case now.Floor < c.Fence && (!there || bytes.Equal(now.Token, c.Before)): // a row with the token was neither deleted nor settled again
		return ErrNotCommitted
	}
	return ErrMovedOn
}
