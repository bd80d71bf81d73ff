package main

import (
	"context"
	"log"
	"os"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
	"github.com/onlyonce-go/onlyonce/outbox"
)

// seed is the command "seed URL" of the scripts: it fills a store with one
// record of every kind.
func seed() {
	ctx := context.Background()
	u, err := storeurl.Parse(os.Args[1])
	must(err)
	store, err := u.OpenMigrated(ctx, nil)
	must(err)
	s := seeder{ctx, store}
	s.settled("done", onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour, Result: onlyonce.Result{
		Status: 201, Ref: "item-7", Body: []byte(`{"id":7}` + "\n"),
		Header: map[string][]string{"Content-Type": {"application/json"}, "Link": {"<a>", "<b>"}},
	}})
	s.settled("\x1b[31mred\u202e", onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour, Result: onlyonce.Result{
		Status: 200, Body: []byte("a\x1b[2Jb\nc"), Header: map[string][]string{"X-Odd": {"\x1b]0;title\a"}},
	}})
	s.settled("binary", onlyonce.Settlement{State: onlyonce.StateCompleted, Keep: time.Hour, Result: onlyonce.Result{
		Status: 200, Body: []byte{0xff, 0x00, 0xfe},
	}})
	s.settled("broken", onlyonce.Settlement{State: onlyonce.StateFailed, Final: true, Keep: 50 * time.Hour, Error: "no\nstock"})
	s.settled("doubtful", onlyonce.Settlement{State: onlyonce.StateUnknown, Error: "the response was lost"}, "charge", "reserve")
	s.claim("running", time.Hour)
	s.claim("died", time.Millisecond)
	twin := onlyonce.ID{Tenant: "bob", Operation: "POST /orders", Key: "done"}
	_, err = store.Claim(ctx, onlyonce.Claim{ID: twin, Owner: "twin", SkipFingerprint: true, Lease: time.Hour})
	must(err)
	seedOutbox(ctx, store)
	must(store.Close())
}

// seedOutbox leaves two messages parked, and one that waits.
func seedOutbox(ctx context.Context, store *storeurl.Store) {
	tx, err := store.DB.BeginTx(ctx, nil)
	must(err)
	queue := store.Outbox()
	for _, n := range []string{"1", "2", "3"} {
		must(queue.Append(ctx, tx, outbox.Message{ID: "message-" + n, Topic: "order.created", Key: "order-" + n, Tenant: "acme", Payload: []byte("{}")}))
	}
	must(tx.Commit())
	const owner = "0123456789abcdef"
	leased, err := queue.Lease(ctx, owner, time.Hour, 2)
	must(err)
	for _, e := range leased {
		must(queue.Settle(ctx, owner, []outbox.Verdict{{Seq: e.Seq, State: outbox.StateParked, Attempts: 3, Error: "bad\x1b[31m"}}))
	}
}

// execSQL is the command "sql URL STATEMENT" of the scripts; it makes the file.
func execSQL() {
	u, err := storeurl.Parse(os.Args[1])
	must(err)
	db, err := u.OpenDB(context.Background(), true)
	must(err)
	_, err = db.Exec(os.Args[2])
	must(err)
	must(db.Close())
}

type seeder struct {
	ctx   context.Context
	store onlyonce.Store
}

func (s seeder) claim(key string, lease time.Duration) onlyonce.Hold {
	id := onlyonce.ID{Tenant: "alice", Operation: "POST /items", Key: key}
	r, err := s.store.Claim(s.ctx, onlyonce.Claim{ID: id, Owner: "owner of " + key, SkipFingerprint: true, Lease: lease})
	must(err)
	return onlyonce.Hold{ID: id, Owner: r.Owner, Fence: r.Fence}
}

func (s seeder) settled(key string, end onlyonce.Settlement, steps ...string) {
	h := s.claim(key, time.Hour)
	done := make(map[string][]byte)
	for _, step := range steps {
		done[step] = []byte("true")
	}
	must(s.store.Renew(s.ctx, h, time.Hour, done))
	must(s.store.Settle(s.ctx, h, end))
}

func must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
