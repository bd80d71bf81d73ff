package cryptstore

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// rekeyed returns the count of Rekey on the store, with b as the current key.
func rekeyed(t *testing.T, inner onlyonce.Store, cfg Config) Rekeyed {
	t.Helper()
	c, _ := newCipher(t, cfg)
	n, err := c.Rekey(t.Context(), inner, nil)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// withKeyA is a store of the same records whose current key is a.
func withKeyA(t *testing.T, inner onlyonce.Store) onlyonce.Store {
	t.Helper()
	return New(Config{Keys: keysOf(t, testKey(t, "a", 1))}).Wrap(inner)
}

// contents are settlements in every state that a record can be settled in.
func contents() map[string]onlyonce.Settlement {
	result := onlyonce.Result{Status: 201, Header: map[string][]string{"A": {"b", "c"}}, Body: []byte(secret), Ref: "r"}
	return map[string]onlyonce.Settlement{
		"completed": {State: onlyonce.StateCompleted, Result: result, Keep: time.Hour},
		"forever":   {State: onlyonce.StateCompleted, Result: result, Keep: onlyonce.KeepForever},
		"failed":    {State: onlyonce.StateFailed, Result: result, Error: secret, Keep: time.Hour},
		"final":     {State: onlyonce.StateFailed, Final: true, Result: result, Error: secret, Keep: time.Hour},
		"unknown":   {State: onlyonce.StateUnknown, Result: result, Error: secret, Keep: onlyonce.KeepForever},
	}
}

func TestRekey_TheOldKeyIsNotNeededAnyMore(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	old := withKeyA(t, inner)
	for key, st := range contents() {
		put(t, old, hazard.Claim(key), nil, st)
	}
	put(t, old, hazard.Claim("steps"), map[string][]byte{"charge": []byte("1")}, contents()["completed"])
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 6}) {
		t.Errorf("Rekey counts %+v", n)
	}
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Current: 6}) {
		t.Errorf("a second Rekey counts %+v", n)
	}
	s := New(Config{Keys: keysOf(t, testKey(t, "b", 2))}).Wrap(inner)
	for key, st := range contents() {
		r, err := s.Lookup(t.Context(), hazard.Claim(key).ID)
		if err != nil || r.Corrupt || r.State != st.State || r.Final != st.Final || r.Error != st.Error || (r.KeepLeft == 0) != (st.Keep == onlyonce.KeepForever) || r.KeepLeft > st.Keep && st.Keep > 0 {
			t.Errorf("%s: the record is %+v, error %v", key, r, err)
		}
		if got := r.Result; got.Status != 201 || got.Ref != "r" || string(got.Body) != secret || !slices.Equal(got.Header["A"], []string{"b", "c"}) {
			t.Errorf("%s: the result is %+v", key, got)
		}
	}
	if r, err := s.Lookup(t.Context(), hazard.Claim("steps").ID); err != nil || r.Corrupt || string(r.Result.Body) != secret || r.Steps != nil {
		t.Errorf("the record with a step is %+v, error %v", r, err)
	}
}

func TestRekey_TheOldKeyCanBeDeletedIfCacheKeysHadPassedBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := testKey(t, "a", 1), testKey(t, "b", 2)
		var keys switchedKeys
		keys.now.Store(switchedTo{keys: keysOf(t, a, b)})
		inner := memstore.New(memstore.Config{})
		program := New(Config{Keys: &keys}).Wrap(inner)
		put(t, program, hazard.Claim("before"), nil, contents()["forever"])
		keys.now.Store(switchedTo{keys: keysOf(t, b, a)})
		if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1}) {
			t.Errorf("at once, Rekey counts %+v", n)
		}
		put(t, program, hazard.Claim("meanwhile"), nil, contents()["forever"]) // with a, which is cached
		time.Sleep(10 * time.Minute)
		put(t, program, hazard.Claim("after"), nil, contents()["forever"])
		if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1, Current: 2}) {
			t.Errorf("after CacheKeys, Rekey counts %+v", n)
		}
		s := New(Config{Keys: keysOf(t, b)}).Wrap(inner)
		for _, key := range []string{"before", "meanwhile", "after"} {
			if r, err := s.Lookup(t.Context(), hazard.Claim(key).ID); err != nil || string(r.Result.Body) != secret {
				t.Errorf("%s: %q, error %v", key, r.Result.Body, err)
			}
		}
	})
}

