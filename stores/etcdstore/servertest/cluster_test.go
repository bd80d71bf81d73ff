package servertest

import (
	"context"
	"errors"
	"syscall"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

func TestCluster_KeepsTheRules(t *testing.T) {
	t.Parallel()
	runRules(t, connect(t, start(t, 3)...), etcdstore.Config{Members: 3, Timeout: patient.Timeout})
}

// leader returns the number of the server that leads the cluster, according to one of some servers.
func leader(t *testing.T, servers []*etcdServer, asked ...int) int {
	t.Helper()
	client := connect(t, servers...)
	for ; ; time.Sleep(10 * time.Millisecond) {
		for _, i := range asked {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			about, err := client.Status(ctx, servers[i].Client)
			cancel()
			if t.Context().Err() != nil {
				t.Fatal(err)
			}
			if err != nil || about.Leader == 0 {
				continue
			}
			for j, s := range servers {
				if id := memberID(t, s); id == about.Leader {
					return j
				}
			}
		}
	}
}

// memberID returns the ID of a server that responds, or 0.
func memberID(t *testing.T, s *etcdServer) uint64 {
	t.Helper()
	client := newClient(t, s.Client)
	defer client.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	about, err := client.Status(ctx, s.Client)
	if err != nil {
		return 0
	}
	return about.Header.MemberId
}

// A settlement that was confirmed is kept, whichever member dies.
func TestCluster_KillsOfTheLeaderLoseNothing(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	servers := start(t, 3)
	client := connect(t, servers...)
	migrate(t, client, etcdstore.Config{})
	s := open(t, client, etcdstore.Config{Members: 3, Timeout: patient.Timeout})
	settled := make(map[onlyonce.ID]bool)
	for _, round := range []string{"first", "second"} {
		killed := servers[leader(t, servers, 0, 1, 2)]
		load(t, s, round, settled, killed.Kill)
		hazard.CheckRepeats(t, s, settled)
		killed.restart()
	}
	for _, each := range servers { // all at once
		each.Kill()
	}
	for _, each := range servers {
		each.restart()
	}
	hazard.CheckRepeats(t, s, settled)
}

// A leader that was stopped for a while believes that it leads when it goes on.
func TestCluster_ALeaderThatWasStoppedGivesNothingAndTakesNothingAway(t *testing.T) {
	t.Parallel()
	servers := start(t, 3)
	client := connect(t, servers...)
	migrate(t, client, etcdstore.Config{})
	old := leader(t, servers, 0, 1, 2)
	others := []int{(old + 1) % 3, (old + 2) % 3}
	minority := open(t, connect(t, servers[old]), patient)
	hazard.Run(t, minority, "before")
	majority := open(t, connect(t, servers[others[0]], servers[others[1]]), patient)
	lapsing := hazard.Claim("lapsing")
	lapsing.Lease = time.Millisecond
	first, err := minority.Claim(t.Context(), lapsing)
	if err != nil {
		t.Fatal(err)
	}

	if err := servers[old].Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	held, err := majority.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}
	taken := hazard.Claim("lapsing")
	taken.TakeUnknown = true
	for {
		r, err := majority.Claim(t.Context(), taken)
		if err != nil {
			t.Fatal(err)
		}
		if r.Owner == taken.Owner {
			break
		}
	}
	if err := servers[old].Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}

	if err := minority.Settle(t.Context(), hazard.Hold(first), hazard.Completed); err == nil {
		t.Error("the first attempt, whose command another has, could settle")
	}
	for _, key := range []string{"held", "before"} {
		claim := hazard.Claim(key)
		claim.TakeUnknown = true
		if r, err := minority.Claim(t.Context(), claim); err != nil || r.Owner == claim.Owner {
			t.Errorf("%s: a claim got %+v, error %v", key, r, err)
		}
	}
	if err := minority.Settle(t.Context(), hazard.Hold(held), hazard.Completed); err != nil {
		t.Errorf("settle a command that the other members granted: %v", err)
	}
	if r, err := majority.Lookup(t.Context(), held.ID); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

// A waiter's watch outlives its server.
func TestWait_GoesOnAfterTheServerWasKilled(t *testing.T) {
	t.Parallel()
	server, _, s := migrated(t)
	r, err := s.Claim(t.Context(), hazard.Claim("k"))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the watch has begun when the first waiter is woken
		woken := make(chan error, 1)
		go func() { woken <- s.Wait(t.Context(), hazard.Claim("k").ID) }()
		for {
			if err := s.Settle(t.Context(), hazard.Hold(r), onlyonce.Settlement{}); err != nil {
				t.Fatal(err)
			}
			if r, err = s.Claim(t.Context(), hazard.Claim("k")); err != nil {
				t.Fatal(err)
			}
			select {
			case err = <-woken:
			default:
				continue
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		server.Kill()
		server.restart()
	}
}

// A leader that is cut off from the other members, but not from its clients, believes for a
// while that it leads.
func TestCluster_ALeaderThatIsCutOffGivesNothingAndTellsNothingOld(t *testing.T) {
	t.Parallel()
	cluster := startCluster(t, 3)
	servers := cluster.servers
	migrate(t, connect(t, servers...), etcdstore.Config{})
	old := leader(t, servers, 0, 1, 2)
	others := []int{(old + 1) % 3, (old + 2) % 3}
	minority := open(t, connect(t, servers[old]), patient)
	hazard.Run(t, minority, "before")
	majority := open(t, connect(t, servers[others[0]], servers[others[1]]), patient)
	held, err := minority.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}
	cluster.Isolate(old)
	if err := majority.Settle(t.Context(), hazard.Hold(held), hazard.Completed); err != nil {
		t.Fatal(err)
	}
	taken, err := majority.Claim(t.Context(), hazard.Claim("taken"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	for name, call := range map[string]func() error{
		"lookup": func() error { _, err := minority.Lookup(ctx, held.ID); return err },
		"claim":  func() error { _, err := minority.Claim(ctx, hazard.Claim("taken")); return err },
		"settle": func() error { return minority.Settle(ctx, hazard.Hold(held), hazard.Completed) },
		"list": func() error {
			for _, err := range minority.List(ctx, onlyonce.Filter{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"count": func() error { _, _, err := minority.Unresolved(ctx); return err },
	} {
		if err := call(); err == nil || errors.Is(err, onlyonce.ErrLost) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s on the leader that is cut off: %v", name, err)
		}
	}
	cluster.Heal()
	if r, err := minority.Claim(t.Context(), hazard.Claim("taken")); err != nil || r.Owner != taken.Owner {
		t.Errorf("a claim after the members have found each other got %+v, error %v", r, err)
	}
	if r, err := minority.Lookup(t.Context(), held.ID); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}
