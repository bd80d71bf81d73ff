package servertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
)

// Through a leafnode, a message reaches the streams of two domains that take its subject, and
// each of them confirms it.
func TestStore_AStreamOfAnotherDomainConfirmsNothing(t *testing.T) {
	hub, leaf := startLeafnode(t, "domain: hub", "domain: leaf")
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
	patient, s := open(t, far, natsstore.Config{Timeout: 5 * time.Minute}), openHasty(t, far, natsstore.Config{Timeout: 2 * time.Second})
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

// Without domains, nothing in a confirmation tells which stream has stored the message.
func TestOpen_RejectsASecondStreamThatConfirmsTheSameMessages(t *testing.T) {
	hub, leaf := startLeafnode(t, "", "")
	atHub, atLeaf := connect(t, hub), connect(t, leaf)
	migrate(t, atHub, natsstore.Config{})
	other := natsstore.Config{Stream: "other"}
	migrate(t, atHub, other)
	migrate(t, atLeaf, natsstore.Config{})
	met, err := atLeaf.Conn().SubscribeSync("met") // the hub learns of this after it has learned of the stream
	if err != nil {
		t.Fatal(err)
	}
	for err = error(nats.ErrTimeout); err != nil; _, err = met.NextMsg(10 * time.Millisecond) {
		if err := atHub.Conn().Publish("met", nil); err != nil {
			t.Fatal(err)
		}
	}
	_, err = natsstore.Open(t.Context(), atHub, natsstore.Config{AcceptRisks: unsynced})
	if err == nil || !strings.Contains(err.Error(), "second-stream: ") {
		t.Errorf("the error is %v", err)
	}
	open(t, atHub, other)
	open(t, atHub, natsstore.Config{AcceptRisks: []string{natsstore.RiskSecondStream}})
}

// startLeafnode starts two servers, of which the second is a leafnode of the first. Their
// jetstream sections have the settings.
func startLeafnode(t *testing.T, atHub, atLeaf string) (hub, leaf *natsServer) {
	t.Helper()
	var err error
	for range 5 { // another process may take a port that was free
		port := freePort(t)
		hub = newServer(t, "hub", func(s *natsServer) string {
			return s.jetstream(atHub) + fmt.Sprintf("leafnodes { listen: 127.0.0.1:%s }\n", port)
		})
		leaf = newServer(t, "leaf", func(s *natsServer) string {
			return s.jetstream(atLeaf) + fmt.Sprintf("leafnodes { remotes: [{url: \"nats://app:app@127.0.0.1:%s\", account: APP}] }\n", port)
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
