package pgxstore_test

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/pgxstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestLostCommit_PostgreSQLKnowsItsLostCommits(t *testing.T) {
	for _, level := range levels {
		t.Run(level, func(t *testing.T) {
			direct := newPool(t, "default_transaction_isolation="+level)
			if _, err := direct.Exec(t.Context(), "CREATE TABLE own (name bytea NOT NULL); CREATE INDEX own_name ON own (name)"); err != nil {
				t.Fatal(err)
			}
			elsewhere, p := open(t, direct), newProxy(t, direct)
			lossy := ownRows(p.open(t, direct), direct)
			storetest.RunLostCommits(t, func(t *testing.T) storetest.LossyTx[pgx.Tx] {
				if _, err := direct.Exec(t.Context(), "TRUNCATE onlyonce_records, own; UPDATE onlyonce_fence SET floor = 0"); err != nil {
					t.Fatal(err)
				}
				return storetest.LossyTx[pgx.Tx]{Tx: lossy, Elsewhere: elsewhere, LoseCommit: p.loseCommit}
			})
		})
	}
}

func TestLostCommit_AWriteThatIsSentAgainDoesNotDenyThatItTookEffect(t *testing.T) {
	direct := newPool(t)
	elsewhere, p := open(t, direct), newProxy(t, direct)
	s := p.open(t, direct)
	for _, w := range []struct {
		name, text string
		lease      time.Duration
		call       func(h onlyonce.Hold) error
	}{
		{"settle", "settled_at = onlyonce_now_", time.Minute, func(h onlyonce.Hold) error {
			return s.Settle(t.Context(), h, onlyonce.Settlement{State: onlyonce.StateUnknown})
		}},
		{"renew", "lease_until = onlyonce_now_", time.Minute, func(h onlyonce.Hold) error {
			return s.Renew(t.Context(), h, time.Millisecond, nil)
		}},
		{"renew with a step", "lease_until = onlyonce_now_", time.Minute, func(h onlyonce.Hold) error {
			return s.Renew(t.Context(), h, time.Millisecond, map[string][]byte{"charged": nil})
		}},
	} {
		t.Run(w.name, func(t *testing.T) {
			h := holdOf(mustClaim(t, s, claimOf(w.name)))
			next := claimOf(w.name)
			next.TakeUnknown = true
			p.next.Store(&loss{ask: []byte(w.text), answer: readyForQuery, arrives: true, meanwhile: func() {
				for r, err := elsewhere.Claim(t.Context(), next); r.Owner != next.Owner; r, err = elsewhere.Claim(t.Context(), next) {
					if err != nil {
						t.Errorf("claim elsewhere: %v", err)
						return
					}
				}
			}})
			if err := w.call(h); err == nil || errors.Is(err, onlyonce.ErrLost) {
				t.Errorf("got %v, want an error that leaves open whether it took effect", err)
			}
			if r, err := elsewhere.Lookup(t.Context(), h.ID); err != nil || r.Attempt != 2 {
				t.Fatalf("the record is %+v, %v: the write did not arrive before the next attempt", r, err)
			}
			if err := w.call(h); !errors.Is(err, onlyonce.ErrLost) {
				t.Errorf("repeated: %v, want ErrLost", err)
			}
		})
	}
}

func TestLostCommit_ASettlementThatExpiredBeforeItWasSentAgainTookEffect(t *testing.T) {
	direct := newPool(t)
	elsewhere, p := open(t, direct), newProxy(t, direct)
	s := p.open(t, direct)
	h := holdOf(mustClaim(t, s, claimOf("k")))
	p.next.Store(&loss{ask: []byte("settled_at = onlyonce_now_"), answer: readyForQuery, arrives: true, meanwhile: func() {
		var state string // also of a record that has expired
		if err := direct.QueryRow(t.Context(), "SELECT state FROM onlyonce_records").Scan(&state); err != nil || state != string(onlyonce.StateCompleted) {
			t.Errorf("the record is %q, %v: the settlement did not arrive", state, err)
		}
		for _, err := elsewhere.Lookup(t.Context(), h.ID); err == nil; _, err = elsewhere.Lookup(t.Context(), h.ID) {
			time.Sleep(time.Millisecond)
		}
	}})
	if err := s.Settle(t.Context(), h, onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Millisecond}); err != nil {
		t.Errorf("got %v", err)
	}
}

