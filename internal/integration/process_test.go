package integration

import (
	"bufio"
	"bytes"
	"os/exec"
	"regexp"
	"testing"
)

// A process is "onlyonce serve", or proxy, on a free port.
type process struct {
	t     testing.TB
	cmd   *exec.Cmd
	url   string
	log   bytes.Buffer
	ended chan struct{} // closed once it has ended
}

var listening = regexp.MustCompile(`listens on (http://\S+)`)

// startProcess starts the binary on a directory of data and waits until it
// listens. It is killed at the end of the test at the latest.
func startProcess(t testing.TB, bin, data string, args ...string) *process {
	t.Helper()
	return launch(t, bin, append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data}, args...)...)
}

// startProxy starts a proxy before an upstream, for one tenant.
func startProxy(t *testing.T, bin, upstream, store string, args ...string) *process {
	t.Helper()
	return launch(t, bin, append([]string{"proxy", "--listen", "127.0.0.1:0", "--upstream", upstream, "--store", store, "--single-tenant"}, args...)...)
}

func launch(t testing.TB, bin string, args ...string) *process {
	t.Helper()
	p := &process{t: t, ended: make(chan struct{})}
	p.cmd = exec.Command(bin, args...)
	p.cmd.Stderr = &p.log
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for p.url == "" && lines.Scan() {
		if found := listening.FindStringSubmatch(lines.Text()); found != nil {
			p.url = found[1]
		}
	}
	go func() {
		defer close(p.ended)
		for lines.Scan() {
			continue // reads the rest of the output, so that the process does not block
		}
		_ = p.cmd.Wait() // killed
	}()
	t.Cleanup(p.kill)
	if p.url == "" {
		<-p.ended
		t.Fatalf("the server did not start:\n%s", &p.log)
	}
	return p
}

// kill ends the process as kill -9 does, and returns when it is gone.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.ended
}
