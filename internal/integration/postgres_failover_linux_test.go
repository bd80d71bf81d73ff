package integration

import (
	"context"
	"errors"
	"net/url"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A lookup has read a record from the primary, and waits for the standbys, when another
// server takes over, which has no such record.
func TestPostgreSQL_NoResponseIsReturnedThatOnlyTheFormerPrimaryHad(t *testing.T) {
	for name, open := range map[string]func(t *testing.T, d ownDatabase) onlyonce.Store{
		"sqlstore": func(t *testing.T, d ownDatabase) onlyonce.Store { return openOn(t, openPool(t, "pgx", d.dsn)) },
		"pgxstore": func(t *testing.T, d ownDatabase) onlyonce.Store { return openPgxstore(t, d.dsn) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			former := newOwnServer(t, faults.PostgreSQL)
			d := former.newDatabase(t)
			db := d.migrated(t)
			clients, replication := newCutter(t, former), newCutter(t, former)
			s, reader := openOn(t, db), open(t, d.through(former, clients))
			c := serverClaim("settled")
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			next, err := faults.NewStandby(former.Server, replication.Address())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := next.Close(); err != nil {
					t.Error(err)
				}
			})
			replication.Lead("")
			gate := &standbyGate{t, former.admin}
			gate.shut()
			settled := make(chan error, 1)
			go func() {
				settled <- s.Settle(context.Background(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
			}()
			eventually(t, "the settlement is seen", func() bool {
				gate.terminate()
				var state string
				if err := db.QueryRow("SELECT state FROM onlyonce_records").Scan(&state); err != nil {
					t.Fatal(err)
				}
				return state == "completed"
			})
			<-settled

			results := make(chan asked, 2)
			look := func() {
				r, err := reader.Lookup(context.Background(), c.ID)
				results <- asked{r, err}
			}
			count := func(condition string) (n int) {
				if err := former.admin.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE datname = $1 AND "+condition, databaseOf(t, d)).Scan(&n); err != nil {
					t.Fatal(err)
				}
				return n
			}
			go look()
			eventually(t, "a lookup waits for the standbys", func() bool { return count("wait_event = 'SyncRep'") == 1 })
			go look()
			eventually(t, "another has read the record", func() bool { // so long ago that database/sql tries a connection before it uses it
				return name == "pgxstore" || count("state = 'idle' AND query LIKE '%FROM onlyonce_records%id = $1%' AND state_change < clock_timestamp() - interval '1 second'") > 0
			})
			if err := next.Promote(); err != nil {
				t.Fatal(err)
			}
			clients.Lead(next.Address())
			for range cap(results) {
				if a := <-results; a.err == nil && a.record.State != onlyonce.StateProcessing {
					t.Errorf("a lookup returned %+v, which the server does not have", a.record)
				}
			}
			eventually(t, "the new primary responds", func() bool {
				r, err := reader.Lookup(t.Context(), c.ID)
				if errors.Is(err, onlyonce.ErrNotFound) || err == nil && r.State != onlyonce.StateProcessing {
					t.Fatalf("the new primary has %+v, error %v", r, err)
				}
				return err == nil
			})
		})
	}
}

func databaseOf(t *testing.T, d ownDatabase) string {
	t.Helper()
	u, err := url.Parse(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	return u.Path[1:]
}
