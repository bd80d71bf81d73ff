package integration

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"net/url"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/onlyonce-go/onlyonce/internal/dynalite"
	"github.com/onlyonce-go/onlyonce/internal/etcdserver"
	"github.com/onlyonce-go/onlyonce/internal/natsserver"
	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/redisserver"
)

// url is the URL that the command takes for the database.
func (d mysqlDatabase) url(t testing.TB) string {
	t.Helper()
	cfg, err := mysql.ParseDSN(d.dsn)
	if err != nil {
		t.Fatal(err)
	}
	user := url.User(cfg.User)
	if cfg.Passwd != "" {
		user = url.UserPassword(cfg.User, cfg.Passwd)
	}
	return (&url.URL{Scheme: "mysql", User: user, Host: cfg.Addr, Path: "/" + d.name}).String()
}

// sharedStores are those that several proxies can share from several machines.
var sharedStores = map[string]func(t *testing.T) string{
	"PostgreSQL":       func(t *testing.T) string { return newPostgresSchema(t).with(t) },
	"MariaDB or MySQL": func(t *testing.T) string { return newMySQLDatabase(t).url(t) },
	"Redis": func(t *testing.T) string {
		s, err := redisserver.Start()
		needs.Service(t, "Redis", err)
		t.Cleanup(func() { s.Close() })
		return setUp(t, "redis://"+s.Address())
	},
	"etcd": func(t *testing.T) string {
		s, err := etcdserver.Start()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return setUp(t, "etcd://"+s.Client)
	},
	"DynamoDB": func(t *testing.T) string {
		t.Setenv("AWS_ACCESS_KEY_ID", "key")
		t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
		return setUp(t, "dynamodb://eu-central-1/shop?accept_risks=ttl&endpoint=http://"+dynalite.Start(t).Address) // it has no time to live
	},
	"NATS": func(t *testing.T) string {
		s, err := natsserver.Start("jetstream { sync_interval: always }")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		return setUp(t, "nats://"+s.Address()+"?accept_risks=sync-interval") // only the system account can see it
	},
}

// setUp sets up a store that keeps only records, and returns its URL.
func setUp(t *testing.T, url string) string {
	t.Helper()
	if out, err := exec.Command(buildServer(t), "migrate", url).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return url
}

const (
	sharedProxies  = 3
	sharedRequests = 300
)

func TestProxy_ThreeProxiesOnOneStoreAskTheUpstreamOnce(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	for name, store := range sharedStores {
		t.Run(name, func(t *testing.T) {
			for what, args := range map[string][]string{"and all waiting clients get its response": {"--wait", "30s"}, "and all clients that retry get its response": nil} {
				t.Run(what, func(t *testing.T) {
					runs, answers, first := parallelRequests(t, bin, store(t), args...)
					if runs != 1 || len(answers) != 1 || first != 1 {
						t.Errorf("the upstream ran %d times; answers, and how often each was given: %v; %d of them not as a replay", runs, answers, first)
					}
				})
			}
		})
	}
	t.Run("without one store it is asked by each: the tests above can fail", func(t *testing.T) {
		runs, answers, _ := parallelRequests(t, bin, "memory://")
		if runs != sharedProxies || len(answers) != sharedProxies {
			t.Errorf("the upstream ran %d times; answers: %v", runs, answers)
		}
	})
}

// parallelRequests sends one key to all proxies at the same time. The upstream
// responds once every request is on its way. It returns how often that ran, how
// often each response was given, and how many of them were no replays.
func parallelRequests(t *testing.T, bin, store string, args ...string) (ran int64, answers map[string]int, first int) {
	t.Helper()
	var runs, sent atomic.Int64
	all := make(chan struct{})
	up := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := runs.Add(1)
		select {
		case <-all:
		case <-r.Context().Done():
		}
		w.Header().Set("X-Run", fmt.Sprint(n))
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, "run %d, fence %s", n, r.Header.Get("Idempotency-Fence"))
	}))
	defer up.Close()
	var proxies [sharedProxies]*process
	for i := range proxies {
		proxies[i] = startProxy(t, bin, up.URL, store, args...)
	}
	trace := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) {
		if sent.Add(1) == sharedRequests {
			close(all)
		}
	}})
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: sharedRequests}, Timeout: answerLimit + 20*time.Second}
	var mu sync.Mutex
	answers = map[string]int{}
	var clients sync.WaitGroup
	for i := range sharedRequests {
		clients.Go(func() {
			answer, replayed := untilCreated(trace, t, client, proxies[i%sharedProxies].url)
			mu.Lock()
			defer mu.Unlock()
			answers[answer]++
			if !replayed {
				first++
			}
		})
	}
	clients.Wait()
	return runs.Load(), answers, first
}

// untilCreated asks until the response is there, and no longer in flight.
func untilCreated(ctx context.Context, t *testing.T, client *http.Client, url string) (answer string, replayed bool) {
	for end := time.Now().Add(answerLimit); ; time.Sleep(50 * time.Millisecond) {
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/orders", strings.NewReader(`{"n":1}`))
		if err != nil {
			t.Error(err)
			return "", false
		}
		r.Header.Set("Idempotency-Key", "one")
		resp, err := client.Do(r)
		if err != nil {
			t.Error(err)
			return "", false
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		switch {
		case err != nil:
			t.Error(err)
			return "", false
		case resp.StatusCode == http.StatusConflict && strings.Contains(string(body), "request_in_progress") && time.Now().Before(end):
			continue
		}
		return fmt.Sprintf("%d %s %s", resp.StatusCode, resp.Header.Get("X-Run"), body), resp.Header.Get("Idempotency-Replayed") == "true"
	}
}
