package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// diagnoseNATS opens a store without the risks that its URL accepts.
func diagnoseNATS(ctx context.Context, u storeurl.URL) (_ []onlyonce.Finding, summary string, err error) {
	client, err := u.DialNATS(nil)
	if err != nil {
		return nil, "", err
	}
	defer client.Close()
	client.Config.AcceptRisks = nil
	store, err := natsstore.Open(ctx, client.JetStream, client.Config)
	if err != nil {
		if findings := rejections(err); len(findings) > 0 {
			return findings, "", nil
		}
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	stream, err := client.JetStream.Stream(ctx, cmp.Or(client.Config.Stream, natsstore.DefaultStream))
	if err != nil {
		return nil, "", fmt.Errorf("%v: %w", u, err)
	}
	replicas, class := stream.CachedInfo().Config.Replicas, classNATSCluster
	if replicas == 1 {
		class = classNATS
	}
	version := client.JetStream.Conn().ConnectedServerVersion()
	return nil, fmt.Sprintf("NATS %s, sync_interval: always, replicas: %d\n%s", version, replicas, class), nil
}

// The guarantees of servers that flush every message before they acknowledge it.
const (
	classNATS = `guarantee class A: responses that were sent survive a crash of the process, of the
server and of the machine; a single server, no failover`
	classNATSCluster = `guarantee class B: responses that were sent survive a crash of the process, of the
servers and of their machines, and a failover while most replicas are there`
)
