package pgxstore

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/record"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// A session is a connection, or a transaction of the caller's.
type session interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// A statement writes at most one row, and says what it wrote.
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
		s.args, s.into = claimArgs(s.key, s.claim), []any{&s.fence}
	case s.settlement != nil:
		s.args = append(values(s.settlement), owned(s.key, s.hold)...)
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

// send sends the statements in one round trip, between two others. Without an
// open transaction they are one. e tells the waiters for the commands that end.
func send(ctx context.Context, on session, e *listener, before string, list []*statement, after string) (err error) {
	var b pgx.Batch
	if before != "" {
		b.Queue(before)
	}
	parts := mergeBulk(list)
	if ended := channels(list); ended != "" {
		parts = append(parts, e.notify(ended))
	}
	for _, p := range parts {
		p.queue(&b)
	}
	if after != "" {
		b.Queue(after)
	}
	results := on.SendBatch(ctx, &b)
	defer func() { err = errors.Join(err, results.Close()) }()
	if before != "" {
		if _, err := results.Exec(); err != nil {
			return err
		}
	}
	for _, p := range parts {
		if err := p.read(results); err != nil {
			return err
		}
	}
	return nil
}

// A part of a pipeline is one statement to the server.
type part interface {
	queue(b *pgx.Batch)
	read(results pgx.BatchResults) error
}

// channels names the keys of the commands that the statements may end.
func channels(list []*statement) string {
	var all strings.Builder
	for _, s := range list {
		if s.endsCommand() {
			all.WriteString(channel(s.key))
		}
	}
	return all.String()
}

// The errors of PostgreSQL that this store knows.
const (
	codeSerialization = "40001"
	codeDeadlock      = "40P01"
	codeAborted       = "25P02"
	codeLockTimeout   = "55P03"
	codeDivision      = "22012"
	codeRoot          = "2201F"
	codeUnique        = "23505"
	codeResultType    = "0A000"
	codeNoStatement   = "26000"
)

// code returns the SQLSTATE of an error of the server, or "".
func code(err error) string {
	if err == nil {
		return ""
	}
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

// isStalePlan reports that a prepared statement no longer fits the schema, as
// after a migration, or that it is gone.
func isStalePlan(err error) bool {
	c := code(err)
	return c == codeResultType || c == codeNoStatement
}

// claimed reports that a new record met another.
func claimed(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeUnique && e.TableName == "onlyonce_records"
}

// classify says what an error of the server, or of a connection, means for a call that
// may be repeated. The server ends connections, or takes no new ones, with an SQLSTATE
// of the classes 53 (insufficient resources) and 57 (operator intervention).
func classify(err error) transact.Class {
	c := code(err)
	var refused *pgconn.ConnectError
	switch {
	case isRetryable(err):
		return transact.Conflict
	case strings.HasPrefix(c, "57P"), strings.HasPrefix(c, "08"):
		return transact.Broken
	case strings.HasPrefix(c, "53"), strings.HasPrefix(c, "57"), strings.HasPrefix(c, "58"), strings.HasPrefix(c, "XX"), c == codeLockTimeout:
		return transact.Temporary
	case c != "":
		return transact.Permanent
	case pgconn.Timeout(err), errors.Is(err, context.Canceled), errors.As(err, &refused):
		return transact.Temporary
	}
	return transact.Broken
}

// isRetryable reports whether the server asks to run the transaction again.
func isRetryable(err error) bool {
	c := code(err)
	return c == codeSerialization || c == codeDeadlock
}
