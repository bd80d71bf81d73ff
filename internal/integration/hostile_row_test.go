package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/outbox"
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

// The meaning of a row that was changed by hand.
const (
	meansTheSame    = iota // only a time is shown as another
	meansCorrupt           // its outcome is unknown
	meansInFlight          // an attempt holds the command
	meansNothing           // it can't be used, and nothing runs
	meansNothingNew        // any meaning, except that the command is new
)

// hostile are changes of a row that no store makes.
var hostile = []struct {
	state, set string
	means      int
}{
	{"completed", "response_header = '{\"Content-Type'", meansCorrupt},
	{"completed", "steps = '[]'", meansCorrupt},
	{"completed", "state = 'finished'", meansCorrupt},
	{"completed", "state = ''", meansCorrupt},
	{"completed", "attempt = -5", meansCorrupt},
	{"completed", fmt.Sprint("attempt = ", math.MinInt32), meansCorrupt},
	{"completed", fmt.Sprint("attempt = ", math.MaxInt32), meansTheSame},
	{"completed", "fence = -7", meansCorrupt},
	{"completed", fmt.Sprint("fence = ", math.MinInt64), meansCorrupt},
	{"completed", fmt.Sprint("fence = ", math.MaxInt64), meansNothing},
	{"completed", "created_at = 0", meansTheSame},
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

func TestDamagedRow_ARowThatNoStoreWritesSpoilsNothingAndIsNeverANewCommand(t *testing.T) {
	needs.Time(t)
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
		for next, err := range s.List(t.Context(), onlyonce.Filter{After: r}) {
			if err != nil || next.ID == r.ID {
				t.Errorf("%+v is listed after itself, error %v", next.ID, err)
			}
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

func TestDamagedRow_ADecisionAboutADamagedRowTakesEffect(t *testing.T) {
	needs.Time(t)
	damages := []string{"steps = '[]'", "attempt = 0", "fence = -7", "state = 'finished'", "response_header = '{'", "fingerprint = %s, steps = '[]', attempt = -5"}
	onEveryRowStore(t, func(t *testing.T, engine string, s rowStore, db *sql.DB) {
		cutOff := "X'0073756d6d6172793a'" // the beginning of a fingerprint with a summary
		if engine == "postgres" {
			cutOff = `'\x0073756d6d6172793a'`
		}
		for i, damage := range damages {
			t.Run(damage, func(t *testing.T) {
				emptied(t, db, "onlyonce_records")
				c := claimOf(fmt.Sprint("decided ", i))
				r, err := s.Claim(t.Context(), c)
				if err == nil {
					err = s.Settle(t.Context(), holdOf(r), completed)
				}
				if err == nil {
					_, err = db.Exec("UPDATE onlyonce_records SET " + strings.ReplaceAll(damage, "%s", cutOff))
				}
				if err != nil {
					t.Fatal(err)
				}
				seen, err := s.Lookup(t.Context(), c.ID)
				if err != nil || !seen.Corrupt {
					t.Fatalf("lookup got %+v and error %v", seen, err)
				}
				decision := onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("by hand")}, Keep: time.Hour}
				if err := s.(onlyonce.Resolver).Resolve(t.Context(), seen, decision); err != nil {
					t.Fatal(err)
				}
				again := claimOf(c.ID.Key)
				got, err := s.Claim(t.Context(), again)
				if err != nil || got.Owner == again.Owner || got.State != onlyonce.StateCompleted || string(got.Result.Body) != "by hand" {
					t.Errorf("a repeat got %+v and error %v", got, err)
				}
			})
		}
	})
}

// httponce.Config.RunUnprotected is for a store that can't be reached.
func TestDamagedRow_ACommandWhoseRecordCantBeUsedDoesNotRunUnprotected(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, _ string, s rowStore, db *sql.DB) {
		for _, damage := range []string{fmt.Sprint("fence = ", math.MaxInt64), "tenant = 'another'"} {
			emptied(t, db, "onlyonce_records")
			runs := 0
			pay := http.HandlerFunc(func(http.ResponseWriter, *http.Request) { runs++ })
			post := func() int {
				r, w := httptest.NewRequest("POST", "/pay", nil), httptest.NewRecorder()
				r.Header.Set("Idempotency-Key", "k")
				guard := onlyonce.New(s, onlyonce.Config{Observer: onlyonce.DiscardEvents})
				httponce.Wrap(guard, pay, httponce.Config{Tenant: httponce.SingleTenant, RunUnprotected: true}).ServeHTTP(w, r)
				return w.Code
			}
			if code := post(); code != 200 || runs != 1 {
				t.Fatalf("the response is %d, after %d runs", code, runs)
			}
			if _, err := db.Exec("UPDATE onlyonce_records SET " + damage); err != nil {
				t.Fatal(err)
			}
			if code := post(); code != 503 || runs != 1 {
				t.Errorf("%s: the response to a repeat is %d, after %d runs", damage, code, runs)
			}
		}
	})
}

