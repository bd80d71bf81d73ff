package integration

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
)

// places returns after how many of an operation's bytes it is cut: some of all,
// and each of the last, which commit. With ONLYONCE_EVERY_BYTE=1, after each.
func places(length int) (all []int) {
	step := length/20 + 1
	if os.Getenv("ONLYONCE_EVERY_BYTE") != "" {
		step = 1
	}
	for n := 0; n <= length; n++ {
		if n%step == 0 || n > length-13 {
			all = append(all, n)
		}
	}
	return all
}

func TestServerKill_AConnectionCutAtAnyByteDoublesNothing(t *testing.T) {
	needs.Time(t)
	t.Run("sqlstore on PostgreSQL", func(t *testing.T) {
		t.Parallel()
		sweepSQL(t, faults.PostgreSQL, "INSERT INTO paid (command, token) VALUES ($1, $2)")
	})
	t.Run("sqlstore on MariaDB", func(t *testing.T) {
		t.Parallel()
		sweepSQL(t, faults.MariaDB, "INSERT INTO paid (command, token) VALUES (?, ?)")
	})
	t.Run("pgxstore", func(t *testing.T) {
		t.Parallel()
		server := newOwnServer(t, faults.PostgreSQL)
		d := server.newDatabase(t)
		cutter := newCutter(t, server)
		clean, _ := openPgx(t, d)
		through, _ := openPgx(t, d.through(server, cutter))
		(&sweep[pgx.Tx]{cutter: cutter, database: d, through: through, clean: clean, insert: func(ctx context.Context, tx pgx.Tx, key, token string) error {
			_, err := tx.Exec(ctx, "INSERT INTO paid (command, token) VALUES ($1, $2)", key, token)
			return err
		}}).run(t)
	})
}

func sweepSQL(t *testing.T, kind *faults.Kind, insert string) {
	t.Helper()
	server := newOwnServer(t, kind)
	d := server.newDatabase(t)
	cutter := newCutter(t, server)
	clean := openOn(t, d.migrated(t))
	through := openOn(t, d.through(server, cutter).pool(t))
	(&sweep[*sql.Tx]{cutter: cutter, database: d, through: through, clean: clean, insert: func(ctx context.Context, tx *sql.Tx, key, token string) error {
		_, err := tx.ExecContext(ctx, insert, key, token)
		return err
	}}).run(t)
}

// A sweep cuts every operation of a store at many places, and repeats the request on a
// clean connection.
type sweep[TX any] struct {
	cutter         *faults.CuttingProxy
	database       ownDatabase
	through, clean onlyonce.TxStore[TX] // the same store, through the cutting proxy and past it
	insert         func(ctx context.Context, tx TX, key, token string) error
	paid           map[string]string // the one row that each command has in the end
}

// An operation does something with a command through the cutting proxy, and then looks
// what became of it, given the error that there was.
type operation struct {
	name string
	do   func(t *testing.T, key string) (act func() error, look func(err error))
}

func (s *sweep[TX]) run(t *testing.T) {
	s.paid = make(map[string]string)
	for _, op := range []operation{{"Claim", s.claim}, {"Settle", s.settle}, {"RunTx", s.runTx}, {"SettleTx", s.settleTx}} {
		for way, direction := range faults.Directions {
			t.Run(op.name+" cut on the way "+direction, func(t *testing.T) { s.cutEverywhere(t, op, way) })
		}
	}
	rows := s.database.paid(t)
	for key, token := range s.paid {
		if len(rows[key]) != 1 || rows[key][0] != token {
			t.Errorf("%s, which got %s, has the rows %v", key, token, rows[key])
		}
	}
	if len(rows) != len(s.paid) {
		t.Errorf("%d commands have rows, want %d", len(rows), len(s.paid))
	}
}

func (s *sweep[TX]) cutEverywhere(t *testing.T, op operation, way int) {
	length := s.once(t, op)[way]
	for shorter := s.cutWithin(t, op, way, length); shorter < length; shorter = s.cutWithin(t, op, way, length) {
		length = shorter // the operations before it did more, such as open a new connection
	}
}

