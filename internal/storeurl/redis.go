package storeurl

import (
	"context"
	"fmt"

	"github.com/onlyonce-go/onlyonce/stores/redisstore"
	"github.com/redis/rueidis"
)

// DialRedis connects to the servers of a URL, and returns the settings of the store. It rejects
// addresses that belong to different clusters.
func (u URL) DialRedis(ctx context.Context) (rueidis.Client, redisstore.Config, error) {
	o, cfg, err := redisstore.ParseURL(u.Source)
	if err != nil {
		return nil, cfg, mistakef("open %v: %w", u, err)
	}
	if err := redisstore.CheckAddresses(ctx, o); err != nil {
		return nil, cfg, fmt.Errorf("open %v: %w", u, err)
	}
	client, err := rueidis.NewClient(o)
	if err != nil {
		return nil, cfg, fmt.Errorf("open %v: %w", u, err)
	}
	return client, cfg, nil
}

type redisRecords struct {
	*redisstore.Store
	client rueidis.Client
}

func (r redisRecords) Close() error {
	err := r.Store.Close()
	r.client.Close()
	return err
}

func (u URL) openRedis(ctx context.Context, acceptRisks []string) (Records, error) {
	client, cfg, err := u.DialRedis(ctx)
	if err != nil {
		return nil, err
	}
	cfg.AcceptRisks = append(cfg.AcceptRisks, u.Risks(acceptRisks)...)
	store, err := redisstore.Open(ctx, client, cfg)
	if err != nil {
		client.Close()
		return nil, fmt.Errorf("%v: %w", u, err)
	}
	return redisRecords{store, client}, nil
}
