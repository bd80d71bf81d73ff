package servertest

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/stores/etcdstore"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
)

// migrated returns a server, a client of it and a store on it.
func migrated(t testing.TB) (*etcdServer, *clientv3.Client, *etcdstore.Store) {
	t.Helper()
	servers := start(t, 1)
	client := connect(t, servers...)
	migrate(t, client, etcdstore.Config{})
	return servers[0], client, open(t, client, patient)
}

// patient is the Config of a store that waits for as long as a test does.
var patient = etcdstore.Config{Timeout: 5 * time.Minute}

// nameOf returns the end of the names of a record's keys.
func nameOf(id onlyonce.ID) string {
	hash := id.Hash()
	return hex.EncodeToString(hash[:1]) + "/" + base64.RawURLEncoding.EncodeToString(hash[:])
}

func headOf(id onlyonce.ID) string { return "onlyonce/records/" + nameOf(id) }

func restOf(id onlyonce.ID) string { return "onlyonce/rest/" + nameOf(id) }

const clockKey = "onlyonce/clock"

// get returns a key and its value, or nil.
func get(t *testing.T, client *clientv3.Client, key string) *mvccpb.KeyValue {
	t.Helper()
	r, err := client.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Kvs) == 0 {
		return nil
	}
	return r.Kvs[0]
}

func put(t *testing.T, client *clientv3.Client, key, value string) {
	t.Helper()
	if _, err := client.Put(t.Context(), key, value); err != nil {
		t.Fatal(err)
	}
}

func TestStore_AClusterThatHasForgottenRunsNoNewCommand(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "before")
	held, err := s.Claim(t.Context(), hazard.Claim("held"))
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string]string{"the clock is gone": clockKey, "all is gone": "onlyonce/"} {
		if _, err := client.Delete(t.Context(), keys, clientv3.WithPrefix()); err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"before", "new"} {
			if r, err := s.Claim(t.Context(), hazard.Claim(key)); !errors.Is(err, etcdstore.ErrForgotten) {
				t.Errorf("%s: claim got %v and error %v", name, r, err)
			}
		}
		if _, err := s.Lookup(t.Context(), id); !errors.Is(err, etcdstore.ErrForgotten) || errors.Is(err, onlyonce.ErrNotFound) {
			t.Errorf("%s: lookup: %v", name, err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(held), hazard.Completed); !errors.Is(err, etcdstore.ErrForgotten) {
			t.Errorf("%s: settle: %v", name, err)
		}
		wants(t, etcdstore.Config{}, client, "forgotten: ")
		migrate(t, client, etcdstore.Config{})
		hazard.Run(t, s, "after "+name)
	}
	if _, err := s.Lookup(t.Context(), id); !errors.Is(err, onlyonce.ErrNotFound) {
		t.Errorf("lookup after all was gone: %v", err)
	}
}

func TestStore_MigratingAgainChangesNothing(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	was := get(t, client, clockKey)
	migrate(t, client, etcdstore.Config{})
	if is := get(t, client, clockKey); is.CreateRevision != was.CreateRevision {
		t.Errorf("the clock was made anew")
	}
	if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

func TestStore_KillsOfTheServerLoseNothing(t *testing.T) {
	needs.Time(t)
	t.Parallel()
	server, _, s := migrated(t)
	settled := make(map[onlyonce.ID]bool)
	for round := range 3 {
		load(t, s, fmt.Sprint(round), settled, func() { server.Kill(); server.restart() })
		hazard.CheckRepeats(t, s, settled)
	}
}

// load completes commands until a hundred more are settled, then breaks something, and stops
// once a hundred more are: no call may fail. It adds the IDs of those whose settlement was confirmed.
func load(t *testing.T, s *etcdstore.Store, name string, settled map[onlyonce.ID]bool, breaks func()) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	enough, more := make(chan struct{}), make(chan struct{})
	first := len(settled) + 100
	for g := range 8 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := s.Claim(ctx, hazard.Claim(fmt.Sprint(name, " ", g, " ", i)))
				if err == nil {
					err = s.Settle(ctx, hazard.Hold(r), hazard.Completed)
				}
				switch {
				case ctx.Err() != nil:
					return
				case err != nil:
					t.Errorf("%s: %v", name, err)
					cancel()
					return
				}
				mu.Lock()
				settled[r.ID] = true
				switch len(settled) {
				case first:
					close(enough)
				case first + 100:
					close(more)
				}
				mu.Unlock()
			}
		})
	}
	for _, reached := range []chan struct{}{enough, more} {
		select {
		case <-reached:
		case <-ctx.Done():
		}
		if reached == enough {
			breaks()
		}
	}
	cancel()
	callers.Wait()
}

