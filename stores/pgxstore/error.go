package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// wrap adds the store and the operation to an error.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: %s: %w", doing, err)
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

// claimed reports that a new record met one that was created meanwhile.
func claimed(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeUnique && e.TableName == "onlyonce_records"
}

// classify says what an error of the server, or of a connection, means for a call that
// may be repeated. A server that ends connections, or accepts no new ones, returns an
// SQLSTATE of class 53 (insufficient resources) or 57 (operator intervention). An error
// without an SQLSTATE comes from the connection.
func classify(err error) transact.Class {
	c := code(err)
	var refused *pgconn.ConnectError
	switch {
	case errors.Is(err, engine.ErrNoFence):
		return transact.Temporary
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
