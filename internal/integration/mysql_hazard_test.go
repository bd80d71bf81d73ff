package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A rival is a transaction that another one is to meet in a deadlock.
type rival struct {
	t  *testing.T
	db *sql.DB
}

func newRival(t *testing.T, db *sql.DB) rival {
	t.Helper()
	for _, text := range []string{
		"CREATE TABLE own (id INT PRIMARY KEY, n INT NOT NULL)",
		"INSERT INTO own (id, n) VALUES (1, 0), (2, 0), (3, 0)",
	} {
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
	return rival{t, db}
}

// undo makes the server roll tx back, as the smaller of two in a deadlock, and
// returns the result of tx's statement.
func (r rival) undo(tx *sql.Tx) error {
	r.t.Helper()
	other, err := r.db.Begin()
	if err != nil {
		r.t.Fatal(err)
	}
	defer other.Rollback()
	if _, err := other.Exec("UPDATE own SET n = n + 1 WHERE id >= 2"); err != nil {
		r.t.Fatal(err)
	}
	for id := 10; id < 30; id++ { // so that it is the larger one
		if _, err := other.Exec("INSERT INTO own (id, n) VALUES (?, 0)", id); err != nil {
			r.t.Fatal(err)
		}
	}
	if _, err := tx.Exec("UPDATE own SET n = n + 1 WHERE id = 1"); err != nil {
		r.t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = other.Exec("UPDATE own SET n = n + 1 WHERE id = 1") })
	_, err = tx.Exec("UPDATE own SET n = n + 1 WHERE id = 2")
	_ = other.Rollback()
	wg.Wait()
	return err
}

// value returns the value that other transactions see.
func (r rival) value(id int) (n int) {
	r.t.Helper()
	if err := r.db.QueryRow("SELECT n FROM own WHERE id = ?", id).Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

func TestMySQL_NothingIsLeftOfWhatAFunctionWritesAfterADeadlock(t *testing.T) {
	d := newMySQLDatabase(t)
	s, _ := d.open(t)
	r := newRival(t, d.pool(t))
	run := func(ctx context.Context, tx *sql.Tx) (onlyonce.Settlement, error) {
		var number *mysql.MySQLError
		if err := r.undo(tx); !errors.As(err, &number) || number.Number != 1213 {
			t.Errorf("the function got error %v, want 1213", err)
		}
		_, err := tx.ExecContext(ctx, "UPDATE own SET n = 100 WHERE id = 3") // as if nothing had happened
		return done("half"), err
	}
	c := serverClaim("run")
	got, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		return run(ctx, tx)
	})
	if err == nil {
		t.Errorf("run got %+v", got)
	}
	held := serverClaim("settle")
	rec, err := s.Claim(t.Context(), held)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SettleTx(t.Context(), onlyonce.Hold{ID: held.ID, Owner: held.Owner, Fence: rec.Fence}, run); err == nil {
		t.Error("settle got no error")
	}
	if n := r.value(3); n != 0 {
		t.Errorf("the row says %d: what followed the deadlock is there", n)
	}
	for _, id := range []onlyonce.ID{c.ID, held.ID} {
		if rec, err := s.Lookup(t.Context(), id); err == nil && rec.State == onlyonce.StateCompleted {
			t.Errorf("the record is %+v", rec)
		}
	}
	if r, err := s.RunTx(t.Context(), serverClaim("after"), func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
		return done("after"), nil
	}); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("afterwards, run got %+v and error %v", r, err)
	}
}

func TestMySQL_ADeadlockOfTheRecordRunsTheFunctionAgain(t *testing.T) {
	d := newMySQLDatabase(t)
	s, _ := d.open(t)
	r := newRival(t, d.pool(t))
	c := serverClaim("k")
	rec, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: rec.Fence}, onlyonce.Settlement{State: onlyonce.StateFailed, Keep: time.Hour})
	}
	if err != nil {
		t.Fatal(err)
	}
	c = serverClaim("k")
	c.RetryFailed = true
	runs := 0
	var other sync.WaitGroup
	got, err := s.RunTx(t.Context(), c, func(ctx context.Context, tx *sql.Tx, _ onlyonce.Record) (onlyonce.Settlement, error) {
		runs++
		_, err := tx.ExecContext(ctx, "UPDATE own SET n = n + 1 WHERE id = 1")
		if err == nil && runs == 1 {
			has := make(chan struct{})
			other.Go(func() { r.wantsBoth(c.ID, 1, has) })
			<-has
		}
		return done("made"), err
	})
	other.Wait()
	if err != nil || got.State != onlyonce.StateCompleted || runs != 2 {
		t.Errorf("run got %+v and error %v, after %d runs", got, err, runs)
	}
	if n := r.value(1); n != 2 {
		t.Errorf("the row says %d, want one for each of the two transactions", n)
	}
}

