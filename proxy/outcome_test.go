package proxy_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

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

// A client that follows such a redirect sends the same request again.
func TestOutcome_ARedirectToTheSamePathIsNotStored(t *testing.T) {
	var asked, runs atomic.Int32
	addr := orders(t, upstream(t, func(w http.ResponseWriter, r *http.Request) {
		if asked.Add(1) == 1 {
			w.Header().Set("Location", "http://"+r.Header.Get("X-Forwarded-Host")+"/v1/orders")
			w.WriteHeader(http.StatusPermanentRedirect)
			return
		}
		counter(&runs)(w, r)
	}), onlyonce.Config{}, nil)
	for i := range 2 {
		r, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Idempotency-Key", "k")
		res, err := (&http.Client{Transport: client}).Do(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if replayed := res.Header.Get("Idempotency-Replayed") == "true"; res.StatusCode != 201 || string(body) != "run 1, attempt 1, x" || replayed != (i == 1) {
			t.Errorf("got %d %q, replayed %v", res.StatusCode, body, replayed)
		}
	}
}
