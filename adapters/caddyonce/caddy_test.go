package caddyonce

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/caddy/v2"
	"github.com/caddyserver/caddy/v2/caddyconfig"
	_ "github.com/caddyserver/caddy/v2/modules/caddyhttp/standard"
	_ "github.com/caddyserver/caddy/v2/modules/filestorage"
	_ "github.com/caddyserver/caddy/v2/modules/logging"
	_ "github.com/caddyserver/caddy/v2/modules/metrics"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "caddyonce")
	if err != nil {
		panic(err)
	}
	for _, name := range []string{"HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME"} {
		os.Setenv(name, dir)
	}
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

// adapt returns the JSON of a Caddyfile.
func adapt(t *testing.T, text string) ([]byte, error) {
	t.Helper()
	cfg, warnings, err := caddyconfig.GetAdapter("caddyfile").Adapt([]byte(text), map[string]any{"filename": "Caddyfile"})
	for _, w := range warnings {
		if !strings.Contains(w.Message, "not formatted") {
			t.Errorf("warning: %v", w)
		}
	}
	return cfg, err
}

// load runs Caddy with a Caddyfile, instead of the one that it runs with.
func load(t *testing.T, text string) error {
	t.Helper()
	cfg, err := adapt(t, text)
	if err != nil {
		return err
	}
	t.Cleanup(func() {
		if err := caddy.Stop(); err != nil {
			t.Error(err)
		}
	})
	return caddy.Load(cfg, true)
}

// A site is one that Caddy serves. Each configuration listens on a port of its own: on the same port, the
// one that it replaces could still get a request.
type site struct {
	t     *testing.T
	port  string
	host  string // of requests
	store string // the URL of the store
	log   string // the file of Caddy's log
}

func newSite(t *testing.T) *site {
	dir := t.TempDir()
	return &site{t: t, port: testserver.FreePort(), host: "shop.example", store: "sqlite:" + filepath.Join(dir, "keys.db"), log: filepath.Join(dir, "log")}
}

func (s *site) url() string { return "http://127.0.0.1:" + s.port }

// caddyfile returns a Caddyfile with the directives of the site.
func (s *site) caddyfile(directives string) string {
	return fmt.Sprintf(`{
	admin off
	auto_https off
	persist_config off
	storage file_system %s
	log {
		output file %s
	}
}
http://:%s {
	bind 127.0.0.1
%s
}
`, filepath.Dir(s.log), s.log, s.port, directives)
}

// serve makes Caddy serve the site with these directives.
func (s *site) serve(directives string) {
	s.t.Helper()
	s.port = testserver.FreePort()
	if err := load(s.t, s.caddyfile(directives)); err != nil {
		s.t.Fatal(err)
	}
}

// soon bounds every wait; nothing takes as long.
const soon = time.Minute

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(soon); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never: ", what)
		}
	}
}

// once is the directive with the site's store and more settings.
func (s *site) once(settings ...string) string {
	return "onlyonce {\nstore " + s.store + "\nsingle_tenant\nunknown hold\n" + strings.Join(settings, "\n") + "\n}\n"
}

type reply struct {
	status int
	header http.Header
	body   string
}

func (r reply) replayed() bool { return r.header.Get("Idempotency-Replayed") == "true" }

// send sends a request with the names and values of headers.
func (s *site) send(method, path, body string, headers ...string) (reply, error) {
	s.t.Helper()
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.url()+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Host = s.host
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return reply{}, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return reply{resp.StatusCode, resp.Header, string(text)}, err
}

// post sends a command to /orders.
func (s *site) post(key, body string, headers ...string) reply {
	s.t.Helper()
	got, err := s.send(http.MethodPost, "/orders", body, append([]string{"Idempotency-Key", key}, headers...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return got
}

// want fails unless a reply has this status and a part of this body, and is a replay or not.
func (s *site) want(got reply, status int, body string, replayed bool) {
	s.t.Helper()
	if got.status != status || !strings.Contains(got.body, body) || got.replayed() != replayed {
		s.t.Errorf("got %d %q, %v, want %d %q, replayed %v", got.status, got.body, got.header, status, body, replayed)
	}
}

// records returns the records of all open stores.
func records(t *testing.T) (list []onlyonce.Record) {
	t.Helper()
	stores.Range(func(_, value any) bool {
		for rec, err := range value.(*pooled).records.(onlyonce.Lister).List(t.Context(), onlyonce.Filter{}) {
			if err != nil {
				t.Error(err)
			}
			list = append(list, rec)
		}
		return true
	})
	return list
}

// wantState fails unless the only record is in a state; "": there is none.
func wantState(t *testing.T, want onlyonce.State) {
	t.Helper()
	list := records(t)
	if want == "" && len(list) == 0 || len(list) == 1 && list[0].State == want {
		return
	}
	t.Errorf("the records are %+v, want %q", list, want)
}

// breaks is the response of an upstream that closes the connection instead.
const breaks = ""

// rawUpstream starts an upstream whose nth request gets what respond returns, byte for byte. It closes the
// connection after a response that is not whole.
func rawUpstream(t *testing.T, respond func(n int, r *http.Request) (response string)) (address string, requests *atomic.Int32) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	requests = new(atomic.Int32)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				from := bufio.NewReader(conn)
				for {
					r, err := http.ReadRequest(from)
					if err != nil {
						return
					}
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						return
					}
					response := respond(int(requests.Add(1)), r)
					if _, err := io.WriteString(conn, response); err != nil {
						return
					}
					if _, err := readResponse(response); err != nil {
						return
					}
				}
			}()
		}
	}()
	return l.Addr().String(), requests
}

func readResponse(text string) ([]byte, error) {
	resp, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode < 200 {
		return nil, io.ErrUnexpectedEOF
	}
	return io.ReadAll(resp.Body)
}

// response writes one with a length.
func response(status int, body string) string {
	return fmt.Sprintf("HTTP/1.1 %d %s\r\nContent-Length: %d\r\n\r\n%s", status, http.StatusText(status), len(body), body)
}
