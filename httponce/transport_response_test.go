package httponce_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestTransport_AnAttemptThatTakesTooLongIsMadeAgain(t *testing.T) {
	for name, slow := range map[string]func(*http.Request) (*http.Response, error){"no response": waits, "half a response": slowResponse} {
		synctest.Test(t, func(t *testing.T) {
			l := sequence(slow, slow, created)
			w, err := (&httponce.Transport{Base: l, AttemptTimeout: time.Second, Backoff: time.Millisecond}).RoundTrip(newPost(t, nil))
			if err != nil || w.StatusCode != 201 || len(l.sent) != 3 || l.gaps()[0] < time.Second {
				t.Fatalf("%s: %v, and sent %d times", name, err, len(l.sent))
			}
			_ = w.Body.Close()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		_, err := (&http.Client{Transport: &httponce.Transport{Base: sequence(waits), AttemptTimeout: time.Second, MaxAttempts: 2}}).Do(newPost(t, nil))
		var late interface{ Timeout() bool }
		if !errors.As(err, &late) || !late.Timeout() || !strings.Contains(err.Error(), "after 2 attempts: no response within 1s") {
			t.Error(err)
		}
	})
}

func TestTransport_ARequestWhoseResponseComesTooLateIsRetried(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(func(r *http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second) // and observes no context
			return &http.Response{StatusCode: 201, ContentLength: -1, Body: io.NopCloser(stuck{r.Context()})}, nil
		}, created)
		w, err := (&httponce.Transport{Base: l, AttemptTimeout: time.Second}).RoundTrip(newPost(t, nil))
		if err != nil || len(l.sent) != 2 {
			t.Fatalf("%v, and sent %d times", err, len(l.sent))
		}
		if body, err := io.ReadAll(w.Body); string(body) != "made" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		_ = w.Body.Close()
	})
}

func TestTransport_AResponseThatStreamsOutlivesTheAttemptTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(func(r *http.Request) (*http.Response, error) {
			pipe, end := io.Pipe()
			go func() {
				select {
				case <-time.After(time.Minute):
					_, _ = io.WriteString(end, "made")
					_ = end.Close()
				case <-r.Context().Done():
					_ = end.CloseWithError(context.Cause(r.Context()))
				}
			}()
			return &http.Response{StatusCode: 201, ContentLength: -1, Body: pipe}, nil
		})
		w, err := (&httponce.Transport{Base: l, AttemptTimeout: time.Second}).RoundTrip(newPost(t, nil))
		if err != nil {
			t.Fatal(err)
		}
		if body, err := io.ReadAll(w.Body); string(body) != "made" || err != nil {
			t.Errorf("%q, %v", body, err)
		}
		_ = w.Body.Close()
		if l.sent[0].Context().Err() == nil {
			t.Error("the attempt's context outlives its response")
		}
	})
}

func TestTransport_ADiscardedResponseIsReadWithinBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := 0
		huge := func(r *http.Request) (*http.Response, error) {
			w, _ := says(503, "")(r)
			w.ContentLength, w.Body = -1, io.NopCloser(io.TeeReader(endless{}, tally{&read}))
			return w, nil
		}
		never := func(r *http.Request) (*http.Response, error) {
			pipe, _ := io.Pipe() // that observes no context
			return &http.Response{StatusCode: 503, ContentLength: -1, Body: pipe}, nil
		}
		l := sequence(huge, never, created)
		w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, nil))
		if err != nil || w.StatusCode != 201 {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		if read == 0 || read > 1<<20 || l.gaps()[1] > 3*time.Second || l.open.Load() != 0 {
			t.Errorf("%d bytes were read, %v were waited, %d bodies are open", read, l.gaps()[1], l.open.Load())
		}
	})
}

type tally struct{ n *int }

func (t tally) Write(p []byte) (int, error) { *t.n += len(p); return len(p), nil }

func TestTransport_ABrokenResponseIsReturnedWhenNoAttemptIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(breaks(201, "ma", 4), endsEarly)
		w, err := (&httponce.Transport{Base: l, MaxAttempts: 2}).RoundTrip(newPost(t, nil))
		if err != nil || len(l.sent) != 2 {
			t.Fatalf("%v, and sent %d times", err, len(l.sent))
		}
		if body, err := io.ReadAll(w.Body); string(body) != "ma" || !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%q, %v", body, err)
		}
		_ = w.Body.Close()
		if l.open.Load() != 0 {
			t.Error("its body was not closed")
		}
	})
}

func TestTransport_AResponseThatCameIsReturnedAlthoughTheCallerLeft(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	l := sequence(func(r *http.Request) (*http.Response, error) {
		cancel()
		return says(503, "")(r)
	})
	w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, nil).WithContext(ctx))
	if err != nil || w.StatusCode != 503 || len(l.sent) != 1 {
		t.Errorf("%v, and sent %d times", err, len(l.sent))
	}
}

func TestTransport_ALongResponseIsNotKeptInMemory(t *testing.T) {
	l := sequence(breaks(201, "made", 9))
	w, err := (&httponce.Transport{Base: l, MaxResponse: 8}).RoundTrip(newPost(t, nil))
	if err != nil || len(l.sent) != 1 {
		t.Fatalf("%v, and sent %d times", err, len(l.sent))
	}
	if body, err := io.ReadAll(w.Body); string(body) != "made" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%q, %v", body, err)
	}
	_ = w.Body.Close()
}
