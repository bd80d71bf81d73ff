package storeurl

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

func TestStoreURL_AServerThatNeverAcceptsAConnectionIsAnError(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the kernel accepts, and nobody responds
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() })
	u, err := Parse("mysql://app@" + silent.Addr().String() + "/shop")
	if err != nil {
		t.Fatal(err)
	}
	db, err := u.poolOf()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	var over net.Error
	if err := u.ping(t.Context(), db, time.Millisecond); !errors.As(err, &over) || !over.Timeout() {
		t.Errorf("MySQL: %v", err)
	}
	for raw, want := range map[string]time.Duration{
		"postgres://app@h1,h2/shop":                                     connectWithin,
		"postgres://app@h1/shop?sslmode=disable&connect_timeout=7":      7 * time.Second,
		"postgres://app@h1/shop?connect_timeout=600&application_name=x": 10 * time.Minute,
	} {
		u, err := Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		cfg, err := u.PoolConfig()
		if err != nil {
			t.Fatal(err)
		}
		if got := cfg.ConnConfig.ConnectTimeout; got != want {
			t.Errorf("%s: a host has %v to accept a connection, want %v", raw, got, want)
		}
	}
}

// A certificate or a password that is replaced while the program runs counts for its next connection.
func TestStoreURL_ANewConnectionReadsTheFilesOfTheURLAgain(t *testing.T) {
	for name, open := range map[string]func(*testing.T, URL) (ping func(context.Context) error){
		"of database/sql": func(t *testing.T, u URL) func(context.Context) error {
			db, err := u.poolOf()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { db.Close() })
			return db.PingContext
		},
		"of pgx": func(t *testing.T, u URL) func(context.Context) error {
			cfg, err := u.PoolConfig()
			if err != nil {
				t.Fatal(err)
			}
			pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(pool.Close)
			return pool.Ping
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { server.Close() })
			passwords := filepath.Join(t.TempDir(), "pgpass")
			u, err := Parse("postgres://app@" + server.Addr().String() + "/shop?sslmode=disable&passfile=" + passwords)
			if err != nil {
				t.Fatal(err)
			}
			var ping func(context.Context) error
			for _, password := range []string{"before", "after"} {
				if err := os.WriteFile(passwords, []byte("*:*:*:*:"+password+"\n"), 0o600); err != nil {
					t.Fatal(err)
				}
				if ping == nil {
					ping = open(t, u)
				}
				got := make(chan string, 1)
				go func() { got <- passwordOf(server) }()
				if err := ping(t.Context()); err == nil {
					t.Fatal("the server has accepted the connection")
				}
				if sent := <-got; sent != password {
					t.Errorf("a new connection has the password %q, want %q", sent, password)
				}
			}
		})
	}
}

func TestStoreURL_AFileOfTheURLThatCannotBeReadIsNamed(t *testing.T) {
	u, err := Parse("postgres://app:s3cret@h/shop?sslmode=verify-full&sslrootcert=/no/such/ca.pem")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := u.PoolConfig(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "/no/such/ca.pem") || strings.Contains(err.Error(), "s3cret") {
		t.Error(err)
	}
}

// passwordOf asks the next client for its password, and closes the connection.
func passwordOf(server net.Listener) string {
	for {
		c, err := server.Accept()
		if err != nil {
			return err.Error()
		}
		defer c.Close()
		message := func(tag int) string { // without its tag and length
			head := make([]byte, tag+4)
			_, _ = io.ReadFull(c, head)
			body := make([]byte, max(int64(binary.BigEndian.Uint32(head[tag:]))-4, 0))
			_, _ = io.ReadFull(c, body)
			return string(body)
		}
		if !strings.HasPrefix(message(0), "\x00\x03") {
			continue // pgx asks to cancel what the last connection did
		}
		_, _ = c.Write([]byte("R\x00\x00\x00\x08\x00\x00\x00\x03")) // asks for the password
		return strings.TrimSuffix(message(1), "\x00")
	}
}
