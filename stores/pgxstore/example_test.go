package pgxstore_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// The order's row, its event and the response are committed together; a repeat gets
// the response.
func Example() {
	ctx := context.Background()
	pool, err := pgxpool.New(ctx, os.Getenv("DATABASE_URL"))
	if err != nil {
		log.Fatal(err)
	}
	defer pool.Close()
	if err := pgxstore.Migrate(ctx, pool); err != nil {
		log.Fatal(err)
	}
	store, err := pgxstore.Open(ctx, pool, pgxstore.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close() // before the pool

	guard := onlyonce.NewTx(store, onlyonce.Config{})
	req := onlyonce.Request{
		ID:          onlyonce.ID{Tenant: "acme", Operation: "CreateOrder", Key: "8e03978e"},
		Fingerprint: onlyonce.Fingerprint([]byte(`{"item":"tea"}`)),
	}
	answer, err := onlyonce.DoTx(ctx, guard, req, func(ctx context.Context, tx pgx.Tx) (id int64, err error) {
		if err := tx.QueryRow(ctx, "INSERT INTO orders (item) VALUES ('tea') RETURNING id").Scan(&id); err != nil {
			return 0, err
		}
		return id, store.Outbox().Append(ctx, tx, outbox.Message{Topic: "order.created", Key: fmt.Sprint(id)})
	})
	fmt.Println(answer.Value, answer.Replayed, err)
}
