package httponce_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestTransport_TheKeyIsPersistedBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(fails(errDropped), created)
		var written []string
		type orderID struct{}
		shown := &closing{Reader: strings.NewReader("tea")}
		r := newPost(t, shown)
		r.GetBody = func() (io.ReadCloser, error) {
			if len(l.sent) > 0 {
				return io.NopCloser(strings.NewReader("tea")), nil
			}
			return shown, nil
		}
		r.Body = io.NopCloser(strings.NewReader("tea"))
		r = r.WithContext(context.WithValue(r.Context(), orderID{}, "ord_1"))
		w, err := (&httponce.Transport{Base: l, Persist: func(ctx context.Context, r *http.Request, key string) error {
			if len(l.sent) > 0 {
				t.Error("it was sent before")
			}
			body, err := io.ReadAll(r.Body)
			r.Header.Set("X-Scribble", "here")
			written = append(written, fmt.Sprint(ctx.Value(orderID{}), " ", r.Header.Get("Idempotency-Key") == key, " ", string(body), " ", err))
			return nil
		}}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		if !shown.closed.Load() {
			t.Error("the body of the copy was not closed")
		}
		if len(written) != 1 || written[0] != "ord_1 true tea <nil>" {
			t.Errorf("written: %q", written)
		}
		if len(l.sent) != 2 || l.bodies[0] != "tea" || l.sent[0].Header.Get("X-Scribble") != "" {
			t.Errorf("sent %d times, at first %q with %v", len(l.sent), l.bodies[0], l.sent[0].Header)
		}
	})
}

func TestTransport_NothingIsSentIfTheKeyIsNotPersisted(t *testing.T) {
	l := sequence(created)
	full := errors.New("no space left on device")
	_, err := (&httponce.Transport{Base: l, Persist: func(context.Context, *http.Request, string) error { return full }}).RoundTrip(newPost(t, nil))
	if !errors.Is(err, full) || !strings.Contains(err.Error(), "nothing was sent") || len(l.sent) != 0 {
		t.Errorf("%v, and sent %d times", err, len(l.sent))
	}
	done, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = (&httponce.Transport{Base: l, Persist: func(context.Context, *http.Request, string) error {
		t.Error("a key was persisted for a request that had ended")
		return nil
	}}).RoundTrip(newPost(t, nil).WithContext(done))
	if !errors.Is(err, context.Canceled) || len(l.sent) != 0 {
		t.Errorf("%v, and sent %d times", err, len(l.sent))
	}
}
