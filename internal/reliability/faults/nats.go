//go:build linux

package faults

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// StartNATS starts size NATS servers, which all keep the records of a store, and sets up the
// store once they have formed a cluster.
func StartNATS(size int) (natsserver.Cluster, error) {
	servers, err := natsserver.StartCluster(size)
	if err != nil {
		return nil, err
	}
	if err := migrateNATS(servers); err != nil {
		return nil, errors.Join(err, servers.Close())
	}
	return servers, nil
}

func migrateNATS(servers natsserver.Cluster) error {
	js, cfg, err := DialNATS(NATSURL(servers.Addresses()), nil)
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	ctx, cancel := context.WithTimeout(context.Background(), 5*timeout)
	defer cancel()
	for {
		_, err := natsstore.Migrate(ctx, js, cfg)
		if err == nil || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// NATSURL returns the URL of a store that all servers at the addresses keep. They have the
// same clock, so that a lease ends at its time under another leader, too.
func NATSURL(addresses []string) string {
	return fmt.Sprintf("nats://%s?replicas=%d&clock_skew=1ms&accept_risks=%s", strings.Join(addresses, ","), len(addresses), natsstore.RiskSyncInterval)
}

// DialNATS connects to the servers of a store's URL, with the dialer unless it is nil.
func DialNATS(raw string, dialer nats.CustomDialer) (jetstream.JetStream, natsstore.Config, error) {
	u, err := natsstore.ParseURL(raw)
	if err != nil {
		return nil, natsstore.Config{}, err
	}
	u.Client.CustomDialer = dialer
	u.Client.ReconnectWait = 10 * time.Millisecond
	u.Client.AsyncErrorCB = func(*nats.Conn, *nats.Subscription, error) {} // the calls fail, too
	conn, err := u.Client.Connect()
	if err != nil {
		return nil, natsstore.Config{}, err
	}
	js, err := jetstream.New(conn)
	return js, u.Config, err
}
