package httponce_test

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

func TestTransport_OnlyWhatCanGetBetterIsSentAgain(t *testing.T) {
	const (
		inProgress = `{"title":"x","code":"request_in_progress"}`
		unknown    = `{"title":"x","code":"outcome_unknown"}`
	)
	untrusted := &tls.CertificateVerificationError{Err: errors.New("signed by nobody")}
	for _, c := range []struct {
		name  string
		first func(*http.Request) (*http.Response, error)
		again bool
	}{
		{"a lost connection", fails(errDropped), true},
		{"an untrusted certificate", fails(untrusted), false},
		{"200", says(200, "ok"), false},
		{"a 201 that breaks off", breaks(201, "ma", 4), true},
		{"a 201 that ends too early", endsEarly, true},
		{"a 422 that breaks off", breaks(422, "no", 4), false},
		{"400", says(400, ""), false},
		{"401", says(401, ""), false},
		{"404 with Retry-After", says(404, "", "Retry-After", "1"), false},
		{"408", says(408, ""), false},
		{"409", says(409, "sold out"), false},
		{"409 in progress", says(409, inProgress), true},
		{"409 in progress of unannounced length", func(r *http.Request) (*http.Response, error) {
			w, _ := says(409, inProgress)(r)
			w.ContentLength = -1
			return w, nil
		}, true},
		{"409 with another code", says(409, unknown), false},
		{"409 with another code and Retry-After", says(409, `{"code":"locked"}`, "Retry-After", "1"), true},
		{"409 without a code and with Retry-After", says(409, `{"error":"locked"}`, "Retry-After", "1"), true},
		{"409 that is no JSON, with Retry-After", says(409, `locked`, "Retry-After", "1"), true},
		{"409 replayed", says(409, inProgress, "Retry-After", "1", "Idempotency-Replayed", "true"), false},
		{"409 that breaks off, with Retry-After", func(r *http.Request) (*http.Response, error) {
			w, err := breaks(409, inProgress[:20], 40)(r)
			w.Header.Set("Retry-After", "1")
			return w, err
		}, true},
		{"410", says(410, `{"code":"idempotency_key_expired"}`), false},
		{"413", says(413, ""), false},
		{"422", says(422, `{"code":"request_in_progress"}`, "Retry-After", "1"), false},
		{"425", says(425, ""), true},
		{"429", says(429, ""), true},
		{"500", says(500, ""), false},
		{"501", says(501, "", "Retry-After", "1"), false},
		{"502", says(502, ""), true},
		{"503", says(503, ""), true},
		{"503 replayed", says(503, "", "Idempotency-Replayed", "true"), false},
		{"504", says(504, ""), true},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := sequence(c.first, created)
				w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, strings.NewReader("tea")))
				want := 1
				if c.again {
					want = 2
				}
				if len(l.sent) != want {
					t.Fatalf("sent %d times, want %d", len(l.sent), want)
				}
				if err == nil {
					if c.again != (w.StatusCode == 201) && !strings.HasPrefix(c.name, "20") {
						t.Errorf("the response is %d", w.StatusCode)
					}
					_ = w.Body.Close()
				}
				if open := l.open.Load(); open != 0 {
					t.Errorf("%d bodies were not closed", open)
				}
			})
		})
	}
}

