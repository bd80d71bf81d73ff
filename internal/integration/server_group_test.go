package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// onServers runs a test on every server that sqlstore knows.
func onServers(t *testing.T, f func(t *testing.T, s *sqlstore.Store, db *sql.DB)) {
	onServersWith(t, "clientFoundRows=false", f)
}

// onServersWith opens the pools of MySQL with a setting more.
func onServersWith(t *testing.T, setting string, f func(t *testing.T, s *sqlstore.Store, db *sql.DB)) {
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		s, db := newPostgresSchema(t).open(t, "deadlock_timeout=20ms")
		f(t, s, db)
	})
	t.Run("MySQL", func(t *testing.T) {
		t.Parallel()
		s, db := newMySQLDatabase(t).open(t, setting)
		f(t, s, db)
	})
	t.Run("MySQL with found rows", func(t *testing.T) {
		t.Parallel()
		s, db := newMySQLDatabase(t).open(t, setting, "clientFoundRows=true")
		f(t, s, db)
	})
}

// many is more callers than go alone.
const many = 128

func crowd(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

func serverClaim(key string) onlyonce.Claim {
	return onlyonce.Claim{
		ID: onlyonce.ID{Tenant: "acme", Operation: "POST /orders", Key: key}, Owner: owner(), Fingerprint: fingerprint, Lease: time.Minute,
	}
}

func done(body string) onlyonce.Settlement {
	return onlyonce.Settlement{
		State: onlyonce.StateCompleted, Keep: time.Hour,
		Result: onlyonce.Result{Status: 201, Header: map[string][]string{"Location": {"/" + body}}, Body: []byte(body), Ref: body},
	}
}

func TestGroup_CallersWrittenTogetherGetTheirOwnResults(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, _ *sql.DB) {
		crowd(many, func(i int) {
			for n := range 5 {
				key := fmt.Sprint(i, "-", n)
				c := serverClaim(key)
				r, err := s.Claim(t.Context(), c)
				if err != nil || r.Owner != c.Owner || r.State != onlyonce.StateProcessing || r.ID != c.ID || r.Fence == 0 {
					t.Errorf("claim got %+v and error %v", r, err)
					continue
				}
				h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
				st := done(key)
				if n%2 == 1 {
					st = onlyonce.Settlement{State: onlyonce.StateFailed, Error: key, Final: n == 3}
				}
				if err := s.Settle(t.Context(), h, st); err != nil {
					t.Errorf("settle: %v", err)
				}
				was, err := s.Lookup(t.Context(), c.ID)
				if err != nil || was.State != st.State || string(was.Result.Body) != string(st.Result.Body) || was.Result.Ref != st.Result.Ref ||
					was.Error != st.Error || was.Final != st.Final || was.Fence != r.Fence || (was.KeepLeft > 0) != (st.Keep > 0) {
					t.Errorf("the record is %+v with error %v, want %+v", was, err, st)
				}
			}
		})
	})
}

func TestGroup_EachResultIsDeletedAfterItsOwnKeep(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		crowd(many, func(i int) {
			c, st := serverClaim(fmt.Sprint(i)), done(fmt.Sprint(i))
			if i%2 == 1 {
				st.Result.Keep = time.Millisecond
			}
			r, err := s.Claim(t.Context(), c)
			if err == nil {
				err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, st)
			}
			if err != nil {
				t.Error(err)
			}
		})
		eventually(t, "half of the results are deleted", func() bool {
			deleted := 0
			_, err := s.Purge(t.Context(), many)
			if err == nil {
				err = db.QueryRow("SELECT count(*) FROM onlyonce_records WHERE state = 'remembered'").Scan(&deleted)
			}
			if err != nil {
				t.Fatal(err)
			}
			return deleted == many/2
		})
		for i := range many {
			want := onlyonce.StateCompleted
			if i%2 == 1 {
				want = onlyonce.StateRemembered
			}
			if r, err := s.Lookup(t.Context(), serverClaim(fmt.Sprint(i)).ID); err != nil || r.State != want {
				t.Errorf("record %d is %+v, error %v, want it %s", i, r, err, want)
			}
		}
	})
}

func TestGroup_OneOfManyConcurrentClaimsGetsTheCommand(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, _ *sql.DB) {
		for round := range 10 {
			var given [4]atomic.Int64
			crowd(many, func(i int) {
				c := serverClaim(fmt.Sprint(round, "-", i%4))
				r, err := s.Claim(t.Context(), c)
				switch {
				case err != nil:
					t.Errorf("claim: %v", err)
				case r.Owner == c.Owner:
					given[i%4].Add(1)
				case r.State != onlyonce.StateProcessing || r.ID != c.ID:
					t.Errorf("a loser got %+v", r)
				}
			})
			for i := range given {
				if n := given[i].Load(); n != 1 {
					t.Errorf("command %d was given %d times", i, n)
				}
			}
		}
	})
}

