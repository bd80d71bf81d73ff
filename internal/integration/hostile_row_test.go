package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A rowStore is a store whose rows can be changed behind its back.
type rowStore interface {
	onlyonce.Store
	onlyonce.Lister
	onlyonce.Purger
	Unresolved(ctx context.Context) (int, time.Duration, error)
}

func onEveryRowStore(t *testing.T, f func(t *testing.T, engine string, s rowStore, db *sql.DB)) {
	onEveryEngine(t, func(t *testing.T, engine string, s *sqlstore.Store, db *sql.DB) { f(t, engine, s, db) })
	t.Run("pgx", func(t *testing.T) {
		s, db := newPgxSchema(t)
		f(t, "postgres", s.(rowStore), db)
	})
}

// What a row that was changed by hand means.
const (
	meansTheSame    = iota // only a time is shown as another
	meansCorrupt           // its outcome is unknown
	meansInFlight          // an attempt holds the command
	meansNothing           // it can't be used, and nothing runs
	meansNothingNew        // whatever it means, the command is not new
)

// hostile are changes of a row that no store makes.
var hostile = []struct {
	state, set string
	means      int
}{
	{"completed", "response_header = '{\"Content-Type'", meansCorrupt},
	{"completed", "steps = '[]'", meansCorrupt},
	{"completed", "state = 'finished'", meansCorrupt},
	{"completed", "attempt = -5", meansCorrupt},
	{"completed", fmt.Sprint("attempt = ", math.MinInt32), meansCorrupt},
	{"completed", fmt.Sprint("attempt = ", math.MaxInt32), meansTheSame},
	{"completed", "fence = -7", meansCorrupt},
	{"completed", fmt.Sprint("fence = ", math.MinInt64), meansCorrupt},
	{"completed", fmt.Sprint("fence = ", math.MaxInt64), meansNothing},
	{"completed", fmt.Sprint("created_at = ", math.MinInt64), meansTheSame},
	{"completed", fmt.Sprint("created_at = ", math.MaxInt64), meansTheSame},
	{"completed", fmt.Sprint("settled_at = ", math.MinInt64), meansTheSame},
	{"completed", fmt.Sprint("settled_at = ", math.MaxInt64), meansTheSame},
	{"completed", fmt.Sprint("expires_at = ", math.MaxInt64), meansTheSame},
	{"completed", fmt.Sprint("status_code = ", math.MinInt32), meansTheSame},
	{"unknown", fmt.Sprint("settled_at = ", math.MinInt64), meansTheSame},
	{"processing", "steps = '[]'", meansInFlight},
	{"processing", "attempt = -5", meansInFlight},
	{"processing", fmt.Sprint("lease_until = ", math.MaxInt64), meansInFlight},
	{"processing", fmt.Sprint("lease_until = ", math.MaxInt64, ", lapsed_keep = ", math.MaxInt64), meansInFlight},
	{"processing", fmt.Sprint("lease_until = ", math.MinInt64, ", lapsed_keep = 0"), meansNothingNew},
	{"processing", fmt.Sprint("lease_until = ", math.MinInt64, ", lapsed_keep = ", math.MinInt64), meansNothingNew},
	{"processing", "lease_until = 1, lapsed_keep = 0, steps = '[]'", meansCorrupt},
}

func TestARowThatNoStoreWritesSpoilsNothingAndIsNeverANewCommand(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, engine string, s rowStore, db *sql.DB) {
		for i, h := range hostile {
			t.Run(h.state+" "+h.set, func(t *testing.T) { tryHostile(t, s, db, fmt.Sprint(i), h.state, h.set, h.means) })
		}
		// A number that only SQLite has room for.
		if engine == "sqlite" {
			tryHostile(t, s, db, "status", "completed", "status_code = 1099511627776", meansCorrupt)
			tryHostile(t, s, db, "attempt", "completed", fmt.Sprint("attempt = ", math.MaxInt64), meansTheSame)
		}
	})
}

func tryHostile(t *testing.T, s rowStore, db *sql.DB, key, state, set string, means int) {
	emptied(t, db, "onlyonce_records")
	c := claimOf(key)
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if state != "processing" {
		st := completed
		st.State = onlyonce.State(state)
		if err := s.Settle(t.Context(), holdOf(r), st); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := db.Exec("UPDATE onlyonce_records SET " + set); err != nil {
		t.Fatal(err)
	}

	// The row harms no other command.
	other := claimOf("beside " + key)
	if r, err := s.Claim(t.Context(), other); err != nil || r.Owner != other.Owner {
		t.Fatalf("another command got %+v and error %v", r, err)
	}
	listed := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil {
			t.Fatalf("list: %v", err)
		}
		if _, err := json.Marshal(r); err != nil {
			t.Errorf("list: %v", err)
		}
		listed++
	}
	if listed != 2 {
		t.Errorf("%d records are listed, want 2", listed)
	}
	if _, oldest, err := s.Unresolved(t.Context()); err != nil || oldest < 0 {
		t.Errorf("unresolved for %v, error %v", oldest, err)
	}
	if _, err := s.Purge(t.Context(), 100); err != nil {
		t.Errorf("purge: %v", err)
	}

	got, err := s.Lookup(t.Context(), c.ID)
	if means == meansNothing {
		if err == nil {
			t.Errorf("lookup got %+v", got)
		}
	} else if err != nil || got.Corrupt != (means == meansCorrupt) || got.Corrupt && (got.State != onlyonce.StateUnknown || got.Error == "") {
		t.Errorf("lookup got %+v and error %v", got, err)
	}
	again := claimOf(key)
	again.TakeUnknown = false
	if r, err := s.Claim(t.Context(), again); r.Owner == again.Owner || (err != nil) != (means == meansNothing) {
		t.Errorf("a claim that takes nothing unknown got %+v and error %v", r, err)
	}
	again = claimOf(key)
	next, err := s.Claim(t.Context(), again)
	taken := means == meansCorrupt || means == meansNothingNew || state == "unknown"
	if (next.Owner == again.Owner) != taken || (err != nil) != (means == meansNothing) {
		t.Fatalf("a claim got %+v and error %v", next, err)
	}
	if taken && (next.Attempt < 1 || next.Fence <= got.Fence) {
		t.Errorf("taken as %+v after %+v", next, got)
	}
	if taken {
		if err := s.Settle(t.Context(), holdOf(next), completed); err != nil {
			t.Error(err)
		}
	}
}
