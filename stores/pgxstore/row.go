package pgxstore

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
)

// A row receives the columns of the statements that look records up.
type row struct {
	record.Row
	owner             []byte
	settled, expires  pgtype.Int8
	ref, text, header pgtype.Text
	steps             pgtype.Text
}

// into is where the columns go, in their order.
func (r *row) into(more ...any) []any {
	return append([]any{
		&r.CreatedAt, &r.Tenant, &r.Operation, &r.Key, &r.Fingerprint, &r.State, &r.owner, &r.Attempt, &r.Fence, &r.LeaseUntil, &r.settled, &r.expires,
		&r.Status, &r.Final, &r.ref, &r.text, &r.header, &r.steps, &r.Body, &r.Now,
	}, more...)
}

// A stored record is a row as it was read.
type stored = record.Stored

func (r *row) stored() *stored {
	r.Owner, r.SettledAt, r.ExpiresAt = string(r.owner), r.settled.Int64, r.expires.Int64
	r.Ref, r.Error, r.Header = r.ref.String, r.text.String, r.header.String
	if r.steps.Valid {
		r.Steps = r.steps.String
	}
	s := postgres.Record(r.Row)
	return &s
}

// A session is a connection, or a transaction of the caller's.
type session interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// look returns the record of k, which may have expired, or nil.
func look(ctx context.Context, on session, k *record.Key) (*stored, error) {
	rows, err := on.Query(ctx, sqlText["lookup"], k.Hash[:])
	if err != nil {
		return nil, err
	}
	return collect(rows, k)
}

// collect reads the record of k, which may have expired, or nil.
func collect(rows pgx.Rows, k *record.Key) (*stored, error) {
	r, err := pgx.CollectExactlyOneRow(rows, func(rows pgx.CollectableRow) (*row, error) {
		r := new(row)
		return r, rows.Scan(r.into()...)
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
