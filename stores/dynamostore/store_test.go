package dynamostore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_KeepsTheRules(t *testing.T) {
	t.Parallel()
	client := connect(t, dynalite.Start(t).Address)
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		return open(t, client, newTable(t, client))
	})
}
