package caddyonce

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/fcgi"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig/httpcaddyfile"
	"github.com/caddyserver/caddy/v2/modules/caddyhttp"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/httpfield"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

const handleErrors = `
handle_errors {
	respond "page for {err.status_code}"
}
`

// grpcWeb returns the response to a call of gRPC-Web that ended with a code.
func grpcWeb(code int) string {
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: application/grpc-web+proto\r\nGrpc-Status: %d\r\nContent-Length: 0\r\n\r\n", code)
}

func TestOutcome_AResponseAndAnErrorDecideIt(t *testing.T) {
	made := response(201, "made")
	const again = -1 // a repeat runs, and is made
	for name, c := range map[string]struct {
		directives string // UPSTREAM is the address of the upstream
		first      string // the upstream's response to the first request; it makes all others
		status     int    // of the first response
		body       string
		state      onlyonce.State
		repeat     int // its status
	}{
		"made":                                   {"reverse_proxy UPSTREAM", made, 201, "made", onlyonce.StateCompleted, 201},
		"not found":                              {"reverse_proxy UPSTREAM", response(404, "none"), 404, "none", onlyonce.StateCompleted, 404},
		"in chunks":                              {"reverse_proxy UPSTREAM", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nma\r\n2\r\nde\r\n0\r\n\r\n", 201, "made", onlyonce.StateCompleted, 201},
		"too many requests":                      {"reverse_proxy UPSTREAM", response(429, ""), 429, "", "", again},
		"unavailable":                            {"reverse_proxy UPSTREAM", response(503, "busy"), 503, "busy", onlyonce.StateFailed, again},
		"bad gateway":                            {"reverse_proxy UPSTREAM", response(502, "lost"), 502, "lost", onlyonce.StateUnknown, 409},
		"by a content delivery network":          {"reverse_proxy UPSTREAM", response(524, "lost"), 524, "lost", onlyonce.StateUnknown, 409},
		"unreachable":                            {"reverse_proxy " + "127.0.0.1:" + testserver.FreePort() + handleErrors, made, 502, "page for 502", "", 502},
		"the connection is closed":               {"reverse_proxy UPSTREAM" + handleErrors, breaks, 502, "page for 502", onlyonce.StateUnknown, 409},
		"half a head":                            {"reverse_proxy UPSTREAM", "HTTP/1.1 201 Cre", 502, "", onlyonce.StateUnknown, 409},
		"half a body":                            {"reverse_proxy UPSTREAM" + handleErrors, "HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nhalf", 502, "page for 502", onlyonce.StateUnknown, 409},
		"no last chunk":                          {"reverse_proxy UPSTREAM", "HTTP/1.1 201 Created\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n", 502, "", onlyonce.StateUnknown, 409},
		"interim only":                           {"reverse_proxy UPSTREAM", "HTTP/1.1 103 Early Hints\r\n\r\n", 502, "", onlyonce.StateUnknown, 409},
		"an error page instead of a failure":     {"reverse_proxy UPSTREAM {\n@bad status 5xx\nhandle_response @bad {\nerror bad {rp.status_code}\n}\n}" + handleErrors, response(503, "busy"), 503, "page for 503", onlyonce.StateFailed, again},
		"an error page instead of a 404":         {"reverse_proxy UPSTREAM {\n@bad status 404\nhandle_response @bad {\nerror bad {rp.status_code}\n}\n}" + handleErrors, response(404, "none"), 404, "page for 404", onlyonce.StateCompleted, 404},
		"an error page hides a bad gateway":      {"reverse_proxy UPSTREAM {\n@bad status 502\nhandle_response @bad {\nrespond sorry 200\n}\n}", response(502, ""), 200, "sorry", onlyonce.StateUnknown, 409},
		"a response that is not copied":          {"reverse_proxy UPSTREAM {\n@made status 201\nhandle_response @made {\nheader X-Made 1\n}\n}", made, 200, "", onlyonce.StateCompleted, 200},
		"a response that is replaced":            {"reverse_proxy UPSTREAM {\n@made status 201\nhandle_response @made {\nrespond broken 500\n}\n}", made, 500, "broken", onlyonce.StateUnknown, 409},
		"a response that an error replaces":      {"reverse_proxy UPSTREAM {\n@made status 201\nhandle_response @made {\nerror 500\n}\n}", made, 500, "", onlyonce.StateUnknown, 409},
		"an error of another handler":            {"error broken 500" + handleErrors, made, 500, "page for 500", onlyonce.StateFailed, 500},
		"a rejection by another handler":         {"error no 403" + handleErrors, made, 403, "page for 403", "", 403},
		"a response of another handler":          {"respond made 201", made, 201, "made", onlyonce.StateCompleted, 201},
		"no handler":                             {"", made, 200, "", "", 200},
		"a connection that is closed, and 200":   {"handle {\nroute {\nreverse_proxy UPSTREAM\n}\n}\nhandle_errors {\nrespond sorry 200\n}", breaks, 200, "sorry", onlyonce.StateUnknown, 409},
		"only the statuses that are named":       {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", response(503, ""), 503, "", onlyonce.StateUnknown, 409},
		"canceled, by a call of gRPC-Web":        {"reverse_proxy UPSTREAM", grpcWeb(1), 200, "", onlyonce.StateUnknown, 409},
		"a call of gRPC-Web, and what is named":  {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", grpcWeb(14), 200, "", onlyonce.StateUnknown, 409},
		"a closed connection, whatever is named": {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", breaks, 502, "", onlyonce.StateUnknown, 409},
		"half a head, whatever is named":         {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", "HTTP/1.1 201 Cre", 502, "", onlyonce.StateUnknown, 409},
		"interim only, whatever is named":        {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", "HTTP/1.1 103 Early Hints\r\n\r\n", 502, "", onlyonce.StateUnknown, 409},
		"a status that is not named":             {"unknown_statuses 503\n---\nreverse_proxy UPSTREAM", response(502, "lost"), 502, "lost", onlyonce.StateFailed, again},
		"an error that is not named":             {"unknown_statuses 503\n---\nerror 502", made, 502, "", onlyonce.StateFailed, 502},
		"a failure that is kept":                 {"keep_errors\n---\nreverse_proxy UPSTREAM", response(503, "busy"), 503, "busy", onlyonce.StateFailed, 503},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newSite(t)
			address, _ := rawUpstream(t, func(n int, _ *http.Request) string {
				if n == 1 {
					return c.first
				}
				return made
			})
			settings, directives, ok := strings.Cut(c.directives, "---\n")
			if !ok {
				settings, directives = "", c.directives
			}
			s.serve(s.once(settings) + strings.ReplaceAll(directives, "UPSTREAM", address))
			s.want(s.post("k", "a"), c.status, c.body, false)
			wantState(t, c.state)
			got := s.post("k", "a")
			switch c.repeat {
			case again:
				s.want(got, 201, "made", false)
			case 409:
				s.want(got, 409, "outcome_unknown", false)
			default:
				s.want(got, c.repeat, "", c.state == onlyonce.StateCompleted || c.state == onlyonce.StateFailed && strings.Contains(settings, "keep_errors"))
			}
		})
	}
}

func TestOutcome_OfAnErrorThatIsReplayedARepeatGetsTheStatus(t *testing.T) {
	s := newSite(t)
	s.serve(s.once() + "error none 404" + handleErrors)
	first, again := s.post("k", "a"), s.post("k", "a")
	s.want(first, 404, "page for 404", false)
	if s.want(again, 404, "", true); again.body != "" || again.header.Get("Idempotency-Replay") != "omitted" {
		t.Errorf("the repeat is %v %q", again.header, again.body)
	}
	s.want(s.post("k", "b"), 422, "idempotency_key_reused", false)
}

func TestOutcome_ARequestThatWasWrittenIsNotSentAgain(t *testing.T) {
	const (
		anyPOST  = "lb_retries 2\nlb_try_interval 1ms\nrequest_buffers 4KiB\nlb_retry_match {\nmethod POST\n}"
		statuses = "lb_retries 2\nlb_try_interval 1ms\nrequest_buffers 4KiB\nlb_retry_match {\nexpression `{rp.status_code} in [499, 500, 502, 503]`\n}"
	)
	for name, c := range map[string]struct {
		proxy, body string
		first       string // the upstream's response
		status      int
		state       onlyonce.State
	}{
		"by the transport, which repeats a request with a key and no body": {"", "", breaks, 502, onlyonce.StateUnknown},
		"by the retries of reverse_proxy":                                  {anyPOST, "a", breaks, 502, onlyonce.StateUnknown},
		"by its retries after half a head":                                 {anyPOST, "a", "HTTP/1.1 201 Cre", 502, onlyonce.StateUnknown},
		"by its retries after an interim response":                         {anyPOST, "", "HTTP/1.1 103 Early Hints\r\n\r\n", 502, onlyonce.StateUnknown},
		"by its retries after a status that leaves the outcome unknown":    {statuses, "", response(502, "lost"), 502, onlyonce.StateUnknown},
		"by its retries after a cancellation":                              {statuses, "", response(499, ""), 502, onlyonce.StateUnknown},
		"by its retries after another failure":                             {statuses, "a", response(503, "busy"), 503, onlyonce.StateFailed},
		"by its retries after an error":                                    {statuses, "", response(500, ""), 500, onlyonce.StateFailed},
		"by the handler of a response": {
			"@failed status 5xx\nhandle_response @failed {\nreverse_proxy UPSTREAM\n}", "", response(502, "lost"), 502, onlyonce.StateUnknown,
		},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newSite(t)
			address, requests := rawUpstream(t, func(n int, r *http.Request) string {
				switch {
				case r.Method == http.MethodGet:
					return response(200, "warm")
				case n == 2:
					return c.first
				}
				return response(201, "made")
			})
			s.serve(s.once() + "reverse_proxy " + address + " {\n" + strings.ReplaceAll(c.proxy, "UPSTREAM", address) + "\n}")
			if got, err := s.send(http.MethodGet, "/orders", ""); err != nil || got.body != "warm" { // leaves an idle connection
				t.Fatal(got, err)
			}
			s.want(s.post("k", c.body), c.status, "", false)
			wantState(t, c.state)
			if n := requests.Load(); n != 2 {
				t.Errorf("%d requests, want the GET and one POST", n)
			}
		})
	}
}

// An asking handler asks another server about a request, and then calls the next handlers.
type asking struct {
	Server string `json:"server"`
}

func init() {
	caddy.RegisterModule(asking{})
	httpcaddyfile.RegisterHandlerDirective("asking", func(h httpcaddyfile.Helper) (caddyhttp.MiddlewareHandler, error) {
		h.Next()
		h.NextArg()
		return asking{h.Val()}, nil
	})
	httpcaddyfile.RegisterDirectiveOrder("asking", httpcaddyfile.Before, "reverse_proxy")
}

func (asking) CaddyModule() caddy.ModuleInfo {
	return caddy.ModuleInfo{ID: "http.handlers.asking", New: func() caddy.Module { return new(asking) }}
}

func (a asking) ServeHTTP(w http.ResponseWriter, r *http.Request, next caddyhttp.Handler) error {
	question, err := http.NewRequestWithContext(r.Context(), http.MethodGet, "http://"+a.Server, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(question)
	if err != nil {
		return err
	}
	resp.Body.Close()
	return next.ServeHTTP(w, r)
}

func TestOutcome_AHandlerThatAsksAnotherServerFirstPreventsNoRequestButASecond(t *testing.T) {
	for name, c := range map[string]struct {
		first  string // the upstream's response
		status int
		state  onlyonce.State
	}{
		"made":   {response(201, "made"), 201, onlyonce.StateCompleted},
		"breaks": {breaks, 502, onlyonce.StateUnknown},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			asked, questions := rawUpstream(t, func(int, *http.Request) string { return response(204, "") })
			address, requests := rawUpstream(t, func(n int, _ *http.Request) string {
				if n == 1 {
					return c.first
				}
				return response(201, "made")
			})
			s.serve(s.once() + "asking " + asked + "\nreverse_proxy " + address + " {\nlb_retries 2\nlb_try_interval 1ms\nrequest_buffers 4KiB\nlb_retry_match {\nmethod POST\n}\n}")
			s.want(s.post("k", "a"), c.status, "", false)
			wantState(t, c.state)
			if requests.Load() != 1 || questions.Load() != 1 {
				t.Errorf("%d requests, %d questions", requests.Load(), questions.Load())
			}
		})
	}
}

// h2cUpstream starts an upstream that speaks HTTP/2 without TLS.
func h2cUpstream(t *testing.T, h http.HandlerFunc) (address string) {
	up := httptest.NewUnstartedServer(h)
	up.Config.Protocols = new(http.Protocols)
	up.Config.Protocols.SetUnencryptedHTTP2(true)
	up.Start()
	t.Cleanup(up.Close)
	return up.Listener.Addr().String()
}

// Over HTTP/1, a connection that is closed may also end the retry before the cancellation does.
func TestOutcome_ARetryThatIsPreventedIsNoFailureOfTheOtherUpstream(t *testing.T) {
	s := newSite(t)
	busy := h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	var requests atomic.Int32
	other := h2cUpstream(t, func(w http.ResponseWriter, _ *http.Request) {
		requests.Add(1)
		w.WriteHeader(http.StatusCreated)
	})
	s.serve(s.once() + "reverse_proxy h2c://" + busy + " h2c://" + other + " {\nlb_policy first\nlb_retries 3\nlb_try_interval 1ms\nfail_duration 1h\nunhealthy_status 503\nrequest_buffers 4KiB\nlb_retry_match {\nexpression `{rp.status_code} == 503`\n}\n}")
	s.want(s.post("k", "a"), 503, "", false)
	if s.want(s.post("k2", "a"), 201, "", false); requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
}

func TestOutcome_ARetryThatIsPreventedLeavesItUnknownIfAnotherHandlerResponds(t *testing.T) {
	for name, c := range map[string]struct{ first, match string }{
		"after half a head": {"HTTP/1.1 201 Cre", "method POST"},
		"after a failure":   {response(503, "busy"), "expression `{rp.status_code} == 503`"},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newSite(t)
			address, requests := rawUpstream(t, func(n int, _ *http.Request) string {
				if n == 1 {
					return c.first
				}
				return response(201, "made")
			})
			s.serve(s.once() + "route {\nintercept {\n@4xx status 4xx\nhandle_response @4xx {\nrespond sorry 200\n}\n}\n" +
				"reverse_proxy " + address + " {\nlb_retries 2\nlb_try_interval 1ms\nrequest_buffers 4KiB\nlb_retry_match {\n" + c.match + "\n}\n}\n}")
			s.want(s.post("k", "a"), 200, "sorry", false)
			wantState(t, onlyonce.StateUnknown)
			if n := requests.Load(); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestOutcome_TheConnectionOfARetryIsClosedBeforeTheRequestIsWritten(t *testing.T) {
	for name, path := range map[string]string{"short": "/", "longer than the buffer of a connection": "/" + strings.Repeat("a", 10_000)} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			address, requests := rawUpstream(t, func(n int, _ *http.Request) string {
				if n == 1 {
					return breaks
				}
				return response(201, "made")
			})
			var sent sendTrace
			ctx := sent.observe(t.Context(), func(error) {}, caddy.NewReplacer()) // the request goes on after cancel
			client := new(http.Transport)
			t.Cleanup(client.CloseIdleConnections)
			for range 2 {
				r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+path, strings.NewReader("a"))
				if err != nil {
					t.Fatal(err)
				}
				if resp, err := client.RoundTrip(r); err == nil {
					resp.Body.Close()
					t.Error(resp.Status)
				}
			}
			if n := requests.Load(); n != 1 || !sent.again.Load() {
				t.Errorf("%d requests", n)
			}
		})
	}
}

