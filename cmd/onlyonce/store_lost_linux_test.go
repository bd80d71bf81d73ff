package main

import (
	"crypto/rand"
	"database/sql"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// A watched is a command that runs on a store, and says at its admin address how that is.
type watched struct {
	admin   *served
	log     *cmdtest.Buffer
	console *console // of the store; nil: the command has none
}

func (w watched) status() int { return w.admin.get("/readyz").status }

var storeHealth = regexp.MustCompile(`data-live="health"[^>]*>([^<]*)<`)

// health is the state of the store that the console shows.
func (w watched) health(t *testing.T) string {
	t.Helper()
	page := w.console.get("")
	found := storeHealth.FindStringSubmatch(page)
	if found == nil {
		t.Fatalf("the console says nothing about the store:\n%s", page)
	}
	return found[1]
}

// watch looks at the admin address of a process, and logs in to a console there.
func watch(t *testing.T, s *served, path string) watched {
	t.Helper()
	return watched{s.at(s.adminURL(t)), &s.log, openConsole(t, s, path, writersToken)}
}

// onStore starts each command that serves, on the store at u.
func onStore(t *testing.T, u string) map[string]watched {
	t.Helper()
	if _, err := command(t, "migrate", u); err != nil {
		t.Fatal(err)
	}
	up := newUpstreamServer(t)
	withConsole := []string{"--store", u, "--admin", "127.0.0.1:0", "--console-tokens", consoleTokens(t)}
	p := startProxy(t, up.URL, append(withConsole, "--single-tenant")...)
	s := startServe(t, t.TempDir(), withConsole...)
	r := startRelay(t, u)
	ofServe := "/console/"
	if !strings.HasPrefix(u, "sqlite:") {
		ofServe = "/orders-console/" // on a server are only the orders
	}
	found := map[string]watched{"proxy": watch(t, p, "/console/"), "serve": watch(t, s, ofServe), "relay": {admin: r.served, log: r.log}}
	for _, w := range found {
		w.admin.ready()
	}
	return found
}

// smallDisk mounts a file system of a few megabytes, and returns where it is.
func smallDisk(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	needs.Service(t, "the right to mount", syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=700"))
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fill writes a file that leaves no room on a disk, and returns a function that frees it.
func fill(t *testing.T, dir string) (free func()) {
	t.Helper()
	path := filepath.Join(dir, "filler")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = f.Write(make([]byte, 4096))
	}
	f.Close()
	return func() {
		if err := os.Remove(path); err != nil {
			t.Error(err)
		}
	}
}

const (
	lost  = `"level":"WARN","msg":"the store is unavailable`
	found = `"level":"INFO","msg":"the store is available again`
)

var storeName = regexp.MustCompile(`"store":"[^"]*"`)

// wantTurns fails unless a log says by turns that a store is lost and that it is back. It may
// say so more often than once: a store that is slow for seconds is lost, too.
func wantTurns(t *testing.T, name, log string) {
	t.Helper()
	isLost := make(map[string]bool)
	for line := range strings.Lines(log) {
		loss := strings.Contains(line, lost)
		if !loss && !strings.Contains(line, found) {
			continue
		}
		store := storeName.FindString(line)
		if isLost[store] == loss {
			t.Errorf("%s logs\n%s", name, log)
			return
		}
		isLost[store] = loss
	}
}

// lostAndFound checks that every command tells, without being asked, that its store is lost
// and of which kind the error is, and that it is back; and that it is not ready meanwhile. The
// console tells it, too.
func lostAndFound(t *testing.T, commands map[string]watched, kind string, lose, giveBack func()) {
	t.Helper()
	lose()
	returns := make(map[string]int)
	for name, w := range commands {
		cmdtest.Until(t, name+" logs the loss", func() bool { return strings.Contains(w.log.String(), lost) })
		cmdtest.Until(t, name+" is not ready", func() bool { return w.status() == 503 })
		returns[name] = strings.Count(w.log.String(), found)
		counted := regexp.MustCompile(`\nonlyonce_store_errors_total\{kind="` + kind + `",store="(main|orders)"\} [1-9]`)
		cmdtest.Until(t, name+" counts the errors", func() bool { return counted.MatchString(w.admin.get("/metrics").body) })
		if w.console != nil {
			cmdtest.Until(t, name+" shows the loss", func() bool { return w.health(t) == "Takes no commands" })
		}
	}
	for name, w := range commands {
		if strings.Count(w.log.String(), found) != returns[name] {
			t.Errorf("while the store is lost, %s logs\n%s", name, w.log)
		}
	}
	giveBack()
	for name, w := range commands {
		cmdtest.Until(t, name+" logs the return", func() bool { return strings.Count(w.log.String(), found) > returns[name] })
		cmdtest.Until(t, name+" is ready again", func() bool { return w.status() == 200 })
		if w.console != nil {
			cmdtest.Until(t, name+" shows the return", func() bool { return w.health(t) == "Healthy" })
		}
		wantTurns(t, name, w.log.String())
	}
}

func TestReady_ACommandIsNotReadyWhileTheDiskOfItsStoreIsFull(t *testing.T) {
	t.Parallel()
	dir := smallDisk(t)
	u := "sqlite:" + filepath.Join(dir, "records.db")
	commands := onStore(t, u)
	var free func()
	lostAndFound(t, commands, "full", func() { free = fill(t, dir) }, func() { free() })
	if out := onlyonceWith(nil, "records", "ls", u); strings.Contains(out, "readiness") {
		t.Errorf("the probes left\n%s", out)
	}
}

// newPostgresDatabase returns a database of its own, which is dropped at the end, and a
// function that executes statements elsewhere on its server; NAME stands for the database.
func newPostgresDatabase(t *testing.T) (u string, exec func(statement string)) {
	t.Helper()
	schema, err := url.Parse(cmdtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("pgx", schema.String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	name := "onlyonce_" + strings.ToLower(rand.Text())
	exec = func(statement string) {
		if _, err := db.Exec(strings.ReplaceAll(statement, "NAME", name)); err != nil {
			t.Error(err)
		}
	}
	exec("CREATE DATABASE NAME")
	t.Cleanup(func() { exec("DROP DATABASE NAME WITH (FORCE)") })
	own := *schema
	own.Path = "/" + name
	query := own.Query()
	query.Del("search_path")
	own.RawQuery = query.Encode()
	return own.String(), exec
}

func TestReady_ACommandIsNotReadyWhileItsDatabaseIsReadOnly(t *testing.T) {
	t.Parallel()
	u, exec := newPostgresDatabase(t)
	set := func(readOnly string) func() {
		return func() {
			exec("ALTER DATABASE NAME SET default_transaction_read_only = " + readOnly)
			exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = 'NAME'")
		}
	}
	lostAndFound(t, onStore(t, u), "read_only", set("on"), set("off"))
}

// A gate leads to a server, until it is shut.
type gate struct {
	server string
	shut   atomic.Bool
	mu     sync.Mutex
	open   []net.Conn
}

func newGate(t *testing.T, server string) (g *gate, address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	g = &gate{server: server}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			g.lead(client)
		}
	}()
	return g, l.Addr().String()
}

func (g *gate) lead(client net.Conn) {
	g.mu.Lock()
	defer g.mu.Unlock()
	server, err := net.Dial("tcp", g.server)
	if err != nil || g.shut.Load() {
		_ = client.Close()
		return
	}
	g.open = append(g.open, client, server)
	go func() { _, _ = io.Copy(server, client); _ = server.Close() }()
	go func() { _, _ = io.Copy(client, server); _ = client.Close() }()
}

// stop closes all connections, and accepts no others.
func (g *gate) stop() {
	g.shut.Store(true)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.open {
		_ = c.Close()
	}
}

func TestReady_ACommandIsNotReadyWhileItsServerIsStopped(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(cmdtest.NewPostgresURL(t))
	if err != nil {
		t.Fatal(err)
	}
	g, address := newGate(t, u.Host)
	u.Host = address
	lostAndFound(t, onStore(t, u.String()), "unavailable", g.stop, func() { g.shut.Store(false) })
}