func TestStore_ARecordExpiresAnHourBeforeItsKeys(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	hazard.CheckExpiries(t, s, func(name string, id onlyonce.ID, expires time.Duration) {
		lease := get(t, client, headOf(id)).Lease
		if rest := get(t, client, restOf(id)); rest != nil && rest.Lease != lease {
			t.Errorf("%s: the record's keys have the leases %x and %x", name, lease, rest.Lease)
		}
		if expires < 0 {
			if lease != 0 {
				t.Errorf("%s: the record has the lease %x", name, lease)
			}
			return
		}
		left, err := client.TimeToLive(t.Context(), clientv3.LeaseID(lease))
		if err != nil {
			t.Fatal(err)
		}
		// Between a quarter longer, because the lease is shared, and that with an eighth more.
		stays, ttl := expires+time.Hour, time.Duration(left.GrantedTTL)*time.Second
		if ttl < stays*5/4 || ttl > stays*3/2 {
			t.Errorf("%s: the keys are deleted in %v, want %v to %v", name, ttl, stays*5/4, stays*3/2)
		}
	})
}

func TestStore_RecordsShareALease(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	first, second := hazard.Run(t, s, "first"), hazard.Run(t, s, "second")
	lease := get(t, client, headOf(first)).Lease
	if other := get(t, client, headOf(second)).Lease; lease == 0 || lease != other {
		t.Errorf("the leases are %x and %x, want one", lease, other)
	}
	// A lease that somebody has revoked is replaced.
	if _, err := client.Revoke(t.Context(), clientv3.LeaseID(lease)); err != nil {
		t.Fatal(err)
	}
	id := hazard.Run(t, s, "third")
	if other := get(t, client, headOf(id)).Lease; other == 0 || other == lease {
		t.Errorf("after the lease %x was revoked, a record has %x", lease, other)
	}
}

func TestStore_ARecordThatCanNotBeReadIsOfAnUnknownOutcome(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	id := hazard.Run(t, s, "k")
	whole := string(get(t, client, headOf(id)).Value)
	rest := string(get(t, client, restOf(id)).Value)
	edited := func(at int, b byte) string { return whole[:at] + string(b) + whole[at+1:] }
	for name, damaged := range map[string]struct{ head, rest string }{
		"empty":                      {"", rest},
		"cut in the head":            {whole[:40], rest},
		"cut behind it":              {whole[:90], rest},
		"another version":            {edited(0, '2'), rest},
		"no such state":              {edited(1, 'X'), rest},
		"a part of negative length":  {edited(71, 0xff), rest},
		"a part longer than the all": {edited(72, 0x7f), rest},
		"a rest that is cut off":     {whole, rest[:3]},
		"a rest that is missing":     {whole, ""},
	} {
		put(t, client, headOf(id), damaged.head)
		put(t, client, restOf(id), damaged.rest)
		if damaged.rest == "" {
			if _, err := client.Delete(t.Context(), restOf(id)); err != nil {
				t.Fatal(err)
			}
		}
		hazard.CheckListedCorrupt(t, s, name)
		hazard.CheckCorrupt(t, s, name, id)
	}
}

func TestList_EveryPageBeginsBehindARecordWithoutAHead(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	hazard.CheckCorruptPages(t, s, func(id onlyonce.ID) { put(t, client, headOf(id), "") })
}

func TestStore_AFenceIncreasesAlthoughTheClockWasSetBack(t *testing.T) {
	t.Parallel()
	_, client, s := migrated(t)
	hazard.CheckFences(t, s, func(id onlyonce.ID, fence int64) {
		head := get(t, client, headOf(id)).Value
		binary.BigEndian.PutUint64(head[19:], uint64(fence))
		put(t, client, headOf(id), string(head))
	})
}