// cutWithin cuts an operation of so many bytes at its places. It stops where the
// operation turns out to be shorter, and returns its length.
func (s *sweep[TX]) cutWithin(t *testing.T, op operation, way, length int) int {
	cuts, failed, all := 0, 0, places(length)
	for n, after := range all {
		took := s.once(t, op)[way]
		for tries := 1; took > length && tries < 4; tries++ { // so that the next one uses the connections as they are
			took = s.once(t, op)[way]
		}
		if took < length {
			return took
		}
		act, look := op.do(t, rand.Text())
		s.cutter.Arm(way, after, (len(all)+1-n)%3) // at the end, two are rejected
		err := act()
		if s.cutter.Disarm() {
			cuts++
		}
		if err != nil {
			failed++
		}
		if look(err); t.Failed() {
			t.Fatalf("cut after %d bytes of %d: %v", after, length, err)
		}
	}
	t.Logf("%d cuts in %d bytes, after %d of which the store did not know", cuts, length, failed)
	if cuts < len(all)*3/4 {
		t.Errorf("only %d of %d connections were cut", cuts, len(all))
	}
	return length
}

// once does an operation that is not cut, and returns how many bytes it takes.
// The first may meet a connection that was cut when its work was done.
func (s *sweep[TX]) once(t *testing.T, op operation) (bytes [2]int) {
	t.Helper()
	var err error
	for range 5 {
		act, look := op.do(t, rand.Text())
		s.cutter.Count()
		err = act()
		bytes = s.cutter.Count()
		if look(err); err == nil {
			return bytes
		}
	}
	t.Fatal(err)
	return bytes
}

func (s *sweep[TX]) claim(t *testing.T, key string) (func() error, func(error)) {
	c := claimBy(key)
	var first onlyonce.Record
	act := func() (err error) {
		first, err = s.through.Claim(t.Context(), c)
		return err
	}
	return act, func(err error) {
		mustNotBeFinal(t, err)
		again, e := s.clean.Claim(t.Context(), c)
		rival, e2 := s.clean.Claim(t.Context(), claimBy(key))
		if e = errors.Join(e, e2); e != nil || again.Owner != c.Owner || again.Attempt != 1 || again.State != onlyonce.StateProcessing || rival.Owner != c.Owner {
			t.Errorf("claimed again: %+v, %v; a rival: %+v", again, e, rival)
		}
		if err == nil && (first.Owner != c.Owner || first.Fence != again.Fence) {
			t.Errorf("claimed as %+v, then as %+v", first, again)
		}
		s.settleClean(t, again, "the claim's")
	}
}

func (s *sweep[TX]) settle(t *testing.T, key string) (func() error, func(error)) {
	r := s.claimed(t, key)
	act := func() error { return s.through.Settle(t.Context(), holdOf(r), answered("first")) }
	return act, func(err error) {
		mustNotBeFinal(t, err)
		if err == nil {
			s.wantResponse(t, key, "first")
		}
		s.settleClean(t, r, "first")
		if err := s.clean.Settle(t.Context(), holdOf(r), answered("second")); err != nil {
			t.Error(err)
		}
		s.wantResponse(t, key, "first")
	}
}

func (s *sweep[TX]) runTx(t *testing.T, key string) (func() error, func(error)) {
	c := claimBy(key)
	var first onlyonce.Record
	act := func() (err error) {
		first, err = s.through.RunTx(t.Context(), c, s.pay(key, "first"))
		return err
	}
	return act, func(err error) {
		mustNotBeFinal(t, err)
		if err == nil && first.State == onlyonce.StateProcessing {
			err = errors.New("a transaction runs") // its connection was cut before its function ran
		}
		if err == nil && (first.State != onlyonce.StateCompleted || string(first.Result.Body) != "first") {
			t.Errorf("ran as %+v", first)
		}
		if len(s.paid)%2 == 0 {
			c = claimBy(key) // as a client that repeats the request does
		}
		var again onlyonce.Record
		for end := time.Now().Add(answerLimit); again.State != onlyonce.StateCompleted && time.Now().Before(end); time.Sleep(time.Millisecond) {
			var e error
			if again, e = s.clean.RunTx(t.Context(), c, s.pay(key, "second")); e != nil {
				t.Fatal(e)
			}
		}
		s.paid[key] = s.wantResponse(t, key, string(again.Result.Body))
		mustTellTheOutcome(t, err, s.paid[key])
	}
}

