//go:build linux

// Package faults starts database servers for tests, kills them, and cuts the connections
// between a store and its server.
package faults

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver

	"github.com/onlyonce-go/onlyonce/internal/testserver"
)

// timeout is how long a server may take to respond, or to copy the data of another, on a machine
// with much other load.
const timeout = 5 * time.Minute

// ErrMissing is the error of a server whose programs are not installed.
var ErrMissing = errors.New("install its programs")

// A Server is a database server of the test's own, which can be killed and restarted on the
// same data.
type Server struct {
	Kind  *Kind
	Port  string
	Admin *sql.DB
	Dir   string   // its data, its log and its socket
	Env   []string // of the server, from its next start on; nil: the environment of this program

	programs   map[string]string   // paths of the programs
	credential *syscall.Credential // of the user that runs the server; nil: the current user
	cmd        *exec.Cmd
	exited     chan struct{} // closed once it has ended
}

// New starts a server. Its data is a copy of a template, which it creates once in the shared
// directory. Close ends it.
func New(kind *Kind, shared string) (*Server, error) {
	programs := kind.findPrograms()
	if programs == nil {
		return nil, fmt.Errorf("%w: %v", ErrMissing, kind.programs)
	}
	dir, err := os.MkdirTemp("", "onlyonce")
	if err != nil {
		return nil, err
	}
	s := &Server{Kind: kind, programs: programs, Dir: dir}
	if err := s.open(shared); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func (s *Server) open(shared string) (err error) {
	s.Port = testserver.FreePort()
	if err := s.chownDir(); err != nil {
		return err
	}
	template, err := s.setUp(shared)
	if err != nil {
		return err
	}
	if out, err := exec.Command("cp", "-a", template, s.Data()).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the data of %s: %w\n%s", s.Kind.Name, err, out)
	}
	if s.Admin, err = Open(s.Kind.Driver, s.Kind.DSN(s.Port, "")); err != nil {
		return err
	}
	return s.Start()
}

// Close kills the server and deletes its data.
func (s *Server) Close() error {
	s.Kill()
	var err error
	if s.Admin != nil {
		err = s.Admin.Close()
	}
	return errors.Join(err, os.RemoveAll(s.Dir))
}

// Start starts the server and waits until it responds.
func (s *Server) Start() error {
	log, err := os.OpenFile(filepath.Join(s.Dir, "log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	s.cmd = s.command(s.Kind.run(s))
	s.cmd.Stdout, s.cmd.Stderr = log, log
	if err := s.cmd.Start(); err != nil {
		return err
	}
	cmd, exited := s.cmd, make(chan struct{})
	s.exited = exited
	go func() {
		defer close(exited)
		_ = cmd.Wait() // killed
	}()
	for end := time.Now().Add(timeout); ; time.Sleep(5 * time.Millisecond) {
		err := s.ping()
		if err == nil {
			return nil
		}
		select {
		case <-exited:
			return fmt.Errorf("%s ended: %w\n%s", s.Kind.Name, err, s.log())
		default:
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s does not respond: %w\n%s", s.Kind.Name, err, s.log())
		}
	}
}

func (s *Server) ping() error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout/4)
	defer cancel()
	return s.Admin.PingContext(ctx)
}

// Kill ends all of the server's processes as kill -9 does, and returns when they are gone.
// Data that they have not written is lost.
func (s *Server) Kill() {
	if s.exited == nil {
		return // it was not started
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

// Restart kills the server and starts it again.
func (s *Server) Restart() error {
	s.Kill()
	return s.Start()
}

// KillConnections kills each connection for which pick returns true, and returns their number.
func (s *Server) KillConnections(pick func() bool) (cut int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	conn, err := s.Admin.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	rows, err := conn.QueryContext(ctx, s.Kind.listKills)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	var statements []string
	for rows.Next() {
		var statement string
		if err := rows.Scan(&statement); err != nil {
			return 0, err
		}
		statements = append(statements, statement)
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	for _, statement := range statements {
		if pick() {
			cut++
			_, _ = conn.ExecContext(ctx, statement) // the connection may have ended by itself
		}
	}
	return cut, nil
}

// Address returns the address on which the server listens.
func (s *Server) Address() string { return net.JoinHostPort("127.0.0.1", s.Port) }

// Data returns the directory of the server's data.
func (s *Server) Data() string { return filepath.Join(s.Dir, "data") }

func (s *Server) log() string {
	text, _ := os.ReadFile(filepath.Join(s.Dir, "log"))
	return string(text[max(0, len(text)-4096):])
}

func (s *Server) command(args []string) *exec.Cmd {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env = s.Dir, s.Env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.credential}
	return cmd
}

// setUp returns the data of a server of this kind that was never used. It is created once in
// each shared directory.
func (s *Server) setUp(shared string) (data string, err error) {
	template := *s
	template.Dir = filepath.Join(shared, s.Kind.Driver)
	s.Kind.setups.Lock()
	defer s.Kind.setups.Unlock()
	err = os.Mkdir(template.Dir, 0o755) // another user runs the server
	if errors.Is(err, os.ErrExist) {
		return template.Data(), nil
	}
	if err == nil {
		err = template.chownDir()
	}
	if err != nil {
		return "", err
	}
	if out, err := template.command(s.Kind.setup(&template)).CombinedOutput(); err != nil {
		return "", errors.Join(fmt.Errorf("set up %s: %w\n%s", s.Kind.Name, err, out), os.RemoveAll(template.Dir))
	}
	return template.Data(), nil
}

// chownDir gives the directory to a user other than root, because the servers refuse to run as
// root.
func (s *Server) chownDir() error {
	if os.Getuid() != 0 {
		return nil
	}
	u, err := user.Lookup(s.Kind.user)
	if err != nil {
		u, err = user.Lookup("nobody")
	}
	if err != nil {
		return err
	}
	uid, _ := strconv.Atoi(u.Uid)
	gid, _ := strconv.Atoi(u.Gid)
	if err := os.Chown(s.Dir, uid, gid); err != nil {
		return err
	}
	s.credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return nil
}

// Open opens a pool whose driver does not log the errors that the tests cause.
func Open(driver, dsn string) (*sql.DB, error) {
	if driver != "mysql" {
		return sql.Open(driver, dsn)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}
