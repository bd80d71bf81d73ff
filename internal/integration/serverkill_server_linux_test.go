package integration

import (
	"context"
	"database/sql"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// An ownServer is a database server of a test's own, which may be killed and
// started again on the same data.
type ownServer struct {
	kind     *serverKind
	programs map[string]string // as in its kind, but found
	dir      string            // its data, its log and its socket
	port     int
	as       *syscall.Credential // nil: who runs the test
	cmd      *exec.Cmd
	exited   chan struct{} // closed once it has ended
	admin    *sql.DB
}

// start starts the server and waits until it answers.
func (s *ownServer) start(t *testing.T) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	s.cmd = s.command(s.kind.run(s))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	cmd, exited := s.cmd, make(chan struct{})
	s.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	for end := time.Now().Add(answerLimit); ; time.Sleep(5 * time.Millisecond) {
		err := s.ping(t)
		if err == nil {
			return
		}
		select {
		case <-exited:
			t.Fatalf("%s ended: %v\n%s", s.kind.name, err, s.log())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("%s does not answer: %v\n%s", s.kind.name, err, s.log())
		}
	}
}

func (s *ownServer) ping(t *testing.T) error {
	ctx, cancel := context.WithTimeout(t.Context(), answerLimit/4)
	defer cancel()
	return s.admin.PingContext(ctx)
}

// kill ends all of the server's processes as kill -9 does, with what they had
// not written, and returns when they are gone.
func (s *ownServer) kill() {
	if s.exited == nil {
		return // it did not start
	}
	select {
	case <-s.exited:
		return
	default:
	}
	pid := s.cmd.Process.Pid
	_ = syscall.Kill(pid, syscall.SIGSTOP) // so that it makes no more children
	for stateOf(pid) == "R" || stateOf(pid) == "S" || stateOf(pid) == "D" {
		time.Sleep(time.Millisecond)
	}
	all := children(pid)
	for _, child := range all {
		_ = syscall.Kill(child, syscall.SIGKILL)
	}
	_ = syscall.Kill(pid, syscall.SIGKILL)
	<-s.exited
	for _, child := range all {
		for stateOf(child) != "" && stateOf(child) != "Z" {
			time.Sleep(time.Millisecond)
		}
	}
}

func (s *ownServer) restart(t *testing.T) {
	t.Helper()
	s.kill()
	s.start(t)
}

// children returns the processes that a process has started.
func children(parent int) (pids []int) {
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		pid, _ := strconv.Atoi(filepath.Base(process))
		if _, of := processStat(pid); of == parent {
			pids = append(pids, pid)
		}
	}
	return pids
}

func stateOf(pid int) string {
	state, _ := processStat(pid)
	return state
}

// processStat returns a process's state, as ps shows it, and its parent; nothing
// if there is none.
func processStat(pid int) (state string, parent int) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	_, after, _ := strings.Cut(string(text), ") ")
	fields := strings.Fields(after)
	parent, _ = strconv.Atoi(fields[1])
	return fields[0], parent
}

// cut ends the connections of all others.
func (s *ownServer) cut(t *testing.T) {
	t.Helper()
	conn, err := s.admin.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	rows, err := conn.QueryContext(t.Context(), s.kind.cut)
	if err != nil {
		t.Fatal(err)
	}
	var statements []string
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			t.Fatal(err)
		}
		statements = append(statements, statement)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		_, _ = conn.ExecContext(t.Context(), statement) // it may have gone by itself
	}
}

func (s *ownServer) address() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

func (s *ownServer) data() string { return filepath.Join(s.dir, "data") }

func (s *ownServer) log() string {
	text, _ := os.ReadFile(filepath.Join(s.dir, "log"))
	return string(text[max(0, len(text)-4096):])
}

func (s *ownServer) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = s.dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.as}
	return cmd
}

// newOwnServer starts a server, which is killed at the end.
func newOwnServer(t *testing.T, kind *serverKind) *ownServer {
	t.Helper()
	programs := kind.found()
	if programs == nil {
		service(t, kind.name, fmt.Errorf("install its programs: %v", kind.programs))
	}
	dir, err := os.MkdirTemp("", "onlyonce")
	if err != nil {
		t.Fatal(err)
	}
	s := &ownServer{kind: kind, programs: programs, dir: dir, port: freePort(t)}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s.giveAway(t)
	if out, err := exec.Command("cp", "-a", s.setUp(t), s.data()).CombinedOutput(); err != nil {
		t.Fatalf("copy the data of %s: %v\n%s", kind.name, err, out)
	}
	if s.admin, err = openQuietly(kind.driver, kind.dsn(s.port, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.admin.Close() })
	t.Cleanup(s.kill)
	s.start(t)
	return s
}

// setUp returns the data of a server of this kind that nobody has used.
func (s *ownServer) setUp(t *testing.T) (data string) {
	t.Helper()
	blank := *s
	blank.dir = filepath.Join(sharedDir(t), s.kind.driver)
	s.kind.once.Do(func() {
		if err := os.Mkdir(blank.dir, 0o755); err != nil { //nolint:gosec // another user runs the server
			t.Fatal(err)
		}
		blank.giveAway(t)
		if out, err := blank.command(s.kind.setup(&blank)).CombinedOutput(); err != nil {
			t.Fatalf("set up %s: %v\n%s", s.kind.name, err, out)
		}
	})
	return blank.data()
}

// giveAway gives the directory to somebody who is not root, whom servers refuse.
func (s *ownServer) giveAway(t *testing.T) {
	if os.Getuid() != 0 {
		return
	}
	u, err := user.Lookup(s.kind.user)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		t.Fatal(err)
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(s.dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	s.as = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// givenPorts are those that freePort has returned.
var givenPorts sync.Map

// freePort returns one that no client's connection is given: the server has to
// get it again when it is started again. It returns none twice.
func freePort(t *testing.T) int {
	t.Helper()
	for range 100 {
		port := 20000 + mathrand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		l.Close()
		if _, given := givenPorts.LoadOrStore(port, true); !given {
			return port
		}
	}
	t.Fatal("no free port")
	return 0
}
