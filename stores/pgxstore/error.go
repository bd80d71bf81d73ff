package pgxstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// wrap adds the store and the operation to an error.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: %s: %w", doing, err)
}

// The errors of PostgreSQL that only this store knows: the first two are those of its own
// statements that affect no row.
const (
	codeDivision    = "22012"
	codeRoot        = "2201F"
	codeUnique      = "23505"
	codeResultType  = "0A000"
	codeNoStatement = "26000"
)

// isStalePlan reports whether a prepared statement no longer fits the schema, as after a
// migration, or is gone.
func isStalePlan(err error) bool {
	c := postgres.Code(err)
	return c == codeResultType || c == codeNoStatement
}

// claimed reports whether a new record conflicts with one that was created meanwhile.
func claimed(err error) bool {
	var e *pgconn.PgError
	return errors.As(err, &e) && e.Code == codeUnique && e.TableName == "onlyonce_records"
}

// classify says what an error of the server, or of a connection, means for a call that
// may be repeated.
func classify(err error) transact.Class {
	c := postgres.Code(err)
	var rejected *pgconn.ConnectError
	switch {
	case errors.Is(err, engine.ErrNoFence):
		return transact.Temporary
	case postgres.EndsConnection(c):
		return transact.Broken
	case c != "":
		return postgres.Classify(err).Repeated()
	case pgconn.Timeout(err), errors.Is(err, context.Canceled), errors.As(err, &rejected):
		return transact.Temporary
	}
	return transact.Broken
}

// isRejected reports whether the server has rejected a statement, and so rolled back the
// transaction that it was to end.
func isRejected(err error) bool {
	switch postgres.Classify(err) {
	case server.ClassRejected, server.ClassReadOnly, server.ClassTooLarge:
		return true
	}
	return false
}

// isRetryable reports whether the transaction may be run again from its beginning.
func isRetryable(err error) bool { return postgres.Classify(err) == server.ClassConflict }
