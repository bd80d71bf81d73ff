package migrating_test

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
	"github.com/redis/go-redis/v9"
)

func chargeBySetNX(rdb *redis.Client, charge func(context.Context, []byte) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r)
		if !ok {
			return
		}
		key := "charge:" + accountOf(r) + ":" + r.Header.Get("Idempotency-Key")
		fresh, err := rdb.SetNX(r.Context(), key, "1", 24*time.Hour).Result()
		switch {
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		case !fresh:
			http.Error(w, "this key was used before", http.StatusConflict)
			return
		}
		receipt, err := charge(r.Context(), body)
		if err != nil {
			rdb.Del(r.Context(), key) // so that the client can try again
			http.Error(w, "the charge failed", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, receipt)
	}
}

func chargeOnce(charge func(context.Context, []byte) (string, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, ok := readBody(w, r)
		if !ok {
			return
		}
		receipt, err := charge(r.Context(), body)
		if err != nil {
			httponce.Unknown(r, err) // the bank may have made the charge
			http.Error(w, "the charge may have been made", http.StatusBadGateway)
			return
		}
		w.WriteHeader(http.StatusCreated)
		fmt.Fprint(w, receipt)
	}
}

func chargeRoutes(store onlyonce.Store, charge http.Handler) http.Handler {
	guard := onlyonce.New(store, onlyonce.Config{HoldUnknown: true})
	mux := http.NewServeMux()
	mux.Handle("POST /charges", httponce.Wrap(guard, charge, httponce.Config{Tenant: accountOf, Required: true}))
	return mux
}

func chargeDuringTheSwitch(rdb *redis.Client, charge func(context.Context, []byte) (string, error)) http.HandlerFunc {
	once := chargeOnce(charge)
	return func(w http.ResponseWriter, r *http.Request) {
		key := "charge:" + accountOf(r) + ":" + r.Header.Get("Idempotency-Key")
		own := onlyonce.Current(r.Context()).Key("setnx") // the same in every attempt of this command
		fresh, err := rdb.SetNX(r.Context(), key, own, 24*time.Hour).Result()
		if err == nil && !fresh {
			var owner string
			if owner, err = rdb.Get(r.Context(), key).Result(); err == nil && owner != own {
				w.Header().Set("Retry-After", "60") // not stored: the old version may be running, and delete its marker
				http.Error(w, "this key was used before", http.StatusConflict)
				return
			}
		}
		if err != nil {
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		once(w, r)
	}
}

func TestSetNX_ByHandARepeatGetsNoResponseAndAFailureChargesTwice(t *testing.T) {
	var b bank
	byHand := chargeBySetNX(newRedis(t), b.charge)
	want(t, "the first", send(byHand, "/charges", "k", "amount=1"), 201, "receipt 1", false)
	want(t, "its repeat", send(byHand, "/charges", "k", "amount=1"), 409, "used before", false)
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(byHand, "/charges", "l", "amount=2"), 502, "failed", false)
	b.fails = nil
	want(t, "its repeat", send(byHand, "/charges", "l", "amount=2"), 201, "receipt 3", false)
	b.wantCharges(t, 3) // two of them for one command
}

func TestSetNX_WithWrapARepeatGetsTheResponseAndADoubtIsHeld(t *testing.T) {
	var b bank
	h := chargeRoutes(memstore.New(memstore.Config{}), chargeOnce(b.charge))
	want(t, "the first", send(h, "/charges", "k", "amount=1"), 201, "receipt 1", false)
	want(t, "its repeat", send(h, "/charges", "k", "amount=1"), 201, "receipt 1", true)
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(h, "/charges", "l", "amount=2"), 502, "may have been made", false)
	b.fails = nil
	want(t, "its repeat", send(h, "/charges", "l", "amount=2"), 409, httponce.CodeOutcomeUnknown, false)
	b.wantCharges(t, 2)
}

func TestSetNX_DuringTheSwitchAChargeIsMadeOnceByBothVersions(t *testing.T) {
	var b bank
	rdb, store := newRedis(t), memstore.New(memstore.Config{})
	before, during := chargeBySetNX(rdb, b.charge), chargeRoutes(store, chargeDuringTheSwitch(rdb, b.charge))
	want(t, "a charge of the old version", send(before, "/charges", "old", "amount=1"), 201, "receipt 1", false)
	want(t, "its retry at the new one", send(during, "/charges", "old", "amount=1"), 409, "used before", false)
	want(t, "a charge of the new version", send(during, "/charges", "new", "amount=2"), 201, "receipt 2", false)
	want(t, "its retry at the old one", send(before, "/charges", "new", "amount=2"), 409, "used before", false)
	want(t, "its retry at the new one", send(during, "/charges", "new", "amount=2"), 201, "receipt 2", true)
	b.wantCharges(t, 2)
}

func TestSetNX_DuringTheSwitchALaterAttemptOfTheNewVersionRuns(t *testing.T) {
	var b bank
	rdb, store := newRedis(t), memstore.New(memstore.Config{})
	during := chargeRoutes(store, chargeDuringTheSwitch(rdb, b.charge))
	b.fails = errNoAnswer
	want(t, "a charge without an answer", send(during, "/charges", "k", "amount=1"), 502, "may have been made", false)
	seen, err := store.Lookup(t.Context(), onlyonce.ID{Tenant: "acme", Operation: "POST /charges", Key: "k"})
	if err != nil {
		t.Fatal(err)
	}
	err = store.Resolve(t.Context(), seen, onlyonce.Settlement{State: onlyonce.StateFailed}) // the bank has no such charge
	if err != nil {
		t.Fatal(err)
	}
	b.fails = nil
	want(t, "its retry", send(during, "/charges", "k", "amount=1"), 201, "receipt 2", false)
}