func TestOutcome_ARetryThatIsPreventedLeavesASharedConnectionOpen(t *testing.T) {
	s := newSite(t)
	started, goOn := make(chan struct{}), make(chan struct{})
	address := h2cUpstream(t, func(w http.ResponseWriter, r *http.Request) {
		if body, _ := io.ReadAll(r.Body); string(body) != "slow" {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		close(started)
		<-goOn
		w.WriteHeader(http.StatusCreated)
	})
	s.serve(s.once() + "reverse_proxy h2c://" + address + " {\nlb_retries 2\nlb_try_interval 1ms\nrequest_buffers 4KiB\nlb_retry_match {\nexpression `{rp.status_code} == 503`\n}\n}")
	var slow sync.WaitGroup
	slow.Go(func() {
		got, err := s.send(http.MethodPost, "/orders", "slow", "Idempotency-Key", "slow")
		if s.want(got, 201, "", false); err != nil {
			t.Error(err)
		}
	})
	<-started
	for i := range 20 { // whether a request that was canceled gets a connection is left to chance
		s.want(s.post(fmt.Sprint(i), "a"), 503, "", false)
	}
	close(goOn)
	slow.Wait()
}

func TestOutcome_OverFastCGI(t *testing.T) {
	for name, c := range map[string]struct {
		responds int // 0: it cannot be reached
		state    onlyonce.State
	}{
		"unreachable":                            {0, ""},
		"bad gateway, and an unreachable server": {502, onlyonce.StateUnknown},
		"a response, and an unreachable server":  {200, onlyonce.StateUnknown},
		"unavailable, and no second request":     {503, onlyonce.StateFailed},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newSite(t)
			address, status := "127.0.0.1:"+testserver.FreePort(), 502
			if c.responds != 0 {
				l, err := net.Listen("tcp", "127.0.0.1:0")
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { l.Close() })
				go func() {
					_ = fcgi.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(c.responds) }))
				}()
				address, status = l.Addr().String(), max(c.responds, 502)
			}
			s.serve(s.once() + "reverse_proxy " + address + " {\ntransport fastcgi\nhandle_response {\nreverse_proxy 127.0.0.1:" + testserver.FreePort() + "\n}\n}")
			s.want(s.post("k", "a"), status, "", false)
			wantState(t, c.state)
		})
	}
}

