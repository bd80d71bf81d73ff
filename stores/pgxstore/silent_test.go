package pgxstore_test

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
)

// A failoverProxy stands between a pool and its server. After a failover, it drops what is sent
// over the connections that there were, as a network does whose server is gone, and forwards
// new ones.
type failoverProxy struct {
	net.Listener
	mu    sync.Mutex
	dead  *atomic.Bool // whether the connections since the last failover are dead
	conns []net.Conn
}

// newFailoverProxy returns a proxy to the pool's server, and a pool whose connections go
// through it.
func newFailoverProxy(t *testing.T, direct *pgxpool.Pool) (*failoverProxy, *pgxpool.Pool) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &failoverProxy{Listener: ln, dead: new(atomic.Bool)}
	cfg := direct.Config()
	network, address := pgconn.NetworkAddress(cfg.ConnConfig.Host, cfg.ConnConfig.Port)
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial(network, address)
			if err != nil {
				client.Close()
				continue
			}
			p.mu.Lock()
			dead := p.dead
			p.conns = append(p.conns, client, server)
			p.mu.Unlock()
			go forward(server, client, dead)
			go forward(client, server, dead)
		}
	}()
	addr := p.Addr().(*net.TCPAddr)
	cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = addr.IP.String(), uint16(addr.Port), nil
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	t.Cleanup(p.end) // or the pool would wait for the dead connections
	return p, pool
}

// forward hands on what is sent, until the connection is dead.
func forward(to, from net.Conn, dead *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if dead.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

func (p *failoverProxy) failOver() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.dead.Store(true)
	p.dead = new(atomic.Bool)
}

// end ends all connections.
func (p *failoverProxy) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
}

func TestStore_AResponseIsRecordedAlthoughAllConnectionsAreDead(t *testing.T) {
	needs.Time(t)
	direct := newPool(t)
	if err := pgxstore.Migrate(t.Context(), direct); err != nil {
		t.Fatal(err)
	}
	p, pool := newFailoverProxy(t, direct)
	s := open(t, pool)
	var idle []*pgxpool.Conn
	for range 4 {
		conn, err := pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		idle = append(idle, conn)
	}
	for _, conn := range idle {
		conn.Release()
	}
	guard := onlyonce.New(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
	runs := 0
	for range 2 {
		got, err := onlyonce.Do(t.Context(), guard, onlyonce.Request{ID: claimOf("k").ID, SkipFingerprint: true}, func(context.Context) (int, error) {
			p.failOver()
			runs++
			return runs, nil
		})
		if err != nil || got.Value != 1 {
			t.Errorf("got %+v, %v after %d runs", got, err, runs)
		}
	}
}
