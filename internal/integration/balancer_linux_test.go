package integration

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"regexp"
	"slices"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A balancer leads connections to the primary until it has held back a commit, whose
// connection breaks. It leads the next connections to other servers.
type balancer struct {
	net.Listener
	primary *ownServer

	mu   sync.Mutex
	hold bool
	next []string    // the servers of the next connections; later ones go to the primary
	late chan func() // delivers the commit
}

func newBalancer(t *testing.T, primary *ownServer) *balancer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	b := &balancer{Listener: l, primary: primary, late: make(chan func(), 1)}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go b.serve(client)
		}
	}()
	return b
}

// holdCommit makes the balancer hold back the next commit.
func (b *balancer) holdCommit(next ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold, b.next = true, next
}

// lead makes the balancer lead the next connections to other servers.
func (b *balancer) lead(next ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.hold, b.next = false, next
}

// held reports whether the client sends a commit that is to be held back.
func (b *balancer) held(sent []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := b.hold && commits[b.primary.Kind.Driver].Match(sent)
	b.hold = b.hold && !held
	return held
}

// commits match the message by which a client commits, by driver.
var commits = map[string]*regexp.Regexp{
	faults.PostgreSQL.Driver: regexp.MustCompile(`(?i)commit\x00`),
	faults.MariaDB.Driver:    regexp.MustCompile(`^.\x00\x00\x00\x03COMMIT$`),
}

func (b *balancer) server() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.hold || len(b.next) == 0 {
		return b.primary.Address()
	}
	to := b.next[0]
	b.next = b.next[1:]
	return to
}

// left is how many connections to other servers were not opened.
func (b *balancer) left() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.next)
}

// cancelRequest is the first message of a connection that only cancels a statement.
const cancelRequest = 80877102

func (b *balancer) serve(client net.Conn) {
	defer client.Close()
	var start []byte
	if b.primary.Kind.Driver == faults.PostgreSQL.Driver { // its client begins, and MariaDB's waits for the server
		start = make([]byte, 8)
		if _, err := io.ReadFull(client, start); err != nil || binary.BigEndian.Uint32(start[4:]) == cancelRequest {
			return
		}
	}
	server, err := net.Dial("tcp", b.server())
	if err != nil {
		return
	}
	go func() { _, _ = io.Copy(client, server) }()
	sent := start
	for {
		if b.held(sent) {
			b.late <- func() {
				_, _ = server.Write(sent)
				_ = server.(*net.TCPConn).CloseWrite() // so that the session ends
				_, _ = io.Copy(io.Discard, server)
			}
			return
		}
		if _, err := server.Write(sent); err != nil {
			break
		}
		buf := make([]byte, 32<<10)
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		sent = buf[:n]
	}
	server.Close()
}

// waitingForLock asks a server whether a session waits for a lock that the store takes, by driver.
var waitingForLock = map[string]string{
	faults.PostgreSQL.Driver: "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND wait_event = 'advisory')",
	faults.MariaDB.Driver:    "SELECT EXISTS (SELECT * FROM information_schema.processlist WHERE state = 'User lock')",
}

// runsNothing checks that a function, which may have effects outside the database, does not
// run in a transaction that can't commit.
func runsNothing[TX any](t *testing.T, b *balancer, name string, s onlyonce.TxStore[TX], standby string) {
	t.Helper()
	b.lead(slices.Repeat([]string{standby}, 20)...)
	defer b.lead()
	_, err := s.RunTx(t.Context(), serverClaim(name+" on a standby"), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
		t.Errorf("%s: the function ran on a standby", name)
		return done("made"), nil
	})
	if !errors.Is(err, onlyonce.ErrUnavailable) {
		t.Errorf("%s: RunTx on a standby returns %v", name, err)
	}
}

// notBelieved checks that a transaction whose commit is delivered late is not said to be rolled
// back by the servers that the next connections lead to.
func notBelieved[TX any](t *testing.T, b *balancer, name string, s onlyonce.TxStore[TX], next ...string) {
	t.Helper()
	c := serverClaim(name)
	b.holdCommit(next...)
	result := make(chan error, 1)
	go func() {
		r, err := s.RunTx(context.Background(), c, func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) { return done("made"), nil })
		if err == nil && r.State != onlyonce.StateCompleted {
			t.Errorf("%s: the record is %+v", name, r)
		}
		result <- err
	}()
	deliver := <-b.late
	eventually(t, name+": the store waits for the end of the transaction", func() (waits bool) {
		if err := b.primary.admin.QueryRow(waitingForLock[b.primary.Kind.Driver]).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits || len(result) > 0
	})
	go deliver()
	if err := <-result; err != nil {
		t.Errorf("%s: the transaction was committed, and the store returned: %v", name, err)
	}
	if n := b.left(); n > 0 {
		t.Errorf("%s: %d connections were not opened", name, n)
	}
}
