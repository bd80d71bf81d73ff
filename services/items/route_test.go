package items

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

// postAs posts a body with one content type, or none.
func (w *world) postAs(media string) reply {
	w.t.Helper()
	r := httptest.NewRequest("POST", base, strings.NewReader(mug))
	if media != "" {
		r.Header.Set("Content-Type", media)
	}
	rec := httptest.NewRecorder()
	w.api.ServeHTTP(rec, r)
	return newReply(w.t, rec.Code, rec.Header(), rec.Body.Bytes())
}

func TestRoute_AnUnknownPathIsNotFound(t *testing.T) {
	w := newWorld(t, Config{})
	for _, p := range []string{"/", "/api/v1", base + "/", base + "/1/", base + "/1/x", "/api//v1/items", "/api/v1/x/../items"} {
		for _, method := range []string{"GET", "POST"} {
			w.send(method, p, "").want(t, 404, "NOT_FOUND")
		}
	}
}

func TestRoute_AMethodThatAPathDoesNotHaveIsRejected(t *testing.T) {
	w := newWorld(t, Config{})
	for call, allowed := range map[[2]string]string{
		{"PUT", base}: "GET, HEAD, POST", {"DELETE", base}: "GET, HEAD, POST", {"OPTIONS", base}: "GET, HEAD, POST",
		{"POST", base + "/1"}: "GET, HEAD", {"DELETE", base + "/1"}: "GET, HEAD",
	} {
		got := w.send(call[0], call[1], "", key, "k1")
		got.want(t, 405, "METHOD_NOT_ALLOWED")
		if got.Header.Get("Allow") != allowed {
			t.Errorf("%v: Allow is %q", call, got.Header.Get("Allow"))
		}
	}
}

func TestAPI_APanicIsAnInternalError(t *testing.T) {
	w := newWorld(t, Config{})
	w.api.Router = serving.NewRouter(w.api.cfg.Tenant, w.api.reject, map[string]serving.Methods{
		"/panic": {"GET": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })},
		"/abort": {"GET": http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })},
	})
	got := w.send("GET", "/panic", "")
	got.want(t, 500, "INTERNAL_ERROR")
	if strings.Contains(got.Body, "secret") || !strings.Contains(w.log.String(), "secret") {
		t.Error(got.Body)
	}
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("panic %v", p)
		}
	}()
	w.send("GET", "/abort", "")
}

func TestRoute_NonsenseInTheConfigPanics(t *testing.T) {
	defer func() {
		if p, _ := recover().(string); !strings.Contains(p, "Keep") {
			t.Errorf("panic %q", p)
		}
	}()
	Config{Keep: -1}.withDefaults()
}

func TestRoute_TheObserverGetsEveryDecision(t *testing.T) {
	var seen []onlyonce.Outcome
	w := newWorld(t, Config{})
	w = w.with(w.store, Config{Observer: func(_ context.Context, e onlyonce.Event) { seen = append(seen, e.Outcome) }})
	w.post(mug)
	w.post(mug, key, "k1")
	w.post(mug, key, "k1")
	w.post(`{}`, key, "k1")
	if got := fmt.Sprint(seen); got != "[executed replayed mismatch]" {
		t.Errorf("it was told of %s", got)
	}
}
