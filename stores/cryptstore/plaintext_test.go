package cryptstore

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/internal/hazard"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestPlaintext_AnExistingStoreCanBeWrapped(t *testing.T) {
	inner := memstore.New(memstore.Config{})
	c := hazard.Claim("k")
	st := onlyonce.Settlement{State: onlyonce.StateFailed, Final: true, Error: "no such article", Keep: time.Hour, Result: onlyonce.Result{Status: 404, Header: map[string][]string{"A": {"b"}}, Body: []byte("none")}}
	put(t, inner, c, map[string][]byte{"charge": []byte("1")}, st)
	put(t, inner, hazard.Claim("empty"), nil, onlyonce.Settlement{State: onlyonce.StateCompleted})

	put(t, inner, hazard.Claim("retryable"), map[string][]byte{"charge": []byte("1")}, onlyonce.Settlement{State: onlyonce.StateFailed, Error: "no"})
	strict := New(Config{Keys: testKeys(t)}).Wrap(inner).(hazard.Store)
	for _, key := range []string{"k", "empty", "retryable"} {
		take := hazard.Claim(key)
		take.RetryFailed, take.TakeUnknown = true, true
		before, err := inner.Lookup(t.Context(), take.ID)
		if err != nil {
			t.Fatal(err)
		}
		_, looked := strict.Lookup(t.Context(), take.ID)
		_, claimed := strict.Claim(t.Context(), take)
		resolved := strict.Resolve(t.Context(), before, hazard.Completed)
		for doing, err := range map[string]error{"lookup": looked, "claim": claimed, "resolve": resolved} {
			if !errors.Is(err, ErrNotEncrypted) || !errors.Is(err, onlyonce.ErrUnavailable) {
				t.Errorf("%s: %s: error %v", key, doing, err)
			}
		}
		if after, err := inner.Lookup(t.Context(), take.ID); err != nil || after.Owner != before.Owner || after.State != before.State {
			t.Errorf("%s: the record became %+v, error %v", key, after, err)
		}
	}
	s := New(Config{Keys: testKeys(t), AcceptPlaintext: true}).Wrap(inner)
	r, err := s.Lookup(t.Context(), c.ID)
	if err != nil || r.Corrupt || r.State != st.State || r.Error != st.Error || string(r.Result.Body) != "none" || r.Result.Header["A"][0] != "b" || string(r.Steps["charge"]) != "1" {
		t.Errorf("the record is %+v, error %v", r, err)
	}
	id := hazard.Run(t, s, "new")
	hazard.CheckRepeats(t, strict, map[onlyonce.ID]bool{id: true}) // it was encrypted
}

func TestPlaintext_WhatIsEncryptedIsStillChecked(t *testing.T) {
	c, k := newCipher(t, Config{AcceptPlaintext: true})
	for name, damage := range damages(c, k, hazard.Claim("k").ID) {
		inner := memstore.New(memstore.Config{})
		put(t, inner, hazard.Claim("k"), nil, damage)
		if r, err := c.Wrap(inner).Lookup(t.Context(), hazard.Claim("k").ID); err != nil || !r.Corrupt {
			t.Errorf("%s: the record is %+v, error %v", name, r, err)
		}
	}
}

func TestPlaintext_AProgramWithoutKeysReplaysNoCiphertext(t *testing.T) {
	s, inner := newStore(t, Config{})
	for _, st := range []onlyonce.State{onlyonce.StateCompleted, onlyonce.StateFailed} {
		req := onlyonce.Request{ID: onlyonce.ID{Operation: "pay", Key: string(st)}, SkipFingerprint: true}
		a, err := onlyonce.New(s, onlyonce.Config{}).Begin(t.Context(), req)
		if err == nil {
			err = a.Settle(t.Context(), onlyonce.Settlement{State: st, Final: st == onlyonce.StateFailed, Result: onlyonce.Result{Status: 201, Body: []byte("made")}})
		}
		if err != nil {
			t.Fatal(err)
		}
		a, err = onlyonce.New(inner, onlyonce.Config{}).Begin(t.Context(), req)
		if !errors.Is(err, onlyonce.ErrUnavailable) || !strings.Contains(err.Error(), "wrap the store with cryptstore") {
			t.Errorf("%s: a guard without keys got %+v, error %v", st, a, err)
		}
		if a, err = onlyonce.New(s, onlyonce.Config{}).Begin(t.Context(), req); err != nil || string(a.Record().Result.Body) != "made" {
			t.Errorf("%s: a guard with keys got error %v", st, err)
		}
	}
}
