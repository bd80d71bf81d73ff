package onlyonce_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

func TestRemember_ARepeatAfterKeepIsRejectedAndRunsNothingUntilRememberEnds(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  onlyonce.Config
		req  onlyonce.Request
		ends bool
	}{
		"by the Config":          {onlyonce.Config{Keep: time.Hour, Remember: 24 * time.Hour}, request("k"), true},
		"by the Request":         {onlyonce.Config{Keep: time.Hour}, remembering(request("k"), 24*time.Hour), true},
		"for good":               {onlyonce.Config{Keep: time.Hour, Remember: onlyonce.KeepForever}, request("k"), false},
		"by a Request, for good": {onlyonce.Config{Keep: time.Hour, Remember: 2 * time.Hour}, remembering(request("k"), onlyonce.KeepForever), false},
		"with a cache":           {onlyonce.Config{Keep: time.Hour, Remember: 24 * time.Hour, CacheBytes: 1 << 20, CacheMaxAge: 48 * time.Hour}, request("k"), true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log eventLog
				c.cfg.Observer = log.observe
				store := newStore()
				g := onlyonce.New(store, c.cfg)
				var runs charger
				do := func() error {
					_, err := onlyonce.Do(t.Context(), g, c.req, runs.charge)
					return err
				}
				if err := errors.Join(do(), do()); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Hour + time.Millisecond)
				other := c.req
				other.Fingerprint = onlyonce.Fingerprint([]byte("another body"))
				_, err := g.Begin(t.Context(), other)
				for _, err := range []error{do(), do(), err} {
					if !errors.Is(err, onlyonce.ErrKeyExpired) {
						t.Errorf("the error is %v", err)
					}
				}
				if runs.runs != 1 {
					t.Errorf("ran %d times", runs.runs)
				}
				time.Sleep(23*time.Hour - time.Millisecond)
				err = do()
				if again := err == nil && runs.runs == 2; again != c.ends || !again && !errors.Is(err, onlyonce.ErrKeyExpired) {
					t.Errorf("ran %d times, with the error %v", runs.runs, err)
				}
				want := []onlyonce.Outcome{"executed", "replayed", "key_expired", "key_expired", "key_expired", "key_expired"}
				if c.ends {
					want[5] = "executed"
				}
				log.expect(t, want...)
				if r := log.events[2].Record; r.State != onlyonce.StateRemembered || r.Result.Body != nil || r.Result.Ref != "" {
					t.Errorf("the event has the record %+v", r)
				}
			})
		})
	}
}

func TestRemember_OnlyWhatNeverRunsAgainIsRemembered(t *testing.T) {
	for name, c := range map[string]struct {
		cfg        onlyonce.Config
		end        error
		remembered bool
	}{
		"completed":                {onlyonce.Config{}, nil, true},
		"failed":                   {onlyonce.Config{}, errors.New("no stock"), false},
		"failed, and kept":         {onlyonce.Config{KeepFailures: true}, errors.New("no stock"), true},
		"failed for good":          {onlyonce.Config{}, onlyonce.Final(errors.New("no stock")), true},
		"of unknown outcome":       {onlyonce.Config{}, onlyonce.Unknown(errors.New("no response")), false},
		"of unknown outcome, held": {onlyonce.Config{HoldUnknown: true}, onlyonce.Unknown(errors.New("no response")), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c.cfg.Keep, c.cfg.Remember = time.Hour, 24*time.Hour
				store := newStore()
				g := onlyonce.New(store, c.cfg)
				_, _ = onlyonce.Do(t.Context(), g, request("k"), func(context.Context) (int, error) { return 1, c.end })
				if left := lookup(t, store, request("k")).Result.Keep; left != 0 != c.remembered || left > time.Hour {
					t.Errorf("the result is kept for %v", left)
				}
				time.Sleep(time.Hour + time.Millisecond)
				_, err := g.Begin(t.Context(), request("k"))
				if errors.Is(err, onlyonce.ErrKeyExpired) != c.remembered {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}

func TestRemember_AKeepThatIsLongerThanTheGuardsRememberHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newStore()
		g := onlyonce.New(store, onlyonce.Config{Keep: time.Hour, Remember: 2 * time.Hour})
		for i, keep := range []time.Duration{2 * time.Hour, 3 * time.Hour, onlyonce.KeepForever} {
			req := request(fmt.Sprint(i))
			req.Keep = keep
			if _, err := onlyonce.Do(t.Context(), g, req, func(context.Context) (int, error) { return 1, nil }); err != nil {
				t.Fatal(err)
			}
			if r := lookup(t, store, req); r.KeepLeft != max(keep, 0) || r.Result.Keep != 0 {
				t.Errorf("with the Keep %v, the record is kept for %v and its result for %v", keep, r.KeepLeft, r.Result.Keep)
			}
		}
	})
}

func TestRemember_ATimeThatIsShorterThanTheKeepIsRejected(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  onlyonce.Config
		want string
	}{
		"shorter":          {onlyonce.Config{Keep: time.Hour, Remember: time.Minute}, "Config.Remember is 1m0s, and the Keep is 1h0m0s: set it to a time that is not shorter"},
		"than the default": {onlyonce.Config{Remember: time.Hour}, "the Keep is 24h0m0s"},
		"negative":         {onlyonce.Config{Remember: -time.Hour}, "Config.Remember is -1h0m0s"},
		"than for good":    {onlyonce.Config{Keep: onlyonce.KeepForever, Remember: time.Hour}, "but the record is kept forever: leave it 0"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.Contains(text, c.want) {
					t.Errorf("the panic is %q, want %q", text, c.want)
				}
			}()
			onlyonce.New(memstore.New(memstore.Config{}), c.cfg)
		})
	}
	t.Run("of a Request", func(t *testing.T) {
		store := newStore()
		store.claim = func(func() error) error { t.Error("claimed"); return nil }
		g := onlyonce.New(store, onlyonce.Config{Keep: time.Hour})
		for _, req := range []onlyonce.Request{{Remember: time.Minute}, {Keep: 2 * time.Hour, Remember: time.Hour}, {Keep: onlyonce.KeepForever, Remember: time.Hour}, {Remember: -time.Hour}} {
			req.ID, req.SkipFingerprint = request("k").ID, true
			if _, err := g.Begin(t.Context(), req); err == nil || !strings.Contains(err.Error(), "Request.Remember is ") {
				t.Errorf("the error for a Remember of %v is %v", req.Remember, err)
			}
		}
	})
}

func TestRemember_ACommandOfATransactionIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLedger()
		g := onlyonce.NewTx(l, onlyonce.Config{Keep: time.Hour, Remember: 24 * time.Hour})
		runs := 0
		do := func() error {
			_, err := onlyonce.DoTx(t.Context(), g, request("k"), func(context.Context, entry) (int, error) { runs++; return 1, nil })
			return err
		}
		if err := do(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour + time.Millisecond)
		if err := do(); !errors.Is(err, onlyonce.ErrKeyExpired) || runs != 1 {
			t.Errorf("ran %d times, with the error %v", runs, err)
		}
	})
}

// remembering returns the request with a Remember.
func remembering(req onlyonce.Request, remember time.Duration) onlyonce.Request {
	req.Remember = remember
	return req
}
