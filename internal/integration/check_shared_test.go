package integration

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onlyonce-go/onlyonce/internal/needs"
)

// noteService is a service that counts its notes and knows nothing of keys.
func noteService(t *testing.T) (url string) {
	t.Helper()
	var made atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("POST /{operation}", func(w http.ResponseWriter, r *http.Request) {
		var body struct{ Note string }
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			http.Error(w, "this is no note", http.StatusBadRequest)
			return
		}
		n := made.Add(1)
		time.Sleep(60 * time.Millisecond) // so that a repeat can overtake it
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		fmt.Fprintf(w, `{"n":%d}`, n)
	})
	mux.HandleFunc("GET /n", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"n":%d}`, made.Load()) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s.URL
}

func TestProxy_CheckAndBenchFindNothingOnAnySharedStore(t *testing.T) {
	needs.Time(t)
	bin := buildServer(t)
	for name, store := range sharedStores {
		t.Run(name, func(t *testing.T) {
			u := store(t)
			p := startProxy(t, bin, noteService(t), u)
			for _, args := range [][]string{
				{"check", p.url + "/n", "--yes-it-may-write", "--body", `{"note":"{{fresh}}"}`, "--count-url", "/n", "--count", "/n", "--other-path", "/m"},
				{"bench", u, "--duration", "500ms", "--callers", "8", "--duplicates", "0.3"},
			} {
				if out, err := exec.CommandContext(t.Context(), bin, args...).CombinedOutput(); err != nil {
					t.Errorf("onlyonce %s: %v\n%s", args[0], err, out)
				}
			}
		})
	}
}
