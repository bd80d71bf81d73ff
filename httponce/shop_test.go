package httponce_test

import (
	"errors"

	"github.com/onlyonce-go/onlyonce/internal/adaptertest"
)

// A shop is a store with rows, and an order is a transaction of it.
type (
	shop  = adaptertest.Store
	order = adaptertest.Tx
)

func newShop() *shop { return adaptertest.NewStore() }

var errBroken = errors.New("connection lost")
