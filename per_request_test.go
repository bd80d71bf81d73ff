package onlyonce_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
)

func TestRequest_ARequestWithoutAFingerprintIsRejectedBeforeAnythingIsClaimed(t *testing.T) {
	for name, c := range map[string]struct {
		req  onlyonce.Request
		want string
	}{
		"nil":   {onlyonce.Request{}, "set Request.Fingerprint to onlyonce.Fingerprint(body), or set Request.SkipFingerprint"},
		"empty": {onlyonce.Request{Fingerprint: []byte{}}, "set Request.Fingerprint to onlyonce.Fingerprint(body), or set Request.SkipFingerprint"},
		"both":  {onlyonce.Request{Fingerprint: []byte("x"), SkipFingerprint: true}, "leave out one of them"},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLedger()
			l.claim = func(func() error) error { t.Error("claimed"); return nil }
			g := onlyonce.NewTx(l, onlyonce.Config{})
			c.req.ID = onlyonce.ID{Key: "k"}
			_, err := g.Begin(t.Context(), c.req)
			_, errTx := onlyonce.DoTx(t.Context(), g, c.req, func(context.Context, entry) (int, error) { t.Error("ran"); return 0, nil })
			for _, err := range []error{err, errTx} {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("error %v, want %q", err, c.want)
				}
			}
		})
	}
}

func TestRequest_WhatSkipsTheFingerprintIsComparedWithNothing(t *testing.T) {
	skip := onlyonce.Request{ID: request("k").ID, SkipFingerprint: true}
	other := request("k")
	other.Fingerprint = onlyonce.Fingerprint([]byte("something else"))
	for name, c := range map[string]struct {
		first, second onlyonce.Request
		want          error
	}{
		"skipped second":  {request("k"), skip, nil},
		"skipped first":   {skip, other, nil},
		"skipped by both": {skip, skip, nil},
		"by neither":      {request("k"), other, onlyonce.ErrMismatch},
	} {
		t.Run(name, func(t *testing.T) {
			store := newStore()
			g := onlyonce.New(store, onlyonce.Config{})
			if _, err := onlyonce.Do(t.Context(), g, c.first, func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
			a, err := onlyonce.Do(t.Context(), g, c.second, func(context.Context) (int, error) { return 2, nil })
			if !errors.Is(err, c.want) || err == nil && a.Value != 1 {
				t.Errorf("response %+v, error %v", a, err)
			}
			if rec := lookup(t, store, skip); string(rec.Fingerprint) != string(c.first.Fingerprint) {
				t.Errorf("the record's fingerprint is %x, want the first request's", rec.Fingerprint)
			}
		})
	}
}

func TestRequest_ARequestsOwnLeaseAndKeepGoBeforeTheGuards(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Lease: 40 * time.Second, Keep: 24 * time.Hour})
		short := request("k")
		short.Lease, short.Keep = 4*time.Second, time.Minute
		renewals := 0
		store.set(func() { store.renew = func(do func() error) error { renewals++; return do() } })
		if _, err := onlyonce.Do(t.Context(), g, short, func(context.Context) (int, error) {
			if rec := lookup(t, store, short); rec.LeaseLeft != 4*time.Second {
				t.Errorf("the lease has %v left", rec.LeaseLeft)
			}
			time.Sleep(39 * time.Second)
			return 1, nil
		}); err != nil {
			t.Fatal(err)
		}
		if rec := lookup(t, store, short); rec.KeepLeft != time.Minute || renewals != 29 {
			t.Errorf("the record stays for %v after %d renewals", rec.KeepLeft, renewals)
		}
	})
}

