package mysql

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"sync"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// A grouper has a connection for each kind of group, whose statements are
// prepared once for each size.
type grouper struct {
	dialect         *dialect
	claims, settles groupConn
}

// groupWrites lets callers write in groups if the pool can do without two of
// its connections.
func groupWrites(s *server.Store, m *dialect) {
	if most := s.DB.Stats().MaxOpenConnections; most == 0 || most >= 6 {
		g := &grouper{dialect: m}
		s.Group(g, func() {
			g.claims.discard()
			g.settles.discard()
		})
	}
}

// A groupConn is a connection with its prepared statements. The leader of a queue uses it.
type groupConn struct {
	mu       sync.Mutex
	conn     *sql.Conn
	prepared map[string]*sql.Stmt
}

// use calls f once the connection is open, and closes the connection if f fails.
func (l *groupConn) use(ctx context.Context, s *server.Store, f func() error) (err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.conn == nil {
		conn, err := s.DB.Conn(ctx)
		if err != nil {
			return err
		}
		if _, err := conn.ExecContext(ctx, texts["session"]); err != nil {
			return errors.Join(err, conn.Close())
		}
		if _, err := conn.ExecContext(ctx, texts["isolation"]); err != nil {
			return errors.Join(err, server.Discard(conn, nil))
		}
		l.conn, l.prepared = conn, make(map[string]*sql.Stmt)
	}
	if err := f(); err != nil {
		l.drop()
		return err
	}
	return nil
}

func (l *groupConn) discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.drop()
}

// drop closes the connection, whose session has other settings than the pool's.
func (l *groupConn) drop() {
	if l.conn != nil {
		for _, st := range l.prepared {
			_ = st.Close()
		}
		_ = server.Discard(l.conn, nil)
		l.conn = nil
	}
}

// statement returns a statement for so many rows: its text between {row} and {/row} is
// there once for each, with a separator.
func (l *groupConn) statement(ctx context.Context, text, separator string, rows int) (*sql.Stmt, error) {
	before, rest, _ := strings.Cut(text, "{row}")
	row, after, _ := strings.Cut(rest, "{/row}")
	text = before + row + strings.Repeat(separator+row, rows-1) + after
	if st := l.prepared[text]; st != nil {
		return st, nil
	}
	st, err := l.conn.PrepareContext(ctx, text)
	if err == nil {
		l.prepared[text] = st
	}
	return st, err
}

func (g *grouper) WriteClaims(ctx context.Context, s *server.Store, claims []*server.GroupedClaim) error {
	return g.claims.use(ctx, s, func() error {
		var now, floor int64
		if err := g.read(ctx, &g.claims, "clock", ", ", 1, func(r *record.Reader) { now, floor = r.Int("now"), r.Int("floor") }); err != nil {
			return err
		}
		fence, size := max(now, floor+1), server.GroupSize(len(claims))
		values := make([]any, 0, 10*size)
		for i := range size {
			j := claims[min(i, len(claims)-1)]
			c := j.Claim
			row := claimRow{
				hash: j.Key.Hash[:], tenant: []byte(c.ID.Tenant), operation: []byte(c.ID.Operation), key: []byte(c.ID.Key),
				fingerprint: record.NullBytes(record.EncodePrint(c.Fingerprint, c.Summary)), owner: []byte(c.Owner), fence: fence, lapsedKeep: record.LapsedKeep(c), leaseUntil: now + c.Lease.Microseconds(),
			}
			values = row.appendTo(values)
		}
		if err := g.dialect.CheckPacketSize(values); err != nil {
			return err
		}
		inserted, err := g.write(ctx, &g.claims, "claims", ", ", size, values)
		for _, j := range claims {
			j.Doubt = err == nil || !g.dialect.hadNoEffect(err)
		}
		if err != nil {
			return err
		}
		if inserted == int64(len(claims)) && !g.dialect.foundRows {
			for _, j := range claims {
				j.Granted, j.Fence = true, fence
			}
			return nil
		}
		owned := server.ByOwner(claims, func(j *server.GroupedClaim) string { return j.Claim.Owner })
		hash := func(i int) []byte { return claims[min(i, len(claims)-1)].Key.Hash[:] }
		return g.owners(ctx, &g.claims, size, hash, func(r *record.Stored) {
			if j := owned[r.Owner]; j != nil && r.HeldBy(&onlyonce.Hold{Owner: j.Claim.Owner, Fence: fence}) {
				j.Granted, j.Fence = true, fence
			}
		})
	})
}