func (s *sweep[TX]) settleTx(t *testing.T, key string) (func() error, func(error)) {
	r := s.claimed(t, key)
	settle := func(store onlyonce.TxStore[TX], token string) error {
		pay := s.pay(key, token)
		return store.SettleTx(t.Context(), holdOf(r), func(ctx context.Context, tx TX) (onlyonce.Settlement, error) { return pay(ctx, tx, r) })
	}
	act := func() error { return settle(s.through, "first") }
	return act, func(err error) {
		mustNotBeFinal(t, err)
		want := "first"
		switch e := settle(s.clean, "second"); {
		case e == nil:
			want = "second"
		case !errors.Is(e, onlyonce.ErrLost):
			t.Errorf("settled again: %v", e)
		}
		s.paid[key] = s.wantResponse(t, key, want)
		mustTellTheOutcome(t, err, want)
	}
}

// pay is a caller's function.
func (s *sweep[TX]) pay(key, token string) func(context.Context, TX, onlyonce.Record) (onlyonce.Settlement, error) {
	return func(ctx context.Context, tx TX, _ onlyonce.Record) (onlyonce.Settlement, error) {
		if err := s.insert(ctx, tx, key, token); err != nil {
			return onlyonce.Settlement{}, err
		}
		return answered(token), nil
	}
}

func (s *sweep[TX]) claimed(t *testing.T, key string) onlyonce.Record {
	t.Helper()
	r, err := s.clean.Claim(t.Context(), claimBy(key))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func (s *sweep[TX]) settleClean(t *testing.T, r onlyonce.Record, answer string) {
	t.Helper()
	if err := s.clean.Settle(t.Context(), holdOf(r), answered(answer)); err != nil {
		t.Error(err)
	}
	s.wantResponse(t, r.ID.Key, answer)
}

// wantResponse looks at the record as it is, and returns its response.
func (s *sweep[TX]) wantResponse(t *testing.T, key, answer string) string {
	t.Helper()
	r, err := s.clean.Lookup(t.Context(), onlyonce.ID{Key: key})
	if err != nil || r.State != onlyonce.StateCompleted || string(r.Result.Body) != answer {
		t.Errorf("the record is %+v, %v; want the response %q", r, err, answer)
	}
	return string(r.Result.Body)
}

// mustNotBeFinal rejects errors that say more than that the store could not be
// reached: the command was its caller's all the time.
func mustNotBeFinal(t *testing.T, err error) {
	t.Helper()
	for _, final := range []error{onlyonce.ErrLost, onlyonce.ErrNotFound, onlyonce.ErrMismatch, onlyonce.ErrCorrupt, onlyonce.ErrInFlight, onlyonce.ErrFailed} {
		if errors.Is(err, final) {
			t.Errorf("the error of a cut says %q: %v", final, err)
		}
	}
}

// mustTellTheOutcome rejects an error for a transaction that was committed, as
// the command's response shows, and none for one that was not: a commit that
// was not confirmed is looked for.
func mustTellTheOutcome(t *testing.T, err error, answer string) {
	t.Helper()
	if committed := answer == "first"; committed != (err == nil) {
		t.Errorf("the transaction's error is %v, and the command's response the %s one's", err, answer)
	}
}

func claimBy(key string) onlyonce.Claim {
	return onlyonce.Claim{ID: onlyonce.ID{Key: key}, Owner: rand.Text()[:16], SkipFingerprint: true, Lease: time.Minute, RetryFailed: true}
}

func holdOf(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

func answered(answer string) onlyonce.Settlement {
	return onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte(answer)}, Keep: time.Hour}
}
