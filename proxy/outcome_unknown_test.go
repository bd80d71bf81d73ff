package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestOutcome_AnUpstreamThatCantBeReachedReleasesTheKey(t *testing.T) {
	guard := newGuard(onlyonce.Config{HoldUnknown: true})
	same := func(r *proxy.Route) { r.Guard = guard }
	for _, h2 := range []bool{false, true} {
		gone := orders(t, &proxy.Upstream{URL: parse(t, "http://"+nowhere), HTTP2: h2}, onlyonce.Config{}, same)
		res, body := post(t, gone, "k", "x")
		wantProblem(t, res, body, 503, "upstream_unreachable", true)
		if res.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After %q", res.Header.Get("Retry-After"))
		}
	}
	var runs atomic.Int32
	back := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, same)
	res, body := post(t, back, "k", "another")
	wantResponse(t, res, body, 201, "run 1, attempt 1, another")
}

// failures are responses after which nobody knows whether the command took effect.
var failures = map[string]string{
	"nothing":            "",
	"half a head":        "HTTP/1.1 200 OK\r\nContent-Le",
	"half a body":        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
	"half a chunk":       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nha",
	"no last chunk":      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n",
	"two lengths":        "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
	"a reset with more":  "HTTP/1.1 205 Reset Content\r\nContent-Length: 1\r\n\r\nx",
	"a reset, in chunks": "HTTP/1.1 205 Reset Content\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
	"a reset to the end": "HTTP/1.1 205 Reset Content\r\n\r\nx",
	"another protocol":   "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n",
	"a bad gateway":      "HTTP/1.1 502 Bad Gateway\r\nContent-Length: 1\r\n\r\nx",
	"a gateway timeout":  "HTTP/1.1 504 Gateway Timeout\r\nContent-Length: 1\r\n\r\nx",
	"interim only":       "HTTP/1.1 103 Early Hints\r\n\r\n",
	"interim for ever":   strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 100),
	"a header too long":  "HTTP/1.1 200 OK\r\nX: " + strings.Repeat("x", 70<<10) + "\r\n\r\n",
	"too many headers":   "HTTP/1.1 200 OK\r\n" + strings.Repeat("X: x\r\n", 300) + "\r\n",
	"too many names":     "HTTP/1.1 200 OK\r\nConnection: " + strings.Repeat("a,", 50) + "a\r\nConnection: " + strings.Repeat("b,", 13) + "b\r\nContent-Length: 1\r\n\r\nx",
	"an older protocol":  "HTTP/0.9 200 OK\r\n\r\n",
	"another's protocol": "SSH-2.0-OpenSSH_9.2\r\n",
}

func TestOutcome_WithoutAResponseTheOutcomeIsUnknown(t *testing.T) {
	for name, response := range failures {
		t.Run(name, func(t *testing.T) {
			for _, hold := range []bool{false, true} {
				up, requests, _ := scripted(t, func(n int, r *http.Request) (string, bool) {
					if n == 1 {
						return response, false
					}
					return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nattempt %s", r.Header.Get("Idempotency-Attempt")), true
				})
				up.KeepIdle = 1 // it closes without a word
				addr := orders(t, up, onlyonce.Config{HoldUnknown: hold}, nil)
				res, body := post(t, addr, "k", "x")
				if res.StatusCode != 502 && res.StatusCode != 504 {
					t.Fatalf("first: %d %q", res.StatusCode, body)
				}
				if body != "x" {
					wantProblem(t, res, body, 502, "upstream_failed", !hold)
				}
				res, body = post(t, addr, "k", "x")
				if hold {
					wantProblem(t, res, body, 409, "outcome_unknown", false)
				} else {
					wantResponse(t, res, body, 200, "attempt 2")
				}
				if n := requests.Load(); (n == 1) != hold {
					t.Errorf("hold %v: the upstream got %d requests", hold, n)
				}
			}
		})
	}
}

// A server between proxy and upstream has statuses for a request whose upstream it has lost.
func TestOutcome_StatusesOfServersInBetweenLeaveTheOutcomeUnknown(t *testing.T) {
	envoy := func(status int) bool { return status == 503 || status == 200 }
	for _, c := range []struct {
		status  int
		unknown func(int) bool
		held    bool // a repeat is rejected
	}{
		{499, nil, true},
		{499, envoy, true},
		{520, nil, true},
		{529, nil, true},
		{503, nil, false},
		{530, nil, false},
		{503, envoy, true},
		{502, envoy, false},
	} {
		for name, serve := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{
			"HTTP/1.1": func(t testing.TB, h http.HandlerFunc) *proxy.Upstream { return upstream(t, h) },
			"HTTP/2":   upstream2,
		} {
			t.Run(fmt.Sprintf("%d over %s, %v", c.status, name, c.unknown != nil), func(t *testing.T) {
				var runs atomic.Int32
				up := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					if runs.Add(1) == 1 {
						w.WriteHeader(c.status)
					}
				})
				addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.UnknownStatus = c.unknown })
				if res, body := post(t, addr, "k", "x"); res.StatusCode != c.status {
					t.Fatalf("first: %d %q", res.StatusCode, body)
				}
				if res, body := post(t, addr, "k", "x"); c.held {
					wantProblem(t, res, body, 409, "outcome_unknown", false)
				} else {
					wantResponse(t, res, body, 200, "")
				}
			})
		}
	}
	up := upstream(t, func(http.ResponseWriter, *http.Request) {})
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.UnknownStatus = envoy })
	for range 2 {
		if res, body := post(t, addr, "k", "x"); res.StatusCode != 200 {
			t.Errorf("%d %q: a status below 500 is known", res.StatusCode, body)
		}
	}
}

