package servertest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// A settlement that was confirmed is kept, whichever server dies.
func TestCluster_KillsOfTheLeaderLoseNothing(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := connect(t, c.nodes...)
	cfg := c.config("onlyonce")
	migrate(t, js, cfg)
	s := open(t, js, cfg)
	settled := make(map[onlyonce.ID]bool)
	killed := c.nodes[c.leader(js, cfg.Stream)]
	hazard.Load(t, s, "", settled, func() {
		killed.kill()
		hazard.Run(t, s, "after the kill") // it waits for the next leader
	})
	for id := range settled {
		again := hazard.Claim(id.Key)
		if r, err := s.Claim(t.Context(), again); err != nil || r.State != onlyonce.StateCompleted || r.Owner == again.Owner {
			t.Fatalf("a repeat of %v got %+v, error %v", id, r, err)
		}
	}
	killed.restart()
	for _, n := range c.nodes { // all at once
		n.kill()
	}
	for _, n := range c.nodes {
		n.restart()
	}
	for id := range settled {
		if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
			t.Fatalf("after a kill of all, the record of %v is %+v, error %v", id, r, err)
		}
	}
}

// A leader that is cut off from the others responds for some seconds with its old records.
func TestCluster_ALeaderThatIsCutOffGivesNothingAndTakesNothingAway(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := connect(t, c.nodes...)
	cfg := c.config("onlyonce")
	migrate(t, js, cfg)
	settled := hazard.Run(t, open(t, js, cfg), "settled before")

	// It responds only if it leads the whole cluster, too.
	old := c.metaLeader()
	for c.leader(js, cfg.Stream) != old {
		stepDown(t, js, cfg.Stream)
	}
	var others []*natsServer
	for i, n := range c.nodes {
		if i != old {
			others = append(others, n)
		}
	}
	impatient := cfg
	impatient.Timeout = time.Second
	minority, majority := openHasty(t, connect(t, c.nodes[old]), impatient), open(t, connect(t, others...), cfg)
	back := open(t, connect(t, c.nodes[old]), cfg)
	lapsing := hazard.Claim("lapsing")
	lapsing.Lease = time.Millisecond
	if _, err := majority.Claim(t.Context(), lapsing); err != nil {
		t.Fatal(err)
	}

	c.isolate(old)
	held, err := majority.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}
	taken := hazard.Claim("lapsing")
	taken.TakeUnknown = true
	if r, err := majority.Claim(t.Context(), taken); err != nil || r.Owner != taken.Owner && r.LeaseLeft <= 0 {
		t.Fatalf("the majority got %+v, error %v", r, err)
	}

	for name, call := range map[string]func() error{
		"settle":  func() error { return minority.Settle(t.Context(), hazard.Hold(held), hazard.Completed) },
		"release": func() error { return minority.Settle(t.Context(), hazard.Hold(held), onlyonce.Settlement{}) },
		"renew":   func() error { return minority.Renew(t.Context(), hazard.Hold(held), time.Minute, nil) },
	} {
		if err := call(); err == nil || errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("%s of a command that the other servers granted: %v", name, err)
		}
	}
	for _, key := range []string{"held", "lapsing", "new"} {
		claim := hazard.Claim(key)
		claim.TakeUnknown = true
		if r, err := minority.Claim(t.Context(), claim); r.Owner == claim.Owner {
			t.Errorf("%s: the claim was given, error %v", key, err)
		}
	}
	again := hazard.Claim(settled.Key)
	if r, err := minority.Claim(t.Context(), again); r.Owner == again.Owner || err == nil && r.State != onlyonce.StateCompleted {
		t.Errorf("a repeat got %+v, error %v", r, err)
	}

	c.heal()
	if err := back.Settle(t.Context(), hazard.Hold(held), hazard.Completed); err != nil {
		t.Errorf("settle after the partition: %v", err)
	}
	for _, key := range []string{"held", "settled before"} {
		if r, err := back.Lookup(t.Context(), hazard.Claim(key).ID); err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("%s: the record is %+v, error %v", key, r, err)
		}
	}
	hazard.Run(t, back, "new")
}

