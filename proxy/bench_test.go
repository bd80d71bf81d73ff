package proxy_test

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
	"github.com/onlyonce-go/onlyonce/internal/processortime"
	"github.com/onlyonce-go/onlyonce/proxy"
	"github.com/onlyonce-go/onlyonce/stores/memstore"
)

// TestMain runs the tests, or is one of the processes that BenchmarkProxy measures.
func TestMain(m *testing.M) {
	switch role := os.Getenv("PROXY_BENCH"); role {
	case "upstream":
		response := bytes.Repeat([]byte("y"), 512)
		announce(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusCreated)
			w.Write(response)
		}), false)
	case "bare", "pooled":
		u, _ := url.Parse(os.Getenv("PROXY_BENCH_URL"))
		bare := &httputil.ReverseProxy{
			Rewrite:   func(pr *httputil.ProxyRequest) { pr.SetURL(u); pr.SetXForwarded() },
			Transport: &http.Transport{MaxIdleConns: 256, MaxIdleConnsPerHost: 256, DisableCompression: true},
		}
		if role == "pooled" {
			bare.BufferPool = &pooled{sync.Pool{New: func() any { return new([32 << 10]byte) }}}
		}
		announce(bare, false)
	case "onlyonce":
		u, _ := url.Parse(os.Getenv("PROXY_BENCH_URL"))
		guard := onlyonce.New(memstore.New(memstore.Config{MaxBytes: 1 << 40}), onlyonce.Config{Keep: time.Minute, Wait: time.Minute})
		announce(proxy.New([]proxy.Route{
			{Method: "POST", Pattern: "/v1/orders", Upstream: &proxy.Upstream{URL: u}, Guard: guard, Idempotency: httponce.Config{Tenant: httponce.SingleTenant, MaxNewKeys: math.MaxInt, MaxStored: math.MaxInt64 / 4}},
		}, proxy.Config{}), true)
	default:
		os.Exit(m.Run())
	}
}

// announce serves h, and writes where to the standard output; it ends with the
// process that started it.
func announce(h http.Handler, guarded bool) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(l.Addr())
	go func() {
		io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	if guarded {
		log.Fatal(proxy.Server(h).Serve(proxy.Listen(l, nil)))
	}
	log.Fatal((&http.Server{Handler: h}).Serve(l))
}

// pooled is a BufferPool, the one thing that makes httputil.ReverseProxy faster.
type pooled struct{ sync.Pool }

func (p *pooled) Get() []byte  { return p.Pool.Get().(*[32 << 10]byte)[:] }
func (p *pooled) Put(b []byte) { p.Pool.Put((*[32 << 10]byte)(b)) }

// process starts this program as one of the processes, and returns its address
// and its number.
func process(b *testing.B, role, upstream string) (addr string, pid int) {
	b.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "PROXY_BENCH="+role, "PROXY_BENCH_URL=http://"+upstream)
	cmd.Stderr = os.Stderr
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		in.Close()
		cmd.Wait()
	})
	addr, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	return strings.TrimSpace(addr), cmd.Process.Pid
}

const benchCallers = 64

var benchKeys atomic.Int64

// A caller sends the same 1 KiB request over a connection of its own.
type caller struct {
	conn net.Conn
	in   *bufio.Reader
	out  []byte
	key  int // where in out it is; 0: there is none
}

func newCaller(b *testing.B, addr, key string) *caller {
	b.Helper()
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		b.Fatal(err)
	}
	c := &caller{conn: conn, in: bufio.NewReader(conn)}
	head := "POST /v1/orders HTTP/1.1\r\nHost: api.example\r\nUser-Agent: bench/1.0\r\nAccept: */*\r\nAuthorization: Bearer 0123456789abcdef\r\nContent-Type: application/json\r\nContent-Length: 1024\r\n"
	if key != "" {
		head += "Idempotency-Key: "
		if key == "new" {
			c.key = len(head)
			key = "0000000000000000"
		}
		head += key + "\r\n"
	}
	c.out = append([]byte(head+"\r\n"), bytes.Repeat([]byte("x"), 1024)...)
	return c
}

func (c *caller) send() error {
	if c.key > 0 {
		s := strconv.FormatInt(benchKeys.Add(1), 10)
		copy(c.out[c.key+16-len(s):], s)
	}
	if _, err := c.conn.Write(c.out); err != nil {
		return err
	}
	n := -1
	for i := 0; ; i++ {
		line, err := c.in.ReadSlice('\n')
		switch {
		case err != nil:
			return err
		case i == 0 && !bytes.HasPrefix(line, []byte("HTTP/1.1 201")):
			return fmt.Errorf("response %q", line)
		case len(line) == 2:
			_, err = c.in.Discard(n)
			return err
		case bytes.HasPrefix(line, []byte("Content-Length: ")):
			n, _ = strconv.Atoi(string(bytes.TrimSpace(line[16:])))
		}
	}
}

