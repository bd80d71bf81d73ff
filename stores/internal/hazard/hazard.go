// Package hazard has the code that the tests of stores on failing servers share: commands, and the
// checks of promises that each store breaks in its own way on purpose.
package hazard

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// A Store has the methods that the checks need.
type Store interface {
	onlyonce.Store
	onlyonce.Resolver
	List(ctx context.Context, f onlyonce.Filter) iter.Seq2[onlyonce.Record, error]
}

// Completed is the settlement of a command that has run.
var Completed = onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Status: 201, Body: []byte("made")}, Keep: time.Hour}

// NewOwner returns a random owner.
func NewOwner() string {
	b := make([]byte, 16)
	rand.Read(b)
	return string(b)
}

// Claim returns a claim on a command, whose lease does not lapse during a test.
func Claim(key string) onlyonce.Claim {
	return onlyonce.Claim{ID: onlyonce.ID{Tenant: "acme", Operation: "POST /v1/orders", Key: key}, Owner: NewOwner(), SkipFingerprint: true, Lease: 10 * time.Minute}
}

// Hold returns the hold that a claim got.
func Hold(r onlyonce.Record) onlyonce.Hold {
	return onlyonce.Hold{ID: r.ID, Owner: r.Owner, Fence: r.Fence}
}

// Run claims and completes a command, and returns its ID.
func Run(t testing.TB, s onlyonce.Store, key string) onlyonce.ID {
	t.Helper()
	return settle(t, s, Claim(key), Completed).ID
}

func settle(t testing.TB, s onlyonce.Store, c onlyonce.Claim, how onlyonce.Settlement) onlyonce.Record {
	t.Helper()
	r, err := s.Claim(t.Context(), c)
	if err == nil {
		err = s.Settle(t.Context(), Hold(r), how)
	}
	if err != nil {
		t.Fatalf("%s: %v", c.ID.Key, err)
	}
	return r
}

// Load completes commands until a hundred more are settled, then breaks something and
// stops. It adds the IDs of those whose settlement was confirmed.
func Load(t testing.TB, s onlyonce.Store, name string, settled map[onlyonce.ID]bool, breaks func()) {
	t.Helper()
	var mu sync.Mutex
	var callers sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	enough := make(chan struct{})
	want := len(settled) + 100
	for g := range 8 {
		callers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r, err := s.Claim(ctx, Claim(fmt.Sprint(name, " ", g, " ", i)))
				if err == nil {
					err = s.Settle(ctx, Hold(r), Completed)
				}
				if err != nil {
					return
				}
				mu.Lock()
				settled[r.ID] = true
				if len(settled) == want {
					close(enough)
				}
				mu.Unlock()
			}
		})
	}
	<-enough
	breaks()
	cancel()
	callers.Wait()
}

// CheckRepeats wants a lookup and a repeat of each settled command to find it completed.
func CheckRepeats(t testing.TB, s onlyonce.Store, settled map[onlyonce.ID]bool) {
	t.Helper()
	for id := range settled {
		if r, err := s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateCompleted {
			t.Fatalf("the record of %v is %+v, error %v", id, r, err)
		}
		c := Claim(id.Key)
		if r, err := s.Claim(t.Context(), c); err != nil || r.State != onlyonce.StateCompleted || r.Owner == c.Owner {
			t.Fatalf("a repeat of %v got %+v, error %v", id, r, err)
		}
	}
}

// CheckFull wants claims on new commands to fail while the store is full, and nothing else to
// be lost.
func CheckFull(t testing.TB, s onlyonce.Store, fill, free func()) {
	t.Helper()
	id := Run(t, s, "before")
	fill()
	if r, err := s.Claim(t.Context(), Claim("full")); err == nil {
		t.Fatalf("claim got %+v", r)
	}
	CheckRepeats(t, s, map[onlyonce.ID]bool{id: true})
	free()
	if _, err := s.Lookup(t.Context(), id); err != nil {
		t.Error(err)
	}
	Run(t, s, "full")
}

type counter interface {
	Unresolved(ctx context.Context) (n int, oldest time.Duration, err error)
}

