package integration

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce"
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

// wantsBoth locks the record, then closes has, and then locks a row. A transaction that has
// locked the row and wants the record is rolled back, because it has changed less.
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
