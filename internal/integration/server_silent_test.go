package integration

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A silence begins when a client sends a text. A server that is stopped, or that a
// network no longer reaches, looks like this from then on.
type silence struct {
	at  string // the text that the client sends; empty: any
	fn  error  // the error of the function
	is  error  // the error that its caller gets
	not error  // an error that its caller does not get
	run func(t *testing.T, s *sqlstore.Store) silencedCall
}

// A silencedCall calls the store with a function that is to run in a transaction.
type silencedCall func(fn func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error

func runSilenced(t *testing.T, s *sqlstore.Store) silencedCall {
	return func(fn func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
		_, err := s.RunTx(t.Context(), serverClaim("k"), func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
			return fn(ctx, tx)
		})
		return err
	}
}

func settleSilenced(t *testing.T, s *sqlstore.Store) silencedCall {
	h := claimedOn(t, s, "k")
	return func(fn func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
		return s.SettleTx(t.Context(), h, fn)
	}
}

func claimSilenced(t *testing.T, s *sqlstore.Store) silencedCall {
	return func(func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
		_, err := s.Claim(t.Context(), serverClaim("k"))
		return err
	}
}

func settleAloneSilenced(t *testing.T, s *sqlstore.Store) silencedCall {
	h := claimedOn(t, s, "k")
	return func(func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
		return s.Settle(t.Context(), h, done("made"))
	}
}

func lookupSilenced(t *testing.T, s *sqlstore.Store) silencedCall {
	h := claimedOn(t, s, "k")
	return func(func(context.Context, *sql.Tx) (onlyonce.Settlement, error)) error {
		_, err := s.Lookup(t.Context(), h.ID)
		return err
	}
}

var errDeclined = errors.New("the card was declined")