// cutFastCGI starts a server that closes the connection of each request in the middle of its response.
func cutFastCGI(t *testing.T, half string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	serve := func(conn net.Conn) {
		defer conn.Close()
		for {
			var head [8]byte // version, type, ID, length of the content and of the padding, reserved
			if _, err := io.ReadFull(conn, head[:]); err != nil {
				return
			}
			length := int64(binary.BigEndian.Uint16(head[4:]))
			if _, err := io.CopyN(io.Discard, conn, length+int64(head[6])); err != nil {
				return
			}
			const stdin, stdout = 5, 6
			if head[1] == stdin && length == 0 { // the request is whole
				_, _ = conn.Write(append([]byte{1, stdout, 0, 1, 0, byte(len(half)), 0, 0}, half...))
				return
			}
		}
	}
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go serve(conn)
		}
	}()
	return l.Addr().String()
}

// Caddy's client takes the end of the connection for that of the response, unless it knows the length.
func TestOutcome_AFastCGIResponseThatBreaksOffIsUnknownIfItHasALength(t *testing.T) {
	for name, c := range map[string]struct {
		header string
		status int
		state  onlyonce.State
	}{
		"with a length": {"Content-Length: 9\r\n", 502, onlyonce.StateUnknown},
		"without one":   {"", 201, onlyonce.StateCompleted},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			s := newSite(t)
			s.serve(s.once() + "reverse_proxy " + cutFastCGI(t, "Status: 201 Created\r\n"+c.header+"\r\nhalf") + " {\ntransport fastcgi\n}")
			s.want(s.post("k", "a"), c.status, "", false)
			wantState(t, c.state)
		})
	}
}