func TestLostCommit_ASettlementThatIsSentAgainAfterAReleaseDidNotTakeEffect(t *testing.T) {
	direct := newPool(t)
	open(t, direct)
	p := newProxy(t, direct)
	s := p.open(t, direct)
	h := holdOf(mustClaim(t, s, claimOf("k")))
	if err := s.SettleTx(t.Context(), h, func(context.Context, pgx.Tx) (onlyonce.Settlement, error) { return onlyonce.Settlement{}, nil }); err != nil {
		t.Fatal(err)
	}
	p.next.Store(&loss{ask: []byte("settled_at = onlyonce_now_"), answer: readyForQuery, arrives: true, meanwhile: func() {}})
	if err := s.Settle(t.Context(), h, onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Minute}); err == nil {
		t.Error("a released command was settled")
	}
}

func TestLostCommit_AReleaseWhoseResponseWasLostSaysWhatHappened(t *testing.T) {
	direct := newPool(t)
	open(t, direct)
	p := newProxy(t, direct)
	s := p.open(t, direct)
	h := holdOf(mustClaim(t, s, claimOf("k")))
	p.next.Store(&loss{ask: []byte("'released'"), answer: readyForQuery, arrives: true, meanwhile: func() {}})
	if err := s.Settle(t.Context(), h, onlyonce.Settlement{}); err == nil || errors.Is(err, onlyonce.ErrLost) || strings.Contains(err.Error(), "panic") {
		t.Errorf("got %v, want the connection's error", err)
	}
}

// readyForQuery is the message that the server sends once it has committed what a pipeline
// asked for.
var readyForQuery = []byte("Z\x00\x00\x00\x05I")

// A proxy stands between a store and the server, and breaks a connection at its
// next commit when it is asked to.
type proxy struct {
	net.Listener
	next atomic.Pointer[loss]
}

// A loss is the part that is lost: the request on the way to the server, or the response.
type loss struct {
	ask       []byte // a text in the client's message
	answer    []byte // a text in the server's response
	arrives   bool
	meanwhile func()
}

// newProxy starts a proxy to the pool's server.
func newProxy(t *testing.T, to *pgxpool.Pool) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p := &proxy{Listener: ln}
	cfg := to.Config().ConnConfig
	network, address := pgconn.NetworkAddress(cfg.Host, cfg.Port)
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			go p.forward(client, network, address)
		}
	}()
	return p
}

// open opens a store whose connections go through the proxy, which can read what
// they say.
func (p *proxy) open(t *testing.T, direct *pgxpool.Pool) *pgxstore.Store {
	t.Helper()
	cfg := direct.Config()
	addr := p.Addr().(*net.TCPAddr)
	cfg.ConnConfig.Host, cfg.ConnConfig.Port, cfg.ConnConfig.Fallbacks = addr.IP.String(), uint16(addr.Port), nil
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s, err := pgxstore.Open(t.Context(), pool, pgxstore.Config{PurgeEvery: pgxstore.NeverPurge})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func (p *proxy) loseCommit(arrives bool, meanwhile func()) {
	p.next.Store(&loss{commits, commits, arrives, meanwhile})
}

// commits are the texts in a client's commit and in the server's response.
var commits = []byte("COMMIT\x00")

func (p *proxy) forward(client net.Conn, network, address string) {
	defer client.Close()
	server, err := net.Dial(network, address)
	if err != nil {
		return
	}
	defer server.Close()
	var lost atomic.Pointer[loss]
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		buf := make([]byte, 32<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				break
			}
			if l := lost.Load(); l != nil {
				if bytes.Contains(buf[:n], l.answer) {
					return
				}
				continue
			}
			if _, err := client.Write(buf[:n]); err != nil {
				break
			}
		}
		if lost.Load() == nil {
			client.Close()
		}
	}()
	buf := make([]byte, 32<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if next := p.next.Load(); next != nil && bytes.Contains(buf[:n], next.ask) && p.next.CompareAndSwap(next, nil) {
			lost.Store(next)
			if next.arrives {
				_, _ = server.Write(buf[:n])
				<-ended
			}
			server.Close()
			next.meanwhile()
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