func TestRekey_WhatStillNeedsItsKeyIsLeft(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	old := withKeyA(t, inner)
	steps := map[string][]byte{"charge": []byte("1")}
	put(t, old, hazard.Claim("failed"), steps, contents()["failed"])
	put(t, old, hazard.Claim("unknown"), steps, contents()["unknown"])
	if _, err := old.Claim(t.Context(), hazard.Claim("processing")); err != nil {
		t.Fatal(err)
	}
	damaged := contents()["completed"]
	damaged.Result.Header, damaged.Result.Body = nil, []byte(magic)
	put(t, inner, hazard.Claim("damaged"), nil, damaged)
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Left: 4}) {
		t.Errorf("Rekey counts %+v", n)
	}
	r, err := old.Lookup(t.Context(), hazard.Claim("failed").ID)
	if err != nil || r.Corrupt || string(r.Steps["charge"]) != "1" {
		t.Errorf("the record with a step is %+v, error %v", r, err)
	}
}

// The steps of a command that failed stay as they are, also when it has run again.
func TestRekey_ACommandThatHasRunAgainNeedsItsOldKeyUntilTheNextRekey(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	put(t, withKeyA(t, inner), hazard.Claim("k"), map[string][]byte{"charge": []byte("1")}, contents()["failed"])
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Left: 1}) {
		t.Fatalf("Rekey counts %+v", n)
	}
	both, _ := newCipher(t, Config{})
	again := hazard.Claim("k")
	again.RetryFailed = true
	r, err := both.Wrap(inner).Claim(t.Context(), again)
	if err == nil {
		err = both.Wrap(inner).Settle(t.Context(), hazard.Hold(r), contents()["completed"])
	}
	if err != nil {
		t.Fatal(err)
	}
	s := New(Config{Keys: keysOf(t, testKey(t, "b", 2))}).Wrap(inner)
	if _, err := s.Lookup(t.Context(), again.ID); !errors.Is(err, ErrUnknownKey) {
		t.Errorf("without the old key, the error is %v", err)
	}
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1}) {
		t.Errorf("when the command has completed, Rekey counts %+v", n)
	}
	if r, err := s.Lookup(t.Context(), again.ID); err != nil || r.Corrupt || string(r.Result.Body) != secret {
		t.Errorf("after that, the record is %+v, error %v", r, err)
	}
}

// A person may decide that a completed command is to run again after all. Its steps were dropped.
func TestRekey_ACommandThatAPersonLetsRunAgainNeedsNoOldKey(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	c := hazard.Claim("k")
	put(t, withKeyA(t, inner), c, map[string][]byte{"charge": []byte("1")}, contents()["completed"])
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1}) {
		t.Fatalf("Rekey counts %+v", n)
	}
	s := New(Config{Keys: keysOf(t, testKey(t, "b", 2))}).Wrap(inner).(hazard.Store)
	seen, err := s.Lookup(t.Context(), c.ID)
	if err == nil {
		err = s.Resolve(t.Context(), seen, contents()["failed"])
	}
	if err != nil {
		t.Fatal(err)
	}
	c = hazard.Claim("k")
	c.RetryFailed = true
	r, err := s.Claim(t.Context(), c)
	if err != nil || r.Owner != c.Owner || len(r.Steps) > 0 {
		t.Fatalf("the claim got %+v, error %v", r, err)
	}
	if err := s.Settle(t.Context(), hazard.Hold(r), hazard.Completed); err != nil {
		t.Fatal(err)
	}
	if r, err := s.Lookup(t.Context(), c.ID); err != nil || r.Corrupt || r.State != onlyonce.StateCompleted {
		t.Errorf("the record is %+v, error %v", r, err)
	}
}

// What stands in place of a step that can't be read is encrypted, too.
func TestRekey_AStepThatIsNoLongerThereNeedsNoOldKey(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	old := New(Config{Keys: keysOf(t, testKey(t, "a", 1))})
	c := hazard.Claim("k")
	key, err := old.current(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	put(t, inner, c, removeSteps(key, c.ID, []string{"charge"}), old.sealSettlement(key, c.ID, contents()["failed"], nil))
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1}) {
		t.Fatalf("Rekey counts %+v", n)
	}
	if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Current: 1}) {
		t.Errorf("a second Rekey counts %+v", n)
	}
	s := New(Config{Keys: keysOf(t, testKey(t, "b", 2))}).Wrap(inner)
	c = hazard.Claim("k")
	c.RetryFailed = true
	if r, err := s.Claim(t.Context(), c); err != nil || r.Owner != c.Owner || len(r.Steps) > 0 {
		t.Errorf("the claim got %+v, error %v", r, err)
	}
}

func TestRekey_WhatIsNotEncryptedIsEncryptedIfItIsAccepted(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	for key, st := range contents() {
		put(t, inner, hazard.Claim(key), nil, st)
	}
	if n := rekeyed(t, inner, Config{AcceptPlaintext: true}); n != (Rekeyed{Encrypted: 5}) {
		t.Errorf("Rekey counts %+v", n)
	}
	s := New(Config{Keys: testKeys(t)}).Wrap(inner)
	for key := range contents() {
		if r, err := s.Lookup(t.Context(), hazard.Claim(key).ID); err != nil || r.Corrupt || string(r.Result.Body) != secret {
			t.Errorf("%s: the record is %+v, error %v", key, r, err)
		}
	}
}

