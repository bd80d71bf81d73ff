package memstore_test

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func ExampleNew() {
	guard := onlyonce.New(memstore.New(memstore.Config{MaxRecords: 10_000}), onlyonce.Config{})
	order := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "order", Key: "8c1f"}, Fingerprint: onlyonce.Fingerprint([]byte("17 apples"))}
	for range 2 {
		answer, err := onlyonce.Do(context.Background(), guard, order, func(context.Context) (string, error) {
			fmt.Println("the order is placed")
			return "order 17", nil
		})
		fmt.Println(answer.Value, answer.Replayed, err)
	}
	// Output:
	// the order is placed
	// order 17 false <nil>
	// order 17 true <nil>
}