func TestTransport_EveryAttemptHasTheSameKeyAndTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		keys := map[string]bool{}
		for _, body := range []func() io.Reader{
			func() io.Reader { return strings.NewReader("tea") },                 // http.NewRequest sets GetBody
			func() io.Reader { return io.MultiReader(strings.NewReader("tea")) }, // it doesn't
		} {
			l := sequence(fails(errDropped), says(503, ""), breaks(201, "ma", 4), says(429, ""), created)
			w, err := (&httponce.Transport{Base: l}).RoundTrip(newPost(t, body()))
			if err != nil {
				t.Fatal(err)
			}
			if answer, err := io.ReadAll(w.Body); string(answer) != "made" || err != nil {
				t.Fatalf("the response is %q, %v", answer, err)
			}
			_ = w.Body.Close()
			first := l.sent[0].Header["Idempotency-Key"]
			for i, r := range l.sent {
				if key := r.Header["Idempotency-Key"]; len(key) != 1 || !slices.Equal(key, first) || l.bodies[i] != "tea" || r.ContentLength != 3 {
					t.Errorf("attempt %d was sent with %q and %q of length %d", i, key, l.bodies[i], r.ContentLength)
				}
			}
			if len(l.sent) != 5 || w.Request.Header.Get("Idempotency-Key") != first[0] {
				t.Errorf("%d attempts; the response's request has %v", len(l.sent), w.Request.Header)
			}
			if keys[first[0]] {
				t.Error("two calls have one key")
			}
			keys[first[0]] = true
		}
	})
}

func TestTransport_TheKeysAreOnesThatServersTake(t *testing.T) {
	var runs atomic.Int32
	for name, syntax := range map[string]httponce.KeySyntax{"bare": httponce.TokenOnly, "quoted": httponce.StringOnly} {
		cfg := single
		cfg.KeyFormat.Syntax = syntax
		server := httptest.NewServer(httponce.Wrap(newGuard(onlyonce.Config{}), counter(&runs), cfg))
		defer server.Close()
		client := &http.Client{Transport: &httponce.Transport{Base: server.Client().Transport, Quoted: syntax == httponce.StringOnly}}
		w, err := client.Post(server.URL, "text/plain", strings.NewReader("tea"))
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		if key := strings.Trim(w.Request.Header.Get("Idempotency-Key"), `"`); w.StatusCode != 201 || w.Header.Get("Idempotency-Expires") == "" || len(key) < 22 {
			t.Errorf("%s: the response to the key %s is %d with %v", name, key, w.StatusCode, w.Header)
		}
	}
}

func TestTransport_ACallersKeyIsLeftAsItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := sequence(says(503, ""), created)
		persisted := false
		r := newPost(t, nil)
		r.Header.Set("X-Request-Key", "order-17")
		w, err := (&httponce.Transport{
			Base: l, Header: "x-request-key", Quoted: true,
			Persist: func(context.Context, *http.Request, string) error { persisted = true; return nil },
		}).RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = w.Body.Close()
		for _, r := range l.sent {
			if got := r.Header["X-Request-Key"]; len(got) != 1 || got[0] != "order-17" || r.Header.Get("Idempotency-Key") != "" {
				t.Errorf("sent with %v", r.Header)
			}
		}
		if len(l.sent) != 2 || persisted {
			t.Errorf("sent %d times; persisted: %v", len(l.sent), persisted)
		}
	})
}

