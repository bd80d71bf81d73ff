package cmdtest

import (
	"context"
	"crypto/rand"
	"database/sql"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"

	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// NewPostgresURL returns the URL of a PostgreSQL schema of its own, which is dropped at the end.
func NewPostgresURL(t *testing.T) string {
	t.Helper()
	server := os.Getenv("ONLYONCE_POSTGRES")
	if server == "" {
		server = "postgres://postgres@127.0.0.1:5432/postgres?sslmode=disable"
	}
	db, err := sql.Open("pgx", server)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), Soon)
	defer cancel()
	needs.Service(t, "PostgreSQL", db.PingContext(ctx))
	schema := "onlyonce_" + strings.ToLower(rand.Text())
	if _, err := db.Exec("CREATE SCHEMA " + schema); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP SCHEMA " + schema + " CASCADE"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set("search_path", schema)
	u.RawQuery = q.Encode()
	return u.String()
}

// NewMySQLURL is the URL of a database of its own, which is dropped at the end.
func NewMySQLURL(t *testing.T) string {
	t.Helper()
	dsn := os.Getenv("ONLYONCE_MYSQL")
	if dsn == "" {
		dsn = "root@tcp(127.0.0.1:3306)/"
	}
	db, err := sql.Open("mysql", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	needs.Service(t, "MariaDB", db.PingContext(t.Context()))
	name := "onlyonce_" + strings.ToLower(rand.Text()[:12])
	if _, err := db.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := db.Exec("DROP DATABASE " + name); err != nil {
			t.Error(err)
		}
	})
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	return (&url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + name}).String()
}

// StartRedis starts a Redis server, which ends with the test. The options are added to
// its command line.
func StartRedis(t *testing.T, options ...string) *redisserver.Server {
	t.Helper()
	s, err := redisserver.Start(options...)
	redisserver.Require(t, err)
	closeAtEnd(t, s)
	return s
}

// StartNATS starts a NATS server with JetStream, which writes to the disk at once and ends
// with the test. The settings are added to its configuration.
func StartNATS(t *testing.T, settings string) *natsserver.Server {
	t.Helper()
	s, err := natsserver.Start("jetstream { sync_interval: always }\n" + settings)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	return s
}

// StartEtcd starts an etcd server, which ends with the test. The options are added to its
// command line.
func StartEtcd(t *testing.T, options ...string) *etcdserver.Server {
	t.Helper()
	s, err := etcdserver.Start(options...)
	if err != nil {
		t.Fatal(err)
	}
	closeAtEnd(t, s)
	return s
}

// closeAtEnd closes a server when the test ends.
func closeAtEnd(t *testing.T, server io.Closer) {
	t.Helper()
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
}

// ClosedAddress returns an address of this machine at which no server listens.
func ClosedAddress() string { return net.JoinHostPort("127.0.0.1", testserver.FreePort()) }
