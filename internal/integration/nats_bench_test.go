package integration

import (
	"context"
	"fmt"
	"testing"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// BenchmarkNATS compares the store, on one server, with a bare Create and Update of a
// key-value bucket.
func BenchmarkNATS(b *testing.B) {
	server, err := natsserver.Start("jetstream: enabled")
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { server.Close() })
	u, err := natsstore.ParseURL("nats://" + server.Address() + "?accept_risks=" + natsstore.RiskSyncInterval)
	if err != nil {
		b.Fatal(err)
	}
	conn, err := u.Client.Connect()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		b.Fatal(err)
	}
	if _, err := natsstore.Migrate(b.Context(), js, u.Config); err != nil {
		b.Fatal(err)
	}
	s, err := natsstore.Open(b.Context(), js, u.Config)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	bucket, err := js.CreateKeyValue(b.Context(), jetstream.KeyValueConfig{Bucket: "naive"})
	if err != nil {
		b.Fatal(err)
	}
	begun, done := make([]byte, 150), make([]byte, 150+len(answer.Body)) // about the size of a record before and after its result
	for _, callers := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("claim+settle/naive/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, _ int64) error {
				id := nextID()
				revision, err := bucket.Create(ctx, id.Tenant+"."+id.Key, begun)
				if err == nil {
					_, err = bucket.Update(ctx, id.Tenant+"."+id.Key, done, revision)
				}
				return err
			})
		})
		b.Run(fmt.Sprintf("claim+settle/store/%d", callers), func(b *testing.B) {
			together(b, callers, func(ctx context.Context, _ int64) error { return claimAndSettle(ctx, s) })
		})
	}
}