func TestOutcome_ARetryAfterAConnectionThatFailsIsSafe(t *testing.T) {
	s := newSite(t)
	address, requests := rawUpstream(t, func(int, *http.Request) string { return response(201, "made") })
	s.serve(s.once() + "reverse_proxy 127.0.0.1:" + testserver.FreePort() + " " + address + " {\nlb_policy first\nlb_retries 3\nlb_try_interval 1ms\nfail_duration 1m\n}")
	s.want(s.post("k", "a"), 201, "made", false)
	if requests.Load() != 1 {
		t.Errorf("%d requests", requests.Load())
	}
}

func TestOutcome_AnUpstreamThatIsTooSlowLeavesItUnknown(t *testing.T) {
	s := newSite(t)
	end := make(chan struct{})
	address, _ := rawUpstream(t, func(int, *http.Request) string { <-end; return breaks })
	t.Cleanup(func() { close(end) })
	s.serve(s.once() + "reverse_proxy " + address + " {\ntransport http {\nresponse_header_timeout 20ms\n}\n}")
	s.want(s.post("k", "a"), 504, "", false)
	wantState(t, onlyonce.StateUnknown)
}

func TestOutcome_ServerSentEventsStreamAndAreReplayed(t *testing.T) {
	goOn := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "data: 1\n\n")
		w.(http.Flusher).Flush()
		<-goOn
		_, _ = io.WriteString(w, "data: 2\n\n")
	}))
	t.Cleanup(up.Close)
	s := newSite(t)
	s.serve(s.once() + "reverse_proxy " + strings.TrimPrefix(up.URL, "http://"))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, s.url()+"/orders", strings.NewReader("a"))
	r.Host = s.host
	r.Header.Set("Idempotency-Key", "k")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	from := bufio.NewReader(resp.Body)
	if line, err := from.ReadString('\n'); line != "data: 1\n" {
		t.Fatalf("%q, %v", line, err)
	}
	close(goOn)
	if rest, err := io.ReadAll(from); string(rest) != "\ndata: 2\n\n" {
		t.Errorf("%q, %v", rest, err)
	}
	s.want(s.post("k", "a"), 200, "data: 1\n\ndata: 2\n\n", true)
}

