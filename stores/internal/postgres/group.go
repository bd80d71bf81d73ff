package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

// groupWrites lets callers write in groups if the driver supports arrays.
func (p dialect) groupWrites(ctx context.Context, s *server.Store) {
	var n int
	err := s.DB.QueryRowContext(ctx, p.text["arrays"], [][]byte{{0}, nil}).Scan(&n)
	if err == nil && n == 2 && s.DB.Stats().MaxOpenConnections != 1 {
		s.Group(p, nil)
	}
}

// errCommit is the error of a commit that may have taken effect.
var errCommit = errors.New("commit a group")

// together runs one statement in a transaction, on one connection.
func (p dialect) together(ctx context.Context, s *server.Store, name string, row func([]driver.Value) error, args ...any) (err error) {
	conn, err := s.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err = conn.ExecContext(ctx, p.text["group begin"]); err != nil {
		return server.Discard(conn, err)
	}
	rows, err := conn.QueryContext(ctx, p.text[name], args...)
	if err == nil {
		err = engine.Scan(rows, row)
	}
	end := "commit"
	if err != nil {
		end = "rollback"
	}
	_, e := conn.ExecContext(ctx, p.text[end])
	if e == nil {
		e = ctx.Err() // see Runner.Again
	}
	if e != nil {
		if err == nil {
			e = fmt.Errorf("%w: %w", errCommit, e)
		}
		return server.Discard(conn, e)
	}
	return err
}

func (p dialect) WriteClaims(ctx context.Context, s *server.Store, claims []*server.GroupedClaim) error {
	columns := ClaimColumns(claims, func(j *server.GroupedClaim) (*[32]byte, *onlyonce.Claim) { return &j.Key.Hash, j.Claim })
	owned := server.ByOwner(claims, func(j *server.GroupedClaim) string { return j.Claim.Owner })
	granted := make(map[*server.GroupedClaim]int64, len(claims))
	err := p.together(ctx, s, "claims", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		owner, fence := r.Text("owner"), r.Int("fence")
		if j := owned[owner]; j != nil {
			granted[j] = fence
		}
		return r.Err
	}, columns...)
	for j, fence := range granted {
		j.Granted, j.Fence, j.Doubt = err == nil, fence, errors.Is(err, errCommit)
	}
	return err
}

func (p dialect) WriteSettles(ctx context.Context, s *server.Store, settles []*server.GroupedSettle) error {
	columns := SettleColumns(settles, func(j *server.GroupedSettle) (*[32]byte, *onlyonce.Hold, *onlyonce.Settlement) {
		return &j.Key.Hash, j.Hold, j.Settlement
	})
	owned := server.ByOwner(settles, func(j *server.GroupedSettle) string { return j.Hold.Owner })
	done := make([]*server.GroupedSettle, 0, len(settles))
	err := p.together(ctx, s, "settles", func(v []driver.Value) error {
		r := record.Reader{Values: v}
		if j := owned[r.Text("owner")]; j != nil {
			done = append(done, j)
		}
		return r.Err
	}, columns...)
	for _, j := range done {
		j.Done, j.Doubt = err == nil, errors.Is(err, errCommit)
	}
	return err
}