// unstorable is a ref that the database rejects once rejectUnstorable was called.
const unstorable = "unstorable"

func rejectUnstorable(t *testing.T, db *sql.DB) {
	t.Helper()
	if _, err := db.Exec("ALTER TABLE onlyonce_records ADD CONSTRAINT rejects CHECK (result_ref <> '" + unstorable + "')"); err != nil {
		t.Fatal(err)
	}
}

func TestGroup_ASettlementThatFailsHarmsNoneBesideIt(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		rejectUnstorable(t, db)
		crowd(many, func(i int) {
			c := serverClaim(fmt.Sprint(i))
			r, err := s.Claim(t.Context(), c)
			if err != nil {
				t.Errorf("claim: %v", err)
				return
			}
			h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
			switch {
			case i%8 == 0:
				h.Fence++
				if err := s.Settle(t.Context(), h, done("not mine")); !errors.Is(err, onlyonce.ErrLost) {
					t.Errorf("settle with another fence: %v", err)
				}
			case i%8 == 1:
				st := done("impossible")
				st.Result.Ref = unstorable
				if err := s.Settle(t.Context(), h, st); err == nil || errors.Is(err, onlyonce.ErrLost) {
					t.Errorf("settle with what the table rejects: %v", err)
				}
			default:
				if err := s.Settle(t.Context(), h, done("mine")); err != nil {
					t.Errorf("settle: %v", err)
				}
				if err := s.Settle(t.Context(), h, done("again")); err != nil {
					t.Errorf("settle again: %v", err)
				}
			}
			want := onlyonce.StateCompleted
			if i%8 < 2 {
				want = onlyonce.StateProcessing
			}
			if was, err := s.Lookup(t.Context(), c.ID); err != nil || was.State != want || was.State == onlyonce.StateCompleted && string(was.Result.Body) != "mine" {
				t.Errorf("the record is %+v with error %v", was, err)
			}
		})
	})
}

// At READ COMMITTED: at REPEATABLE READ a page of InnoDB that is split beside a
// row for which others wait makes those beside it wait too.
func TestGroup_ACommandThatIsLockedHoldsUpNoOther(t *testing.T) {
	onServersWith(t, "tx_isolation=%27READ-COMMITTED%27", func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		mine := serverClaim("locked")
		if r, err := s.WithTx(tx).Claim(t.Context(), mine); err != nil || r.Owner != mine.Owner {
			t.Fatalf("claim in a transaction got %+v and error %v", r, err)
		}
		late := time.AfterFunc(answerLimit, func() {
			t.Errorf("in %v, not all others were done", answerLimit)
			_ = tx.Rollback()
		})
		patient, leave := context.WithCancel(t.Context()) // of the callers that wait for the locked command until all others are done
		defer leave()
		var others atomic.Int64
		others.Store(many - many/32)
		crowd(many, func(i int) {
			if i%32 == 0 {
				if r, err := s.Claim(patient, serverClaim("locked")); err == nil {
					t.Errorf("the locked command was answered: %+v", r)
				}
				return
			}
			for n := range 5 {
				c := serverClaim(fmt.Sprint(i, "-", n))
				if r, err := s.Claim(t.Context(), c); err != nil || r.Owner != c.Owner {
					t.Errorf("claim got %+v and error %v", r, err)
				}
			}
			if others.Add(-1) == 0 {
				leave()
			}
		})
		late.Stop()
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		// It may have been granted to a caller that gave up waiting.
		if r, err := s.Claim(t.Context(), serverClaim("locked")); err != nil || r.Owner == mine.Owner {
			t.Errorf("after the rollback, claim got %+v and error %v", r, err)
		}
	})
}

// What the first asks for is not in the database before its commit: its locks
// say that it is not the same.
func TestGroup_ADifferentRequestIsRejectedWhileAnotherServerRunsTheCommand(t *testing.T) {
	onServers(t, func(t *testing.T, s *sqlstore.Store, db *sql.DB) {
		there := openOn(t, db)
		ask := func(in *sqlstore.Store, key, print string, fn func() error) error {
			req := onlyonce.Request{ID: onlyonce.ID{Tenant: "acme", Operation: "pay", Key: key}, SkipFingerprint: print == ""}
			if print != "" {
				req.Fingerprint = onlyonce.Fingerprint([]byte(print))
			}
			_, err := onlyonce.DoTx(t.Context(), onlyonce.NewTx(in, onlyonce.Config{}), req, func(context.Context, *sql.Tx) (string, error) { return "", fn() })
			return err
		}
		must := func() error { t.Error("it ran twice"); return nil }
		for i, asks := range []struct {
			first, second string
			want          error
		}{
			{"a", "a", onlyonce.ErrInFlight},
			{"a", "b", onlyonce.ErrMismatch},
			{"a", "", onlyonce.ErrInFlight},
			{"", "a", onlyonce.ErrInFlight},
			{"", "", onlyonce.ErrInFlight},
		} {
			key := fmt.Sprint("k", i)
			first := serverClaim(key)
			first.ID = onlyonce.ID{Tenant: "acme", Operation: "pay", Key: key}
			if first.Fingerprint = onlyonce.Fingerprint([]byte(asks.first)); asks.first == "" {
				first.Fingerprint, first.SkipFingerprint = nil, true
			}
			_, err := s.RunTx(t.Context(), first, func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
				for range 2 {
					if err := ask(there, key, asks.second, must); !errors.Is(err, asks.want) {
						t.Errorf("%q while %q runs: %v", asks.second, asks.first, err)
					}
				}
				return onlyonce.Settlement{}, nil
			})
			if err != nil {
				t.Error(err)
			}
			ran := false
			if err := ask(there, key, asks.second, func() error { ran = true; return nil }); err != nil || !ran {
				t.Errorf("%q after %q was released: ran is %v, error %v", asks.second, asks.first, ran, err)
			}
		}
	})
}

