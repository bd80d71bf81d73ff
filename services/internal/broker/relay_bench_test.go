package broker

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib"

	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// BenchmarkRelay publishes messages of 500 bytes from PostgreSQL, with
// acknowledgements: without keys, and with few or many.
func BenchmarkRelay(b *testing.B) {
	for _, kind := range []struct{ name, env, address string }{
		{"NATS", "ONLYONCE_NATS", "nats://127.0.0.1:4222"},
		{"RabbitMQ", "ONLYONCE_AMQP", "amqp://guest:guest@127.0.0.1:5672/"},
	} {
		for _, keys := range []int{0, 1000, 10} {
			b.Run(fmt.Sprintf("%s/keys=%d", kind.name, keys), func(b *testing.B) { benchRelay(b, kind.address, keys) })
		}
	}
}

// BenchmarkPublish publishes batches of 1,000 messages of 500 bytes, as a relay does,
// and waits for the acknowledgments.
func BenchmarkPublish(b *testing.B) {
	for name, address := range map[string]string{"NATS": "nats://127.0.0.1:4222", "RabbitMQ": "amqp://guest:guest@127.0.0.1:5672/"} {
		b.Run(name, func(b *testing.B) {
			to, err := Open(b.Context(), address, Config{Name: "onlyonce_" + strings.ToLower(rand.Text())})
			if err != nil {
				b.Skipf("start %s at %s: %v", name, address, err)
			}
			b.Cleanup(func() { remove(b, to) })
			if a, ok := to.(*amqpBroker); ok {
				if err := a.declare(b.Context(), a.cfg.Name+".one"); err != nil {
					b.Fatal(err)
				}
			}
			batch := make([]outbox.Message, 1000)
			for b.Loop() {
				for i := range batch {
					batch[i] = outbox.Message{ID: rand.Text(), Topic: "bench", Payload: make([]byte, 500)}
				}
				for _, err := range to.Publish(b.Context(), batch) {
					if err != nil {
						b.Fatal(err)
					}
				}
			}
			b.ReportMetric(float64(b.N*len(batch))/b.Elapsed().Seconds(), "messages/s")
		})
	}
}

// BenchmarkRelayOneByOne is the baseline for the relay: a message at a time is
// locked, published, deleted and committed.
func BenchmarkRelayOneByOne(b *testing.B) {
	s, db := newPostgres(b)
	to, err := Open(b.Context(), "nats://127.0.0.1:4222", Config{Name: "onlyonce_" + strings.ToLower(rand.Text())})
	if err != nil {
		b.Skip("start NATS at 127.0.0.1:4222: ", err)
	}
	b.Cleanup(func() { remove(b, to) })
	fill(b, s, db, b.N, 0)
	b.ResetTimer()
	for range b.N {
		tx, err := db.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		var seq int64
		m := outbox.Message{Topic: "bench"}
		row := tx.QueryRowContext(b.Context(), "SELECT seq, id, payload FROM onlyonce_outbox ORDER BY seq LIMIT 1 FOR UPDATE SKIP LOCKED")
		if err := row.Scan(&seq, &m.ID, &m.Payload); err != nil {
			b.Fatal(err)
		}
		if errs := to.Publish(b.Context(), []outbox.Message{m}); errs[0] != nil {
			b.Fatal(errs)
		}
		_, err = tx.ExecContext(b.Context(), "DELETE FROM onlyonce_outbox WHERE seq = $1", seq)
		if err = errors.Join(err, tx.Commit()); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

func benchRelay(b *testing.B, address string, keys int) {
	s, db := newPostgres(b)
	to, err := Open(b.Context(), address, Config{Name: "onlyonce_" + strings.ToLower(rand.Text())})
	if err != nil {
		b.Skipf("start the broker at %s: %v", address, err)
	}
	if a, ok := to.(*amqpBroker); ok {
		if err := a.declare(b.Context(), a.cfg.Name+".one"); err != nil {
			b.Fatal(err)
		}
	}
	b.Cleanup(func() { remove(b, to) })
	fill(b, s, db, b.N, keys)
	ctx, cancel := context.WithCancel(b.Context())
	published := 0
	relay := outbox.NewRelay(s.Outbox(), to, outbox.Config{Observer: func(_ context.Context, e outbox.Event) {
		switch e.Outcome {
		case outbox.OutcomePublished:
			if published += e.Count; published == b.N {
				cancel()
			}
		case outbox.OutcomeLag:
		default:
			b.Error(e.Outcome, e.Err)
		}
	}})
	b.ResetTimer()
	relay.Run(ctx)
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// fill appends messages, many in a transaction.
func fill(b *testing.B, s *sqlstore.Store, db *sql.DB, n, keys int) {
	b.Helper()
	for i := 0; i < n; {
		tx, err := db.BeginTx(b.Context(), nil)
		if err != nil {
			b.Fatal(err)
		}
		for range min(1000, n-i) {
			m := outbox.Message{Topic: "bench", Payload: make([]byte, 500)}
			if keys > 0 {
				m.Key = fmt.Sprint(i % keys)
			}
			if err := s.Outbox().Append(b.Context(), tx, m); err != nil {
				b.Fatal(err)
			}
			i++
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// newPostgres returns a store in a schema of its own.
func newPostgres(b *testing.B) (*sqlstore.Store, *sql.DB) {
	b.Helper()
	dsn := os.Getenv("ONLYONCE_POSTGRES")
	if dsn == "" {
		dsn = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	u, err := url.Parse(dsn)
	if err != nil {
		b.Fatal(err)
	}
	schema := "onlyonce_" + strings.ToLower(rand.Text())
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	db, err := sql.Open("pgx", u.String())
	if err != nil {
		b.Fatal(err)
	}
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		b.Skipf("start PostgreSQL at %s: %v", u.Host, err)
	}
	b.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + schema + " CASCADE"); err != nil {
			b.Error(err)
		}
		db.Close()
	})
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	if err := sqlstore.Migrate(ctx, db); err != nil {
		b.Fatal(err)
	}
	s, err := sqlstore.Open(ctx, db, sqlstore.Config{PurgeEvery: sqlstore.NeverPurge})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	return s, db
}
