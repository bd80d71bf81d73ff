//go:build linux

package rounds

import (
	"context"
	"math/rand/v2"

	"github.com/onlyonce-go/onlyonce/internal/reliability/dynamoserver"
	"github.com/onlyonce-go/onlyonce/stores/dynamostore"
)

// dynamoFake is the fake of DynamoDB, in a process of its own.
type dynamoFake struct{ *dynamoserver.Server }

// NewDynamoDB starts the fake.
func NewDynamoDB() (System, error) {
	s, err := dynamoserver.Start()
	if err != nil {
		return nil, err
	}
	return dynamoFake{s}, nil
}

// Open opens a store with connections of its own.
func (d dynamoFake) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	address, err := proxies.AddressFor(d.Address())
	if err != nil {
		return nil, nil, err
	}
	client, cfg, err := dynamoserver.Dial(dynamoserver.URL(address))
	if err != nil {
		return nil, nil, err
	}
	s, err := dynamostore.Open(ctx, client, cfg)
	if err != nil {
		return nil, nil, err
	}
	return s, func() { _ = s.Close() }, nil // Close does nothing
}

// Kill kills the fake, and starts it again.
func (d dynamoFake) Kill(context.Context, *rand.Rand) error { return d.Restart() }