// BenchmarkProxy compares httputil.ReverseProxy alone, with and without a
// BufferPool, with a Proxy: requests with new keys, with none, and repeats.
// Upstream and proxies are processes of their own; they take turns, b.N of them,
// and what is reported are the medians: throughput against the bare one's of the
// same turn, and the proxy's processor time for a request.
func BenchmarkProxy(b *testing.B) {
	up, upPID := process(b, "upstream", "")
	bare, barePID := process(b, "bare", up)
	pooled, pooledPID := process(b, "pooled", up)
	once, oncePID := process(b, "onlyonce", up)
	kinds := []struct {
		name, addr, key string
		pid             int
	}{
		{"bare", bare, "", barePID},
		{"pooled", pooled, "", pooledPID},
		{"unkeyed", once, "", oncePID},
		{"new", once, "new", oncePID},
		{"replay", once, "same", oncePID},
		{"direct", up, "", upPID},
	}
	const turn = 4000
	rates, costs := map[string][]float64{}, map[string][]float64{}
	for i := 0; b.Loop(); i++ {
		var first float64
		for _, k := range kinds {
			before := processorTime(b, k.pid)
			times := load(b, k.addr, k.key, turn, benchCallers, 0)
			rate := turn / times.took.Seconds()
			if k.name == "bare" {
				first = rate
			}
			if i > 0 || b.N == 1 { // the first turn makes the connections
				rates[k.name] = append(rates[k.name], rate/first)
				costs[k.name] = append(costs[k.name], float64((processorTime(b, k.pid)-before).Nanoseconds())/1000/turn)
			}
		}
	}
	for _, k := range kinds {
		b.ReportMetric(median(rates[k.name]), k.name+"-×bare")
		b.ReportMetric(median(costs[k.name]), k.name+"-cpu-µs")
	}
}

// BenchmarkAddedLatency compares the latencies of a Proxy for new keys with those
// of the upstream itself, and of httputil.ReverseProxy alone, at half of the load
// that the latter bears.
func BenchmarkAddedLatency(b *testing.B) {
	up, _ := process(b, "upstream", "")
	bare, _ := process(b, "bare", up)
	once, _ := process(b, "onlyonce", up)
	const turn = 4000
	most := load(b, bare, "", turn, benchCallers, 0).took
	pause := 2 * most * benchCallers / turn // between two requests of a caller
	added := map[string][]float64{}
	for b.Loop() {
		direct := load(b, up, "", turn, benchCallers, pause).latencies
		alone := load(b, bare, "", turn, benchCallers, pause).latencies
		ours := load(b, once, "new", turn, benchCallers, pause).latencies
		for name, at := range map[string]int{"p50": len(ours) / 2, "p99": len(ours) * 99 / 100} {
			added[name+"-over-direct-µs"] = append(added[name+"-over-direct-µs"], float64((ours[at] - direct[at]).Microseconds()))
			added[name+"-over-bare-µs"] = append(added[name+"-over-bare-µs"], float64((ours[at] - alone[at]).Microseconds()))
		}
	}
	for name, all := range added {
		b.ReportMetric(median(all), name)
	}
}

func median(all []float64) float64 {
	slices.Sort(all)
	return all[len(all)/2]
}

// processorTime returns the processor time that a process has used so far. It skips the
// benchmark if the system does not say.
func processorTime(b *testing.B, pid int) time.Duration {
	b.Helper()
	used, err := processortime.Of(pid)
	if err != nil {
		b.Skip(err)
	}
	return used
}

type loaded struct {
	took      time.Duration
	latencies []time.Duration // sorted
}

// load sends that many requests by several callers at once, as fast as they go, or
// one caller every pause.
func load(b *testing.B, addr, key string, requests, callers int, pause time.Duration) loaded {
	var left atomic.Int64
	left.Store(int64(requests))
	all := make([]*caller, callers)
	for i := range all {
		all[i] = newCaller(b, addr, key)
		defer all[i].conn.Close()
	}
	latencies := make([][]time.Duration, callers)
	var wg sync.WaitGroup
	start := time.Now()
	for i, c := range all {
		wg.Go(func() {
			next := start.Add(pause * time.Duration(i) / time.Duration(callers))
			for left.Add(-1) >= 0 {
				time.Sleep(time.Until(next))
				next = next.Add(pause)
				began := time.Now()
				if err := c.send(); err != nil {
					b.Error(err)
					return
				}
				latencies[i] = append(latencies[i], time.Since(began))
			}
		})
	}
	wg.Wait()
	l := loaded{time.Since(start), slices.Concat(latencies...)}
	slices.Sort(l.latencies)
	return l
}

// BenchmarkIdleConnections keeps 10,000 connections that have been used, and
// reports the memory that the proxy's process has then.
func BenchmarkIdleConnections(b *testing.B) {
	const connections = 10_000
	up, _ := process(b, "upstream", "")
	for b.Loop() {
		once, pid := process(b, "onlyonce", up)
		all := make([]*caller, connections)
		for i := range all {
			all[i] = newCaller(b, once, "new")
			if err := all[i].send(); err != nil {
				b.Fatal(err)
			}
		}
		status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			b.Skip("needs Linux, for /proc: ", err)
		}
		_, rest, _ := strings.Cut(string(status), "VmRSS:")
		kib, _ := strconv.ParseFloat(strings.Fields(rest)[0], 64)
		b.ReportMetric(kib/1024, "MiB")
		for _, c := range all {
			c.conn.Close()
		}
	}
}