func TestDamagedRow_ARecordInAStateThatNoStoreWritesIsUnresolved(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, _ string, s rowStore, db *sql.DB) {
		for _, state := range []string{"", "COMPLETED", "done", "finished", "zz"} {
			emptied(t, db, "onlyonce_records")
			for _, key := range []string{"damaged", "whole"} {
				r, err := s.Claim(t.Context(), claimOf(key))
				if err == nil {
					err = s.Settle(t.Context(), holdOf(r), completed)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Exec("UPDATE onlyonce_records SET settled_at = settled_at - 60000000, state = '" + state + "' WHERE idem_key = 'damaged'"); err != nil {
				t.Fatal(err)
			}
			if n, oldest, err := s.Unresolved(t.Context()); n != 1 || oldest < time.Minute || err != nil {
				t.Errorf("state %q: %d are unresolved, the oldest for %v, error %v", state, n, oldest, err)
			}
		}
	})
}

// The floor would be that of every new command.
func TestDamagedRow_AFenceThatLeavesNoneAboveItDoesNotBecomeTheFloor(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, _ string, s rowStore, db *sql.DB) {
		for _, set := range []string{"expires_at = 1", "lease_until = 1, lapsed_keep = 1"} {
			emptied(t, db, "onlyonce_records")
			for _, key := range []string{"damaged", "whole"} {
				r, err := s.Claim(t.Context(), claimOf(key))
				if err == nil && set == "expires_at = 1" {
					err = s.Settle(t.Context(), holdOf(r), completed)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			for _, text := range []string{
				"UPDATE onlyonce_records SET " + set,
				fmt.Sprint("UPDATE onlyonce_records SET fence = ", math.MaxInt64, " WHERE idem_key = 'damaged'"),
			} {
				if _, err := db.Exec(text); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				if _, err := s.Purge(t.Context(), 100); err != nil {
					t.Errorf("%s: purge: %v", set, err)
				}
			}
			for _, key := range []string{"whole", "new"} {
				c := claimOf(key)
				if r, err := s.Claim(t.Context(), c); err != nil || r.Owner != c.Owner || r.Fence > 1<<62 {
					t.Errorf("%s: a claim on %s got %+v and error %v", set, key, r, err)
				}
			}
			if r, err := s.Lookup(t.Context(), claimOf("damaged").ID); err == nil || errors.Is(err, onlyonce.ErrNotFound) {
				t.Errorf("%s: lookup of the damaged record got %+v and error %v", set, r, err)
			}
		}
	})
}

