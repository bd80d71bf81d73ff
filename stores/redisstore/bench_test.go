package redisstore_test

import (
	"crypto/rand"
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

func random() []byte {
	b := make([]byte, 16)
	rand.Read(b)
	return b
}
