package serving

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

func TestRouter_RejectsInTheFormOfTheAPI(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = w.Write([]byte(r.PathValue("id"))) })
	rt := NewRouter(func(*http.Request) string { return "" }, func(w http.ResponseWriter, _ *http.Request, why error) {
		w.WriteHeader(http.StatusTeapot)
		_, _ = w.Write([]byte(why.Error()))
	}, map[string]Methods{
		"/things":      {"POST": ok, "GET": ok},
		"/things/{id}": {"GET": ok, "DELETE": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("boom") })},
	})
	for _, test := range []struct{ method, target, origin, body, allow string }{
		{"GET", "/things/7", "", "7", ""},
		{"HEAD", "/things/7", "", "", ""},
		{"GET", "/other", "", ErrNotFound.Error(), ""},
		{"GET", "/things/", "", ErrNotFound.Error(), ""},
		{"GET", "//things", "", ErrNotFound.Error(), ""},
		{"GET", "/x/../things", "", ErrNotFound.Error(), ""},
		{"PUT", "/things", "", ErrMethodNotAllowed.Error(), "GET, HEAD, POST"},
		{"POST", "/things/7", "", ErrMethodNotAllowed.Error(), "DELETE, GET, HEAD"},
		{"POST", "/things", "https://evil.example", errCrossOrigin.Why, ""},
		{"GET", "/things", "https://evil.example", "", ""},
		{"DELETE", "/things/7", "", "panic: boom", ""},
	} {
		r := httptest.NewRequest(test.method, "http://api.example"+test.target, http.NoBody)
		if test.origin != "" {
			r.Header.Set("Origin", test.origin)
		}
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		if !strings.HasPrefix(w.Body.String(), test.body) || w.Header().Get("Allow") != test.allow {
			t.Errorf("%s %s: %q, Allow %q; want %q, %q", test.method, test.target, w.Body, w.Header().Get("Allow"), test.body, test.allow)
		}
	}
}

func TestRouter_ACallerHasOnlySoManyRequestsAtATime(t *testing.T) {
	var running, ended sync.WaitGroup
	var let chan struct{}
	rt := NewRouter(func(r *http.Request) string { return r.Header.Get("Authorization") }, func(w http.ResponseWriter, _ *http.Request, why error) {
		if !errors.Is(why, ErrTooManyRequests) {
			t.Errorf("rejected: %v", why)
		}
		w.WriteHeader(http.StatusTooManyRequests)
	}, map[string]Methods{
		"/held": {"GET": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			held := let
			running.Done()
			<-held
		})},
		"/aborted": {"GET": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
		"/free":    {"GET": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })},
	})
	send := func(caller, path string) int {
		r := httptest.NewRequest(http.MethodGet, path, http.NoBody)
		if r.RemoteAddr = net.JoinHostPort(caller, "1234"); !strings.ContainsAny(caller, ".:") {
			r.Header.Set("Authorization", caller)
		}
		w := httptest.NewRecorder()
		rt.ServeHTTP(w, r)
		return w.Code
	}
	aborted := func() {
		defer func() { _ = recover() }()
		send("ada", "/aborted")
	}
	aborted() // whose place is free again
	sameNetwork := map[string]string{"2001:db8::1": "2001:db8::2", "192.0.2.1": "::ffff:192.0.2.1"}
	for _, callers := range [][2]string{{"ada", "bob"}, {"192.0.2.1", "192.0.2.2"}, {"2001:db8::1", "2001:db8:0:1::1"}} {
		let = make(chan struct{})
		for range maxInFlight {
			running.Add(1)
			ended.Go(func() { send(callers[0], "/held") })
		}
		running.Wait()
		if got := send(callers[0], "/free"); got != http.StatusTooManyRequests {
			t.Errorf("%s has %d requests and got %d for one more", callers[0], maxInFlight, got)
		}
		if got := send(sameNetwork[callers[0]], "/free"); sameNetwork[callers[0]] != "" && got != http.StatusTooManyRequests {
			t.Errorf("%s, of the same network, got %d", sameNetwork[callers[0]], got)
		}
		if got := send(callers[1], "/free"); got != http.StatusNoContent {
			t.Errorf("%s got %d", callers[1], got)
		}
		close(let)
		ended.Wait()
		if got := send(callers[0], "/free"); got != http.StatusNoContent {
			t.Errorf("%s got %d once its requests had ended", callers[0], got)
		}
	}
	if n := len(rt.callers.serving); n != 0 {
		t.Errorf("%d callers are counted, and no request runs", n)
	}
}
