package sandboxes

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/onlyonce-go/onlyonce/services/internal/apitest"
	"github.com/onlyonce-go/onlyonce/services/internal/serving"
)

func TestRoute_AnUnknownPathIsNotFound(t *testing.T) {
	w := newWorld(t)
	id := newID(sandboxIDs)
	for _, path := range []string{"/", "/v1", "/v1/sandboxes/", "/v1/sandboxes/" + id + "/", "/v1/sandboxes/" + id + "/reboot", "/v1//sandboxes", "/v1/x/../sandboxes", "/v1/sandboxes/" + id + "/start/x"} {
		for _, method := range []string{"GET", "POST"} {
			w.send(method, path, "").want(t, 404, "not_found")
		}
	}
}

func TestRoute_AMethodThatAPathDoesNotHaveIsRejected(t *testing.T) {
	w := newWorld(t)
	id := newID(sandboxIDs)
	for call, allowed := range map[[2]string]string{
		{"DELETE", "/v1/sandboxes"}:        "GET, HEAD, POST",
		{"PUT", "/v1/sandboxes/" + id}:     "DELETE, GET, HEAD",
		{"GET", at(id, "start")}:           "POST",
		{"PATCH", at(id, "extend_ttl")}:    "POST",
		{"OPTIONS", at(id, "keepalive")}:   "POST",
		{"DELETE", at(id, "stop")}:         "POST",
		{"POST", "/v1/sandboxes/nonsense"}: "DELETE, GET, HEAD",
	} {
		got := w.send(call[0], call[1], "")
		got.want(t, 405, "method_not_allowed")
		if got.Header.Get("Allow") != allowed {
			t.Errorf("%v: Allow is %q", call, got.Header.Get("Allow"))
		}
	}
}

func TestRoute_EveryResponseHasARequestId(t *testing.T) {
	w := newWorld(t)
	for _, own := range []string{"r-1", "a.b_C-9", strings.Repeat("x", 128)} {
		got := w.send("GET", "/v1/sandboxes/nonsense", "", "X-Request-Id", own)
		if got.failure.RequestID != own || got.Header.Get("X-Request-Id") != own {
			t.Errorf("%q became %q, %q", own, got.failure.RequestID, got.Header.Get("X-Request-Id"))
		}
	}
	for _, own := range []string{"", "a b", "a\nb", "<b>", strings.Repeat("x", 129)} {
		got := w.send("GET", "/v1/sandboxes/nonsense", "", "X-Request-Id", own)
		if id := got.Header.Get("X-Request-Id"); !isID(requestIDs, id) || got.failure.RequestID != id {
			t.Errorf("%q became %q, %q", own, got.failure.RequestID, id)
		}
	}
	if got := w.send("POST", "/v1/sandboxes", ""); !isID(requestIDs, got.Header.Get("X-Request-Id")) {
		t.Errorf("header %v", got.Header)
	}
	if got := w.send("POST", "/v1/sandboxes", "", "X-Request-Id", "mine"); got.Header.Get("X-Request-Id") != "mine" {
		t.Errorf("header %v", got.Header)
	}
}

func TestRoute_AStoreThatCanNotBeReachedIsReportedInTheEnvelope(t *testing.T) {
	w := newWorld(t)
	api, err := New(t.Context(), w.db, &apitest.Broken{Store: w.store, Err: errors.New("disk on fire")}, w.api.cfg)
	if err != nil {
		t.Fatal(err)
	}
	broken := *w
	broken.api = api
	got := broken.send("POST", "/v1/sandboxes", `{}`, key, "k1")
	got.want(t, 503, "unavailable")
	if strings.Contains(got.Body, "fire") || got.Header.Get("Retry-After") != "1" || !strings.Contains(w.log.String(), "disk on fire") {
		t.Errorf("%v %s", got.Header, got.Body)
	}
	if n := w.count("SELECT count(*) FROM sandboxes_sandboxes"); n != 0 {
		t.Error("something ran")
	}
}

func TestRoute_AnInternalErrorLeaksNothing(t *testing.T) {
	w := newWorld(t)
	w.exec("ALTER TABLE sandboxes_sandboxes RENAME TO elsewhere")
	for _, header := range [][]string{nil, {key, "k1"}} {
		got := w.send("POST", "/v1/sandboxes", `{}`, header...)
		got.want(t, 500, "internal_error")
		if strings.Contains(strings.ToLower(got.Body), "sql") || strings.Contains(got.Body, "sandboxes_") || len(got.failure.Details) != 0 {
			t.Error(got.Body)
		}
		if log := w.log.String(); !strings.Contains(log, "no such table") || !strings.Contains(log, got.failure.RequestID) {
			t.Errorf("the log has no cause: %s", log)
		}
	}
	w.exec("ALTER TABLE elsewhere RENAME TO sandboxes_sandboxes")
	w.create(`{}`, key, "k1")
}

func TestAPI_APanicIsAnInternalError(t *testing.T) {
	w := newWorld(t)
	w.api.Router = serving.NewRouter(w.api.caller, w.api.reject, map[string]serving.Methods{
		"/panic": {"GET": w.api.owned(func(*call) (response, error) { panic("secret") })},
		"/abort": {"GET": w.api.owned(func(*call) (response, error) { panic(http.ErrAbortHandler) })},
	})
	got := w.send("GET", "/panic", "")
	got.want(t, 500, "internal_error")
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
	for want, cfg := range map[string]Config{
		"Dir":         {},
		"Keep":        {Dir: "x", Keep: -1},
		"MaxExtend":   {Dir: "x", MaxExtend: -1},
		"IdleTimeout": {Dir: "x", IdleTimeout: 1},
		"Command":     {Dir: "x", Profiles: map[string]Profile{"p": {Command: "./run"}}},
	} {
		func() {
			defer func() {
				if p := fmt.Sprint(recover()); !strings.Contains(p, "Config."+want) && !strings.Contains(p, want+" is") {
					t.Errorf("%s: %s", want, p)
				}
			}()
			cfg.withDefaults()
		}()
	}
}