func TestKeepForever_TheRecordStaysUntilSomeoneResolvesIt(t *testing.T) {
	forever := func(ctx context.Context) (int, error) {
		return 1, onlyonce.Current(ctx).Settle(ctx, onlyonce.Settlement{State: onlyonce.StateCompleted, Result: onlyonce.Result{Body: []byte("1")}, Keep: onlyonce.KeepForever})
	}
	one := func(context.Context) (int, error) { return 1, nil }
	for name, c := range map[string]struct {
		guard, request time.Duration
		run            func(context.Context) (int, error)
	}{
		"by the Guard":      {onlyonce.KeepForever, 0, one},
		"by the request":    {time.Hour, onlyonce.KeepForever, one},
		"by the settlement": {time.Hour, 0, forever},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newStore()
				g := onlyonce.New(store, onlyonce.Config{Keep: c.guard})
				req := request("k")
				req.Keep = c.request
				_, _ = onlyonce.Do(t.Context(), g, req, c.run) // that the function settled by itself is an error
				time.Sleep(100 * 365 * 24 * time.Hour)
				if rec := lookup(t, store, req); rec.State != onlyonce.StateCompleted || rec.KeepLeft != 0 {
					t.Errorf("after a century: %+v", rec)
				}
				a, err := onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) { return 2, nil })
				if err != nil || a.Value != 1 || !a.Replayed {
					t.Errorf("a repeat after a century: %+v, %v", a, err)
				}
			})
		})
	}
}

func TestRequest_WithoutRenewalsTheContextEndsByTheRequestsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		store.set(func() { store.renew = down; store.settle = down })
		g := onlyonce.New(store, onlyonce.Config{Lease: time.Hour})
		req := request("k")
		req.Lease = 4 * time.Second
		began := time.Now()
		_, _ = onlyonce.Do(t.Context(), g, req, func(ctx context.Context) (int, error) {
			<-ctx.Done()
			if took := time.Since(began); took != 3*time.Second {
				t.Errorf("the context ended after %v, want the lease less a quarter", took)
			}
			return 0, nil
		})
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("settling was given up after %v, want when the lease ends", took)
		}
	})
}

func TestRequest_ATransactionIsBoundByTheRequestsOwnLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Lease: time.Hour})
		req := request("k")
		req.Lease, req.Keep = 4*time.Second, time.Minute
		began := time.Now()
		_, err := onlyonce.DoTx(t.Context(), g, req, func(ctx context.Context, _ entry) (int, error) {
			<-ctx.Done()
			return 1, nil
		})
		if took := time.Since(began); err != nil || took != 4*time.Second {
			t.Errorf("the function's context ended after %v; error %v", took, err)
		}
		if rec := lookup(t, l, req); rec.KeepLeft != time.Minute {
			t.Errorf("the record stays for %v", rec.KeepLeft)
		}
		began = time.Now()
		req.ID.Key = "another"
		if _, err := onlyonce.DoTx(t.Context(), onlyonce.NewTx(busy{l}, onlyonce.Config{Lease: time.Hour}), req, func(context.Context, entry) (int, error) { return 1, nil }); !errors.Is(err, onlyonce.ErrUnavailable) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(began); took != 4*time.Second {
			t.Errorf("waited %v for a turn", took)
		}
	})
}

func TestRequest_WhatIsUnknownStaysByTheRequestsOwnKeep(t *testing.T) {
	for _, hold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			store := newStore()
			g := onlyonce.New(store, onlyonce.Config{HoldUnknown: hold})
			req := request("k")
			req.Keep = time.Minute
			_, _ = onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) { return 0, onlyonce.Unknown(errors.New("no response")) })
			want := time.Minute
			if hold {
				want = 0
			}
			if rec := lookup(t, store, req); rec.State != onlyonce.StateUnknown || rec.KeepLeft != want {
				t.Errorf("hold %v: record %+v", hold, rec)
			}
		})
	}
}

func TestRequest_ALeaseOrKeepThatMakesNoSenseIsRejectedBeforeAnythingIsClaimed(t *testing.T) {
	store := newStore()
	store.claim = func(func() error) error { t.Error("claimed"); return nil }
	g := onlyonce.New(store, onlyonce.Config{})
	for want, change := range map[string]func(*onlyonce.Request){
		"Request.Lease is -1s: set it to at least 10ms, or leave it 0 for the Guard's":                         func(r *onlyonce.Request) { r.Lease = -time.Second },
		"Request.Lease is 9ms: set it to at least 10ms, or leave it 0 for the Guard's":                         func(r *onlyonce.Request) { r.Lease = 9 * time.Millisecond },
		"Request.Keep is -2ns: set it to a positive duration or to KeepForever, or leave it 0 for the default": func(r *onlyonce.Request) { r.Keep = -2 },
	} {
		req := request("k")
		change(&req)
		if _, err := g.Begin(t.Context(), req); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