// The trials only wait, most of them for half a minute, and therefore run all at once.
func TestSilent_AServerThatStopsRespondingIsGivenUp(t *testing.T) {
	t.Parallel()
	var trials sync.WaitGroup
	for name, c := range map[string]struct {
		newValve func(t *testing.T) (*valve, *sql.DB)
		heeds    bool // the driver's COMMIT and ROLLBACK end with the context
		silences map[string]silence
	}{
		"PostgreSQL": {newValve: postgresValve, heeds: true, silences: map[string]silence{
			"beginning":              {at: "begin", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"looking":                {at: "onlyonce_fence f LEFT JOIN", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"recording":              {at: "INSERT INTO onlyonce_records", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"committing":             {at: "commit\x00", is: onlyonce.ErrInDoubt, not: onlyonce.ErrUnavailable, run: runSilenced},
			"rolling back":           {at: "rollback", fn: errDeclined, is: errDeclined, not: onlyonce.ErrUnknown, run: runSilenced},
			"committing a settled":   {at: "commit\x00", is: onlyonce.ErrInDoubt, not: onlyonce.ErrUnavailable, run: settleSilenced},
			"rolling back a settled": {at: "rollback", fn: errDeclined, is: errDeclined, not: onlyonce.ErrUnknown, run: settleSilenced},
			"claiming":               {is: context.DeadlineExceeded, not: onlyonce.ErrUnavailable, run: claimSilenced},
			"settling":               {is: context.DeadlineExceeded, not: onlyonce.ErrLost, run: settleAloneSilenced},
			"looking up":             {is: context.DeadlineExceeded, not: onlyonce.ErrUnknown, run: lookupSilenced},
		}},
		"MySQL": {newValve: mysqlValve, silences: map[string]silence{
			"beginning":              {at: "SET autocommit = 0", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"starting":               {at: "START TRANSACTION", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"recording":              {at: "RELEASE SAVEPOINT", is: onlyonce.ErrUnavailable, not: onlyonce.ErrUnknown, run: runSilenced},
			"committing":             {at: "\x03COMMIT", is: onlyonce.ErrInDoubt, not: onlyonce.ErrUnavailable, run: runSilenced},
			"rolling back":           {at: "\x03ROLLBACK", fn: errDeclined, is: errDeclined, not: onlyonce.ErrUnknown, run: runSilenced},
			"committing a settled":   {at: "\x03COMMIT", is: onlyonce.ErrInDoubt, not: onlyonce.ErrUnavailable, run: settleSilenced},
			"rolling back a settled": {at: "\x03ROLLBACK", fn: errDeclined, is: errDeclined, not: onlyonce.ErrUnknown, run: settleSilenced},
			"claiming":               {is: context.DeadlineExceeded, not: onlyonce.ErrUnavailable, run: claimSilenced},
			"settling":               {is: context.DeadlineExceeded, not: onlyonce.ErrLost, run: settleAloneSilenced},
			"looking up":             {is: context.DeadlineExceeded, not: onlyonce.ErrUnknown, run: lookupSilenced},
		}},
	} {
		for step, silent := range c.silences {
			v, db := c.newValve(t)
			call := silent.run(t, openOn(t, db))
			v.closeAt(silent.at)
			trials.Go(func() {
				result := make(chan error, 1)
				go func() {
					result <- call(func(context.Context, *sql.Tx) (onlyonce.Settlement, error) { return done("made"), silent.fn })
				}()
				select {
				case err := <-result:
					if !errors.Is(err, silent.is) || silent.not != nil && errors.Is(err, silent.not) {
						t.Errorf("%s, %s: got error %v, want %v", name, step, err, silent.is)
					}
				case <-time.After(2 * answerLimit):
					t.Errorf("%s, %s: the caller still waits", name, step)
				}
				if !v.closed() {
					t.Errorf("%s, %s: the store never sent %q", name, step, silent.at)
				}
				if !c.heeds {
					v.Close() // the network notices that the server is gone
				}
				for end := time.Now().Add(answerLimit); db.Stats().InUse > 0; time.Sleep(time.Millisecond) {
					if time.Now().After(end) {
						t.Errorf("%s, %s: %d connections are still in use", name, step, db.Stats().InUse)
						return
					}
				}
			})
		}
	}
	trials.Wait()
}

func TestSilent_AQueueWhoseServerStopsRespondingAtTheEndOfATransactionIsGivenUp(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		newValve func(t *testing.T) (*valve, *sql.DB)
		at       string
	}{
		"PostgreSQL": {postgresValve, "commit\x00"},
		"MySQL":      {mysqlValve, "\x03COMMIT"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, db := c.newValve(t)
			s := openOn(t, db)
			appendOne(t, s, db, outbox.Message{Topic: "t"})
			v.closeAt(c.at)
			defer v.Close() // the network notices that the server is gone
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			leased := make(chan error, 1)
			go func() {
				_, err := s.Outbox().Lease(ctx, "owner", time.Minute, 1)
				leased <- err
			}()
			eventually(t, "the transaction is to end", v.closed)
			cancel()
			select {
			case err := <-leased:
				if !errors.Is(err, context.Canceled) {
					t.Errorf("got error %v", err)
				}
			case <-time.After(answerLimit):
				t.Error("the caller still waits, although its context has ended")
			}
		})
	}
}

func TestSilent_AResponseIsRecordedAlthoughAllConnectionsAreDead(t *testing.T) {
	t.Parallel()
	const idle = 4
	idlePool := func(t *testing.T, v *valve, db *sql.DB) (*valve, onlyonce.Store) {
		s := openOn(t, db)
		db.SetMaxIdleConns(idle)
		var conns []*sql.Conn
		for range idle {
			conn, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, conn)
		}
		for _, conn := range conns {
			conn.Close()
		}
		return v, s
	}
	for name, open := range map[string]func(*testing.T) (*valve, onlyonce.Store){
		"PostgreSQL": func(t *testing.T) (*valve, onlyonce.Store) {
			v, db := postgresValve(t)
			return idlePool(t, v, db)
		},
		"MySQL": func(t *testing.T) (*valve, onlyonce.Store) {
			v, db := mysqlValve(t)
			return idlePool(t, v, db)
		},
		"pgxstore": func(t *testing.T) (*valve, onlyonce.Store) {
			v, dsn := postgresURLThroughValve(t)
			cfg, err := pgxpool.ParseConfig(dsn)
			if err != nil {
				t.Fatal(err)
			}
			pool := openPgxpool(t, cfg)
			s := openPgxstoreOn(t, pool)
			t.Cleanup(func() { v.Close() }) // or the pool would wait for the dead connections
			var conns []*pgxpool.Conn
			for range idle {
				conn, err := pool.Acquire(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				conns = append(conns, conn)
			}
			for _, conn := range conns {
				conn.Release()
			}
			return v, s
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v, s := open(t)
			guard := onlyonce.New(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
			runs := 0
			for range 2 {
				got, err := onlyonce.Do(t.Context(), guard, onlyonce.Request{ID: serverClaim("k").ID, SkipFingerprint: true}, func(context.Context) (int, error) {
					v.failOver()
					runs++
					return runs, nil
				})
				if err != nil || got.Value != 1 {
					t.Errorf("got %+v, %v after %d runs", got, err, runs)
				}
			}
		})
	}
}

// postgresValve returns a pool whose connections to PostgreSQL go through a valve.
func postgresValve(t *testing.T) (*valve, *sql.DB) {
	t.Helper()
	v, dsn := postgresURLThroughValve(t, "default_query_exec_mode=exec")
	return v, openPool(t, "pgx", dsn)
}

func postgresURLThroughValve(t *testing.T, settings ...string) (v *valve, dsn string) {
	t.Helper()
	schema := newPostgresSchema(t)
	schema.open(t)
	u, err := url.Parse(schema.with(t, settings...))
	if err != nil {
		t.Fatal(err)
	}
	v = newValve(t, u.Host)
	u.Host = v.Addr().String()
	return v, u.String()
}

// mysqlValve returns a pool whose connections to MySQL go through a valve.
func mysqlValve(t *testing.T) (*valve, *sql.DB) {
	t.Helper()
	d := newMySQLDatabase(t)
	d.open(t)
	cfg, err := mysql.ParseDSN(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	v := newValve(t, cfg.Addr)
	cfg.DBName, cfg.Addr = d.name, v.Addr().String()
	return v, openPool(t, "mysql", cfg.FormatDSN())
}

// A valve stands between a pool and its server. Once it is closed, it reads what both
// send and hands nothing on, over the connections that there are and over new ones. After a
// failover, it does so over the connections that there were.
type valve struct {
	net.Listener
	server string

	mu    sync.Mutex
	at    []byte // a text that closes the valve when a client sends it; nil: none
	shut  bool
	dead  *atomic.Bool // whether the connections since the last failover are dead
	conns []net.Conn
}

// newValve starts an open valve before a server's address.
func newValve(t *testing.T, server string) *valve {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	v := &valve{Listener: ln, server: server, dead: new(atomic.Bool)}
	t.Cleanup(func() { v.Close() })
	go func() {
		for {
			client, err := ln.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", v.server)
			if err != nil {
				client.Close()
				continue
			}
			v.mu.Lock()
			v.conns = append(v.conns, client, server)
			dead := v.dead
			v.mu.Unlock()
			go v.pass(server, client, true, dead)
			go v.pass(client, server, false, dead)
		}
	}()
	return v
}

// closeAt makes the next connection that sends the text close the valve.
func (v *valve) closeAt(text string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = []byte(text)
}

func (v *valve) failOver() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.dead.Store(true)
	v.dead = new(atomic.Bool)
}

// closed reports whether the text was sent.
func (v *valve) closed() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.shut
}

// Close ends all connections.
func (v *valve) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.conns {
		c.Close()
	}
	return v.Listener.Close()
}

func (v *valve) pass(to, from net.Conn, asks bool, dead *atomic.Bool) {
	defer to.Close()
	defer from.Close()
	for buf := make([]byte, 32<<10); ; {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if dead.Load() || v.swallows(buf[:n], asks) {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// swallows reports whether bytes are not handed on.
func (v *valve) swallows(sent []byte, asks bool) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = v.shut || asks && v.at != nil && bytes.Contains(sent, v.at)
	return v.shut
}