// CheckOtherCluster wants no response to count that is from another cluster than the one on which
// the store was opened. away makes only the other cluster respond, which has no records, and back
// only the store's own. Calls must fail with otherCluster, and not with forgotten, which is the
// error for a store that has lost its records.
func CheckOtherCluster(t testing.TB, s Store, otherCluster, forgotten error, away, back func()) {
	t.Helper()
	id := Run(t, s, "k")
	held, err := s.Claim(t.Context(), Claim("held"))
	if err != nil {
		t.Fatal(err)
	}
	away()
	var calls sync.WaitGroup
	for name, call := range map[string]func() error{
		"claim":     func() error { _, err := s.Claim(t.Context(), Claim("k")); return err },
		"new claim": func() error { _, err := s.Claim(t.Context(), Claim("new")); return err },
		"settle":    func() error { return s.Settle(t.Context(), Hold(held), Completed) },
		"renew":     func() error { return s.Renew(t.Context(), Hold(held), time.Minute, nil) },
		"lookup":    func() error { _, err := s.Lookup(t.Context(), id); return err },
		"count":     func() error { _, _, err := s.(counter).Unresolved(t.Context()); return err },
		"list": func() error {
			for _, err := range s.List(t.Context(), onlyonce.Filter{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
	} {
		calls.Go(func() {
			err := call()
			for err != nil && !errors.Is(err, otherCluster) && !errors.Is(err, onlyonce.ErrLost) && !errors.Is(err, onlyonce.ErrNotFound) && !errors.Is(err, forgotten) && t.Context().Err() == nil {
				err = call() // the other cluster has not responded yet
			}
			if !errors.Is(err, otherCluster) {
				t.Errorf("%s on the other cluster: %v", name, err)
			}
		})
	}
	calls.Wait()
	back()
	for {
		err := s.Settle(t.Context(), Hold(held), Completed)
		if err == nil {
			break
		}
		if errors.Is(err, onlyonce.ErrLost) || t.Context().Err() != nil {
			t.Fatalf("settle on the store's own cluster: %v", err)
		}
	}
	CheckRepeats(t, s, map[onlyonce.ID]bool{id: true, held.ID: true})
}

// CheckListedCorrupt wants a store's only record, which was damaged, to be listed as such.
func CheckListedCorrupt(t testing.TB, s Store, damage string) {
	t.Helper()
	listed := 0
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if listed++; err != nil || !r.Corrupt {
			t.Errorf("%s: listed %+v, error %v", damage, r, err)
		}
	}
	if listed != 1 {
		t.Errorf("%s: listed %d records, want 1", damage, listed)
	}
}

// CheckCorruptPages wants every page of a list to begin behind the last record of the page before,
// although none of them can be decoded. damage makes a record one of them.
func CheckCorruptPages(t testing.TB, s Store, damage func(id onlyonce.ID)) {
	t.Helper()
	const n = 8
	for i := range n {
		damage(Run(t, s, strconv.Itoa(i)))
	}
	f := onlyonce.Filter{Limit: 1}
	for range n {
		listed := 0
		for r, err := range s.List(t.Context(), f) {
			if listed++; err != nil || !r.Corrupt || !f.FromNewest() && !r.CreatedAt.Before(f.After.CreatedAt) {
				t.Fatalf("after %v, %+v was listed, error %v", f.After.CreatedAt, r, err)
			}
			f.After = r
		}
		if listed != 1 {
			t.Fatalf("a page has %d records, want 1", listed)
		}
	}
	for r, err := range s.List(t.Context(), f) {
		t.Errorf("after the last record, %+v was listed, error %v", r, err)
	}
}

// CheckCorrupt wants a record that was damaged to be of an unknown outcome, until a person
// decides about it.
func CheckCorrupt(t testing.TB, s Store, damage string, id onlyonce.ID) {
	t.Helper()
	c := Claim(id.Key)
	r, err := s.Claim(t.Context(), c)
	if err != nil || r.Owner == c.Owner || r.State != onlyonce.StateUnknown || !r.Corrupt || r.ID != id {
		t.Errorf("%s: a claim got %+v, error %v", damage, r, err)
	}
	if err := s.Resolve(t.Context(), r, onlyonce.Settlement{State: onlyonce.StateFailed}); err != nil {
		t.Errorf("%s: resolve as failed: %v", damage, err)
	}
	if r, err = s.Lookup(t.Context(), id); err != nil || r.State != onlyonce.StateFailed || r.Corrupt {
		t.Errorf("%s: it was resolved as %+v, error %v", damage, r, err)
	}
	if err := s.Resolve(t.Context(), r, onlyonce.Settlement{}); err != nil {
		t.Errorf("%s: resolve: %v", damage, err)
	}
	c = Claim(id.Key)
	if now, err := s.Claim(t.Context(), c); err != nil || now.Owner != c.Owner || now.Fence <= r.Fence {
		t.Errorf("%s: after that, a claim got %+v, error %v", damage, now, err)
	}
}

// CheckFences wants the fence of a later claim to be higher than one that move has stored:
// that of a clock which was an hour ahead.
func CheckFences(t testing.TB, s onlyonce.Store, move func(id onlyonce.ID, fence int64)) {
	t.Helper()
	for name, how := range map[string]onlyonce.Settlement{
		"released":    {},
		"expired":     {State: onlyonce.StateCompleted, Keep: time.Millisecond},
		"failed":      {State: onlyonce.StateFailed},
		"of a person": {State: onlyonce.StateUnknown},
	} {
		r := settle(t, s, Claim(name), how)
		ahead := r.Fence + time.Hour.Microseconds()
		move(r.ID, ahead)
		next := Claim(name)
		next.RetryFailed, next.TakeUnknown = true, true
		for { // until it has expired
			now, err := s.Claim(t.Context(), next)
			if err != nil {
				t.Fatal(err)
			}
			if now.Owner == next.Owner {
				if now.Fence <= ahead {
					t.Errorf("%s: after the fence %d came %d", name, ahead, now.Fence)
				}
				break
			}
		}
	}
}

// CheckExpiries wants a record to be deleted an hour after it has expired. Each time, it makes
// a record and passes on when it expires, counted from now; never if negative.
func CheckExpiries(t testing.TB, s onlyonce.Store, check func(name string, id onlyonce.ID, expires time.Duration)) {
	t.Helper()
	for name, c := range map[string]struct {
		how     *onlyonce.Settlement
		keep    time.Duration // of the claim
		expires time.Duration
	}{
		"processing, for good": {nil, 0, -1},
		"processing":           {nil, time.Minute, 11 * time.Minute},
		"completed":            {&Completed, time.Minute, time.Hour},
		"for good":             {&onlyonce.Settlement{State: onlyonce.StateUnknown}, time.Minute, -1},
		"released":             {&onlyonce.Settlement{}, time.Minute, 0},
	} {
		claim := Claim(name)
		claim.Keep = c.keep
		r, err := s.Claim(t.Context(), claim)
		if err == nil && c.how != nil {
			err = s.Settle(t.Context(), Hold(r), *c.how)
		}
		if err != nil {
			t.Fatal(err)
		}
		check(name, claim.ID, c.expires)
	}
}

// CheckLargeList wants a list to read a few large records at a time. received returns how many
// bytes the server has sent.
func CheckLargeList(t testing.TB, s Store, received func() int64) {
	t.Helper()
	const large, small = 3 << 20, 20
	for i := range small {
		Run(t, s, fmt.Sprint("small ", i))
	}
	for i := range 12 {
		settle(t, s, Claim(fmt.Sprint("large ", i)), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: make([]byte, large)}})
	}
	listed, before := 0, received()
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if listed++; listed == 1 && received()-before > 4*large {
			t.Errorf("%d bytes were read before the first record, of %d bytes, was listed", received()-before, len(r.Result.Body))
		}
	}
	if listed != small+12 {
		t.Errorf("listed %d records, want %d", listed, small+12)
	}
}

