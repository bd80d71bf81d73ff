package resend_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/resend"
)

func TestPolicy_SendsUntilAnotherAttemptCannotHelp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for succeeds, want := range map[int]int{1: 1, 2: 2, 3: 3, 9: 3} { // by the attempt that needs no other
			p := resend.New("test: New", 3, time.Second)
			began, sent := time.Now(), 0
			attempts := p.Do(t.Context(), func() (time.Duration, bool) {
				sent++
				return 0, sent < succeeds
			})
			if attempts != want || sent != want {
				t.Errorf("sent %d times and reported %d, want %d", sent, attempts, want)
			}
			var least, most time.Duration
			for i, wait := 1, time.Second; i < want; i, wait = i+1, 2*wait {
				least, most = least+wait/2, most+wait
			}
			if waited := time.Since(began); waited < least || waited > most {
				t.Errorf("%d attempts waited %v, want %v to %v", want, waited, least, most)
			}
		}
	})
}

func TestPolicy_WaitsAtLeastAsLongAsTheServerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began, sent := time.Now(), 0
		resend.New("test: New", 2, time.Second).Do(t.Context(), func() (time.Duration, bool) {
			sent++
			return time.Hour, true
		})
		if waited := time.Since(began); sent != 2 || waited != time.Hour {
			t.Errorf("sent %d times, %v apart", sent, waited)
		}
	})
}

func TestPolicy_EndsWithTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		late := func() (time.Duration, bool) { return time.Hour, true }
		if attempts := resend.New("test: New", 9, 1).Do(ctx, late); attempts != 1 || time.Since(began) != time.Minute {
			t.Errorf("ended after %d attempts and %v", attempts, time.Since(began))
		}
		again := func() (time.Duration, bool) { return 0, true }
		for range 100 {
			if attempts := resend.New("test: New", 9, 1).Do(ctx, again); attempts != 1 {
				t.Errorf("with a context that has ended, %d attempts", attempts)
			}
		}
	})
}

func TestNew_FillsInTheDefaultsAndPanicsOnANegativeValue(t *testing.T) {
	if p := resend.New("test: New", 0, 0); p != (resend.Policy{Attempts: resend.DefaultAttempts, Wait: resend.DefaultWait}) {
		t.Errorf("%+v", p)
	}
	for _, p := range []resend.Policy{{Attempts: -1}, {Wait: -1}} {
		func() {
			defer func() {
				if text := fmt.Sprint(recover()); !strings.HasPrefix(text, "test: New: Attempts is ") {
					t.Errorf("the panic is %q", text)
				}
			}()
			resend.New("test: New", p.Attempts, p.Wait)
		}()
	}
}
