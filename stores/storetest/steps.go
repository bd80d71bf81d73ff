package storetest

import (
	"bytes"
	"maps"
	"strings"
	"sync/atomic"

	"github.com/onlyonce-go/onlyonce"
)

type steps = map[string][]byte

var stepRules = []rule{
	{"a renewal adds its steps to the record's", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"reserve": []byte("r_1")})
		t.renew(h, long, steps{"charge": []byte("ch_1"), "mail": []byte("m_1")})
		t.renew(h, long, nil)
		t.renew(h, long, steps{})
		t.hasSteps(h.ID, steps{"reserve": []byte("r_1"), "charge": []byte("ch_1"), "mail": []byte("m_1")})
	}},
	{"a step that comes again replaces the earlier one", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"charge": []byte("ch_1"), "mail": []byte("m_1")})
		t.renew(h, long, steps{"charge": []byte("ch_2")})
		t.renew(h, long, steps{"charge": []byte("ch_2")})
		t.hasSteps(h.ID, steps{"charge": []byte("ch_2"), "mail": []byte("m_1")})
	}},
	{"steps that are added at once are all kept", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		want := steps{}
		for i := range 16 {
			want[strings.Repeat("s", i+1)] = []byte{byte(i)}
		}
		together(16, func(i int) {
			name := strings.Repeat("s", i+1)
			if err := t.store.Renew(t.ctx, h, long, steps{name: want[name]}); err != nil {
				t.Errorf("renew: %v", err)
			}
		})
		t.hasSteps(h.ID, want)
	}},
	{"steps are kept over every way to lose a command, and added to", func(t *storeTest) {
		c := claimOf("k")
		want := steps{}
		r := t.mustClaim(c)
		for i, end := range []onlyonce.Settlement{{}, failed("no stock"), unknown("no answer"), {}} {
			name := strings.Repeat("s", i+1)
			want[name] = []byte(name)
			t.renew(holdOf(r), long, steps{name: []byte(name)})
			t.lose(r, end)
			t.hasSteps(c.ID, want)
			r = t.mustClaim(greedy(c))
			if !maps.EqualFunc(r.Steps, want, bytes.Equal) {
				t.Errorf("attempt %d has the steps %q, want %q", r.Attempt, r.Steps, want)
			}
		}
		t.settle(holdOf(r), completed("made"))
		t.hasSteps(c.ID, want)
	}},
	{"steps are kept when a failure is for good", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		t.renew(h, long, steps{"charge": []byte("ch_1")})
		t.settle(h, failedForGood("no such article"))
		t.hasSteps(h.ID, steps{"charge": []byte("ch_1")})
	}},
	{"steps of a hold that is lost are not added", func(t *storeTest) {
		c := claimOf("k")
		first := holdOf(t.awaitLapse(holdOf(t.mustClaim(c))))
		second := holdOf(t.mustClaim(greedy(c)))
		t.renew(second, long, steps{"charge": []byte("by the second")})
		t.wantErr(onlyonce.ErrLost, "renew", t.store.Renew(t.ctx, first, long, steps{"charge": []byte("by the first")}))
		t.hasSteps(c.ID, steps{"charge": []byte("by the second")})
	}},
	{"steps have any name and any bytes", func(t *storeTest) {
		h := holdOf(t.mustClaim(claimOf("k")))
		want := steps{
			"": []byte("no name"), "none": {}, "bytes": everyByte(), "big": bytes.Repeat([]byte("0123456789abcdef"), 8<<10),
			"Charge": []byte("1"), "charge": []byte("2"), "charge ": []byte("3"), "ch\u00e4rge": []byte("4"), "cha\u0308rge": []byte("5"),
			`"';--\%_{}[]<>&` + "\n\r\t\x00\u2028": []byte("6"),
		}
		for name, value := range want {
			t.renew(h, long, steps{name: value})
		}
		t.hasSteps(h.ID, want)
	}},
	{"steps that race with the settlement are all there or lost", func(t *storeTest) {
		for range 20 {
			c := claimOf(newOwner())
			h := holdOf(t.mustClaim(c))
			var lost atomic.Bool
			together(2, func(i int) {
				if i == 0 {
					lost.Store(t.store.Renew(t.ctx, h, long, steps{"charge": []byte("ch_1")}) != nil)
				} else if err := t.store.Settle(t.ctx, h, completed("made")); err != nil {
					t.Errorf("settle: %v", err)
				}
			})
			want := steps{"charge": []byte("ch_1")}
			if lost.Load() {
				want = nil
			}
			t.hasSteps(c.ID, want)
		}
	}},
}

func (t *storeTest) hasSteps(id onlyonce.ID, want steps) {
	t.Helper()
	if got := t.lookup(id).Steps; !maps.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("the steps are %.200q, want %.200q", got, want)
	}
}
