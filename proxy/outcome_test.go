package proxy_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

func TestOutcome_AKeyedRequestRunsOnce(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	for i := range 3 {
		res, body := post(t, addr, "k", "x")
		wantResponse(t, res, body, 201, "run 1, attempt 1, x")
		if replayed := res.Header.Get("Idempotency-Replayed") == "true"; replayed != (i > 0) {
			t.Errorf("response %d: %v", i, res.Header)
		}
	}
	if _, body := post(t, addr, "", "x"); body != "run 2, attempt , x" {
		t.Errorf("without a key: %q", body)
	}
}

func TestOutcome_TheHeadersThatTheUpstreamGets(t *testing.T) {
	got := make(chan *http.Request, 1)
	up := upstream(t, func(_ http.ResponseWriter, r *http.Request) { got <- r })
	up.URL.Path = "/base/"
	addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
		r.SetHeader = http.Header{"X-Set": {"ours"}}
		r.DropHeader = []string{"X-Drop"}
	})
	for _, key := range []string{"k", ""} {
		h := http.Header{
			"X-Set": {"theirs"}, "X-Drop": {"theirs"}, "X-Kept": {"1", "2"}, "Te": {"trailers"}, "Proxy-Connection": {"keep-alive"},
			"X-Hop": {"theirs"}, "Connection": {"X-Hop"}, "User-Agent": {"theirs"},
			"Idempotency-Attempt": {"99"}, "Idempotency-Fence": {"99"}, "Idempotency_fence": {"99"}, "Idempotency-Replayed": {"true"}, "Idempotency_Key": {"other"},
			"X-Original-Url": {"/admin"}, "X-Rewrite-Url": {"/admin"},
		}
		if key != "" {
			h["Idempotency-Key"] = []string{`"k";a=1`}
		}
		send(t, "POST", "http://"+addr+"/v1/orders?b=2&a=%20;x", h, "body")
		r := <-got
		if r.RequestURI != "/base/v1/orders?b=2&a=%20;x" || r.Host != up.URL.Host || r.ContentLength != 4 {
			t.Errorf("%s %s, %d bytes", r.Host, r.RequestURI, r.ContentLength)
		}
		for name, want := range map[string]string{
			"X-Set": "ours", "X-Drop": "", "X-Kept": "1 2", "Proxy-Connection": "", "X-Hop": "", "User-Agent": "theirs", "Idempotency-Replayed": "",
			"Idempotency_fence": "", "Idempotency_key": "", "X-Original-Url": "", "X-Rewrite-Url": "",
			"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Host": addr, "X-Forwarded-Proto": "http", "Forwarded": `for=127.0.0.1;host="` + addr + `";proto=http`,
		} {
			if found := strings.Join(r.Header[name], " "); found != want {
				t.Errorf("key %q: %s is %q, want %q", key, name, found, want)
			}
		}
		attempt, fence := r.Header.Get("Idempotency-Attempt"), r.Header.Get("Idempotency-Fence")
		if key != "" && (attempt != "1" || len(fence) < 15 || r.Header.Get("Idempotency-Key") != "k") || key == "" && attempt+fence != "" {
			t.Errorf("key %q: %v", key, r.Header)
		}
	}
}

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

func TestOutcome_AnUpstreamThatTakesTooLongLeavesTheOutcomeUnknown(t *testing.T) {
	for name, response := range map[string]string{
		"no response": "",
		"half":        "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf",
		"half again":  "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return response, true })
			up.HeaderTimeout, up.StallTimeout = time.Millisecond, time.Millisecond
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
			res, body := post(t, addr, "k", "x")
			wantProblem(t, res, body, 504, "upstream_failed", false)
			res, body = post(t, addr, "k", "x")
			wantProblem(t, res, body, 409, "outcome_unknown", false)
		})
	}
}

func TestOutcome_AnErrorOfTheUpstreamFailsTheCommand(t *testing.T) {
	for _, status := range []int{500, 501, 503, 507} {
		var runs atomic.Int32
		up := upstream(t, func(w http.ResponseWriter, r *http.Request) {
			if runs.Add(1) == 1 {
				w.WriteHeader(status)
				io.WriteString(w, "theirs")
				return
			}
			fmt.Fprint(w, "attempt ", r.Header.Get("Idempotency-Attempt"))
		})
		addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
		res, body := post(t, addr, "k", "x")
		wantResponse(t, res, body, status, "theirs")
		res, body = post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "attempt 2")
	}
}

func TestOutcome_ARejectionOfTheUpstreamIsRecordedOrNotAsTheConfigSays(t *testing.T) {
	for status, want := range map[int]int32{400: 1, 404: 1, 422: 1, 302: 1, 401: 2, 403: 2, 429: 2} {
		var runs atomic.Int32
		addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			w.Header().Set("Location", "http://169.254.169.254/")
			w.WriteHeader(status)
		}), onlyonce.Config{}, nil)
		for range 2 {
			if res, body := post(t, addr, "k", "x"); res.StatusCode != status {
				t.Errorf("%d %q", res.StatusCode, body)
			}
		}
		if runs.Load() != want {
			t.Errorf("%d: %d runs", status, runs.Load())
		}
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

