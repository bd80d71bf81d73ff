package servertest

import (
	"testing"

	"github.com/onlyonce-go/onlyonce/stores/internal/storebench"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func BenchmarkClaimAndSettle(b *testing.B) {
	js := connect(b, startNATS(b, ""))
	migrate(b, js, natsstore.Config{})
	storebench.ClaimAndSettle(b, open(b, js, natsstore.Config{}))
}
