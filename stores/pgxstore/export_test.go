package pgxstore

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce/stores/internal/transact"
)

// UseOwnConn calls f with a connection as the store's own are.
func UseOwnConn(pool *pgxpool.Pool, f func(context.Context, *pgx.Conn) error) error {
	c := storeConn{pool: pool}
	defer c.close()
	return c.use(f)
}

// Text returns a statement as the store sends it.
func Text(s *Store, name string) string { return s.text[name] }

// OutcomeOf returns the outcome of a transaction whose last statement wrote or did not.
func OutcomeOf(wrote bool, err error) transact.Outcome {
	return outcomeOf(&statement{wrote: wrote}, err)
}
