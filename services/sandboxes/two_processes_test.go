package sandboxes

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

// serveForTest is a server process on the database in dir. It says where it
// listens, and ends when its standard input does.
func serveForTest(dir string) {
	db, store, err := apitest.Open(context.Background(), dir)
	if err != nil {
		panic(err)
	}
	api, err := New(context.Background(), db, store, Config{Dir: filepath.Join(dir, "workspaces"), AllowAnonymous: true, Wait: time.Minute})
	if err != nil {
		panic(err)
	}
	fmt.Println(httptest.NewServer(api).URL)
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := api.Close(context.Background()); err != nil {
		panic(err)
	}
}

// A process is another server, on the world's database.
type process struct {
	t   *testing.T
	cmd *exec.Cmd
	url string
}

func newProcess(t *testing.T, dir string) *process {
	t.Helper()
	p := &process{t: t, cmd: exec.Command(os.Args[0])}
	p.cmd.Env = append(os.Environ(), "SANDBOXES_TEST_SERVER="+dir)
	p.cmd.Stderr = os.Stderr
	in, err := p.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = in.Close()
		_ = p.cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	p.url = strings.TrimSpace(line)
	return p
}

func (p *process) send(method, path, body, k string) reply {
	r, err := http.NewRequest(method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Error(err)
		return reply{}
	}
	r.Header.Set("Content-Type", "application/json")
	if k != "" {
		r.Header.Set(key, k)
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Error(err)
		return reply{}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		p.t.Error(err)
	}
	return newReply(p.t, response.StatusCode, response.Header, text)
}

func TestTwoProcesses_OnOneDatabaseOneKeyOneSandbox(t *testing.T) {
	w := newWorld(t)
	both := []*process{newProcess(t, w.dir), newProcess(t, w.dir)}
	for round := range 5 {
		replies := make([]reply, 16)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() {
				replies[i] = both[i%2].send("POST", "/v1/sandboxes", `{"ttl":3600}`, fmt.Sprint("k", round))
			})
		}
		wg.Wait()
		for _, r := range replies {
			same(t, replies[0], r)
		}
		if replies[0].Status != 201 {
			t.Error(replies[0].Body)
		}
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 5 {
		t.Errorf("%d sandboxes of 5 keys", n)
	}
}

func TestTwoProcesses_ExtendOneSandboxAndLoseNothing(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	both := []*process{newProcess(t, w.dir), newProcess(t, w.dir)}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			k := fmt.Sprint("k", i/2) // each key twice, once in each process
			if got := both[i%2].send("POST", at(s.ID, "extend_ttl"), `{"extend_by":60}`, k); got.Status != 200 {
				t.Error(got.Body)
			}
		})
	}
	wg.Wait()
	if now := w.get(s.ID); now.ExpiresAt.Sub(*s.ExpiresAt).Seconds() != 600 {
		t.Errorf("from %v to %v", s.ExpiresAt, now.ExpiresAt)
	}
}

func TestTwoProcesses_StartOneSessionAndEitherStopsIt(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	both := []*process{newProcess(t, w.dir), newProcess(t, w.dir)}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			if got := both[i%2].send("POST", at(s.ID, "start"), "", ""); got.sandbox.Status != "ready" {
				t.Error(got.Body)
			}
		})
	}
	wg.Wait()
	handle := w.handle(s.ID)
	if !running(handle) {
		t.Error("no session runs")
	}
	w.send("POST", at(s.ID, "stop"), "")
	if running(handle) {
		t.Error("a third server did not stop the session")
	}
}

func TestTwoProcesses_AResponseOutlivesItsServerAndTheSessionDoesNot(t *testing.T) {
	w := newWorld(t)
	p := newProcess(t, w.dir)
	first := p.send("POST", "/v1/sandboxes", `{"ttl":3600}`, "k1")
	p.send("POST", at(first.sandbox.ID, "start"), "", "")
	handle := w.handle(first.sandbox.ID)
	if err := p.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = p.cmd.Wait()
	eventually(t, "the session ends with its server", func() bool { return !running(handle) })
	later := openWorld(t, w.dir)
	if now := later.get(first.sandbox.ID); now.Status != "idle" || now.IdleExpiresAt != nil {
		t.Errorf("it is %+v", now)
	}
	same(t, first, later.send("POST", "/v1/sandboxes", `{"ttl":3600}`, key, "k1"))
	later.start(first.sandbox.ID)
}

func TestTwoProcesses_ASessionThatOutlivedItsServerIsEndedAtTheNextStart(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{}`)
	orphan, err := newProcesses().Start(t.Context(), Session{Dir: w.dir, Command: "sleep", Args: []string{"1000"}})
	if err != nil {
		t.Fatal(err)
	}
	dead := "1:1:another-boot/" + newID(serverIDs)
	w.exec("UPDATE sandboxes_sandboxes SET session_id = 'session-x', session_state = 'ready', session_server = ?, session_handle = ?, idle_expires_at = unixepoch() + 600", dead, orphan)
	openWorld(t, w.dir)
	if now := w.get(s.ID); now.Status != "idle" || now.IdleExpiresAt != nil || running(orphan) {
		t.Errorf("it is %+v, its process runs: %v", now, running(orphan))
	}
}

func TestTwoProcesses_ServersThatStartTogetherMakeTheTablesOnce(t *testing.T) {
	dir := t.TempDir()
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() { newProcess(t, dir) })
	}
	wg.Wait()
	w := openWorld(t, dir)
	w.create(`{}`)
	if n := w.count("SELECT max(version_id) FROM sandboxes_schema"); n != 1 {
		t.Errorf("version %d", n)
	}
}
