package servertest

import (
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/natsstore"
	"github.com/onlyonce-go/onlyonce/stores/storetest"
)

func TestStore_KeepsTheRules(t *testing.T) {
	t.Parallel()
	runRules(t, connect(t, startNATS(t, "")), natsstore.Config{})
}

// runRules runs the rules of a store on one stream, which may be emptied between them: to
// make one for each takes long in a cluster.
func runRules(t *testing.T, js jetstream.JetStream, cfg natsstore.Config) {
	stream, err := js.CreateStream(t.Context(), jetstream.StreamConfig{
		Name: natsstore.DefaultStream, Subjects: []string{"onlyonce.records.>"}, Replicas: max(cfg.Replicas, 1),
		Discard: jetstream.DiscardNew, MaxMsgsPerSubject: 1, AllowMsgTTL: true, DenyDelete: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	migrate(t, js, cfg)
	cfg.AcceptRisks = []string{natsstore.RiskEviction}
	storetest.Run(t, func(t *testing.T) onlyonce.Store {
		// Messages that an earlier rule has sent without waiting are stored before this.
		publish(t, js, &nats.Msg{Subject: "onlyonce.records.tick"})
		if err := stream.Purge(t.Context(), jetstream.WithPurgeSubject("onlyonce.records.*.*")); err != nil {
			t.Fatal(err)
		}
		return open(t, js, cfg)
	})
}

func TestStore_TheClockOfTheProcessDoesNotMatter(t *testing.T) {
	t.Parallel()
	server := startNATS(t, "")
	var n atomic.Int64
	storetest.RunClock(t, func(t *testing.T) func(*testing.T) onlyonce.Store {
		cfg := natsstore.Config{Stream: "t" + strconv.FormatInt(n.Add(1), 10)}
		migrate(t, connect(t, server), cfg)
		cfg.AcceptRisks = []string{natsstore.RiskSecondStream} // in a bubble, a response that does not come is waited for without end
		return func(t *testing.T) onlyonce.Store { return open(t, connect(t, server), cfg) }
	})
}