func TestOutcome_ALargeResponseIsSentWholeAndNotStored(t *testing.T) {
	var runs atomic.Int32
	large := strings.Repeat("0123456789", 20_000)
	for _, chunked := range []bool{false, true} {
		addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
			runs.Add(1)
			if !chunked {
				w.Header().Set("Content-Length", fmt.Sprint(len(large)))
			}
			io.WriteString(w, large)
		}), onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.MaxResponse = 50_000 })
		res, body := post(t, addr, "k", "x")
		if body != large {
			t.Fatalf("%d: %d bytes", res.StatusCode, len(body))
		}
		res, body = post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "")
		if body != "" || res.Header.Get("Idempotency-Replay") != "omitted" {
			t.Errorf("the repeat: %d bytes, %v", len(body), res.Header)
		}
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestOutcome_ATruncatedLargeResponseIsAnErrorForTheClientAndUnknown(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nlong\r\n4\r\nlong\r\n", false
	})
	addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.MaxResponse = 6 })
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "k")
	if res, err := client.RoundTrip(r); err == nil {
		body, err := io.ReadAll(res.Body)
		res.Body.Close()
		if err == nil {
			t.Errorf("the client takes %q for the whole", body)
		}
	}
	res, body := post(t, addr, "k", "x")
	wantProblem(t, res, body, 409, "outcome_unknown", false)
}

func TestOutcome_AnEventStreamIsNotHeldBackAndIsRecorded(t *testing.T) {
	next, runs := make(chan bool), atomic.Int32{}
	addr := orders(t, upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-next
		io.WriteString(w, "data: 2\n\n")
	}), onlyonce.Config{}, nil)
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Idempotency-Key", "k")
	res, err := client.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	first := make([]byte, 9)
	if _, err := io.ReadFull(res.Body, first); err != nil {
		t.Fatal(err)
	}
	next <- true
	rest, err := io.ReadAll(res.Body)
	if string(first)+string(rest) != "data: 1\n\ndata: 2\n\n" {
		t.Fatalf("%q %q %v", first, rest, err)
	}
	again, body := post(t, addr, "k", "x")
	wantResponse(t, again, body, 200, "data: 1\n\ndata: 2\n\n")
	if runs.Load() != 1 || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%d runs, %v", runs.Load(), again.Header)
	}
}

func TestOutcome_TrailersOfAKeyedResponseAreSentAndReplayed(t *testing.T) {
	up, _, _ := scripted(t, func(int, *http.Request) (string, bool) {
		return "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-Sum\r\n\r\n2;a=b\r\nhi\r\n0\r\nX-Sum: 1\r\nSet-Cookie: c\r\nContent-Length: 9\r\n\r\n", true
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for range 2 {
		res, body := post(t, addr, "k", "x")
		wantResponse(t, res, body, 200, "hi")
		if res.Trailer.Get("X-Sum") != "1" || len(res.Trailer) != 1 {
			t.Errorf("trailer %v", res.Trailer)
		}
	}
}

func TestOutcome_TrailersOfAKeyedResponseByHTTP2AreSentAndReplayed(t *testing.T) {
	up := upstream2(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Has("announced") {
			w.Header().Set("Trailer", "X-Sum")
		}
		_, _ = io.WriteString(w, "hi")
		_ = http.NewResponseController(w).Flush() // otherwise its length is announced
		w.Header().Set(http.TrailerPrefix+"X-Sum", "1")
	})
	addr := orders(t, up, onlyonce.Config{}, nil)
	for _, query := range []string{"", "", "?announced", "?announced"} {
		res, body := send(t, "POST", "http://"+addr+"/v1/orders"+query, http.Header{"Idempotency-Key": {"k" + strings.TrimPrefix(query, "?")}}, "x")
		wantResponse(t, res, body, 200, "hi")
		if res.Trailer.Get("X-Sum") != "1" || len(res.Trailer) != 1 {
			t.Errorf("%q: trailer %v", query, res.Trailer)
		}
	}
}

func TestOutcome_WithoutItsStoreARequestRunsUnprotectedIfThatIsWanted(t *testing.T) {
	var runs atomic.Int32
	for _, unprotected := range []bool{false, true} {
		once := single
		once.RunUnprotected = unprotected
		r := proxy.Route{Pattern: "/", Upstream: upstream(t, counter(&runs)), Guard: onlyonce.New(broken{}, onlyonce.Config{}), Idempotency: once}
		addr := serve(t, proxy.New([]proxy.Route{r}, proxy.Config{}))
		res, body := post(t, addr, "k", "x")
		if !unprotected {
			wantProblem(t, res, body, 503, "store_unavailable", true)
			continue
		}
		wantResponse(t, res, body, 201, "run 1, attempt , x")
		if res.Header.Get("Idempotency-Protected") != "no" {
			t.Error(res.Header)
		}
	}
}

func TestOutcome_ARejectionIsInTheRoutesOwnForm(t *testing.T) {
	up := &proxy.Upstream{URL: parse(t, "http://"+nowhere)}
	addr := orders(t, up, onlyonce.Config{}, func(r *proxy.Route) {
		r.Idempotency.DocsURL = "https://docs.example/errors"
		r.Idempotency.Problem = func(w http.ResponseWriter, _ *http.Request, p httponce.Problem) {
			w.WriteHeader(p.Status)
			fmt.Fprintf(w, "%s %v %s", p.Code, p.Retryable, p.Type)
		}
	})
	for _, key := range []string{"k", ""} {
		res, body := post(t, addr, key, "x")
		if res.StatusCode != 503 || !strings.HasPrefix(body, "upstream_unreachable true https://docs.example/errors#") || res.Header.Get("Link") == "" {
			t.Errorf("%d %q %v", res.StatusCode, body, res.Header)
		}
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

func TestOutcome_AClientWithoutAKeyIsNotToldToUseItAgain(t *testing.T) {
	gone := upstream(t, nil)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	gone.URL = parse(t, "http://"+l.Addr().String())
	l.Close()
	addr := orders(t, gone, onlyonce.Config{}, nil)
	for key, advice := range map[string]string{"": "again later.", "k": "again later with the same key."} {
		res, body := post(t, addr, key, "x")
		wantProblem(t, res, body, 503, "upstream_unreachable", true)
		if !strings.Contains(body, advice) {
			t.Errorf("key %q: %s", key, body)
		}
	}
}