func TestStore_ARecordThatIsTooLargeIsRejectedAndChangesNothing(t *testing.T) {
	t.Parallel()
	_, _, s := migrated(t)
	for name, size := range map[string]int{"for etcd": 1600 << 10, "for its transport": 4 << 20, "for the client": 9 << 20} {
		r, err := s.Claim(t.Context(), hazard.Claim(name))
		if err != nil {
			t.Fatal(err)
		}
		large := hazard.Completed
		large.Result.Body = make([]byte, size)
		if err := s.Settle(t.Context(), hazard.Hold(r), large); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: settle: %v", name, err)
		}
		if err := s.Renew(t.Context(), hazard.Hold(r), time.Minute, map[string][]byte{"a": large.Result.Body}); !errors.Is(err, onlyonce.ErrTooLarge) {
			t.Errorf("%s: renew: %v", name, err)
		}
		if now, err := s.Lookup(t.Context(), r.ID); err != nil || now.State != onlyonce.StateProcessing || now.Fence != r.Fence {
			t.Errorf("%s: the record is %+v, error %v", name, now, err)
		}
		if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
			t.Errorf("%s: settle with less: %v", name, err)
		}
	}
	long := hazard.Claim("long")
	long.ID.Tenant = string(make([]byte, 64<<10))
	if _, err := s.Claim(t.Context(), long); !errors.Is(err, onlyonce.ErrTooLarge) {
		t.Errorf("claim with a tenant of 64 KiB: %v", err)
	}
}

func TestStore_WhenEtcdIsFullClaimsFailAndNothingIsLost(t *testing.T) {
	t.Parallel()
	servers := start(t, 1, "--quota-backend-bytes", fmt.Sprint(4<<20))
	client := connect(t, servers...)
	migrate(t, client, etcdstore.Config{})
	s := open(t, client, patient)
	before := hazard.Run(t, s, "settled")
	hazard.CheckFull(t, s, func() {
		for { // until it is full
			if _, err := client.Put(t.Context(), "ballast", string(make([]byte, 1<<20))); err != nil {
				break
			}
		}
		if _, err := s.Claim(t.Context(), hazard.Claim("full")); !contains(err, "quota-backend-bytes") {
			t.Errorf("claim: %v", err)
		}
		again := open(t, client, patient)
		hazard.CheckRepeats(t, again, map[onlyonce.ID]bool{before: true})
		findings, err := again.Diagnose(t.Context())
		if err != nil || len(findings) == 0 || findings[0].Name != etcdstore.RiskSpace {
			t.Errorf("the findings are %v, error %v", findings, err)
		}
	}, func() {
		last, err := client.Delete(t.Context(), "ballast")
		if err == nil {
			_, err = client.Compact(t.Context(), last.Header.Revision)
		}
		if err == nil {
			_, err = client.Defragment(t.Context(), servers[0].Client)
		}
		if err == nil {
			_, err = client.AlarmDisarm(t.Context(), &clientv3.AlarmMember{})
		}
		if err != nil {
			t.Fatal(err)
		}
	})
}

// A reads notes how many results are read at a time. Reads wait until as many changes as repeats
// have been tried.
type reads struct {
	clientv3.KV
	mu                 sync.Mutex
	changes, now, peak int
	repeats            int
	changed            chan struct{}
}

func (r *reads) Txn(ctx context.Context) clientv3.Txn {
	return &watchedTxn{Txn: r.KV.Txn(ctx), reads: r, ctx: ctx}
}

type watchedTxn struct {
	clientv3.Txn
	reads   *reads
	ctx     context.Context
	changes bool
}

func (t *watchedTxn) If(cs ...clientv3.Cmp) clientv3.Txn {
	t.Txn, t.changes = t.Txn.If(cs...), true
	return t
}

func (t *watchedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Then(ops...)
	return t
}

func (t *watchedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	t.Txn = t.Txn.Else(ops...)
	return t
}

func (t *watchedTxn) Commit() (*clientv3.TxnResponse, error) {
	r := t.reads
	if t.changes {
		defer r.count(func() {
			if r.changes++; r.changes == r.repeats {
				close(r.changed)
			}
		})
		return t.Txn.Commit()
	}
	r.count(func() { r.now++; r.peak = max(r.peak, r.now) })
	defer r.count(func() { r.now-- })
	select {
	case <-r.changed:
		return t.Txn.Commit()
	case <-t.ctx.Done():
		return nil, t.ctx.Err()
	}
}

func (r *reads) count(change func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	change()
}

// A member keeps a message in memory while it sends it.
func TestStore_FewResultsAreReadAtATime(t *testing.T) {
	const most = 32
	server, _, s := migrated(t)
	hazard.Run(t, s, "large")
	client := connect(t, server)
	r := &reads{KV: client.KV, repeats: 120, changed: make(chan struct{})}
	client.KV = r
	another := open(t, client, patient)
	var all sync.WaitGroup
	for range r.repeats {
		all.Go(func() {
			if got, err := another.Claim(t.Context(), hazard.Claim("large")); err != nil || got.State != onlyonce.StateCompleted {
				t.Errorf("a repeat got %+v, error %v", got, err)
			}
		})
	}
	all.Wait()
	if r.peak > most {
		t.Errorf("%d results were read at a time, want at most %d", r.peak, most)
	}
}
