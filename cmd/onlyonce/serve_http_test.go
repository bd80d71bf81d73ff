package main

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/storeurl"
)

// A served is "onlyonce serve", or proxy, as a process of its own.
type served struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	data   string
	stdout string // all of it: nothing is printed after the start
	log    cmdtest.Buffer
	exited chan struct{}
}

var listensOn = regexp.MustCompile(`listens on (https?://\S+)`)

// startServe starts a server on a free port and waits until it listens.
func startServe(t *testing.T, data string, args ...string) *served {
	t.Helper()
	s := start(t, append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, args...)...)
	s.data = data
	return s
}

// start starts a server and waits until it listens.
func start(t *testing.T, args ...string) *served {
	t.Helper()
	return startWith(t, nil, args...)
}

// startWith is start with further environment variables.
func startWith(t *testing.T, env []string, args ...string) *served {
	t.Helper()
	s := &served{t: t, exited: make(chan struct{})}
	s.start(&s.log, env, args...)
	return s
}

// start starts the program, whose log goes to log.
func (s *served) start(log io.Writer, env []string, args ...string) {
	t := s.t
	t.Helper()
	s.cmd = exec.Command("onlyonce", args...)
	s.cmd.Stderr = log
	s.cmd.Env = append(os.Environ(), env...)
	out, err := s.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "SIG") {
			break
		}
	}
	s.stdout = text.String()
	go func() {
		defer close(s.exited)
		_ = s.cmd.Wait() // ProcessState has how it ended
	}()
	t.Cleanup(func() {
		_ = s.cmd.Process.Kill()
		<-s.exited
		if text := s.log.String(); strings.Contains(text, "WARNING: DATA RACE") { // with -race the server looks for them, too
			t.Error(text)
		}
	})
	found := listensOn.FindStringSubmatch(s.stdout)
	if found == nil {
		<-s.exited
		t.Fatalf("the server did not start:\n%s%s", s.stdout, s.log.String())
	}
	s.url = found[1]
}

func (s *served) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// wait waits until the server has ended.
func (s *served) wait() *os.ProcessState {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(cmdtest.Soon):
		s.t.Fatalf("the server still runs; its log:\n%s", s.log.String())
	}
	return s.cmd.ProcessState
}

// An answer is a response as a test sees it.
type answer struct {
	status int
	header http.Header
	body   string
	err    error
}

// post sends an item with a key.
func (s *served) post(key, title string) answer {
	body := `{"sku":"S-1","title":"` + title + `","status":"active"}`
	return s.do("POST", "/api/v1/items", body, "Idempotency-Key", key)
}

func (s *served) get(path string, header ...string) answer {
	return s.do("GET", path, "", header...)
}

// ready waits until the store has taken a probe in time, which a slow disk may not let it at once,
// and returns the response of /readyz.
func (s *served) ready() (got answer) {
	s.t.Helper()
	cmdtest.Until(s.t, "it is ready", func() bool {
		got = s.get("/readyz")
		return got.status == http.StatusOK
	})
	return got
}

// probe is get for an address that supervisors ask.
func (s *served) probe(path string) answer {
	s.t.Helper()
	if path == "/readyz" {
		return s.ready()
	}
	return s.get(path)
}

// do sends a request; header has names and values in turn.
func (s *served) do(method, path, body string, header ...string) answer {
	r, err := http.NewRequest(method, s.url+path, strings.NewReader(body))
	if err != nil {
		return answer{err: err}
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(r)
	if err != nil {
		return answer{err: err}
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return answer{resp.StatusCode, resp.Header, string(text), err}
}

// counts waits until the metrics have all of the lines, and returns them: a
// response may be counted a moment later.
func (s *served) counts(lines ...string) (text string) {
	s.t.Helper()
	var missing string
	cmdtest.Until(s.t, "all of the lines are in the metrics", func() bool {
		text = "\n" + s.get("/metrics").body
		at := slices.IndexFunc(lines, func(line string) bool { return !strings.Contains(text, "\n"+line+"\n") })
		if at < 0 {
			return true
		}
		if missing != lines[at] {
			missing = lines[at]
			s.t.Logf("not there yet: %s", missing)
		}
		return false
	})
	return text
}

// holdWriter takes the store's write lock, as another process could; nothing is
// written until the returned function is called.
func holdWriter(t *testing.T, data string) (release func()) {
	t.Helper()
	u, err := storeurl.Parse("sqlite:" + filepath.Join(data, "onlyonce.db"))
	if err != nil {
		t.Fatal(err)
	}
	db, err := u.OpenDB(context.Background(), false)
	if err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin() // at once the write lock: see storeurl.URL.DSN
	if err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
}