// endsGroup reports that the statement settles together with others: MySQL has one
// for each size, and PostgreSQL a transaction.
func endsGroup(text string) bool {
	return text == "COMMIT" || strings.Contains(text, ") v\nON r.id = v.id AND r.owner = v.owner")
}

// rounds is how often a crowd comes until some of it write together.
const rounds = 50

func TestGroup_ASettlementWhoseGroupGotNoResponseDoesNotDenyThatItTookEffect(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, h *hook) {
		for round := range rounds {
			holds := make([]onlyonce.Hold, many)
			crowd(many, func(i int) { holds[i] = claimedOn(t, other, fmt.Sprint(round, "-", i)) })
			taken := make([]bool, many)
			h.lose(endsGroup, func() {
				for i, hold := range holds {
					c := serverClaim(hold.ID.Key)
					c.TakeUnknown = true
					r, err := other.Claim(t.Context(), c)
					if err != nil {
						t.Errorf("claim elsewhere: %v", err)
					}
					taken[i] = r.Owner == c.Owner
				}
			})
			errs := make([]error, many)
			crowd(many, func(i int) {
				errs[i] = s.Settle(t.Context(), holds[i], onlyonce.Settlement{State: onlyonce.StateUnknown})
			})
			for i, err := range errs {
				if taken[i] && errors.Is(err, onlyonce.ErrLost) {
					t.Errorf("a settlement that took effect got %v", err)
				}
			}
			if h.met() {
				return
			}
		}
		t.Errorf("%d times, nobody wrote together", rounds)
	})
}

func TestGroup_ASettlementThatExpiredBeforeItsGroupReturnedTookEffect(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, h *hook) {
		for round := range rounds {
			holds := make([]onlyonce.Hold, many)
			crowd(many, func(i int) { holds[i] = claimedOn(t, other, fmt.Sprint(round, "-", i)) })
			h.lose(endsGroup, func() {
				for _, hold := range holds {
					for r, err := other.Lookup(t.Context(), hold.ID); err == nil && r.State == onlyonce.StateCompleted; r, err = other.Lookup(t.Context(), hold.ID) {
						time.Sleep(time.Millisecond)
					}
				}
			})
			brief := done("mine")
			brief.Keep = time.Millisecond
			crowd(many, func(i int) {
				if err := s.Settle(t.Context(), holds[i], brief); err != nil {
					t.Errorf("settle: %v", err)
				}
			})
			if h.met() {
				return
			}
		}
		t.Errorf("%d times, nobody wrote together", rounds)
	})
}

func TestGroup_ASettlementThatIsSentAgainAfterAReleaseDidNotTakeEffect(t *testing.T) {
	onHookedServers(t, func(t *testing.T, s, other *sqlstore.Store, _ *sql.DB, h *hook) {
		for round := range rounds {
			holds := make([]onlyonce.Hold, many)
			crowd(many, func(i int) {
				holds[i] = claimedOn(t, other, fmt.Sprint(round, "-", i))
				if err := other.Settle(t.Context(), holds[i], onlyonce.Settlement{}); err != nil {
					t.Errorf("release: %v", err)
				}
			})
			h.lose(endsGroup, func() {})
			crowd(many, func(i int) {
				if err := s.Settle(t.Context(), holds[i], done("mine")); err == nil {
					t.Error("a released command was settled")
				}
			})
			if h.met() {
				return
			}
		}
		t.Errorf("%d times, nobody wrote together", rounds)
	})
}

// claimedOn claims a command that is new.
func claimedOn(t *testing.T, s *sqlstore.Store, key string) onlyonce.Hold {
	c := serverClaim(key)
	r, err := s.Claim(t.Context(), c)
	if err != nil || r.Owner != c.Owner {
		t.Errorf("claim got %+v and error %v", r, err)
	}
	return onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
}
