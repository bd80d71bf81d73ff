package main

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// peakMemory returns the most memory that the process has had resident, in bytes.
func peakMemory(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("no VmHWM in %s", text)
	}
	kib, _ := strconv.ParseInt(string(found[1]), 10, 64)
	return kib << 10
}

// underRace reports whether the program is built with the race detector.
func underRace() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.ContainsFunc(info.Settings, func(s debug.BuildSetting) bool { return s.Key == "-race" && s.Value == "true" })
}

func TestProxy_AThousandUploadsTakeLessThan200MiB(t *testing.T) {
	if underRace() {
		t.Skip("run without -race: the race detector needs several times the memory and the time")
	}
	const clients, most = 1000, 200 << 20
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
tenant: {header: X-Tenant-ID}
upstreams: [{url: UP}]
server: {header_timeout: 5m, body_timeout: 5m}
`)
	body := strings.Repeat("b", 1<<20)
	var ran, rejected atomic.Int32
	release := make(chan struct{})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			_ = c.SetDeadline(time.Now().Add(4 * time.Minute))
			go func() {
				half := len(body) / 2
				fmt.Fprintf(c, "POST /things HTTP/1.1\r\nHost: h\r\nX-Tenant-ID: t%d\r\nIdempotency-Key: k%d\r\nContent-Length: %d\r\n\r\n%s", i, i, len(body), body[:half])
				<-release
				fmt.Fprint(c, body[half:])
			}()
			res, err := http.ReadResponse(bufio.NewReader(c), nil)
			switch {
			case err != nil:
				t.Errorf("client %d: %v", i, err)
			case res.StatusCode == 201:
				ran.Add(1)
			case (res.StatusCode == 503 || res.StatusCode == 429) && res.Header.Get("Retry-After") != "":
				rejected.Add(1)
			default:
				t.Errorf("client %d: status %d, %v", i, res.StatusCode, res.Header)
			}
		})
	}
	const fit = 36 // three quarters of 48 MiB
	cmdtest.Until(t, "all but those that fit were rejected", func() bool { return rejected.Load() >= clients-fit })
	close(release)
	all.Wait()
	if ran.Load() == 0 || ran.Load()+rejected.Load() != clients || ran.Load() > fit {
		t.Errorf("%d ran, %d were rejected", ran.Load(), rejected.Load())
	}
	if got := s.do("POST", "/things", body, "Idempotency-Key", "after", "X-Tenant-ID", "t"); got.status != 201 {
		t.Errorf("afterwards one more gets %d %s", got.status, got.body)
	}
	peak := peakMemory(t, s.cmd.Process.Pid)
	t.Logf("%d ran, %d were rejected; the proxy had at most %d MiB", ran.Load(), rejected.Load(), peak>>20)
	if peak > most {
		t.Error("that is too much")
	}
}

func TestProxy_BodiesThatAreAnnouncedAndNeverSentKeepNoOtherTenantOut(t *testing.T) {
	up := newUpstreamServer(t)
	s, _ := startProxyFile(t, up.URL, `
admin: 127.0.0.1:0
tenant: {header: X-Tenant-ID}
upstreams: [{url: UP}]
server: {header_timeout: 5m, body_timeout: 5m}
`)
	const tenants, each, length = 5, 60, 1 << 20 // five times the memory
	for i := range tenants * each {
		c, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		fmt.Fprintf(c, "POST /things HTTP/1.1\r\nHost: h\r\nX-Tenant-ID: t%d\r\nIdempotency-Key: k%d\r\nContent-Length: %d\r\n\r\n", i%tenants, i, length)
	}
	s.at(s.adminURL(t)).counts(fmt.Sprintf(`onlyonce_proxy_active_requests %d`, tenants*each))
	for i := range 20 {
		body := strings.Repeat("b", length>>i)
		if got := s.do("POST", "/things", body, "Idempotency-Key", strconv.Itoa(i), "X-Tenant-ID", "other"); got.status != 201 {
			t.Errorf("%d bytes of another tenant: %d %s", len(body), got.status, got.body)
		}
	}
}
