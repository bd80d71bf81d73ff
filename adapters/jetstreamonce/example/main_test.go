package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"os"
	"slices"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

func TestExample_EachOrderIsShippedOnce(t *testing.T) {
	conn, err := nats.Connect(cmp.Or(os.Getenv("ONLYONCE_NATS"), nats.DefaultURL))
	needs.Service(t, "NATS", err)
	defer conn.Close()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var shipped []string
	err = run(ctx, conn, "ONLYONCE_EXAMPLE_"+rand.Text(), func(order string) {
		if shipped = append(shipped, order); order == "a table" {
			stop()
		}
	})
	if want := []string{"a lamp", "a chair", "a table"}; err != nil || !slices.Equal(shipped, want) {
		t.Errorf("shipped %q, %v", shipped, err)
	}
}
