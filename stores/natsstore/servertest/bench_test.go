package servertest

import (
	"crypto/rand"
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/storebench"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func BenchmarkClaimAndSettle(b *testing.B) {
	js := connect(b, startNATS(b, ""))
	migrate(b, js, natsstore.Config{})
	storebench.ClaimAndSettle(b, open(b, js, natsstore.Config{}))
}

func random() []byte {
	b := make([]byte, 16)
	rand.Read(b)
	return b
}
