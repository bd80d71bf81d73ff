package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A group is to take no plan that was made when the table was empty, and is to
// give up rather than wait for the one among it whose row is locked.
const postgresGroup = `BEGIN ISOLATION LEVEL READ COMMITTED;
SET LOCAL lock_timeout = '100ms'; SET LOCAL synchronous_commit = on;
SET LOCAL jit = off; SET LOCAL enable_seqscan = off; SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off`

// groupPostgres lets callers write in groups if the driver knows arrays.
func groupPostgres(ctx context.Context, s *server) {
	var n int
	err := s.db.QueryRowContext(ctx, "SELECT cardinality($1::bytea[])", [][]byte{{0}, nil}).Scan(&n)
	if err == nil && n == 2 && s.db.Stats().MaxOpenConnections != 1 {
		s.group(postgres{})
	}
}

// errCommit is the error of a commit that may have taken effect.
var errCommit = errors.New("commit a group")

// together runs one statement in a transaction, on one connection.
func (postgres) together(ctx context.Context, s *server, name string, row func([]driver.Value) error, args ...any) (err error) {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.ExecContext(ctx, postgresGroup); err != nil {
		return discard(conn, err)
	}
	rows, err := conn.QueryContext(ctx, pgschema.Text[name], args...)
	if err == nil {
		err = scan(rows, row)
	}
	end := "COMMIT"
	if err != nil {
		end = "ROLLBACK"
	}
	if _, e := conn.ExecContext(ctx, end); e != nil {
		if err == nil {
			e = fmt.Errorf("%w: %w", errCommit, e)
		}
		return discard(conn, e)
	}
	return err
}

// discard gives up a connection whose transaction may be open.
func discard(conn *sql.Conn, err error) error {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	return err
}

func (p postgres) writeClaims(ctx context.Context, s *server, claims []*groupedClaim) error {
	columns := pgschema.ClaimColumns(claims, func(j *groupedClaim) (*[32]byte, *onlyonce.Claim) { return &j.key.hash, j.claim })
	owned := byOwner(claims, func(j *groupedClaim) string { return j.claim.Owner })
	given := make(map[*groupedClaim]int64, len(claims))
	err := p.together(ctx, s, "claims", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		owner, fence := r.Text("owner"), r.Int("fence")
		if j := owned[owner]; j != nil {
			given[j] = fence
		}
		return r.Err
	}, columns...)
	if err != nil {
		return err
	}
	for j, fence := range given {
		j.given, j.fence = true, fence
	}
	return nil
}

func (p postgres) writeSettles(ctx context.Context, s *server, settles []*groupedSettle) error {
	columns := pgschema.SettleColumns(settles, func(j *groupedSettle) (*[32]byte, *onlyonce.Hold, *onlyonce.Settlement) {
		return &j.key.hash, j.hold, j.settlement
	})
	owned := byOwner(settles, func(j *groupedSettle) string { return j.hold.Owner })
	done := make([]*groupedSettle, 0, len(settles))
	err := p.together(ctx, s, "settles", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		if j := owned[r.Text("owner")]; j != nil {
			done = append(done, j)
		}
		return r.Err
	}, columns...)
	for _, j := range done {
		j.done, j.doubt = err == nil, errors.Is(err, errCommit)
	}
	return err
}