func TestDamagedRow_AStepIsNotWrittenOverStepsThatCanNotBeRead(t *testing.T) {
	onEveryRowStore(t, func(t *testing.T, _ string, s rowStore, db *sql.DB) {
		r, err := s.Claim(t.Context(), claimOf("k"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec("UPDATE onlyonce_records SET steps = '['"); err != nil {
			t.Fatal(err)
		}
		if err := s.Renew(t.Context(), holdOf(r), time.Minute, map[string][]byte{"paid": []byte("1")}); err == nil || errors.Is(err, onlyonce.ErrLost) {
			t.Errorf("a renewal with a step returned %v", err)
		}
		var steps string
		if err := db.QueryRow("SELECT steps FROM onlyonce_records").Scan(&steps); err != nil || steps != "[" {
			t.Errorf("the steps are %q, error %v", steps, err)
		}
		if err := s.Renew(t.Context(), holdOf(r), time.Minute, nil); err != nil {
			t.Errorf("a renewal without a step returned %v", err)
		}
		if err := s.Settle(t.Context(), holdOf(r), completed); err != nil {
			t.Errorf("settle returned %v", err)
		}
	})
}

// damagedForTx are rows that a transaction of RunTx takes over, if at all, as those of an
// unknown outcome.
var damagedForTx = []struct{ state, set string }{
	{"completed", "state = ''"},
	{"completed", "state = 'finished'"},
	{"completed", "steps = '{'"},
	{"completed", "response_header = '{'"},
	{"completed", "attempt = -5"},
	{"processing", "lease_until = 1, lapsed_keep = 0, steps = '{'"},
	{"processing", "lease_until = 1, lapsed_keep = 0, steps = ''"},
}

func TestDamagedRow_ATransactionTakesADamagedRowOnceAsOneOfAnUnknownOutcome(t *testing.T) {
	needs.Time(t)
	onEveryEngine(t, func(t *testing.T, _ string, s *sqlstore.Store, db *sql.DB) { takesDamaged[*sql.Tx](t, s, db) })
	t.Run("pgx", func(t *testing.T) {
		s, db := newPgxSchema(t)
		takesDamaged(t, s, db)
	})
}

func takesDamaged[TX any](t *testing.T, s onlyonce.TxStore[TX], db *sql.DB) {
	for i, d := range damagedForTx {
		t.Run(d.state+" "+d.set, func(t *testing.T) {
			emptied(t, db, "onlyonce_records")
			key := fmt.Sprint(i)
			r, err := s.Claim(t.Context(), claimOf(key))
			if err == nil && d.state == "completed" {
				err = s.Settle(t.Context(), holdOf(r), completed)
			}
			if err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec("UPDATE onlyonce_records SET " + d.set); err != nil {
				t.Fatal(err)
			}
			runs := 0
			run := func(c onlyonce.Claim) (onlyonce.Record, error) {
				return s.RunTx(t.Context(), c, func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
					runs++
					return completed, nil
				})
			}
			cautious := claimOf(key)
			cautious.TakeUnknown = false
			if got, err := run(cautious); err != nil || runs > 0 || got.Owner == cautious.Owner {
				t.Errorf("a claim that takes nothing unknown ran %d times and got %+v and error %v", runs, got, err)
			}
			c := claimOf(key)
			if got, err := run(c); err != nil || runs != 1 || got.State != onlyonce.StateCompleted || got.Owner != c.Owner || got.Fence <= r.Fence {
				t.Errorf("a claim ran %d times and got %+v and error %v", runs, got, err)
			}
			if got, err := s.Lookup(t.Context(), c.ID); err != nil || got.State != onlyonce.StateCompleted || got.Owner != c.Owner {
				t.Errorf("lookup got %+v and error %v", got, err)
			}
			if _, err := run(claimOf(key)); err != nil || runs != 1 {
				t.Errorf("a repeat ran %d times in all, error %v", runs, err)
			}
		})
	}
}

// A page of the list that ends with the lowest created_at there is.
func TestDamagedRow_AListEndsWhereNothingCanComeAfter(t *testing.T) {
	s, db := newSQLite(t)
	crowd(200, func(i int) {
		if _, err := s.Claim(t.Context(), claimOf(fmt.Sprint(i))); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.Exec(fmt.Sprint("UPDATE onlyonce_records SET created_at = ", math.MinInt64, " WHERE idem_key = '7'")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if n++; err != nil || n > 200 {
			t.Fatalf("%d of 200 records are listed, error %v", n, err)
		}
	}
	if n != 200 {
		t.Errorf("%d of 200 records are listed", n)
	}
}

func TestDamagedRow_SQLiteRecordsAreMadeBesideOneOfTheFarFuture(t *testing.T) {
	for name, createdAt := range map[string]int64{
		"the last of all":                 math.MaxInt64,
		"the last but one":                math.MaxInt64 - 1,
		"the last of the year 9999":       time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro() - 1,
		"the first of the year 10000":     time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC).UnixMicro(),
		"a little more than 100 years on": time.Now().AddDate(100, 1, 0).UnixMicro(),
	} {
		t.Run(name, func(t *testing.T) {
			s, db := newSQLite(t)
			if _, err := s.Claim(t.Context(), claimOf("damaged")); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Exec(fmt.Sprint("UPDATE onlyonce_records SET created_at = ", createdAt)); err != nil {
				t.Fatal(err)
			}
			before, after := time.Now().Add(-time.Minute), time.Now().Add(time.Hour)
			for i := range 3 {
				r, err := s.Claim(t.Context(), claimOf(fmt.Sprint("claimed ", i)))
				if err != nil || r.CreatedAt.Before(before) || r.CreatedAt.After(after) || r.Fence > 1<<62 {
					t.Errorf("claim %d got %+v and error %v", i, r, err)
				}
				r, err = s.RunTx(t.Context(), claimOf(fmt.Sprint("run ", i)), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					return completed, nil
				})
				if err != nil || r.State != onlyonce.StateCompleted || r.CreatedAt.Before(before) || r.CreatedAt.After(after) || r.Fence > 1<<62 {
					t.Errorf("transaction %d got %+v and error %v", i, r, err)
				}
			}
		})
	}
}

// Without that row, a store knows neither the fences nor, on SQLite, the time.
func TestDamagedRow_ACommandDoesNotRunWhileTheFencesAreGone(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, _ string, s *sqlstore.Store, db *sql.DB) { needsFence[*sql.Tx](t, s, db) })
	t.Run("pgx", func(t *testing.T) {
		s, db := newPgxSchema(t)
		needsFence(t, s, db)
	})
}

