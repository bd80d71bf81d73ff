package memstore_test

import (
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_AStoreKeepsTheRules(t *testing.T) {
	storetest.Run(t, func(*testing.T) onlyonce.Store { return memstore.New(memstore.Config{}) })
}
