package coalesce_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce/stores/internal/coalesce"
)

func TestRequests_CallersShareTheRequestThatBeginsAfterTheyCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var requests coalesce.Requests[int64]
		var sent atomic.Int64
		reply := make(chan error)
		send := func() (int64, error) { n := sent.Add(1); return n, <-reply }
		type result struct {
			n   int64
			err error
		}
		results := make(chan result, 9)
		call := func(ctx context.Context) {
			go func() {
				n, err := requests.Do(ctx, send)
				results <- result{n, err}
			}()
			synctest.Wait()
		}
		expect := func(callers int, want result) {
			t.Helper()
			synctest.Wait()
			if len(results) != callers {
				t.Fatalf("%d callers have a result, want %d", len(results), callers)
			}
			for range callers {
				if got := <-results; got.n != want.n || !errors.Is(got.err, want.err) {
					t.Errorf("the result is %v, want %v", got, want)
				}
			}
		}

		call(t.Context())
		gone, leave := context.WithCancel(t.Context())
		call(gone) // the first of those that share the second request
		call(t.Context())
		call(t.Context())
		if n := sent.Load(); n != 1 {
			t.Fatalf("%d requests were sent while the first is under way", n)
		}
		leave()
		expect(1, result{0, context.Canceled})
		reply <- nil
		expect(1, result{1, nil})
		call(t.Context()) // the second request has begun
		failed := errors.New("failed")
		reply <- failed
		expect(2, result{2, failed})
		reply <- nil
		expect(1, result{3, nil})
		if n := sent.Load(); n != 3 {
			t.Errorf("%d requests were sent, want 3", n)
		}
	})
}