func TestTransport_ARedirectedRequestKeepsItsKey(t *testing.T) {
	var keys []string
	mux := http.NewServeMux()
	mux.HandleFunc("POST /old", func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
		http.Redirect(w, r, "/new", http.StatusPermanentRedirect)
	})
	mux.HandleFunc("POST /new", func(w http.ResponseWriter, r *http.Request) {
		keys = append(keys, r.Header.Get("Idempotency-Key"))
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	persisted := 0
	client := &http.Client{Transport: &httponce.Transport{
		Persist: func(context.Context, *http.Request, string) error { persisted++; return nil },
	}}
	defer client.CloseIdleConnections()
	w, err := client.Post(server.URL+"/old", "text/plain", strings.NewReader("tea"))
	if err != nil {
		t.Fatal(err)
	}
	_ = w.Body.Close()
	if len(keys) != 2 || keys[0] == "" || keys[0] != keys[1] || persisted != 1 {
		t.Errorf("the keys are %q, and %d were persisted", keys, persisted)
	}
}

func TestTransport_OtherMethodsPassUntouched(t *testing.T) {
	r := newPost(t, nil)
	r.Method = http.MethodGet
	l := sequence(says(503, "", "Retry-After", "1"))
	w, err := (&httponce.Transport{Base: l}).RoundTrip(r)
	if err != nil || w.StatusCode != 503 || len(l.sent) != 1 || l.sent[0] != r || len(r.Header) > 0 {
		t.Errorf("%v, and sent %d times: %v", err, len(l.sent), r.Header)
	}
	r.Method = http.MethodDelete
	if _, err = (&httponce.Transport{Base: l, Methods: []string{http.MethodDelete}, MaxAttempts: 1}).RoundTrip(r); err != nil || l.sent[1].Header.Get("Idempotency-Key") == "" {
		t.Errorf("%v: a DELETE that is protected has %v", err, l.sent[1].Header)
	}
}

func TestTransport_NonsenseInATransportIsAnErrorThatSaysWhatToWrite(t *testing.T) {
	for wants, transports := range map[string][]httponce.Transport{
		"write a positive value":                        {{MaxAttempts: -1}, {Budget: -1}, {AttemptTimeout: -1}, {Backoff: -1}, {MaxBackoff: -1}, {MaxBody: -1}, {MaxResponse: -1}},
		`Methods has "post": write methods in capitals`: {{Methods: []string{"post"}}},
		`Methods has "PUT ": write methods in capitals`: {{Methods: []string{"POST", "PUT "}}},
	} {
		for _, transport := range transports {
			if _, err := transport.RoundTrip(newPost(t, nil)); err == nil || !strings.Contains(err.Error(), wants) {
				t.Errorf("%+v: %v", transport, err)
			}
		}
	}
}

func TestTransport_AnAddressThatIsNoneIsTriedOnce(t *testing.T) {
	for _, url := range []string{"htp://shop.example/", "http:///orders"} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		_, err = (&httponce.Transport{}).RoundTrip(r)
		var none *httponce.NoResponseError
		if !errors.As(err, &none) || none.Attempts != 1 {
			t.Errorf("%s: %v", url, err)
		}
	}
}

func TestTransport_ACallersKeyIsTheOnlyOneHoweverItsHeaderIsSpelled(t *testing.T) {
	for _, name := range []string{"idempotency-key", "IDEMPOTENCY-KEY"} {
		var sent http.Header
		transport := &httponce.Transport{Base: roundTrip(func(r *http.Request) (*http.Response, error) {
			sent = r.Header
			return says(200, "")(r)
		})}
		r := httptest.NewRequest(http.MethodPost, "http://bank.example/", nil)
		r.Header[name] = []string{"mine"}
		if _, err := transport.RoundTrip(r); err != nil {
			t.Fatal(err)
		}
		if got := sent["Idempotency-Key"]; len(sent) != 1 || !slices.Equal(got, []string{"mine"}) {
			t.Errorf("%s: sent was %v", name, sent)
		}
		if !slices.Equal(r.Header[name], []string{"mine"}) {
			t.Errorf("%s: the caller's request is now %v", name, r.Header)
		}
	}
}

// TestTransport_AKeyThatIsEmptyIsNotSent sets an empty key, as a client does that has
// lost it. A server may take the request for one without a key and run every attempt.
func TestTransport_AKeyThatIsEmptyIsNotSent(t *testing.T) {
	for _, values := range [][]string{{""}, {`""`}, {" "}, {"k", ""}} {
		body := &closing{Reader: strings.NewReader("x")}
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://bank.example/", body)
		if err != nil {
			t.Fatal(err)
		}
		r.Header["Idempotency-Key"] = values
		base := roundTrip(func(*http.Request) (*http.Response, error) {
			t.Errorf("%q was sent", values)
			return nil, io.ErrUnexpectedEOF
		})
		resp, err := (&httponce.Transport{Base: base, MaxAttempts: 1}).RoundTrip(r)
		if err == nil {
			resp.Body.Close()
			t.Errorf("%q: no error", values)
			continue
		}
		if !strings.Contains(err.Error(), "nothing was sent") || !body.closed.Load() {
			t.Errorf("%q: closed %v, %v", values, body.closed.Load(), err)
		}
	}
}
