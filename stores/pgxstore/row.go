package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A row receives the columns of the statements that look records up. Where a statement
// returns a row without a record, every column of the record is NULL.
type row struct {
	created                  pgtype.Int8
	tenant, operation, key   pgtype.Text
	fingerprint              []byte
	state                    pgtype.Text
	owner                    []byte
	attempt, fence, lease    pgtype.Int8
	settledAt, expires       pgtype.Int8
	status                   pgtype.Int8
	final                    pgtype.Bool
	ref, text, header, steps pgtype.Text
	body                     []byte
	now                      int64
	server                   int64
}

// into returns where the columns go, in their order.
func (r *row) into(more ...any) []any {
	list := append(make([]any, 0, 20+len(more)),
		&r.created, &r.tenant, &r.operation, &r.key, &r.fingerprint, &r.state, &r.owner, &r.attempt, &r.fence, &r.lease, &r.settledAt, &r.expires,
		&r.status, &r.final, &r.ref, &r.text, &r.header, &r.steps, &r.body, &r.now)
	return append(list, more...)
}

// A stored record is a row as it was read.
type stored = record.Stored

// stored makes the row a record.
func (r *row) stored() *stored {
	was := record.Row{
		CreatedAt: r.created.Int64, Tenant: r.tenant.String, Operation: r.operation.String, Key: r.key.String,
		Fingerprint: r.fingerprint, State: r.state.String, Owner: string(r.owner), Attempt: r.attempt.Int64, Fence: r.fence.Int64,
		LeaseUntil: r.lease.Int64, SettledAt: r.settledAt.Int64, ExpiresAt: r.expires.Int64,
		Status: r.status.Int64, Final: r.final.Bool, Ref: r.ref.String, Error: r.text.String, Header: r.header.String, Body: r.body, Now: r.now,
	}
	if r.steps.Valid {
		was.Steps = r.steps.String
	}
	s := postgres.Record(was)
	s.Server = r.server
	return &s
}

// A querier is a connection, or a transaction of the caller's.
type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// lookOn returns the record of k, which may have expired, or nil.
func (s *Store) lookOn(ctx context.Context, on querier, k *record.Key) (*stored, error) {
	rows, err := on.Query(ctx, s.text["lookup"], k.Hash[:])
	if err != nil {
		return nil, err
	}
	return collect(rows, k)
}

// collect reads the record of k, which may have expired, or nil.
func collect(rows pgx.Rows, k *record.Key) (*stored, error) {
	r, err := pgx.CollectExactlyOneRow(rows, func(rows pgx.CollectableRow) (*row, error) {
		r := new(row)
		return r, rows.Scan(r.into(&r.server)...)
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	s := r.stored()
	return s, s.Check(k.ID)
}

// page reads a page of the records of f but for its state.
func (s *Store) page(ctx context.Context, f onlyonce.Filter, p *record.Page) error {
	if err := s.maintenance.Check(); err != nil {
		return err
	}
	text, args := postgres.List(s.text, f, p)
	rows, err := s.pool.Query(ctx, text, args...)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var r row
		if err := rows.Scan(r.into()...); err != nil {
			return err
		}
		if p.Add(*r.stored()) != nil {
			return nil
		}
	}
	return rows.Err()
}
