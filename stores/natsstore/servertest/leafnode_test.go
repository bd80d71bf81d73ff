package servertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// Through a leafnode, a message reaches the streams of two domains that take its subject, and
// each of them confirms it.
func TestStore_AStreamOfAnotherDomainConfirmsNothing(t *testing.T) {
	hub, leaf := startLeafnode(t)
	atHub, atLeaf := connect(t, hub), connect(t, leaf)
	migrate(t, atHub, natsstore.Config{})
	migrate(t, atLeaf, natsstore.Config{})
	far, err := jetstream.NewWithDomain(atLeaf.Conn(), "hub")
	if err != nil {
		t.Fatal(err)
	}
	for _, err = far.Stream(t.Context(), natsstore.DefaultStream); err != nil; _, err = far.Stream(t.Context(), natsstore.DefaultStream) {
		time.Sleep(10 * time.Millisecond) // the servers have not met yet
	}
	patient, s := open(t, far, natsstore.Config{Timeout: 5 * time.Minute}), open(t, far, natsstore.Config{Timeout: 2 * time.Second})
	r, err := patient.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	change(t, atHub, func(c *jetstream.StreamConfig) { c.MaxBytes = 1 }) // it takes nothing more
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err == nil {
		now, err := patient.Lookup(t.Context(), r.ID)
		if err != nil || now.State != onlyonce.StateCompleted {
			t.Errorf("the settlement was confirmed, and the record is %+v, error %v", now, err)
		}
	}
}

// startLeafnode starts two servers, each with a JetStream domain of its own, of which the second
// is a leafnode of the first.
func startLeafnode(t *testing.T) (hub, leaf *natsServer) {
	t.Helper()
	var err error
	for range 5 { // another process may take a port that was free
		port := freePort(t)
		hub = newServer(t, "hub", func(s *natsServer) string {
			return s.jetstream("domain: hub") + fmt.Sprintf("leafnodes { listen: 127.0.0.1:%s }\n", port)
		})
		leaf = newServer(t, "leaf", func(s *natsServer) string {
			return s.jetstream("domain: leaf") + fmt.Sprintf("leafnodes { remotes: [{url: \"nats://app:app@127.0.0.1:%s\", account: APP}] }\n", port)
		})
		hub.port, leaf.port = freePort(t), freePort(t)
		if err = hub.launch(); err == nil {
			if err = leaf.launch(); err == nil {
				return hub, leaf
			}
		}
		hub.kill()
		leaf.kill()
	}
	t.Fatal(err)
	return nil, nil
}
