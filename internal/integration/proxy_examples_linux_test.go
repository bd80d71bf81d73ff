package integration

import (
	"encoding/json"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// examples are the servers of docs/examples, and how each is started.
var examples = []struct {
	language string
	program  string
	args     func(port string) []string
}{
	{"Python", "python3", func(port string) []string { return []string{"python/orders.py", port} }},
	{"Node", "node", func(port string) []string { return []string{"node/orders.mjs", port} }},
	{"PHP", "php", func(port string) []string { return []string{"-S", "127.0.0.1:" + port, "php/orders.php"} }},
}

func TestProxy_AServerInAnotherLanguageNeedsNoChange(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	for _, e := range examples {
		t.Run(e.language, func(t *testing.T) {
			program := needs.Program(t, e.program)
			port := testserver.FreePort()
			cmd := exec.Command(program, e.args(port)...)
			cmd.Dir = "../../docs/examples"
			cmd.Env = append(os.Environ(), "ORDERS="+filepath.Join(t.TempDir(), "orders.json"))
			end := startExample(t, cmd, port)
			p := startProxy(t, bin, "http://127.0.0.1:"+port, "sqlite:"+filepath.Join(t.TempDir(), "keys.db"), "--wait", answerLimit.String())
			tryOrders(t, p.url)
			end()
			if got := order(t, p.url, "after", `{"item":"lamp"}`); got.status != http.StatusServiceUnavailable || !strings.Contains(got.body, "upstream_unreachable") {
				t.Errorf("while the server is away: %+v", got)
			}
			if got := order(t, p.url, "once", `{"item":"lamp"}`); got.status != http.StatusCreated {
				t.Errorf("a repeat while the server is away: %+v", got)
			}
		})
	}
}

// startExample starts a server and waits until it listens; end kills it.
func startExample(t *testing.T, cmd *exec.Cmd, port string) (end func()) {
	t.Helper()
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	end = sync.OnceFunc(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed
	})
	t.Cleanup(end)
	for until := time.Now().Add(answerLimit); ; time.Sleep(10 * time.Millisecond) {
		conn, err := net.Dial("tcp", "127.0.0.1:"+port)
		if err == nil {
			conn.Close()
			return end
		}
		if time.Now().After(until) {
			end()
			t.Fatalf("the server does not listen: %v\n%s", err, &out)
		}
	}
}

type ordered struct {
	status   int
	body     string
	replayed bool
}

// order sends an order; key "": without one.
func order(t *testing.T, url, key, body string) ordered {
	t.Helper()
	r, err := http.NewRequest(http.MethodPost, url+"/orders", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Error(err)
		return ordered{}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Error(err)
	}
	return ordered{resp.StatusCode, string(text), resp.Header.Get("Idempotency-Replayed") == "true"}
}

// tryOrders orders once with a key that is sent often, and twice without one.
func tryOrders(t *testing.T, url string) {
	t.Helper()
	const lamp = `{"item":"lamp"}`
	if got := order(t, url, "bad", `{}`); got.status != http.StatusBadRequest {
		t.Errorf("an order of nothing: %+v", got)
	}
	var clients sync.WaitGroup
	var mu sync.Mutex
	answers := map[string]int{}
	for range 20 {
		clients.Go(func() {
			got := order(t, url, "once", lamp)
			mu.Lock()
			defer mu.Unlock()
			if got.status != http.StatusCreated {
				t.Errorf("%+v", got)
			}
			answers[got.body]++
		})
	}
	clients.Wait()
	if len(answers) != 1 {
		t.Errorf("the responses are %v", answers)
	}
	if got := order(t, url, "once", lamp); !got.replayed || answers[got.body] != 20 {
		t.Errorf("the repeat: %+v", got)
	}
	if got := order(t, url, "once", `{"item":"chair"}`); got.status != http.StatusUnprocessableEntity {
		t.Errorf("another order with the key: %+v", got)
	}
	for range 2 {
		if got := order(t, url, "", lamp); got.status != http.StatusCreated || got.replayed {
			t.Errorf("without a key: %+v", got)
		}
	}
	resp, err := http.Get(url + "/orders")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var orders []struct{ Item string }
	if err := json.NewDecoder(resp.Body).Decode(&orders); err != nil || len(orders) != 3 {
		t.Errorf("orders %v, %v; want one with a key and two without", orders, err)
	}
}
