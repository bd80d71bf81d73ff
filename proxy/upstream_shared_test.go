package proxy

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"strings"
	"testing"
)

// TestUpstream_ARequestThatGetsAConnectionAsItIsGivenUpMayBeSent: net/http goes on with it.
func TestUpstream_ARequestThatGetsAConnectionAsItIsGivenUpMayBeSent(t *testing.T) {
	t.Parallel()
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.Protocols = new(http.Protocols)
	s.Config.Protocols.SetUnencryptedHTTP2(true)
	s.Start()
	t.Cleanup(s.Close)
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	held := make(chan struct{})
	defer close(held)
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) {
		cancel()
		<-held
	}})
	r, _ := http.NewRequestWithContext(ctx, "POST", s.URL, strings.NewReader("x"))
	if _, err := newUpstreamConns(&Upstream{URL: u, HTTP2: true}).RoundTrip(r); err == nil || isUnsent(err) {
		t.Errorf("error %v", err)
	}
}