func needsFence[TX any](t *testing.T, s onlyonce.TxStore[TX], db *sql.DB) {
	runs := 0
	run := func(key string) (onlyonce.Record, error) {
		return s.RunTx(t.Context(), claimOf(key), func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
			runs++
			return completed, nil
		})
	}
	if _, err := run("before"); err != nil || runs != 1 {
		t.Fatalf("%d runs, error %v", runs, err)
	}
	emptied(t, db, "onlyonce_fence")
	for _, key := range []string{"before", "new"} {
		if r, err := run(key); runs != 1 || key == "new" && (err == nil || !strings.Contains(err.Error(), "INSERT INTO onlyonce_fence")) {
			t.Errorf("%s: %d runs in all, got %+v and error %v", key, runs, r, err)
		}
	}
	if _, err := db.Exec("INSERT INTO onlyonce_fence (one, floor) VALUES (1, 0)"); err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"before", "new"} {
		if r, err := run(key); runs > 2 || err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("%s: %d runs in all, got %+v and error %v", key, runs, r, err)
		}
	}
}

func TestDamagedRow_NoMessageIsLeasedWhileTheLockOfTheOutboxIsGone(t *testing.T) {
	onEveryEngine(t, func(t *testing.T, engine string, s *sqlstore.Store, db *sql.DB) {
		if engine == "sqlite" {
			t.Skip("not on SQLite: the outbox has no lock row there")
		}
		appendOne(t, s, db, outbox.Message{Topic: "t", Payload: []byte("a")})
		emptied(t, db, "onlyonce_outbox_lock")
		if list, err := s.Outbox().Lease(t.Context(), "owner", time.Minute, 10); err == nil {
			t.Errorf("leased %+v", list)
		}
		if _, err := db.Exec("INSERT INTO onlyonce_outbox_lock (one) VALUES (1)"); err != nil {
			t.Fatal(err)
		}
		if list, err := s.Outbox().Lease(t.Context(), "owner", time.Minute, 10); len(list) != 1 || err != nil {
			t.Errorf("leased %+v, error %v", list, err)
		}
	})
}
