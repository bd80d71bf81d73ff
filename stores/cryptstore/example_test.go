package cryptstore_test

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/cryptstore"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func Example() {
	// In a program, KeysFromFile or KeysFromEnv reads the keys.
	keys, err := cryptstore.ParseKeys("2026-11 3f1b0c5a7d9e2f4861c3a5b7d9e1f20436587a9bcdef0123456789abcdef0123")
	if err != nil {
		fmt.Println(err)
		return
	}
	cipher := cryptstore.New(cryptstore.Config{Keys: keys})
	inner := memstore.New(memstore.Config{})
	guard := onlyonce.New(cipher.Wrap(inner), onlyonce.Config{})

	req := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "pay", Key: "k"}, Fingerprint: onlyonce.Fingerprint([]byte("5 EUR"))}
	for range 2 {
		answer, err := onlyonce.Do(context.Background(), guard, req, func(context.Context) (string, error) { return "receipt 17", nil })
		fmt.Println(answer.Value, answer.Replayed, err)
	}
	stored, err := inner.Lookup(context.Background(), req.ID)
	fmt.Println(string(stored.Result.Body) == `"receipt 17"`, err)
	// Output:
	// receipt 17 false <nil>
	// receipt 17 true <nil>
	// false <nil>
}
