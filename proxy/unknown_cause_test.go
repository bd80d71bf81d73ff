package proxy_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// resetting starts an upstream that resets the connection of each request.
func resetting(t *testing.T) *proxy.Upstream {
	l := listen(t)
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			if _, err := http.ReadRequest(bufio.NewReader(c)); err == nil {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			c.Close()
		}
	}()
	return &proxy.Upstream{URL: parse(t, "http://"+l.Addr().String())}
}

func TestOutcome_TheRecordOfAnUnknownOutcomeSaysWhatHappenedAndAfterHowLong(t *testing.T) {
	responds := func(raw string, keep bool, limit time.Duration) *proxy.Upstream {
		up, _, _ := scripted(t, func(int, *http.Request) (string, bool) { return raw, keep })
		up.HeaderTimeout, up.StallTimeout = limit, limit
		return up
	}
	statusOf := func(status int) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }
	}
	late := func(w http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	onlyHead := func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	late2 := upstream2(t, late)
	late2.HeaderTimeout = shortStall
	for name, c := range map[string]struct {
		up   *proxy.Upstream
		want string
	}{
		"bad gateway":              {responds(failures["a bad gateway"], false, 0), "responded with status 502"},
		"gateway timeout":          {responds(failures["a gateway timeout"], false, 0), "responded with status 504"},
		"bad gateway by HTTP/2":    {upstream2(t, statusOf(502)), "responded with status 502"},
		"nothing":                  {responds("", false, 0), "closed the connection"},
		"half a body":              {responds(failures["half a body"], false, 0), "closed the connection"},
		"reset":                    {resetting(t), "reset the connection"},
		"no response in time":      {responds("", true, shortStall), "timed out"},
		"half a response in time":  {responds(failures["half a body"], true, shortStall), "timed out"},
		"no response by HTTP/2":    {late2, "timed out"},
		"a malformed head":         {responds(failures["two lengths"], false, 0), "failed"},
		"only a head by HTTP/2":    {upstream2(t, onlyHead), "failed"},
		"a stream reset by HTTP/2": {upstream2(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }), "failed"},
	} {
		t.Run(name, func(t *testing.T) {
			var mu sync.Mutex
			var recorded []string
			var reported []error
			r := proxy.Route{Method: "POST", Pattern: "/v1/orders", Upstream: c.up, Idempotency: single, Guard: newGuard(onlyonce.Config{
				HoldUnknown: true,
				Observer: func(_ context.Context, e onlyonce.Event) {
					mu.Lock()
					defer mu.Unlock()
					if e.Outcome == onlyonce.OutcomeUnknown {
						recorded = append(recorded, e.Record.Error)
					}
				},
			})}
			addr := serve(t, proxy.New([]proxy.Route{r}, proxy.Config{OnError: func(r *http.Request, err error) {
				mu.Lock()
				defer mu.Unlock()
				if onlyonce.Current(r.Context()) == nil {
					err = errors.Join(err, errors.New("of no command"))
				}
				reported = append(reported, err)
			}}))
			req, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", nil)
			req.Header.Set("Idempotency-Key", "k")
			if res, err := client.RoundTrip(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				res.Body.Close()
				if late := c.want == "timed out"; (res.StatusCode == http.StatusGatewayTimeout) != (late || name == "gateway timeout") {
					t.Errorf("status %d", res.StatusCode)
				}
			}
			mu.Lock()
			defer mu.Unlock()
			pattern := regexp.MustCompile(`^the upstream ` + c.want + ` after [0-9.]+m?s(: .+)?$`)
			if len(recorded) != 1 || !pattern.MatchString(recorded[0]) {
				t.Fatalf("recorded %q, want %s", recorded, pattern)
			}
			if want := fmt.Sprintf("[proxy: %s]", recorded[0]); fmt.Sprint(reported) != want && len(reported) > 0 {
				t.Errorf("reported %q, want %q", reported, want)
			}
			if _, status := map[string]bool{"bad gateway": true, "gateway timeout": true, "bad gateway by HTTP/2": true}[name]; !status && len(reported) != 1 {
				t.Errorf("reported %q", reported)
			}
		})
	}
}