// wantsBoth locks the record, which it says by closing has, and then a row. Whoever has
// the row and wants the record is rolled back, for it has changed less.
func (r rival) wantsBoth(id onlyonce.ID, row int, has chan struct{}) {
	hash := id.Hash()
	tx, err := r.db.Begin()
	if err == nil {
		defer tx.Rollback()
		_, err = tx.Exec("SELECT 1 FROM onlyonce_records WHERE id = ? FOR UPDATE", hash[:])
	}
	for i := range 100 {
		if err == nil {
			_, err = tx.Exec("INSERT INTO own (id, n) VALUES (?, 0)", 1000+i)
		}
	}
	close(has)
	if err == nil {
		_, err = tx.Exec("UPDATE own SET n = n + 1 WHERE id = ?", row)
	}
	if err == nil {
		err = tx.Commit()
	}
	if err != nil {
		r.t.Errorf("the rival got error %v", err)
	}
}

func TestMySQL_ATransactionThatTheServerEndedIsNotJoined(t *testing.T) {
	d := newMySQLDatabase(t)
	s, db := d.open(t)
	r := newRival(t, d.pool(t))
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	c := serverClaim("k")
	rec, err := s.WithTx(tx).Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.undo(tx); err == nil {
		t.Fatal("there was no deadlock")
	}
	if err := s.WithTx(tx).Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: rec.Fence}, done("half")); err == nil {
		t.Error("settle got no error")
	}
	if got, err := s.WithTx(tx).Claim(t.Context(), serverClaim("another")); err == nil {
		t.Errorf("claim got %+v", got)
	}
	for _, key := range []string{"k", "another"} {
		if got, err := s.Lookup(t.Context(), serverClaim(key).ID); !errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("lookup got %+v and error %v", got, err)
		}
	}
}

func TestMySQL_ASnapshotDoesNotHideACommand(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t)
	tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	if err := tx.QueryRow("SELECT count(*) FROM onlyonce_records").Scan(new(int)); err != nil {
		t.Fatal(err)
	}
	first := serverClaim("k")
	if _, err := s.Claim(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	r, err := s.WithTx(tx).Claim(t.Context(), serverClaim("k"))
	if err != nil || r.Owner != first.Owner {
		t.Fatalf("the claim got %+v and error %v", r, err)
	}
	hold := onlyonce.Hold{ID: first.ID, Owner: first.Owner, Fence: r.Fence}
	if err := s.WithTx(tx).Renew(t.Context(), hold, time.Minute, map[string][]byte{"charge": []byte("1")}); err != nil {
		t.Errorf("a step of the attempt that holds the command: %v", err)
	}
}

func TestMySQL_AValueThatDoesNotFitIsAnErrorAndNotTruncated(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	c := serverClaim("k")
	r, err := s.Claim(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	h := onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}
	var packet int
	if err := db.QueryRow("SELECT @@max_allowed_packet").Scan(&packet); err != nil {
		t.Fatal(err)
	}
	large := done("made")
	large.Result.Body = make([]byte, packet)
	if err := s.Settle(t.Context(), h, large); err == nil || !strings.Contains(err.Error(), "max_allowed_packet") {
		t.Errorf("settle with %d bytes got error %v", packet, err)
	}
	if was, err := s.Lookup(t.Context(), c.ID); err != nil || was.State != onlyonce.StateProcessing {
		t.Errorf("the record is %+v with error %v", was, err)
	}
	if err := s.Settle(t.Context(), h, done("made")); err != nil {
		t.Error(err)
	}
}

// The session's time zone goes over to summer time while a statement runs: SYSDATE is
// an hour ahead of NOW.
func TestMySQL_TheClockDoesNotJumpWithTheTimeZone(t *testing.T) {
	d := newMySQLDatabase(t)
	d.open(t)
	for _, jump := range []time.Duration{time.Hour, -time.Hour, 30 * time.Minute} {
		t.Run(jump.String(), func(t *testing.T) {
			db := d.pool(t, fmt.Sprintf("timestamp=%d", time.Now().Add(-jump).Unix()))
			s, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{"sysdate-is-now"}}) // its clock is set back
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			c := serverClaim(jump.String())
			r, err := s.Claim(t.Context(), c)
			if err == nil {
				err = s.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
			}
			if err != nil {
				t.Fatal(err)
			}
			if r, err = s.Lookup(t.Context(), c.ID); err != nil {
				t.Fatal(err)
			}
			if took := r.SettledAt.Sub(r.CreatedAt).Abs(); took > 15*time.Minute {
				t.Errorf("the record was settled %v from its claim", took)
			}
			if r.KeepLeft > time.Hour || r.KeepLeft < 45*time.Minute {
				t.Errorf("it is kept for %v, want an hour", r.KeepLeft)
			}
		})
	}
}

