package servertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// sameID makes clusters have the same ID, as those have that are started without options:
// etcd makes the ID of the peer URLs and the cluster's token.
var sameID = []string{
	"--initial-advertise-peer-urls", "http://127.0.0.1:2380", "--initial-cluster", "n0=http://127.0.0.1:2380",
}

// clusters are the options of two clusters: with IDs of their own, and with the same one.
var clusters = map[string][]string{"two IDs": nil, "one ID": sameID}

// twoClusters runs a test with two clusters of one member each.
func twoClusters(t *testing.T, test func(t *testing.T, a, b *etcdServer)) {
	for name, options := range clusters {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, start(t, 1, options...)[0], start(t, 1, options...)[0])
		})
	}
}

func TestOpen_RejectsMembersOfTwoClusters(t *testing.T) {
	t.Parallel()
	twoClusters(t, func(t *testing.T, a, b *etcdServer) {
		migrate(t, connect(t, a), etcdstore.Config{})
		both := connect(t, a, b)
		for _, migrated := range []string{"one of them", "both"} {
			_, err := etcdstore.Open(t.Context(), both, etcdstore.Config{})
			for _, want := range []string{"mixed-servers: ", a.Client, b.Client, "members of one cluster"} {
				if !contains(err, want) {
					t.Errorf("%s has the store's key: the error is %v, want %q in it", migrated, err, want)
				}
			}
			if _, err := etcdstore.Migrate(t.Context(), both, etcdstore.Config{}); !contains(err, "mixed-servers: ") {
				t.Errorf("%s has the store's key: migrate: %v", migrated, err)
			}
			if migrated == "one of them" && get(t, connect(t, b), clockKey) != nil {
				t.Error("migrate has written to the other cluster")
			}
			migrate(t, connect(t, b), etcdstore.Config{})
		}
		wants(t, etcdstore.Config{AcceptRisks: []string{"mixed-servers"}}, both, `there is no risk "mixed-servers"`)
	})
}

func TestMigrate_RejectsMembersOfTwoClustersThatAreNew(t *testing.T) {
	t.Parallel()
	twoClusters(t, func(t *testing.T, a, b *etcdServer) {
		if made, err := etcdstore.Migrate(t.Context(), connect(t, a, b), etcdstore.Config{}); made || !contains(err, "mixed-servers: ") {
			t.Errorf("migrate reports %v, error %v", made, err)
		}
		if !strings.HasSuffix(t.Name(), "two_IDs") {
			return // one of the two has the key, by which they differ
		}
		for _, server := range []*etcdServer{a, b} {
			if get(t, connect(t, server), clockKey) != nil {
				t.Errorf("%s has the store's key", server.Client)
			}
		}
	})
}

// A member of another cluster that is down when the store is opened is found out when it
// responds, and nothing that it says counts.
func TestStore_RunsNothingOnAMemberOfAnotherCluster(t *testing.T) {
	t.Parallel()
	twoClusters(t, func(t *testing.T, a, b *etcdServer) {
		for _, server := range []*etcdServer{a, b} {
			migrate(t, connect(t, server), etcdstore.Config{})
		}
		was := get(t, connect(t, b), clockKey)
		b.Kill()
		s := open(t, connect(t, a, b), etcdstore.Config{Timeout: 5 * time.Second})
		hazard.CheckOtherCluster(t, s, etcdstore.ErrOtherCluster, etcdstore.ErrForgotten, func() {
			a.Kill()
			b.restart()
		}, func() {
			if is := get(t, connect(t, b), clockKey); is.ModRevision != was.ModRevision {
				t.Error("the clock of the other cluster was moved")
			}
			b.Kill()
			a.restart()
		})
	})
}

// While members of two clusters respond, each call is sent until the right one does.
func TestStore_KeepsEverythingInOneClusterWhileMembersOfTwoRespond(t *testing.T) {
	t.Parallel()
	twoClusters(t, func(t *testing.T, a, b *etcdServer) {
		for _, server := range []*etcdServer{a, b} {
			migrate(t, connect(t, server), etcdstore.Config{})
		}
		b.Kill()
		s := open(t, connect(t, a, b), patient)
		b.restart()
		for n := 0; ; n++ {
			id := hazard.Run(t, s, fmt.Sprint("k", n))
			if get(t, connect(t, a), headOf(id)) == nil {
				t.Fatalf("record %d is not in the store's cluster", n)
			}
			if findings, err := s.Diagnose(t.Context()); err != nil {
				t.Fatal(err)
			} else if n >= 50 && len(findings) == 1 && findings[0].Name == etcdstore.RiskMixed {
				return
			}
		}
	})
}

func TestOpen_AMemberThatIsDownDoesNotMatter(t *testing.T) {
	t.Parallel()
	servers := start(t, 3)
	migrate(t, connect(t, servers...), etcdstore.Config{})
	servers[0].Kill()
	s := open(t, connect(t, servers...), patient)
	hazard.Run(t, s, "two members")
	servers[0].restart()
	servers[1].Kill()
	hazard.Run(t, s, "two others")
}