// owners reads the owners, fences and states that the records have now.
func (g *grouper) owners(ctx context.Context, conn *groupConn, size int, hash func(i int) []byte, each func(*record.Stored)) error {
	ids := make([]any, size)
	for i := range ids {
		ids[i] = hash(i)
	}
	return g.read(ctx, conn, "owners", ", ", size, func(r *record.Reader) {
		var s record.Stored
		s.Owner, s.Fence, s.As = r.Text("owner"), r.Int("fence"), r.Text("state")
		s.State, s.Expired, s.Server = onlyonce.State(s.As), r.Int("expired") != 0, r.Int("server")
		each(&s)
	}, ids...)
}

func (g *grouper) WriteSettles(ctx context.Context, s *server.Store, settles []*server.GroupedSettle) error {
	return g.settles.use(ctx, s, func() error {
		size := server.GroupSize(len(settles))
		values := make([]any, 0, 11*size)
		l := s.Runner(ctx)
		for i := range size {
			j := settles[min(i, len(settles)-1)]
			row := settleRow{settled: l.Encode.Settled(j.Settlement), owner: []byte(j.Hold.Owner), fence: j.Hold.Fence}
			if i < len(settles) { // a row that only fills the size has no ID
				row.hash = j.Key.Hash[:]
			}
			values = row.appendTo(values)
		}
		if err := g.dialect.CheckPacketSize(values); err != nil {
			return err
		}
		changed, err := g.write(ctx, &g.settles, "settles", " UNION ALL ", size, values)
		for _, j := range settles {
			j.Doubt = changed > 0 || err != nil && !g.dialect.hadNoEffect(err)
		}
		if err != nil {
			return err
		}
		if changed == int64(len(settles)) && !g.dialect.foundRows {
			for _, j := range settles {
				j.Done = true
			}
			return nil
		}
		owned := server.ByOwner(settles, func(j *server.GroupedSettle) string { return j.Hold.Owner })
		hash := func(i int) []byte { return settles[min(i, len(settles)-1)].Key.Hash[:] }
		var settled []*server.GroupedSettle // by this, or before
		var from int64                      // the server that they were read from
		err = g.owners(ctx, &g.settles, size, hash, func(r *record.Stored) {
			if j := owned[r.Owner]; j != nil && r.SettledBy(j.Hold, false) {
				settled, from = append(settled, j), r.Server
			}
		})
		if err == nil && len(settled) > int(changed) {
			var again bool
			if again, err = g.dialect.Flushed(l, from); again {
				return err // each looks again for itself
			}
		}
		if err != nil {
			return err
		}
		for _, j := range settled {
			j.Done = true
		}
		return nil
	})
}

// hadNoEffect reports whether the server rolled the statement back or did not execute it.
func (m *dialect) hadNoEffect(err error) bool {
	n := numberOf(err) // of a wait for a lock that took too long, or would never have ended
	return n == 1205 || n == 1213 || m.Classify(err) == server.ClassOtherCluster
}

func (g *grouper) write(ctx context.Context, conn *groupConn, name, separator string, rows int, values []any) (int64, error) {
	st, err := conn.statement(ctx, g.dialect.texts[name], separator, rows)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(ctx, values...)
	if err != nil {
		return 0, err
	}
	return res.RowsAffected()
}

func (g *grouper) read(ctx context.Context, conn *groupConn, name, separator string, rows int, row func(*record.Reader), values ...any) error {
	st, err := conn.statement(ctx, g.dialect.texts[name], separator, rows)
	if err != nil {
		return err
	}
	found, err := st.QueryContext(ctx, values...)
	if err != nil {
		return err
	}
	return engine.Scan(found, func(v []driver.Value) error {
		r := record.Reader{Values: v}
		row(&r)
		return r.Err
	})
}