// largest returns how many bytes the server takes in one packet.
func largest(t *testing.T, db *sql.DB) (n int) {
	t.Helper()
	if err := db.QueryRow("SELECT @@max_allowed_packet").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A lease of an hour, because a test must not wait for its end.
func TestMySQL_AResultThatDoesNotFitKeepsNobodyWaitingAndIsHeld(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	var told []onlyonce.Outcome
	g := onlyonce.New(s, onlyonce.Config{Lease: time.Hour, HoldUnknown: true, Observer: func(_ context.Context, e onlyonce.Event) { told = append(told, e.Outcome) }})
	for name, fn := range map[string]func(context.Context) (string, error){
		"value": func(context.Context) (string, error) { return strings.Repeat("x", largest(t, db)), nil },
		"reference": func(ctx context.Context) (string, error) {
			onlyonce.Current(ctx).SetRef(strings.Repeat("x", 1<<16))
			return "x", nil
		},
	} {
		told = nil
		req := onlyonce.Request{ID: onlyonce.ID{Key: name}, SkipFingerprint: true}
		if a, err := onlyonce.Do(t.Context(), g, req, fn); err != nil || a.Value == "" {
			t.Errorf("%s: the caller got %d bytes and error %v", name, len(a.Value), err)
		}
		if r, err := s.Lookup(t.Context(), req.ID); err != nil || r.State != onlyonce.StateUnknown || !strings.Contains(r.Error, "larger than the store accepts") {
			t.Errorf("%s: the record is in state %q, its error %q; lookup %v", name, r.State, r.Error, err)
		}
		if _, err := onlyonce.Do(t.Context(), g, req, fn); !errors.Is(err, onlyonce.ErrUnknown) {
			t.Errorf("%s: a repeat got %v", name, err)
		}
		if want := []onlyonce.Outcome{onlyonce.OutcomeUnrecorded, onlyonce.OutcomeHeld}; !slices.Equal(told, want) {
			t.Errorf("%s: the observer was told %v", name, told)
		}
	}
}

func TestMySQL_AStepThatDoesNotFitKeepsNobodyWaiting(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	g := onlyonce.New(s, onlyonce.Config{Lease: time.Hour})
	_, err := onlyonce.Do(t.Context(), g, onlyonce.Request{ID: onlyonce.ID{Key: "k"}, SkipFingerprint: true}, func(ctx context.Context) (string, error) {
		return onlyonce.Step(ctx, "step", func(context.Context) (string, error) { return strings.Repeat("x", largest(t, db)), nil })
	})
	if !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("got %v", err)
	}
}

func TestMySQL_AResponseThatDoesNotFitIsReplayedWithoutItsBody(t *testing.T) {
	s, db := newMySQLDatabase(t).open(t, "maxAllowedPacket=0")
	body := strings.Repeat("x", largest(t, db))
	runs := 0
	h := httponce.Wrap(onlyonce.New(s, onlyonce.Config{Lease: time.Hour}), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		runs++
		w.Header().Set("Location", "/charges/1")
		w.WriteHeader(http.StatusCreated)
		io.WriteString(w, body)
	}), httponce.Config{MaxResponse: 2 * len(body), Tenant: httponce.SingleTenant})
	for n := range 2 {
		r := httptest.NewRequest("POST", "/charges", nil)
		r.Header.Set("Idempotency-Key", `"k"`)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if replayed := n > 0; w.Code != http.StatusCreated || w.Header().Get("Location") == "" || replayed != (w.Body.Len() == 0) || replayed != (w.Header().Get("Idempotency-Replayed") == "true") {
			t.Errorf("request %d got %d with %v and %d bytes", n+1, w.Code, w.Header(), w.Body.Len())
		}
	}
	if runs != 1 {
		t.Errorf("the handler ran %d times", runs)
	}
}

