package echo5once_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/labstack/echo/v5"
	"github.com/labstack/echo/v5/middleware"

	"github.com/onlyonce-go/onlyonce"
	"github.com/onlyonce-go/onlyonce/httponce"
)

// timed is a middleware that runs the ones inside it on another goroutine.
var timed = echo.WrapMiddleware(func(h http.Handler) http.Handler { return http.TimeoutHandler(h, time.Hour, "") })

func TestMiddleware_OnAnotherGoroutineItPanicsBeforeAnythingRuns(t *testing.T) {
	e, once, store := newOnce()
	e.POST("/charges", func(*echo.Context) error { t.Error("it ran"); return nil }, timed, once)
	func() {
		defer func() {
			if text := fmt.Sprint(recover()); !strings.Contains(text, "use middleware.ContextTimeout inside this one instead") {
				t.Errorf("the panic is %s", text)
			}
		}()
		serve(e, "/charges")
	}()
	for rec, err := range store.List(t.Context(), onlyonce.Filter{}) {
		t.Errorf("record %+v, %v", rec, err)
	}
}

func TestMiddleware_ADeadlineReachesTheHandlerFromInsideOnly(t *testing.T) {
	e, once, _ := newOnce()
	var isSet bool
	handler := func(c *echo.Context) error {
		_, isSet = c.Request().Context().Deadline()
		return c.NoContent(http.StatusCreated)
	}
	deadline := middleware.ContextTimeout(time.Hour)
	e.POST("/inside", handler, once, deadline)
	e.POST("/outside", handler, deadline, once)
	for path, want := range map[string]bool{"/inside": true, "/outside": false} {
		if serve(e, path); isSet != want {
			t.Errorf("%s: a deadline: %t", path, isSet)
		}
	}
}

func TestMiddleware_ATimeoutHandlerAroundEchoIsAccepted(t *testing.T) {
	e, once, store := newOnce()
	e.POST("/charges", func(c *echo.Context) error { return c.NoContent(http.StatusCreated) }, once)
	r := httptest.NewRequest(http.MethodPost, "/charges", nil)
	r.Header.Set(httponce.DefaultHeader, "k")
	w := httptest.NewRecorder()
	if http.TimeoutHandler(e, time.Hour, "").ServeHTTP(w, r); w.Code != http.StatusCreated {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	wantState(t, store, "POST /charges", onlyonce.StateCompleted)
}
