package main

import (
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/cmd/onlyonce/internal/cmdtest"
)

// A relayed is "onlyonce relay", as a process of its own, with an admin address.
type relayed struct {
	*served
	log *cmdtest.Buffer
}

var relayAdminAt = regexp.MustCompile(`"admin address is listening","address":"([^"]+)"`)

// startRelay starts a relay on a store that is there, for a broker that is not.
func startRelay(t *testing.T, store string) *relayed {
	t.Helper()
	cmd := exec.Command("onlyonce", "relay", "--store", store, "--broker", "nats://127.0.0.1:1", "--admin", "127.0.0.1:0")
	r := &relayed{served: &served{t: t, cmd: cmd}, log: &cmdtest.Buffer{}}
	cmd.Stderr = r.log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		if err := cmd.Wait(); err != nil {
			t.Errorf("%v; log:\n%s", err, r.log)
		}
	})
	cmdtest.Until(t, "the relay says where it can be asked", func() bool {
		found := relayAdminAt.FindStringSubmatch(r.log.String())
		if found != nil {
			r.url = "http://" + found[1]
		}
		return found != nil
	})
	return r
}

func TestRelay_ARelayReportsItsHealthOnItsAdminAddress(t *testing.T) {
	t.Parallel()
	s := startServe(t, t.TempDir(), "--broker", "nats://127.0.0.1:1") // which publishes nothing
	r := startRelay(t, "sqlite:"+s.data+"/onlyonce.db")
	for path, want := range map[string]string{"/healthz": "ok\n", "/readyz": "ready\n"} {
		if got := r.probe(path); got.status != 200 || got.body != want {
			t.Errorf("%s: %+v", path, got)
		}
	}
	if got := s.do("POST", "/orders", oneOrder, "Idempotency-Key", "k"); got.status != 201 {
		t.Fatalf("%+v", got)
	}
	r.counts("onlyonce_outbox_waiting 1", "onlyonce_outbox_parked 0", `onlyonce_outbox_messages_total{outcome="published"} 0`)
	if strings.Contains(r.get("/metrics").body, "onlyonce_idempotency") {
		t.Error("the relay has metrics of requests, of which it has none")
	}
}
