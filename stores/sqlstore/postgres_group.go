package sqlstore

import (
	"context"
	"database/sql"
	"database/sql/driver"

	"github.com/onlyonce-go/onlyonce/stores/internal/pgschema"
	"github.com/onlyonce-go/onlyonce/stores/internal/sqlrow"
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
	n := len(claims)
	ids, owners, fingerprints, leases := make([][]byte, n), make([][]byte, n), make([][]byte, n), make([]int64, n)
	tenants, operations, keys := make([]string, n), make([]string, n), make([]string, n)
	for i, j := range claims {
		c := j.claim
		ids[i], owners[i], fingerprints[i], leases[i] = j.key.hash[:], []byte(c.Owner), c.Fingerprint, c.Lease.Microseconds()
		tenants[i], operations[i], keys[i] = pgschema.Escape(c.ID.Tenant), pgschema.Escape(c.ID.Operation), pgschema.Escape(c.ID.Key)
	}
	owned := byOwner(claims, func(j *groupedClaim) string { return j.claim.Owner })
	given := make(map[*groupedClaim]int64, n)
	err := p.together(ctx, s, "claims", func(v []driver.Value) error {
		r := sqlrow.Reader{Values: v}
		owner, fence := r.Text("owner"), r.Int("fence")
		if j := owned[owner]; j != nil {
			given[j] = fence
		}
		return r.Err
	}, ids, tenants, operations, keys, fingerprints, owners, leases)
	if err != nil {
		return err
	}
	for j, fence := range given {
		j.given, j.fence = true, fence
	}
	return nil
}

func (p postgres) writeSettles(ctx context.Context, s *server, settles []*groupedSettle) error {
	n := len(settles)
	states, statuses, finals := make([]string, n), make([]int32, n), make([]bool, n)
	refs, errs, headers, bodies, keeps := make([]*string, n), make([]*string, n), make([]*string, n), make([][]byte, n), make([]*int64, n)
	ids, owners, fences := make([][]byte, n), make([][]byte, n), make([]int64, n)
	for i, j := range settles {
		st := j.settlement
		states[i], statuses[i], finals[i] = string(st.State), int32(st.Result.Status), st.Final //nolint:gosec // as the column has it
		refs[i], errs[i], bodies[i] = p.optional(st.Result.Ref), p.optional(st.Error), st.Result.Body
		if h, ok := sqlrow.EncodeHeader(st.Result.Header).(string); ok {
			headers[i] = &h
		}
		if keep, ok := keepOf(st).(int64); ok {
			keeps[i] = &keep
		}
		ids[i], owners[i], fences[i] = j.key.hash[:], []byte(j.hold.Owner), j.hold.Fence
	}
	owned := byOwner(settles, func(j *groupedSettle) string { return j.hold.Owner })
	done := make([]*groupedSettle, 0, n)
	err := p.together(ctx, s, "settles", func(v []driver.Value) error {
		r := sqlrow.Reader{Values: v}
		if j := owned[r.Text("owner")]; j != nil {
			done = append(done, j)
		}
		return r.Err
	}, states, statuses, finals, refs, errs, headers, bodies, keeps, ids, owners, fences)
	if err != nil {
		return err
	}
	for _, j := range done {
		j.done = true
	}
	return nil
}

// optional is NULL for an empty text.
func (postgres) optional(s string) *string {
	if s == "" {
		return nil
	}
	s = pgschema.Escape(s)
	return &s
}
