//go:build linux

package rounds

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"

	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
)

// etcdMembers are the members of a cluster.
type etcdMembers struct {
	cluster *etcdserver.Cluster
	url     string
	direct  *clientv3.Client
}

// NewEtcd starts size members.
func NewEtcd(size int) (System, error) {
	cluster, err := etcdserver.StartCluster(size)
	if err != nil {
		return nil, err
	}
	e := &etcdMembers{cluster: cluster, url: fmt.Sprintf("etcd://%s?members=%d", strings.Join(cluster.Clients(), ","), size)}
	var cfg etcdstore.Config
	if e.direct, cfg, err = e.dial(nil); err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), timeout)
		defer cancel()
		_, err = etcdstore.Migrate(ctx, e.direct, cfg)
	}
	if err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// dial connects to the members.
func (e *etcdMembers) dial(proxies *Proxies) (*clientv3.Client, etcdstore.Config, error) {
	u, err := etcdstore.ParseURL(e.url)
	if err != nil {
		return nil, etcdstore.Config{}, err
	}
	u.Client.Logger = zap.NewNop() // the calls fail, too
	if proxies != nil {
		u.Client.DialOptions = append(u.Client.DialOptions, grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			address, err := proxies.AddressFor(address)
			if err != nil {
				return nil, err
			}
			return new(net.Dialer).DialContext(ctx, "tcp", address)
		}))
	}
	client, err := clientv3.New(u.Client)
	return client, u.Config, err
}

// Open opens a store with connections of its own.
func (e *etcdMembers) Open(ctx context.Context, proxies *Proxies) (Store, func(), error) {
	client, cfg, err := e.dial(proxies)
	if err != nil {
		return nil, nil, err
	}
	s, err := etcdstore.Open(ctx, client, cfg)
	if err != nil {
		return nil, nil, errors.Join(err, client.Close())
	}
	return s, func() { _ = s.Close(); _ = client.Close() }, nil // the connections may have been cut
}

// Kill kills the leader, and starts it again once another member leads.
func (e *etcdMembers) Kill(ctx context.Context, _ *rand.Rand) error {
	leader, err := e.leader(ctx, -1)
	if err != nil {
		return err
	}
	killed := e.cluster.Servers[leader]
	killed.Kill()
	if len(e.cluster.Servers) > 1 {
		if _, err := e.leader(ctx, leader); err != nil {
			return err
		}
	}
	return killed.Launch()
}

// leader waits until a member other than gone leads the others, and returns its number.
func (e *etcdMembers) leader(ctx context.Context, gone int) (int, error) {
	for ; ctx.Err() == nil; time.Sleep(10 * time.Millisecond) {
		for i, address := range e.cluster.Clients() {
			if i == gone {
				continue
			}
			callCtx, cancel := context.WithTimeout(ctx, time.Second)
			about, err := e.direct.Status(callCtx, address)
			cancel()
			if err == nil && about.Leader == about.Header.MemberId {
				return i, nil
			}
		}
	}
	return 0, ctx.Err()
}

// Close ends the members.
func (e *etcdMembers) Close() (err error) {
	if e.direct != nil {
		err = e.direct.Close()
	}
	return errors.Join(err, e.cluster.Close())
}
