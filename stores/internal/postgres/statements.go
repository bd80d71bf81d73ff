package postgres

import (
	_ "embed"
	"encoding/binary"
	"strconv"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

//go:embed statements.sql
var statementsFile string

//go:embed outbox.sql
var outboxFile string

// Text is every statement by its name, for no store in particular: see Identity.
var Text = Statements("")

// Statements returns every statement by its name, with those of another file, which may
// name parts and statements of this package.
func Statements(more string) map[string]string {
	return record.Blocks(record.Expiry("onlyonce_now()").Replace(statementsFile + outboxFile + engine.Common + engine.Listed + server.Common + more))
}

// List returns the one of the statements that reads a page of the records that f lists, but
// for its state, and its arguments.
func List(statements map[string]string, f onlyonce.Filter, p *record.Page) (text string, args []any) {
	name, ids := record.ListStatement(f)
	args = []any{p.Before.CreatedAt, p.Before.Hash[:], int64(p.Limit)}
	for _, id := range ids {
		args = append(args, id)
	}
	text, values := record.List(statements[name], f, func(n int) string { return "$" + strconv.Itoa(n) }, len(args)+1)
	for _, v := range values {
		args = append(args, Escape(v))
	}
	return text, args
}

// LockNames returns the numbers of the advisory locks, in the order of the statement
// "lock". If two commands share a number, one of them looks as if it were running, until
// the other has ended.
func LockNames(l *transact.Locks) (request, command, uncompared int64) {
	return name(l.Request), name(l.Command), name(l.Uncompared)
}

func name(lock [32]byte) int64 { return int64(binary.BigEndian.Uint64(lock[:])) } // any 64 bits will do
