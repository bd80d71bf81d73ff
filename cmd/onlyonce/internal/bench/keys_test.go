package bench

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func newTestKeys(pick string, duplicates float64) *keySet {
	return newKeySet(&config{keys: pick, duplicates: duplicates}, time.Minute)
}

// takeMany returns the names of the keys of n requests.
func takeMany(b *keySet, n int) (names []string) {
	rnd := rand.New(rand.NewPCG(1, 2))
	for range n {
		names = append(names, b.nextKey(rnd, time.Now()).name)
	}
	return names
}

func TestKeys_TheRatioOfRepeatsIsTheConfiguredOne(t *testing.T) {
	for _, ratio := range []float64{0, 0.1, 0.2, 1.0 / 3, 0.5, 0.9, 0.99} {
		b := newTestKeys(keysUniform, ratio)
		names := takeMany(b, 1000)
		slices.Sort(names)
		fresh := len(slices.Compact(names))
		if want := 1000 - int(1000*ratio+1e-9); fresh != want {
			t.Errorf("%v: %d keys in 1000 requests, want %d", ratio, fresh, want)
		}
		if sent, repeated := b.tally(); sent != 1000 || int(repeated) != 1000-fresh {
			t.Errorf("%v: %d of %d are counted as repeats", ratio, repeated, sent)
		}
	}
}

func TestKeys_TheDistributionSaysWhichKeyIsRepeated(t *testing.T) {
	const n = 40_000
	for pick, within := range map[string][2]int{ // how many of the repeats go to the ten first keys
		keysUniform:    {0, n / 100},
		keysZipf:       {n / 10, n / 2},
		keysSequential: {10, 10},
	} {
		b := newTestKeys(pick, 0.5)
		seen := map[string]int{}
		for _, name := range takeMany(b, n) {
			seen[name]++
		}
		first := 0
		for i := range 10 {
			first += seen[b.latest[i].name] - 1
		}
		if first < within[0] || first > within[1] {
			t.Errorf("%s: %d of %d repeats are of the ten first keys", pick, first, n/2)
		}
		if pick == keysUniform && b.latest[0].name == b.latest[1].name {
			t.Error("two keys have one name")
		}
	}
}

func TestKeys_SequentialRepeatsBeginAgainWhenTheyHaveCaughtUp(t *testing.T) {
	b := newTestKeys(keysSequential, 0.75)
	var order []string
	for _, name := range takeMany(b, 12) {
		order = append(order, strings.TrimPrefix(name, b.prefix+"-"))
	}
	// With three repeats for each new key, they go round and round.
	if got := strings.Join(order, " "); got != "0 0 0 0 1 1 0 1 2 2 0 1" {
		t.Error(got)
	}
}

func TestKeys_AKeyIsNotRepeatedWhenItsRecordMayExpireSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newTestKeys(keysUniform, 0.5)
		rnd := rand.New(rand.NewPCG(1, 2))
		b.nextKey(rnd, time.Now())
		time.Sleep(31 * time.Second) // of the minute that it is kept
		if k := b.nextKey(rnd, time.Now()); strings.HasSuffix(k.name, "-0") {
			t.Errorf("%s is repeated", k.name)
		}
		if _, repeated := b.tally(); repeated != 0 {
			t.Errorf("%d repeats are counted", repeated)
		}
	})
}

func TestKeys_OnlyTheLatestKeysAreRepeated(t *testing.T) {
	b := newTestKeys(keysUniform, 0)
	takeMany(b, repeatWindow+100)
	b.pick = keysSequential
	if k := b.earlier(nil, time.Now()); !strings.HasSuffix(k.name, "-100") {
		t.Errorf("%s is repeated first", k.name)
	}
}

func TestKeys_WhatBreaksThePromiseIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			happens func(*trackedKey)
			says    string
		}{
			"ran again":      {func(k *trackedKey) { k.recordRun("a"); time.Sleep(time.Second); k.recordRun("b") }, "-0 ran again, 1s after its last run"},
			"never ran":      {func(k *trackedKey) { k.check("a") }, "-0 got a replay, and never ran"},
			"another answer": {func(k *trackedKey) { k.recordRun("a"); k.check("b") }, "-0 got a different response than the first time"},
			"all is well":    {func(k *trackedKey) { k.recordRun("a"); k.check("a"); k.check("a") }, ""},
			"it had expired": {func(k *trackedKey) {
				k.recordRun("a")
				time.Sleep(time.Hour)
				k.recordRun("b")
				k.check("a")
				k.check("b")
			}, ""},
		} {
			b := newTestKeys(keysUniform, 0)
			c.happens(b.nextKey(rand.New(rand.NewPCG(1, 2)), time.Now()))
			n, said := b.broken()
			if c.says == "" && n > 0 || c.says != "" && (n != 1 || !strings.HasSuffix(said[0], c.says)) {
				t.Errorf("%s: %d violations: %q", name, n, said)
			}
		}
	})
}

func TestKeys_OnlyTheFirstViolationsAreDescribed(t *testing.T) {
	b := newTestKeys(keysUniform, 0)
	for range 100 {
		b.violate("again")
	}
	if n, said := b.broken(); n != 100 || len(said) != shownViolations {
		t.Errorf("%d violations, of which %d are told", n, len(said))
	}
}