func TestOutcome_AnUpstreamThatTakesTooLongLeavesTheOutcomeUnknown(t *testing.T) {
	for name, response := range map[string]string{
		"no response": "",
		"half":        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"half again":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return response, true })
			up.HeaderTimeout, up.StallTimeout = shortStall, shortStall
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			res, body := post(t, addr, "k", "x")
			wantProblem(t, res, body, 504, "upstream_failed", false)
			res, body = post(t, addr, "k", "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		})
	}
}

// TestOutcome_ARejectedRepeatDoesNotSettleWhatTheFirstRequestLeft loses the response to
// a request, and rejects its repeat: the next repeat is still one of that request.
func TestOutcome_ARejectedRepeatDoesNotSettleWhatTheFirstRequestLeft(t *testing.T) {
	for _, rejection := range []string{
		"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\n\r\n",
		"HTTP/1.1 409 Conflict\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n",
	} {
		up, requests, _ := scripted(t, func(n int, r *http.Request) (string, bool) {
			switch n {
			case 1:
				return "", false
			case 2:
				return rejection, true
			}
			return "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nattempt " + r.Header.Get("Idempotency-Attempt"), true
		})
		addr := orders(t, up, onlyonce.Config{}, nil)
		for _, want := range []int{502, 0} {
			if res, body := post(t, addr, "k", "x"); want != 0 && res.StatusCode != want {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		}
		res, body := post(t, addr, "k", "another")
		wantProblem(t, res, body, 422, "idempotency_key_reused", false)
		res, body = post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "attempt 3")
		if requests.Load() != 3 {
			t.Errorf("%d requests", requests.Load())
		}
	}
}

// TestOutcome_AnUpstreamThatIsStillWorkingHasNotResponded puts a proxy in front of a
// proxy, as an example of a server that knows keys itself.
func TestOutcome_AnUpstreamThatIsStillWorkingHasNotResponded(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		var runs atomic.Int32
		begun, end := make(chan bool), make(chan bool)
		count := counter(&runs)
		inner := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
			begun <- true
			<-end
			count(w, r)
		}), onlyonce.Config{}, nil)
		outer := orders(t, &proxy.Upstream{URL: parse(t, "http://"+inner), HTTP2: h2}, onlyonce.Config{}, nil)
		first := make(chan string)
		go func() {
			_, body := post(t, inner, "k", "x")
			first <- body
		}()
		<-begun
		res, body := post(t, outer, "k", "x")
		wantProblem(t, res, body, 409, "request_in_progress", true)
		if res.Header.Get("Retry-After") == "" {
			t.Errorf("header %v", res.Header)
		}
		close(end)
		want := <-first
		res, body = post(t, outer, "k", "x")
		wantResponse(t, res, body, 201, want)
	}
}

func TestOutcome_ALostLeaseEndsTheWaitForTheUpstream(t *testing.T) {
	t.Parallel()
	sent := make(chan bool)
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		close(sent)
		return "", true
	})
	store := &forgetful{newStore(), sent}
	r := proxy.Route{Pattern: "/v1/orders", Upstream: up, Guard: onlyonce.New(store, onlyonce.Config{Lease: 6 * time.Second}), Idempotency: single}
	addr := serve(t, proxy.New([]proxy.Route{r}, proxy.Config{}))
	res, body := post(t, addr, "k", "x")
	if res.StatusCode != 409 && res.StatusCode != 502 {
		t.Fatalf("%d %s", res.StatusCode, body)
	}
}

// A client that must not send a request again is told so, and one that has no key is not
// told to use it again.
func TestOutcome_TheAdviceAfterALostResponseFollowsThePolicy(t *testing.T) {
	reconcile := func(context.Context, onlyonce.Record) (onlyonce.Settlement, error) {
		return onlyonce.Settlement{}, errors.New("not now")
	}
	for name, c := range map[string]struct {
		guard     onlyonce.Config
		retryable bool
		advice    string
	}{
		"run again": {onlyonce.Config{}, true, "Send it again with the same key"},
		"reconcile": {onlyonce.Config{HoldUnknown: true, Reconcile: reconcile}, true, "Send it again with the same key"},
		"hold":      {onlyonce.Config{HoldUnknown: true}, false, "a person finds out"},
	} {
		lost := func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		for _, up := range []*proxy.Upstream{upstream(t, lost), upstream2(t, lost)} {
			addr := orders(t, up, c.guard, nil)
			res, body := post(t, addr, "k", "x")
			wantProblem(t, res, body, 502, "upstream_failed", c.retryable)
			if !strings.Contains(body, c.advice) {
				t.Errorf("%s, HTTP/2 %v: %s", name, up.HTTP2, body)
			}
		}
	}
}
