package main

import (
	"context"
	"crypto/rand"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

const oneOrder = `{"items":[{"product_id":"prod-1","quantity":2,"unit_price":"19.90"}]}`

// natsStream returns the URL of a broker, and the name of a stream of the test's
// own.
func natsStream(t *testing.T) (address, name string) {
	t.Helper()
	if address = os.Getenv("ONLYONCE_NATS"); address == "" {
		address = "nats://127.0.0.1:4222"
	}
	conn, err := nats.Connect(address)
	needs.Service(t, "NATS", err)
	name = "test-" + strings.ToLower(rand.Text()[:12])
	t.Cleanup(func() {
		defer conn.Close()
		js, err := jetstream.New(conn)
		if err == nil {
			err = js.DeleteStream(context.Background(), name)
		}
		if err != nil {
			t.Error(err)
		}
	})
	return address, name
}

func TestServe_SendsEventsThroughABrokerAndARelayMayHelp(t *testing.T) {
	t.Parallel()
	address, name := natsStream(t)
	s := startServe(t, t.TempDir(), "--broker", address, "--broker-name", name)
	relay := exec.Command("onlyonce", "relay", "--store", "sqlite:"+s.data+"/onlyonce.db", "--broker", address, "--broker-name", name)
	var log cmdtest.Buffer
	relay.Stderr = &log
	if err := relay.Start(); err != nil {
		t.Fatal(err)
	}
	cmdtest.Until(t, "the relay runs", func() bool { return strings.Contains(log.String(), "relaying") })
	defer func() {
		if err := relay.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := relay.Wait(); err != nil {
			t.Error(err)
		}
	}()
	for _, key := range []string{"a", "b", "c"} {
		if got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", key); got.status != 201 {
			t.Fatalf("%+v", got)
		}
	}
	cmdtest.Until(t, "every order has its shipment", func() bool { return strings.Count(s.get("/orders").body, `"id":"shp_`) == 3 })
}

func TestServe_OrdersOfOneTenantAreNotAnothers(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--tokens", writeTokens(t, "alice", "bob"), "--allow-anonymous")
	made := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k", "Authorization", "Bearer alice-secret")
	if made.status != 201 {
		t.Fatalf("%+v", made)
	}
	for _, header := range [][]string{{"Authorization", "Bearer bob-secret"}, {"X-Tenant-ID", "carol"}, nil} {
		if got := s.get(made.header.Get("Location"), header...); got.status != 404 {
			t.Errorf("%v: %+v", header, got)
		}
	}
	if got := s.get(made.header.Get("Location"), "X-Tenant-ID", "alice"); got.status != 401 {
		t.Errorf("%+v", got)
	}
}

func TestServe_OrdersLiveOnAServerAndTheOthersInTheDirectory(t *testing.T) {
	for engine, newURL := range map[string]func(*testing.T) string{"postgres": cmdtest.NewPostgresURL, "mysql": cmdtest.NewMySQLURL} {
		t.Run(engine, func(t *testing.T) {
			at, data := newURL(t), t.TempDir()
			s := startServe(t, data, "--store", at)
			if !strings.Contains(s.stdout, "(orders)") || !strings.Contains(s.stdout, "onlyonce.db (items, sandboxes)") {
				t.Errorf("it says:\n%s", s.stdout)
			}
			made := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
			item := s.post("k", "Lamp")
			if made.status != 201 || item.status != 201 {
				t.Fatalf("order %+v, item %+v", made, item)
			}
			cmdtest.Until(t, "the order has its shipment", func() bool { return strings.Contains(s.get("/orders").body, `"id":"shp_`) })
			s.ready()
			s.signal(os.Interrupt)
			if state := s.wait(); state.ExitCode() != cli.ExitOK {
				t.Errorf("%v; log:\n%s", state, s.log.String())
			}
			// In another directory the orders are there, and the items are not.
			later := startServe(t, t.TempDir(), "--store", at)
			again := later.do("POST", "/orders", oneOrder, "Idempotency-Key", "k")
			if again.body != made.body || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("the repeat got %+v, the first %+v", again, made)
			}
			if got := later.get("/api/v1/items"); strings.Contains(got.body, "Lamp") {
				t.Errorf("items: %+v", got)
			}
		})
	}
}
