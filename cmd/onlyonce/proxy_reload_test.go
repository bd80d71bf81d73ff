package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

const plainFile = `
tenant: {single: true}
upstreams: [{url: UP}]
`

func TestProxy_AReloadUnderLoadDropsNoRequest(t *testing.T) {
	t.Parallel()
	ups := []*upstream{newUpstreamServer(t), newUpstreamServer(t)}
	s, path := startProxyFile(t, ups[0].URL, plainFile)
	var stop atomic.Bool
	var sent, keys atomic.Int64
	var clients sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 16}}
	for range 8 {
		clients.Go(func() {
			for !stop.Load() {
				key := fmt.Sprintf("k-%d", keys.Add(1))
				var first string
				for range 2 {
					r, err := http.NewRequest(http.MethodPost, s.url+"/things", strings.NewReader("a"))
					if err != nil {
						t.Error(err)
						return
					}
					r.Header.Set("Idempotency-Key", key)
					resp, err := client.Do(r)
					if err != nil {
						t.Errorf("a request was dropped: %v", err)
						return
					}
					body, err := io.ReadAll(resp.Body)
					resp.Body.Close()
					if err != nil || resp.StatusCode != 201 || first != "" && string(body) != first {
						t.Errorf("%s: %s %q after %q, %v", key, resp.Status, body, first, err)
						return
					}
					first = string(body)
					sent.Add(1)
				}
			}
		})
	}
	const reloads = 30
	for n := range reloads {
		text := strings.ReplaceAll(plainFile, "UP", ups[(n+1)%2].URL)
		if n%3 == 0 {
			text += "defaults: {headers: {response: {add: {X-N: \"" + fmt.Sprint(n) + "\"}}}}\nroutes: [{match: POST /things}]\n"
		}
		cmdtest.WriteFile(t, path, text)
		before := sent.Load()
		s.signal(syscall.SIGHUP)
		cmdtest.Until(t, "the settings are in place", func() bool {
			return strings.Count(s.log.String(), "the settings were read again and are in place") == n+1
		})
		cmdtest.Until(t, "requests go on", func() bool { return sent.Load() > before+16 || t.Failed() })
	}
	stop.Store(true)
	clients.Wait()
	if ups[0].runs() == 0 || ups[1].runs() == 0 || ups[0].runs()+ups[1].runs() != int(keys.Load()) {
		t.Errorf("%d keys ran %d and %d times", keys.Load(), ups[0].runs(), ups[1].runs())
	}
	t.Logf("%d requests during %d reloads", sent.Load(), reloads)
}

func TestProxy_ARequestThatRunsEndsByTheSettingsWithWhichItBegan(t *testing.T) {
	t.Parallel()
	up, other := newUpstreamServer(t), newUpstreamServer(t)
	up.hold = make(chan struct{})
	s, path := startProxyFile(t, up.URL, plainFile+"defaults: {headers: {response: {add: {X-Settings: old}}}}\n")
	got := make(chan answer, 1)
	go func() { got <- s.send("k", "a") }()
	cmdtest.Until(t, "the upstream works", func() bool { return up.runs() == 1 })
	cmdtest.WriteFile(t, path, strings.ReplaceAll(plainFile, "UP", other.URL))
	s.signal(syscall.SIGHUP)
	s.logs(t, "the settings were read again and are in place")
	if a := s.send("k", "a"); a.status != 409 {
		t.Errorf("the repeat of the running command: %+v", a)
	}
	if a := s.send("new", "a"); a.status != 201 || other.runs() != 1 || a.header.Get("X-Settings") != "" {
		t.Errorf("a new request: %+v", a)
	}
	close(up.hold)
	if a := <-got; a.status != 201 || a.body != "run 1 of a" || a.header.Get("X-Settings") != "old" {
		t.Errorf("%+v", a)
	}
	if a := s.send("k", "a"); a.body != "run 1 of a" || other.runs() != 1 {
		t.Errorf("the repeat: %+v", a)
	}
}

func TestProxy_AFileThatIsNotRightChangesNothing(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, path := startProxyFile(t, up.URL, plainFile, "--admin", "127.0.0.1:0")
	for n, text := range []string{"tenant: {single: true}\nupstreams: [{url: 1}]\ndefaults: {keep: x}", "a: [", "tenant: {jwt: {claim: a, jwks: missing.json}}\nupstreams: [{url: \"http://a\"}]"} {
		cmdtest.WriteFile(t, path, text)
		s.signal(syscall.SIGHUP)
		cmdtest.Until(t, "the mistakes are logged", func() bool {
			return strings.Contains(s.at(s.adminURL(t)).get("/metrics").body, fmt.Sprintf("onlyonce_proxy_reloads_total{result=\"failed\"} %d\n", n+1))
		})
		if got := s.send(fmt.Sprintf("k-%d", n), "a"); got.status != 201 {
			t.Errorf("after %q: %+v", text, got)
		}
	}
	for _, want := range []string{path + ":3: defaults.keep: ", path + ":1: tenant.jwt.jwks: read the public keys: ", "this is not YAML", "the old ones stay"} {
		s.logs(t, want)
	}
}

func TestProxy_WhatCannotBeReloadedIsNamed(t *testing.T) {
	t.Parallel()
	up := newUpstreamServer(t)
	s, path := startProxyFile(t, up.URL, plainFile)
	cmdtest.WriteFile(t, path, strings.ReplaceAll(plainFile, "UP", up.URL)+"log_format: text\nstore: {purge_every: 1h}\nserver: {idle_timeout: 1s, body_timeout: 3s}\n")
	for n := range 2 { // each time, until it is started again
		s.signal(syscall.SIGHUP)
		cmdtest.Until(t, "they are named", func() bool {
			return strings.Count(s.log.String(), `"some changed settings take effect only after a restart","settings":["log_format","store","server.idle_timeout"]`) == n+1
		})
	}
}
