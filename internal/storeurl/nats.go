package storeurl

import (
	"context"
	"fmt"
	"log/slog"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/onlyonce-go/onlyonce/internal/storeurl/private"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

func parseNATS(scheme, raw string) (URL, error) {
	u, err := natsstore.ParseURL(raw)
	if err != nil {
		return URL{}, mistakef("the store URL can't be used: %w", err)
	}
	o, user := u.Client, ""
	switch {
	case o.Token != "":
		user = "xxxxx@"
	case o.Password != "":
		user = url.UserPassword(o.User, "xxxxx").String() + "@"
	case o.User != "":
		user = url.User(o.User).String() + ":@"
	}
	var hosts []string
	for _, server := range o.Servers {
		hosts = append(hosts, strings.TrimPrefix(server, scheme+"://"))
	}
	shown := scheme + "://" + user + strings.Join(hosts, ",")
	if u.Config.Stream != "" {
		shown += "/" + u.Config.Stream
	}
	return URL{Engine: NATS, server: shown, Source: raw}, nil
}

// A NATSClient has the connections of a store in NATS.
type NATSClient struct {
	JetStream jetstream.JetStream
	Config    natsstore.Config
}

// DialNATS connects to the servers of a URL. It rejects files with secrets that other users
// can use, unless that risk is accepted.
func (u URL) DialNATS(acceptRisks []string) (*NATSClient, error) {
	parsed, err := natsstore.ParseURL(u.Source)
	if err != nil {
		return nil, mistakef("open %v: %w", u, err)
	}
	for _, file := range parsed.SecretFiles {
		if _, err := private.Read(file, acceptRisks); err != nil {
			return nil, fmt.Errorf("open %v: %w", u, err)
		}
	}
	c := &NATSClient{Config: parsed.Config}
	conn, err := connectNATS(&parsed.Client)
	if err == nil {
		c.JetStream, err = jetstream.New(conn)
	}
	if err == nil && parsed.System != nil {
		if c.Config.System, err = connectNATS(parsed.System); err != nil {
			err = fmt.Errorf("connect to the system account: %w", err)
		}
	}
	if err != nil {
		if conn != nil {
			conn.Close()
		}
		return nil, fmt.Errorf("open %v: %w", u, err)
	}
	return c, nil
}

// Close closes the connections.
func (c *NATSClient) Close() {
	c.JetStream.Conn().Close()
	if c.Config.System != nil {
		c.Config.System.Close()
	}
}

func connectNATS(o *nats.Options) (*nats.Conn, error) {
	o.AsyncErrorCB = new(natsErrors).log
	return o.Connect()
}

// natsErrors logs the errors of a connection that no call returns, such as a user that the
// server rejects: each at most once a minute, because the client connects again four times
// a second.
type natsErrors struct {
	mu   sync.Mutex
	text string // of the last error
	at   time.Time
}

func (e *natsErrors) log(_ *nats.Conn, _ *nats.Subscription, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if text := err.Error(); text != e.text || time.Since(e.at) >= time.Minute {
		e.text, e.at = text, time.Now()
		slog.Warn("store: NATS reported an error", "error", err)
	}
}

type natsRecords struct {
	*natsstore.Store
	client *NATSClient
}

func (r natsRecords) Close() error {
	err := r.Store.Close()
	r.client.Close()
	return err
}

func (u URL) openNATS(ctx context.Context, acceptRisks []string) (Records, error) {
	c, err := u.DialNATS(acceptRisks)
	if err != nil {
		return nil, err
	}
	c.Config.AcceptRisks = append(c.Config.AcceptRisks, u.Risks(acceptRisks)...)
	store, err := natsstore.Open(ctx, c.JetStream, c.Config)
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("%v: %w", u, err)
	}
	return natsRecords{store, c}, nil
}
