package integration

import (
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/reliability/faults"
	"github.com/onlyonce-go/onlyonce/outbox"
	"github.com/onlyonce-go/onlyonce/stores/sqlstore"
)

// A name leads to one server, then to another one that was migrated by itself, and then to the
// first one again.
func TestMariaDB_NothingRunsOnAServerThatDoesNotHaveTheStore(t *testing.T) {
	t.Parallel()
	a, b := newOwnServer(t, faults.MariaDB), newOwnServer(t, faults.MariaDB)
	d := a.newDatabase(t)
	d.migrated(t)
	_, name, _ := strings.Cut(d.dsn, ")/")
	if _, err := b.admin.Exec("CREATE DATABASE " + name); err != nil {
		t.Fatal(err)
	}
	other := ownDatabase{driver: d.driver, dsn: strings.Replace(d.dsn, a.Address(), b.Address(), 1)}
	onOther := other.migrated(t)
	named := newCutter(t, a)

	db := openPool(t, d.driver, strings.Replace(d.dsn, a.Address(), named.Address(), 1))
	own := openOn(t, db)
	begin := func() (tx *sql.Tx, rollback func() error, err error) {
		tx, err = db.BeginTx(t.Context(), nil)
		return tx, tx.Rollback, err
	}
	s := newMovable(own, begin, func(tx *sql.Tx) error { return own.Outbox().Append(t.Context(), tx, outbox.Message{Topic: "t"}) }, own.Outbox())
	reader, err := sqlstore.OpenReader(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	settled, held := serverClaim("settled"), serverClaim("held")
	if err := s.Settle(t.Context(), s.hold(t, settled), done("made")); err != nil {
		t.Fatal(err)
	}
	hold := s.hold(t, held)
	inDoubt, moved := make(chan error, 1), make(chan struct{})
	move := sync.OnceFunc(func() { named.SetTarget(b.Address()); close(moved) })
	go func() { inDoubt <- s.runTx("in doubt", move) }()
	<-moved

	s.rejected(t, "", settled.ID, hold)
	if err := listErr(t, reader, onlyonce.Filter{}); !errors.Is(err, sqlstore.ErrOtherCluster) {
		t.Errorf("a reader's list on the other server returned %v", err)
	}
	empty(t, onOther)
	if err := <-inDoubt; err == nil {
		t.Error("a transaction whose connection was cut before its end was committed")
	}
	named.SetTarget(a.Address())
	s.worksOn(t, hold, settled.ID, held.ID)
	for _, key := range []string{" new", "in doubt"} {
		if r, err := s.Claim(t.Context(), serverClaim(key)); err != nil || r.Attempt != 1 {
			t.Errorf("the claim of %q that was rejected got %+v, error %v", key, r, err)
		}
	}
}
