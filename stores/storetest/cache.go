package storetest

import (
	"context"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

// cacheRules hold for the cache of a Guard (onlyonce.Config.CacheBytes) beside decisions that
// are made without the Guard.
var cacheRules = []rule{
	{"a cache forgets within its maximum age that a person deleted a record", func(t *storeTest) {
		t.forgets(short, onlyonce.Settlement{}, "anew", func(g *onlyonce.Guard, decided time.Time) {
			t.until("the maximum age passes", func() bool { return time.Since(decided) >= short })
		})
	}},
	{"a cache forgets within its maximum age what a person's decision replaced", func(t *storeTest) {
		t.forgets(short, completed(`"by hand"`), "by hand", func(g *onlyonce.Guard, decided time.Time) {
			t.until("the maximum age passes", func() bool { return time.Since(decided) >= short })
		})
	}},
	{"a cache forgets at once what its Guard is to forget", func(t *storeTest) {
		t.forgets(long, onlyonce.Settlement{}, "anew", func(g *onlyonce.Guard, _ time.Time) { g.Forget(idOf("k")) })
	}},
	{"a cache does not replay a record that has expired", func(t *storeTest) {
		settler, reader := t.cachingGuard(long), t.cachingGuard(long)
		t.run(settler, "made", short)
		t.run(reader, "made", short)
		for i, g := range []*onlyonce.Guard{settler, reader} {
			t.awaitExpiry(idOf("k"))
			if a := t.run(g, "anew", short); a.Replayed {
				t.Errorf("Guard %d replayed %q, which has expired", i, a.Value)
			}
		}
	}},
}

func (t *storeTest) cachingGuard(maxAge time.Duration) *onlyonce.Guard {
	return onlyonce.New(t.store, onlyonce.Config{CacheBytes: 1 << 20, CacheMaxAge: maxAge, Observer: onlyonce.DiscardEvents})
}

func requestOf(key string, keep time.Duration) onlyonce.Request {
	c := claimOf(key)
	return onlyonce.Request{ID: c.ID, Fingerprint: c.Fingerprint, Keep: keep}
}

// run runs the command by a Guard, and wants no error.
func (t *storeTest) run(g *onlyonce.Guard, value string, keep time.Duration) onlyonce.Answer[string] {
	t.Helper()
	a, err := onlyonce.Do(t.ctx, g, requestOf("k", keep), func(context.Context) (string, error) { return value, nil })
	if err != nil {
		t.Fatalf("run: %v", err)
	}
	return a
}

// forgets lets a person decide s about a record that two Guards have in their caches: the one
// that settled it, and one that replayed it. After wait, both must respond with want.
func (t *storeTest) forgets(maxAge time.Duration, s onlyonce.Settlement, want string, wait func(g *onlyonce.Guard, decided time.Time)) {
	t.Helper()
	settler, reader := t.cachingGuard(maxAge), t.cachingGuard(maxAge)
	t.run(settler, "made", long)
	t.run(reader, "made", long)
	if err := t.resolve(idOf("k"), t.lookup(idOf("k")).Fence, s); err != nil {
		t.Fatalf("resolve: %v", err)
	}
	decided := time.Now()
	for _, g := range []*onlyonce.Guard{settler, reader} {
		wait(g, decided)
		if a := t.run(g, "anew", long); a.Value != want {
			t.Errorf("the response is %q, want %q", a.Value, want)
		}
	}
}
