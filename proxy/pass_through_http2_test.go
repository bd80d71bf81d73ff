package proxy_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/proxy"
)

// clearHTTP2 speaks HTTP/2 in clear text.
func clearHTTP2() *http.Transport {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return &http.Transport{Protocols: p}
}

func TestPassThrough_GRPCPassesWithItsTrailersAndWhileBothSidesTalk(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		runs.Add(1)
		w.Header().Set("Content-Type", "application/grpc")
		w.Header().Set("Trailer", "Grpc-Status")
		http.NewResponseController(w).Flush()
		b := make([]byte, 1)
		for {
			if _, err := io.ReadFull(r.Body, b); err != nil {
				break
			}
			fmt.Fprintf(w, "%s %s %s;", b, r.Proto, r.Header.Get("Te"))
			http.NewResponseController(w).Flush()
		}
		w.Header().Set("Grpc-Status", "0")
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL)}, onlyonce.Config{}, nil)
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for range 2 { // a key changes nothing
		in, out := io.Pipe()
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", in)
		r.Header = http.Header{"Content-Type": {"application/grpc+proto"}, "Te": {"trailers"}, "Idempotency-Key": {"k"}}
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		response := bufio.NewReader(res.Body)
		for _, word := range []string{"a", "b"} {
			io.WriteString(out, word)
			if got, err := response.ReadString(';'); got != word+" HTTP/2.0 trailers;" {
				t.Fatal(got, err)
			}
		}
		out.Close()
		if rest, err := io.ReadAll(response); len(rest) > 0 || err != nil || res.Trailer.Get("Grpc-Status") != "0" {
			t.Errorf("%q %v %v", rest, err, res.Trailer)
		}
		res.Body.Close()
	}
	if runs.Load() != 2 {
		t.Errorf("%d runs", runs.Load())
	}
}

func TestPassThrough_TheFormOfGRPCIsNoWayRoundARequiredKey(t *testing.T) {
	addr := orders(t, upstream(t, func(http.ResponseWriter, *http.Request) { t.Error("it came through") }), onlyonce.Config{}, func(r *proxy.Route) { r.Idempotency.Required = true })
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
	r.Header.Set("Content-Type", "application/grpc")
	res, err := h2.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if res.StatusCode != 400 {
		t.Errorf("status %d", res.StatusCode)
	}
}

func TestPassThrough_HTTP2ClientsHaveTheSameProtection(t *testing.T) {
	var runs atomic.Int32
	addr := orders(t, upstream(t, counter(&runs)), onlyonce.Config{}, nil)
	h2 := clearHTTP2()
	defer h2.CloseIdleConnections()
	for range 2 {
		r, _ := http.NewRequestWithContext(t.Context(), "POST", "http://"+addr+"/v1/orders", strings.NewReader("x"))
		r.Header.Set("Idempotency-Key", "k")
		res, err := h2.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(res.Body)
		res.Body.Close()
		wantResponse(t, res, string(body), 201, "run 1, attempt 1, x")
	}
}

func TestPassThrough_AnUpstreamThatSpeaksHTTP2(t *testing.T) {
	var runs atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		switch n := runs.Add(1); {
		case string(body) == "abort" && n == 1:
			panic(http.ErrAbortHandler)
		default:
			fmt.Fprintf(w, "%s, attempt %s", r.Proto, r.Header.Get("Idempotency-Attempt"))
		}
	}))
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	defer s.Close()
	up := &proxy.Upstream{URL: parse(t, s.URL), HTTP2: true}
	addr := orders(t, up, onlyonce.Config{}, nil)
	res, body := post(t, addr, "k", "abort")
	wantProblem(t, res, body, 502, "upstream_failed", true)
	res, body = post(t, addr, "k", "abort")
	wantResponse(t, res, body, 200, "HTTP/2.0, attempt 2")
	res, body = post(t, addr, "empty", "")
	wantResponse(t, res, body, 200, "HTTP/2.0, attempt 1")
	s.Close()
	addr = orders(t, up, onlyonce.Config{}, nil) // which has no connection that is about to end
	res, body = post(t, addr, "gone", "x")
	wantProblem(t, res, body, 503, "upstream_unreachable", true)
}

func TestPassThrough_NoTransportSendsAKeyedRequestAgain(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if requests.Add(1) == 2 { // on a connection that was used before
			c, _, _ := http.NewResponseController(w).Hijack()
			c.Close()
		}
	}))
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL), TLS: &tls.Config{RootCAs: pool}, KeepIdle: time.Minute}, onlyonce.Config{}, nil)
	res, body := post(t, addr, "1", "")
	wantResponse(t, res, body, 200, "")
	res, body = post(t, addr, "2", "")
	wantProblem(t, res, body, 502, "upstream_failed", true)
	if requests.Load() != 2 {
		t.Errorf("%d requests", requests.Load())
	}
}

// TestPassThrough_AnUpstreamSetForHTTP2GetsNothingOverHTTP1: net/http would send keyed
// requests of different tenants over one connection then.
func TestPassThrough_AnUpstreamSetForHTTP2GetsNothingOverHTTP1(t *testing.T) {
	var requests atomic.Int32
	s := httptest.NewUnstartedServer(counter(&requests))
	s.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that are broken off
	s.StartTLS()
	defer s.Close()
	pool := x509.NewCertPool()
	pool.AddCert(s.Certificate())
	addr := orders(t, &proxy.Upstream{URL: parse(t, s.URL), TLS: &tls.Config{RootCAs: pool}, HTTP2: true, KeepIdle: time.Minute}, onlyonce.Config{HoldUnknown: true}, nil)
	for range 2 {
		res, body := post(t, addr, "k", "x")
		wantProblem(t, res, body, 503, "upstream_unreachable", true)
	}
	if res, body := post(t, addr, "", "x"); res.StatusCode != 502 {
		t.Errorf("without a key: %d %s", res.StatusCode, body)
	}
	if requests.Load() != 0 {
		t.Errorf("%d requests", requests.Load())
	}
}