// CheckListOrder wants a list to have so many records, the newest command first.
func CheckListOrder(t testing.TB, s Store, want int) {
	t.Helper()
	listed := 0
	var last onlyonce.Record
	for r, err := range s.List(t.Context(), onlyonce.Filter{}) {
		if err != nil {
			t.Fatal(err)
		}
		if listed > 0 && !r.CreatedAt.Before(last.CreatedAt) {
			t.Fatalf("after a record of %v came one of %v", last.CreatedAt, r.CreatedAt)
		}
		last = r
		listed++
	}
	if listed != want {
		t.Errorf("listed %d records, want %d", listed, want)
	}
}

// RunUnknown runs a command whose outcome is unknown.
func RunUnknown(t testing.TB, s Store, key string) onlyonce.Record {
	t.Helper()
	r := settle(t, s, Claim(key), onlyonce.Settlement{State: onlyonce.StateUnknown, Keep: onlyonce.KeepForever})
	r, err := s.Lookup(t.Context(), r.ID)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// CheckLargeRepeats wants every one of many repeats that come at once to get a large result.
func CheckLargeRepeats(t testing.TB, s onlyonce.Store) {
	t.Helper()
	const large, repeats = 1 << 20, 120
	settle(t, s, Claim("large"), onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: make([]byte, large)}})
	var all sync.WaitGroup
	for range repeats {
		all.Go(func() {
			if r, err := s.Claim(t.Context(), Claim("large")); err != nil || len(r.Result.Body) != large {
				t.Errorf("a repeat got %d of %d bytes, error %v", len(r.Result.Body), large, err)
			}
		})
	}
	all.Wait()
}

// CheckPanics tests that each call panics with a text that begins as given.
func CheckPanics(t *testing.T, text string, calls ...func()) {
	t.Helper()
	for _, call := range calls {
		func() {
			defer func() {
				if got := fmt.Sprint(recover()); !strings.HasPrefix(got, text) {
					t.Errorf("the panic is %q, want one that begins %q", got, text)
				}
			}()
			call()
		}()
	}
}
