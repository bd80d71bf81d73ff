package sandboxes

import "testing"

// expireNow lets a sandbox's end be the second that has begun, and so at most a
// second ago.
func (w *world) expireNow(id string) {
	w.t.Helper()
	eventually(w.t, "the second has begun", func() bool {
		r, err := w.db.ExecContext(w.t.Context(), "UPDATE sandboxes_sandboxes SET expires_at = unixepoch() WHERE id = ? AND unixepoch('subsec') > unixepoch()", id)
		if err != nil {
			w.t.Fatal(err)
		}
		n, err := r.RowsAffected()
		return err == nil && n == 1
	})
}

func TestInstant_ASandboxExpiresAtTheInstantThatIsShownAndNotASecondLater(t *testing.T) {
	w := newWorld(t)
	s := w.start(w.create(`{"ttl":3600}`).ID)
	handle := w.handle(s.ID)
	for range 5 { // a second may end in between
		w.expireNow(s.ID)
		if got := w.get(s.ID); got.Status != "expired" {
			t.Fatalf("read back: %+v", got)
		}
	}
	w.expireNow(s.ID)
	w.extend(s.ID, `{"extend_by":600}`).want(t, 409, "sandbox_expired")
	w.expireNow(s.ID)
	w.send("POST", at(s.ID, "start"), "").want(t, 409, "sandbox_expired")
	w.expireNow(s.ID)
	w.send("POST", at(s.ID, "keepalive"), "").want(t, 409, "sandbox_expired")
	w.expireNow(s.ID)
	if got := w.send("GET", "/v1/sandboxes?status=expired", ""); got.Status != 200 || len(got.Body) < 100 {
		t.Errorf("the list of those that expired: %s", got.Body)
	}
	w.expireNow(s.ID)
	w.api.sweep(t.Context())
	if w.api.cfg.Runtime.Alive(handle) {
		t.Error("the session outlived its sandbox")
	}
}
