package pgxstore

import (
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

//go:embed statements.sql
var file string

// sqlText is every statement by its name: those of the stores on PostgreSQL, and the
// store's own.
var sqlText = postgres.Statements(file)

// The statements that end a transaction, and fail if they affect no row.
const (
	recordNewOrFail = "record new or fail"
	recordOrFail    = "record or fail"
	settleOrFail    = "settle or fail"
	releaseOrFail   = "release or fail"
)

// A statement writes at most one row. It reports whether it did, and what it returned.
type statement struct {
	name  string
	key   *record.Key
	args  []any // nil for a claim and a settlement that may go with others of their kind
	into  []any // what it returns; nil: nothing that counts
	wrote bool  // it affected a row

	// repeated says that it was sent again because its answer was lost: the first
	// time may have been the one that wrote.
	repeated bool

	claim      *onlyonce.Claim // of a new command
	hold       *onlyonce.Hold  // to settle
	settlement *onlyonce.Settlement
	fence      int64 // that the claim got
}

func (s *statement) queue(b *pgx.Batch) {
	switch {
	case s.claim != nil:
		s.args, s.into = postgres.Encode.Claim(s.key, s.claim).List(), []any{&s.fence}
	case s.settlement != nil:
		s.args = postgres.Encode.Settled(s.settlement).Settle(server.HoldOf(s.key, s.hold))
	}
	b.Queue(sqlText[s.name], s.args...)
}

// read takes the statement's part of a pipeline.
func (s *statement) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	s.wrote = false
	for rows.Next() {
		s.wrote = true
		if s.into == nil {
			continue
		}
		if err := rows.Scan(s.into...); err != nil {
			rows.Close()
			return err
		}
	}
	rows.Close()
	return rows.Err()
}

// endsCommand reports whether the statement may end a command that others wait for.
func (s *statement) endsCommand() bool {
	switch s.name {
	case "settle", "release", "resolve", "remove", recordNewOrFail, recordOrFail, settleOrFail, releaseOrFail:
		return true
	}
	return false
}
