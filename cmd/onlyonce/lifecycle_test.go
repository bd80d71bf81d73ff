package main

import (
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cli"
	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// inFlight sends a keyed request that can't finish before the lock is released,
// and returns once the server works on it.
func inFlight(t *testing.T, s *served, key string) <-chan answer {
	t.Helper()
	got := make(chan answer, 1)
	go func() { got <- s.post(key, "Lamp") }()
	cmdtest.Until(t, "the request is in flight", func() bool {
		return strings.Contains(s.get("/metrics").body, "\nonlyonce_idempotency_active_requests{api=\"items\"} 1\n")
	})
	return got
}

func TestLifecycle_AKeyedCommandInFlightFinishesWhenTheServerStops(t *testing.T) {
	for _, sig := range []os.Signal{syscall.SIGTERM, os.Interrupt} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			s := startServe(t, t.TempDir())
			release := holdWriter(t, s.data)
			defer release()
			got := inFlight(t, s, "k")
			s.signal(sig)
			cmdtest.Until(t, "the server stops", func() bool { return strings.Contains(s.log.String(), "stopping") })
			cmdtest.Until(t, "it accepts no more", func() bool { return s.get("/healthz").err != nil })
			release()
			first := <-got
			if first.status != 201 {
				t.Fatalf("response %+v", first)
			}
			if state := s.wait(); state.ExitCode() != cli.ExitOK {
				t.Errorf("%v; log:\n%s", state, s.log.String())
			}
			again := startServe(t, s.data).post("k", "Lamp")
			if again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
				t.Errorf("the repeat got %+v, the first %+v", again, first)
			}
		})
	}
}

func TestLifecycle_AServerWhoseLogNobodyReadsAnyMoreGoesOn(t *testing.T) {
	t.Parallel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &served{t: t, exited: make(chan struct{})}
	s.start(write, nil, "serve", "--listen", "127.0.0.1:0", "--data", t.TempDir())
	write.Close()
	read.Close()
	for range 3 { // the repeats are logged
		if got := s.post("k", "Lamp"); got.status != 201 {
			t.Fatalf("response %+v", got)
		}
	}
	s.signal(syscall.SIGTERM)
	if state := s.wait(); state.ExitCode() != cli.ExitOK {
		t.Errorf("ended with %v", state)
	}
}

func TestLifecycle_ASecondSignalEndsTheServerAtOnce(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir())
	release := holdWriter(t, s.data)
	defer release()
	got := inFlight(t, s, "k")
	s.signal(syscall.SIGTERM)
	cmdtest.Until(t, "the server stops", func() bool { return strings.Contains(s.log.String(), "stopping") })
	s.signal(syscall.SIGTERM)
	state := s.wait()
	if status, ok := state.Sys().(syscall.WaitStatus); !ok || !status.Signaled() || status.Signal() != syscall.SIGTERM {
		t.Errorf("ended with %v", state)
	}
	if a := <-got; a.err == nil {
		t.Errorf("response %+v", a)
	}
}

func TestLifecycle_AServerThatCannotFinishInTimeSaysSo(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--shutdown-timeout", "10ms")
	release := holdWriter(t, s.data)
	defer release()
	got := inFlight(t, s, "k")
	s.signal(syscall.SIGTERM)
	if a := <-got; a.err == nil {
		t.Errorf("response %+v", a)
	}
	release()
	if state := s.wait(); state.ExitCode() != cli.ExitFailed {
		t.Errorf("ended with %v", state)
	}
	if !strings.Contains(s.log.String(), "requests were still running after 10ms") {
		t.Errorf("log:\n%s", s.log.String())
	}
}
