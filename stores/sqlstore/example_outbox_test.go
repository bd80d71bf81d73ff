package sqlstore_test

import (
	"context"
	"database/sql"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func ExampleOutbox_Append() {
	var (
		ctx   context.Context
		store *sqlstore.Store
		tx    *sql.Tx // of DoTx, or one that you began
	)
	err := store.Outbox().Append(ctx, tx, outbox.Message{
		Topic:   "orders.created",
		Key:     "order 1", // messages of one key are published in order
		Payload: []byte(`{"id":1}`),
	})
	if err != nil {
		return // and roll back
	}
	// Commit: the relay publishes it now.
}
