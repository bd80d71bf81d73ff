package redisstore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/storebench"
	"github.com/onlyonce-go/onlyonce/stores/redisstore"
)

func BenchmarkClaimAndSettle(b *testing.B) {
	server := startRedis(b)
	client := server.client(b)
	if _, err := redisstore.Migrate(b.Context(), client, redisstore.Config{}); err != nil {
		b.Fatal(err)
	}
	storebench.ClaimAndSettle(b, open(b, client, redisstore.Config{}))
}
