package pgxstore

import (
	_ "embed"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/group"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
)

//go:embed statements.sql
var file string

// sqlText is every statement by its name: those of the stores on PostgreSQL, and the
// store's own. They are for no store in particular: see postgres.Identity.
var sqlText = postgres.Statements(file)

// A query is the name of a statement, with its properties.
type query struct {
	name   string
	inTx   string // the name of the one in a transaction of the caller's
	traits traits
}

// traits are the properties of a query.
type traits uint8

const (
	// endsCommand says that it may end a command that others wait for.
	endsCommand traits = 1 << iota

	// sentOnce says that it is not sent again when its result was lost: the row does not
	// show who deleted or replaced it.
	sentOnce
)

func (q *query) has(t traits) bool { return q.traits&t != 0 }

func newQuery(name string, t traits) *query {
	return &query{name: name, inTx: server.InTx(sqlText, name), traits: t}
}

// The queries about one record. The last four end a transaction, and fail if they affect no
// row.
var (
	claimQuery           = newQuery("claim", 0)
	raiseQuery           = newQuery("raise", 0)
	takeQuery            = newQuery("take", 0)
	renewQuery           = newQuery("renew", 0)
	stepQuery            = newQuery("step", 0)
	settleQuery          = newQuery("settle", endsCommand)
	releaseQuery         = newQuery("release", endsCommand|sentOnce)
	resolveQuery         = newQuery("resolve", endsCommand|sentOnce)
	removeQuery          = newQuery("remove", endsCommand|sentOnce)
	resolveAndAuditQuery = newQuery("resolve and audit", endsCommand|sentOnce)
	removeAndAuditQuery  = newQuery("remove and audit", endsCommand|sentOnce)
	replicateQuery       = newQuery("replicate", 0)
	recordNewOrFailQuery = newQuery("record new or fail", endsCommand)
	recordOrFailQuery    = newQuery("record or fail", endsCommand)
	settleOrFailQuery    = newQuery("settle or fail", endsCommand)
	releaseOrFailQuery   = newQuery("release or fail", endsCommand)
)

// A statement writes at most one row. Once it is read, it holds whether it wrote one and
// what it returned. A caller that leaves before that gets an error, and must read neither of them,
// nor the values that into points to.
type statement struct {
	query *query
	inTx  bool // it runs in a transaction of the caller's
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

// isLong reports whether statements with short values need not wait for this one.
func (s *statement) isLong() bool {
	size := 0
	if s.settlement != nil {
		size = record.ResultSize(s.settlement)
	}
	for _, arg := range s.args {
		switch v := arg.(type) {
		case []byte:
			size += len(v)
		case string:
			size += len(v)
		}
	}
	return size > group.LongestShared
}

func (s *statement) queue(b *pgx.Batch, text map[string]string) {
	switch {
	case s.claim != nil:
		s.args, s.into = postgres.Encode.Claim(s.key, s.claim).List(), []any{&s.fence}
	case s.settlement != nil:
		s.args = postgres.Encode.Settled(s.settlement).Settle(server.HoldOf(s.key, s.hold))
	}
	name := s.query.name
	if s.inTx {
		name = s.query.inTx
	}
	b.Queue(text[name], s.args...)
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
