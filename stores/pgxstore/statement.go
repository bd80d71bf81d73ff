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

// A statement writes at most one row. Once it is read, it holds whether it wrote one and
// what it returned.
type statement struct {
	name  string
	key   *record.Key
	args  []any // nil for a claim and a settlement that may go with others of their kind
	into  []any // where its columns go; nil: only whether it returns a row counts
	wrote bool  // it affected a row

	// repeated says that it was sent again because its result was lost: the first
	// one may have written.
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

// read reads the statement's result.
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

// endArgs are the arguments of "settle or fail" and "release or fail" besides what a
// settled record holds.
type endArgs struct {
	token []byte
	hold  server.HoldArgs
	mark  any // of the transaction; nil: none
}

// settle lists the arguments of "settle or fail".
func (a *endArgs) settle(s server.SettledArgs) []any {
	return s.List(a.token, a.hold.Hash, a.hold.Owner, a.hold.Fence, a.mark)
}

// release lists the arguments of "release or fail".
func (a *endArgs) release() []any {
	return []any{a.token, a.hold.Hash, a.hold.Owner, a.hold.Fence, a.mark}
}

// recordNew lists the arguments of "record new or fail", which meets no row.
func recordNew(a *postgres.RecordArgs) []any {
	return a.Settled.List(a.ID.Hash, a.ID.Tenant, a.ID.Operation, a.ID.Key, a.Fingerprint, a.Owner, a.Attempt, a.Fence, a.Steps, a.CreatedAt, a.Mark, a.Token)
}