// These settings change the meaning of the store's statements.
func TestMySQL_SessionsThatChangeStatementsAreRejected(t *testing.T) {
	d := newMySQLDatabase(t)
	_, db := d.open(t)
	var mariadb bool
	if err := db.QueryRow("SELECT VERSION() LIKE '%MariaDB%'").Scan(&mariadb); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		setting, finding string
		mariadb          bool // only it knows the setting by this name
	}{
		{setting: "sql_mode=%27%27", finding: "sql-mode"},
		{setting: "autocommit=0", finding: "autocommit"},
		{setting: "sql_safe_updates=1", finding: "sql-safe-updates"},
		{setting: "sql_select_limit=1", finding: "sql-select-limit"},
		{setting: "sql_select_limit=1000000", finding: "sql-select-limit"},
		{setting: "completion_type=CHAIN", finding: "completion-type"},
		{"tx_read_only=1", "replica", true},                        // as MySQL's transaction_read_only
		{"tx_isolation=%27READ-UNCOMMITTED%27", "isolation", true}, // as MySQL's transaction_isolation
		{"sql_mode=%27ORACLE,STRICT_TRANS_TABLES%27", "sql-mode", true},
		{"sql_mode=%27STRICT_TRANS_TABLES,SIMULTANEOUS_ASSIGNMENT%27", "sql-mode", true},
		{"sql_mode=%27STRICT_TRANS_TABLES,EMPTY_STRING_IS_NULL%27", "sql-mode", true},
	} {
		t.Run(c.setting, func(t *testing.T) {
			if c.mariadb && !mariadb {
				t.Skip("needs MariaDB: MySQL does not have this mode")
			}
			db := d.pool(t, c.setting)
			if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{}); err == nil || !strings.Contains(err.Error(), c.finding+": ") {
				t.Errorf("open got error %v", err)
			}
			if _, err := sqlstore.Open(t.Context(), db, sqlstore.Config{AcceptRisks: []string{c.finding}}); err == nil {
				t.Error("the risk was accepted")
			}
		})
	}
}

func TestMySQL_AnIDThatIsTooLongIsNotCalledAResultAndNothingRuns(t *testing.T) {
	d := newMySQLDatabase(t)
	s, db := d.open(t)
	for name, c := range map[string]struct {
		part    func(*onlyonce.ID) *string
		longest int
	}{
		"tenant":    {func(id *onlyonce.ID) *string { return &id.Tenant }, 1024},
		"operation": {func(id *onlyonce.ID) *string { return &id.Operation }, 1024},
		"key":       {func(id *onlyonce.ID) *string { return &id.Key }, 4096},
	} {
		claim := serverClaim("k")
		*c.part(&claim.ID) = strings.Repeat("x", c.longest)
		if r, err := s.Claim(t.Context(), claim); err != nil || r.ID != claim.ID {
			t.Errorf("claim with the longest %s: %v", name, err)
		}
		*c.part(&claim.ID) += "x"
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for call, f := range map[string]func() error{
			"claim":        func() error { _, err := s.Claim(t.Context(), claim); return err },
			"WithTx claim": func() error { _, err := s.WithTx(tx).Claim(t.Context(), claim); return err },
			"RunTx": func() error {
				_, err := s.RunTx(t.Context(), claim, func(context.Context, *sql.Tx, onlyonce.Record) (onlyonce.Settlement, error) {
					t.Errorf("a function ran for a %s that is too long", name)
					return done("made"), nil
				})
				return err
			},
		} {
			if err := f(); err == nil || errors.Is(err, onlyonce.ErrTooLarge) || !strings.Contains(err.Error(), "the "+name+" has ") {
				t.Errorf("%s with a %s that is too long: %v", call, name, err)
			}
		}
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	}
}

func TestMySQL_AnOldReplayOfMySQLCostsNoFlush(t *testing.T) {
	d := newMySQLDatabase(t)
	other, db := d.open(t)
	var binlog bool
	if err := db.QueryRow("SELECT @@log_bin").Scan(&binlog); err != nil {
		t.Fatal(err)
	}
	c := serverClaim("k")
	r, err := other.Claim(t.Context(), c)
	if err == nil {
		err = other.Settle(t.Context(), onlyonce.Hold{ID: c.ID, Owner: c.Owner, Fence: r.Fence}, done("made"))
	}
	if err != nil {
		t.Fatal(err)
	}
	replay := func(s *sqlstore.Store, h *hook) (flushed bool) {
		h.once("onlyonce_flush", func() {})
		if r, err := s.Claim(t.Context(), serverClaim("k")); err != nil || r.State != onlyonce.StateCompleted {
			t.Errorf("the claim got %+v and error %v", r, err)
		}
		return h.met()
	}
	pool, h := hookedMySQL(t, d)
	young := openOn(t, pool)
	if replay(young, h) == binlog {
		t.Errorf("the replay of a new record was flushed for: %v, with the binary log on: %v", !binlog, binlog)
	}
	if replay(young, h) {
		t.Error("the second replay was flushed for")
	}
	if _, err := db.Exec("UPDATE onlyonce_records SET settled_at = settled_at - 61000000"); err != nil {
		t.Fatal(err)
	}
	pool, h = hookedMySQL(t, d)
	if replay(openOn(t, pool), h) {
		t.Error("the replay of an old record was flushed for")
	}
}