func TestOutcome_TheUpstreamGetsTheAttemptAndTheFenceAndNoneOfTheClients(t *testing.T) {
	s := newSite(t)
	var fence atomic.Value
	address, _ := rawUpstream(t, func(n int, r *http.Request) string {
		if n > 2 {
			return response(201, fmt.Sprintf("%q %q", r.Header[httpfield.Attempt], r.Header[httpfield.Fence]))
		}
		fence.Store(r.Header.Get(httpfield.Fence))
		if r.Header.Get("Grpc-Timeout")+r.Header.Get("Connect-Timeout-Ms") != "" {
			t.Errorf("the upstream gets the deadline of the client: %v", r.Header)
		}
		return response(503, r.Header.Get(httpfield.Attempt))
	})
	s.serve(s.once() + "reverse_proxy " + address)
	for attempt := range 2 {
		before, _ := fence.Load().(string)
		s.want(s.post("k", "a", httpfield.Attempt, "77", httpfield.Fence, "77", "Grpc-Timeout", "1S", "Connect-Timeout-Ms", "5"), 503, fmt.Sprint(attempt+1), false)
		if now := fence.Load().(string); now <= before || len(now) < 3 {
			t.Errorf("the fence is %q, after %q", now, before)
		}
	}
	if got, err := s.send(http.MethodPost, "/orders", "a", httpfield.Attempt, "77", httpfield.Fence, "77"); err != nil || got.body != "[] []" {
		t.Errorf("without a key, the upstream got %q, %v", got.body, err)
	}
}
