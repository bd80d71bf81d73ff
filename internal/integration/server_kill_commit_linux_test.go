package integration

import (
	"fmt"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// A backend that is told to end while it flushes a commit ends after it, with
// an error and without the commit's response.
func TestServerKill_ACommitWhoseResponseWasAnErrorIsFound(t *testing.T) {
	server := newOwnServer(t, faults.PostgreSQL)
	for _, k := range keepers {
		if k.server != faults.PostgreSQL {
			continue
		}
		t.Run(k.name, func(t *testing.T) {
			d := server.newDatabase(t)
			admin := d.pool(t)
			pay := k.open(t, d.with("commit_delay=100000").with("commit_siblings=0"), newNotes()).ways[byDoTx]
			type outcome struct {
				answer string
				err    error
			}
			terminate := func() (cut bool) {
				if err := admin.QueryRowContext(t.Context(), `SELECT count(pg_terminate_backend(pid)) > 0 FROM pg_stat_activity
					WHERE datname = current_database() AND state = 'active' AND query ILIKE 'commit%'`).Scan(&cut); err != nil {
					t.Fatal(err)
				}
				return cut
			}
			// A commit lasts a tenth of a second, in which a busy machine may not get to it.
			command, cut := "", false
			for n := 0; !cut; n++ {
				if n == 100 {
					t.Fatal("no commit was met")
				}
				command = fmt.Sprint("command ", n)
				done := make(chan outcome, 1)
				go func() {
					answer, err := pay(t.Context(), command, "a token")
					done <- outcome{answer, err}
				}()
				var got outcome
				for ended := false; !ended; {
					select {
					case got = <-done:
						ended = true
					case <-time.After(time.Millisecond):
						cut = cut || terminate()
					}
				}
				if got.answer != "a token" || got.err != nil {
					t.Errorf("responded with %q, %v", got.answer, got.err)
				}
			}
			if rows := d.paid(t)[command]; len(rows) != 1 {
				t.Errorf("paid %v", rows)
			}
		})
	}
}
