package storeurl

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

func parseEtcd(scheme, raw string) (URL, error) {
	u, err := etcdstore.ParseURL(raw)
	if err != nil {
		return URL{}, mistakef("the store URL can't be used: %w", err)
	}
	user := ""
	if u.Client.Username != "" {
		user = url.UserPassword(u.Client.Username, "xxxxx").String() + "@"
	}
	var hosts []string
	for _, endpoint := range u.Client.Endpoints {
		_, host, _ := strings.Cut(endpoint, "://")
		hosts = append(hosts, host)
	}
	shown := scheme + "://" + user + strings.Join(hosts, ",")
	if u.Config.Prefix != "" {
		shown += "/" + u.Config.Prefix
	}
	return URL{Engine: Etcd, server: shown, Source: raw}, nil
}

// DialEtcd connects to the members of a URL, and returns the settings of the store. It
// rejects files with secrets that other users can use, unless that risk is accepted.
func (u URL) DialEtcd(ctx context.Context, acceptRisks []string) (*clientv3.Client, etcdstore.Config, error) {
	parsed, err := etcdstore.ParseURL(u.Source)
	if err != nil {
		return nil, etcdstore.Config{}, mistakef("open %v: %w", u, err)
	}
	for _, file := range parsed.SecretFiles {
		if _, err := private.Read(file, acceptRisks); err != nil {
			return nil, etcdstore.Config{}, fmt.Errorf("open %v: %w", u, err)
		}
	}
	if err := reachEtcd(ctx, &parsed.Client); err != nil {
		return nil, etcdstore.Config{}, fmt.Errorf("open %v: no member can be reached: %w", u, err)
	}
	parsed.Client.Context = ctx
	parsed.Client.Logger = zap.NewNop() // the calls fail, too
	client, err := clientv3.New(parsed.Client)
	if err != nil {
		return nil, etcdstore.Config{}, fmt.Errorf("open %v: connect to etcd: %w", u, err)
	}
	return client, parsed.Config, nil
}

// reachEtcd connects to one of the members and leaves it again, because the client's errors do
// not say why it can't connect.
func reachEtcd(ctx context.Context, cfg *clientv3.Config) error {
	ctx, cancel := context.WithTimeout(ctx, cfg.DialTimeout)
	defer cancel()
	dial := new(net.Dialer).DialContext
	if cfg.TLS != nil {
		dial = (&tls.Dialer{Config: cfg.TLS}).DialContext
	}
	tried := make(chan error, len(cfg.Endpoints))
	for _, endpoint := range cfg.Endpoints {
		_, address, _ := strings.Cut(endpoint, "://")
		go func() {
			c, err := dial(ctx, "tcp", address)
			if err == nil {
				c.Close()
			}
			tried <- err
		}()
	}
	var err error
	for range cfg.Endpoints {
		if err = <-tried; err == nil {
			return nil
		}
	}
	return err
}

type etcdRecords struct {
	*etcdstore.Store
	client *clientv3.Client
}

func (r etcdRecords) Close() error {
	return errors.Join(r.Store.Close(), r.client.Close())
}

func (u URL) openEtcd(ctx context.Context, acceptRisks []string) (Records, error) {
	client, cfg, err := u.DialEtcd(context.WithoutCancel(ctx), acceptRisks)
	if err != nil {
		return nil, err
	}
	cfg.AcceptRisks = append(cfg.AcceptRisks, u.Risks(acceptRisks)...)
	store, err := etcdstore.Open(ctx, client, cfg)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%v: %w", u, err), client.Close())
	}
	return etcdRecords{store, client}, nil
}
