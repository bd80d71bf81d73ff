package sandboxes

import "testing"

func TestLog_AHitIsLoggedWithTheSizeOfTheBody(t *testing.T) {
	w := newWorld(t)
	s := w.create(`{"ttl":3600}`)
	w.expire(s.ID)
	for path, body := range map[string]string{"/v1/sandboxes": `{}`, at(s.ID, "extend_ttl"): `{"extend_by":60}`} {
		logged := len(w.log.Lines(t, "idempotency_hit"))
		k := path[len(path)-5:]
		w.send("POST", path, body, key, k)
		again := w.send("POST", path, body, key, k)
		lines := w.log.Lines(t, "idempotency_hit")
		if len(lines) != logged+1 {
			t.Fatalf("%d lines tell of hits, want %d", len(lines), logged+1)
		}
		last := lines[logged]
		if last["response_size"] != float64(len(again.Body)) || last["status_code"] != float64(again.Status) {
			t.Errorf("%s: logged %v of %d bytes, status %v of %d", path, last["response_size"], len(again.Body), last["status_code"], again.Status)
		}
	}
}