// The clocks of two leaders may differ, so a lease that the one has begun ends later under
// the other.
func TestCluster_ALeaseLastsLongerUnderAnotherLeader(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	js := connect(t, c.nodes...)
	cfg := c.config("onlyonce")
	cfg.ClockSkew = time.Hour
	migrate(t, js, cfg)
	s := open(t, js, cfg)
	lapsed := func(key string) {
		t.Helper()
		first := hazard.Claim(key)
		first.Lease = time.Millisecond
		if _, err := s.Claim(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		for {
			if r, err := s.Lookup(t.Context(), first.ID); err != nil {
				t.Fatal(err)
			} else if r.LeaseLeft <= 0 {
				return
			}
		}
	}
	take := func(key string) (onlyonce.Claim, onlyonce.Record) {
		t.Helper()
		claim := hazard.Claim(key)
		claim.TakeUnknown = true
		r, err := s.Claim(t.Context(), claim)
		if err != nil {
			t.Fatal(err)
		}
		return claim, r
	}
	underOneLeader := func(key string) {
		t.Helper()
		for n := 0; ; n++ { // servers that are busy may choose another leader meanwhile
			was := c.leader(js, cfg.Stream)
			name := fmt.Sprint(key, n)
			lapsed(name)
			claim, r := take(name)
			if r.Owner == claim.Owner {
				return
			}
			if c.leader(js, cfg.Stream) == was {
				t.Errorf("%s: a claim got %+v", key, r)
				return
			}
		}
	}
	lapsed("before")
	underOneLeader("under the same leader")

	was := c.leader(js, cfg.Stream)
	for c.leader(js, cfg.Stream) == was {
		stepDown(t, js, cfg.Stream)
	}
	if claim, r := take("before"); r.Owner == claim.Owner || r.LeaseLeft < 30*time.Minute {
		t.Errorf("under another leader, a claim got %+v", r)
	}
	underOneLeader("of a lease that began under this leader")

	// A server that alone has the stream does not say since when.
	lapsed("three replicas")
	change(t, js, func(c *jetstream.StreamConfig) { c.Replicas = 1 })
	for {
		info, err := stream(t, js).Info(t.Context())
		if err == nil && info.Cluster.LeaderSince == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if claim, r := take("three replicas"); r.Owner == claim.Owner || r.LeaseLeft < 30*time.Minute {
		t.Errorf("under the only server that is left, a claim got %+v", r)
	}
}

// stepDown makes the leader of a stream give way to another. It may have none just now.
func stepDown(t *testing.T, js jetstream.JetStream, stream string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := js.Conn().RequestWithContext(ctx, "$JS.API.STREAM.LEADER.STEPDOWN."+stream, nil); err != nil && t.Context().Err() != nil {
		t.Fatal(err)
	}
}

func TestCluster_ARecordOfAnySizeIsReadThroughAnyServer(t *testing.T) {
	t.Parallel()
	c := startCluster(t)
	cfg := c.config("onlyonce")
	migrate(t, connect(t, c.nodes...), cfg)
	large := hazard.Completed
	large.Result.Body = make([]byte, 7<<20)
	for i, n := range c.nodes {
		s := open(t, connect(t, n), cfg)
		r, err := s.Claim(t.Context(), hazard.Claim(fmt.Sprint(i)))
		if err == nil {
			err = s.Settle(t.Context(), hazard.Hold(r), large)
		}
		if err != nil {
			t.Fatal(err)
		}
		for _, other := range c.nodes {
			if r, err := open(t, connect(t, other), cfg).Lookup(t.Context(), r.ID); err != nil || len(r.Result.Body) != len(large.Result.Body) {
				t.Errorf("%s: the record has %d bytes, error %v", other.name, len(r.Result.Body), err)
			}
		}
	}
}
