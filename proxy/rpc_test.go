package proxy_test

import (
	"encoding/binary"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// TestOutcome_AnErrorOfARemoteCallIsJudgedByItsCode: such errors have the status 200.
func TestOutcome_AnErrorOfARemoteCallIsJudgedByItsCode(t *testing.T) {
	for code, runsTwice := range map[string]bool{
		"0":  false,
		"3":  false, // invalid_argument
		"4":  false, // deadline_exceeded, after which it is unknown whether the command ran
		"8":  true,  // resource_exhausted
		"14": true,  // unavailable
	} {
		for name, respond := range map[string]http.HandlerFunc{
			"in the header": func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/grpc-web+proto")
				w.Header().Set("Grpc-Status", code)
			},
			"in the body": func(w http.ResponseWriter, _ *http.Request) { onEnd(w, code) },
		} {
			for version, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{"HTTP/1.1": upstream, "HTTP/2": upstream2} {
				var runs atomic.Int32
				up := start(t, func(w http.ResponseWriter, r *http.Request) {
					runs.Add(1)
					respond(w, r)
				})
				addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, nil)
				for range 2 {
					if res, body := post(t, addr, "k", "x"); res.StatusCode != 200 {
						t.Errorf("%s, code %s %s: %d %s", version, code, name, res.StatusCode, body)
					}
				}
				if want := map[bool]int32{false: 1, true: 2}[runsTwice]; runs.Load() != want {
					t.Errorf("%s, code %s %s: it ran %d times, not %d", version, code, name, runs.Load(), want)
				}
			}
		}
	}
}

// onEnd responds to a call of gRPC-Web with a code at the end of the body.
func onEnd(w http.ResponseWriter, code string) {
	w.Header().Set("Content-Type", "application/grpc-web+proto")
	end := fmt.Sprintf("grpc-status: %s\r\n", code)
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0x80}, uint32(len(end))), end...))
}

// The code may be that of a server in between that has lost the upstream, which may have run the
// command.
func TestOutcome_AnErrorOfARemoteCallLeavesTheOutcomeUnknownIfItsStatusDoes(t *testing.T) {
	for code, unknown := range map[string]func(int) bool{
		"1":  nil, // canceled
		"14": func(status int) bool { return status == 503 },
	} {
		for version, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{"HTTP/1.1": upstream, "HTTP/2": upstream2} {
			var runs atomic.Int32
			up := start(t, func(w http.ResponseWriter, _ *http.Request) {
				runs.Add(1)
				onEnd(w, code)
			})
			addr := orders(t, up, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.UnknownStatus = unknown })
			if res, body := post(t, addr, "k", "x"); res.StatusCode != 200 {
				t.Errorf("%s, code %s: %d %q", version, code, res.StatusCode, body)
			}
			res, body := post(t, addr, "k", "x")
			if wantProblem(t, res, body, 409, "outcome_unknown", false); runs.Load() != 1 {
				t.Errorf("%s, code %s: it ran %d times", version, code, runs.Load())
			}
		}
	}
}

// The server could give up in the middle of a command, and its client sends it again.
func TestOutcome_TheDeadlineOfAClientDoesNotReachTheUpstreamWithAKey(t *testing.T) {
	for version, start := range map[string]func(testing.TB, http.HandlerFunc) *proxy.Upstream{"HTTP/1.1": upstream, "HTTP/2": upstream2} {
		addr := orders(t, start(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(w, r.Header.Get("Connect-Timeout-Ms")+r.Header.Get("Grpc-Timeout"))
		}), onlyonce.Config{}, nil)
		for key, want := range map[string]string{"": "51S", "k": ""} {
			h := http.Header{"Connect-Timeout-Ms": {"5"}, "Grpc-Timeout": {"1S"}}
			if key != "" {
				h.Set("Idempotency-Key", key)
			}
			if _, body := send(t, "POST", "http://"+addr+"/v1/orders", h, "x"); body != want {
				t.Errorf("%s, key %q: the upstream got %q, want %q", version, key, body, want)
			}
		}
	}
}

// callGRPC makes a keyed gRPC call to an upstream, twice, behind a route that requires a key and
// holds what is unknown. It returns the responses with their bodies, and how often it ran.
func callGRPC(t *testing.T, respond http.HandlerFunc) (res [2]*http.Response, bodies [2]string, runs int32) {
	t.Helper()
	var n atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n.Add(1)
		if r.ProtoMajor != 2 || r.Header.Get("Grpc-Timeout") != "" {
			t.Errorf("the upstream got it by %s with %v", r.Proto, r.Header)
		}
		respond(w, r)
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetHTTP1(true)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL)}, onlyonce.Config{HoldUnknown: true}, func(r *proxy.Route) { r.Idempotency.Required = true })
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for i := range res {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		r.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}, "Grpc-Timeout": {"1S"}, "Idempotency-Key": {"k"}}
		got, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(got.Body)
		if got.Body.Close(); err != nil {
			t.Error(err)
		}
		res[i], bodies[i] = got, string(body)
	}
	return res, bodies, n.Load()
}

// A server in between may have lost the upstream, which may have run the command.
func TestOutcome_AGRPCResponseWithoutAStatusLeavesTheOutcomeUnknown(t *testing.T) {
	for name, body := range map[string]string{"without a message": "", "with a message": "reply"} {
		res, bodies, runs := callGRPC(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/grpc")
			_, _ = io.WriteString(w, body)
		})
		if res[0].StatusCode != 502 || res[1].StatusCode != 409 || !strings.Contains(bodies[1], "outcome_unknown") || runs != 1 {
			t.Errorf("%s: it ran %d times; the responses are %d %q and %d %q", name, runs, res[0].StatusCode, bodies[0], res[1].StatusCode, bodies[1])
		}
	}
}

// TestOutcome_AGRPCCallWithARequiredKeyIsSentByHTTP2AndRunsOnce: it is protected, although
// calls on other routes are not.
func TestOutcome_AGRPCCallWithARequiredKeyIsSentByHTTP2AndRunsOnce(t *testing.T) {
	res, bodies, runs := callGRPC(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/grpc")
		_, _ = io.WriteString(w, "reply")
		_ = http.NewResponseController(w).Flush()
		w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	})
	for i := range res {
		if res[i].StatusCode != 200 || bodies[i] != "reply" || res[i].Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%d %q, trailer %v", res[i].StatusCode, bodies[i], res[i].Trailer)
		}
	}
	if runs != 1 {
		t.Errorf("it ran %d times", runs)
	}
}
