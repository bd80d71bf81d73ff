package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/engine"
	"github.com/onlyonce-go/onlyonce/stores/internal/postgres"
	"github.com/onlyonce-go/onlyonce/stores/internal/server"
	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// wrap adds the store and the operation to an error, and advice.
func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("pgxstore: %s: %w", doing, explain(err))
}

// explain adds advice to an error of the server.
func explain(err error) error {
	if err == nil || errors.Is(err, errRunAgain) || errors.Is(err, errMayHaveWritten) {
		return err
	}
	return server.Explain(postgres.Classify(err), err)
}

// errMayHaveWritten is the error of a call that failed after it may have written. It is never
// onlyonce.ErrUnavailable, by which a Guard concludes that it need not look for its claim.
var errMayHaveWritten = errors.New("it may have been written although it failed")

// inDoubt makes err an errMayHaveWritten.
func inDoubt(err error) error {
	if errors.Is(err, onlyonce.ErrUnavailable) {
		return fmt.Errorf("%w: %v", errMayHaveWritten, err)
	}
	return fmt.Errorf("%w: %w", errMayHaveWritten, err)
}

// ErrOtherCluster says that a call has reached another server, database or schema than the one
// on which the store was opened, and has written nothing there. Otherwise, commands would run
// once in each. After the server was replaced on purpose, open the store again.
var ErrOtherCluster = server.ErrOtherCluster

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

// classify returns the class of an error of the server, or of a connection, for a call that
// may be repeated.
func classify(err error) transact.Class {
	c := postgres.Code(err)
	var rejected *pgconn.ConnectError
	switch {
	case errors.Is(err, engine.ErrNoFence):
		return transact.Temporary
	case errors.Is(err, errAborted):
		return transact.Permanent
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
	case server.ClassRejected, server.ClassReadOnly, server.ClassOtherCluster, server.ClassTooLarge:
		return true
	}
	return false
}

// isGivenUp reports whether the server began to execute a statement and gave it up: it took too
// long, was canceled, or lacked memory or space. Then the server does not execute what follows
// in the pipeline, and goes on with the connection.
func isGivenUp(err error) bool {
	var e *pgconn.PgError
	if !errors.As(err, &e) || e.SeverityUnlocalized != "ERROR" {
		return false
	}
	return postgres.Classify(err) == server.ClassTimeout || strings.HasPrefix(e.Code, "53")
}

// outcomeOf returns the outcome of a transaction from the error of its last statement, s, or of
// the COMMIT that was sent after it.
func outcomeOf(s *statement, err error) transact.Outcome {
	switch {
	case err == nil:
		return transact.Committed
	case claimed(err), postgres.Code(err) == codeDivision:
		return transact.Overtaken
	case postgres.Code(err) == codeRoot:
		return transact.Ended
	case isRetryable(err), isRejected(err), !s.wrote && isGivenUp(err):
		return transact.RolledBack
	}
	return transact.InDoubt // a server that is shutting down reports that after a commit, too, and a pooler may reply in its place
}

// isRetryable reports whether the transaction may be run again from its beginning.
func isRetryable(err error) bool { return postgres.Classify(err) == server.ClassConflict }
