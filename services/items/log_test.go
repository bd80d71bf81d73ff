package items

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
)

func hashOf(body string) string {
	sum := sha256.Sum256([]byte(body))
	return hex.EncodeToString(sum[:])
}

func TestLog_AHitIsLogged(t *testing.T) {
	w := newWorld(t, Config{})
	first := w.post(mug, key, "k1")
	w.post(mug, key, "k1")
	lines := w.log.Lines(t, "idempotency_hit")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %s", len(lines), w.log)
	}
	l := lines[0]
	cached, err := time.Parse(time.RFC3339Nano, l["cached_at"].(string))
	if err != nil || time.Since(cached) > time.Hour || l["status_code"] != 201.0 || l["response_size"] != float64(len(first.Body)) {
		t.Errorf("the line is %v (%v)", l, err)
	}
	if k, _ := l["idempotency_key"].(string); len(k) != 16 {
		t.Errorf("the key appears as %q", k)
	}
}

func TestLog_AConflictIsLogged(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug, key, "k1")
	w.post(`{}`, key, "k1")
	lines := w.log.Lines(t, "idempotency_conflict")
	if len(lines) != 1 {
		t.Fatalf("%d lines: %s", len(lines), w.log)
	}
	l := lines[0]
	if l["error_code"] != "IDEMPOTENCY_KEY_CONFLICT" || l["existing_hash"] != hashOf(mug) || l["new_hash"] != hashOf(`{}`) || l["idempotency_key"] == nil {
		t.Errorf("the line is %v", l)
	}
}

func TestLog_ARejectionWhileTheFirstRunsIsLogged(t *testing.T) {
	w := newWorld(t, Config{})
	held := apitest.Hold(w.store)
	w = w.with(held, Config{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.post(mug, key, "k1")
	}()
	<-held.Running
	w.post(mug, key, "k1")
	close(held.LetGo)
	<-done
	if lines := w.log.Lines(t, "idempotency_in_flight"); len(lines) != 1 || lines[0]["error_code"] != "IDEMPOTENCY_KEY_IN_PROGRESS" {
		t.Errorf("the lines are %v", lines)
	}
}

func TestSecurity_KeysAndBodiesAreNotLogged(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(mug, key, "customer-4711")
	w.post(mug, key, "customer-4711")
	w.post(`{"sku":"secret"}`, key, "customer-4711")
	w.post(mug, key, "forged\nline")
	for _, secret := range []string{"customer", "MUG-1", "secret", "forged"} {
		if strings.Contains(w.log.String(), secret) {
			t.Errorf("the log has %q:\n%s", secret, w.log)
		}
	}
}

func TestLog_ABodyThatIsNotValidIsLoggedAsReleased(t *testing.T) {
	w := newWorld(t, Config{})
	w.post(`{}`, key, "k1")
	lines := w.log.Lines(t, "idempotency_released")
	if len(lines) != 1 || lines[0]["level"] != "INFO" || strings.Contains(w.log.String(), "idempotency_executed") {
		t.Errorf("the log is %s", w.log)
	}
}