func TestRekey_AMissingKeyStopsNoOtherRecord(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	put(t, withKeyA(t, inner), hazard.Claim("first"), nil, hazard.Completed)
	put(t, New(Config{Keys: keysOf(t, testKey(t, "gone", 3))}).Wrap(inner), hazard.Claim("lost"), nil, hazard.Completed)
	put(t, withKeyA(t, inner), hazard.Claim("last"), nil, hazard.Completed)
	c, _ := newCipher(t, Config{})
	if n, err := c.Rekey(t.Context(), inner, nil); !errors.Is(err, ErrUnknownKey) || n != (Rekeyed{Encrypted: 2}) {
		t.Errorf("Rekey counts %+v, error %v", n, err)
	}
	put(t, inner, hazard.Claim("plaintext"), nil, hazard.Completed)
	if n, err := c.Rekey(t.Context(), inner, nil); !errors.Is(err, ErrUnknownKey) || !errors.Is(err, ErrNotEncrypted) || n != (Rekeyed{Current: 2}) {
		t.Errorf("with a record that is not encrypted, Rekey counts %+v, error %v", n, err)
	}
}

func TestRekey_ManyRecordsAreReadInPages(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	old := withKeyA(t, inner)
	const many = 2*rekeyPage + 1
	for i := range many {
		put(t, old, hazard.Claim(string(rune('a'+i))), nil, hazard.Completed)
	}
	c, _ := newCipher(t, Config{})
	var seen []int
	n, err := c.Rekey(t.Context(), inner, func(n Rekeyed) { seen = append(seen, n.Encrypted) })
	if err != nil || n != (Rekeyed{Encrypted: many}) || !slices.Equal(seen, []int{rekeyPage, 2 * rekeyPage, many}) {
		t.Errorf("Rekey counts %+v, on its way %v, error %v", n, seen, err)
	}
}

// overtaken is a store in which another call changes every record before it is resolved.
type overtaken struct{ *memstore.Store }

func (o overtaken) Resolve(context.Context, onlyonce.Record, onlyonce.Settlement) error {
	return onlyonce.ErrLost
}

func TestRekey_ARecordThatChangesMeanwhileIsLeft(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	put(t, withKeyA(t, inner), hazard.Claim("k"), nil, hazard.Completed)
	if n := rekeyed(t, overtaken{inner}, Config{}); n != (Rekeyed{Left: 1}) {
		t.Errorf("Rekey counts %+v", n)
	}
}

func TestRekey_AStoreThatCantListIsAnError(t *testing.T) {
	c, _ := newCipher(t, Config{})
	if _, err := c.Rekey(t.Context(), limited{}, nil); err == nil {
		t.Error("Rekey accepts a store that can't list")
	}
}

func TestRekey_AnIDIsRememberedForAsLongAsBefore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		inner := memstore.New(memstore.Config{})
		old := withKeyA(t, inner)
		st := contents()["completed"] // which is kept for an hour
		st.Result.Keep = 10 * time.Minute
		put(t, old, hazard.Claim("gone"), nil, st)
		time.Sleep(11 * time.Minute)
		put(t, old, hazard.Claim("there"), nil, st)
		if n := rekeyed(t, inner, Config{}); n != (Rekeyed{Encrypted: 1, Current: 1}) {
			t.Errorf("Rekey counts %+v", n)
		}
		s := New(Config{Keys: keysOf(t, testKey(t, "b", 2))}).Wrap(inner)
		for key, want := range map[string]onlyonce.Record{
			"gone":  {State: onlyonce.StateRemembered, KeepLeft: 49 * time.Minute},
			"there": {State: onlyonce.StateCompleted, KeepLeft: time.Hour, Result: onlyonce.Result{Keep: 10 * time.Minute}},
		} {
			if r, err := s.Lookup(t.Context(), hazard.Claim(key).ID); err != nil || r.State != want.State || r.KeepLeft != want.KeepLeft || r.Result.Keep != want.Result.Keep {
				t.Errorf("%s: %s, kept for %v, and its result for %v; %v", key, r.State, r.KeepLeft, r.Result.Keep, err)
			}
		}
		time.Sleep(11 * time.Minute)
		if r, err := s.Lookup(t.Context(), hazard.Claim("there").ID); err != nil || r.State != onlyonce.StateRemembered || r.KeepLeft != 49*time.Minute {
			t.Errorf("%s, kept for %v; %v", r.State, r.KeepLeft, err)
		}
	})
}
