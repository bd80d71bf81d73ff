package inbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/onlyonce-go/onlyonce/inbox"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

func ExampleHandle() {
	in := inbox.New(memstore.New(memstore.Config{}), inbox.Config{Consumer: "mailer", Redelivery: 30 * time.Second})
	m := inbox.Message{ID: "0193e5a1-7c2e-7cc3-98c4-dc0c0c07398f", Payload: []byte("welcome")}
	for range 2 { // the broker delivers it twice
		r, err := inbox.Handle(context.Background(), in, m, func(context.Context) (string, error) {
			fmt.Println("mailing", string(m.Payload))
			return "mailed", nil
		})
		fmt.Println(r.Value, r.Replayed, err)
	}
	// Output:
	// mailing welcome
	// mailed false <nil>
	// mailed true <nil>
}

func ExampleHandleTx() {
	var (
		ctx     context.Context
		store   *sqlstore.Store // the consumer's own database
		poison  func(context.Context, inbox.Message, error) error
		message inbox.Message
	)
	in := inbox.NewTx(store, inbox.Config{Consumer: "shipping", Redelivery: 30 * time.Second, MaxAttempts: 10, Poison: poison})
	_, err := inbox.HandleTx(ctx, in, message, func(ctx context.Context, tx *sql.Tx) (struct{}, error) {
		_, err := tx.ExecContext(ctx, "INSERT INTO shipments (order_id) VALUES ($1)", string(message.Payload))
		return struct{}{}, err
	})
	if err == nil {
		fmt.Println("acknowledge")
	}
}
